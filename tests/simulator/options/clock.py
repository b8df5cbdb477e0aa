"""Clocks that jump, machines that sleep, messages that come late (P03, P04, T01-T03)."""

from typing import Final

from tests.simulator.full.world import World as FullWorld
from tests.simulator.option import Op, Option
from tests.simulator.short.world import World

HOUR_MS: Final = 3_600_000
STEPS_MS: Final = (-1, 1_000, -1_000, -29_999, -30_000, -HOUR_MS, HOUR_MS, -20 * 365 * 24 * HOUR_MS)


def pass_time(world: World) -> None:
    """Let some time go by in which nothing runs."""
    longest = world.draws.stream("clock").pick("up to", (1, 300, 6_000, 40_000))
    world.machine.pass_time(1 + world.draws.stream("clock").choose("passed", longest))


def reach_lease_end(world: World) -> None:
    """Sleep until the very end of the lease, or a millisecond before or after it."""
    boot_end, _ = world.authority_ends
    beside = world.draws.stream("clock").pick("beside", (0, -1, 1))
    world.machine.pass_time(max(0, boot_end - world.machine.boot_ms + beside))
    world.seen.add("lease end reached")


def has_lease(world: World) -> bool:
    return world.is_running and world.authority_ends[0] > world.machine.boot_ms


def step_wall(world: World) -> None:
    """Set the runner's wall clock."""
    world.machine.step_wall(world.draws.stream("clock").pick("wall step", STEPS_MS))


def stop_process(world: FullWorld) -> None:
    """Let a process stand still while its kernel goes on (SIGSTOP)."""
    stream = world.draws.stream("clock")
    name = stream.pick("who", ("runner", "controller"))
    for_ms = stream.pick("for", (300, 3_000, 12_000, 29_000, 40_000, 90_000))
    world.trace.append(("stopped", name, for_ms))
    if name == "runner":
        _note_expiry(world, for_ms)
    world.paused_until[name] = world.now_ms + for_ms
    world.seen.add(f"{name} paused")


def suspend(world: FullWorld) -> None:
    """Put the runner's machine to sleep."""
    for_ms = world.draws.stream("clock").pick("for", (1_000, 20_000, 31_000, HOUR_MS))
    world.trace.append(("suspended", for_ms))
    _note_expiry(world, for_ms)
    world.suspend_runner(for_ms)
    world.seen.add("machine suspended")


def _note_expiry(world: FullWorld, for_ms: int) -> None:
    if world.side.authority.ends_within(for_ms):
        world.seen.add("lease expired during a pause")


def step_walls(world: FullWorld) -> None:
    """Set a wall clock."""
    stream = world.draws.stream("clock")
    machine = stream.pick("whose", (world.runner_machine, world.controller_machine))
    machine.step_wall(stream.pick("wall step", STEPS_MS))


FULL: Final = Option[FullWorld](
    "clock",
    families=("pause", "suspension", "wall"),
    ops=(
        Op("stop", lambda w: w.scaled("pause", 1), stop_process, "pause"),
        Op("suspend", lambda w: w.scaled("suspension", 1), suspend, "suspension"),
        Op("wall step", lambda w: w.scaled("wall", 1), step_walls, "wall"),
    ),
    sometimes=(
        "runner paused",
        "controller paused",
        "machine suspended",
        "lease renewed",
        "renewal reply lost",
        "lease expired",
        "lease expired during a pause",
        "told too late",
    ),
)
SHORT: Final = Option[World](
    "clock",
    families=("pause", "lease_end", "wall"),
    ops=(
        Op("pause", lambda w: w.scaled("pause", 1), pass_time, "pause"),
        Op(
            "lease end",
            lambda w: w.scaled("lease_end", 1) if has_lease(w) else 0,
            reach_lease_end,
            "lease_end",
        ),
        Op("wall step", lambda w: w.scaled("wall", 1), step_wall, "wall"),
    ),
    sometimes=("lease end reached", "told too late", "lease expired"),
)
