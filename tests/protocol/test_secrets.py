"""Secrets do not leave by the usual doors."""

import copy
import pickle

import msgspec
import pytest

from protocol.secrets import REDACTED, Secret

TOKEN = "bootstrap_00000000"


@pytest.mark.parametrize("text", [repr(Secret(TOKEN)), str(Secret(TOKEN)), f"{Secret(TOKEN):>30}"])
def test_text_of_a_secret_is_redacted(text: str) -> None:
    assert text == REDACTED


@pytest.mark.parametrize("data", [TOKEN, TOKEN.encode(), bytearray(TOKEN.encode())])
def test_reveal_gives_the_bytes_in_any_given_form(data: bytes | bytearray | str) -> None:
    assert bytes(Secret(data).reveal()) == TOKEN.encode()


def test_secret_keeps_its_own_copy_when_the_source_changes() -> None:
    source = bytearray(b"key")
    secret = Secret(source)

    source[:] = b"xxx"

    assert bytes(secret.reveal()) == b"key"


def test_wipe_overwrites_in_place_and_ends_the_secret() -> None:
    secret = Secret(TOKEN)
    view = secret.reveal()

    secret.wipe()
    secret.wipe()

    assert bytes(view) == bytes(len(TOKEN))
    assert secret.wiped
    with pytest.raises(AssertionError):
        secret.reveal()


def test_view_cannot_change_the_secret() -> None:
    with pytest.raises(TypeError):
        Secret(TOKEN).reveal()[0] = 0


def test_secrets_are_equal_when_their_bytes_are() -> None:
    assert Secret(TOKEN) == Secret(TOKEN.encode())
    assert Secret(TOKEN) != Secret("other")
    assert Secret(TOKEN) != TOKEN


def test_wiped_secret_does_not_equal_one_of_zeros() -> None:
    wiped = Secret("ab")
    wiped.wipe()

    assert wiped != Secret(b"\0\0")


def test_secret_is_not_hashed_copied_pickled_or_encoded() -> None:
    secret = Secret(TOKEN)

    with pytest.raises(TypeError):
        hash(secret)
    for copying in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            copying(secret)
    with pytest.raises(TypeError):
        msgspec.json.encode(secret)
    with pytest.raises(TypeError):
        msgspec.msgpack.encode({"token": secret})
