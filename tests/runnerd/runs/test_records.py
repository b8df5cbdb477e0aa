"""What a record must have to be one (durable-runs 2)."""

import pytest

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from protocol.limits import RUN_LOG_ID_LENGTH_MAX
from runnerd.runs.records import (
    OperationRecord,
    RecordKind,
    VerificationPayload,
    check_run_id,
    is_instant,
    payload_as,
    read_record,
    record_members,
    whole_number,
)
from tests.runnerd.runs.logs import NOW, RUN, record

LINE: dict[str, JsonValue] = {
    "version": 1,
    "runId": RUN,
    "sequence": 1,
    "timestamp": NOW,
    "kind": "start",
    "payload": {"a": 1},
    "eventId": "e",
    "later": [1, {"x": None}],
}


def test_record_is_written_as_it_was_read() -> None:
    assert record_members(read_record(LINE, RUN)) == LINE


def test_payload_and_event_id_may_be_absent_and_null_is_a_payload() -> None:
    short = {name: LINE[name] for name in ("version", "runId", "sequence", "timestamp", "kind")}

    assert record_members(read_record(short, RUN)) == short
    assert record_members(read_record({**short, "payload": None}, RUN))["payload"] is None


@pytest.mark.parametrize("kind", list(RecordKind))
def test_every_kind_is_read(kind: RecordKind) -> None:
    assert read_record({**LINE, "kind": kind.value}, RUN).kind is kind


def test_numbers_are_whole_whatever_their_spelling() -> None:
    found = read_record({**LINE, "version": 1.0, "sequence": 7.0}, RUN)

    assert type(found.sequence) is int
    assert found.sequence == 7


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"version": True},
        {"version": "1"},
        {"version": None},
        {"runId": "other"},
        {"runId": None},
        {"sequence": True},
        {"sequence": "1"},
        {"sequence": 1.5},
        {"sequence": None},
        {"timestamp": 5},
        {"timestamp": None},
        {"kind": "mystery"},
        {"kind": None},
        {"kind": ["start"]},
        {"eventId": ""},
        {"eventId": "\u2003\ufeff"},
        {"eventId": None},
        {"eventId": 5},
    ],
    ids=str,
)
def test_record_with_a_wrong_member_is_corrupt(change: dict[str, JsonValue]) -> None:
    with pytest.raises(PrpError) as caught:
        read_record({**LINE, **change}, RUN)

    assert caught.value.code is ErrorCode.RUN_STATE_CORRUPT


@pytest.mark.parametrize("value", [None, [], [LINE], "x", 5, True], ids=str)
def test_value_that_is_no_object_is_corrupt(value: JsonValue) -> None:
    with pytest.raises(PrpError) as caught:
        read_record(value, RUN)

    assert caught.value.code is ErrorCode.RUN_STATE_CORRUPT


@pytest.mark.parametrize("missing", ["version", "runId", "sequence", "timestamp", "kind"])
def test_record_without_a_member_is_corrupt(missing: str) -> None:
    with pytest.raises(PrpError) as caught:
        read_record({name: LINE[name] for name in LINE if name != missing}, RUN)

    assert caught.value.code is ErrorCode.RUN_STATE_CORRUPT


def test_payload_that_does_not_fit_is_corrupt_and_unknown_members_are_no_reason() -> None:
    fits = record(
        1,
        {
            **dict.fromkeys(("exitProven", "resultValid", "receiptsSettled", "noUnsafeCall"), True),
            "later": 1,
        },
    )

    assert payload_as(fits, VerificationPayload).is_passed
    for kind in (OperationRecord, VerificationPayload):
        with pytest.raises(PrpError) as caught:
            payload_as(record(1, "text"), kind)
        assert caught.value.code is ErrorCode.RUN_STATE_CORRUPT


@pytest.mark.parametrize("run_id", ["a", "A-z_0", "-", "x" * RUN_LOG_ID_LENGTH_MAX])
def test_plain_names_are_run_ids(run_id: str) -> None:
    check_run_id(run_id)


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01",
        "2026-01-01T00:00Z",
        "2026-01-01T00:00:00",
        NOW,
        "2026-01-01T23:59:59.1Z",
        "2026-01-01T00:00:00.123456789+05:30",
        "2024-02-29T00:00:00Z",
    ],
)
def test_instants_are_recognised(text: str) -> None:
    assert is_instant(text)


@pytest.mark.parametrize(
    "text",
    ["", "soon", "2026-13-01", "2025-02-29", "2026-01-01T25:00:00Z", "2026-01-01 00:00", 5, None],
    ids=str,
)
def test_other_texts_are_no_instants(text: object) -> None:
    assert not is_instant(text)


@pytest.mark.parametrize("value", [True, "1", 1.5, None, float("inf"), float("nan")], ids=str)
def test_other_values_are_no_whole_numbers(value: object) -> None:
    assert whole_number(value) is None
