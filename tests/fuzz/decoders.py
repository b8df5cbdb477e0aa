"""Every decoder of the product with a sample that it takes.

It decides what is fuzzed: add a line where something new is read. It refuses to know how input
is spoiled, and what a decoder should answer beyond a value or PrpError.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from controller_mock.console.arguments import parse
from protocol import replay_filter
from protocol.base.proven_content import disclose, enclose
from protocol.canonical_json import JsonValue, parse_strict
from protocol.carrier import ClientCarrier, ServerCarrier
from protocol.codec import decode_control, decode_runner
from protocol.commands import decode_command, result_digest
from protocol.errors import ErrorCode, PrpError
from protocol.handshake import client_answer, client_hello, read_hello, server_verify
from protocol.process_birth import parse_stat
from protocol.semantic_tools import read_semantic_input
from protocol.upgrade import accepting_response, is_accepted, judge_request, upgrade_request
from protocol.warm_transition import read_receipt
from runnerd.config import read_config
from runnerd.core.provider import read_provider, read_tools
from runnerd.core.state import STATE_SCHEMA
from runnerd.core.state_codec import believe, encode
from runnerd.destination import parse_url
from runnerd.harness.fake_script import read_script
from runnerd.harness.lines import LineSplitter
from runnerd.harness.messages import read_message
from runnerd.io.ticket_source import choose_ticket
from runnerd.runs.checkpoint_records import CheckpointRecord, Snapshot, decode_snapshot, sha256_of
from runnerd.runs.checkpoint_records import encode_snapshot as encode_saved
from runnerd.runs.records import read_record
from runnerd.runs.run_log import LogFormat, LogScanner, encode_line, spell_record
from runnerd.runs.sessions.legacy import convert, read_legacy
from runnerd.runs.sessions.log import looks_versioned, scan
from runnerd.runs.snapshot import check_result, encode_snapshot, read_snapshot
from runnerd.ticket import CapturedTicket
from tests.process.daemon import flags
from tests.protocol.handshake_world import KEY, LEASE, NOW, challenge_for
from tests.protocol.samples import (
    BINDING,
    COMMAND,
    CONTROL_PAYLOADS,
    IDENTITY,
    RESULT,
    RUNNER_PAYLOADS,
    WELCOME,
    plaintext,
)
from tests.protocol.test_secure_channel import channels
from tests.protocol.test_semantic_tools import call
from tests.protocol.test_warm_transition import CONNECTION, NEXT, attach, receipt
from tests.runnerd.core.talk import TOOLS
from tests.runnerd.core.world import PREPARE, World
from tests.runnerd.runs.sessions.lines import ID, data, entry, header, legacy_header, legacy_message
from tests.runnerd.runs.test_snapshot import snapshot

SCRIPTS: Final = Path(__file__).parents[1] / "process" / "scripts"
PATH: Final = "/api/runner/v1/connect"
RUN: Final = "run_1"
AT: Final = "2026-01-02T03:04:05.678Z"
TRACE: Final = {"eventId": "e", "runId": RUN, "sequence": 1, "timestamp": AT}


class Decoder(msgspec.Struct, frozen=True, kw_only=True):
    """Something that reads what others have written."""

    read: Callable[[bytes], Any]
    samples: tuple[bytes, ...]
    again: Callable[[Any], bytes] | None = None
    """Spells a value that was read, so that reading it again gives an equal one."""
    refusals: tuple[type[Exception], ...] = (PrpError,)


def stored_state() -> bytes:
    world = World()
    world.connect()
    world.prepare()
    world.start_turn()
    world.lines("one", "two")
    world.deliver("runner.drain")
    return encode(world.durable)


def run_log() -> bytes:
    chain, lines = b"", b""
    payloads: list[tuple[str, Any]] = [
        ("start", {"prompt": "go"}),
        ("event", {**TRACE, "event": {"type": "mystery", "n": [1, 2.5, None]}}),
        ("finish", {"status": "succeeded"}),
    ]
    for number, (kind, payload) in enumerate(payloads, start=1):
        members = {
            "version": 1,
            "runId": RUN,
            "sequence": number,
            "timestamp": AT,
            "kind": kind,
            "payload": payload,
        }
        encoded = encode_line(spell_record(read_record(members, RUN)), LogFormat.CHAINED, chain)
        lines, chain = lines + encoded.line, encoded.chain
    return lines


def saved_file() -> bytes:
    record = CheckpointRecord(
        version=1,
        checkpoint_id="checkpoint-1",
        run_id=RUN,
        timestamp=AT,
        tool="write",
        reversible=True,
        snapshot_file="checkpoint-1.json",
        target_path="/srv/file",
        existed=True,
        before_sha256=sha256_of(b"content"),
        before_mode=0o644,
    )
    return encode_saved(Snapshot(record, b"content"))


def scanned(content: bytes) -> Any:
    log = LogScanner(RUN)
    half = len(content) // 2
    records = [*log.feed(content[:half]), *log.feed(content[half:])]
    rest, _ = log.finish()
    return [*records, *rest]


def split(content: bytes) -> Any:
    lines = LineSplitter(1_000)
    for at in range(0, len(content), 7):
        lines.push(content[at : at + 7])
        lines.take(3, 100)
    lines.finish_last()
    return lines.take(10**6, 10**6), lines.take_torn()


def served(content: bytes) -> Any:
    carrier = ServerCarrier(PATH)
    return [*carrier.feed(content), *carrier.feed(content)]


def dialled(content: bytes) -> Any:
    return ClientCarrier("127.0.0.1", 1, PATH, False).feed(content)


def words(content: bytes) -> list[str]:
    return content.decode(errors="surrogateescape").split("\0")


def command_line() -> bytes:
    return "\0".join(flags(f"ws://127.0.0.1:9{PATH}", Path("/var/state"))).encode()


def ticket(content: bytes) -> Any:
    captured = CapturedTicket(bytearray(content), is_overwritten=True)
    return choose_ticket(captured, None, None)


def handshake() -> dict[str, Decoder]:
    challenge = challenge_for(LEASE)
    answer = client_answer(LEASE, KEY, challenge.frame, NOW)
    client, core = channels()
    return {
        "hello": Decoder(read=read_hello, samples=(client_hello(LEASE),)),
        "challenge": Decoder(
            read=lambda frame: client_answer(LEASE, KEY, frame, NOW), samples=(challenge.frame,)
        ),
        "proof": Decoder(
            read=lambda frame: server_verify(challenge, KEY, frame), samples=(answer.response,)
        ),
        "sealed frame": Decoder(
            read=lambda frame: channels()[1].open(frame), samples=(client.seal(b'{"a":1}'),)
        ),
        "sealed frame of the controller": Decoder(
            read=lambda frame: channels()[0].open(frame), samples=(core.seal(b'{"a":1}'),)
        ),
    }


def wire() -> dict[str, Decoder]:
    request = upgrade_request("127.0.0.1:9", PATH, "dGhlIHNhbXBsZSBub25jZQ==")
    response = accepting_response(b"dGhlIHNhbXBsZSBub25jZQ==")
    return {
        "upgrade request": Decoder(read=lambda head: judge_request(head, PATH), samples=(request,)),
        "upgrade response": Decoder(
            read=lambda head: is_accepted(head, "dGhlIHNhbXBsZSBub25jZQ=="), samples=(response,)
        ),
        "frames of a runner": Decoder(read=served, samples=(request,)),
        "frames of a controller": Decoder(read=dialled, samples=(response + b"\x81\x02{}",)),
        "control message": Decoder(
            read=lambda text: decode_control(
                text, version=2, identity=IDENTITY, connection=BINDING
            ),
            samples=tuple(plaintext(kind, body) for kind, body in CONTROL_PAYLOADS.items()),
        ),
        "welcome": Decoder(
            read=lambda text: decode_control(text, version=2, identity=IDENTITY, connection=None),
            samples=(plaintext("welcome", WELCOME),),
        ),
        "runner message": Decoder(
            read=lambda text: decode_runner(text, BINDING),
            samples=tuple(plaintext(kind, body) for kind, body in RUNNER_PAYLOADS.items()),
        ),
        "command": Decoder(
            read=lambda text: (parse_strict(text), decode_command(text))[1],
            samples=(msgspec.json.encode(COMMAND),),
            again=msgspec.json.encode,
        ),
        "result": Decoder(read=result_digest, samples=(msgspec.json.encode(RESULT),)),
        "call of a tool": Decoder(
            read=lambda text: read_semantic_input(parse_strict(text), IDENTITY),
            samples=(msgspec.json.encode({"semantic_tool": call({"title": "x"})}),),
        ),
        "receipt of a transition": Decoder(
            read=read_receipt,
            samples=(
                msgspec.json.encode(receipt(attach({"identity": NEXT, "connection": CONNECTION}))),
            ),
        ),
    }


def stored() -> dict[str, Decoder]:
    state, kept = stored_state(), encode_snapshot(snapshot())
    file = enclose(STATE_SCHEMA, state)
    result = {"snapshot": msgspec.json.decode(kept), "runId": "run-a"}
    return {
        "state file": Decoder(read=lambda text: disclose(STATE_SCHEMA, text), samples=(file,)),
        "state": Decoder(read=believe, samples=(state,), again=encode),
        "replay filter": Decoder(
            read=lambda text: replay_filter.from_hex(text.decode(errors="replace")),
            samples=(b"0" * 8_192,),
        ),
        "run log": Decoder(read=scanned, samples=(run_log(),)),
        "session": Decoder(
            read=lambda text: scan(text, ID),
            samples=(data(header(), entry(1, "a", None), entry(2, "b", "a")),),
            again=lambda log: log.content,
        ),
        "kind of a session": Decoder(read=looks_versioned, samples=(data(header()),)),
        "legacy session": Decoder(
            read=lambda text: convert(read_legacy(text, ID)),
            samples=(data(legacy_header(), legacy_message("a", None), legacy_message("b", "a")),),
        ),
        "snapshot": Decoder(
            read=lambda text: read_snapshot(parse_strict(text)),
            samples=(kept,),
            again=encode_snapshot,
        ),
        "result of a run": Decoder(
            read=lambda text: check_result(_object(parse_strict(text))),
            samples=(msgspec.json.encode(result),),
        ),
        "saved file": Decoder(
            read=lambda text: decode_snapshot(text, RUN, "checkpoint-1"),
            samples=(saved_file(),),
            again=encode_saved,
        ),
    }


def _object(value: JsonValue) -> dict[str, JsonValue]:
    return value if isinstance(value, dict) else {}


def programs() -> dict[str, Decoder]:
    message = {
        "schema": "paperclip.fake_harness.message.v1",
        "messageSeq": 2,
        "type": "event",
        "payload": {"eventType": "usage.reported", "payload": {"n": 1}},
    }
    asked = message | {
        "type": "request",
        "payload": {"requestKind": "semantic_tool", "callId": "c", "operationId": "o", "input": 1},
    }
    prepare = msgspec.json.encode(PREPARE | {"authorizedTools": TOOLS})
    stat = b"42 (sh) S 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 2 3 4 5"
    return {
        "line of output": Decoder(read=split, samples=(b"one\r\ntwo\xff\nthree",)),
        "message of a program": Decoder(
            read=lambda line: read_message(line, 2),
            samples=(msgspec.json.encode(message), msgspec.json.encode(asked)),
        ),
        "script of the fake harness": Decoder(
            read=read_script, samples=tuple(path.read_bytes() for path in SCRIPTS.glob("*.json"))
        ),
        "provider": Decoder(read=lambda text: read_provider(_payload(text)), samples=(prepare,)),
        "set of tools": Decoder(
            read=lambda text: read_tools(_payload(text), None), samples=(prepare,)
        ),
        "status of a process": Decoder(
            read=lambda text: parse_stat(text, "boot"), samples=(stat,), refusals=(ValueError,)
        ),
    }


def _payload(text: bytes) -> msgspec.Raw:
    """Return a command's payload, which is a strict object by the time it is read."""
    if not isinstance(parse_strict(text), dict):
        raise PrpError(ErrorCode.COMMAND_INVALID, "no object")
    return msgspec.Raw(text)


def starts() -> dict[str, Decoder]:
    return {
        "ticket": Decoder(read=ticket, samples=(b"bootstrap_0f3c2f6e\n",)),
        "command line": Decoder(
            read=lambda text: read_config(words(text), None), samples=(command_line(),)
        ),
        "command line of the controller": Decoder(
            read=lambda text: parse(words(text), {"HOME": "/home/x"}),
            samples=(b"inspect\0run-1\0--json", b"run\0--cwd\0/\0--\0true"),
        ),
        "destination": Decoder(
            read=lambda text: parse_url(text.decode(errors="surrogateescape")),
            samples=(b"ws://127.0.0.1:9/x", b"wss://[::1]/x", b"ws://localhost:80/a/b"),
        ),
    }


DECODERS: Final = {**handshake(), **wire(), **stored(), **programs(), **starts()}
