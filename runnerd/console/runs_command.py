"""The command `runnerd runs`: a person looks at the logs of runs, decides, and takes one along.

It decides which question is put to which module and with which status the command ends. It
refuses to judge logs itself, and writes into a folder only the record of a decision.
"""

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from types import MappingProxyType
from typing import Final

import msgspec

from protocol.base.posix_fs import PosixFilesystem, PosixLocks, SystemClock, SystemEntropy
from protocol.base.private_directory import close_quietly, reason_of
from protocol.canonical_json import JsonValue, parse_tolerant
from protocol.errors import ErrorCode, ExitStatus, PrpError
from runnerd.console import bundle, run_views
from runnerd.console.answer import Answer, give, refuse, show
from runnerd.console.deciding import content_of, read_decision, record_decision
from runnerd.console.words import BUNDLE, STATE_DIR, USAGE, Request, read_request
from runnerd.flags import usage
from runnerd.io.state_file import STATE_FILE_NAME
from runnerd.runs.effect_facts import rules_of
from runnerd.runs.fingerprints import config_fingerprint
from runnerd.runs.projection import RunProjector, project_run
from runnerd.runs.records import (
    RecordKind,
    RunRecord,
    check_run_id,
    record_members,
)
from runnerd.runs.resume import decide_resume
from runnerd.runs.run_facts import collect_facts
from runnerd.runs.run_file import RunFolder, run_file_name
from runnerd.runs.run_log import LogEnd, LogFormat
from runnerd.runs.run_store import RunLog, RunStore

LOCK_WAIT_MS: Final = 1_000
"""A person waits a moment for a writer of the run, and is told who has it."""


