"""What is written to each connection, decrypted at the sender's end.

It decides what each end has said, in which order and under which key. It refuses to judge
anything but keys, counters and identities: the rest is told to a listener.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import msgspec

from tests.simulator.full.network import Transport
from tests.simulator.full.sealed import (
    HEAD_END,
    TO_CLIENT,
    TO_CORE,
    Keys,
    Plain,
    credential_id,
    plain,
    texts,
)
from tests.simulator.verdict import Violation

if TYPE_CHECKING:
    from tests.simulator.full.side import Side


class Listener(Protocol):
    """Who is told what the ends say."""

    def runner_said(self, session: "Session", message: Plain) -> None:
        """A message left the runner."""
        ...

    def controller_said(self, session: "Session", message: Plain) -> None:
        """A message left the controller."""
        ...


class _Hello(msgspec.Struct, rename="camel"):
    credential_id: str


class _Response(msgspec.Struct, rename="camel"):
    credential_id: str
    client_proof: str


class _Owner(msgspec.Struct, rename="camel"):
    owner_epoch: int | None = None


class _Token(msgspec.Struct, rename="camel"):
    connection_lease_token: str | None = None


@dataclass
class Session:
    """One connection, from its first byte."""

    number: int
    side: "Side"
    """The machine at whose end the runner is."""
    listener: object
    """The controller at the other end."""
    owner_epoch: int = 0
    """What the challenge says about the start of the controller; 0 if it says nothing."""
    credential: str = ""
    challenge: bytes = b""
    keys: Keys | None = None
    upgraded: set[bool] = field(default_factory=set[bool])
    """Which ends have finished the HTTP exchange: True for the client."""
    sealed: dict[bytes, int] = field(default_factory=dict[bytes, int])
    """How many frames each direction has sealed."""
    told: list[Plain] = field(default_factory=list[Plain])
    """What the controller has said, in order."""
    proof_is_right: bool = False
    proof_frame: bytes = b""
    """The frame that carries the runner's answer, and what has arrived of its direction."""
    arrived: bytearray = field(default_factory=bytearray)
    expected_seq: int | None = None
    """The event that is due next from the runner; None before the welcome."""
    connection_id: str = ""
    answers: list[int] = field(default_factory=list[int])
    """Commands that the runner has answered, in order."""
    answers_before: dict[int, int] = field(default_factory=dict[int, int])
    """How many of them left before each event."""
    answers_taken: int = 0
    """How many of them the controller was seen to have taken."""
    must_refuse: str = ""
    """What the runner must end with at this welcome; empty if the histories fit together."""


class Tap:
    """Reads along on every connection."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self.tokens: dict[str, bytes] = {}
        """Tokens by the public name of their credential."""
        self.sessions: dict[int, Session] = {}
        self.proven: set[str] = set()
        """Credentials for which a right proof has arrived at the controller."""
        self.bought: set[bytes] = set()
        """Tickets that have bought a lease."""
        self.nonces: dict[tuple[bytes, int], bytes] = {}

    def know(self, token: bytes) -> None:
        """Learn a token that was handed out."""
        self.tokens[credential_id(token)] = token

    def wrote(self, end: Transport, data: bytes) -> None:
        """Look at what an end has written."""
        number = end.connection.number
        session = self.sessions.get(number)
        if session is None:
            session = self.sessions[number] = Session(
                number, end.connection.caller, end.connection.listener
            )
        if end.is_client not in session.upgraded:
            if HEAD_END in data:
                session.upgraded.add(end.is_client)
            return
        for text in texts(data):
            if end.is_client:
                had_keys = session.keys is not None
                self._from_runner(session, text)
                if not had_keys and session.keys is not None:
                    session.proof_frame = data
            else:
                self._from_controller(session, text)

    def arrives(self, number: int, data: bytes) -> None:
        """Look at what the controller is about to read, until the proof is in it."""
        session = self.sessions.get(number)
        if session is None or not session.proof_is_right or session.credential in self.proven:
            return
        session.arrived += data
        if session.proof_frame in session.arrived:
            self.proven.add(session.credential)

    def _from_runner(self, session: Session, text: bytes) -> None:
        if session.keys is not None:
            self._listener.runner_said(session, self._opened(session, TO_CORE, text))
            return
        message = plain(text)
        if message.kind == "auth_hello":
            session.credential = msgspec.json.decode(message.payload, type=_Hello).credential_id
        elif message.kind == "auth_response":
            response = msgspec.json.decode(message.payload, type=_Response)
            if session.owner_epoch < session.side.authority.obeyed_epoch:
                raise Violation("I16", "a controller that was replaced got a proof")
            token = self.tokens[session.credential]
            session.keys = Keys(token, session.challenge, response.client_proof)
            session.proof_is_right = session.keys.expected_proof == response.client_proof

    def _from_controller(self, session: Session, text: bytes) -> None:
        if session.keys is None:
            message = plain(text)
            if message.kind == "auth_challenge":
                session.challenge = bytes(message.payload)
                owner = msgspec.json.decode(message.payload, type=_Owner)
                session.owner_epoch = owner.owner_epoch or 0
            return
        message = self._opened(session, TO_CLIENT, text)
        if message.kind == "welcome":
            session.connection_id = message.connection_id
            token = msgspec.json.decode(message.payload, type=_Token).connection_lease_token
            if token is not None:
                self.bought.add(self.tokens[session.credential])
                self.know(token.encode())
        session.told.append(message)
        self._listener.controller_said(session, message)

    def _opened(self, session: Session, direction: tuple[bytes, bytes], text: bytes) -> Plain:
        keys = session.keys
        assert keys is not None
        opened = keys.open(direction, text)
        if opened is None:
            if keys.opens_with_the_other_key(direction, text):
                raise Violation("I25", "both directions seal with one key")
            raise Violation("I15", "a frame is not sealed under the session's keys")
        counter, plaintext = opened
        known = self.nonces.setdefault((keys.key_bytes[direction], counter), plaintext)
        if known != plaintext:
            raise Violation("I25", f"counter {counter} sealed two plaintexts under one key")
        due = session.sealed.get(direction[0], 0)
        if counter != due:
            raise Violation("I25", f"counter {counter} was used where {due} was due")
        session.sealed[direction[0]] = due + 1
        return plain(plaintext)
