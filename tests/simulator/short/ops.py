"""The steps that every short history can take: the loop, the peer and the program, all calm.

It decides weights and the draws of each step. It refuses to know what is right: the world
and its oracle judge.
"""

from typing import Final

from protocol.commands import WireCommand
from protocol.envelope import Ack, CommandResultAck, Deliver, Ping
from protocol.ids import SourceSeq
from tests.simulator.option import Op
from tests.simulator.profile import STORM
from tests.simulator.short.program import Program
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


def may_acknowledge(world: World) -> int:
    if not link_is_open(world) or world.peer.arrived <= world.peer.cursor:
        return 0
    # A controller that is slow to commit lets the outbox fill.
    return 2 if world.profile.level("pressure") == STORM else 12


def give_command(world: World) -> None:
    """Hand out the lowest open command, or a new one that fits what is going on."""
    peer = world.peer
    command = peer.open_command or next_command(world)
    if command is not None:
        peer.delivered.add(command.controller_seq)
        world.inbox.append(peer.says(Deliver(command), world.peer_now_ms))


def next_command(world: World) -> WireCommand | None:
    """Queue a command that the grammar of the options allows now."""
    weighed = [(command.weight(world), command) for command in world.grammar]
    total = sum(weight for weight, _ in weighed)
    if total == 0:
        return None
    drawn = world.draws.stream("workload").choose("command", total)
    for weight, command in weighed:
        drawn -= weight
        if drawn < 0:
            return world.peer.queue(command.type, command.payload(world))
    raise AssertionError("a draw is below the sum of the weights")


def may_command(world: World) -> int:
    peer = world.peer
    if not link_is_open(world) or peer.revoked:
        return 0
    pending = peer.open_command
    if pending is None:
        return 14
    return 0 if pending.controller_seq in peer.delivered else 14


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


def program_weight(world: World) -> int:
    program = world.program
    if program is None or not world.is_running or not program.has_answer:
        return 0
    is_waited_for = not program.answered_start or program.reading is not None or program.stopping
    return 20 if is_waited_for else 2


OPS: Final[tuple[Op[World], ...]] = (
    Op("deliver", lambda w: 40 if w.is_running and w.inbox else 0, deliver),
    Op("write", lambda w: 30 if w.write is not None else 0, World.finish_write),
    Op("answer dial", lambda w: 30 if w.peer.dial is not None else 0, answer_dial),
    Op("start", lambda w: 0 if w.is_running or w.is_over else 60, World.start_process),
    Op("command", may_command, give_command),
    Op("program", program_weight, answer_order),
    Op(
        "acknowledge",
        may_acknowledge,
        acknowledge,
    ),
    Op("renew", lambda w: 8 if link_is_open(w) and w.peer.renewals else 0, renew),
    Op(
        "result ack",
        lambda w: 12 if link_is_open(w) and w.peer.owed_acks else 0,
        acknowledge_result,
    ),
    Op("deadline", lambda w: 1 if has_deadline(w) else 0, pass_deadline),
    Op("ping", lambda w: 1 if link_is_open(w) else 0, ping),
)
