"""Tests of `runnerd runs` with logs that anybody may have written: a code, never a traceback."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol.canonical_json import JsonValue
from runnerd.console.runs_command import run_runs
from runnerd.runs.records import RunRecord, record_members
from tests.runnerd.console.kept_runs import finished, left, told
from tests.runnerd.runs.run_script import RUN

ODD = ("\ud800", {"a": "\x1b[2J"})
COMMANDS = ("show", "timeline", "resume", "export", "reconcile")


def places(value: JsonValue, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    members = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else ()
    for name, inner in (*members, *items):
        yield from places(inner, (*path, name))


def changed(lines: list[Any], path: tuple[str | int, ...], odd: object) -> list[Any]:
    copy = json.loads(json.dumps(lines))
    holder = copy
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = odd
    return list(copy)


def answers(folder: Path, command: str) -> int:
    words = {
        "resume": ["--dry-run", RUN],
        "export": [RUN, f"--output={folder / 'out.tar'}"],
        "reconcile": [RUN, "c1", "--outcome=committed", f"--evidence={folder / 'evidence'}"],
    }
    return run_runs([command, *words.get(command, [RUN]), f"--runs={folder / 'runs'}", "--json"])


@pytest.mark.parametrize("records", [finished().records, left("started", "committed").records])
@pytest.mark.parametrize("command", COMMANDS)
def test_log_with_any_one_member_changed_gets_an_answer_or_a_code(
    command: str, records: list[RunRecord], tmp_path: Path
) -> None:
    """A plain log has no links, so whatever is JSON reaches the rules."""
    (tmp_path / "evidence").write_text("seen")
    (tmp_path / "runs").mkdir(mode=0o700)
    log = tmp_path / "runs" / f"{RUN}.jsonl"
    lines: list[JsonValue] = [record_members(record) for record in records]
    for path in places(lines):
        for odd in ODD:
            text = "".join(json.dumps(line) + "\n" for line in changed(lines, path, odd))
            log.write_text(text)

            assert answers(tmp_path, command) in range(78)

            (tmp_path / "out.tar").unlink(missing_ok=True)


def test_half_a_character_is_shown_to_machines_as_json_has_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = [record_members(record) for record in left("started").records]
    lines[0]["payload"] = {**msgspec.convert(lines[0]["payload"], dict), "workspace": "\ud800"}
    (tmp_path / f"{RUN}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    status, found = told(capfd, "show", RUN, "--runs", str(tmp_path))

    assert status == 0
    assert found["begunWith"]["workspace"] == "\ud800"
