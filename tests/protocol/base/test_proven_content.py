"""Bytes at rest prove themselves (R24, faults S14, V04)."""

import json

import pytest

from protocol.base.proven_content import disclose, enclose
from protocol.errors import ErrorCode, PrpError

SCHEMA = "test.state.v2"
CONTENT = '{"text":"\u00e9","list":[1,2]}'.encode()
FILE = enclose(SCHEMA, CONTENT)
DAMAGED = {
    ErrorCode.STATE_CORRUPT,
    ErrorCode.STATE_FOREIGN,
    ErrorCode.STATE_VERSION_UNSUPPORTED,
}


def refusal(data: bytes) -> ErrorCode:
    with pytest.raises(PrpError) as caught:
        disclose(SCHEMA, data)
    return caught.value.code


def test_content_comes_back_exactly() -> None:
    assert disclose(SCHEMA, FILE) == CONTENT


def test_file_is_one_json_line_that_other_tools_can_read() -> None:
    value = json.loads(FILE)

    assert FILE.endswith(b"}\n")
    assert list(value) == ["schema", "contentSha256", "content"]
    assert value["content"] == json.loads(CONTENT)


@pytest.mark.parametrize("bit", range(8))
def test_file_is_refused_when_any_bit_flips(bit: int) -> None:
    for place in range(len(FILE)):
        flipped = bytearray(FILE)
        flipped[place] ^= 1 << bit

        assert refusal(bytes(flipped)) in DAMAGED


def test_flip_outside_the_schema_name_is_called_corrupt() -> None:
    for place in range(FILE.index(b"contentSha256") - 1, len(FILE)):
        flipped = bytearray(FILE)
        flipped[place] ^= 1

        assert refusal(bytes(flipped)) is ErrorCode.STATE_CORRUPT


def test_file_is_corrupt_when_cut_at_any_byte() -> None:
    assert {refusal(FILE[:length]) for length in range(len(FILE))} == {ErrorCode.STATE_CORRUPT}


@pytest.mark.parametrize(
    "data",
    [
        bytes(len(FILE)),
        FILE + b"\n",
        FILE + b"\0",
        FILE + FILE,
        b"\xef\xbb\xbf" + FILE,
        json.dumps(json.loads(FILE), indent=1).encode(),
        b'{"schema":"test.state.v2","content":' + b"[" * 100_000,
        b'{"schema":"test.state.v2","contentSha256":"","content":}\n',
        b'{"schema":"' + b"\xff" + b'"}',
    ],
    ids=["zeros", "line", "nul", "twice", "bom", "indented", "deep", "empty", "no_text"],
)
def test_file_is_corrupt_when_it_is_not_exactly_what_was_written(data: bytes) -> None:
    assert refusal(data) is ErrorCode.STATE_CORRUPT


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (enclose("test.state.v3", CONTENT), ErrorCode.STATE_VERSION_UNSUPPORTED),
        (enclose("test.state.v1", CONTENT), ErrorCode.STATE_VERSION_UNSUPPORTED),
        (b'{"schema":"test.state.v9999999999999","new":{}}', ErrorCode.STATE_VERSION_UNSUPPORTED),
        (enclose("test.state.vX", CONTENT), ErrorCode.STATE_FOREIGN),
        (enclose("other.state.v2", CONTENT), ErrorCode.STATE_FOREIGN),
        (b'{"schema":3}', ErrorCode.STATE_FOREIGN),
        (b'{"name":"package"}', ErrorCode.STATE_FOREIGN),
        (b"[]", ErrorCode.STATE_FOREIGN),
    ],
)
def test_file_of_another_kind_or_version_is_refused_by_name(data: bytes, code: ErrorCode) -> None:
    assert refusal(data) is code


def test_refusal_shows_only_digits_of_a_hostile_version() -> None:
    with pytest.raises(PrpError) as caught:
        disclose(SCHEMA, b'{"schema":"test.state.v' + b"7" * 5000 + b'"}')

    assert len(str(caught.value)) < 120
