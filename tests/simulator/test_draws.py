"""Named streams, recordings and the minimiser that edits them."""

from msgspec import structs

from tests.simulator.draws import Draws
from tests.simulator.minimise import minimise
from tests.simulator.profile import OFF, STORM, Profile, draw_profile
from tests.simulator.short.history import run_short
from tests.simulator.stacks import replay
from tests.simulator.tape import Tape, read, tape_of, write
from tests.simulator.trace import trace_hash
from tests.simulator.verdict import Outcome, Violation


def values(draws: Draws, name: str, count: int = 20) -> list[int]:
    stream = draws.stream(name)
    return [stream.choose("value", 1000) for _ in range(count)]


def test_stream_is_not_shifted_by_draws_of_another() -> None:
    first, second = Draws(1), Draws(1)
    values(first, "disk")

    assert values(first, "net") == values(second, "net")
    assert values(Draws(1), "net") != values(Draws(2), "net")
    assert values(Draws(1), "net") != values(Draws(1), "disk")


def test_recording_repeats_the_draws_and_is_calm_behind_its_end() -> None:
    draws = Draws(7)
    drawn = values(draws, "disk", 5)

    again = Draws(0, draws.recorded())

    assert values(again, "disk", 7) == [*drawn, 0, 0]
    assert again.stream("disk").choose("fewer options", 3) == 0
    assert Draws(0, {"disk": [9]}).stream("disk").choose("fewer options", 3) == 2


def test_disabled_family_moves_no_other_family() -> None:
    families = ["a", "b", "c", "d", "e", "f"]
    present = draw_profile(Draws(3), families)

    without = draw_profile(Draws(3), families, disabled=("b",), needed=("e",))

    expected = {**present.families, "b": OFF, "e": STORM}
    assert without.families == expected


def test_recorded_history_takes_the_same_course() -> None:
    for seed in range(5):
        outcome = run_short(seed)

        again = run_short(seed, outcome.draws.recorded())

        assert trace_hash(again.trace) == trace_hash(outcome.trace)


def toy(tape: Tape) -> Outcome:
    """A history that fails when two draws of one stream are large and a family is there."""
    draws = Draws(tape.seed, tape.draws)
    outcome = Outcome("short", draws, Profile({"wanted": STORM, "other": STORM}))
    outcome.disabled = tape.disabled
    steps = min(tape.steps_max, 40)
    outcome.steps = steps
    found = [draws.stream("x").choose("size", 100) for _ in range(steps)]
    [draws.stream("y").choose("size", 100) for _ in range(steps)]
    large = [value for value in found if value >= 90]
    if len(large) >= 2 and "wanted" not in tape.disabled:
        outcome.violation = Violation("I9", "too much")
    elif len(large) == 1:
        outcome.violation = Violation("I8", "something else")
    return outcome


def test_minimiser_keeps_only_what_the_same_violation_needs() -> None:
    recording = {"x": tuple(range(60, 100)), "y": tuple(range(40))}
    first = toy(Tape(stack="short", seed=0, invariant="", words="", draws=recording))

    smallest = minimise(first, run=toy)

    assert smallest.invariant == "I9"
    assert smallest.disabled == ("other",)
    assert [value for value in smallest.draws["x"] if value] != []
    assert len(smallest.draws["x"]) == smallest.steps_max == 2
    assert smallest.draws.get("y", ()) == ()


def test_tape_is_read_as_it_was_written(tmp_path: object) -> None:
    from pathlib import Path

    outcome = run_short(3)
    outcome.violation = Violation("I1", "as a test")
    tape = tape_of(outcome)

    assert isinstance(tmp_path, Path)
    assert read(write(tape, tmp_path)) == tape
    assert trace_hash(replay(tape).trace) == trace_hash(outcome.trace)
    assert structs.replace(tape, seed=4) != tape
