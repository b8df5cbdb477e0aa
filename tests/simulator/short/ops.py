"""The steps that every short history can take: the loop, the peer and the program, all calm.

It decides weights and the draws of each step. It refuses to know what is right: the world
and its oracle judge.
"""

from collections.abc import Callable
from typing import Final

from protocol.commands import WireCommand
from protocol.envelope import Ack, CommandResultAck, Deliver, Ping
from protocol.ids import SourceSeq
from tests.simulator.profile import STORM
from tests.simulator.short.program import Program
from tests.simulator.short.run_log import log_of
from tests.simulator.short.talker import Talker
from tests.simulator.short.world import World

STANDING_DEADLINE_MS: Final = 50
PREPARE: Final = (
    b'{"provider":{"kind":"command","argv":["prog","arg"],"cwd":"/tmp","envNames":["LANG"]}}'
)


def link_is_open(world: World) -> bool:
    link = world.peer.link
    return link is not None and link.is_open


# --- the runner's own loop --------------------------------------------------------------------


def deliver(world: World) -> None:
    """Feed what waits; some of it may come a turn later."""
    waiting = len(world.inbox)
    world.turn(waiting - world.draws.stream("schedule").choose("left waiting", waiting))


def pass_deadline(world: World) -> None:
    """Jump to the next deadline; one that stands already is waited for a little."""
    deadline = world.deadline()
    assert deadline is not None
    left_ms = deadline - world.machine.boot_ms
    world.machine.pass_time(left_ms if left_ms > 0 else STANDING_DEADLINE_MS)
    world.turn(0)


def has_deadline(world: World) -> bool:
    return world.deadline() is not None


def has_record(world: World) -> bool:
    log = log_of(world)
    return log is not None and log.has_order(world)


def record(world: World) -> None:
    """Make the run's log say what the runner asked for."""
    log = log_of(world)
    assert log is not None
    log.carry_out(world)


# --- the peer ---------------------------------------------------------------------------------


def answer_dial(world: World) -> None:
    """Welcome the runner."""
    peer = world.peer
    dial, peer.dial = peer.dial, None
    assert dial is not None
    world.inbox.append(peer.welcome(dial, world.peer_now_ms))


def acknowledge(world: World) -> None:
    """Commit what arrived, or some of it, and say so."""
    peer = world.peer
    news = peer.arrived - peer.cursor
    left = world.draws.stream("peer").choose("uncommitted", news) if news else 0
    peer.cursor = peer.arrived - left
    world.inbox.append(peer.says(Ack(SourceSeq(peer.cursor)), world.peer_now_ms))


def give_command(world: World) -> None:
    """Hand out the lowest open command, or a new one that fits what is going on."""
    peer = world.peer
    command = peer.open_command or next_command(world)
    if command is not None:
        peer.delivered.add(command.controller_seq)
        world.inbox.append(peer.says(Deliver(command), world.peer_now_ms))


def next_command(world: World) -> WireCommand | None:
    """Queue a command that the grammar of the options allows now."""
    weights = [command.weight(world) for command in world.grammar]
    place = world.draws.stream("workload").weighed("command", weights)
    if place is None:
        return None
    command = world.grammar[place]
    return world.peer.queue(command.type, command.payload(world))


def renew(world: World) -> None:
    """Answer the oldest renewal that waits."""
    peer = world.peer
    renewed = peer.renewed(peer.renewals.pop(0), world.peer_now_ms)
    world.inbox.append(peer.says(renewed, world.peer_now_ms))


def acknowledge_result(world: World) -> None:
    """Tell the runner that the result of a terminal command is stored."""
    result = world.peer.owed_acks.pop(0)
    ack = CommandResultAck(
        command_id=result.command_id,
        command_type=result.command_type,
        controller_seq=result.controller_seq,
        status=result.status,
    )
    world.inbox.append(world.peer.says(ack, world.peer_now_ms))


def ping(world: World) -> None:
    """Ask for a pong."""
    world.inbox.append(world.peer.says(Ping(), world.peer_now_ms))


# --- the program --------------------------------------------------------------------------------


def answer_order(world: World) -> None:
    """Let the program do what it was ordered, or what programs do."""
    program = world.program
    assert program is not None
    stream = world.draws.stream("program")
    if not program.answered_start:
        spawn(world, program)
        return
    may_print = program.released and program.reading is not None and not program.stopping
    if may_print and isinstance(program, Talker) and not stream.chance("exit", 10):
        world.inbox.append(program.speak(stream))
        return
    may_print = may_print and not isinstance(program, Talker)
    if may_print and not stream.chance("exit", 25):
        assert program.reading is not None
        count = stream.between("lines", 1, min(4, program.reading.lines_max))
        first = program.lines_accepted + program.lines + 1
        lines = tuple(world.line_text(first + place) for place in range(count))
        world.inbox.append(program.output(lines))
        return
    signal = 15 if program.stopping else None
    world.inbox.append(program.exit(None if signal else 0, signal))


def spawn(world: World, program: Program) -> None:
    """Let the program come to be: an effect on the outside world."""
    world.oracle.program_spawned(program.mark, program.controller_seq, program.replaces)
    world.inbox.append(program.start(fails=False))


# --- which of it comes next ---------------------------------------------------------------------

STEPS: Final[tuple[tuple[str, Callable[[World], None]], ...]] = (
    ("deliver", deliver),
    ("write", World.finish_write),
    ("answer dial", answer_dial),
    ("start", World.start_process),
    ("command", give_command),
    ("program", answer_order),
    ("acknowledge", acknowledge),
    ("renew", renew),
    ("result ack", acknowledge_result),
    ("deadline", pass_deadline),
    ("ping", ping),
    ("record", record),
)


def weigh(world: World) -> tuple[int, ...]:
    """Return how likely each of the steps is now, in their order; 0 while it cannot happen."""
    peer, runs = world.peer, world.is_running
    is_open = peer.link is not None and peer.link.is_open
    return (
        40 if runs and world.inbox else 0,
        30 if world.write is not None else 0,
        30 if peer.dial is not None else 0,
        0 if runs or world.is_over else 60,
        14 if is_open and peer.may_command else 0,
        _program(world.program) if runs and world.program is not None else 0,
        _acknowledge(world) if is_open and peer.arrived > peer.cursor else 0,
        8 if is_open and peer.renewals else 0,
        12 if is_open and peer.owed_acks else 0,
        1 if world.deadline() is not None else 0,
        1 if is_open else 0,
        30 if runs and has_record(world) else 0,
    )


def _acknowledge(world: World) -> int:
    # A controller that is slow to commit lets the outbox fill.
    return 2 if world.profile.level("pressure") == STORM else 12


def _program(program: Program) -> int:
    if not program.has_answer:
        return 0
    is_waited_for = not program.answered_start or program.reading is not None or program.stopping
    return 20 if is_waited_for else 2
