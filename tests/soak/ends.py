"""Both ends of the weeks: their drivers, and one connection's bytes between them.

It decides how an end's orders become bytes and facts of the other end. It refuses to know time
and what goes wrong: that is `weeks`.
"""

from collections.abc import Callable
from typing import Final, Never

from controller_mock.core import actions as orders
from controller_mock.core import inputs as facts
from controller_mock.core.state import Run, RunConfig, new_run
from controller_mock.core.step import step as controller_step
from protocol.base.clock import Now
from protocol.base.driver import Driver
from protocol.carrier import ServerCarrier, TextReceived
from protocol.codec import decode_runner, encode_control
from protocol.credentials import auth_key, credential_id
from protocol.envelope import Binding, LeaseRenewed
from protocol.errors import ErrorCode
from protocol.handshake import read_hello
from protocol.ids import LeaseId
from protocol.process_birth import ProcessBirth
from protocol.secrets import Secret
from protocol.secure_channel import Role, SecureChannel
from protocol.timestamps import rfc3339_ms
from runnerd.core import recovery
from runnerd.core.actions import (
    Action,
    CloseConnection,
    Dial,
    Exit,
    SendEvent,
    SendPong,
    SendRenewal,
    SendResult,
    StartHarness,
)
from runnerd.core.inputs import (
    Connected,
    ConnectFailed,
    ConnectionLost,
    ControlReceived,
    HarnessSpawned,
    Input,
    Started,
)
from runnerd.core.state import Boot, Runner, Settings
from runnerd.core.step import step as runner_step
from runnerd.destination import parse_url
from runnerd.io.caller import Caller
from runnerd.io.link import Link

PATH: Final = "/api/runner/v1/connect"
TICKET: Final = "ticket-of-three-weeks"
BIRTH: Final = ProcessBirth(pid=7, process_group_id=7, session_id=7, start_ticks=1, boot_id="b")


class Entropy:
    """Bytes that never repeat and are the same in every run."""

    def __init__(self) -> None:
        self._count = 0

    def token_bytes(self, count: int) -> bytes:
        self._count += 1
        return self._count.to_bytes(count, "big")


class Broken(Exception):
    """A promise of the weeks is broken."""


class Wire:
    """One connection: the runner's link, and the same on the controller's side."""

    def __init__(self, number: int, link: Link) -> None:
        self.handle = facts.ConnectionHandle(number)
        self.link = link
        self.carrier = ServerCarrier(PATH)
        self.channel: SecureChannel | None = None
        self.binding: Binding | None = None
        self.has_hello = False
        self.loses_next_reply = False
        """The next answer to a renewal is committed, and never arrives."""
        self.is_cut = False


class Controller:
    """The controller's core over a store that keeps nothing but the cursor."""

    def __init__(self, config: RunConfig, entropy: Entropy) -> None:
        self._driver: Driver[Run, facts.Input, orders.Action, orders.Change] = Driver(
            new_run(config), controller_step
        )
        self._entropy = entropy
        self.committed = 0
        self.expiries: list[int] = [0]
        """The latest expiry that was ever granted; never an earlier one after it."""

    @property
    def run(self) -> Run:
        return self._driver.staged

    def feed(self, stimulus: facts.Input, now: Now) -> list[orders.Action]:
        """Feed one fact, commit what is demanded, and return what left."""
        self._driver.feed(stimulus, now)
        left: list[orders.Action] = []
        while True:
            if (write := self._driver.next_write()) is not None:
                for change in write.writes:
                    self._commit(change)
                self._driver.wrote()
            if (action := self._driver.next_action()) is None:
                return left
            left.append(action)

    def _commit(self, change: orders.Change) -> None:
        if isinstance(change, orders.PutEvent):
            if change.source_seq != self.committed + 1:
                raise Broken(f"event {change.source_seq} follows {self.committed}")
            self.committed = change.source_seq

    def issue(self, now: Now) -> None:
        token = Secret(TICKET)
        self.feed(
            facts.TicketIssued(
                request=facts.RequestHandle(1),
                credential_id=credential_id(token),
                auth_key=auth_key(token),
                ttl_ms=5_000,
            ),
            now,
        )

    def queue(self, number: int, type_: str, payload: bytes, now: Now) -> list[orders.Action]:
        request = facts.RequestHandle(number)
        return self.feed(facts.CommandRequested(request=request, type=type_, payload=payload), now)

    def take(self, wire: Wire, data: bytes, now: Now) -> list[orders.Action]:
        """Take the runner's bytes on a connection."""
        left: list[orders.Action] = []
        for event in wire.carrier.feed(data):
            if not isinstance(event, TextReceived):
                continue
            left += self.perform(wire, self.feed(self._fact(wire, event.data), now), now)
        return left

    def _fact(self, wire: Wire, text: bytes) -> facts.Input:
        if not wire.has_hello:
            wire.has_hello = True
            nonce = self._entropy.token_bytes(16).hex()
            return facts.HelloReceived(
                connection=wire.handle, hello=read_hello(text), server_nonce=nonce
            )
        if wire.channel is None or wire.binding is None:
            return facts.ResponseReceived(
                connection=wire.handle,
                frame=text,
                lease_token=Secret(self._entropy.token_bytes(16).hex()),
                lease_id=LeaseId(f"lease-{wire.handle}"),
            )
        return facts.MessageReceived(
            wire.handle, decode_runner(wire.channel.open(text), wire.binding)
        )

    def perform(
        self, wire: Wire | None, actions: list[orders.Action], now: Now
    ) -> list[orders.Action]:
        """Turn orders for a connection into its bytes; returns what is no such order."""
        others: list[orders.Action] = []
        for action in actions:
            match action:
                case orders.SendPlain(frame=frame) if wire is not None:
                    wire.carrier.send_text(frame)
                case orders.OpenChannel(keys=keys, binding=binding) if wire is not None:
                    wire.channel, wire.binding = SecureChannel(keys, Role.CORE), binding
                case orders.SendControl() if wire is not None:
                    self._send(wire, action, now)
                case orders.CloseConnection() if wire is not None:
                    raise Broken(f"the controller closed: {action.code}")
                case _:
                    others.append(action)
        return others

    def _send(self, wire: Wire, action: orders.SendControl, now: Now) -> None:
        message = action.message
        if isinstance(message, LeaseRenewed):
            expiry = message.connection_lease_expires_at_unix_ms
            if expiry < self.expiries[-1]:
                raise Broken("a lease was shortened")
            self.expiries[-1] = expiry
            if wire.loses_next_reply:
                wire.is_cut = True
                return
        assert wire.channel is not None
        assert wire.binding is not None
        text = encode_control(
            wire.binding,
            message,
            envelope_id=action.envelope_id,
            sent_at=rfc3339_ms(now.unix_ms),
        )
        wire.carrier.send_text(wire.channel.seal(text))


