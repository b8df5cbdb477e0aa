"""Texts pass whole, a broken rule ends the connection with a code, and nothing follows."""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from protocol.carrier import (
    CarrierEvent,
    ClientCarrier,
    Failed,
    Opened,
    PongReceived,
    ServerCarrier,
    TextReceived,
)
from protocol.errors import ErrorCode
from protocol.limits import FRAME_BYTES_MAX, UPGRADE_HEADER_BYTES_MAX

PATH: Final = "/durableRecovery/connect"
Carrier = ClientCarrier | ServerCarrier
LOST: Final = Failed(ErrorCode.CONNECTION_LOST)
MALFORMED: Final = Failed(ErrorCode.FRAME_MALFORMED)
REFUSED: Final = Failed(ErrorCode.UPGRADE_REFUSED)


def new_client() -> ClientCarrier:
    return ClientCarrier("127.0.0.1", 43127, PATH, secure=False)


def drain(carrier: Carrier) -> bytes:
    waiting = carrier.outgoing()
    assert all(waiting), "an empty piece would mean the end of the stream"
    return b"".join(waiting)


def connected() -> tuple[ClientCarrier, ServerCarrier]:
    client, server = new_client(), ServerCarrier(PATH)
    assert server.feed(drain(client)) == [Opened()]
    assert client.feed(drain(server)) == [Opened()]
    return client, server


def ends() -> Iterator[tuple[Carrier, bool]]:
    """Both ends, each with whether frames to it must be masked."""
    client, server = connected()
    yield server, True
    yield client, False


def raw_frame(opcode: int, data: bytes, mask: bool, *, first_bits: int = 0b1000_0000) -> bytes:
    frame = bytearray(Frame(Opcode.BINARY, data).serialize(mask=mask))
    frame[0] = first_bits | opcode
    return bytes(frame)


def text(data: bytes, mask: bool) -> bytes:
    return raw_frame(Opcode.TEXT, data, mask)


# --- What passes ------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, FRAME_BYTES_MAX])
def test_text_of_any_allowed_size_passes_in_both_directions(size: int) -> None:
    client, server = connected()
    message = b"x" * size

    client.send_text(message)
    server.send_text(message)

    assert server.feed(drain(client)) == [TextReceived(message)]
    assert client.feed(drain(server)) == [TextReceived(message)]


def test_texts_keep_their_order_when_they_arrive_together() -> None:
    client, server = connected()
    messages = [b"[%d]" % number for number in range(5)]

    for message in messages:
        client.send_text(message)

    assert server.feed(drain(client)) == [TextReceived(message) for message in messages]


def test_frame_behind_the_response_is_received_with_it() -> None:
    client, server = new_client(), ServerCarrier(PATH)
    server.feed(drain(client))
    server.send_text(b"{}")

    assert client.feed(drain(server)) == [Opened(), TextReceived(b"{}")]


def test_everything_passes_when_it_arrives_byte_by_byte() -> None:
    client, server = new_client(), ServerCarrier(PATH)
    events: list[CarrierEvent] = []

    for carrier, peer in ((server, client), (client, server), (server, client)):
        if carrier is server and client.is_open:
            client.send_text(b"hello")
        for byte in drain(peer):
            events += carrier.feed(bytes([byte]))

    assert events == [Opened(), Opened(), TextReceived(b"hello")]


def test_text_is_not_judged_as_utf8_here() -> None:
    for end, mask in ends():
        assert end.feed(text(b"\xff", mask)) == [TextReceived(b"\xff")]


@pytest.mark.parametrize("payload", [b"", b"ping", b"p" * 125])
def test_ping_is_answered_with_the_same_payload(payload: bytes) -> None:
    for end, mask in ends():
        assert end.feed(raw_frame(Opcode.PING, payload, mask)) == []
        answer = drain(end)
        assert answer[0] == 0b1000_0000 | Opcode.PONG
        assert answer[1] & 0b0111_1111 == len(payload)


def test_pong_is_reported() -> None:
    for end, mask in ends():
        assert end.feed(raw_frame(Opcode.PONG, b"x", mask)) == [PongReceived()]


def test_client_masks_and_server_does_not() -> None:
    client, server = connected()

    client.send_text(b"secret text")
    server.send_text(b"secret text")

    assert b"secret text" not in drain(client)
    assert b"secret text" in drain(server)


