"""A folder of runs that was replaced while nothing in it was open."""

from pathlib import Path

from tests.runnerd.harness.test_call_recorder import CALL, answered, begun, end, events
from tests.runnerd.harness.test_recorder import BEGUN, STOPPED, order, told


def test_an_attempt_goes_on_in_the_folder_that_has_the_name_now(tmp_path: Path) -> None:
    runs, aside = tmp_path / "runs", tmp_path / "aside"
    one = begun(runs)
    one.note((CALL,))
    one.note((answered(),))
    end(one, STOPPED)
    runs.rename(aside)
    runs.mkdir(mode=0o700)
    for name in (".run-1.lock", "run-1.jsonl"):
        (runs / name).write_bytes((aside / name).read_bytes())
        (runs / name).chmod(0o600)
    before = (aside / "run-1.jsonl").read_bytes()

    one.begin(order(2, lines_accepted=1, recorded_calls=("call_1",)))
    end(one)

    assert told(runs)[-3:] == ["verification", "COMPLETE", "finish"]
    assert events(runs) == events(aside)
    assert told(aside)[: len(BEGUN)] == BEGUN
    assert (aside / "run-1.jsonl").read_bytes() == before
