"""A run, its driver and the runner at the other end, without socket, disk or real time."""

import hashlib
from collections.abc import Callable

import msgspec

from controller_mock.core.actions import (
    Action,
    Change,
    CloseConnection,
    Publish,
    Reply,
    SendControl,
    SendPlain,
)
from controller_mock.core.inputs import (
    CommandRequested,
    ConnectionHandle,
    HelloReceived,
    Input,
    MessageReceived,
    RequestHandle,
    ResponseReceived,
    TicketIssued,
)
from controller_mock.core.state import Run, RunConfig, Step, new_run
from controller_mock.core.step import step
from protocol.base.clock import MonoMs, Now, UnixMs
from protocol.base.driver import Driver
from protocol.codec import decode_runner, encode_result, event_envelope
from protocol.commands import CommandResult, CommandStatus, WireCommand
from protocol.credentials import auth_key, credential_id
from protocol.envelope import (
    Binding,
    ControlMessage,
    CredentialKind,
    EventMessage,
    LeaseRenew,
    ResultMessage,
    Resume,
    RunnerMessage,
    Welcome,
)
from protocol.events import runner_event
from protocol.handshake import ClientOffer, client_answer, client_hello, read_hello
from protocol.ids import (
    CommandId,
    ConnectionId,
    ControllerSeq,
    Identity,
    LeaseId,
    RevocationEpoch,
    SourceEventId,
    SourceSeq,
)
from protocol.secrets import Secret

IDENTITY = Identity(
    runner_instance_id="runner-1",
    environment_lease_id="environment-1",
    run_id="run-1",
    normalized_session_id="session-1",
    turn_id="turn-1",
    item_id="item-1",
)
CONFIG = RunConfig(
    identity=IDENTITY,
    runner_version="1.0.0",
    runner_digest="sha256:" + "ab" * 32,
    lease_ttl_ms=30_000,
)
START = Now(UnixMs(1_700_000_000_000), MonoMs(50_000))
TICKET = Secret("ticket-of-the-test")

StepFunction = Callable[[Run, Input, Now], Step]


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """What the runner holds after a welcome."""

    token: Secret
    lease_id: LeaseId
    expires_at_unix_ms: int
    revocation_epoch: int = 0


