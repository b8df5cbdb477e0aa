"""Every state that a controller may be in, and every input that may meet it there."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

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
from protocol.envelope import Pong, RunnerMessage, WarmTransitionActivated
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

FIRST, SECOND = ConnectionHandle(1), ConnectionHandle(2)
FRESH: Final = Secret("a second ticket")


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


def _said(message: RunnerMessage) -> Callable[[World], Input]:
    return lambda world: world.said(1, message)


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
