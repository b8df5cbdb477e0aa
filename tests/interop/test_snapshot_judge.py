"""A program in another language validates what Python wrote, by the checked-in schema."""

import json
import subprocess
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol.canonical_json import JsonValue
from runnerd.runs.envelope import tell_story
from runnerd.runs.snapshot import encode_snapshot
from tests.interop.peers import Missing, upstream_controller
from tests.runnerd.console.kept_runs import finished, left
from tests.runnerd.runs.outcomes import paused
from tests.schema.files import SCHEMA

pytestmark = pytest.mark.interop

JUDGE = Path(__file__).with_name("snapshot_judge.mjs")
Json = dict[str, Any]


def judged(values: list[Json]) -> list[object]:
    controller = upstream_controller()
    if isinstance(controller, Missing):
        pytest.skip(controller.reason)
    answer = subprocess.run(
        ["node", str(JUDGE), str(controller.package / "package.json"), str(SCHEMA)],
        input=msgspec.json.encode(values),
        capture_output=True,
        check=True,
        timeout=120,
    )
    verdicts: list[object] = json.loads(answer.stdout)
    return verdicts


def written() -> list[Json]:
    """Return what Python wrote of runs that ended in different ways."""
    stories = [tell_story(script.records) for script in (finished(), paused(left("started")))]
    snapshots = [story.snapshot() for story in stories]
    assert None not in snapshots
    return [json.loads(encode_snapshot(one)) for one in snapshots if one is not None]


def places(value: JsonValue, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield every place in a value that the schema has a word about."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield (*at, name)
            # What a program put there is its own.
            if name not in ("event", "qualityScores"):
                yield from places(item, (*at, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*at, index))


def mutated(snapshot: Json) -> Iterator[Json]:
    """Yield copies in each of which one value has become of a kind that it cannot have."""
    for *way, last in places(snapshot):
        copy = deepcopy(snapshot)
        holder: Any = copy
        for step in way:
            holder = holder[step]
        holder[last] = True if not isinstance(holder[last], bool) else 1
        yield copy


def test_envelope_that_python_wrote_is_accepted() -> None:
    assert judged(written()) == [True, True]


def test_envelope_with_one_value_of_another_kind_is_refused_wherever_it_is() -> None:
    copies = [copy for snapshot in written() for copy in mutated(snapshot)]

    verdicts = judged(copies)

    assert len(copies) > 60
    assert [copy for copy, verdict in zip(copies, verdicts, strict=True) if verdict is True] == []


def test_envelope_with_a_member_too_few_or_too_many_is_refused() -> None:
    [whole, _] = written()
    without = [{key: whole[key] for key in whole if key != name} for name in whole]

    verdicts = judged([*without, {**whole, "extra": 1}])

    assert [verdict for verdict in verdicts if verdict is True] == []


def test_envelope_whose_parts_contradict_each_other_is_refused() -> None:
    [whole, doubtful] = written()
    foreign = {**whole, "runId": "another"}
    claiming = {**doubtful, "outcome": whole["outcome"]}
    unknown = {**whole, "outcome": {"status": "perhaps", "finishReason": "completed"}}

    assert [verdict is True for verdict in judged([foreign, claiming, unknown])] == [False] * 3
