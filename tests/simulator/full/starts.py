"""Where full schedules begin: nothing, or a run that calm production code has prepared.

It decides which beginnings there are. It refuses to write a state or a row by hand.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.simulator.disk import ROOT, Directory, File, Mode
from tests.simulator.draws import Draws
from tests.simulator.full import ops
from tests.simulator.full.entropy import seeded_library, silent_logs
from tests.simulator.full.scheduler import Scheduler
from tests.simulator.full.world import World
from tests.simulator.image import DIRECTORY, NAME
from tests.simulator.oracle import Oracle
from tests.simulator.profile import Profile
from tests.simulator.short.ops import PREPARE
from tests.simulator.short.world import USUAL_BYTES, settings_of
from tests.simulator.verdict import Violation

STARTS: Final = ("ready", "ready", "ready", "nothing")
STEPS_MAX: Final = 2_000


@dataclass(frozen=True)
class Start:
    """A state file, a store, and what the observers remember."""

    data: bytes
    tables: Any
    oracle: Oracle
    proven: frozenset[str]
    committed: int
    settled: dict[int, str]


def put_in_place(world: World, name: str) -> None:
    """Let the schedule begin where the start of this name leaves off, with no process."""
    if name == "nothing":
        return
    start = _start(world.kept.get("prepared for", PREPARE))
    disk = world.runner_machine.disk
    directory = Directory(0o700, disk.uid)
    entries = {DIRECTORY: disk.add(directory)}
    disk.directory(ROOT).entries.update(entries)
    disk.directory(ROOT).stable.update(entries)
    number = disk.add(File(0o600, disk.uid, bytearray(start.data), start.data))
    directory.entries[NAME] = directory.stable[NAME] = number
    world.oracle.continue_from(start.oracle)
    world.store.put(world.run_id, start.tables)
    world.tap.proven.update(start.proven)
    world.observers.committed = start.committed
    world.observers.settled = dict(start.settled)


@functools.cache
def _start(prepare: bytes) -> Start:
    world = World(Draws(0, {}), Profile({}), settings_of(*USUAL_BYTES), Mode.STRICT, 0)
    world.scheduler = Scheduler(world.draws.stream("schedule"), "first", 0)
    world.latency_ms = world.disk_latency_ms = (0,)
    with seeded_library(0), silent_logs():
        world.start_controller()
        ops.start_runner(world)
        _until(world, lambda: world.observers.is_connected)
        for command_type, payload in (("run.prepare", prepare), ("session.open", b"{}")):
            assert world.controller is not None
            world.controller.queue(command_type, payload, lambda _: None)
            _until(world, lambda: len(world.observers.settled) == len(_rows(world)) > 0)
        _until(world, lambda: world.observers.committed == world.oracle.produced)
        world.runner_died()
        world.put_down()
    disk = world.runner_machine.disk
    directory = disk.directory(disk.directory(ROOT).entries[DIRECTORY])
    file = disk.inodes[directory.entries[NAME]]
    assert isinstance(file, File)
    return Start(
        bytes(file.data),
        world.store.take(world.run_id),
        world.oracle,
        frozenset(world.tap.proven),
        world.observers.committed,
        world.observers.settled,
    )


def _rows(world: World) -> dict[int, Any]:
    return dict(world.store.rows(world.run_id))


def _until(world: World, holds: Callable[[], bool]) -> None:
    for _ in range(STEPS_MAX):
        if holds():
            return
        world.step()
    raise Violation("I20", "a calm start does not get ready")
