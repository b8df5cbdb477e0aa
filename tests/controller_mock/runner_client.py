"""A runner reduced to its wire: handshake, sealed frames, events and results, nothing durable.

It serves the tests of the controller, hostile ones too, and measurements of the controller
alone. Everything is sent as asked; nothing is judged beyond what the protocol code refuses.
"""

import asyncio
import contextlib
import secrets
import ssl
import time
from collections import deque
from collections.abc import Iterable
from urllib.parse import urlsplit

import msgspec

from controller_mock.core.state import RunConfig
from protocol.base.clock import MonoMs, Now, UnixMs
from protocol.canonical_json import JsonValue
from protocol.carrier import ClientCarrier, Failed, Opened, PongReceived, TextReceived
from protocol.codec import decode_control, encode_renew, encode_result, event_envelope
from protocol.commands import CommandResult, CommandStatus, WireCommand
from protocol.credentials import auth_key, credential_id
from protocol.envelope import (
    Ack,
    Binding,
    ControlMessage,
    CredentialKind,
    LeaseRenew,
    Resume,
    Welcome,
)
from protocol.errors import ErrorCode, PrpError
from protocol.events import Priority, runner_event
from protocol.handshake import ClientOffer, client_answer, client_hello
from protocol.ids import LeaseId, RevocationEpoch, SourceEventId, SourceSeq
from protocol.secrets import Secret
from protocol.secure_channel import Role, SecureChannel
from protocol.timestamps import rfc3339_ms

READ_BYTES = 256 * 1024
CLOSE_TIMEOUT_S = 20.0
"""A bound that only a hanging test reaches."""


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """A ticket, or a lease with what its holder knows of it."""

    kind: CredentialKind
    token: Secret
    lease_id: LeaseId | None = None
    expires_at_unix_ms: int | None = None
    revocation_epoch: int | None = None
    renewal_outstanding: bool = False


def ticket(token: Secret) -> Credential:
    """Return a bootstrap credential."""
    return Credential(kind="bootstrap", token=token)


