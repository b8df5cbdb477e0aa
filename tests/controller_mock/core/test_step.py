"""Every input in every state: what the core answers, and that it never does anything else.

Under each input the table has states and what leaves in them: `-` nothing, `close` with the
connection and code, `reply` with the code of a refusal, messages by kind. A star marks a new
revision; `others` are the states not named above it.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import pytest

from controller_mock.core.actions import (
    Action,
    CallTool,
    CloseConnection,
    OpenChannel,
    Publish,
    Reply,
    SendControl,
    SendPlain,
)
from controller_mock.core.inputs import (
    ConnectionHandle,
    ConnectionLost,
    Input,
    IntegrityConflictFound,
    MessageRefused,
    PongRequested,
    RevokeRequested,
    TimePassed,
)
from controller_mock.core.state import restore
from controller_mock.core.step import next_deadline
from protocol.envelope import Pong, WarmTransitionActivated
from protocol.errors import ErrorCode
from protocol.ids import LeaseId, RunId, SourceSeq
from protocol.secrets import Secret
from tests.controller_mock.core.world import (
    CONFIG,
    START,
    TICKET,
    World,
    challenge_in,
    connected,
    event,
    lease_of,
    lease_offer,
    lease_token,
    renewal,
    response_received,
    result_of,
    ticket_offer,
    welcome_in,
)
from tests.storage.memory import MemoryStore

FRESH: Final = Secret("a second ticket")
FIRST, SECOND = ConnectionHandle(1), ConnectionHandle(2)


# --- States -----------------------------------------------------------------------------------


def _new() -> World:
    return World()


def _ticketed() -> World:
    world = World()
    world.issue()
    return world


def _challenged() -> World:
    world = _ticketed()
    world.hello(1, ticket_offer())
    return world


def _busy() -> World:
    """Connected, with two committed events, one settled command and one that is out."""
    world = connected("turn.start", "turn.stop")
    world.say(1, event(1))
    world.say(1, event(2))
    world.say(1, result_of("command_prp_00000001", "turn.start", 1))
    world.issue(FRESH, ttl_ms=60_000)
    return world


def _ending() -> World:
    world = connected("runner.shutdown")
    world.say(1, event(1))
    world.issue(FRESH, ttl_ms=60_000)
    return world


def _flushing() -> World:
    world = _busy()
    world.feed(RevokeRequested(world.request()))
    return world


def _delivering() -> World:
    world = _flushing()
    world.feed(ConnectionLost(FIRST))
    fresh = Secret("issued after the revocation")
    world.issue(fresh)
    frame = challenge_in(world.hello(1, ticket_offer(fresh)))
    answer = world.answer(1, ticket_offer(fresh), fresh, frame)
    world.feed(
        msgspec.structs.replace(
            answer, lease_token=Secret("to deliver"), lease_id=LeaseId("lease-to-deliver")
        )
    )
    return world


def _latched() -> World:
    world = _busy()
    lease = lease_of(1, welcome_in(world.sent))
    world.say(1, event(1, "changed"))
    world.reconnect(1, lease)
    return world


def _expired() -> World:
    world = _busy()
    world.pass_time(30_000)
    return world


def _alone() -> World:
    world = _busy()
    world.feed(ConnectionLost(FIRST))
    return world


def _restored() -> World:
    """The same in a new process: everything from the store, no connection, no deadline."""
    world = _busy()
    store = MemoryStore()
    store.create_run(CONFIG)
    store.commit([(RunId(CONFIG.identity.run_id), tuple(world.written))])
    return World(restore(*store.load_run(RunId(CONFIG.identity.run_id))))


STATES: Final[Mapping[str, Callable[[], World]]] = {
    "new": _new,
    "ticketed": _ticketed,
    "challenged": _challenged,
    "busy": _busy,
    "ending": _ending,
    "flushing": _flushing,
    "delivering": _delivering,
    "latched": _latched,
    "expired": _expired,
    "alone": _alone,
    "restored": _restored,
}


# --- Inputs -----------------------------------------------------------------------------------


def _said(message: object) -> Callable[[World], Input]:
    return lambda world: world.said(1, message)  # type: ignore[arg-type]  # tests say what they like


def _answered(world: World) -> Input:
    for handshake in world.run.live.handshakes:
        return world.answer(1, ticket_offer(), TICKET, handshake.challenge.frame)
    return response_received(1, b"{}")


def _hello(token: Secret) -> Callable[[World], Input]:
    def make(world: World) -> Input:
        return world.hello_received(2, ticket_offer(token))

    return make


def _lease_hello(world: World) -> Input:
    lease = msgspec.structs.replace(_LEASE, token=lease_token(1))
    return world.hello_received(2, lease_offer(lease))


_LEASE: Final = lease_of(1, welcome_in(connected().sent))

INPUTS: Final[Mapping[str, Callable[[World], Input]]] = {
    "issue": lambda world: world.issued(Secret("one more")),
    "hello ticket": _hello(TICKET),
    "hello fresh": _hello(FRESH),
    "hello lease": _lease_hello,
    "hello nobody": _hello(Secret("nobody's")),
    "hello again": lambda world: world.hello_received(1, ticket_offer(FRESH)),
    "answer": _answered,
    "queue": lambda world: world.requested(),
    "queue bad": lambda world: world.requested("turn.dance"),
    "revoke": lambda world: RevokeRequested(world.request()),
    "ping": lambda world: PongRequested(world.request()),
    "event 1": _said(event(1)),
    "event 1 other": _said(event(1, "other")),
    "event 3": _said(event(3)),
    "event 9": _said(event(9)),
    "result out": _said(result_of("command_prp_00000002", "turn.stop", 2)),
    "result end": _said(result_of("command_prp_00000001", "runner.shutdown", 1)),
    "result old": _said(result_of("command_prp_00000001", "turn.start", 1)),
    "result nobody": _said(result_of("nobody", "turn.start", 1)),
    "renew": lambda world: renewal(1, START.unix_ms + 30_000),
    "renew late": lambda world: renewal(1, START.unix_ms + 99_000),
    "pong": _said(Pong(lifecycle="active", acked_source_seq=SourceSeq(0), outbox_bytes=0)),
    "activated": _said(WarmTransitionActivated("f" * 64)),
    "frame bad": lambda world: MessageRefused(FIRST, ErrorCode.FRAME_NOT_AUTHENTIC),
    "digest bad": lambda world: MessageRefused(FIRST, ErrorCode.SEMANTIC_DIGEST_MISMATCH),
    "conflict": lambda world: IntegrityConflictFound(SourceSeq(3)),
    "lost": lambda world: ConnectionLost(FIRST),
    "lost other": lambda world: ConnectionLost(SECOND),
    "time": lambda world: TimePassed(),
}

TABLE: Final = """\
issue
    others: reply*
