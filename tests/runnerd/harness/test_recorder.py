"""The run's log as the daemon keeps it: what stands in it before anything is started or told."""

import itertools
from collections.abc import Collection
from pathlib import Path

import msgspec
import pytest

from protocol.base.clock import MonoMs, Now, UnixMs
from protocol.base.posix_fs import PosixFilesystem
from protocol.errors import ErrorCode, PrpError
from protocol.ids import Generation, Identity
from runnerd.core.actions import StartHarness
from runnerd.core.inputs import HarnessExited, HarnessLogs, ProcessExit
from runnerd.core.verdict import Outcome, Verdict
from runnerd.harness.attempt import log_id_of
from runnerd.harness.recorder import RunRecorder
from runnerd.runs.projection import project_run
from runnerd.runs.records import RecordKind, RunRecord, check_run_id
from runnerd.runs.run_log import LogFormat
from runnerd.runs.snapshot import RunSnapshot, read_snapshot
from tests.runnerd.runs.logs import store_in

IDENTITY = Identity(
    runner_instance_id="runner-1",
    environment_lease_id="lease-1",
    run_id="run-1",
    normalized_session_id="session-1",
    turn_id="turn-1",
    item_id="item-1",
)
DONE = Verdict(outcome=Outcome(turn_state="completed", run_state="succeeded", reason="done"))
STOPPED = Verdict(reason="runner_stopped")
BEGUN = ["start", "ACCEPT", "START"]
PROVEN = ["verification", "COMPLETE", "finish"]


class Ticking:
    def __init__(self) -> None:
        self._ms = itertools.count(1_767_225_600_000)

    def now(self) -> Now:
        instant = next(self._ms)
        return Now(UnixMs(instant), MonoMs(instant))


class Syncs(PosixFilesystem):
    """The real disk that counts, and refuses some syncs."""

    def __init__(self, refused: Collection[int] = ()) -> None:
        super().__init__()
        self.count = 0
        self.refused = refused

    def sync(self, descriptor: int) -> None:
        self.count += 1
        if self.count in self.refused:
            raise OSError(5, "Input/output error")
        super().sync(descriptor)


def order(generation: int = 1, **members: object) -> StartHarness:
    plain = StartHarness(
        generation=Generation(generation),
        launch_mark="mark",
        argv=("agent", "--token=abcdef0123456789"),
        cwd="/workspace",
        env_names=("LANG",),
        turn_ordinal=generation,
        lines_accepted=0,
    )
    return msgspec.structs.replace(plain, **members)


def exited(generation: int = 1, code: int | None = 0, survivors: int = 0) -> HarnessExited:
    seen = ProcessExit() if code is None else ProcessExit(exit_code=code, success=code == 0)
    return HarnessExited(
        generation=Generation(generation), exit=seen, logs=HarnessLogs(), survivors=survivors
    )


def failed(reason: str, run_state: str = "failed", turn_state: str = "failed") -> Verdict:
    return Verdict(
        outcome=msgspec.convert(
            {"turnState": turn_state, "runState": run_state, "reason": reason}, Outcome
        )
    )


def recorder(folder: Path, fs: PosixFilesystem | None = None) -> RunRecorder:
    return RunRecorder(store_in(folder, fs=fs), Ticking(), IDENTITY)


def left_by_a_dead_process(folder: Path) -> None:
    one = recorder(folder)
    one.begin(order())
    # The kernel lets go of what a dead process held.
    one.close()


def records(folder: Path) -> tuple[RunRecord, ...]:
    log = store_in(folder).read("run-1", mends=False)
    assert log.end.log_format in (None, LogFormat.CHAINED)
    return log.records


def told(folder: Path) -> list[str]:
    """Return the log in short: the operation's events, and the kinds of all else."""
    return [
        str(record.payload["event"])
        if record.kind is RecordKind.OPERATION and isinstance(record.payload, dict)
        else record.kind.value
        for record in records(folder)
    ]


