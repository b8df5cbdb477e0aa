"""Two controllers of one run, two runners of one identity (K07, P07, A06, A07; R7, R8).

What it breaks shows as I16, or as I2 and I4 where both would write one history.
"""

from typing import Final

from controller_mock.core.actions import Reply
from protocol.errors import ErrorCode, PrpError
from tests.simulator.full.controller_node import ControllerNode
from tests.simulator.full.ops import may_start_runner
from tests.simulator.full.runner_node import RunnerNode
from tests.simulator.full.side import Side
from tests.simulator.full.world import World
from tests.simulator.machine import Machine
from tests.simulator.option import Op, Option
from tests.simulator.options.rollback import copy_of, put
from tests.simulator.verdict import Violation

_CHANGES: Final = frozenset(
    {"create_exclusive", "write", "rename", "unlink", "truncate", "make_directory", "change_mode"}
)


# --- controllers --------------------------------------------------------------------------------


def take_over(world: World) -> None:
    """Cut a controller off and let another one begin on a copy of what it has stored."""
    former, world.controller = world.controller, None
    assert former is not None
    former.retire()
    world.retired.append(former)
    world.store = world.store.twin()
    _cut_off(world, former)
    world.trace.append("another controller takes over")
    world.seen.add("controller taken over")


def _cut_off(world: World, controller: ControllerNode) -> None:
    for connection in world.network.connections:
        if connection.listener is controller:
            for pipe in (connection.to_server, connection.to_client):
                pipe.chunks.clear()
            for end in (connection.client, connection.server):
                if end is not None and not end.is_closing() and end.protocol is not None:
                    end.lose()


def reach_again(world: World) -> None:
    """Break the connection, so that the runner may get through to the one that was replaced."""
    assert world.controller is not None
    world.trace.append("reset")
    _cut_off(world, world.controller)


def _may_reach(world: World) -> int:
    is_obeyed = world.side.authority.obeyed is world.controller is not None
    return 15 if world.retired and is_obeyed else 0


def may_take_over(world: World) -> int:
    controller = world.controller
    if controller is None or controller.is_fenced or world.retired or world.store.trouble:
        return 0
    if world.observers.is_contradicted or world.kept.get("revoked"):
        return 0
    # One that has no runner is no loss.
    return world.scaled("takeover", 2 if world.observers.is_connected else 0)


def ask_the_loser(world: World) -> None:
    """Give a command to a controller that was replaced; nobody must ever execute it."""
    loser = world.retired[0]
    if not loser.is_fenced:
        loser.queue("turn.start", b"{}", lambda _: None)


# --- runners ------------------------------------------------------------------------------------


def copy_directory(world: World) -> None:
    """Copy the state to another machine, and start a runner there with a ticket of its own."""
    copy, controller = copy_of(world.runner_machine.disk), world.controller
    if copy is None or controller is None:
        return
    machine = Machine(world.runner_machine.disk.mode, world.draws.seed + 1)
    machine.pass_time(world.now_ms)
    former = world.side
    side = Side(world, "runner", machine, world.settings)
    put(copy, machine.disk)
    side.oracle.continue_from(former.oracle)
    side.oracle.put_back(copy.image)
    side.is_put_back = world.observers.is_contradicted = True
    token = b"ticket_" + world.controller_machine.token_bytes(16).hex().encode()

    def answered(reply: Reply | BaseException) -> None:
        if world.side is not former or not isinstance(reply, Reply) or reply.code is not None:
            return
        if former.runner is not None:
            world.seen.add("two incarnations contend")
        former.name = "former"
        world.former.append(former)
        world.side = side
        world.kept.update({"ticket": token, "ticket at": world.now_ms})
        world.trace.append("another machine takes its place")
        world.start_runner(token)

    world.tap.know(token)
    controller.issue_ticket(token, answered)


def may_copy(world: World) -> int:
    controller = world.controller
    if controller is None or controller.is_fenced or world.runner is None or world.former:
        return 0
    return 0 if world.observers.is_contradicted or world.retired or world.is_over else 2


def start_twice(world: World) -> None:
    """Start a second process on the same directory (P07)."""
    second = RunnerNode(world.side, b"ticket_of_another")
    try:
        second.store.open()
    except PrpError as error:
        if error.code is not ErrorCode.STATE_LOCKED:
            raise Violation("I18", f"a second process ended as {error.code.value}") from error
        world.seen.add("second process refused")
    else:
        raise Violation("I16", "two processes have one state directory")
    finally:
        second.fs.kill()
    touched = [call.name for call in second.fs.calls if call.name in _CHANGES]
    if touched:
        raise Violation("I16", f"a second process did {touched[0]} before it was refused")


def _may_start_twice(world: World) -> int:
    is_held = world.runner is not None and not may_start_runner(world)
    return 1 if is_held and world.judge.armed is None else 0


FULL: Final = Option[World](
    "owners",
    families=("takeover", "contend", "start_twice"),
    ops=(
        Op("take over", may_take_over, take_over, "takeover"),
        Op("loser's command", lambda w: 1 if w.retired else 0, ask_the_loser, "takeover"),
        Op("reach the loser", _may_reach, reach_again, "takeover"),
        Op("copy directory", may_copy, copy_directory, "contend"),
        Op("start twice", _may_start_twice, start_twice, "start_twice"),
    ),
    sometimes=(
        "controller taken over",
        "replaced controller refused",
        "two incarnations contend",
        "superseded by a newer incarnation",
        "second process refused",
    ),
)
