import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

# A subreaper is a whole process, so each case runs in one of its own.
PREAMBLE = """
import json, os, select, signal, subprocess
from controller_mock.io import orphans

def ended(pid):
    descriptor = os.pidfd_open(pid)
    select.select([descriptor], [], [])
    os.close(descriptor)

def orphan(command):
    "Return the pid of a process whose parent was killed."
    script = command + " & echo $!; exec sleep 1000"
    parent = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE)
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    return pid

assert orphans.become_subreaper()
"""


def run(script: str) -> object:
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + script], capture_output=True, timeout=60, check=True
    )
    return json.loads(done.stdout)


def test_orphan_of_a_killed_parent_is_adopted_and_ended() -> None:
    found = run(
        """
pid = orphan("exec sleep 1000")
adopted = orphans.children() == {pid}
print(json.dumps([adopted, orphans.end_orphans(), list(orphans.children())]))
"""
    )

    assert found == [True, 1, []]


def test_dead_orphan_is_buried_and_a_living_one_is_left() -> None:
    found = run(
        """
living, dead = orphan("exec sleep 1000"), orphan("exec sleep 1000")
os.kill(dead, signal.SIGKILL)
ended(dead)
buried = orphans.reap_orphans()
left = orphans.children() == {living}
orphans.end_orphans()
print(json.dumps([buried, left]))
"""
    )

    assert found == [1, True]


def test_owned_children_are_neither_buried_nor_ended() -> None:
    found = run(
        """
dead, living = subprocess.Popen(["true"]), subprocess.Popen(["sleep", "1000"])
ended(dead.pid)
owned = {dead.pid, living.pid}
counts = [orphans.reap_orphans(owned), orphans.end_orphans(owned)]
status = dead.wait()
running = living.poll() is None
living.kill()
living.wait()
print(json.dumps([counts, status, running]))
"""
    )

    assert found == [[0, 0], 0, True]


def test_tree_that_hands_its_children_over_is_ended_whole() -> None:
    found = run(
        """
tree = "sh -c 'setsid sleep 1000 & setsid sh -c \\"sleep 1000 & sleep 1000\\" & sleep 1000'"
orphan(tree)
while len(orphans.children()) < 1:
    pass
ended_count = orphans.end_orphans()
print(json.dumps([ended_count >= 1, list(orphans.children())]))
"""
    )

    assert found == [True, []]
