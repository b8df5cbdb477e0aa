"""Tests of what a broken or hostile controller can do to a link: end it, with a code."""

import msgspec
import pytest

from protocol.envelope import Ping, Revoke
from protocol.errors import ErrorCode
from protocol.ids import LeaseId, RevocationEpoch
from runnerd.io.link import Phase
from tests.runnerd.io.links import Pair
from tests.runnerd.peer import Tamper


def frame(
    opcode: int, payload: bytes, *, fin: int = 0x80, rsv: int = 0, mask: bool = False
) -> bytes:
    """Return a frame as a broken or hostile server might send it."""
    length = len(payload)
    if length < 126:
        size = bytes([length])
    elif length < 65_536:
        size = bytes([126]) + length.to_bytes(2, "big")
    else:
        size = bytes([127]) + length.to_bytes(8, "big")
    if mask:
        size = bytes([size[0] | 0x80]) + size[1:]
        payload = b"\0\0\0\0" + payload
    return bytes([fin | rsv | opcode]) + size + payload


GARBAGE = [
    (b"\0" * 64, ErrorCode.FRAME_MALFORMED),
    (b"HTTP/1.1 400 Bad Request\r\n\r\n" * 8, ErrorCode.FRAME_MALFORMED),
    (frame(1, b"{}", mask=True), ErrorCode.FRAME_MALFORMED),
    (frame(2, b"{}"), ErrorCode.FRAME_MALFORMED),
    (frame(1, b"{}", fin=0), ErrorCode.FRAME_MALFORMED),
    (frame(0, b"{}"), ErrorCode.FRAME_MALFORMED),
    (frame(3, b""), ErrorCode.FRAME_MALFORMED),
    (frame(1, b"{}", rsv=0x40), ErrorCode.FRAME_MALFORMED),
    (frame(9, b"a" * 126), ErrorCode.FRAME_MALFORMED),
    (frame(8, b"\x03\xe8bye"), ErrorCode.CONNECTION_LOST),
    (b"\x81\x7f" + (2**20 + 1).to_bytes(8, "big"), ErrorCode.FRAME_TOO_LARGE),
    (b"\x81\x7f" + (2**63 - 1).to_bytes(8, "big"), ErrorCode.FRAME_TOO_LARGE),
]
HOSTILE_TEXTS = [
    b"",
    b"null",
    b"[]",
    b"{",
    b"{}",
    b"\xff\xfe",
    b"\xef\xbb\xbf{}",
    b'{"a":1,"a":2}',
    b'{"a":NaN}',
    b'{"a":1e999}',
    b'{"a":"\\ud800"}',
    b'{"a":9007199254740993}',
    b"[" * 100_000,
    b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    b"[" + b"0," * 20_000 + b"0]",
    b'{"protocol":"paperclip.runner","version":2,"kind":"ack","payload":{"ackedSourceSeq":1}}',
    b'{"protocol":"paperclip.runner","version":2,"kind":"auth_challenge","payload":null}',
    b'{"protocol":"paperclip.runner","version":9,"kind":"auth_challenge","payload":{}}',
    b'{"schema":"paperclip.runner.secure-frame.v1","counter":0,"ciphertext":""}',
    b'{"schema":"paperclip.runner.secure-frame.v1","counter":1,"ciphertext":"zz"}',
    b'{"schema":"paperclip.runner.secure-frame.v1","counter":"1","ciphertext":[]}',
    b'{"schema":"paperclip.runner.secure-frame.v1","counter":1,"ciphertext":"' + b"00" * 64 + b'"}',
]


@pytest.mark.parametrize(("data", "code"), GARBAGE)
def test_garbage_ends_an_open_link_with_a_code(data: bytes, code: ErrorCode) -> None:
    pair = Pair().welcomed()

    pair.feed_raw(data)

    assert pair.link.failure is code
    assert pair.link.outgoing() == []
    assert pair.messages() == []


@pytest.mark.parametrize(("data", "code"), GARBAGE)
def test_garbage_instead_of_a_challenge_ends_the_link_and_spends_nothing(
    data: bytes, code: ErrorCode
) -> None:
    pair = Pair(tamper=Tamper(hello=lambda hello: False))
    while pair.link.phase is not Phase.CHALLENGE:
        pair.peer.feed(b"".join(pair.link.outgoing()))
        pair.feed_raw(pair.peer.outgoing())

    pair.feed_raw(data)

    assert pair.link.failure is code
    assert not pair.link.credential_spent


