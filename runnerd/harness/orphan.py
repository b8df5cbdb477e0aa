"""The harness that an earlier runner process left behind: found, ended, proven gone.

It decides from birth identity and launch mark which processes are its. It refuses to signal
a process on a number alone, and imports nothing that a start does not need anyway.
"""

import os
import time
from collections.abc import Iterator
from typing import Final, Literal

from protocol.limits import HARNESS_POLL_MS
from protocol.process_birth import ProcessBirth, same_process
from runnerd.core.inputs import OrphanSettled
from runnerd.core.state import Turn
from runnerd.harness.environment import mark_variable
from runnerd.harness.proc import Process, boot_id, environment, processes
from runnerd.harness.tree import end_now

_MS_PER_S: Final = 1_000

Outcome = Literal["gone", "ended", "survived"]


def settle_orphan(turn: Turn, launch_mark: str, grace_ms: int) -> OrphanSettled:
    """Find what is left of a turn's harness, end it, and say what was proven.

    Blocks for at most the grace and the time of killing. A program that was held at its
    gate when the runner died ends by itself, without having run.

    Args:
        turn: the live turn of the loaded state; its birth may not be known.
        launch_mark: the text that was put into the harness's environment.

    Returns:
        ``gone``: no process of it existed any more. ``ended``: some did, and none does
        now. ``survived``: some is left, or might be: nothing may be started beside it.

    Source: runner-behaviour 13, faults P05 and H04, architecture 8.4.
    """
    return OrphanSettled(turn.generation, _settle(turn.birth, launch_mark, grace_ms))


def _settle(leader: ProcessBirth | None, launch_mark: str, grace_ms: int) -> Outcome:
    try:
        if leader is not None and leader.boot_id != boot_id():
            return "gone"
        orphans = Orphans(leader, launch_mark)
        found = _exists(orphans)
        left = end_now(orphans, grace_ms) if found else 0
        if left or _exists(orphans) or orphans.has_doubtful():
            return "survived"
    except OSError:
        return "survived"
    return "ended" if found else "gone"


def _exists(orphans: "Orphans") -> bool:
    """Look twice: between two programs a process shows an empty environment for a moment."""
    for pause_s in (HARNESS_POLL_MS / _MS_PER_S, 0):
        if any(True for _ in orphans.members()):
            return True
        time.sleep(pause_s)
    return False


class Orphans:
    """The processes of a launch, looked for in the whole of /proc.

    Verified are: the leader, by its birth; whoever was started with the launch mark; and
    from them, in any number of steps, their children and the other members of their
    sessions, since a session's members all descend from the process that made it. Whoever
    was verified once stays so until it is dead, a session until it is empty.

    A process that cleared its environment, left its session and lost its parent before the
    first look cannot be known. Only its own control group could tell.
    """

    def __init__(self, leader: ProcessBirth | None, launch_mark: str) -> None:
        self._leader = leader
        self._variable = mark_variable(launch_mark)
        self._verified: set[tuple[int, int]] = set()
        self._unmarked: set[tuple[int, int]] = set()
        self._sessions: set[int] = set()
        self._own_pid = os.getpid()
        self._own_session = os.getsid(0)

    def members(self) -> Iterator[Process]:
        """Yield every living process that is verified to belong to the launch."""
        present = self._present()
        self._verify(present)
        for process in present:
            if process.key in self._verified and not process.is_dead:
                yield process

    def has_doubtful(self) -> bool:
        """Tell whether a process has the leader's session or group but nothing else to show.

        With the leader gone its number may have been given away, and the new owner may
        have left a session of that number, so such a process is never signalled. But it
        may be of the launch, so the launch is not proven to be gone either.
        """
        leader = self._leader
        if leader is None:
            return False
        present = self._present()
        if any(process.birth.pid == leader.pid for process in present):
            # Whoever has the number now is a stranger, and so is its session.
            return False
        return any(
            leader.pid in (process.birth.session_id, process.birth.process_group_id)
            and not process.is_dead
            for process in present
        )

    def _present(self) -> list[Process]:
        return [process for process in processes(boot_id()) if process.birth.pid != self._own_pid]

    def _verify(self, present: list[Process]) -> None:
        """Extend what is verified; within one look no number is given away twice."""
        # A session's number is not given away while it has a member.
        self._sessions &= {process.birth.session_id for process in present}
        self._verified |= {process.key for process in present if self._shows_itself(process)}
        while True:
            known = [process for process in present if process.key in self._verified]
            self._sessions |= {process.birth.session_id for process in known}
            self._sessions -= {0, self._own_session}
            parents = {process.birth.pid for process in known}
            more = {
                process.key
                for process in present
                if process.parent_pid in parents or process.birth.session_id in self._sessions
            } - self._verified
            if not more:
                return
            self._verified |= more

    def _shows_itself(self, process: Process) -> bool:
        if process.key in self._verified or process.key in self._unmarked:
            return False
        if self._leader is not None and same_process(process.birth, self._leader):
            return True
        block = environment(process.birth.pid)
        if self._variable in block:
            return True
        if block:
            # A mark is inherited, never gained: it is not looked for again.
            self._unmarked.add(process.key)
        return False
