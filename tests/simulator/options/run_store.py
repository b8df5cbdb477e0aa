"""A run's log whose host dies, whose disk fails, and whose file somebody touches (M01-M08)."""

from typing import Final

from protocol.errors import ErrorCode, PrpError
from runnerd.runs.run_store import RunStore
from tests.simulator.disk import ROOT, File
from tests.simulator.disk_process import DiskProcess
from tests.simulator.option import Op, Option
from tests.simulator.options.storage import draw_fault, draw_power_loss
from tests.simulator.runs.conversations import Conversations
from tests.simulator.runs.judge import FOLDER, NAME, RUN
from tests.simulator.runs.world import World
from tests.simulator.verdict import Violation

_MIGRATION_CALLS: Final = 60
_GARBAGE: Final = (b'{"version":1,"runId":"run-1","seq', bytes(40), b"{", b"\xff" * 5000)


def crash(world: World) -> None:
    """Kill the host between two of its calls."""
    world.trace.append("killed")
    world.seen.add("host killed")
    world.host_died()


def lose_power(world: World) -> None:
    """End everything on the machine."""
    world.seen.add("power loss")
    world.lose_power()


def arm(world: World) -> None:
    """Let one of the next disk calls fail, fall short or be the last."""
    world.armed = draw_fault(world.draws.stream("disk"))


def arm_power_loss(world: World) -> None:
    """Let power be lost in one of the next disk calls (S02)."""
    world.armed = draw_power_loss(world.draws.stream("disk"))
    world.loses_power = True


def _file(world: World) -> File | None:
    disk = world.machine.disk
    folder = disk.directory(ROOT).entries.get(FOLDER)
    number = None if folder is None else disk.directory(folder).entries.get(NAME)
    found = None if number is None else disk.inodes[number]
    return found if isinstance(found, File) and len(found.data) > 0 else None


def tear(world: World) -> None:
    """Leave part of a record behind the log, as a dead writer does (M01)."""
    file = _file(world)
    assert file is not None
    garbage = world.draws.stream("disk").pick("garbage", _GARBAGE)
    world.trace.append(("torn", len(garbage)))
    file.data.extend(bytes(file.tail) + garbage)
    _settle(world, file)


def _settle(world: World, file: File) -> None:
    """Make what somebody else has written, and the names as they are, durable."""
    folder = world.machine.disk.directory(world.machine.disk.directory(ROOT).entries[FOLDER])
    folder.stable = dict(folder.entries)
    folder.operations.clear()
    file.pieces.clear()
    file.tail = 0
    file.stable, file.stable_tail, file.is_cut = bytes(file.data), 0, False


def damage(world: World) -> None:
    """Break the log in front of its last line (M02); from now on nobody may open it."""
    file = _file(world)
    assert file is not None
    stream = world.draws.stream("disk")
    lines = bytes(file.data).split(b"\n")[:-1]
    place = stream.choose("line", len(lines) - 1)
    match stream.choose("damage", 6):
        case 0:
            lines[place], lines[place + 1] = lines[place + 1], lines[place]
        case 1:
            del lines[place]
        case 2:
            lines.insert(place, lines[place])
        case 3:
            lines[place] = bytes(len(lines[place]))
        case 4:
            lines[place] = lines[place][: len(lines[place]) // 2]
        case _:
            broken = bytearray(lines[place])
            bit = stream.choose("bit", 8 * len(broken))
            broken[bit // 8] ^= 1 << bit % 8
            lines[place] = bytes(broken)
    file.data[:] = b"\n".join([*lines, b""])
    _settle(world, file)
    world.trace.append(("damaged", place))
    world.judge.damaged = bytes(file.data)


def _may_damage(world: World) -> int:
    if world.host is not None or world.is_over or world.judge.damaged is not None:
        return 0
    return 2 if len(world.judge.log().lines) > 2 and not world.judge.log().damage else 0


def compete(world: World) -> None:
    """Let another process want the run at the same time (M06)."""
    store = _rival(world)
    try:
        store.open_run(RUN)
    except PrpError as error:
        if error.code is not ErrorCode.RUN_STATE_LOCKED:
            raise Violation("I18", f"a second writer got {error.code.value}") from error
        world.seen.add("second writer refused")
    else:
        raise Violation("I16", "two writers have one run open")
    finally:
        store.close()


def read_beside(world: World) -> None:
    """Let another process read the log while it is written."""
    store, before = _rival(world), world.judge.content()
    try:
        world.judge.found([record.sequence for record in store.scan(RUN)], "a reader")
        world.seen.add("read beside a writer")
    finally:
        store.close()
    if world.judge.content() != before:
        raise Violation("I16", "a reader changed the log under its writer")


def _rival(world: World) -> RunStore:
    process = DiskProcess(world.machine.disk)
    return RunStore(process, world.machine, world.locks, f"/{FOLDER}", lock_timeout_ms=0)


def _is_open(world: World) -> bool:
    return world.host is not None and world.host.run is not None


def begin(world: World) -> None:
    """Let there be an old conversation."""
    if world.profile.has("old_session"):
        world.conversations = Conversations(world.machine.disk)
        # A migration happens once, so a fault in it is worth waiting for.
        _, fault = draw_fault(world.draws.stream("disk"))
        world.armed = (world.draws.stream("disk").between("call", 1, _MIGRATION_CALLS), fault)


RUNS: Final = Option[World](
    "run store",
    families=("crash", "power", "disk", "torn", "damage", "rival", "old_session", "other_config"),
    begin=begin,
    ops=(
        Op("kill host", lambda w: w.scaled("crash", 2) if w.host else 0, crash, "crash"),
        Op("power loss", lambda w: w.scaled("power", 2), lose_power, "power"),
        Op("disk fault", lambda w: 0 if w.armed else w.scaled("disk", 4), arm, "disk"),
        Op(
            "power fault",
            lambda w: 0 if w.armed else w.scaled("power", 2),
            arm_power_loss,
            "power",
        ),
        Op(
            "tear",
            lambda w: 12 if w.host is None and _file(w) and w.judge.damaged is None else 0,
            tear,
            "torn",
        ),
        Op("damage", _may_damage, damage, "damage"),
        Op("second writer", lambda w: 2 if _is_open(w) else 0, compete, "rival"),
        Op("reader", lambda w: 2 if _is_open(w) and _file(w) else 0, read_beside, "rival"),
    ),
    sometimes=(
        "host killed",
        "power loss",
        "fault at write",
        "fault at sync",
        "power loss in a disk call",
        "power loss tore a file",
        "torn tail repaired",
        "damage refused",
        "second writer refused",
        "read beside a writer",
        "conversation migrated",
        "migration resumed",
        "other configuration refused",
    ),
)