class Verified(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was proven of one log."""

    run_id: str
    records: int = 0
    proof: str
    """`chained`; `plain` for a log without links; `torn` if an unfinished line follows; `empty`."""
    chain: str = ""
    code: ErrorCode | None = None
    words: str = ""


def run_runs(arguments: Sequence[str]) -> int:
    """Carry out a command and return its exit status; nothing is raised for what is found.

    Args:
        arguments: behind the word `runs`.
    """
    if not {"--help", "-h"}.isdisjoint(arguments):
        show(USAGE)
        return ExitStatus.OK
    try:
        request = read_request(arguments)
        answer = _COMMANDS[request.command](request)
        return give(answer, as_json=request.as_json)
    except PrpError as error:
        return refuse(error, group="runs", as_json="--json" in arguments)


# --- what only reads --------------------------------------------------------------------------


def _list(request: Request) -> Answer:
    with _store(request) as store:
        rows = [_row(store, run_id) for run_id in store.list_runs()]
    return Answer(value={"runs": rows}, lines=run_views.lines_of_list(rows))


def _row(store: RunStore, run_id: str) -> run_views.RunRow:
    try:
        projector = RunProjector()
        end = store.visit(run_id, projector.apply)
        return run_views.row_of(projector.close(rules_of(end.log_format)))
    except PrpError as error:
        return run_views.RunRow(run_id=run_id, code=error.code, words=error.message)


def _show(request: Request) -> Answer:
    log = _existing(request)
    rules = rules_of(log.end.log_format)
    projection = project_run(log.records, rules)
    facts = collect_facts(log.records)
    decision = decide_resume(facts, config_fingerprint=_recorded(log), rules=rules)
    view = run_views.RunView(
        projection=projection,
        steps=decision.steps,
        effects=decision.effects,
        begun_with=_begun_with(log),
    )
    return Answer(value=view, lines=run_views.lines_of_run(view))


def _timeline(request: Request) -> Answer:
    rows = list(run_views.timeline(_existing(request).records))
    return Answer(value={"records": rows}, lines=run_views.lines_of_timeline(rows))


def _resume(request: Request) -> Answer:
    log = _existing(request)
    config = request.values.get("--config")
    decision = decide_resume(
        collect_facts(log.records),
        config_fingerprint=_recorded(log) if config is None else _fingerprint_of(config),
        prompt=request.values.get("--prompt"),
        rules=rules_of(log.end.log_format),
    )
    view = run_views.resume_view(request.names[0], decision)
    code = None if decision.refusal is None else decision.refusal.code
    return Answer(value=view, lines=run_views.lines_of_resume(view), refusal=code)


def _verify(request: Request) -> Answer:
    path = request.values.get(BUNDLE)
    if path is not None:
        manifest, contents = bundle.verify_bundle(path)
        proven = [_proven(manifest.run_id, contents.end)]
    else:
        with _store(request) as store:
            for run_id in request.names:
                check_run_id(run_id)
            names = request.names or store.list_runs()
            if request.names:
                _check_exists(store, request.names[0])
            proven = [_verified(store, run_id) for run_id in names]
    first = next((one.code for one in proven if one.code is not None), None)
    return Answer(value={"runs": proven}, lines=map(_line_of, proven), refusal=first)


def _check_exists(store: RunStore, run_id: str) -> None:
    if run_id not in store.list_runs():
        raise PrpError(ErrorCode.UNKNOWN_RUN, "there is no log of it in this folder")


def _verified(store: RunStore, run_id: str) -> Verified:
    try:
        return _proven(run_id, store.visit(run_id, lambda record: None))
    except PrpError as error:
        return Verified(run_id=run_id, proof="broken", code=error.code, words=error.message)


def _proven(run_id: str, end: LogEnd) -> Verified:
    is_chained = end.log_format is LogFormat.CHAINED
    proof = "torn" if end.is_torn else "chained" if is_chained else "plain"
    if not end.record_count:
        proof = "empty"
    return Verified(
        run_id=run_id,
        records=end.record_count,
        proof=proof,
        chain=end.chain.hex(),
        words=_PROOFS[proof],
    )


_PROOFS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "chained": "every record is proven by the one behind it",
        "empty": "it holds nothing",
        "plain": "read whole; its records have no links that would prove them",
        "torn": "every whole record is proven; an unfinished line behind them will be cut",
    }
)


def _line_of(one: Verified) -> str:
    code = "" if one.code is None else f"{one.code.value}: "
    return f"{one.run_id}: {one.proof}, {one.records} records; {code}{one.words}"


def _export(request: Request) -> Answer:
    run_id = request.names[0]
    check_run_id(run_id)
    manifest = bundle.write_bundle(
        run_id, _bytes(request.folder, run_id), request.values["--output"]
    )
    files = [f"{name}  {one.bytes} bytes  {one.sha256}" for name, one in manifest.files.items()]
    return Answer(value=manifest, lines=[f"{run_id}: {manifest.records} records", *files])


# --- the one that writes ----------------------------------------------------------------------


def _reconcile(request: Request) -> Answer:
    run_id, name = request.names
    decision = read_decision(request.values)
    with _store(request) as store:
        _existing_in(store, run_id)
        record = record_decision(store, run_id, name, decision, SystemClock())
    return Answer(value=record_members(record), lines=_lines_of_decision(record))


def _lines_of_decision(record: RunRecord) -> Iterator[str]:
    payload = record.payload
    assert isinstance(payload, dict), "a decision is an object"
    yield f"recorded   {payload['effectId']} as {payload['outcome']}, record {record.sequence}"


# --- parts ------------------------------------------------------------------------------------


@contextmanager
def _store(request: Request) -> Generator[RunStore, None, None]:
    flag, place = request.place
    if not os.path.isdir(place):
        # Nothing in it would look like a folder without runs, and proven.
        raise usage(f"{flag} names no folder")
    of_a_runner = (request.folder, os.path.join(place, STATE_FILE_NAME))
    if flag == STATE_DIR and not any(map(os.path.exists, of_a_runner)):
        # The folder of all runners, say, would look like one without runs.
        raise usage(f"{flag} names a folder without {STATE_FILE_NAME}: it is no runner's")
    store = RunStore(
        PosixFilesystem(),
        SystemEntropy(),
        PosixLocks(),
        request.folder,
        lock_timeout_ms=LOCK_WAIT_MS,
    )
    with closing(store):
        yield store


def _existing(request: Request) -> RunLog:
    with _store(request) as store:
        return _existing_in(store, request.names[0])


def _existing_in(store: RunStore, run_id: str) -> RunLog:
    log = store.read(run_id, mends=False)
    if not log.records:
        raise PrpError(ErrorCode.UNKNOWN_RUN, "there is no record of it in this folder")
    return log


def _begun_with(log: RunLog) -> dict[str, JsonValue]:
    for record in log.records:
        if record.kind is RecordKind.START and isinstance(record.payload, dict):
            return {name: value for name, value in record.payload.items() if value is not None}
    return {}


def _recorded(log: RunLog) -> str:
    """Return the fingerprint with which the run began: the same configuration goes on."""
    found = _begun_with(log).get("configFingerprint")
    return found if isinstance(found, str) else ""


def _fingerprint_of(path: str) -> str:
    content = content_of("--config", path)
    try:
        config = parse_tolerant(content)
    except PrpError:
        raise usage("--config is not JSON") from None
    if not isinstance(config, dict):
        raise usage("--config is not an object")
    return config_fingerprint(config)


def _bytes(folder: str, run_id: str) -> bytes:
    fs = PosixFilesystem()
    try:
        directory = fs.open_directory(folder)
        try:
            pieces = RunFolder(fs, SystemEntropy(), directory).pieces(run_file_name(run_id))
            return b"".join(pieces)
        finally:
            close_quietly(fs, directory)
    except FileNotFoundError:
        raise PrpError(ErrorCode.UNKNOWN_RUN, "there is no record of it in this folder") from None
    except OSError as error:
        raise PrpError(ErrorCode.RUN_STATE_FAILED, reason_of(error)) from error


_COMMANDS: Final[Mapping[str, Callable[[Request], Answer]]] = MappingProxyType(
    {
        "list": _list,
        "show": _show,
        "timeline": _timeline,
        "resume": _resume,
        "reconcile": _reconcile,
        "verify": _verify,
        "export": _export,
    }
)
