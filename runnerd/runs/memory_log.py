"""A run's log in memory, for a host that keeps no files.

It decides the same conflicts as a log on a disk. It refuses to call anything critical:
nothing here outlives the process.
"""

from protocol.errors import ErrorCode, PrpError
from runnerd.runs.log_facts import LogFacts
from runnerd.runs.records import Durability, RunRecord, check_run_id
from runnerd.runs.run_log import is_same_record, spell_record
from runnerd.runs.run_writer import Acknowledgement, Boundary


class MemoryLog:
    """The records of one run."""

    def __init__(self, run_id: str) -> None:
        check_run_id(run_id)
        self.run_id = run_id
        self._records: list[RunRecord] = []
        self._facts = LogFacts()

    @property
    def facts(self) -> LogFacts:
        """The end of the log: last sequence, whether it is finished or verified."""
        return self._facts

    @property
    def boundary(self) -> Boundary:
        """Nothing here outlives the process."""
        return Boundary.PROCESS_MEMORY

    @property
    def records(self) -> tuple[RunRecord, ...]:
        """Every record so far."""
        return tuple(self._records)

    def append(self, record: RunRecord, durability: Durability) -> Acknowledgement:
        """Make a record the next one, or find that it is there already.

        Raises what `RunWriter.append` raises without a disk, and PrpError
        ``durability_unsupported`` for a critical one. Source: durable-runs 2.
        """
        spell_record(record)
        if record.run_id != self.run_id:
            raise PrpError(ErrorCode.RUN_STATE_CORRUPT, "a record of another run")
        if durability is Durability.CRITICAL:
            raise PrpError(ErrorCode.DURABILITY_UNSUPPORTED, "memory keeps nothing")
        count = len(self._records)
        if 1 <= record.sequence <= count:
            if not is_same_record(self._records[record.sequence - 1], record):
                raise PrpError(ErrorCode.RUN_STATE_CONFLICT, "another record stands already")
        elif record.sequence == count + 1:
            self._records.append(record)
            self._facts = self._facts.after(record)
        else:
            raise PrpError(ErrorCode.RUN_STATE_CONFLICT, f"not the record behind {count}")
        return Acknowledgement(
            requested=durability, achieved=durability, boundary=Boundary.PROCESS_MEMORY
        )
