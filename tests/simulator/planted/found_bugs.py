"""Bugs that simulated histories have found, put in again: each must still be noticed.

It decides which repair is taken out. It refuses to know how the simulator finds it.
"""

from typing import Final

from tests.simulator.planted.bug import Bug, Edit

CORE: Final = "runnerd/core/"

BUGS: Final = (
    Bug(
        "F01",
        "a put-back state goes unnoticed if the cursor covers only its own new event",
        ("I4",),
        (
            Edit(
                CORE + "connection.py",
                "    if cursor > runner.live.frozen_through:\n",
                "    if cursor >= runner.durable.next_source_seq:\n",
            ),
        ),
        needs=("put_back", "crash"),
    ),
    Bug(
        "F02",
        "a late shutdown turns revoked into stopped",
        ("I13",),
        (
            Edit(
                CORE + "duties.py",
                "    if fence is None or present is Lifecycle.REVOKED:\n",
                "    if fence is None:\n",
            ),
        ),
        needs=("revoke", "shutdown", "suspend"),
    ),
    Bug(
        "F03",
        "an expired lease makes a draining runner ready again",
        ("I17",),
        (
            Edit(
                CORE + "ending.py",
                "    {Lifecycle.DRAINING, Lifecycle.REVOKED, ",
                "    {Lifecycle.REVOKED, ",
            ),
        ),
        needs=("drain", "lease_end"),
    ),
    Bug(
        "F04",
        "the spent ticket is dialled with when the lease ends in a shutdown",
        ("I13", "I18", "I20"),
        (
            Edit(
                CORE + "ending.py",
                "not live.dialing and not gives_up and has_credential\n",
                "not live.dialing and not gives_up\n",
            ),
        ),
        needs=("revoke", "shutdown", "wall", "lease_end"),
    ),
    Bug(
        "F11",
        "a call leaves before the log of the run has it",
        ("I7",),
        (
            Edit(
                CORE + "recording.py",
                "    if not live.recording and live.record_retry_at_mono_ms is None:\n",
                "    if True:\n",
            ),
        ),
        needs=("dialogue", "run log"),
    ),
    Bug(
        "F12",
        "a program is told a result before the log of the run has it",
        ("I7",),
        (
            Edit(
                CORE + "dialogue.py",
                "and not may_tell(runner, command.settles):\n",
                "and False:\n",
            ),
        ),
        needs=("dialogue", "run log"),
    ),
    Bug(
        "F13",
        "the log of the run is told of a call that no restart would know",
        ("I7",),
        (
            Edit(
                CORE + "recording.py",
                "(claim(ordered, RecordFacts(due)),) if due else ())\n",
                "(Gated(RecordFacts(due), passes=True),) if due else ())\n",
            ),
            Edit(
                CORE + "recording.py",
                "from protocol.base.revision import Transition\n",
                "from protocol.base.revision import Gated, Transition\n",
            ),
        ),
        needs=("dialogue", "run log"),
    ),
)
