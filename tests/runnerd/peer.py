"""A controller reduced to its wire: one connection as bytes, over the protocol's own server role.

It serves the tests of the daemon's link, shell and process. It keeps nothing durable and
judges nothing; a test makes it lie through `Tamper`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from protocol.base.clock import MonoMs, Now, UnixMs
from protocol.carrier import Failed, ServerCarrier, TextReceived
from protocol.codec import decode_runner, encode_control
from protocol.commands import WireCommand
from protocol.credentials import auth_key, credential_id
from protocol.envelope import (
    Ack,
    AuthHello,
    Binding,
    CommandResultAck,
    ControlMessage,
    Deliver,
    EventMessage,
    LeaseRenew,
    LeaseRenewed,
    ResultMessage,
    RunnerMessage,
    Welcome,
)
from protocol.errors import PrpError
from protocol.handshake import (
    Challenge,
    CredentialFacts,
    read_hello,
    server_challenge,
    server_verify,
)
from protocol.ids import (
    CommandId,
    ConnectionId,
    ControllerSeq,
    Identity,
    LeaseId,
    RevocationEpoch,
    SourceSeq,
)
from protocol.secrets import Secret
from protocol.secure_channel import Role, SecureChannel
from protocol.timestamps import rfc3339_ms

PATH = "/api/runner/v1/connect"
TICKET = "bootstrap_0f3c2f6e-4a1b-4a55-9c39-2f3f5f0d8a11"
LEASE_TOKEN = "lease_7b0c6a0e-95d4-4f0e-8f3f-6f8d0f0a9c22"
LEASE_ID = LeaseId("lease_1")
RUNNER_VERSION = "1.2.3"
RUNNER_DIGEST = "sha256:" + "ab" * 32
IDENTITY = Identity(
    runner_instance_id="runner_1",
    environment_lease_id="environment_1",
    run_id="run_1",
    normalized_session_id="session_1",
    turn_id="turn_1",
    item_id="item_1",
)


def unix_ms() -> int:
    """Return the wall clock's reading."""
    return time.time_ns() // 1_000_000


def now() -> Now:
    """Return the present moment."""
    return Now(UnixMs(unix_ms()), MonoMs(time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000))


def command(seq: int, type_: str, payload: object = None) -> WireCommand:
    """Return a wire command with an id made of its sequence."""
    return WireCommand(
        schema="paperclip.prp.command.v1",
        command_id=CommandId(f"command_{seq}"),
        controller_seq=ControllerSeq(seq),
        type=type_,
        issued_at="2026-01-02T03:04:05.678Z",
        payload=msgspec.Raw(msgspec.json.encode({} if payload is None else payload)),
    )


@dataclass
class Tamper:
    """What a lying or failing controller does at each step; by default it is honest."""

    hello: Callable[[AuthHello], bool] = lambda hello: True
    """False: the connection is closed without a challenge."""
    challenge: Callable[[bytes], bytes] = lambda frame: frame
    response: Callable[[bytes], bool] = lambda frame: True
    """False: the connection is closed without a welcome."""
    welcome: Callable[[Welcome], Welcome] = lambda welcome: welcome
    sealed: Callable[[bytes], bytes] = lambda frame: frame
    """Applied to every sealed frame."""


@dataclass
class Authority:
    """What a controller knows of the one run, over all its connections."""

    identity: Identity = IDENTITY
    ticket: Secret = field(default_factory=lambda: Secret(TICKET))
    ticket_is_used: bool = False
    lease: Secret = field(default_factory=lambda: Secret(LEASE_TOKEN))
    lease_ttl_ms: int = 30_000
    lease_expires_at_unix_ms: int = 0
    revocation_epoch: int = 1
    acked: int = 0
    answers_renewals: bool = True
    acknowledges: bool = True
    pending: list[WireCommand] = field(default_factory=list[WireCommand])
    connections: int = 0
    events: list[EventMessage] = field(default_factory=list[EventMessage])
    results: list[ResultMessage] = field(default_factory=list[ResultMessage])
    renewals: list[LeaseRenew] = field(default_factory=list[LeaseRenew])
    hellos: list[AuthHello] = field(default_factory=list[AuthHello])
    refusals: list[PrpError] = field(default_factory=list[PrpError])


