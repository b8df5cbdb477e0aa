"""Where short histories begin: nothing, or a state that calm production code has written.

It decides which beginnings there are. It refuses to write a state by hand.
"""

import copy
import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.simulator.disk import ROOT, Directory, File, Mode
from tests.simulator.draws import Draws
from tests.simulator.image import DIRECTORY, NAME
from tests.simulator.oracle import Oracle
from tests.simulator.profile import STORM, Profile
from tests.simulator.short import ops
from tests.simulator.short.calm import calm_step
from tests.simulator.short.orders import perform
from tests.simulator.short.peer import Peer
from tests.simulator.short.program import Program
from tests.simulator.short.talker import GREETING, PREPARE, Talker
from tests.simulator.short.told import note
from tests.simulator.short.world import CRAMMED_BYTES, USUAL_BYTES, World, settings_of
from tests.simulator.verdict import Violation

JOURNAL_COMMANDS: Final = 127
FACT_BYTES: Final = 700
"""More than a fact of a session costs on the wire."""


@dataclass(frozen=True)
class Start:
    """A state file, and what the world around it remembers."""

    data: bytes
    oracle: Oracle
    peer: Peer
    program: Program | None


def put_in_place(world: World, name: str) -> None:
    """Let the history begin where the start of this name leaves off, with no process."""
    if world.profile.has("dialogue"):
        name = _SPEAKING.get(name, name)
    if world.profile.level("reused") == STORM and name == "nothing":
        # Only a journal that is full forgets.
        name = "long journal"
    name = world.kept.get("start", name)
    world.start_name = name
    start = _start(name)
    if start is None:
        return
    disk = world.machine.disk
    directory = Directory(0o700, disk.uid)
    entries = {DIRECTORY: disk.add(directory)}
    disk.directory(ROOT).entries.update(entries)
    disk.directory(ROOT).stable.update(entries)
    number = disk.add(File(0o600, disk.uid, bytearray(start.data), start.data))
    directory.entries[NAME] = directory.stable[NAME] = number
    world.oracle.continue_from(start.oracle)
    world.peer.continue_from(start.peer)
    world.program = copy.copy(start.program)


@functools.cache
def _start(name: str) -> Start | None:
    script = _SCRIPTS[name]
    if script is None:
        return None
    profile = Profile({})
    settings = settings_of(*(CRAMMED_BYTES if name == "nearly full" else USUAL_BYTES))
    world = World(Draws(0, {}), profile, settings, Mode.STRICT, note, perform)
    script(world)
    world.crash()
    number = world.machine.disk.directory(ROOT).entries[DIRECTORY]
    file = world.machine.disk.inodes[world.machine.disk.directory(number).entries[NAME]]
    assert isinstance(file, File)
    return Start(bytes(file.data), world.oracle, world.peer, world.program)


def _step_without_peer(world: World) -> None:
    """Let the runner alone go on: its write, or what waits for it."""
    if world.write is not None:
        world.finish_write()
    elif world.inbox:
        world.turn(len(world.inbox))
    elif world.program is not None and not world.program.answered_start:
        ops.answer_order(world)


def _settle(world: World) -> None:
    while calm_step(world):
        continue


def _command(world: World, command_type: str, payload: bytes = b"{}") -> None:
    world.peer.queue(command_type, payload)
    ops.give_command(world)


def _connected(world: World) -> None:
    world.start_process()
    _settle(world)
    if not ops.link_is_open(world):
        raise Violation("I20", "a calm start does not connect")


def _ready(world: World, prepare: bytes = ops.PREPARE) -> None:
    _connected(world)
    for command_type, payload in (("run.prepare", prepare), ("session.open", b"{}")):
        _command(world, command_type, payload)
        _settle(world)


def _in_turn(world: World) -> None:
    """A live turn with lines that nobody acknowledged."""
    _ready(world)
    _command(world, "turn.start")
    while world.program is None or not world.program.released:
        _step_without_peer(world)
    for _ in range(2):
        ops.answer_order(world)
        _step_without_peer(world)
        _step_without_peer(world)


def _ready_to_speak(world: World) -> None:
    _ready(world, PREPARE)


def _talking(world: World) -> None:
    """A live turn whose program has asked and called, all of it committed."""
    _ready_to_speak(world)
    _command(world, "turn.start")
    while world.program is None or not world.program.released:
        _step_without_peer(world)
    _settle_but_the_program(world)
    program = world.program
    assert isinstance(program, Talker)
    world.inbox.append(program.say(*GREETING))
    _settle_but_the_program(world)
    if not program.told_through:
        raise Violation("I20", "a program that is ready was not greeted")


def _settle_but_the_program(world: World) -> None:
    while world.write is not None or world.inbox or world.peer.arrived > world.peer.cursor:
        if world.write is not None:
            world.finish_write()
        elif world.inbox:
            world.turn(len(world.inbox))
        else:
            ops.acknowledge(world)


def _nearly_full(world: World) -> None:
    """An outbox that has room for a few more facts and no acknowledgement."""
    _ready(world)
    kinds = itertools.cycle(("session.close", "session.open"))
    while world.oracle.stored_bytes < CRAMMED_BYTES[0] - 2 * FACT_BYTES:
        _command(world, next(kinds))
        for _ in range(3):
            _step_without_peer(world)


def _long_journal(world: World) -> None:
    """As many answered commands as the journal holds, but one."""
    _ready(world)
    while len(world.peer.commands) < JOURNAL_COMMANDS:
        _command(world, "session.snapshot")
        _settle(world)


_SCRIPTS: Final[dict[str, Callable[[World], None] | None]] = {
    "nothing": None,
    "ready": _ready,
    "in turn": _in_turn,
    "long journal": _long_journal,
    "nearly full": _nearly_full,
    "ready to speak": _ready_to_speak,
    "talking": _talking,
}
_SPEAKING: Final = {"ready": "ready to speak", "in turn": "talking"}
"""Where a history with a dialogue begins instead."""
STARTS: Final = (*["ready"] * 6, *["in turn"] * 6, *["nothing"] * 3, "long journal")
"""As often as each is worth: a long journal costs most."""
