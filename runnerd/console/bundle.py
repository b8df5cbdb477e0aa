"""One run as one file: its log, its snapshot, its receipts, and where secrets may stand in it.

It decides what a bundle holds and proves that all of it follows from the log. It refuses to
change a byte of the log: what would be hidden is listed beside it, so the chain stays whole.

    manifest.json       schema, run, number of records, last link, digest of every other file
    <run>.jsonl         the whole part of the log, byte for byte
    snapshot.json       the terminal envelope; absent if the log has no end that makes one
    receipts.json       receipts, attempts and decisions, with their records
    redactions.json     where a credential may stand: record, place in it, digest of the text
"""

import hashlib
import io
import os
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from protocol.base.private_directory import FILE_MODE, reason_of
from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from protocol.limits import RUN_BUNDLE_BYTES_MAX
from protocol.redaction import redact_value
from runnerd.flags import usage
from runnerd.runs.decisions import EFFECT_RECONCILED
from runnerd.runs.envelope import tell_story
from runnerd.runs.json_lines import comparable_json
from runnerd.runs.records import RecordKind, RunRecord, check_run_id, corrupt
from runnerd.runs.run_file import run_file_name
from runnerd.runs.run_log import LogEnd, LogScanner
from runnerd.runs.snapshot import encode_snapshot

BUNDLE_SCHEMA: Final = "runnerd.run-bundle.v1"
_MANIFEST: Final = "manifest.json"
_SNAPSHOT: Final = "snapshot.json"
_RECEIPTS: Final = "receipts.json"
_REDACTIONS: Final = "redactions.json"
_MEMBERS_MAX: Final = 5
_OF_EFFECTS: Final = ("effect_receipt", "tool_attempt")