hello ticket
    new: close2:credential_unknown
    ticketed challenged: challenge
    others: close2:credential_used
hello fresh
    new ticketed challenged: close2:credential_unknown
    busy ending latched expired alone restored: challenge
    flushing delivering: close2:credential_revoked
hello lease
    new ticketed challenged: close2:credential_unknown
    busy ending latched alone restored: challenge
    flushing delivering: close2:credential_revoked
    expired: close2:credential_expired
hello nobody
    others: close2:credential_unknown
hello again
    new ticketed: close1:credential_unknown
    alone restored: challenge
    others: close1:message_unexpected
answer
    challenged: Welcome*
    others: close1:message_unexpected
queue
    new ticketed challenged ending alone restored: reply*
    busy latched expired: reply Deliver*
    flushing delivering: reply:runner_revoked
queue bad
    flushing delivering: reply:runner_revoked
    others: reply:command_invalid
revoke
    new ticketed challenged alone restored: reply*
    busy ending latched expired: Revoke reply*
    flushing delivering: reply
ping
    new ticketed challenged alone restored: reply:connection_lost
    busy ending flushing delivering latched expired: Ping reply
event 1
    new ticketed alone restored: -
    challenged: close1:message_unexpected
    busy ending flushing delivering: Ack*
    latched: close1:integrity_latched
    expired: close1:credential_expired
event 1 other
    new ticketed alone restored: -
    challenged: close1:message_unexpected
    busy ending flushing delivering: close1:event_identity_conflict*
    latched: close1:integrity_latched
    expired: close1:credential_expired
