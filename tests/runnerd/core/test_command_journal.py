"""The journal's decision table, its bounds, and what a restart makes of it."""

import msgspec
import pytest

from protocol.envelope import Deliver
from protocol.errors import ErrorCode
from protocol.ids import ControllerSeq
from protocol.limits import COMMAND_RECORDS_MAX
from runnerd.core.actions import Action, CloseConnection, SendResult, StartHarness
from tests.runnerd.core.world import PREPARE, connected, members, restarted


def closes(actions: list[Action]) -> list[ErrorCode]:
    return [action.code for action in actions if isinstance(action, CloseConnection)]


def test_repeated_command_gets_the_stored_result_and_no_new_event() -> None:
    world = connected()
    command = world.command("run.prepare", PREPARE)
    [first] = [a for a in world.control(Deliver(command)) if isinstance(a, SendResult)]
    events = world.durable.next_source_seq

    actions = world.control(Deliver(command))

    assert actions == [first]
    assert world.durable.next_source_seq == events


def test_repeated_command_gets_the_stored_result_after_a_restart() -> None:
    world = connected()
    command = world.command("run.prepare", PREPARE)
    [first] = [a for a in world.control(Deliver(command)) if isinstance(a, SendResult)]

    again = restarted(world)
    again.connect()
    [second] = [a for a in again.control(Deliver(command)) if isinstance(a, SendResult)]

    assert msgspec.json.encode(second.result) == msgspec.json.encode(first.result)


def test_altered_command_under_a_known_id_closes_and_changes_nothing() -> None:
    world = connected()
    command = world.command("session.snapshot")
    world.control(Deliver(command))
    before = world.durable

    altered = msgspec.structs.replace(command, payload=msgspec.Raw(b'{"x":1}'))
    actions = world.control(Deliver(altered))

    assert closes(actions) == [ErrorCode.COMMAND_CONFLICT]
    assert world.durable == before


@pytest.mark.parametrize("seq", [1, 3, 4, 2**40])
def test_sequence_other_than_the_next_closes_and_changes_nothing(seq: int) -> None:
    world = connected()
    world.deliver("session.snapshot")
    before = world.durable

    stray = world.command("session.snapshot", controller_seq=ControllerSeq(seq))
    actions = world.control(Deliver(stray))

    assert closes(actions) == [ErrorCode.COMMAND_GAP]
    assert world.durable == before


@pytest.mark.parametrize(
    "change",
    [
        {"type": "no.such.type"},
        {"schema": "paperclip.prp.command.v9"},
        {"command_id": ""},
        {"command_id": "x" * 161},
        {"command_id": "a\x01b"},
        {"controller_seq": 0},
        {"payload": msgspec.Raw(b"[]")},
        {"type": "session.goal.get"},
        {"issued_at": ""},
    ],
)
def test_malformed_command_closes_and_changes_nothing(change: dict[str, object]) -> None:
    world = connected()
    before = world.durable

    actions = world.control(Deliver(world.command("session.snapshot", None, **change)))

    assert closes(actions) == [ErrorCode.COMMAND_INVALID]
    assert world.durable == before


def test_nothing_of_a_batch_is_applied_after_the_message_that_closed() -> None:
    world = connected()
    bad = world.command("session.snapshot", controller_seq=ControllerSeq(9))
    good = world.command("runner.drain", controller_seq=ControllerSeq(1))

    world.feed(world.received(Deliver(bad)), world.received(Deliver(good)))

    assert world.durable.last_controller_command_seq == 0


def test_refused_command_consumes_its_sequence_and_is_answered_again() -> None:
    world = connected()
    command = world.command("turn.steer")
    [first] = [a for a in world.control(Deliver(command)) if isinstance(a, SendResult)]

    [second] = [a for a in world.control(Deliver(command)) if isinstance(a, SendResult)]

    assert first == second
    assert first.result.status == "rejected"
    assert members(first.result) == {"code": "command_unsupported", "logicalEffectCount": 0}


