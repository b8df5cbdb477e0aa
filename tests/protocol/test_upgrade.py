"""The upgrade is accepted or refused as upstream does it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.http11 import Request
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from protocol.limits import UPGRADE_HEADER_BYTES_MAX
from protocol.upgrade import (
    Head,
    Refused,
    accepting_response,
    is_accepted,
    judge_request,
    refusing_response,
    upgrade_request,
)

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
END = b"\r\n\r\n"
PATH = "/durableRecovery/connect"
REQUEST = upgrade_request("127.0.0.1:43127", PATH, KEY).removesuffix(END)
RESPONSE = accepting_response(KEY.encode()).removesuffix(END)


def test_request_has_the_headers_of_upstream_and_no_others() -> None:
    assert REQUEST.split(b"\r\n") == [
        b"GET /durableRecovery/connect HTTP/1.1",
        b"Host: 127.0.0.1:43127",
        b"Connection: Upgrade",
        b"Upgrade: websocket",
        b"Sec-WebSocket-Version: 13",
        b"Sec-WebSocket-Key: " + KEY.encode(),
    ]


def test_response_has_three_headers_and_the_accept_value_of_rfc_6455() -> None:
    assert RESPONSE.split(b"\r\n") == [
        b"HTTP/1.1 101 Switching Protocols",
        b"Upgrade: websocket",
        b"Connection: Upgrade",
        b"Sec-WebSocket-Accept: " + ACCEPT,
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"", b""),
        (b"connect HTTP", b"connect?token=x&y HTTP"),
        (b"Upgrade: websocket", b"UPGRADE:\tWebSocket "),
        (b"Connection: Upgrade", b"Connection: keep-alive, upgrade"),
        (b"Connection: Upgrade", b"Connection: keep-alive\r\nConnection: Upgrade"),
        (b"Host: ", b"Sec-WebSocket-Extensions: permessage-deflate\r\nHost: "),
        (b"Host: ", b"Sec-WebSocket-Protocol: chat\r\nContent-Length: 0\r\nHost: "),
        (b"Host: ", b"Cookie: a=\xff\r\nHost: "),
    ],
)
def test_request_is_accepted_in_any_spelling(old: bytes, new: bytes) -> None:
    assert judge_request(REQUEST.replace(old, new), PATH) == KEY.encode()


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        (b"connect HTTP", b"connect/ HTTP", 404),
        (b"connect HTTP", b"connect#x HTTP", 404),
        (b"GET /", b"GET http://127.0.0.1/", 404),
        (b"GET /", b"GET ?/", 404),
        (b"Upgrade: websocket\r\n", b"", 404),
        (b"Connection: Upgrade\r\n", b"", 404),
        (b"Connection: Upgrade", b"Connection: close", 404),
        (b"GET", b"POST", 400),
        (b"GET", b"get", 400),
        (b"HTTP/1.1", b"HTTP/1.0", 400),
        (b" HTTP/1.1", b"", 400),
        (b"connect HTTP", b"connect x HTTP", 400),
        (b"websocket", b"h2c", 400),
        (b"websocket", b"websocket, h2c", 400),
        (b"Version: 13", b"Version: 8", 400),
        (b"Version: 13", b"Version: 13, 8", 400),
        (b"Sec-WebSocket-Version: 13\r\n", b"", 400),
        (KEY.encode(), b"", 400),
        (KEY.encode(), b"dGhlIHNhbXBsZSBub25jZR==", 400),
        (KEY.encode(), b"dGhlIHNhbXBsZSBub25jZQ", 400),
        (KEY.encode(), b"dGhlIHNhbXBsZSBub25jZ===", 400),
        (KEY.encode(), b"AAAA", 400),
        (KEY.encode(), b"dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Key: AAAA", 400),
        (b"Host: 127.0.0.1:43127\r\n", b"", 400),
        (b"Host: ", b"Host: other\r\nHost: ", 400),
        (b"Host: ", b"Content-Length: 5\r\nHost: ", 400),
        (b"Host: ", b"Transfer-Encoding: chunked\r\nHost: ", 400),
        (b"Host: ", b" folded\r\nHost: ", 400),
        (b"Host: ", b"Bad Name: x\r\nHost: ", 400),
        (b"Host: ", b"X: \x00\r\nHost: ", 400),
        (b"Host: ", b"X: a\nb\r\nHost: ", 400),
    ],
)
def test_request_is_refused_with_the_status_of_upstream(
    old: bytes, new: bytes, status: int
) -> None:
    request = REQUEST.replace(old, new, 1)

    assert request != REQUEST
    assert judge_request(request, PATH) == Refused(status)
    assert refusing_response(Refused(status)).startswith(b"HTTP/1.1 %d " % status)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"101", b"200"),
        (b"HTTP/1.1 101 ", b"HTTP/1.0 101 "),
        (b"HTTP/1.1 101", b"101"),
        (b"Upgrade: websocket\r\n", b""),
        (b"Connection: Upgrade\r\n", b""),
        (ACCEPT, ACCEPT.lower()),
        (b"\r\nSec-WebSocket-Accept: " + ACCEPT, b""),
        (b"Upgrade: w", b"Sec-WebSocket-Extensions: permessage-deflate\r\nUpgrade: w"),
        (b"Upgrade: w", b"Sec-WebSocket-Protocol: chat\r\nUpgrade: w"),
        (b"Upgrade: w", b"Sec-WebSocket-Accept: x\r\nUpgrade: w"),
        (b"Upgrade: w", b"\xff\r\nUpgrade: w"),
    ],
)
def test_response_that_accepts_something_else_is_not_believed(old: bytes, new: bytes) -> None:
    response = RESPONSE.replace(old, new, 1)

    assert is_accepted(RESPONSE, KEY)
    assert response != RESPONSE
    assert not is_accepted(response, KEY)


def test_response_without_a_reason_and_with_other_headers_is_believed() -> None:
    response = RESPONSE.replace(b" Switching Protocols", b"") + b"\r\nServer: x"

    assert is_accepted(response, KEY)


def test_library_server_accepts_the_request_and_its_response_is_believed() -> None:
    server = ServerProtocol()
    server.receive_data(REQUEST + END)
    (request,) = server.events_received()
    assert isinstance(request, Request)

    server.send_response(server.accept(request))

    head, _, behind = b"".join(server.data_to_send()).partition(END)
    assert (is_accepted(head, KEY), behind) == (True, b"")


def test_library_client_is_accepted_and_believes_the_response() -> None:
    client = ClientProtocol(parse_uri(f"ws://127.0.0.1:43127{PATH}"))
    client.send_request(client.connect())
    verdict = judge_request(b"".join(client.data_to_send()).removesuffix(END), PATH)
    assert isinstance(verdict, bytes)

    client.receive_data(accepting_response(verdict))

    assert client.handshake_exc is None
    assert client.state is OPEN


@pytest.mark.parametrize("cut", [1, 3, 4096])
def test_head_is_bounded_exactly(cut: int) -> None:
    fitting = b"x" * (UPGRADE_HEADER_BYTES_MAX - 4) + b"\r\n\r\n"

    def fed(data: bytes) -> tuple[bytes, bytes] | None:
        head = Head()
        for start in range(0, len(data), cut):
            if (complete := head.feed(data[start : start + cut])) is not None:
                return complete
        return None

    assert fed(fitting) == (fitting[:-4], b"")
    for data in (b"x" + fitting, b"x" * (UPGRADE_HEADER_BYTES_MAX + 1)):
        with pytest.raises(OverflowError):
            fed(data)


@given(st.lists(st.sampled_from([b"a", b"\r", b"\n", b"\r\n", b"\r\n\r\n"]), max_size=12))
def test_head_ends_at_the_first_blank_line_however_it_is_cut(pieces: list[bytes]) -> None:
    text = b"".join(pieces)
    head, completed = Head(), None
    fed = 0

    for piece in pieces:
        fed += len(piece)
        if (completed := head.feed(piece)) is not None:
            break

    end = text.find(b"\r\n\r\n")
    assert (completed is None) == (end < 0)
    if completed is not None:
        assert completed == (text[:end], text[end + 4 : fed])


@given(st.binary(max_size=80), st.integers(0, 200))
def test_any_head_gives_a_verdict(junk: bytes, place: int) -> None:
    for head in (junk, REQUEST[:place] + junk + REQUEST[place:]):
        assert isinstance(judge_request(head, PATH), bytes | Refused)
        assert is_accepted(head, KEY) is False
