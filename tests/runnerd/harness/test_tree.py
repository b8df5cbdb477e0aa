"""The end of a tree is proven by a look, or it is told how many are left."""

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from runnerd.harness.proc import Process, boot_id, read_process
from runnerd.harness.tree import Grace, end_now, ending
from tests.runnerd.harness.support import PATIENCE_S

pytestmark = pytest.mark.process


class Listed:
    """A tree of given processes, as they are when it is looked at."""

    def __init__(self, *pids: int) -> None:
        self.pids = pids
        self.looks = 0

    def members(self) -> Iterator[Process]:
        self.looks += 1
        for pid in self.pids:
            process = read_process(pid, boot_id())
            if process is not None and not process.is_dead:
                yield process


class Unseen:
    """A tree that cannot be looked at."""

    def members(self) -> Iterator[Process]:
        raise OSError(24, os.strerror(24))


def test_end_of_an_empty_tree_is_proven_by_one_look() -> None:
    tree = Listed()

    assert list(ending(tree, Grace(60_000))) == []
    assert tree.looks == 1


def test_member_that_obeys_is_ended_by_term_within_the_grace() -> None:
    with subprocess.Popen(("sleep", "1000")) as popen:
        assert end_now(Listed(popen.pid), 60_000) == 0

        assert popen.wait(PATIENCE_S) == -signal.SIGTERM


def test_member_that_is_stopped_is_ended_by_term_too() -> None:
    with subprocess.Popen(("sleep", "1000")) as popen:
        popen.send_signal(signal.SIGSTOP)

        assert end_now(Listed(popen.pid), 60_000) == 0

        assert popen.wait(PATIENCE_S) == -signal.SIGTERM


def test_member_that_ignores_term_is_killed_after_the_grace() -> None:
    source = "trap '' TERM; echo; while :; do sleep 0.1; done"
    with subprocess.Popen(("sh", "-c", source), stdout=subprocess.PIPE) as popen:
        assert popen.stdout is not None
        assert popen.stdout.readline() == b"\n"

        assert end_now(Listed(popen.pid), 20) == 0

        assert popen.wait(PATIENCE_S) == -signal.SIGKILL


def test_tree_that_cannot_be_looked_at_is_not_told_to_be_gone() -> None:
    assert end_now(Unseen(), 0) == 1


def test_grace_only_becomes_shorter() -> None:
    grace = Grace(3_600_000)
    assert not grace.is_over()

    grace.shorten(0)
    grace.shorten(3_600_000)

    assert grace.is_over()
