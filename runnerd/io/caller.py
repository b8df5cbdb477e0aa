"""What every call to the controller needs: who we are, where it is, and the one-use ticket.

It decides which credential a call offers. It refuses to open sockets.
"""

from typing import TYPE_CHECKING, Final

from protocol.base.ports import Entropy
from protocol.carrier import ClientCarrier
from protocol.credentials import auth_key, credential_id
from protocol.handshake import ClientOffer
from protocol.limits import FRAME_BYTES_MAX
from protocol.secrets import Secret
from runnerd.core.actions import Dial
from runnerd.core.state import Settings
from runnerd.destination import Destination
from runnerd.io.link import Link, Note
from runnerd.io.pipe import Pipe, PlainPipe
from runnerd.io.resolver import Address, resolve

if TYPE_CHECKING:
    import ssl

_NONCE_BYTES: Final = 32


class Caller:
    """Makes the links of one process; holds the ticket until a lease replaces it."""

    def __init__(
        self,
        settings: Settings,
        destination: Destination,
        ticket: Secret,
        entropy: Entropy,
        *,
        tls: "ssl.SSLContext | None" = None,
        addresses: tuple[Address, ...] = (),
        note: Note | None = None,
    ) -> None:
        """Keep what the links are made of.

        Args:
            tls: the context of a `wss://` destination.
            addresses: of the destination; if empty, they are looked up at the first call.
            note: is told why a peer was refused.
        """
        assert destination.is_secure == (tls is not None), "TLS and only TLS is wss"
        self._settings = settings
        self._destination = destination
        self._ticket = ticket
        self._entropy = entropy
        self._tls = tls
        self._addresses = addresses
        self._note = note

    def addresses(self) -> tuple[Address, ...]:
        """Return the addresses to try, the same for the life of the process.

        Raises what `resolve` raises; may wait for a name server the first time.
        """
        if not self._addresses:
            self._addresses = resolve(self._destination)
        return self._addresses

    def link(self, dial: Dial) -> Link:
        """Return a link that offers the credential of ``dial``."""
        token = dial.lease_token if dial.lease_token is not None else self._ticket
        settings, destination = self._settings, self._destination
        offer = ClientOffer(
            identity=settings.identity,
            runner_version=settings.runner_version,
            runner_digest=settings.runner_digest,
            credential_kind=dial.credential_kind,
            credential_id=credential_id(token),
            client_nonce=self._entropy.token_bytes(_NONCE_BYTES).hex(),
            resume=dial.resume,
            lease_id=dial.lease_id,
            lease_expires_at_unix_ms=dial.lease_expires_at_unix_ms,
            lease_revocation_epoch=dial.lease_revocation_epoch,
            renewal_outstanding=dial.renewal_outstanding,
            obeyed_owner=dial.obeyed_owner,
        )
        carrier = ClientCarrier(
            destination.host,
            destination.port,
            destination.path,
            destination.is_secure,
            max_frame_bytes=max(settings.max_frame_bytes, FRAME_BYTES_MAX),
        )
        return Link(
            carrier,
            self._pipe(),
            offer,
            auth_key(token),
            max_frame_bytes=settings.max_frame_bytes,
            note=self._note,
        )

    def forget_ticket(self) -> None:
        """Wipe the ticket: a lease has taken its place, or the process ends."""
        self._ticket.wipe()

    def _pipe(self) -> Pipe:
        if self._tls is None:
            return PlainPipe()
        # Imported for wss:// alone: TLS costs a start more than all the rest of a handshake.
        from runnerd.io.tls import TlsPipe

        return TlsPipe(self._tls, self._destination.host)