def status(folder: Path) -> tuple[str, str | None]:
    seen = project_run(records(folder))
    return seen.status.value, seen.finish_reason


def test_beginning_is_recorded_with_everything_that_was_known(tmp_path: Path) -> None:
    recorder(tmp_path).begin(order())

    payload = records(tmp_path)[0].payload
    assert told(tmp_path) == BEGUN
    assert isinstance(payload, dict)
    assert payload["workspace"] == "/workspace"
    assert (payload["entryPoint"], payload["permissionMode"]) == ("runnerd", "process")
    assert payload["configName"] == "command"
    assert len(str(payload["configFingerprint"])) == 64
    assert "abcdef0123456789" not in str(payload)


def test_success_is_claimed_behind_a_passed_verification_and_has_a_snapshot(
    tmp_path: Path,
) -> None:
    one = recorder(tmp_path)
    one.begin(order())

    recorded = one.end(exited(), DONE, (), output_chars=12)

    assert told(tmp_path) == [*BEGUN, *PROVEN]
    assert recorded.verdict == DONE
    assert recorded.snapshot is not None
    snapshot: RunSnapshot = read_snapshot(recorded.snapshot)
    assert snapshot.outcome.status.value == "succeeded"
    assert snapshot.metrics.output_chars == 12
    assert snapshot.metrics.duration_ms > 0


@pytest.mark.parametrize("end", [exited(survivors=1), exited(code=None)])
def test_success_that_nobody_can_prove_pauses_instead(end: HarnessExited, tmp_path: Path) -> None:
    one = recorder(tmp_path)
    one.begin(order())

    recorded = one.end(end, DONE, (), output_chars=0)

    assert told(tmp_path) == [*BEGUN, "verification", "PAUSE", "pause"]
    assert recorded.verdict == Verdict(reason="verification_missing")
    assert recorded.snapshot is None
    assert status(tmp_path) == ("paused", "verification_missing")


@pytest.mark.parametrize(
    ("verdict", "events", "reason"),
    [
        (failed("harness_process_failed"), ["FAIL"], "harness_process_failed"),
        (failed("harness_ended_after_terminal"), ["FAIL"], "harness_process_failed"),
        (failed("semantic_result_missing"), ["FAIL"], "semantic_result_missing"),
        (failed("turn_timeout"), ["FAIL"], "run_timeout"),
        (failed("outbox_full"), ["FAIL"], "outbox_full"),
        (failed("run_cancelled", "cancelled", "cancelled"), ["REQUEST_ABORT", "FAIL"], "aborted"),
        (
            failed("turn_interrupted", "cancelled", "interrupted"),
            ["REQUEST_ABORT", "FAIL"],
            "aborted",
        ),
    ],
)
def test_end_without_success_is_recorded_with_its_reason(
    verdict: Verdict, events: list[str], reason: str, tmp_path: Path
) -> None:
    one = recorder(tmp_path)
    one.begin(order())

    recorded = one.end(exited(code=1), verdict, (), output_chars=0)

    assert told(tmp_path) == [*BEGUN, *events, "finish"]
    assert status(tmp_path) == ("finished", reason)
    assert recorded.verdict == verdict
    assert recorded.snapshot is not None


def test_stopped_attempt_pauses_and_the_next_one_resumes_it(tmp_path: Path) -> None:
    one = recorder(tmp_path)
    one.begin(order())
    one.end(exited(code=None), STOPPED, (), output_chars=0)
    paused = status(tmp_path)
    again = recorder(tmp_path)

    again.begin(order(2))
    again.end(exited(2), DONE, (), output_chars=0)

    assert paused == ("paused", "process_interrupted")
    assert told(tmp_path) == [*BEGUN, "PAUSE", "pause", "resume", "RESUME", *PROVEN]
    assert status(tmp_path) == ("finished", "completed")


