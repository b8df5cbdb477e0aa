"""Room that a run's log has taken on the disk beyond its end (R15).

It decides how much is taken, which records may use it up, and when it is given back. It
refuses to write a record.

    none ─keep─▶ taken ─keep─▶ taken further, in steps       give_back, at the close ─▶ none
      └───────────┴── the disk is full ─▶ short: only ends are written, into what was taken

The blocks belong to the log itself, so nobody else can take them first, and no reader sees
them: the file is as long as its records.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from protocol.base.ports import Filesystem
from protocol.base.reserve import NO_SPACE
from protocol.limits import RESERVE_STEP_BYTES, RUN_LOG_RESERVE_BYTES
from runnerd.runs.receipts import EFFECT_RECEIPT, EffectStatus
from runnerd.runs.records import OperationEvent, RecordKind, RunRecord

_END_KINDS: Final = frozenset({RecordKind.VERIFICATION, RecordKind.PAUSE, RecordKind.FINISH})
_BEGINNINGS: Final = (
    OperationEvent.ACCEPT.value,
    OperationEvent.START.value,
    OperationEvent.RESUME.value,
)


class LogRoom:
    """The room of one file. A new file begins with a new one."""

    def __init__(self, fs: Filesystem) -> None:
        self._fs = fs
        self._taken_bytes = 0
        self._is_offered = True
        """False once the file system has said that it takes no room in advance."""
        self.is_short = False
        """The disk had no room for what is to be kept."""

    def keep(self, descriptor: int, end_bytes: int) -> None:
        """Have `RUN_LOG_RESERVE_BYTES` beyond an end that the file is about to have.

        Raises OSError of a full disk: then only an end may be written. A file system that
        takes no room in advance gives none, and nothing is refused for it.
        """
        if not self._is_offered or end_bytes + RUN_LOG_RESERVE_BYTES <= self._taken_bytes:
            return
        # In steps, so that not every record asks the disk.
        wanted = end_bytes + RUN_LOG_RESERVE_BYTES + RESERVE_STEP_BYTES
        try:
            self._fs.allocate_ahead(descriptor, wanted)
        except OSError as error:
            self.is_short = error.errno in NO_SPACE
            if self.is_short:
                raise
            self._is_offered = False
        else:
            self._taken_bytes, self.is_short = wanted, False

    def give_back(self, descriptor: int, end_bytes: int) -> None:
        """Let go of the room, unless the disk is full and an end may still come."""
        if self.is_short or self._taken_bytes <= end_bytes:
            return
        self._taken_bytes = 0
        with suppress(OSError):
            # Only behind the last record: what is not expected there is left alone.
            if self._fs.fstat(descriptor).size_bytes == end_bytes:
                self._fs.truncate(descriptor, end_bytes)


def is_an_end(record: RunRecord) -> bool:
    """Tell whether a record may use the room that is kept: it ends something and begins nothing."""
    if record.kind in _END_KINDS:
        return True
    payload = record.payload
    if not isinstance(payload, Mapping):
        return False
    if record.kind is RecordKind.OPERATION:
        return payload.get("event") not in _BEGINNINGS
    event = payload.get("event")
    return (
        record.kind is RecordKind.EVENT
        and isinstance(event, Mapping)
        and event.get("type") == EFFECT_RECEIPT
        and event.get("status") != EffectStatus.STARTED.value
    )