class Peer:
    """The server's end of one connection; `outgoing` is what its socket would write."""

    def __init__(self, authority: Authority, tamper: Tamper | None = None) -> None:
        self.authority = authority
        self.tamper = tamper or Tamper()
        self.carrier = ServerCarrier(PATH)
        self.challenge: Challenge | None = None
        self.channel: SecureChannel | None = None
        self.binding: Binding | None = None
        self.is_closed = False
        self.claims_every_credential = False
        self.texts: list[bytes] = []
        """Every text received, sealed ones too."""
        self._hello: AuthHello | None = None
        self._raw: list[bytes] = []
        self._envelopes = 0

    @property
    def is_welcomed(self) -> bool:
        """True once the welcome was sent."""
        return self.binding is not None

    def feed(self, data: bytes) -> None:
        """Take what the runner sent."""
        for event in self.carrier.feed(data):
            if self.is_closed:
                return
            if isinstance(event, TextReceived):
                self.texts.append(event.data)
                try:
                    self._read(event.data)
                except PrpError as error:
                    self.authority.refusals.append(error)
                    self.is_closed = True
            elif isinstance(event, Failed):
                self.is_closed = True

    def outgoing(self) -> bytes:
        """Return and forget what waits to be written."""
        waiting = b"".join(self.carrier.outgoing()) + b"".join(self._raw)
        self._raw = []
        return waiting

    def say(self, message: ControlMessage) -> None:
        """Seal and queue a control message."""
        assert self.binding is not None
        self._envelopes += 1
        self.say_plaintext(
            encode_control(
                self.binding,
                message,
                envelope_id=f"envelope_{self._envelopes}",
                sent_at=rfc3339_ms(UnixMs(unix_ms())),
            )
        )

    def say_plaintext(self, plaintext: bytes) -> None:
        """Seal and queue any plaintext."""
        assert self.channel is not None
        self.carrier.send_text(self.tamper.sealed(self.channel.seal(plaintext)))

    def say_text(self, text: bytes) -> None:
        """Queue a text frame that is not sealed."""
        self.carrier.send_text(text)

    def say_bytes(self, data: bytes) -> None:
        """Queue bytes behind what waits, frames or not."""
        self._raw = [self.outgoing(), data]

    def close(self) -> None:
        """End the connection once what waits has been written."""
        self.is_closed = True

    # --- handshake ------------------------------------------------------------------------

    def _read(self, text: bytes) -> None:
        if self._hello is None:
            self._hello = read_hello(text)
            self._challenge(self._hello)
        elif self.channel is None:
            self._verify(text)
        else:
            assert self.binding is not None
            self._take(decode_runner(self.channel.open(text), self.binding))

    def _challenge(self, hello: AuthHello) -> None:
        authority = self.authority
        authority.hellos.append(hello)
        key = self._key(hello)
        if key is None or not self.tamper.hello(hello):
            self.is_closed = True
            return
        is_lease = hello.credential_id == credential_id(authority.lease)
        facts = CredentialFacts(
            kind="lease" if is_lease else "bootstrap",
            credential_id=hello.credential_id,
            identity=authority.identity,
            runner_version=RUNNER_VERSION,
            runner_digest=RUNNER_DIGEST,
            expires_at_unix_ms=authority.lease_expires_at_unix_ms if is_lease else unix_ms() + 5000,
            revocation_epoch=authority.revocation_epoch if is_lease else 0,
            lease_id=LEASE_ID if is_lease else None,
            lease_version=2 if is_lease else None,
        )
        self.challenge = server_challenge(hello, facts, key, "nonce_of_the_server")
        self.say_text(self.tamper.challenge(self.challenge.frame))

    def _key(self, hello: AuthHello) -> Secret | None:
        authority = self.authority
        if hello.credential_id == credential_id(authority.ticket) and not authority.ticket_is_used:
            return auth_key(authority.ticket)
        if hello.credential_id == credential_id(authority.lease):
            return auth_key(authority.lease)
        return auth_key(authority.ticket) if self.claims_every_credential else None

    def _verify(self, response: bytes) -> None:
        assert self.challenge is not None
        assert self._hello is not None
        key = self._key(self._hello)
        assert key is not None
        keys = server_verify(self.challenge, key, response)
        if not self.tamper.response(response):
            self.is_closed = True
            return
        self.channel = SecureChannel(keys, Role.CORE)
        self._welcome()

    def _welcome(self) -> None:
        assert self.challenge is not None
        authority = self.authority
        is_bootstrap = self.challenge.credential_id == credential_id(authority.ticket)
        if is_bootstrap:
            authority.ticket_is_used = True
            authority.lease_expires_at_unix_ms = unix_ms() + authority.lease_ttl_ms
        authority.connections += 1
        welcome = Welcome(
            selected_version=self.challenge.selected_version,
            connection_lease_id=LEASE_ID,
            connection_lease_expires_at_unix_ms=authority.lease_expires_at_unix_ms,
            connection_lease_revocation_epoch=RevocationEpoch(authority.revocation_epoch),
            connection_lease_token=LEASE_TOKEN if is_bootstrap else None,
            connection_lease_renewal_version=1,
            acked_source_seq=SourceSeq(authority.acked),
            pending_commands=tuple(authority.pending[:1]),
        )
        self.binding = Binding(
            version=self.challenge.selected_version,
            identity=authority.identity,
            connection_id=ConnectionId(f"connection_{authority.connections}"),
            connection_lease_id=LEASE_ID,
        )
        self.say(self.tamper.welcome(welcome))

    # --- session --------------------------------------------------------------------------

    def _take(self, message: RunnerMessage) -> None:
        authority = self.authority
        match message:
            case EventMessage(event=event):
                authority.events.append(message)
                if authority.acknowledges:
                    authority.acked = max(authority.acked, event.source_seq)
                    self.say(Ack(SourceSeq(authority.acked)))
            case ResultMessage(result=result):
                authority.results.append(message)
                authority.pending = [
                    each for each in authority.pending if each.command_id != result.command_id
                ]
                if result.command_type in ("runner.shutdown", "runner.suspend"):
                    self.say(
                        CommandResultAck(
                            command_id=result.command_id,
                            command_type=result.command_type,
                            controller_seq=result.controller_seq,
                            status=result.status,
                        )
                    )
                elif authority.pending:
                    self.say(Deliver(authority.pending[0]))
            case LeaseRenew():
                authority.renewals.append(message)
                if authority.answers_renewals:
                    self._renew(message)
            case _:
                return

    def _renew(self, renewal: LeaseRenew) -> None:
        authority = self.authority
        authority.lease_expires_at_unix_ms = unix_ms() + authority.lease_ttl_ms
        self.say(
            LeaseRenewed(
                previous_expires_at_unix_ms=renewal.connection_lease_expires_at_unix_ms,
                connection_lease_expires_at_unix_ms=authority.lease_expires_at_unix_ms,
                connection_lease_revocation_epoch=RevocationEpoch(authority.revocation_epoch),
            )
        )
