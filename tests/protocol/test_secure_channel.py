"""Only the next genuine frame opens, and nothing else moves a counter."""

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ErrorCode, PrpError
from protocol.handshake import SessionKeys
from protocol.limits import FRAME_BYTES_MAX, FRAMES_PER_KEY_MAX, SEALED_PLAINTEXT_BYTES_MAX
from protocol.secrets import Secret
from protocol.secure_channel import FRAME_SCHEMA, Role, SecureChannel

PLAINTEXT: Final = '{"text":"é😀"}'.encode()


def channels(frames_max: int = FRAMES_PER_KEY_MAX) -> tuple[SecureChannel, SecureChannel]:
    def keys() -> SessionKeys:
        return SessionKeys("sha256:" + "ab" * 32, Secret(bytes(32)), Secret(bytes(range(32))))

    client = SecureChannel(keys(), Role.CLIENT, frames_max=frames_max)
    return client, SecureChannel(keys(), Role.CORE, frames_max=frames_max)


def refusal_of(channel: SecureChannel, frame: bytes) -> ErrorCode:
    counters = (channel.frames_sealed, channel.frames_opened)
    with pytest.raises(PrpError) as refusal:
        channel.open(frame)
    assert (channel.frames_sealed, channel.frames_opened) == counters
    return refusal.value.code


def respelled(frame: bytes, **members: Any) -> bytes:
    return json.dumps(json.loads(frame) | members, indent=1, sort_keys=True).encode()


def test_both_directions_open_what_the_other_end_seals() -> None:
    client, core = channels()

    for number in range(3):
        assert core.open(client.seal(PLAINTEXT)) == PLAINTEXT
        assert client.open(core.seal(b"{}")) == b"{}"
        assert client.frames_sealed == core.frames_opened == number + 1


def test_frame_opens_in_any_spelling() -> None:
    client, core = channels()

    frame = respelled(client.seal(PLAINTEXT), unknown=[1.5])

    assert core.open(frame) == PLAINTEXT


def test_replayed_skipped_and_reordered_frames_are_refused() -> None:
    client, core = channels()
    first, second, third = (client.seal(b"[%d]" % number) for number in range(3))

    assert refusal_of(core, second) == ErrorCode.FRAME_COUNTER_MISMATCH
    assert core.open(first) == b"[0]"
    assert refusal_of(core, first) == ErrorCode.FRAME_COUNTER_MISMATCH
    assert refusal_of(core, third) == ErrorCode.FRAME_COUNTER_MISMATCH
    assert core.open(second) == b"[1]"


def test_frame_that_claims_the_expected_counter_is_refused_by_its_tag() -> None:
    client, core = channels()
    client.seal(PLAINTEXT)

    lying = respelled(client.seal(PLAINTEXT), counter=0)

    assert refusal_of(core, lying) == ErrorCode.FRAME_NOT_AUTHENTIC


def test_frame_is_refused_by_the_end_that_sealed_it() -> None:
    client, _ = channels()

    assert refusal_of(client, client.seal(PLAINTEXT)) == ErrorCode.FRAME_NOT_AUTHENTIC


def test_frame_of_another_session_is_refused() -> None:
    client, _ = channels()
    other = SessionKeys("sha256:" + "cd" * 32, Secret(bytes(32)), Secret(bytes(range(32))))

    code = refusal_of(SecureChannel(other, Role.CORE), client.seal(PLAINTEXT))

    assert code == ErrorCode.FRAME_NOT_AUTHENTIC


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"schema": "paperclip.runner.secure-frame.v2"}, ErrorCode.FRAME_MALFORMED),
        ({"schema": None}, ErrorCode.FRAME_MALFORMED),
        ({"counter": "0"}, ErrorCode.FRAME_MALFORMED),
        ({"counter": False}, ErrorCode.FRAME_MALFORMED),
        ({"counter": 0.0}, ErrorCode.FRAME_MALFORMED),
        ({"counter": -1}, ErrorCode.FRAME_COUNTER_MISMATCH),
        ({"counter": 2**53}, ErrorCode.MESSAGE_INVALID),
        ({"ciphertext": None}, ErrorCode.FRAME_MALFORMED),
        ({"ciphertext": ""}, ErrorCode.FRAME_MALFORMED),
        ({"ciphertext": "ab" * 15}, ErrorCode.FRAME_MALFORMED),
        ({"ciphertext": "ab" * 16 + "a"}, ErrorCode.FRAME_MALFORMED),
        ({"ciphertext": "zz" * 16}, ErrorCode.FRAME_MALFORMED),
        ({"ciphertext": "é" * 32}, ErrorCode.FRAME_MALFORMED),
        ({"ciphertext": " " + "ab" * 16}, ErrorCode.FRAME_MALFORMED),
        ({"ciphertext": "ab" * 16}, ErrorCode.FRAME_NOT_AUTHENTIC),
    ],
)
def test_member_of_the_wrong_kind_is_refused(members: dict[str, Any], code: ErrorCode) -> None:
    client, core = channels()

    assert refusal_of(core, respelled(client.seal(PLAINTEXT), **members)) == code