@pytest.mark.parametrize(
    "answer",
    [
        b"\0" * 100,
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 404 Not Found\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n",
        b"x" * 20_000,
        b"HTTP/1.1 101 Switching Protocols\r\n" + b"A: b\r\n" * 5_000,
        frame(1, b"{}"),
    ],
)
def test_bad_answer_to_the_upgrade_ends_the_link(answer: bytes) -> None:
    pair = Pair()
    pair.link.outgoing()

    pair.feed_raw(answer)
    if pair.link.failure is None:
        pair.link.end()

    assert pair.link.failure in (ErrorCode.UPGRADE_REFUSED, ErrorCode.CONNECTION_LOST)
    assert not pair.link.credential_spent


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_hostile_text_ends_an_open_link_with_a_code(text: bytes) -> None:
    pair = Pair().welcomed()

    pair.feed_raw(frame(1, text))

    assert pair.link.failure is not None
    assert pair.messages() == []


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_hostile_text_instead_of_a_challenge_gets_no_answer(text: bytes) -> None:
    pair = Pair(tamper=Tamper(challenge=lambda honest: text))

    pair.exchange()

    assert pair.link.failure is not None
    assert len(pair.peer.texts) == 1
    assert not pair.link.credential_spent


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_hostile_text_instead_of_a_welcome_may_have_spent_the_ticket(text: bytes) -> None:
    pair = Pair(tamper=Tamper(sealed=lambda honest: text))

    pair.exchange()

    assert pair.link.failure is not None
    assert pair.link.credential_spent
    assert pair.facts == []


@pytest.mark.parametrize("plaintext", [text for text in HOSTILE_TEXTS if len(text) < 500_000])
def test_hostile_plaintext_under_good_keys_ends_the_link(plaintext: bytes) -> None:
    pair = Pair().welcomed()

    pair.peer.say_plaintext(plaintext)
    pair.exchange()

    assert pair.link.failure is not None
    assert pair.messages() == []


def test_frame_that_comes_twice_ends_the_link() -> None:
    pair = Pair().welcomed()
    pair.peer.say(Ping())
    sealed = pair.peer.outgoing()

    pair.feed_raw(sealed + sealed)

    assert pair.link.failure is ErrorCode.FRAME_COUNTER_MISMATCH
    assert pair.messages() == [Ping()]


def test_frames_in_another_order_end_the_link() -> None:
    pair = Pair().welcomed()
    pair.peer.say(Ping())
    first = pair.peer.outgoing()
    pair.peer.say(Revoke(RevocationEpoch(2)))
    second = pair.peer.outgoing()

    pair.feed_raw(second + first)

    assert pair.link.failure is ErrorCode.FRAME_COUNTER_MISMATCH
    assert pair.messages() == []


def test_frame_with_one_other_byte_ends_the_link() -> None:
    def changed(sealed: bytes) -> bytes:
        middle = sealed.index(b'"ciphertext":"') + 20
        return (
            sealed[:middle]
            + (b"1" if sealed[middle : middle + 1] == b"0" else b"0")
            + sealed[middle + 1 :]
        )

    pair = Pair().welcomed()
    pair.peer.tamper = Tamper(sealed=changed)

    pair.peer.say(Ping())
    pair.exchange()

    assert pair.link.failure is ErrorCode.FRAME_NOT_AUTHENTIC


def test_message_for_another_connection_ends_the_link() -> None:
    pair = Pair().welcomed()
    binding = pair.peer.binding
    assert binding is not None
    pair.peer.binding = msgspec.structs.replace(binding, connection_lease_id=LeaseId("lease_2"))

    pair.peer.say(Ping())
    pair.exchange()

    assert pair.link.failure is ErrorCode.IDENTITY_MISMATCH


def test_text_over_the_chosen_bound_ends_the_link() -> None:
    pair = Pair(max_frame_bytes=1_024)
    while pair.link.failure is None and pair.peer.binding is None:
        pair.peer.feed(b"".join(pair.link.outgoing()))
        pair.feed_raw(pair.peer.outgoing())
    pair.exchange()

    assert pair.link.failure is ErrorCode.FRAME_TOO_LARGE
