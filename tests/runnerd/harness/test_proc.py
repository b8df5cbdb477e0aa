"""A look at /proc tells who a process is, and a signal reaches nobody else."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Generator

import pytest
from msgspec import structs

from runnerd.harness.proc import Process, boot_id, children, environment, read_process, send
from tests.runnerd.harness.support import PATIENCE_S, lives, python, wait_dead, wait_until

pytestmark = pytest.mark.process


@contextlib.contextmanager
def child(*argv: str, **environ: str) -> Generator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE) as popen:
        try:
            yield popen
        finally:
            popen.kill()


def look(pid: int) -> Process:
    process = read_process(pid, boot_id())
    assert process is not None
    return process


def test_look_at_this_process_shows_what_the_system_says() -> None:
    process = look(os.getpid())

    assert process.parent_pid == os.getppid()
    assert process.birth.process_group_id == os.getpgid(0)
    assert process.birth.session_id == os.getsid(0)
    assert not process.is_dead


def test_look_shows_nobody_when_the_number_is_free() -> None:
    with child("/bin/true") as popen:
        popen.wait()

        assert read_process(popen.pid, boot_id()) is None
        assert environment(popen.pid) == []
        assert children(popen.pid, boot_id()) == []


def test_process_that_waits_to_be_reaped_is_dead() -> None:
    with child("/bin/true") as popen:
        pidfd = os.pidfd_open(popen.pid)
        wait_dead(pidfd)
        os.close(pidfd)

        assert look(popen.pid).is_dead


def test_process_whose_first_thread_ended_lives() -> None:
    source = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""
    with child(*python(source)) as popen:
        wait_until(lambda: not lives(popen.pid))  # it shows the state of a zombie

        assert not look(popen.pid).is_dead


def test_environment_is_the_one_a_program_was_started_with() -> None:
    with child("/bin/sleep", "1000", ONE="1", TWO="2") as popen:
        wait_until(lambda: environment(popen.pid) != [])

        assert environment(popen.pid)[:2] == [b"ONE=1", b"TWO=2"]


def test_children_are_listed_until_they_are_reaped() -> None:
    with child("/bin/true") as popen:
        assert popen.pid in children(os.getpid(), boot_id())
        popen.wait()
        assert popen.pid not in children(os.getpid(), boot_id())


def test_signal_reaches_the_process_that_was_looked_at() -> None:
    with child("/bin/sleep", "1000") as popen:
        send(look(popen.pid), boot_id(), signal.SIGKILL)

        assert popen.wait(PATIENCE_S) == -signal.SIGKILL


def test_signal_reaches_nobody_when_the_number_belongs_to_another_process() -> None:
    with child("/bin/sleep", "1000") as popen:
        present = look(popen.pid)
        earlier = structs.replace(
            present,
            birth=structs.replace(present.birth, start_ticks=present.birth.start_ticks - 1),
        )

        send(earlier, boot_id(), signal.SIGKILL)
        send(present, boot_id(), signal.SIGTERM)

        assert popen.wait(PATIENCE_S) == -signal.SIGTERM


def test_signal_to_a_process_that_is_gone_changes_nothing() -> None:
    with child("/bin/sleep", "1000") as popen:
        gone = look(popen.pid)
        popen.kill()
        popen.wait()

        send(gone, boot_id(), signal.SIGKILL)

        assert read_process(popen.pid, boot_id()) is None
