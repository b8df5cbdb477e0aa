"""A frame that is no message of the handshake gives a code, whatever it is."""

import contextlib
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ErrorCode, PrpError
from protocol.handshake import client_answer, client_hello, read_hello, server_verify
from protocol.limits import HANDSHAKE_FRAME_BYTES_MAX
from tests.protocol.handshake_world import (
    KEY,
    LEASE,
    NOW,
    Change,
    challenge_for,
    changed,
    code_of,
)


def readers() -> dict[str, tuple[bytes, Callable[[bytes], object]]]:
    challenge = challenge_for(LEASE)
    answer = client_answer(LEASE, KEY, challenge.frame, NOW)
    return {
        "hello": (client_hello(LEASE), read_hello),
        "challenge": (challenge.frame, lambda frame: client_answer(LEASE, KEY, frame, NOW)),
        "response": (answer.response, lambda frame: server_verify(challenge, KEY, frame)),
    }


MISSHAPEN: Final[tuple[tuple[Change, ErrorCode], ...]] = (
    (lambda m: m.update(protocol="other"), ErrorCode.MESSAGE_INVALID),
    (lambda m: m.pop("protocol"), ErrorCode.MESSAGE_INVALID),
    (lambda m: m.update(kind="welcome"), ErrorCode.MESSAGE_UNEXPECTED),
    (lambda m: m.pop("kind"), ErrorCode.MESSAGE_UNEXPECTED),
    (lambda m: m.update(version=True), ErrorCode.MESSAGE_INVALID),
    (lambda m: m.update(version="2"), ErrorCode.MESSAGE_INVALID),
    (lambda m: m.pop("version"), ErrorCode.MESSAGE_INVALID),
    (lambda m: m.pop("payload"), ErrorCode.MESSAGE_INVALID),
    (lambda m: m.update(payload=[]), ErrorCode.MESSAGE_INVALID),
    (lambda m: m["payload"].pop("credentialId"), ErrorCode.MESSAGE_INVALID),
    (lambda m: m["payload"].update(clientNonce=None), ErrorCode.MESSAGE_INVALID),
)


@pytest.mark.parametrize("name", ["hello", "challenge", "response"])
@pytest.mark.parametrize(("change", "code"), MISSHAPEN)
def test_frame_of_the_wrong_shape_is_refused_by_code(
    name: str, change: Change, code: ErrorCode
) -> None:
    frame, read = readers()[name]

    assert code_of(lambda: read(changed(frame, change))) == code


@pytest.mark.parametrize("name", ["hello", "challenge", "response"])
def test_frame_of_a_stranger_is_bounded(name: str) -> None:
    frame, read = readers()[name]
    padding = HANDSHAKE_FRAME_BYTES_MAX - len(frame)

    read(frame + b" " * padding)
    assert code_of(lambda: read(frame + b" " * (padding + 1))) == ErrorCode.MESSAGE_TOO_LARGE


READERS: Final = readers()


@pytest.mark.parametrize("name", READERS)
@given(
    junk=st.binary(max_size=30)
    | st.sampled_from([b"[]", b"null", b'"x"', b'{"kind":"auth_hello","kind":"auth_hello"}']),
    place=st.integers(0, 900),
)
def test_damaged_frame_gives_a_code_and_no_other_error(name: str, junk: bytes, place: int) -> None:
    frame, read = READERS[name]

    for damaged in (junk, frame[:place] + junk + frame[place:], frame[:place]):
        with contextlib.suppress(PrpError):
            read(damaged)
