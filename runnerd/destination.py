"""Where the controller listens, as the command line names it.

It decides which text is a destination. It refuses to resolve names and to open sockets: what
a name stands for is judged in `io.resolver`.
"""

import string
from typing import Final

import msgspec

from protocol.errors import ErrorCode, PrpError
from protocol.limits import CONNECT_URL_BYTES_MAX

_PORTS: Final = {"ws": 80, "wss": 443}
_PORT_MAX: Final = 65_535
_FORBIDDEN: Final = frozenset('?#\\"<>^`{|}')
_NAME_CHARACTERS: Final = frozenset(string.ascii_letters + string.digits + "._-")
_IPV6_CHARACTERS: Final = frozenset(string.hexdigits + ":.")
# No regular expressions: compiling three would cost a start half a millisecond.


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """A controller's address; ``host`` is a name or an address without brackets."""

    is_secure: bool
    host: str
    port: int
    path: str

    @property
    def scheme(self) -> str:
        """`wss` if the carrier is TLS, else `ws`."""
        return "wss" if self.is_secure else "ws"


def parse_url(text: str) -> Destination:
    """Read a `ws://` or `wss://` URL.

    Returns:
        The destination. Or raises PrpError ``destination_refused`` saying what is wrong.

    Source: runner-behaviour 1, prp-wire 1.1.
    """
    if not 1 <= len(text.encode(errors="replace")) <= CONNECT_URL_BYTES_MAX:
        raise _refused(f"the URL is empty or longer than {CONNECT_URL_BYTES_MAX} bytes")
    if not text.isascii() or not text.isprintable() or " " in text:
        raise _refused("the URL holds a space, a control character or a character beyond ASCII")
    if _FORBIDDEN.intersection(text):
        raise _refused("the URL holds a query, a fragment or a character that no URL has")
    scheme, separator, rest = text.partition("://")
    scheme = scheme.lower()
    if not separator or scheme not in _PORTS:
        raise _refused("the URL does not begin with ws:// or wss://")
    authority, slash, path = rest.partition("/")
    host, port = _read_authority(authority, _PORTS[scheme])
    return Destination(is_secure=scheme == "wss", host=host, port=port, path=slash + path or "/")


def _read_authority(authority: str, port: int) -> tuple[str, int]:
    if "@" in authority or "%" in authority:
        raise _refused("the URL names a user or escapes its host")
    if authority.startswith("["):
        host, bracket, behind = authority[1:].partition("]")
        is_host = bool(bracket) and _IPV6_CHARACTERS.issuperset(host)
    else:
        host, colon, digits = authority.partition(":")
        behind = colon + digits
        is_host = (
            _NAME_CHARACTERS.issuperset(host)
            and not host.startswith(("-", "."))
            and host[-1:] != "-"
        )
    if not host or not is_host:
        raise _refused("the URL names no host that can exist; an IPv6 address stands in brackets")
    if behind:
        port = _read_port(behind)
    return host, port


def _read_port(behind: str) -> int:
    colon, digits = behind[0], behind[1:]
    is_number = digits.isdecimal() and len(digits) <= len(str(_PORT_MAX))
    port = int(digits) if colon == ":" and is_number else 0
    if not 1 <= port <= _PORT_MAX:
        raise _refused(f"the port is not within 1..{_PORT_MAX}")
    return port


def _refused(reason: str) -> PrpError:
    return PrpError(ErrorCode.DESTINATION_REFUSED, reason)