class World:
    """One run under one driver; time moves only when it is told to."""

    def __init__(self, run: Run | None = None, with_step: StepFunction = step) -> None:
        self.driver: Driver[Run, Input, Action, Change] = Driver(run or new_run(CONFIG), with_step)
        self.now = START
        self.written: list[Change] = []
        self.sent: list[Action] = []
        self._requests = 0

    @property
    def run(self) -> Run:
        """The newest state."""
        return self.driver.staged

    def pass_time(self, ms: int, wall_ms: int | None = None) -> None:
        """Move both clocks, or the wall clock by another amount."""
        wall = ms if wall_ms is None else wall_ms
        self.now = Now(UnixMs(self.now.unix_ms + wall), MonoMs(self.now.mono_ms + ms))

    def feed(self, stimulus: Input) -> list[Action]:
        """Feed one input, commit what is demanded, and return what left."""
        self.driver.feed(stimulus, self.now)
        return self.settle()

    def settle(self) -> list[Action]:
        """Drain and commit until nothing is left to do."""
        left = self.drain()
        while (write := self.driver.next_write()) is not None:
            self.written.extend(write.writes)
            self.driver.wrote()
            left.extend(self.drain())
        return left

    def drain(self) -> list[Action]:
        """Return what may leave without a write."""
        left: list[Action] = []
        while (action := self.driver.next_action()) is not None:
            left.append(action)
        self.sent.extend(left)
        return left

    def request(self) -> RequestHandle:
        """Return a handle for another local caller."""
        self._requests += 1
        return RequestHandle(self._requests)

    def issue(self, token: Secret = TICKET, ttl_ms: int = 5_000) -> list[Action]:
        """Issue a ticket."""
        return self.feed(self.issued(token, ttl_ms))

    def issued(self, token: Secret = TICKET, ttl_ms: int = 5_000) -> TicketIssued:
        """Return a local caller's new ticket."""
        return TicketIssued(
            request=self.request(),
            credential_id=credential_id(token),
            auth_key=auth_key(token),
            ttl_ms=ttl_ms,
        )

    def queue(self, type_: str = "turn.start", payload: bytes = b"{}") -> list[Action]:
        """Queue a command under a number of its own."""
        return self.feed(self.requested(type_, payload))

    def requested(
        self,
        type_: str = "turn.start",
        payload: bytes = b"{}",
        *,
        command_id: str | None = None,
        deadline_at: str | None = None,
        precondition: bytes | None = None,
    ) -> CommandRequested:
        """Return a local caller's wish for a command."""
        return CommandRequested(
            request=self.request(),
            type=type_,
            payload=payload,
            command_id=command_id,
            deadline_at=deadline_at,
            precondition=precondition,
        )

    def say(self, connection: int, message: RunnerMessage) -> list[Action]:
        """Let a runner's message arrive on a connection."""
        return self.feed(self.said(connection, message))

    def said(self, connection: int, message: RunnerMessage) -> MessageReceived:
        """Return the arrival of a runner's message."""
        return MessageReceived(ConnectionHandle(connection), message)

    def hello(self, connection: int, offer: ClientOffer) -> list[Action]:
        """Let a hello arrive."""
        return self.feed(self.hello_received(connection, offer))

    def hello_received(self, connection: int, offer: ClientOffer) -> HelloReceived:
        """Return the arrival of a hello."""
        return HelloReceived(
            connection=ConnectionHandle(connection),
            hello=read_hello(client_hello(offer)),
            server_nonce=f"nonce-{connection}",
        )

    def answer(
        self, connection: int, offer: ClientOffer, token: Secret, frame: bytes
    ) -> ResponseReceived:
        """Return the runner's answer to a challenge as an input."""
        response = client_answer(offer, auth_key(token), frame, self.now).response
        return response_received(connection, response)

    def bootstrap(self, connection: int = 1, token: Secret = TICKET) -> list[Action]:
        """Connect with a ticket that was issued before."""
        offer = ticket_offer(token)
        frame = challenge_in(self.hello(connection, offer))
        return self.feed(self.answer(connection, offer, token, frame))

    def reconnect(self, connection: int, lease: Lease) -> list[Action]:
        """Connect with a lease."""
        offer = lease_offer(lease)
        frame = challenge_in(self.hello(connection, offer))
        return self.feed(self.answer(connection, offer, lease.token, frame))


def connected(*commands: str) -> World:
    """Return a world in which connection 1 has bootstrapped, with these commands queued."""
    world = World()
    world.issue()
    world.bootstrap()
    for type_ in commands:
        world.queue(type_)
    return world


def lease_of(connection: int, welcome: Welcome) -> Lease:
    """Return the lease that `bootstrap` on this connection has bought."""
    return Lease(
        token=lease_token(connection),
        lease_id=welcome.connection_lease_id,
        expires_at_unix_ms=welcome.connection_lease_expires_at_unix_ms,
        revocation_epoch=welcome.connection_lease_revocation_epoch,
    )


def lease_token(connection: int) -> Secret:
    """Return the token that the shell makes for a connection that may buy a lease."""
    return Secret(f"lease-token-{connection}")


def response_received(connection: int, frame: bytes) -> ResponseReceived:
    """Return an answer with the fresh lease that the shell adds to it."""
    return ResponseReceived(
        connection=ConnectionHandle(connection),
        frame=frame,
        lease_token=lease_token(connection),
        lease_id=LeaseId(f"lease-{connection}"),
    )


def ticket_offer(token: Secret = TICKET) -> ClientOffer:
    """Return what a runner with a ticket offers."""
    return _offer("bootstrap", token)


def lease_offer(lease: Lease, *, renewal_outstanding: bool = False) -> ClientOffer:
    """Return what a runner with a lease offers."""
    return msgspec.structs.replace(
        _offer("lease", lease.token),
        lease_id=lease.lease_id,
        lease_expires_at_unix_ms=lease.expires_at_unix_ms,
        lease_revocation_epoch=RevocationEpoch(lease.revocation_epoch),
        renewal_outstanding=renewal_outstanding,
    )