class BundledFile(msgspec.Struct, frozen=True):
    """How a file of the bundle is known again."""

    sha256: str
    bytes: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a bundle holds."""

    schema: str
    run_id: str
    records: int
    chain: str
    """The last link of the chain, empty for a plain log."""
    files: dict[str, BundledFile]


class ReceiptRow(msgspec.Struct, frozen=True, kw_only=True):
    """One fact about an effect."""

    sequence: int
    timestamp: str
    fact: dict[str, JsonValue]


class RedactionRow(msgspec.Struct, frozen=True, kw_only=True):
    """One place at which a credential may stand; ``pointer`` is a JSON Pointer (RFC 6901)."""

    sequence: int
    pointer: str
    sha256: str


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """A log that was read whole."""

    records: tuple[RunRecord, ...]
    end: LogEnd


def read_log(run_id: str, data: bytes) -> Contents:
    """Return what the bytes of a log hold; raises PrpError ``run_state_corrupt``."""
    scanner = LogScanner(run_id)
    records = scanner.feed(data)
    last, end = scanner.finish()
    return Contents(records=(*records, *last), end=end)


def write_bundle(run_id: str, log: bytes, path: str) -> Manifest:
    """Write a new private file that holds the run.

    Raises:
        PrpError: ``usage_invalid`` if there is such a file; ``unknown_run``, ``run_state_failed``.
    """
    contents = read_log(run_id, log)
    if not contents.records:
        raise PrpError(ErrorCode.UNKNOWN_RUN, "there is no record of it")
    files = {run_file_name(run_id): log[: contents.end.complete_bytes], **_derived(contents)}
    manifest = _manifest(run_id, contents, files)
    packed = _packed({_MANIFEST: msgspec.json.encode(manifest), **files})
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        try:
            with open(descriptor, "wb") as target:
                target.write(packed)
                target.flush()
                os.fsync(descriptor)
        except OSError:
            # Half a bundle would be in the way of the next try.
            os.unlink(path)
            raise
    except FileExistsError:
        raise usage("there is a file of the name behind --output, which stays as it is") from None
    except (OSError, ValueError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else "no file has such a name"
        raise PrpError(ErrorCode.RUN_STATE_FAILED, f"the bundle: {reason}") from error
    return manifest


def verify_bundle(path: str) -> tuple[Manifest, Contents]:
    """Read a bundle and prove that each file is whole and follows from the log.

    Raises PrpError ``run_state_corrupt`` naming the file, and for the log the first line that
    breaks it; ``run_state_failed`` if the file cannot be read.
    """
    files = _unpacked(path)
    try:
        manifest = msgspec.json.decode(files.pop(_MANIFEST, b""), type=Manifest)
        check_run_id(manifest.run_id)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise corrupt(f"{_MANIFEST} says nothing") from None
    if manifest.schema != BUNDLE_SCHEMA:
        raise corrupt(f"{_MANIFEST} is of another version")
    name = run_file_name(manifest.run_id)
    contents = read_log(manifest.run_id, files.get(name, b""))
    if not contents.records or contents.end.is_torn:
        raise corrupt(f"{name} is not whole")
    expected = {name: files[name], **_derived(contents)}
    for one in sorted({*expected, *files}):
        if files.get(one) != expected.get(one):
            raise corrupt(f"{one} does not follow from the log")
    if manifest != _manifest(manifest.run_id, contents, expected):
        raise corrupt(f"{_MANIFEST} does not fit the log")
    return manifest, contents


def _manifest(run_id: str, contents: Contents, files: Mapping[str, bytes]) -> Manifest:
    return Manifest(
        schema=BUNDLE_SCHEMA,
        run_id=run_id,
        records=contents.end.record_count,
        chain=contents.end.chain.hex(),
        files={
            name: BundledFile(hashlib.sha256(data).hexdigest(), len(data))
            for name, data in files.items()
        },
    )


def _derived(contents: Contents) -> dict[str, bytes]:
    """Return the files that follow from the log."""
    return {
        **_snapshot(contents),
        _RECEIPTS: _spelled(_receipts(contents.records)),
        _REDACTIONS: _spelled(_redactions(contents.records)),
    }


def _snapshot(contents: Contents) -> dict[str, bytes]:
    try:
        snapshot = tell_story(contents.records).snapshot()
        return {} if snapshot is None else {_SNAPSHOT: encode_snapshot(snapshot)}
    except PrpError:
        # The log itself is the evidence, whatever is wrong with what it says.
        return {}


def _spelled(rows: Iterable[object]) -> bytes:
    """Return an array whose items are spelled one by one: there is no bound on their number."""
    return b"[" + b",".join(comparable_json(msgspec.to_builtins(row)) for row in rows) + b"]"


def _receipts(records: tuple[RunRecord, ...]) -> Iterator[ReceiptRow]:
    for record in records:
        payload = record.payload
        if not isinstance(payload, dict):
            continue
        fact: JsonValue = None
        if record.kind is RecordKind.CONTROL and payload.get("type") == EFFECT_RECONCILED:
            fact = payload
        elif record.kind is RecordKind.EVENT:
            event = payload.get("event")
            fact = event if isinstance(event, dict) and event.get("type") in _OF_EFFECTS else None
        if isinstance(fact, dict):
            yield ReceiptRow(sequence=record.sequence, timestamp=record.timestamp, fact=fact)


def _redactions(records: tuple[RunRecord, ...]) -> Iterator[RedactionRow]:
    for record in records:
        payload = None if record.payload is msgspec.UNSET else record.payload
        for pointer, hidden in _hidden(payload, redact_value(payload), "/payload"):
            digest = hashlib.sha256(comparable_json(hidden)).hexdigest()
            yield RedactionRow(sequence=record.sequence, pointer=pointer, sha256=digest)


def _hidden(value: JsonValue, shown: JsonValue, pointer: str) -> Iterator[tuple[str, JsonValue]]:
    """Yield each place whose value a reader would not be shown."""
    if isinstance(value, dict) and isinstance(shown, dict) and list(value) == list(shown):
        for name, item in value.items():
            step = name.replace("~", "~0").replace("/", "~1")
            yield from _hidden(item, shown[name], f"{pointer}/{step}")
    elif isinstance(value, list) and isinstance(shown, list):
        for index, (item, other) in enumerate(zip(value, shown, strict=True)):
            yield from _hidden(item, other, f"{pointer}/{index}")
    elif value != shown:
        yield pointer, value


def _packed(files: Mapping[str, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in files.items():
            # Nothing of the machine or the moment: one log has one bundle.
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), FILE_MODE
            archive.addfile(entry, io.BytesIO(data))
    return target.getvalue()


def _unpacked(path: str) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    try:
        with open(path, "rb") as source:
            packed = source.read(RUN_BUNDLE_BYTES_MAX + 1)
        if len(packed) > RUN_BUNDLE_BYTES_MAX:
            raise corrupt("the bundle is larger than any of ours")
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:") as archive:
            while (entry := archive.next()) is not None:
                is_plain = entry.type == tarfile.REGTYPE and not entry.issparse()
                if not is_plain or entry.name in files or len(files) == _MEMBERS_MAX:
                    raise corrupt("the bundle holds what no bundle of ours holds")
                content = archive.extractfile(entry)
                data = b"" if content is None else content.read()
                if len(data) != entry.size:
                    raise corrupt(f"{entry.name[:64]} is cut off")
                files[entry.name] = data
    except OSError as error:
        raise PrpError(ErrorCode.RUN_STATE_FAILED, f"the bundle: {reason_of(error)}") from error
    except (tarfile.TarError, ValueError, EOFError, OverflowError):
        raise corrupt("it is no bundle") from None
    return files
