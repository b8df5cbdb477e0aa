"""TLS for `wss://`, as a pipe of bytes.

It decides which server is believed. It refuses to own the socket and to weaken a check.
"""

import ssl
from typing import Final

from protocol.errors import ErrorCode, PrpError
from protocol.limits import CA_BUNDLE_BYTES_MAX
from runnerd.flags import usage
from runnerd.io.private_file import NotPrivate, read_private_file

_READ_BYTES: Final = 64 * 1024


def client_context(ca_bundle_path: str | None) -> ssl.SSLContext:
    """Return a context that verifies name and chain against the system's roots.

    Args:
        ca_bundle_path: a private PEM file with at least one certificate, trusted as well.

    Returns:
        Or raises PrpError ``usage_invalid``.

    Source: runner-behaviour 1.
    """
    # Not `create_default_context`: that one writes session keys wherever a variable says.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if ca_bundle_path is not None:
        _trust(context, ca_bundle_path)
    return context


def _trust(context: ssl.SSLContext, path: str) -> None:
    try:
        # Between the certificates, bundles hold comments in any encoding.
        bundle = read_private_file(path, CA_BUNDLE_BYTES_MAX).decode("ascii", errors="ignore")
    except NotPrivate as error:
        raise usage(f"--ca-bundle-path: {error}") from error
    try:
        # An empty store of its own tells whether the file holds a usable certificate.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=bundle)
        context.load_verify_locations(cadata=bundle)
    except (ssl.SSLError, ValueError):
        raise usage("--ca-bundle-path: it holds no usable certificate") from None


class TlsPipe:
    """A TLS client over memory; the carrier's bytes wait until the server is verified."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._is_verified = False
        self._waiting: list[bytes] = []

    def unwrap(self, data: bytes) -> bytes:
        self._incoming.write(data)
        self._shake_hands()
        if not self._is_verified:
            return b""
        received: list[bytes] = []
        try:
            while part := self._tls.read(_READ_BYTES):
                received.append(part)
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            # No more for now, or the peer said its last; the socket's end follows.
            pass
        except ssl.SSLError as error:
            raise _refused(error) from error
        return b"".join(received)

    def wrap(self, chunks: list[bytes]) -> list[bytes]:
        self._waiting += chunks
        self._shake_hands()
        if self._is_verified and self._waiting:
            waiting, self._waiting = b"".join(self._waiting), []
            # A memory BIO takes everything, so nothing is ever written in part.
            self._tls.write(waiting)
        return [sealed] if (sealed := self._outgoing.read()) else []

    def _shake_hands(self) -> None:
        if self._is_verified:
            return
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        except (ssl.SSLError, ssl.CertificateError) as error:
            raise _refused(error) from error
        self._is_verified = True


def _refused(error: ssl.SSLError) -> PrpError:
    reason = getattr(error, "verify_message", "") or error.reason or "TLS failed"
    return PrpError(ErrorCode.TLS_REFUSED, str(reason))