@pytest.mark.parametrize(
    ("host", "port", "secure", "authority"),
    [
        ("127.0.0.1", 43127, False, b"127.0.0.1:43127"),
        ("::1", 43127, False, b"[::1]:43127"),
        ("controller.example", 443, True, b"controller.example"),
        ("127.0.0.1", 80, False, b"127.0.0.1"),
        ("127.0.0.1", 443, False, b"127.0.0.1:443"),
    ],
)
def test_request_names_host_and_port(host: str, port: int, secure: bool, authority: bytes) -> None:
    request = drain(ClientCarrier(host, port, PATH, secure))

    assert b"\r\nHost: " + authority + b"\r\n" in request


def test_each_request_has_a_key_of_its_own() -> None:
    assert drain(new_client()) != drain(new_client())


# --- What ends the connection -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("opcode", "data", "first_bits"),
    [
        (Opcode.BINARY, b"{}", 0b1000_0000),
        (Opcode.CONT, b"{}", 0b1000_0000),
        (Opcode.TEXT, b"{}", 0b0000_0000),
        (Opcode.TEXT, b"{}", 0b1100_0000),
        (Opcode.TEXT, b"{}", 0b1010_0000),
        (Opcode.TEXT, b"{}", 0b1001_0000),
        (3, b"", 0b1000_0000),
        (11, b"", 0b1000_0000),
        (Opcode.PING, b"p" * 126, 0b1000_0000),
        (Opcode.PING, b"", 0b0000_0000),
        (Opcode.CLOSE, b"x", 0b1000_0000),
    ],
)
def test_frame_that_breaks_a_rule_ends_the_connection(
    opcode: int, data: bytes, first_bits: int
) -> None:
    for end, mask in ends():
        frame = raw_frame(opcode, data, mask, first_bits=first_bits)

        assert end.feed(text(b"1", mask) + frame + text(b"2", mask)) == [
            TextReceived(b"1"),
            MALFORMED,
        ]
        assert_dead(end, mask)


def test_frame_with_the_masking_of_the_other_end_ends_the_connection() -> None:
    for end, mask in ends():
        assert end.feed(text(b"{}", not mask)) == [MALFORMED]
        assert_dead(end, mask)


@pytest.mark.parametrize("payload", [b"", b"\x03\xe8", b"\x03\xf0policy"])
def test_close_frame_is_a_lost_connection_without_a_reply(payload: bytes) -> None:
    for end, mask in ends():
        assert end.feed(raw_frame(Opcode.CLOSE, payload, mask)) == [LOST]
        assert_dead(end, mask)


@pytest.mark.parametrize("length", [FRAME_BYTES_MAX + 1, 2**63])
def test_frame_is_too_large_by_its_declared_length(length: int) -> None:
    for end, mask in ends():
        declared = bytes([0b1000_0001, 127 | mask << 7]) + length.to_bytes(8, "big")

        assert end.feed(declared) == [Failed(ErrorCode.FRAME_TOO_LARGE)]
        assert_dead(end, mask)


def test_bound_of_a_frame_is_the_one_given() -> None:
    client = ClientCarrier("127.0.0.1", 1, PATH, secure=False, max_frame_bytes=1024)
    server = ServerCarrier(PATH, 1024)
    server.feed(drain(client))
    client.feed(drain(server))

    assert server.feed(text(b"x" * 1024, True)) == [TextReceived(b"x" * 1024)]
    assert client.feed(text(b"x" * 1025, False)) == [Failed(ErrorCode.FRAME_TOO_LARGE)]


def test_end_of_the_stream_is_a_lost_connection_once() -> None:
    for end, mask in ends():
        end.feed(text(b"cut", mask)[:-1])

        assert end.eof() == [LOST]
        assert end.eof() == []
        assert_dead(end, mask)


def test_end_of_the_stream_before_the_upgrade_is_a_lost_connection() -> None:
    for carrier in (new_client(), ServerCarrier(PATH)):
        assert carrier.eof() == [LOST]


def assert_dead(end: Carrier, mask: bool) -> None:
    """Nothing is received, sent or answered any more."""
    end.send_text(b"{}")

    assert not end.is_open
    assert end.feed(text(b"{}", mask)) == []
    assert end.eof() == []
    assert drain(end) == b""