def _offer(kind: CredentialKind, token: Secret) -> ClientOffer:
    return ClientOffer(
        identity=IDENTITY,
        runner_version=CONFIG.runner_version,
        runner_digest=CONFIG.runner_digest,
        credential_kind=kind,
        credential_id=credential_id(token),
        client_nonce="cd" * 32,
        resume=Resume(last_controller_command_seq=0, next_source_event_seq=1, acked_source_seq=0),
    )


def event(seq: int, text: str = "", *, event_id: str | None = None) -> EventMessage:
    """Return event ``seq`` as the codec reads it; ``text`` makes another of the same number."""
    body = runner_event(
        IDENTITY,
        source_seq=SourceSeq(seq),
        event_type="item.delta",
        priority=2,
        payload={"text": text},
        emitted_at="2026-01-02T03:04:05.678Z",
        source_event_id=None if event_id is None else SourceEventId(event_id),
    )
    return event_message(body)


def event_message(body: bytes) -> EventMessage:
    """Return an event body as the codec reads it."""
    before, after = event_envelope(2, IDENTITY)
    message = decode_runner(before + body + after, _binding())
    assert isinstance(message, EventMessage)
    return message


def renewal(connection: int, expires_at_unix_ms: int, epoch: int = 0) -> MessageReceived:
    """Return the arrival of a `lease_renew`."""
    renew = LeaseRenew(
        connection_lease_expires_at_unix_ms=expires_at_unix_ms,
        connection_lease_revocation_epoch=RevocationEpoch(epoch),
    )
    return MessageReceived(ConnectionHandle(connection), renew)


def result(
    command: WireCommand, status: CommandStatus = "completed", body: bytes = b"{}"
) -> ResultMessage:
    """Return a command's result as the codec reads it."""
    return result_of(command.command_id, command.type, command.controller_seq, status, body)


def result_of(
    command_id: str,
    command_type: str,
    controller_seq: int,
    status: CommandStatus = "completed",
    body: bytes = b"{}",
) -> ResultMessage:
    """Return any result as the codec reads it."""
    plaintext = encode_result(
        2,
        IDENTITY,
        CommandResult(
            command_id=CommandId(command_id),
            command_type=command_type,
            controller_seq=ControllerSeq(controller_seq),
            status=status,
            result=msgspec.Raw(body),
        ),
    )
    message = decode_runner(plaintext, _binding())
    assert isinstance(message, ResultMessage)
    return message


def _binding() -> Binding:
    return Binding(
        version=2,
        identity=IDENTITY,
        connection_id=ConnectionId("connection_1"),
        connection_lease_id=LeaseId("lease-1"),
    )


def challenge_in(actions: list[Action]) -> bytes:
    """Return the challenge frame among actions."""
    (frame,) = [action.frame for action in actions if isinstance(action, SendPlain)]
    return frame


def messages_in(actions: list[Action]) -> list[ControlMessage]:
    """Return the sealed messages among actions."""
    return [action.message for action in actions if isinstance(action, SendControl)]


def welcome_in(actions: list[Action]) -> Welcome:
    """Return the welcome among actions."""
    (welcome,) = [found for found in messages_in(actions) if isinstance(found, Welcome)]
    return welcome


def closes_in(actions: list[Action]) -> list[CloseConnection]:
    """Return the closed connections among actions."""
    return [action for action in actions if isinstance(action, CloseConnection)]


def reply_in(actions: list[Action]) -> Reply:
    """Return the one reply among actions."""
    (reply,) = [action for action in actions if isinstance(action, Reply)]
    return reply


def told(actions: list[Action]) -> list[Action]:
    """Return actions that somebody outside can notice as more than a hint to look."""
    return [action for action in actions if not isinstance(action, Publish)]


def digest_of(number: int) -> bytes:
    """Return some digest."""
    return hashlib.sha256(str(number).encode()).digest()
