"""Planted bugs of durable runs: the log, its writer, receipts and the planner.

It decides what is broken and by which invariant that must be named. It refuses to know how
the simulator finds it.
"""

from typing import Final

from tests.simulator.planted.bug import Bug, Edit

RUNS: Final = "runnerd/runs/"

BUGS: Final = (
    Bug(
        "B17a",
        "timeout of a started effect recorded as committed",
        ("I14",),
        (
            Edit(
                RUNS + "coordinator.py",
                "EffectStatus.UNKNOWN if has_started else None)",
                "EffectStatus.COMMITTED if has_started else None)",
            ),
        ),
        stack="runs",
        needs=("timeout",),
    ),
    Bug(
        "B17b",
        "timeout of a started effect recorded as not done",
        ("I13", "I14"),
        (
            Edit(
                RUNS + "coordinator.py",
                "EffectStatus.UNKNOWN if has_started else None)",
                "None)",
            ),
        ),
        stack="runs",
        needs=("timeout",),
    ),
    Bug(
        "B17c",
        "an error of a started effect recorded as committed",
        ("I14",),
        (
            Edit(
                RUNS + "coordinator.py",
                "            status = EffectStatus.UNKNOWN\n        return (marked,",
                "            status = EffectStatus.COMMITTED\n        return (marked,",
            ),
        ),
        stack="runs",
        needs=("tool_error",),
    ),
    Bug(
        "B24a",
        "run log reader sorts records",
        ("I22",),
        (
            Edit(
                RUNS + "run_log.py",
                "        *lines, self._rest = (self._rest + data).split(_LF)\n",
                "        *lines, self._rest = (self._rest + data).split(_LF)\n"
                "        lines.sort(key=_number)\n",
            ),
            Edit(
                RUNS + "run_log.py",
                "def spell_record(record: RunRecord) -> bytes:\n",
                "def _number(line: bytes) -> int:\n"
                "    digits = re.search(rb'\"sequence\":(\\d+)', line)\n"
                "    return int(digits[1]) if digits else 0\n\n\n"
                "def spell_record(record: RunRecord) -> bytes:\n",
            ),
        ),
        stack="runs",
        needs=("damage",),
    ),
    Bug(
        "B24b",
        "run log reader repairs damage in the middle",
        ("I22",),
        (
            Edit(
                RUNS + "run_log.py",
                '            raise self._damage("not JSON")\n',
                "            self._format = LogFormat.CHAINED\n            return None\n",
            ),
        ),
        stack="runs",
        needs=("damage",),
    ),
    Bug(
        "B24c",
        "run log reader does not compare the links",
        ("I22",),
        (
            Edit(
                RUNS + "run_log.py",
                "        if link.hex().encode() != "
                "line[-_HEX_LENGTH - len(_AFTER_LINK) : -len(_AFTER_LINK)]:\n"
                '            raise self._damage("the line does not match its link")\n',
                "",
            ),
        ),
        stack="runs",
        needs=("damage",),
    ),
    Bug(
        "B33",
        "a critical record is acknowledged without a sync",
        ("I7", "I22"),
        (
            Edit(
                RUNS + "run_writer.py",
                "                self._folder.fs.sync(descriptor)\n            except OSError",
                "                pass\n            except OSError",
            ),
        ),
        stack="runs",
    ),
    Bug(
        "B34",
        "an effect begins before its receipt is durable",
        ("I7", "I14"),
        (
            Edit(
                RUNS + "journal.py",
                'event.get("type") == _RECEIPT and event.get("status") != _NOT_STARTED\n',
                'event.get("type") == _RECEIPT and event.get("status") == _NOT_STARTED\n',
            ),
        ),
        stack="runs",
    ),
    Bug(
        "B35",
        "a run with an effect in doubt is resumed",
        ("I14",),
        (
            Edit(
                RUNS + "resume_table.py",
                "    Row(finding=Finding.UNKNOWN_EFFECT, code=ErrorCode.UNKNOWN_EFFECT),\n",
                "",
            ),
        ),
        stack="runs",
        needs=("timeout",),
    ),
    Bug(
        "B36",
        "a writer does not look whether the run is locked",
        ("I16",),
        (
            Edit(
                RUNS + "run_store.py",
                "        lock = self._lock(folder, run_id)\n"
                "        writer = RunWriter(folder, run_id, self._new_format)\n"
                "        try:\n            writer.load()\n            if",
                "        self._locks.held.clear()  # type: ignore[attr-defined]\n"
                "        lock = self._lock(folder, run_id)\n"
                "        writer = RunWriter(folder, run_id, self._new_format)\n"
                "        try:\n            writer.load()\n            if",
            ),
        ),
        stack="runs",
        needs=("rival",),
    ),
    Bug(
        "B37",
        "a record is taken behind the end of the run",
        ("I13",),
        (
            Edit(
                RUNS + "journal.py",
                "        if self._is_terminal:\n            raise",
                "        if False:\n            raise",
            ),
        ),
        stack="runs",
        needs=("cancel",),
    ),
    Bug(
        "F05",
        "a third attempt shows the outside the second one's key",
        ("I14",),
        (
            Edit(
                RUNS + "resume_plan.py",
                "        return self.external_key or self.previous_receipt_id\n",
                "        return self.previous_receipt_id\n",
            ),
        ),
        stack="runs",
        needs=("crash", "disk"),
    ),
)
