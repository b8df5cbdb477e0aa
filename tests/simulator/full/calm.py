"""The end of a schedule: all faults stop, and what is left is judged.

It decides what progress is owed once faults have stopped (I20) and what a last power loss
may leave. It refuses to know how the schedule came to be as it is.
"""

from typing import Final

from tests.simulator import invariants
from tests.simulator.disk import File
from tests.simulator.full import ops
from tests.simulator.full.scheduler import Scheduler
from tests.simulator.full.world import World
from tests.simulator.verdict import Violation

STEPS_MAX: Final = 6_000
QUIET_MS_MAX: Final = 600_000


def calm_down(world: World) -> None:
    """Heal the world, run until it is quiet, and audit what was stored."""
    world.trace.append("heal")
    world.faults_are_on = False
    world.retired_died()
    for side in world.sides:
        side.judge.armed, side.loses_power = None, False
    world.store.trouble = None
    world.runner_machine.disk.is_read_only = False
    world.runner_machine.disk.capacity_bytes = None
    world.runner_machine.set_wall_right()
    world.controller_machine.set_wall_right()
    world.paused_until.clear()
    world.latency_ms, world.disk_latency_ms, world.segments = (0,), (0,), False
    world.programs.may_fail = False
    world.programs.is_hurried = True
    world.network.heal()
    world.scheduler = Scheduler(world.draws.stream("schedule"), "first", 0)
    _run_until_quiet(world)
    _audit(world)


def _run_until_quiet(world: World) -> None:
    began_ms = world.now_ms
    for _ in range(STEPS_MAX):
        if world.controller is None:
            ops.start_controller(world)
        elif ops.may_start_runner(world):
            ops.start_runner(world)
        elif ops.is_stuck(world):
            ops.restart(world)
        if not _unfinished(world):
            return
        if not world.step():
            world.pass_time(1_000)
        if world.now_ms - began_ms > QUIET_MS_MAX:
            break
    invariants.I20(_unfinished(world))


def _unfinished(world: World) -> str:
    """Return what is owed and not done, empty if nothing is."""
    if world.is_over:
        return ""
    image, observers = world.oracle.image, world.observers
    if world.runner is None or image is None:
        return "no runner runs"
    if world.side.judge.is_undecided:
        return "nobody knows which state is on the disk"
    if not observers.is_connected:
        return "the runner is not connected"
    if image.next_source_seq - 1 > observers.committed:
        return f"events after {observers.committed} are not committed"
    rows = world.store.rows(world.run_id)
    open_commands = len(rows) - len(observers.settled)
    if open_commands and not world.kept.get("revoked"):
        return f"{open_commands} commands have no answer"
    if image.turn is not None:
        return f"turn {image.turn.ordinal} is not over"
    return ""


def _audit(world: World) -> None:
    before = world.oracle.image
    _check_secrets(world)
    world.lose_power()
    if world.surviving() != [before]:
        raise Violation("I8", "a quiet runner's state does not survive a power loss")


def _check_secrets(world: World) -> None:
    """No ticket and no lease token is on the disk, in clear or in hex (I11)."""
    tap = world.tap
    tokens = [token for name, token in tap.tokens.items() if name in tap.proven]
    for inode in world.runner_machine.disk.inodes.values():
        if isinstance(inode, File):
            data = bytes(inode.data)
            for token in tokens:
                if token in data or token.hex().encode() in data:
                    raise Violation("I11", "a token is on the disk")
