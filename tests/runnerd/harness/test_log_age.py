"""A log that is older than what the runner knows: refused by name, never begun anew."""

from pathlib import Path

import pytest

from protocol.errors import ErrorCode, PrpError
from tests.runnerd.harness.test_call_recorder import (
    ASKED,
    BEGUN_CALL,
    CALL,
    answered,
    begun,
    end,
    events,
)
from tests.runnerd.harness.test_recorder import (
    STOPPED,
    failed,
    left_by_a_dead_process,
    order,
    recorder,
    records,
    told,
)

LOG = "run-1.jsonl"


def paused_with_a_call(folder: Path) -> tuple[bytes, bytes]:
    """Leave a run that waits for another attempt; returns its log before the call and now."""
    one = begun(folder)
    before = (folder / LOG).read_bytes()
    one.note((CALL,))
    one.note((answered(),))
    end(one, STOPPED)
    return before, (folder / LOG).read_bytes()


@pytest.mark.parametrize("is_gone", [True, False])
def test_an_attempt_is_refused_when_the_log_lacks_what_programs_were_told(
    is_gone: bool, tmp_path: Path
) -> None:
    before, newest = paused_with_a_call(tmp_path)
    log = tmp_path / LOG
    log.unlink()
    if not is_gone:
        log.write_bytes(before.rstrip(b"\0"))
        log.chmod(0o600)
    found = recorder(tmp_path)

    for _ in range(2):
        with pytest.raises(PrpError) as caught:
            found.begin(order(2, lines_accepted=3, recorded_calls=("call_1",)))
        assert caught.value.code is ErrorCode.RUN_STATE_CONFLICT

    assert log.exists() is not is_gone
    log.write_bytes(newest)
    log.chmod(0o600)
    found.begin(order(2, lines_accepted=3, recorded_calls=("call_1",)))
    assert records(tmp_path)[-1].sequence > 10


@pytest.mark.parametrize("effect", ["committed", "not_started"])
def test_an_attempt_begins_when_the_log_has_every_call(effect: str, tmp_path: Path) -> None:
    one = begun(tmp_path)
    one.note((CALL,))
    one.note((answered(effect),))  # type: ignore[arg-type]  # one of its words
    end(one, STOPPED)

    recorder(tmp_path).begin(order(2, lines_accepted=3, recorded_calls=("call_1",)))


def test_a_first_attempt_that_never_began_leaves_the_log_to_the_second(tmp_path: Path) -> None:
    recorder(tmp_path).begin(order(2))

    assert len(records(tmp_path)) == 3


@pytest.mark.parametrize("is_gone", [True, False])
def test_nothing_is_recorded_behind_a_gap_when_the_log_of_an_attempt_is_lost(
    is_gone: bool, tmp_path: Path
) -> None:
    one = begun(tmp_path)
    before = (tmp_path / LOG).read_bytes().rstrip(b"\0")
    one.note((CALL,))
    log = tmp_path / LOG
    log.unlink()
    if not is_gone:
        log.write_bytes(before)
        log.chmod(0o600)

    for _ in range(2):
        with pytest.raises(PrpError) as caught:
            one.note((ASKED,))
        assert caught.value.code is ErrorCode.RUN_STATE_CONFLICT
    recorded = end(one)

    assert recorded.verdict == failed("run_state_conflict")
    assert log.exists() is not is_gone
    assert is_gone or log.read_bytes() == before


def test_an_attempt_that_could_not_be_ended_is_over_before_its_call_is_made_known(
    tmp_path: Path,
) -> None:
    """A full disk kept call and end out of the log, also at the start of the next process."""
    left_by_a_dead_process(tmp_path)
    found = recorder(tmp_path)

    found.note((CALL,))

    assert told(tmp_path)[3:] == ["event"] * len(BEGUN_CALL) + ["PAUSE", "pause"]
    assert events(tmp_path) == BEGUN_CALL
    found.note((answered(),))
    assert events(tmp_path) == [*BEGUN_CALL, "decided committed"]


def test_a_call_that_the_log_cannot_find_in_doubt_is_not_made_known(tmp_path: Path) -> None:
    end(begun(tmp_path), STOPPED)
    before = records(tmp_path)

    with pytest.raises(PrpError) as caught:
        recorder(tmp_path).note((CALL,))

    assert caught.value.code is ErrorCode.RUN_STATE_CONFLICT
    assert records(tmp_path) == before