def test_cache_is_bounded_and_a_compacted_command_is_refused_without_effect() -> None:
    world = connected()
    first = world.command("runner.drain")
    world.control(Deliver(first))
    for _ in range(COMMAND_RECORDS_MAX + 5):
        world.deliver("session.snapshot")
    before = world.durable

    [answer] = [a for a in world.control(Deliver(first)) if isinstance(a, SendResult)]

    assert len(before.commands) == COMMAND_RECORDS_MAX
    assert before.compacted_through_controller_seq == 6
    assert answer.result.status == "rejected"
    assert members(answer.result)["code"] == "command_history_compacted"
    assert world.durable == before


def test_pending_turn_start_is_not_answered_or_started_twice() -> None:
    world = connected()
    world.prepare()
    command = world.command("turn.start")
    world.control(Deliver(command))

    actions = world.control(Deliver(command))

    assert actions == []
    assert len([a for a in world.left if isinstance(a, StartHarness)]) == 1


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        ({}, "provider_invalid"),
        ({"provider": "x"}, "provider_invalid"),
        ({"provider": {"kind": "codex"}}, "provider_unsupported"),
        ({"provider": {"kind": "command"}}, "provider_invalid"),
        ({"provider": {"kind": "command", "argv": [], "cwd": "/"}}, "provider_invalid"),
        ({"provider": {"kind": "command", "argv": [1], "cwd": "/"}}, "provider_invalid"),
        ({"provider": {"kind": "command", "argv": ["a"], "cwd": "rel"}}, "provider_invalid"),
        ({"provider": {"kind": "command", "argv": ["a\0"], "cwd": "/"}}, "provider_invalid"),
        (
            {"provider": {"kind": "command", "argv": ["a"] * 257, "cwd": "/"}},
            "provider_invalid",
        ),
        (
            {"provider": {"kind": "command", "argv": ["a"], "cwd": "/", "envNames": ["A=B"]}},
            "provider_invalid",
        ),
    ],
)
def test_program_that_is_not_well_named_is_refused_without_effect(
    payload: dict[str, object], code: str
) -> None:
    world = connected()

    result = world.deliver("run.prepare", msgspec.to_builtins(payload))

    assert result.status == "rejected"
    assert members(result)["code"] == code
    assert members(result)["logicalEffectCount"] == 0
    assert world.durable.provider is None
    assert world.durable.next_source_seq == 1


def test_attach_that_changes_authority_is_refused_before_any_work() -> None:
    world = connected()
    payload: dict[str, object] = {**PREPARE, "paperclipNextAuthority": {}}

    result = world.deliver("run.attach", msgspec.to_builtins(payload))

    assert members(result)["code"] == "authority_change_unsupported"
    assert world.durable.provider is None


@pytest.mark.parametrize(
    ("history", "command_type", "code"),
    [
        ((), "session.open", "provider_not_prepared"),
        ((), "turn.start", "provider_not_prepared"),
        ((), "turn.interrupt", "turn_not_active"),
        ((), "session.close", "session_not_open"),
        (("run.prepare",), "turn.start", "session_not_open"),
        (("run.prepare", "session.open", "runner.drain"), "turn.start", "runner_draining"),
        (("run.cancel",), "run.cancel", "run_terminal"),
        (("run.cancel",), "run.prepare", "run_terminal"),
        (("run.prepare", "session.open", "run.cancel"), "turn.start", "run_terminal"),
        (("runner.shutdown",), "session.snapshot", "runner_draining"),
    ],
)
def test_command_out_of_place_is_refused_with_zero_effects(
    history: tuple[str, ...], command_type: str, code: str
) -> None:
    world = connected()
    for earlier in history:
        world.deliver(earlier, PREPARE if earlier == "run.prepare" else None)
    produced = world.durable.next_source_seq

    result = world.deliver(command_type, PREPARE)

    assert result.status == "rejected"
    assert members(result) == {"code": code, "logicalEffectCount": 0}
    assert world.durable.next_source_seq == produced


def test_second_turn_is_refused_while_one_is_live() -> None:
    world = connected()
    world.prepare()
    world.start_turn()

    assert members(world.deliver("turn.start"))["code"] == "turn_active"
    assert members(world.deliver("run.prepare", PREPARE))["code"] == "turn_active"
    assert members(world.deliver("session.close"))["code"] == "turn_active"
