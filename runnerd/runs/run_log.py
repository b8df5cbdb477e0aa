"""Bytes of a run log to records and back: strict reading, the torn tail, the chain.

It decides which bytes are a whole log, which are one with a torn tail, and which are
damage. It refuses to open files, to sort, to skip a broken line, and to mend anything: it
says where the whole part ends.

Two formats, told apart by the first record:

    plain    {"version":1,...}<LF>                     the original's; blank lines are skipped,
                                                       a last line without LF may be whole
    chained  {"version":1,...,"chain":"sha256:<hex>"}<LF>   ours; every line is whole or torn (R19)

The digest of a chained line covers the digest before it and every byte of the line in front
of the member, so that one changed bit, one lost or one moved line is seen (R24). Records cut
off at the end of a log at a line's border cannot be seen by any log alone.
"""

import enum
import hashlib
import re
from typing import Final

import msgspec

from protocol.canonical_json import JsonValue
from protocol.digest import LABEL_PREFIX, framed
from protocol.errors import ErrorCode, PrpError
from protocol.limits import RUN_RECORD_BYTES_MAX
from runnerd.runs.json_lines import ParsedJson, comparable_json, parse_json, spell_json
from runnerd.runs.records import (
    CHAIN_MEMBER,
    JSON_BLANKS,
    RecordKind,
    RunRecord,
    check_run_id,
    corrupt,
    read_record,
    record_members,
)
from runnerd.runs.trace_rules import check_trace

CHAIN_DOMAIN: Final = "runnerd.run-record.v1"

_LF: Final = b"\n"
_HEX_LENGTH: Final = 64
_BEFORE_LINK: Final = f',"{CHAIN_MEMBER}":"{LABEL_PREFIX}'.encode()
_AFTER_LINK: Final = b'"}'
_SUFFIX_LENGTH: Final = len(_BEFORE_LINK) + _HEX_LENGTH + len(_AFTER_LINK)
_SUFFIX: Final = re.compile(re.escape(_BEFORE_LINK) + b"[0-9a-f]{64}" + re.escape(_AFTER_LINK))


class LogFormat(enum.Enum):
    """Whose log it is."""

    PLAIN = "plain"
    CHAINED = "chained"


class LogEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What a whole pass over a log has found."""

    log_format: LogFormat | None
    """None if there is no record."""
    record_count: int
    complete_bytes: int
    """Length of the part that is whole; what follows is a torn tail."""
    is_torn: bool
    lacks_line_end: bool
    """The whole part does not end in LF: the next record must put one first."""
    chain: bytes
    """The last link; empty if nothing is chained."""


EMPTY_LOG: Final = LogEnd(
    log_format=None,
    record_count=0,
    complete_bytes=0,
    is_torn=False,
    lacks_line_end=False,
    chain=b"",
)


class EncodedLine(msgspec.Struct, frozen=True):
    """A line with its LF, and the link that the next line must continue."""

    line: bytes
    chain: bytes


class LogScanner:
    """One pass over the bytes of one run's log, in pieces of any size.

    Every method raises PrpError ``run_state_corrupt`` at the first damage, naming the line;
    nothing that was returned before may then be acted on.
    """

    def __init__(self, run_id: str) -> None:
        check_run_id(run_id)
        self._run_id = run_id
        self._format: LogFormat | None = None
        self._count = 0
        self._lines = 0
        self._complete_bytes = 0
        self._chain = b""
        self._rest = b""

    def feed(self, data: bytes) -> list[RunRecord]:
        """Return the records that ``data`` completes."""
        *lines, self._rest = (self._rest + data).split(_LF)
        records: list[RunRecord] = []
        for line in lines:
            record = self._terminated(line)
            self._complete_bytes += len(line) + len(_LF)
            if record is not None:
                records.append(record)
        if len(self._rest) > RUN_RECORD_BYTES_MAX:
            raise self._damage("longer than any record")
        return records

    def finish(self) -> tuple[list[RunRecord], LogEnd]:
        """Return a last record without its line end, if that is whole, and how the log ends."""
        records: list[RunRecord] = []
        rest, is_torn = self._rest, False
        if rest:
            self._lines += 1
            record, is_torn = self._unterminated(rest)
            if record is not None:
                records.append(record)
            if not is_torn:
                self._complete_bytes += len(rest)
        return records, LogEnd(
            log_format=self._format,
            record_count=self._count,
            complete_bytes=self._complete_bytes,
            is_torn=is_torn,
            lacks_line_end=bool(rest) and not is_torn,
            chain=self._chain,
        )

    def _terminated(self, line: bytes) -> RunRecord | None:
        self._lines += 1
        if not self._is_chained() and _is_blank(line):
            self._format = LogFormat.PLAIN
            return None
        if len(line) > RUN_RECORD_BYTES_MAX:
            raise self._damage("longer than any record")
        value = _parsed(line)
        if value is None:
            raise self._damage("not JSON")
        return self._accepted(value, line)

    def _unterminated(self, line: bytes) -> tuple[RunRecord | None, bool]:
        """Return the record that the last line is, and whether it is torn."""
        if self._is_chained():
            return None, True
        if _is_blank(line):
            return None, False
        value = _parsed(line)
        if value is not None:
            record = self._accepted(value, line)
            if self._is_chained():
                raise self._damage("the only record is torn")
            return record, False
        if self._count == 0:
            raise self._damage("the only line is broken")
        if _parsed(line.decode(errors="replace").encode()) is not None:
            # A line that is whole but for some bytes was damaged, not cut.
            raise self._damage("not UTF-8")
        return None, True

    def _accepted(self, value: ParsedJson, line: bytes) -> RunRecord:
        is_chained = (
            line.startswith(_BEFORE_LINK, len(line) - _SUFFIX_LENGTH)
            and _SUFFIX.fullmatch(line, len(line) - _SUFFIX_LENGTH) is not None
        )
        if is_chained and isinstance(value.json, dict):
            # The link is about the line; it is no member of the record.
            value.json.pop(CHAIN_MEMBER, None)
        try:
            record = read_record(value.json, self._run_id)
            if record.kind is RecordKind.EVENT:
                check_trace(record.payload, self._run_id)
        except PrpError as error:
            raise self._damage(error.message) from None
        if record.sequence != self._count + 1:
            raise self._damage(f"sequence {record.sequence} where {self._count + 1} must stand")
        self._check_link(record, line, is_chained=is_chained)
        self._count += 1
        return record

    def _check_link(self, record: RunRecord, line: bytes, *, is_chained: bool) -> None:
        if self._format is None:
            self._format = LogFormat.CHAINED if is_chained else LogFormat.PLAIN
        if self._format is LogFormat.PLAIN:
            if is_chained or _resembles_chained(record, line):
                raise self._damage("a link in a log that is not chained")
            return
        if not is_chained:
            raise self._damage("no link in a chained log")
        link = _link(self._chain, line[:-_SUFFIX_LENGTH])
        if link.hex().encode() != line[-_HEX_LENGTH - len(_AFTER_LINK) : -len(_AFTER_LINK)]:
            raise self._damage("the line does not match its link")
        self._chain = link

    def _is_chained(self) -> bool:
        return self._format is LogFormat.CHAINED

    def _damage(self, what: str) -> PrpError:
        return corrupt(f"line {self._lines}: {what}")


def spell_record(record: RunRecord) -> bytes:
    """Return a record as the JSON object of its line, still without link and line end.

    Raises:
        PrpError: ``run_state_corrupt`` for a record that no reader would accept (a member
            of the wrong kind, a number that JSON cannot hold, a malformed trace event),
            ``run_state_failed`` for one beyond `RUN_RECORD_BYTES_MAX`.
    """
    check_run_id(record.run_id)
    if CHAIN_MEMBER in record.extra:
        raise corrupt(f"{CHAIN_MEMBER} is not a member to be given")
    members = record_members(record)
    read_record(members, record.run_id)
    if record.kind is RecordKind.EVENT:
        check_trace(record.payload, record.run_id)
    body = _spelled(members)
    if len(body) + _SUFFIX_LENGTH > RUN_RECORD_BYTES_MAX:
        raise PrpError(ErrorCode.RUN_STATE_FAILED, "the record is longer than a reader accepts")
    return body


def encode_line(body: bytes, log_format: LogFormat, chain: bytes) -> EncodedLine:
    """Return the line of a spelled record and the link behind it.

    Args:
        body: from `spell_record`.
        chain: the link before it, `LogEnd.chain`; it has no meaning in a plain log.
    """
    if log_format is LogFormat.PLAIN:
        return EncodedLine(body + _LF, b"")
    link = _link(chain, body[:-1])
    line = b"".join((body[:-1], _BEFORE_LINK, link.hex().encode(), _AFTER_LINK, _LF))
    return EncodedLine(line, link)


def is_same_record(one: RunRecord, other: RunRecord) -> bool:
    """Tell whether both have the same serialised form; the order of members is no difference.

    What cannot be compared is not the same.
    """
    try:
        return _comparable(one) == _comparable(other)
    except PrpError:
        return False


def _comparable(record: RunRecord) -> bytes:
    parsed = _parsed(_spelled(record_members(record)))
    assert parsed is not None, "what was spelled is JSON"
    return comparable_json(parsed.json)


def _parsed(line: bytes) -> ParsedJson | None:
    try:
        return parse_json(line)
    except PrpError as error:
        raise corrupt(error.message) from None


def _is_blank(line: bytes) -> bool:
    if not line.strip():
        return True
    if line[0] < 0x80 and not line[:1].isspace():
        return False
    try:
        return not line.decode().strip(JSON_BLANKS)
    except UnicodeDecodeError:
        return False


def _link(chain: bytes, body: bytes) -> bytes:
    return hashlib.sha256(framed(CHAIN_DOMAIN, chain, body)).digest()


def _resembles_chained(record: RunRecord, line: bytes) -> bool:
    """Tell whether a plain line was a chained one before some bytes of it changed."""
    value = record.extra.get(CHAIN_MEMBER)
    if isinstance(value, str) and value.startswith(LABEL_PREFIX):
        return True
    tail = line[-_SUFFIX_LENGTH:]
    equal = sum(a == b for a, b in zip(tail, _BEFORE_LINK, strict=False))
    return 2 * equal > len(_BEFORE_LINK)


def _spelled(members: dict[str, JsonValue]) -> bytes:
    try:
        return spell_json(members)
    except PrpError as error:
        raise corrupt(error.message) from None