class RunnerClient:
    """One connection. Not durable, not a runner: a test's end of the wire."""

    def __init__(
        self,
        config: RunConfig,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        carrier: ClientCarrier,
    ) -> None:
        self.config = config
        self.credential: Credential | None = None
        """What the next connection can use, once there was a welcome."""
        self.acked = 0
        self.acks_received = 0
        self.pongs_received = 0
        self._reader = reader
        self._writer = writer
        self._carrier = carrier
        self._texts: deque[bytes] = deque()
        self._failure: ErrorCode | None = None
        self._channel: SecureChannel | None = None
        self._binding: Binding | None = None
        self._event_envelope: tuple[bytes, bytes] | None = None

    # --- carrier --------------------------------------------------------------------------

    @classmethod
    async def dial(
        cls, url: str, config: RunConfig, tls: ssl.SSLContext | None = None
    ) -> "RunnerClient":
        """Connect and upgrade; PrpError ``upgrade_refused`` or ``connection_lost``."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=tls)
        carrier = ClientCarrier(parts.hostname, parts.port, parts.path, parts.scheme == "wss")
        client = cls(config, reader, writer, carrier)
        try:
            await client.flush()
            while not carrier.is_open:
                await client._read_more()
        except PrpError:
            await client.close()
            raise
        return client

    def put_text(self, text: bytes) -> None:
        """Put a text frame behind the others, unsealed, as it is."""
        self._carrier.send_text(text)

    async def send_text(self, text: bytes) -> None:
        """Send a text frame, unsealed, as it is."""
        self.put_text(text)
        await self.flush()

    async def send_bytes(self, data: bytes) -> None:
        """Send bytes past the carrier."""
        await self.flush()
        self._writer.write(data)
        await self._writer.drain()

    async def flush(self) -> None:
        """Write what was put."""
        self._writer.writelines(self._carrier.outgoing())
        await self._writer.drain()

    async def ping(self) -> None:
        """Return once the controller has read everything that was sent before."""
        answered = self.pongs_received
        self._carrier.send_ping()
        await self.flush()
        while self.pongs_received == answered:
            await self._read_more()

    @property
    def texts_waiting(self) -> int:
        """Text frames that have arrived and were not received yet."""
        return len(self._texts)

    def pause_reading(self) -> None:
        """Read nothing more from the socket."""
        transport = self._writer.transport
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()

    async def receive_text(self) -> bytes:
        """Return the next text frame; PrpError with the carrier's code if there is none."""
        while not self._texts:
            await self._read_more()
        return self._texts.popleft()

    async def closed(self) -> list[bytes]:
        """Return what still arrived before the controller closed the connection."""
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            with contextlib.suppress(PrpError):
                while True:
                    await self._read_more()
        return list(self._texts)

    async def close(self) -> None:
        """Drop the connection."""
        self._writer.transport.abort()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _read_more(self) -> None:
        if self._failure is not None:
            raise PrpError(self._failure)
        try:
            data = await self._reader.read(READ_BYTES)
        except OSError:
            data = b""
        events = self._carrier.feed(data) if data else self._carrier.eof()
        for event in events:
            match event:
                case TextReceived(data=text):
                    self._texts.append(text)
                case Failed(code=code):
                    self._failure = code
                case PongReceived():
                    self.pongs_received += 1
                case Opened():
                    pass
        if self._failure is not None and not self._texts:
            raise PrpError(self._failure)

    # --- handshake ------------------------------------------------------------------------

    async def authenticate(
        self,
        credential: Credential,
        resume: Resume | None = None,
        protocol_max: int = 2,
        early: Iterable[bytes] = (),
    ) -> Welcome:
        """Prove a credential and return the welcome; the connection is sealed from then on.

        Args:
            early: events that leave right behind the proof.
        """
        now = Now(UnixMs(time.time_ns() // 1_000_000), MonoMs(0))
        offer = ClientOffer(
            identity=self.config.identity,
            runner_version=self.config.runner_version,
            runner_digest=self.config.runner_digest,
            credential_kind=credential.kind,
            credential_id=credential_id(credential.token),
            client_nonce=secrets.token_hex(32),
            resume=resume
            or Resume(last_controller_command_seq=0, next_source_event_seq=1, acked_source_seq=0),
            protocol_max=protocol_max,
            lease_id=credential.lease_id,
            lease_expires_at_unix_ms=credential.expires_at_unix_ms,
            lease_revocation_epoch=credential.revocation_epoch,
            renewal_outstanding=credential.renewal_outstanding,
        )
        await self.send_text(client_hello(offer))
        key = auth_key(credential.token)
        answer = client_answer(offer, key, await self.receive_text(), now)
        self.put_text(answer.response)
        self._channel = SecureChannel(answer.keys, Role.CLIENT)
        self._event_envelope = event_envelope(answer.selected_version, self.config.identity)
        await self.send_events(early)
        received = decode_control(
            self._channel.open(await self.receive_text()),
            version=answer.selected_version,
            identity=self.config.identity,
            connection=None,
        )
        welcome = received.message
        assert isinstance(welcome, Welcome)
        self._binding = Binding(
            version=answer.selected_version,
            identity=self.config.identity,
            connection_id=received.connection_id,
            connection_lease_id=welcome.connection_lease_id,
        )
        self.acked = welcome.acked_source_seq or 0
        token = welcome.connection_lease_token
        self.credential = Credential(
            kind="lease",
            token=credential.token if token is None else Secret(token),
            lease_id=welcome.connection_lease_id,
            expires_at_unix_ms=welcome.connection_lease_expires_at_unix_ms,
            revocation_epoch=welcome.connection_lease_revocation_epoch,
        )
        return welcome

    @property
    def binding(self) -> Binding:
        """What every message of this connection repeats."""
        assert self._binding is not None, "not authenticated"
        return self._binding

    # --- messages -------------------------------------------------------------------------

    def seal(self, plaintext: bytes) -> bytes:
        """Return the next sealed frame's text without sending it."""
        assert self._channel is not None, "not authenticated"
        return self._channel.seal(plaintext)

    def event_plaintext(self, body: bytes) -> bytes:
        """Return the plaintext of an event's frame."""
        assert self._event_envelope is not None, "not authenticated"
        before, after = self._event_envelope
        return before + body + after

    async def send(self, plaintext: bytes) -> None:
        """Seal and send one message."""
        await self.send_text(self.seal(plaintext))

    async def send_events(self, bodies: Iterable[bytes]) -> None:
        """Seal and send events, pipelined."""
        for body in bodies:
            self.put_text(self.seal(self.event_plaintext(body)))
        await self.flush()

    async def send_result(self, result: CommandResult) -> None:
        """Seal and send a command's result."""
        await self.send(encode_result(self.binding.version, self.config.identity, result))

    async def send_renewal(self, expires_at_unix_ms: int, epoch: int = 0) -> None:
        """Seal and send a lease renewal that observed this expiry."""
        renew = LeaseRenew(
            connection_lease_expires_at_unix_ms=expires_at_unix_ms,
            connection_lease_revocation_epoch=RevocationEpoch(epoch),
        )
        await self.send(encode_renew(self.binding, renew))

    async def receive(self) -> ControlMessage:
        """Return the controller's next message."""
        assert self._channel is not None, "not authenticated"
        text = await self.receive_text()
        message = decode_control(
            self._channel.open(text),
            version=self.binding.version,
            identity=self.config.identity,
            connection=self.binding,
        ).message
        if isinstance(message, Ack):
            self.acked = message.acked_source_seq
            self.acks_received += 1
        return message

    async def acked_through(self, source_seq: int) -> None:
        """Read until events up to ``source_seq`` are acknowledged, passing over all else."""
        while self.acked < source_seq:
            await self.receive()


async def connect(url: str, config: RunConfig, credential: Credential) -> RunnerClient:
    """Dial and authenticate."""
    client = await RunnerClient.dial(url, config)
    await client.authenticate(credential)
    return client


def event_body(
    config: RunConfig,
    source_seq: int,
    *,
    event_type: str = "item.delta",
    priority: Priority = 2,
    payload: JsonValue = None,
    source_event_id: str | None = None,
) -> bytes:
    """Return an event's bytes; by default one line of output that names its sequence."""
    line: JsonValue = {
        "channel": "progress",
        "text": f"line {source_seq}\n",
        "stream": "stdout",
        "lineNumber": source_seq,
    }
    return runner_event(
        config.identity,
        source_seq=SourceSeq(source_seq),
        event_type=event_type,
        priority=priority,
        payload=line if payload is None else payload,
        emitted_at=rfc3339_ms(UnixMs(1_767_323_045_678)),
        source_event_id=None if source_event_id is None else SourceEventId(source_event_id),
    )


def result_of(
    command: WireCommand, status: CommandStatus = "completed", **members: JsonValue
) -> CommandResult:
    """Return a result for a delivered command."""
    return CommandResult(
        command_id=command.command_id,
        command_type=command.type,
        controller_seq=command.controller_seq,
        status=status,
        result=msgspec.Raw(msgspec.json.encode(members)),
    )
