"""Histories that were put back: an older state file, a controller that forgot (S15, K03)."""

from dataclasses import dataclass
from typing import Final

from tests.simulator.disk import ROOT, Directory, File
from tests.simulator.image import DIRECTORY, NAME, Image, parse
from tests.simulator.option import Op, Option
from tests.simulator.short.world import World


@dataclass(frozen=True)
class _Copy:
    data: bytes
    image: Image


def _state_directory(world: World) -> Directory | None:
    disk = world.machine.disk
    number = disk.directory(ROOT).entries.get(DIRECTORY)
    found = None if number is None else disk.inodes[number]
    return found if isinstance(found, Directory) else None


def keep_copy(world: World) -> None:
    """Remember the present state file."""
    directory = _state_directory(world)
    number = None if directory is None else directory.entries.get(NAME)
    file = None if number is None else world.machine.disk.inodes[number]
    image = parse(bytes(file.data)) if isinstance(file, File) else None
    if isinstance(file, File) and image is not None:
        world.kept["state"] = _Copy(bytes(file.data), image)


def put_back(world: World) -> None:
    """Put the older state file in place of the present one."""
    copy, directory = world.kept["state"], _state_directory(world)
    assert isinstance(copy, _Copy)
    assert directory is not None
    disk = world.machine.disk
    number = disk.add(File(0o600, disk.uid, bytearray(copy.data), copy.data))
    directory.entries[NAME] = directory.stable[NAME] = number
    directory.operations.clear()
    world.trace.append("older state put back")
    world.seen.add("state file put back")
    world.rolled_back = True
    world.judge.put_back()
    world.oracle.put_back(copy.image)


def may_put_back(world: World) -> int:
    copy = world.kept.get("state")
    if world.is_running or world.is_over or world.rolled_back or not isinstance(copy, _Copy):
        return 0
    # What the peer has committed shows that the state is old; less could not be noticed.
    return 3 if copy.image.next_source_seq <= world.peer.cursor else 0


def forget(world: World) -> None:
    """Welcome the runner with a cursor below what it was told before."""
    dial, world.peer.dial = world.peer.dial, None
    assert dial is not None
    cursor = world.draws.stream("peer").choose("forgotten", world.acked_now)
    world.inbox.append(world.peer.welcome(dial, world.peer_now_ms, cursor=cursor))


SHORT: Final = Option[World](
    "rollback",
    families=("put_back", "forgetful"),
    ops=(
        Op("copy", lambda w: 1 if w.is_running and w.write is None else 0, keep_copy, "put_back"),
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
