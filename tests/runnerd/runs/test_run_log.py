"""Bytes of a log to records: whatever the bytes are, records or one code."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from protocol.limits import RUN_RECORD_BYTES_MAX
from runnerd.runs.records import RecordKind, RunRecord
from runnerd.runs.run_log import (
    LogEnd,
    LogFormat,
    LogScanner,
    encode_line,
    is_same_record,
    spell_record,
)
from tests.crash.log_edits import violations
from tests.runnerd.runs.logs import RUN, record

json_values: st.SearchStrategy[JsonValue] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec=None, categories=None)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
formats = pytest.mark.parametrize("log_format", list(LogFormat), ids=lambda kind: kind.value)


def written(records: list[RunRecord], log_format: LogFormat) -> bytes:
    chain = b""
    lines: list[bytes] = []
    for one in records:
        line = encode_line(spell_record(one), log_format, chain)
        chain = line.chain
        lines.append(line.line)
    return b"".join(lines)


def scanned(*pieces: bytes) -> tuple[list[RunRecord], LogEnd]:
    scanner = LogScanner(RUN)
    records = [one for piece in pieces for one in scanner.feed(piece)]
    last, end = scanner.finish()
    return records + last, end


def refusal(data: bytes) -> PrpError:
    with pytest.raises(PrpError) as caught:
        scanned(data)
    return caught.value


@formats
@given(payloads=st.lists(json_values, min_size=1, max_size=4), data=st.data())
def test_records_come_back_however_the_bytes_are_cut_into_pieces(
    log_format: LogFormat, payloads: list[JsonValue], data: st.DataObject
) -> None:
    records = [record(n, {"value": value}) for n, value in enumerate(payloads, start=1)]
    whole = written(records, log_format)
    cut = data.draw(st.integers(0, len(whole)))

    found, end = scanned(whole[:cut], whole[cut:])

    assert len(found) == len(records)
    assert all(is_same_record(*pair) for pair in zip(found, records, strict=True))
    assert (end.log_format, end.complete_bytes, end.is_torn) == (log_format, len(whole), False)


@formats
def test_every_edit_is_read_as_the_format_says(log_format: LogFormat) -> None:
    assert list(violations(LogScanner, log_format)) == []


@given(st.binary(max_size=200))
def test_any_bytes_give_records_or_one_code(data: bytes) -> None:
    for front in (
        b"",
        written([record(1)], LogFormat.PLAIN),
        written([record(1)], LogFormat.CHAINED),
    ):
        code: ErrorCode | None = None
        try:
            records, end = scanned(front + data)
        except PrpError as error:
            code = error.code
        else:
            assert len(records) == end.record_count
            assert end.complete_bytes <= len(front + data)
        assert code in (None, ErrorCode.RUN_STATE_CORRUPT)


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b'{"version":1,"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
        b'"\\ud800"',
        b'{"version":1e400}',
        b"{" * 1_000,
        b'{"version":1,"runId":"run-a","sequence":' + b"9" * 5_000 + b"}",
    ],
    ids=["deep", "deep_member", "surrogate", "huge", "braces", "digits"],
)
def test_hostile_line_is_damage_and_no_traceback(line: bytes) -> None:
    assert refusal(line + b"\n").code is ErrorCode.RUN_STATE_CORRUPT


def test_members_that_nobody_knows_are_kept() -> None:
    kept = record(1, extra={"later": {"x": 1}, "note": None})

    [found], _ = scanned(written([kept], LogFormat.CHAINED))

    assert found == kept


def test_chain_member_is_not_one_of_the_record() -> None:
    [found], end = scanned(written([record(1)], LogFormat.CHAINED))

    assert found == record(1)
    assert len(end.chain) == 32


@pytest.mark.parametrize("first", list(LogFormat), ids=lambda kind: kind.value)
def test_formats_do_not_mix_in_one_log(first: LogFormat) -> None:
    [second] = [kind for kind in LogFormat if kind is not first]
    line = encode_line(spell_record(record(2)), second, b"").line

    error = refusal(written([record(1)], first) + line)

    assert error.code is ErrorCode.RUN_STATE_CORRUPT


def test_chain_of_another_log_does_not_continue_this_one() -> None:
    one = written([record(1), record(2)], LogFormat.CHAINED).split(b"\n")
    other = written([record(1, {"other": True}), record(2)], LogFormat.CHAINED).split(b"\n")

    assert refusal(b"\n".join((one[0], other[1], b""))).code is ErrorCode.RUN_STATE_CORRUPT


def test_line_longer_than_any_record_is_damage_before_it_has_ended() -> None:
    scanner = LogScanner(RUN)
    scanner.feed(b"x" * RUN_RECORD_BYTES_MAX)

    with pytest.raises(PrpError) as caught:
        scanner.feed(b"x")
    assert caught.value.code is ErrorCode.RUN_STATE_CORRUPT


def test_record_longer_than_a_reader_takes_is_not_spelled() -> None:
    with pytest.raises(PrpError) as caught:
        spell_record(record(1, "x" * RUN_RECORD_BYTES_MAX))

    assert caught.value.code is ErrorCode.RUN_STATE_FAILED


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_number_that_json_cannot_hold_is_refused_and_not_made_null(number: float) -> None:
    payloads: list[JsonValue] = [number, [number], {"a": {"b": [None, number]}}]
    for payload in payloads:
        with pytest.raises(PrpError) as caught:
            spell_record(record(1, payload))
        assert caught.value.code is ErrorCode.RUN_STATE_CORRUPT


def test_value_that_is_no_json_is_refused() -> None:
    with pytest.raises(PrpError) as caught:
        spell_record(record(1, payload={"a": object()}))  # type: ignore[dict-item]  # no JSON

    assert caught.value.code is ErrorCode.RUN_STATE_CORRUPT


@pytest.mark.parametrize(
    "members",
    [
        {"event_id": " "},
        {"extra": {"chain": "sha256:0"}},
        {"timestamp": 5},
        {"sequence": True},
        {"payload": {"event": {}, "runId": RUN}},
    ],
    ids=str,
)
def test_record_that_no_reader_takes_is_not_spelled(members: dict[str, object]) -> None:
    broken = msgspec.structs.replace(record(2), **members)

    with pytest.raises(PrpError) as caught:
        spell_record(broken)
    assert caught.value.code is ErrorCode.RUN_STATE_CORRUPT


def test_half_a_character_is_written_and_read_back() -> None:
    half = record(1, {"text": "a\ud800b"})

    [found], _ = scanned(written([half], LogFormat.CHAINED))

    assert found == half


def test_equal_records_are_equal_in_any_order_of_members_and_spelling_of_numbers() -> None:
    one = record(2, {"a": 1, "b": [1.0, {"c": 2, "d": 3}]})
    other = record(2, {"b": [1, {"d": 3, "c": 2}], "a": 1.0})

    assert is_same_record(one, other)
    assert not is_same_record(one, record(2, {"a": 1}))
    assert not is_same_record(record(2, {"a": 1}), record(2, {"a": True}))


def test_records_beyond_the_bounds_of_canonical_json_are_compared_too() -> None:
    many: list[JsonValue] = [[] for _ in range(20_000)]

    assert is_same_record(record(2, {"a": many, "b": 1}), record(2, {"b": 1, "a": many}))
    assert not is_same_record(record(2, many), record(2, many[1:]))


def test_finish_kind_is_no_end_for_a_reader() -> None:
    records = [record(1), record(2, kind=RecordKind.FINISH), record(3)]

    found, _ = scanned(written(records, LogFormat.PLAIN))

    assert found == records
