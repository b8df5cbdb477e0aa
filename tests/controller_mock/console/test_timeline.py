import msgspec

from controller_mock.console.timeline import Timeline
from controller_mock.io.runner_process import RunnerExit
from controller_mock.io.supervisor import RunnerEnded, RunnerStarted
from controller_mock.storage.store import StoredEvent
from protocol.base.clock import UnixMs
from protocol.canonical_json import JsonValue

NOW = UnixMs(1_767_323_045_678)


def shown(show: str, *values: object) -> list[str]:
    lines: list[str] = []
    timeline = Timeline(lines.append, lambda: NOW)
    for value in values:
        getattr(timeline, show)(value)
    # The time of day depends on the machine's zone.
    return [line[len("00:00:00.000 ") :].rstrip("\n") for line in lines]


def event(event_type: str, payload: JsonValue) -> StoredEvent:
    return StoredEvent(
        source_seq=1,
        source_event_id="event_1",
        event_type=event_type,
        priority=0,
        digest="0" * 64,
        body=msgspec.Raw(msgspec.json.encode({"payload": payload})),
        delivery_count=1,
        received_at_unix_ms=NOW,
        connection_number=1,
    )


def test_output_makes_no_line_of_its_own() -> None:
    assert shown("event", event("item.delta", {"text": "x\n"})) == []


def test_end_of_a_failed_program_shows_its_exit_and_its_last_words() -> None:
    payload: JsonValue = {
        "processExit": {"exitCode": 3, "success": False, "signal": None},
        "logs": {"lines": ["bad", "worse"], "retainedBytes": 9, "droppedLines": 4},
    }

    assert shown("event", event("harness.exited", payload)) == [
        "agent      program ended: exit 3",
        "           | ... 4 earlier lines of its stderr were not kept",
        "           | bad",
        "           | worse",
    ]


def test_end_that_nobody_saw_is_not_called_a_success_or_failure() -> None:
    payload: JsonValue = {"processExit": {"exitCode": None, "success": False, "signal": None}}

    assert shown("event", event("harness.exited", payload)) == [
        "agent      program ended: nobody saw how"
    ]


def test_odd_payloads_of_known_events_still_make_a_line() -> None:
    odd: list[JsonValue] = [{}, {"processExit": [], "logs": 7, "reconciliation": "x"}]
    types = ["harness.exited", "run.terminal", "turn.started", "runner.diagnostic", "no.such.type"]

    lines = shown("event", *(event(name, payload) for name in types for payload in odd))

    assert len(lines) == len(types) * len(odd)


def test_words_of_an_agent_cannot_command_the_terminal() -> None:
    payload: JsonValue = {"code": "odd", "message": "\x1b]0;title\x07 \x1b[2J"}

    assert shown("event", event("harness.diagnostic", payload)) == [
        "agent      odd: ?]0;title? ?[2J"
    ]


def test_dead_runner_shows_its_cause_its_last_words_and_what_follows() -> None:
    ended = RunnerEnded(
        exit=RunnerExit(status=75, stderr_tail=('{"event":"ending"}', "runnerd: stop_requested")),
        restart_in_ms=100,
    )

    assert shown("runner", RunnerStarted(7, 1), ended, RunnerStarted(8, 2)) == [
        "runner     process 7 started",
        "runner     process ended: exit 75; starting it again in 100 ms",
        "           | runnerd: stop_requested",
        "runner     process 8 started, start 2, with a fresh ticket",
    ]