# --- The upgrade ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (
            b"GET /other HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            404,
        ),
        (b"GET /durableRecovery/connect HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"\x16\x03\x01\r\n\r\n", 400),
        (b"x" * (UPGRADE_HEADER_BYTES_MAX + 1), 431),
    ],
)
def test_server_answers_a_refused_request_and_nothing_more(
    request_bytes: bytes, status: int
) -> None:
    server = ServerCarrier(PATH)

    assert server.feed(request_bytes) == [REFUSED]
    assert drain(server).startswith(b"HTTP/1.1 %d " % status)
    assert_dead(server, mask=True)


def test_server_refuses_frames_behind_the_request() -> None:
    client, server = new_client(), ServerCarrier(PATH)

    assert server.feed(drain(client) + raw_frame(Opcode.PING, b"", True)) == [REFUSED]
    assert drain(server).startswith(b"HTTP/1.1 400 ")
    assert_dead(server, mask=True)


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        b"x" * (UPGRADE_HEADER_BYTES_MAX + 1),
        b"\r\n\r\n",
    ],
)
def test_client_says_nothing_to_a_server_that_does_not_accept(response: bytes) -> None:
    client = new_client()
    drain(client)

    assert client.feed(response) == [REFUSED]
    assert_dead(client, mask=False)


def test_client_does_not_believe_the_answer_to_another_request() -> None:
    client, other, server = new_client(), new_client(), ServerCarrier(PATH)
    drain(client)
    server.feed(drain(other))

    assert client.feed(drain(server)) == [REFUSED]


def test_text_before_the_upgrade_is_not_sent() -> None:
    server = ServerCarrier(PATH)

    server.send_text(b"{}")

    assert not server.is_open
    assert drain(server) == b""


@pytest.mark.process
def test_environment_of_the_library_changes_no_limit() -> None:
    script = (
        "from protocol.carrier import *\n"
        "client, server = ClientCarrier('127.0.0.1', 1, '/p', False), ServerCarrier('/p')\n"
        "assert server.feed(b''.join(client.outgoing())) == [Opened()]\n"
        "assert client.feed(b''.join(server.outgoing())) == [Opened()]\n"
        "client.send_text(b'x' * 2**20)\n"
        "assert server.feed(b''.join(client.outgoing())) == [TextReceived(b'x' * 2**20)]\n"
    )
    tight = {
        "WEBSOCKETS_MAX_LINE_LENGTH": "1",
        "WEBSOCKETS_MAX_NUM_HEADERS": "1",
        "WEBSOCKETS_MAX_BODY_SIZE": "1",
    }

    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | tight,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")


# --- Anything at all --------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=60), max_size=6))
def test_any_bytes_give_events_and_at_most_one_failure_at_the_end(chunks: list[bytes]) -> None:
    for carrier in (new_client(), ServerCarrier(PATH), *(end for end, _ in ends())):
        events = [event for chunk in chunks for event in carrier.feed(chunk)]

        failures = [event for event in events if isinstance(event, Failed)]
        assert failures in ([], events[-1:])
        assert carrier.eof() == ([] if failures else [LOST])


frames = st.tuples(
    st.sampled_from([Opcode.TEXT, Opcode.TEXT, Opcode.PING, Opcode.PONG, Opcode.BINARY, 7]),
    st.binary(max_size=130),
    st.sampled_from([0b1000_0000] * 6 + [0, 0b1100_0000]),
    st.sampled_from([True] * 8 + [False]),
)


@given(st.lists(frames, max_size=6), st.integers(1, 40))
def test_events_do_not_depend_on_how_the_bytes_are_cut(
    sent: list[tuple[int, bytes, int, bool]], cut: int
) -> None:
    stream = b"".join(
        raw_frame(opcode, data, mask, first_bits=bits) for opcode, data, bits, mask in sent
    )
    (_, whole), (_, pieces) = connected(), connected()

    together = whole.feed(stream)
    apart = [
        event
        for start in range(0, len(stream), cut)
        for event in pieces.feed(stream[start : start + cut])
    ]

    assert together == apart
    assert drain(whole) == drain(pieces)
