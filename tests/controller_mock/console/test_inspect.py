from pathlib import Path

import pytest

from controller_mock.console.inspect import report_all, report_one, run_as_text, runs_as_text
from protocol.canonical_json import JsonValue
from protocol.envelope import Deliver
from protocol.errors import ErrorCode, PrpError
from protocol.ids import RunId
from tests.controller_mock.console.support import console
from tests.controller_mock.runner_client import event_body, result_of
from tests.controller_mock.served import served


async def _filled(directory: Path) -> None:
    async with served(directory) as world:
        first = await world.bootstrap()
        queued = await world.controller.queue(world.run_id, "session.snapshot")
        message = await first.receive()
        assert isinstance(message, Deliver)
        await first.send_result(result_of(message.command))
        await world.controller.result(world.run_id, queued.controller_seq, 20)
        await first.send_events(event_body(first.config, seq) for seq in (1, 2, 3))
        await first.acked_through(3)
        second = await world.bootstrap()
        await second.send_events(event_body(second.config, seq) for seq in (3, 4))
        await second.acked_through(4)


async def test_report_of_a_run_has_its_cursors_connections_and_commands(tmp_path: Path) -> None:
    await _filled(tmp_path)

    report = report_one(tmp_path / "data", RunId("run-1"))

    assert (report.acked_source_seq, report.replay_deliveries, report.redelivered_events) == (
        4,
        1,
        1,
    )
    assert report.events_by_type == {"item.delta": 4}
    spans = [(c.number, c.first_source_seq, c.last_source_seq) for c in report.connections]
    assert spans == [(1, 1, 3), (2, 4, 4)]
    assert [(row.type, row.status) for row in report.commands] == [
        ("session.snapshot", "completed")
    ]
    assert [report.summary] == report_all(tmp_path / "data")


async def test_text_shows_what_the_report_has_and_no_key(tmp_path: Path) -> None:
    await _filled(tmp_path)
    data = tmp_path / "data"

    runs, run = runs_as_text(report_all(data)), run_as_text(report_one(data, RunId("run-1")))

    assert [line.split() for line in runs.splitlines()] == [
        ["RUN", "OUTCOME", "EVENTS", "COMMANDS", "OPEN", "CONNECTIONS", "FAULT"],
        ["run-1", "open", "4", "1", "0", "2", "-"],
    ]
    assert "session.snapshot  completed" in run
    assert "item.delta  4" in run


async def test_text_of_a_run_that_has_ended_says_why(tmp_path: Path) -> None:
    ended: JsonValue = {
        "schema": "paperclip.prp.terminal.v1",
        "turnTerminalState": "failed",
        "runTerminalState": "failed",
        "reportedWorkDisposition": "yielded",
        "reconciliation": {"authority": "runner", "reason": "harness_\x1b_failed"},
    }
    async with served(tmp_path) as world:
        runner = await world.bootstrap()
        body = event_body(runner.config, 1, event_type="run.terminal", priority=0, payload=ended)
        await runner.send_events([body])
        await runner.acked_through(1)

    run = run_as_text(report_one(tmp_path / "data", RunId("run-1")))

    assert "outcome      failed (harness_?_failed)\n" in run


def test_empty_store_has_no_runs() -> None:
    assert runs_as_text([]) == "no runs\n"


async def test_unknown_run_is_a_code(tmp_path: Path) -> None:
    await _filled(tmp_path)

    with pytest.raises(PrpError) as caught:
        report_one(tmp_path / "data", RunId("run-2"))

    assert caught.value.code is ErrorCode.RUN_UNKNOWN


@pytest.mark.process
@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"", 65, b"state_corrupt"),
        (bytes(8192), 65, b"state_corrupt"),
        (b"hello, I am something else entirely\n" * 9, 65, b"state_corrupt"),
        (None, 65, b"state_missing"),
    ],
    ids=["empty", "zeros", "foreign", "missing"],
)
async def test_damaged_store_is_a_code_and_stays_as_it_is(
    tmp_path: Path, content: bytes | None, status: int, code: bytes
) -> None:
    await _filled(tmp_path)
    database = tmp_path / "data" / "controller.db"
    for log in database.parent.glob("controller.db-*"):
        log.unlink()
    database.unlink()
    if content is not None:
        database.write_bytes(content)
        database.chmod(0o600)

    for verb in (["inspect"], ["run"]):
        ending = ["--", "true"] if verb == ["run"] and content is not None else []
        if verb == ["run"] and content is None:
            continue
        async with console(*verb, "--data", str(tmp_path / "data"), *ending) as shown:
            assert await shown.status() == status
            assert code in shown.err
            assert b"Traceback" not in shown.err
    if content is not None:
        assert database.read_bytes() == content
