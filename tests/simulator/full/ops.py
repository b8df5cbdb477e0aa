"""What every schedule can do: let a task run, start processes, ask for things.

It decides weights and the draws of each step. It refuses to know what is right.
"""

from typing import Final

from controller_mock.core.actions import Reply
from protocol.limits import TICKET_TTL_MS
from tests.simulator.full.world import World
from tests.simulator.option import Op

OPEN_COMMANDS_MAX: Final = 3


def start_controller(world: World) -> None:
    world.start_controller()


def start_runner(world: World) -> None:
    """Have a fresh ticket made, and start a runner with it once it is durable."""
    controller = world.controller
    assert controller is not None
    token = b"ticket_" + world.controller_machine.token_bytes(16).hex().encode()
    world.kept["ticket asked"] = controller

    def answered(reply: Reply | BaseException) -> None:
        world.kept.pop("ticket asked", None)
        if isinstance(reply, Reply) and reply.code is None and world.runner is None:
            world.kept.update({"ticket": token, "ticket at": world.now_ms})
            world.start_runner(token)

    world.tap.know(token)
    controller.issue_ticket(token, answered)


def may_start_runner(world: World) -> bool:
    controller = world.controller
    if controller is None or world.runner is not None or world.is_over:
        return False
    return not controller.is_fenced and world.kept.get("ticket asked") is not controller


def is_stuck(world: World) -> bool:
    """Tell whether a runner holds a ticket that is too old to be of any use."""
    has_connected = world.kept.get("ticket") in world.tap.bought
    age_ms = world.now_ms - world.kept.get("ticket at", 0)
    is_told = world.kept.get("stopped") is world.runner
    return world.runner is not None and not has_connected and age_ms > TICKET_TTL_MS and not is_told


def restart(world: World) -> None:
    """Do as a supervisor does: stop the runner, so that it is started with a fresh ticket."""
    assert world.runner is not None
    world.kept["stopped"] = world.runner
    world.runner.stop(15)


def give_command(world: World) -> None:
    """Queue a command that the grammar of the options allows now."""
    assert world.controller is not None
    weighed = [(command.weight(world), command) for command in world.grammar]
    total = sum(weight for weight, _ in weighed)
    drawn = world.draws.stream("workload").choose("command", max(1, total))
    for weight, command in weighed:
        drawn -= weight
        if drawn < 0:
            world.trace.append(("queue", command.type))
            world.controller.queue(command.type, command.payload(world), lambda _: None)
            return


def may_command(world: World) -> bool:
    controller = world.controller
    if controller is None or controller.is_fenced or world.kept.get("revoked"):
        return False
    rows = world.store.rows(world.run_id)
    return len(rows) - len(world.observers.settled) < OPEN_COMMANDS_MAX


def ping(world: World) -> None:
    assert world.controller is not None
    world.controller.ping(lambda _: None)


OPS: Final[tuple[Op[World], ...]] = (
    Op("controller", lambda w: 150 if w.controller is None else 0, start_controller),
    Op("runner", lambda w: 250 if may_start_runner(w) else 0, start_runner),
    Op("restart", lambda w: 100 if is_stuck(w) else 0, restart),
    Op("command", lambda w: 30 if may_command(w) else 0, give_command),
    Op("ping", lambda w: 1 if w.controller is not None else 0, ping),
)