def test_attempt_of_a_dead_process_is_paused_first(tmp_path: Path) -> None:
    left_by_a_dead_process(tmp_path)

    again = recorder(tmp_path)
    again.begin(order(2))

    assert told(tmp_path) == [*BEGUN, "PAUSE", "pause", "resume", "RESUME"]


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"argv": ("another",)}, ErrorCode.RESUME_CONFIG_MISMATCH),
        ({"cwd": "/elsewhere"}, ErrorCode.RESUME_CONFIG_MISMATCH),
    ],
)
def test_attempt_with_another_configuration_is_refused_and_recorded_nowhere(
    changed: dict[str, object], code: ErrorCode, tmp_path: Path
) -> None:
    one = recorder(tmp_path)
    one.begin(order())
    one.end(exited(code=None), STOPPED, (), output_chars=0)
    before = told(tmp_path)

    with pytest.raises(PrpError) as refused:
        recorder(tmp_path).begin(order(2, **changed))

    assert refused.value.code is code
    assert told(tmp_path) == before


def test_finished_run_is_not_begun_again(tmp_path: Path) -> None:
    one = recorder(tmp_path)
    one.begin(order())
    one.end(exited(), DONE, (), output_chars=0)

    with pytest.raises(PrpError) as refused:
        recorder(tmp_path).begin(order(2))

    assert refused.value.code is ErrorCode.RUN_ALREADY_FINISHED


def test_run_that_another_process_writes_is_not_begun(tmp_path: Path) -> None:
    other = store_in(tmp_path)
    held = other.open_run("run-1")

    with pytest.raises(PrpError) as refused:
        recorder(tmp_path).begin(order())
    held.close()

    assert refused.value.code is ErrorCode.RUN_STATE_LOCKED


def test_no_sync_is_made_beyond_those_of_the_lifecycle_records(tmp_path: Path) -> None:
    fs = Syncs()
    one = recorder(tmp_path / "runs", fs)
    one.begin(order())
    begun = fs.count
    one.end(exited(), DONE, (), output_chars=0)

    # The folder's name twice, the new log and its name, ACCEPT; then verification and finish.
    assert (begun, fs.count - begun) == (5, 2)


def syncs_of_a_whole_run(folder: Path) -> int:
    fs = Syncs()
    one = recorder(folder, fs)
    one.begin(order())
    one.end(exited(), DONE, (), output_chars=0)
    return fs.count


@pytest.mark.parametrize("lasts", [False, True], ids=["once", "from then on"])
def test_disk_that_refuses_any_sync_never_lets_a_success_be_told(
    lasts: bool, tmp_path: Path
) -> None:
    refused_starts, unrecorded_ends = 0, 0
    for place in range(1, syncs_of_a_whole_run(tmp_path / "whole") + 1):
        folder = tmp_path / str(place)
        one = recorder(folder, Syncs(range(place, 1_000) if lasts else (place,)))
        try:
            one.begin(order())
        except PrpError:
            refused_starts += 1
            continue

        recorded = one.end(exited(), DONE, (), output_chars=0)

        unrecorded_ends += 1
        assert recorded.verdict.outcome is not None
        assert not recorded.verdict.outcome.succeeded
        assert recorded.verdict.outcome.reason in ("run_state_failed", "durability_barrier_failed")
        # What a disk keeps that has failed for good is for the disk to say.
        assert lasts or status(folder)[0] == "interrupted"
    assert (refused_starts, unrecorded_ends) == (5, 2)


@pytest.mark.parametrize("run_id", ["run.1", "a:b", "a.b", "a:b."])
def test_run_whose_id_no_file_may_have_gets_a_log_of_its_own(run_id: str) -> None:
    named = log_id_of(run_id)

    check_run_id(named)
    assert named != run_id
    assert len({log_id_of(other) for other in ("run.1", "run:1", "run_1", "run-1")}) == 4
