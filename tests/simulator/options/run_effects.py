"""Effects whose answer is lost, late or an error, and runs that are stopped (M03-M05, H10)."""

from typing import Final

from protocol.errors import ErrorCode, PrpError
from tests.simulator.option import Op, Option
from tests.simulator.runs.host import Host
from tests.simulator.runs.world import World
from tests.simulator.verdict import Violation


def time_out(world: World) -> None:
    """Let the host give its call up, and pause if it had begun."""
    world.act(lambda host: _give_up(world, host))


def _give_up(world: World, host: Host) -> None:
    call = host.time_out()
    world.late.append(call)
    world.seen.add("effect timed out" if call.request else "call refused before its start")
    if call.request is not None and world.draws.stream("workload").chance("pause at once", 50):
        host.pause(ErrorCode.UNKNOWN_EFFECT.value)


def fail(world: World) -> None:
    """Let the tool answer with an error, whatever it did."""
    world.act(lambda host: host.answer(is_error=True))
    world.seen.add("tool answered with an error")


def answer_late(world: World) -> None:
    """Let an answer come when nobody waits for it."""
    call = world.late.pop()
    world.seen.add("late answer changed nothing")
    world.act(lambda host: host.answer_late(call))


def cancel(world: World) -> None:
    """End the run for good."""
    world.seen.add("run cancelled")
    world.act(_cancel)


def _cancel(host: Host) -> None:
    host.cancel()
    try:
        host.append_too_late()
    except PrpError as error:
        if error.code is ErrorCode.FACT_LEDGER_TERMINAL:
            return
    raise Violation("I13", "a record was taken behind the end of the run")


def pause(world: World) -> None:
    """Stop the attempt."""
    world.act(lambda host: host.pause(ErrorCode.PROCESS_INTERRUPTED.value))


def _has_call(world: World) -> bool:
    return world.host is not None and world.host.call is not None


def _is_asked(world: World) -> bool:
    host = world.host
    return host is not None and host.call is not None and host.call.request is not None


def _is_idle(world: World) -> bool:
    return world.host is not None and world.host.call is None


RUNS: Final = Option[World](
    "run effects",
    families=("timeout", "tool_error", "late", "cancel", "pause"),
    ops=(
        Op("timeout", lambda w: 8 if _has_call(w) else 0, time_out, "timeout"),
        Op("tool error", lambda w: 8 if _is_asked(w) else 0, fail, "tool_error"),
        Op("late answer", lambda w: 20 if w.late and _is_idle(w) else 0, answer_late, "late"),
        Op("cancel", lambda w: 1 if w.host else 0, cancel, "cancel"),
        Op("pause", lambda w: 2 if _is_idle(w) else 0, pause, "pause"),
    ),
    sometimes=(
        "effect timed out",
        "call refused before its start",
        "tool answered with an error",
        "late answer changed nothing",
        "unknown effect reported",
        "committed effect reported",
        "decided by a person",
        "call offered again under its key",
        "key honoured outside",
        "second end refused",
        "run cancelled",
        "run completed",
    ),
)
