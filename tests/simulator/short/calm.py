"""The end of a short history: all faults stop, everyone answers, and what is left is judged.

It decides what progress is owed once faults have stopped (I20) and what a last power loss
may leave. It refuses to know how the history came to be as it is.
"""

from collections.abc import Callable
from typing import Final

from tests.simulator import invariants
from tests.simulator.options.dialogue import awaited_result
from tests.simulator.short import ops
from tests.simulator.short.world import World
from tests.simulator.verdict import Violation

ROUNDS_MAX: Final = 120
QUIET_MS_MAX: Final = 600_000


def calm_down(world: World) -> None:
    """Heal the world, run until it is quiet, and audit what the disk holds."""
    world.faults_are_on = False
    world.judge.armed = None
    world.machine.disk.is_read_only = False
    world.machine.set_wall_right()
    world.trace.append("heal")
    _run_until_quiet(world)
    _audit(world)


def _run_until_quiet(world: World) -> None:
    began_ms = world.elapsed_ms
    for _ in range(ROUNDS_MAX):
        if not calm_step(world):
            if _is_quiet(world):
                return
            if not world.is_running or not ops.has_deadline(world):
                break
            ops.pass_deadline(world)
        if world.elapsed_ms - began_ms > QUIET_MS_MAX:
            break
    invariants.I20(_unfinished(world))


def calm_step(world: World) -> bool:
    """Let one thing happen that is due without time passing; False if there is none."""
    for is_due, act in _CALM:
        if is_due(world):
            act(world)
            return True
    return False


def _finish_program(world: World) -> None:
    program = world.program
    assert program is not None
    if not program.answered_start:
        ops.spawn(world, program)
    elif program.stopping:
        world.inbox.append(program.exit(None, 15))
    else:
        world.inbox.append(program.exit(0, None))


def _command_is_due(world: World) -> bool:
    peer = world.peer
    if not ops.link_is_open(world) or peer.revoked or peer.open_command is None:
        return False
    return peer.open_command.controller_seq not in peer.delivered


def _result_is_due(world: World) -> bool:
    peer = world.peer
    if not ops.link_is_open(world) or peer.revoked or peer.open_command is not None:
        return False
    return awaited_result(world) is not None


def _give_result(world: World) -> None:
    payload = awaited_result(world)
    assert payload is not None
    world.peer.queue("semantic_tool.result", payload)
    ops.give_command(world)


def _program_is_due(world: World) -> bool:
    return world.is_running and world.program is not None and world.program.has_answer


_CALM: Final[tuple[tuple[Callable[[World], bool], Callable[[World], None]], ...]] = (
    (lambda w: w.write is not None, World.finish_write),
    (lambda w: w.is_running and bool(w.inbox), lambda w: w.turn(len(w.inbox))),
    (lambda w: w.is_running and ops.has_record(w), ops.record),
    (lambda w: not w.is_running and not w.is_over, World.start_process),
    (lambda w: w.peer.dial is not None, ops.answer_dial),
    (lambda w: ops.link_is_open(w) and w.peer.arrived > w.peer.cursor, ops.acknowledge),
    (lambda w: ops.link_is_open(w) and bool(w.peer.renewals), ops.renew),
    (lambda w: ops.link_is_open(w) and bool(w.peer.owed_acks), ops.acknowledge_result),
    (_program_is_due, _finish_program),
    (_command_is_due, ops.give_command),
    (_result_is_due, _give_result),
)


def _is_quiet(world: World) -> bool:
    return not _unfinished(world)


def _unfinished(world: World) -> str:
    """Return what is owed and not done, empty if nothing is."""
    if world.is_over:
        return ""
    image, peer = world.oracle.image, world.peer
    if not world.is_running or image is None:
        return "no process runs"
    if not ops.link_is_open(world):
        return "the runner is not connected"
    if image.next_source_seq - 1 > peer.cursor:
        return f"events after {peer.cursor} are not acknowledged"
    if not peer.revoked and peer.open_command is not None:
        return f"command {peer.open_command.controller_seq} has no answer"
    if image.turn is not None:
        return f"turn {image.turn.ordinal} is not over"
    return ""


def _audit(world: World) -> None:
    """Read the disk after a last power loss, with no help from the product."""
    before = world.oracle.image
    world.lose_power()
    found = world.surviving()
    if found != [before]:
        raise Violation("I8", "a quiet runner's state does not survive a power loss")