event 3
    new ticketed alone restored: -
    challenged: close1:message_unexpected
    busy flushing delivering: Ack*
    ending: close1:event_gap
    latched: close1:integrity_latched
    expired: close1:credential_expired
event 9
    new ticketed alone restored: -
    challenged: close1:message_unexpected
    busy ending flushing delivering: close1:event_gap
    latched: close1:integrity_latched
    expired: close1:credential_expired
result out
    new ticketed alone restored: -
    challenged: close1:message_unexpected
    busy flushing delivering latched: -*
    ending: close1:command_result_unknown
    expired: close1:credential_expired
result end
    new ticketed alone restored: -
    challenged: close1:message_unexpected
    busy flushing delivering latched: close1:command_result_conflict
    ending: CommandResultAck*
    expired: close1:credential_expired
result old
    new ticketed alone restored: -
    challenged: close1:message_unexpected
    busy flushing delivering latched: -*
    ending: close1:command_result_conflict
    expired: close1:credential_expired
result nobody
    new ticketed alone restored: -
    challenged: close1:message_unexpected
    busy ending flushing delivering latched: close1:command_result_unknown
    expired: close1:credential_expired
renew
    new ticketed ending flushing alone restored: -
    challenged: close1:message_unexpected
    busy latched: LeaseRenewed
    delivering: close1:lease_renewal_refused
    expired: close1:credential_expired
renew late
    new ticketed ending flushing alone restored: -
    challenged: close1:message_unexpected
    busy delivering latched: close1:lease_renewal_refused
    expired: close1:credential_expired
pong
    challenged: close1:message_unexpected
    expired: close1:credential_expired
    others: -
activated
    new ticketed alone restored: -
    challenged busy ending flushing delivering latched: close1:message_unexpected
    expired: close1:credential_expired
frame bad
    new ticketed challenged alone restored: close1:frame_not_authentic
    busy ending flushing delivering latched: close1:frame_not_authentic*
    expired: close1:credential_expired
digest bad
    new ticketed challenged latched alone restored: close1:semantic_digest_mismatch
    busy ending flushing delivering: close1:semantic_digest_mismatch*
    expired: close1:credential_expired
conflict
    new ticketed challenged alone restored: -*
    busy ending flushing delivering expired: close1:event_identity_conflict*
    latched: -
lost
    others: -
lost other
    others: -
time
    expired: close1:credential_expired
    others: -
"""


def _outcome(world: World, stimulus: Input) -> str:
    before = world.run.revision
    left = world.feed(stimulus)
    words = [word for action in left if (word := _word(action)) is not None]
    return (" ".join(words) or "-") + ("*" if world.run.revision > before else "")


def _word(action: Action) -> str | None:
    match action:
        case SendPlain():
            return "challenge"
        case OpenChannel() | Publish():
            return None
        case SendControl():
            return type(action.message).__name__
        case CloseConnection():
            return f"close{action.connection}:{action.code.value}"
        case CallTool():
            return "call"
        case Reply():
            return "reply" if action.code is None else f"reply:{action.code.value}"


def _cells() -> dict[tuple[str, str], str]:
    cells: dict[tuple[str, str], str] = {}
    name = ""
    for line in TABLE.splitlines():
        if line and not line.startswith(" "):
            name = line.strip()
        elif line:
            states, _, outcome = line.strip().partition(": ")
            named = STATES if states == "others" else states.split()
            for state in named:
                cells.setdefault((name, state), outcome)
    return cells


CELLS: Final = _cells()


def test_the_table_has_a_cell_for_every_pair() -> None:
    assert set(CELLS) == {(name, state) for name in INPUTS for state in STATES}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", INPUTS)
def test_an_input_does_what_the_table_says(name: str, state: str) -> None:
    world = STATES[state]()

    outcome = _outcome(world, INPUTS[name](world))

    assert outcome == CELLS[name, state]
    assert world.driver.staged.revision - world.driver.committed.revision in (0, 1)
    deadline = next_deadline(world.run)
    assert deadline is None or deadline >= world.now.mono_ms or state == "expired"
