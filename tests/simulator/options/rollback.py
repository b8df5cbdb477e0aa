"""Histories that were put back: an older state file, a controller that forgot (S15, K03)."""

from dataclasses import dataclass
from typing import Final

from tests.simulator.disk import ROOT, Directory, Disk, File
from tests.simulator.full.world import World as FullWorld
from tests.simulator.image import DIRECTORY, NAME, Image, parse
from tests.simulator.option import Op, Option
from tests.simulator.short.world import World


@dataclass(frozen=True)
class _Copy:
    data: bytes
    image: Image


def _state_directory(disk: Disk) -> Directory | None:
    number = disk.directory(ROOT).entries.get(DIRECTORY)
    found = None if number is None else disk.inodes[number]
    return found if isinstance(found, Directory) else None


def copy_of(disk: Disk) -> _Copy | None:
    """Return the state file of a machine, None if there is no whole one."""
    directory = _state_directory(disk)
    number = None if directory is None else directory.entries.get(NAME)
    file = None if number is None else disk.inodes[number]
    image = parse(bytes(file.data)) if isinstance(file, File) else None
    return _Copy(bytes(file.data), image) if isinstance(file, File) and image else None


def put(copy: _Copy, disk: Disk) -> None:
    """Let the state file of a machine be this one; its directory is made if it is missing."""
    directory = _state_directory(disk)
    if directory is None:
        directory = Directory(0o700, disk.uid)
        entries = {DIRECTORY: disk.add(directory)}
        disk.directory(ROOT).entries.update(entries)
        disk.directory(ROOT).stable.update(entries)
    number = disk.add(File(0o600, disk.uid, bytearray(copy.data), copy.data))
    directory.entries[NAME] = directory.stable[NAME] = number
    directory.operations.clear()


def keep_copy(world: World) -> None:
    """Remember the present state file."""
    if (copy := copy_of(world.machine.disk)) is not None:
        world.kept["state"] = copy


def put_back(world: World) -> None:
    """Put the older state file in place of the present one."""
    copy = world.kept["state"]
    assert isinstance(copy, _Copy)
    put(copy, world.machine.disk)
    world.trace.append("older state put back")
    world.seen.add("state file put back")
    world.rolled_back = True
    world.judge.put_back()
    world.oracle.put_back(copy.image)


def may_copy(world: World) -> int:
    # A copy is worth most while little has happened.
    is_needed = "state" not in world.kept and world.is_running and world.write is None
    return world.scaled("put_back", 3) if is_needed else 0


def may_put_back(world: World) -> int:
    copy = world.kept.get("state")
    if world.is_running or world.is_over or world.rolled_back or not isinstance(copy, _Copy):
        return 0
    # What the peer has committed shows that the state is old; less could not be noticed.
    is_behind = copy.image.next_source_seq <= world.peer.cursor
    return world.scaled("put_back", 30) if is_behind else 0


def forget(world: World) -> None:
    """Welcome the runner with a cursor below what it was told before."""
    dial, world.peer.dial = world.peer.dial, None
    assert dial is not None
    cursor = world.draws.stream("peer").choose("forgotten", world.acked_now)
    world.inbox.append(world.peer.welcome(dial, world.peer_now_ms, cursor=cursor))


# --- the full stack -----------------------------------------------------------------------------


def keep_full_copy(world: FullWorld) -> None:
    """Remember the runner's present state file."""
    if (copy := copy_of(world.runner_machine.disk)) is not None:
        world.kept["state"] = copy


def put_full_back(world: FullWorld) -> None:
    """Put the older state file in place of the present one; the runner must notice (R5)."""
    copy = world.kept["state"]
    put(copy, world.runner_machine.disk)
    world.trace.append("older state put back")
    world.judge.put_back()
    world.oracle.put_back(copy.image)
    world.side.is_put_back = world.observers.is_contradicted = True


def may_put_full_back(world: FullWorld) -> int:
    copy = world.kept.get("state")
    if world.runner is not None or not isinstance(copy, _Copy) or not _may_contradict(world):
        return 0
    # What the controller has committed shows that the state is old; less could not be noticed.
    return 20 if copy.image.next_source_seq <= world.observers.committed else 0


def may_keep_store(world: FullWorld) -> int:
    # A checkpoint without events has its own option.
    return 1 if world.controller is not None and not world.store.is_sparse(world.run_id) else 0


def keep_store(world: FullWorld) -> None:
    """Remember what the controller has stored."""
    world.kept["store"] = (world.observers.committed, world.store.take(world.run_id))


def restore_store(world: FullWorld) -> None:
    """Start the controller's next process on an older store; the runner must notice (R6)."""
    committed, tables = world.kept["store"]
    world.store.put(world.run_id, tables)
    world.trace.append(("older store put back", committed))
    world.observers.store_put_back(committed)
    world.observers.is_contradicted = True


def may_restore_store(world: FullWorld) -> int:
    if world.controller is not None or "store" not in world.kept or not _may_contradict(world):
        return 0
    image = world.oracle.image
    return 60 if image is not None and world.kept["store"][0] < image.acked_source_seq else 0


def _may_contradict(world: FullWorld) -> bool:
    return not world.observers.is_contradicted and not world.is_over


FULL: Final = Option[FullWorld](
    "rollback",
    families=("put_back", "old_store"),
    ops=(
        Op("copy state", lambda w: 2 if w.runner else 0, keep_full_copy, "put_back"),
        Op("put state back", may_put_full_back, put_full_back, "put_back"),
        Op("copy store", may_keep_store, keep_store, "old_store"),
        Op("put store back", may_restore_store, restore_store, "old_store"),
        Op(
            "controller ends",
            lambda w: 1 if w.controller and "store" in w.kept else 0,
            FullWorld.controller_died,
            "old_store",
        ),
    ),
    sometimes=("runner rollback detected", "controller rollback detected"),
)
SHORT: Final = Option[World](
    "rollback",
    families=("put_back", "forgetful"),
    ops=(
        Op("copy", may_copy, keep_copy, "put_back"),
        Op("put back", may_put_back, put_back, "put_back"),
        Op(
            "forget",
            lambda w: 1 if w.peer.dial is not None and w.acked_now > 0 else 0,
            forget,
            "forgetful",
        ),
    ),
    sometimes=("runner rollback detected", "controller rollback detected"),
)
