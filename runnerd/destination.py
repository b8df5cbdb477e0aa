"""Where the controller listens, as the command line names it.

It decides which text is a destination. It refuses to resolve names and to open sockets: what
a name stands for is judged in `io.resolver`.
"""

import re
from typing import Final

import msgspec

from protocol.errors import ErrorCode, PrpError
from protocol.limits import CONNECT_URL_BYTES_MAX

_PORTS: Final = {"ws": 80, "wss": 443}
_PORT_MAX: Final = 65_535
_URL: Final = re.compile(r"([A-Za-z]+)://([^/]*)(/.*)?", re.ASCII | re.DOTALL)
_AUTHORITY: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]]+))(?::([0-9]*))?", re.ASCII)
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_.])?", re.ASCII)
_FORBIDDEN: Final = frozenset('?#\\"<>^`{|}')


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
    matched = _URL.fullmatch(text)
    scheme = matched[1].lower() if matched else ""
    if matched is None or scheme not in _PORTS:
        raise _refused("the URL does not begin with ws:// or wss://")
    host, port = _read_authority(matched[2], _PORTS[scheme])
    return Destination(is_secure=scheme == "wss", host=host, port=port, path=matched[3] or "/")


def _read_authority(authority: str, port: int) -> tuple[str, int]:
    if "@" in authority or "%" in authority:
        raise _refused("the URL names a user or escapes its host")
    matched = _AUTHORITY.fullmatch(authority)
    if matched is None:
        raise _refused("the URL names no host and port; an IPv6 address stands in brackets")
    ipv6, name, digits = matched.groups()
    if name is not None and _HOST_NAME.fullmatch(name) is None:
        raise _refused("the URL names no host that can exist")
    if digits is not None:
        port = int(digits) if 1 <= len(digits) <= len(str(_PORT_MAX)) else 0
    if not 1 <= port <= _PORT_MAX:
        raise _refused(f"the port is not within 1..{_PORT_MAX}")
    return ipv6 or name, port


def _refused(reason: str) -> PrpError:
    return PrpError(ErrorCode.DESTINATION_REFUSED, reason)
