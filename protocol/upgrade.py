"""The HTTP exchange that turns a TCP connection into a WebSocket.

It decides which request is accepted, which status refuses another, and which response a
client may believe. It refuses to know frames. The library's own HTTP code takes its
limits from the environment and answers otherwise than upstream does, so it is not used.
"""

import base64
import binascii
import hashlib
import re
from typing import Final

import msgspec

from protocol.limits import UPGRADE_HEADER_BYTES_MAX

_END: Final = b"\r\n\r\n"
_ACCEPT_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KEY_BYTES: Final = 16
_REQUEST_LINE: Final = re.compile(rb"([!-~]+) ([!-~]+) HTTP/1\.1")
_STATUS_101: Final = re.compile(rb"HTTP/1\.1 101( [\t -~\x80-\xff]*)?")
_FIELD: Final = re.compile(rb"([-!#$%&'*+.^_`|~0-9A-Za-z]+):[\t ]*([\t -~\x80-\xff]*?)[\t ]*")

_REASONS: Final = {
    400: b"Bad Request",
    404: b"Not Found",
    431: b"Request Header Fields Too Large",
}

Fields = dict[bytes, list[bytes]]
"""Values of each header field by lower-case name."""


class Refused(msgspec.Struct, frozen=True):
    """A request that is no upgrade of this server; ``status`` is 400, 404 or 431."""

    status: int


class Head:
    """Collects the bytes of one request or response head, however they are cut."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> tuple[bytes, bytes] | None:
        """Return the head without its blank line, and the bytes behind it, once complete.

        Raises:
            OverflowError: if the head exceeds `UPGRADE_HEADER_BYTES_MAX`.
        """
        seen = max(0, len(self._buffer) - len(_END) + 1)
        self._buffer += data
        end = self._buffer.find(_END, seen)
        if (len(self._buffer) if end < 0 else end + len(_END)) > UPGRADE_HEADER_BYTES_MAX:
            raise OverflowError("the head is too long")
        if end < 0:
            return None
        return bytes(self._buffer[:end]), bytes(self._buffer[end + len(_END) :])


def upgrade_request(authority: str, path: str, key: str) -> bytes:
    """Return the request of a client: no subprotocol, extension, cookie or authorization.

    Args:
        authority: host, and the port unless it is the scheme's own.
        key: base64 of 16 fresh random bytes.

    Source: prp-wire 1.1.
    """
    assert path.startswith("/"), "the path is absolute"
    request = (
        f"GET {path} HTTP/1.1\r\n"
        f"Host: {authority}\r\n"
        "Connection: Upgrade\r\n"
        "Upgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Key: {key}\r\n\r\n"
    )
    return request.encode("ascii")


def judge_request(head: bytes, path: str) -> bytes | Refused:
    """Return the key of a request that asks for a WebSocket at ``path``, or its refusal.

    A query behind the path is tolerated; offered extensions and subprotocols are ignored.

    Source: prp-wire 1.1 (a request that upstream's HTTP server does not take for an upgrade
    is answered 404, whatever else it says).
    """
    first, _, rest = head.partition(b"\r\n")
    line, fields = _REQUEST_LINE.fullmatch(first), _fields(rest)
    if line is None or fields is None:
        return Refused(400)
    method, target = line.groups()
    if b"upgrade" not in fields or not _has_token(fields, b"connection", b"upgrade"):
        return Refused(404)
    if target.partition(b"?")[0] != path.encode():
        return Refused(404)
    key = _only(fields, b"sec-websocket-key")
    if (
        method != b"GET"
        or len(fields.get(b"host", ())) != 1
        or _only(fields, b"upgrade").lower() != b"websocket"
        or _only(fields, b"sec-websocket-version") != b"13"
        or not _is_key(key)
        or b"transfer-encoding" in fields
        or _only(fields, b"content-length") not in (b"", b"0")
    ):
        return Refused(400)
    return key


def accepting_response(key: bytes) -> bytes:
    """Return the response that accepts a request with this key."""
    return (
        b"HTTP/1.1 101 Switching Protocols\r\n"
        b"Upgrade: websocket\r\n"
        b"Connection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + _accept(key) + _END
    )


def refusing_response(refused: Refused) -> bytes:
    """Return the response after which the connection is closed."""
    return b"HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Length: 0\r\n\r\n" % (
        refused.status,
        _REASONS[refused.status],
    )


def is_accepted(head: bytes, key: str) -> bool:
    """Tell whether a response accepts the request with this key, and nothing but it."""
    status, _, rest = head.partition(b"\r\n")
    fields = _fields(rest)
    return (
        fields is not None
        and _STATUS_101.fullmatch(status) is not None
        and _only(fields, b"upgrade").lower() == b"websocket"
        and _has_token(fields, b"connection", b"upgrade")
        and _only(fields, b"sec-websocket-accept") == _accept(key.encode())
        and b"sec-websocket-extensions" not in fields
        and b"sec-websocket-protocol" not in fields
    )


def _fields(lines: bytes) -> Fields | None:
    fields: Fields = {}
    for line in lines.split(b"\r\n") if lines else ():
        field = _FIELD.fullmatch(line)
        if field is None:
            return None
        fields.setdefault(field[1].lower(), []).append(field[2])
    return fields


def _only(fields: Fields, name: bytes) -> bytes:
    """Return the value of a field that stands once, else nothing that any check accepts."""
    values = fields.get(name, [b""])
    return values[0] if len(values) == 1 else b"?"


def _has_token(fields: Fields, name: bytes, token: bytes) -> bool:
    tokens = b",".join(fields.get(name, [])).lower().split(b",")
    return token in [each.strip() for each in tokens]


def _is_key(key: bytes) -> bool:
    try:
        decoded = base64.b64decode(key, validate=True)
    except binascii.Error:
        return False
    return len(decoded) == _KEY_BYTES and base64.b64encode(decoded) == key


def _accept(key: bytes) -> bytes:
    # RFC 6455 4.2.2 fixes this hash; it guards against mistakes, not against attackers.
    return base64.b64encode(hashlib.sha1(key + _ACCEPT_GUID, usedforsecurity=False).digest())