def test_upper_case_ciphertext_is_refused() -> None:
    client, core = channels()
    frame = json.loads(client.seal(PLAINTEXT))

    shouted = respelled(json.dumps(frame).encode(), ciphertext=frame["ciphertext"].upper())

    assert refusal_of(core, shouted) == ErrorCode.FRAME_MALFORMED


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"", ErrorCode.MESSAGE_NOT_JSON),
        (b"\xff", ErrorCode.MESSAGE_NOT_JSON),
        (b"[]", ErrorCode.FRAME_MALFORMED),
        (b'{"protocol":"paperclip.runner","kind":"ack"}', ErrorCode.FRAME_MALFORMED),
        (b'{"counter":0,"counter":0}', ErrorCode.MESSAGE_INVALID),
    ],
)
def test_text_that_is_no_secure_frame_is_refused(frame: bytes, code: ErrorCode) -> None:
    _, core = channels()

    assert refusal_of(core, frame) == code


@given(st.data())
def test_frame_with_any_one_bit_flipped_is_refused(data: st.DataObject) -> None:
    client, core = channels()
    for _ in range(data.draw(st.sampled_from([0, 1, 10]))):
        core.open(client.seal(b"{}"))
    frame = bytearray(client.seal(PLAINTEXT))
    bit = data.draw(st.integers(0, len(frame) * 8 - 1))

    frame[bit // 8] ^= 1 << bit % 8

    refusal_of(core, bytes(frame))
    frame[bit // 8] ^= 1 << bit % 8
    assert core.open(bytes(frame)) == PLAINTEXT


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_any_bytes_are_refused_by_code(junk: bytes, more: bytes) -> None:
    _, core = channels()
    head = b'{"schema":"%s","counter":0,"ciphertext":"' % FRAME_SCHEMA.encode()

    refusal_of(core, junk)
    refusal_of(core, head + junk + b'"}')
    refusal_of(core, head + more.hex().encode() + b'"}')


def test_largest_plaintext_fits_a_frame_and_one_byte_more_is_refused() -> None:
    client, core = channels()
    largest = b'"' + b"x" * (SEALED_PLAINTEXT_BYTES_MAX - 2) + b'"'

    frame = client.seal(largest)

    assert len(frame) <= FRAME_BYTES_MAX
    assert core.open(frame) == largest
    with pytest.raises(PrpError) as refusal:
        client.seal(largest + b" ")
    assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert client.frames_sealed == 1


def test_channel_is_exhausted_when_a_key_has_served_its_number_of_frames() -> None:
    client, core = channels(frames_max=2)
    for _ in range(2):
        assert not client.is_exhausted
        core.open(client.seal(b"{}"))

    assert client.is_exhausted
    assert core.is_exhausted
    for action in (client.seal, core.open):
        with pytest.raises(PrpError) as refusal:
            action(b"{}")
        assert refusal.value.code == ErrorCode.FRAMES_EXHAUSTED


def test_number_of_frames_per_key_is_what_the_ruling_allows() -> None:
    assert FRAMES_PER_KEY_MAX <= 2**24


def test_wiped_channel_holds_no_key() -> None:
    keys = SessionKeys("sha256:" + "ab" * 32, Secret(bytes(32)), Secret(bytes(32)))
    channel = SecureChannel(keys, Role.CLIENT)

    channel.wipe()

    assert keys.core_to_client.wiped
    assert keys.client_to_core.wiped
    with pytest.raises(AssertionError):
        channel.seal(b"{}")
