"""Where connections arrive: each frame becomes an input of its run, or ends its connection.

It decides which run a peer speaks to and how much is read while a commit is in flight. It
refuses to judge proofs and messages: that is the core of the run.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

import structlog

from controller_mock.core.inputs import (
    ConnectionHandle,
    ConnectionLost,
    HelloReceived,
    Input,
    MessageReceived,
    MessageRefused,
    ResponseReceived,
)
from controller_mock.io.peer import Peer, Reading, ResponseFrame
from controller_mock.io.websocket import Connection, Hold
from controller_mock.run_slot import RunSlot
from protocol.base.ports import Entropy
from protocol.envelope import AuthHello, Binding, OwnerEpoch
from protocol.errors import ErrorCode, PrpError
from protocol.handshake import SessionKeys
from protocol.ids import CredentialId, LeaseId
from protocol.limits import CONNECTIONS_UNAUTHENTICATED_MAX, READ_AHEAD_BYTES_MAX
from protocol.secrets import Secret

_NONCE_BYTES: Final = 32

log = structlog.get_logger()


class Reception:
    """The receiver of every connection of one controller."""

    def __init__(
        self,
        find_run: Callable[[CredentialId], RunSlot | None],
        post: Callable[[RunSlot, Input], None],
        entropy: Entropy,
        owner: OwnerEpoch | None = None,
    ) -> None:
        self.closings: Counter[ErrorCode] = Counter()
        """Connections that this end closed since the controller started, by code."""
        self._find_run = find_run
        self._post = post
        self._entropy = entropy
        self._owner = owner
        self._peers: dict[ConnectionHandle, Peer] = {}
        self._slots: dict[ConnectionHandle, RunSlot] = {}
        self.unproven = 0
        """Connections that have not proven a credential."""
        self._commit_in_flight = False
        self.read_ahead_bytes = 0
        """Read since the commit in flight was begun."""
        self._held: list[Connection] = []

    # --- orders of the shell ------------------------------------------------------------------

    def seal(self, peer: Peer, keys: SessionKeys, binding: Binding) -> None:
        """Start a peer's sealed session and read what it sent ahead of it."""
        early = peer.seal(keys, binding)
        self.unproven -= 1
        for text in early:
            if not peer.connection.is_refused:
                self.frame_received(peer.connection, text)

    def close(self, peer: Peer, code: ErrorCode) -> None:
        """Drop a connection without a close frame."""
        self.closings[code] += 1
        log.info(
            "connection_closed",
            connection=peer.connection.handle,
            code=code.value,
            run_id=peer.run_id,
        )
        peer.connection.drop()

    def commit_started(self) -> None:
        """Bound what is read from now on: a busy loop would starve the writer thread."""
        self._commit_in_flight = True
        self.read_ahead_bytes = 0

    def commit_ended(self) -> None:
        """Read again from everyone."""
        self._commit_in_flight = False
        held, self._held = self._held, []
        for connection in held:
            connection.release(Hold.COMMIT)

    def drop_all(self) -> None:
        """Drop every connection."""
        for peer in list(self._peers.values()):
            peer.connection.drop()

    # --- Receiver -----------------------------------------------------------------------------

    def connection_made(self, connection: Connection) -> bool:
        """Take a new connection, or refuse it because too many have proven nothing yet."""
        if self.unproven >= CONNECTIONS_UNAUTHENTICATED_MAX:
            self.closings[ErrorCode.UPGRADE_REFUSED] += 1
            return False
        self.unproven += 1
        self._peers[connection.handle] = Peer(connection)
        return True

    def frame_received(self, connection: Connection, text: bytes) -> None:
        """Turn one text frame into an input of its run."""
        peer = self._peers[connection.handle]
        try:
            reading = peer.read(text)
            if reading is not None:
                self._route(peer, reading)
        except PrpError as error:
            connection.refuse(error.code)
        if self._commit_in_flight:
            self.read_ahead_bytes += len(text)
            if self.read_ahead_bytes > READ_AHEAD_BYTES_MAX:
                connection.hold(Hold.COMMIT)
                self._held.append(connection)

    def connection_refused(self, connection: Connection, code: ErrorCode) -> None:
        """Let the run's core, if there is one yet, close a connection that broke a rule."""
        slot = self._slots.get(connection.handle)
        if slot is None or slot.is_fenced:
            self.close(self._peers[connection.handle], code)
        else:
            self._post(slot, MessageRefused(connection.handle, code))

    def connection_lost(self, connection: Connection) -> None:
        """Forget a connection and tell its run."""
        peer = self._peers.pop(connection.handle)
        if not peer.is_authenticated:
            self.unproven -= 1
        peer.forget_keys()
        slot = self._slots.pop(connection.handle, None)
        if slot is not None and slot.peers.pop(connection.handle, None) is not None:
            self._post(slot, ConnectionLost(connection.handle))

    # --- routes -------------------------------------------------------------------------------

    def _route(self, peer: Peer, reading: Reading) -> None:
        handle = peer.connection.handle
        match reading:
            case AuthHello():
                slot = self._find_run(reading.credential_id)
                if slot is None:
                    raise PrpError(ErrorCode.CREDENTIAL_UNKNOWN)
                if slot.is_fenced:
                    raise PrpError(ErrorCode.STORAGE_WRITE_FAILED)
                peer.run_id = slot.run_id
                self._slots[handle] = slot
                slot.peers[handle] = peer
                nonce = self._entropy.token_bytes(_NONCE_BYTES).hex()
                hello = HelloReceived(
                    connection=handle, hello=reading, server_nonce=nonce, owner=self._owner
                )
                self._post(slot, hello)
            case ResponseFrame():
                response = ResponseReceived(
                    connection=handle,
                    frame=reading.frame,
                    lease_token=Secret(f"lease_{self._entropy.token_bytes(_NONCE_BYTES).hex()}"),
                    lease_id=LeaseId(f"lease_{self._entropy.token_bytes(16).hex()}"),
                )
                self._post(self._slots[handle], response)
            case _:
                self._post(self._slots[handle], MessageReceived(handle, reading))
