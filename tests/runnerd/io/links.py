"""A link and a peer joined without a socket, and what a test does with the pair."""

from collections.abc import Callable, Sequence

from protocol.carrier import ClientCarrier
from protocol.credentials import auth_key, credential_id
from protocol.envelope import CredentialKind, Resume
from protocol.handshake import ClientOffer
from protocol.limits import FRAME_BYTES_MAX
from protocol.secrets import Secret
from runnerd.core.inputs import Connected, ControlReceived
from runnerd.io.link import Fact, Link, Phase
from runnerd.io.pipe import Pipe, PlainPipe
from tests.runnerd.peer import (
    IDENTITY,
    LEASE_ID,
    LEASE_TOKEN,
    PATH,
    RUNNER_DIGEST,
    RUNNER_VERSION,
    TICKET,
    Authority,
    Peer,
    Tamper,
    now,
)

RESUME = Resume(last_controller_command_seq=0, next_source_event_seq=1, acked_source_seq=0)


def offer(
    kind: CredentialKind = "bootstrap",
    *,
    lease_expires_at_unix_ms: int = 0,
    renewal_outstanding: bool = False,
) -> ClientOffer:
    """Return what a runner of the test identity offers."""
    is_lease = kind == "lease"
    return ClientOffer(
        identity=IDENTITY,
        runner_version=RUNNER_VERSION,
        runner_digest=RUNNER_DIGEST,
        credential_kind=kind,
        credential_id=credential_id(Secret(LEASE_TOKEN if is_lease else TICKET)),
        client_nonce="0" * 64,
        resume=RESUME,
        lease_id=LEASE_ID if is_lease else None,
        lease_expires_at_unix_ms=lease_expires_at_unix_ms if is_lease else None,
        lease_revocation_epoch=1 if is_lease else None,
        renewal_outstanding=renewal_outstanding,
    )


class Pair:
    """Both ends of one connection; bytes move when a test says so."""

    def __init__(
        self,
        offered: ClientOffer | None = None,
        authority: Authority | None = None,
        tamper: Tamper | None = None,
        pipe: Pipe | None = None,
        max_frame_bytes: int = FRAME_BYTES_MAX,
    ) -> None:
        offered = offered or offer()
        is_lease = offered.credential_kind == "lease"
        self.authority = authority or Authority()
        self.peer = Peer(self.authority, tamper)
        self.link = Link(
            ClientCarrier("127.0.0.1", 4242, PATH, secure=False),
            pipe or PlainPipe(),
            offered,
            auth_key(Secret(LEASE_TOKEN if is_lease else TICKET)),
            max_frame_bytes,
        )
        self.facts: list[Fact] = []

    def exchange(self) -> None:
        """Move bytes both ways until neither end has anything to say."""
        while not self.peer.is_closed:
            out = b"".join(self.link.outgoing())
            self.peer.feed(out)
            back = self.peer.outgoing()
            if back:
                self.facts += self.link.receive(back, now())
            if not out and not back:
                return
        if back := self.peer.outgoing():
            self.facts += self.link.receive(back, now())
        self.link.end()

    def welcomed(self) -> "Pair":
        """Shake hands and return the pair."""
        self.exchange()
        assert self.link.phase is Phase.OPEN, self.link.failure
        assert isinstance(self.facts[0], Connected)
        return self

    def messages(self) -> list[object]:
        """Return the control messages received so far."""
        return [fact.message for fact in self.facts if isinstance(fact, ControlReceived)]

    def feed_raw(self, data: bytes, cut: Callable[[bytes], Sequence[bytes]] | None = None) -> None:
        """Give the link bytes as if the peer had sent them, in one piece or cut."""
        for piece in cut(data) if cut else (data,):
            self.facts += self.link.receive(piece, now())