class RunnerEnd:
    """The runner's core and its links, over a disk that always obeys."""

    def __init__(self, settings: Settings, entropy: Entropy, now: Now) -> None:
        boot = Boot(state_id="0" * 32, jitter_seed=1, now=now)
        self._driver: Driver[Runner, Input, Action, Never] = Driver(
            recovery.start(settings, None, boot), runner_step
        )
        destination = parse_url(f"ws://127.0.0.1:9{PATH}")
        self._caller = Caller(settings, destination, Secret(TICKET), entropy)
        self.dials: Callable[[Link], None] = lambda _: None
        self.link: Link | None = None
        self.started = 0
        self.renewals = 0
        self.feed(Started(), now)

    @property
    def runner(self) -> Runner:
        return self._driver.staged

    def feed(self, stimulus: Input, now: Now) -> None:
        """Feed one fact and carry out what it orders, to the end."""
        waiting: list[Input] = [stimulus]
        while waiting:
            self._driver.feed(waiting.pop(0), now)
            while True:
                if self._driver.next_write() is not None:
                    self._driver.wrote()
                if (action := self._driver.next_action()) is None:
                    break
                waiting += self._perform(action)

    def _perform(self, action: Action) -> list[Input]:
        link = self.link
        match action:
            case Exit():
                raise Broken(f"the runner ended: {action.code}")
            case Dial():
                self.link = self._caller.link(action)
                self.dials(self.link)
            case CloseConnection(connection_id=connection, code=code):
                if link is not None:
                    link.fail(code)
                return [ConnectionLost(connection, code)]
            case StartHarness(generation=generation):
                self.started += 1
                return [HarnessSpawned(generation, BIRTH)]
            case SendRenewal(renewal=renewal) if link is not None:
                self.renewals += 1
                link.send_renewal(renewal)
            case SendEvent(body=body) if link is not None:
                link.send_event(body)
            case SendResult(result=result) if link is not None:
                link.send_result(result)
            case SendPong(pong=pong) if link is not None:
                link.send_pong(pong)
            case _:
                pass
        return []

    def take(self, data: bytes, now: Now) -> None:
        """Take the controller's bytes."""
        assert self.link is not None
        for fact in self.link.receive(data, now):
            assert isinstance(fact, Connected | ControlReceived)
            self.feed(fact, now)
        if self.link.failure is not None:
            raise Broken(f"the link failed: {self.link.failure}")

    def lose(self, now: Now) -> None:
        """Hear that the connection is gone."""
        link, self.link = self.link, None
        assert link is not None
        binding = link.binding
        link.end()
        if binding is None:
            self.feed(ConnectFailed(code=ErrorCode.CONNECTION_LOST), now)
        else:
            self.feed(ConnectionLost(binding.connection_id, ErrorCode.CONNECTION_LOST), now)
