"""What every history of a run can do: the host's next move, and what the outside does.

It decides weights and the draws of each step. It refuses to know what is right.
"""

from typing import Final

from tests.simulator.option import Op
from tests.simulator.runs.host import Host
from tests.simulator.runs.ledger import Request
from tests.simulator.runs.world import World


def next_work(world: World) -> tuple[str, str] | None:
    """Return the first work that has no output."""
    for work, tool in world.works:
        if f"step-{work}" not in world.finished_steps:
            return work, tool
    return None


def move(world: World) -> None:
    """Let the host do what comes next."""
    host = world.host
    assert host is not None
    call, work = host.call, next_work(world)
    if call is None and work is None:
        world.act(lambda h: world.seen.add("run completed") if h.complete() else None)
    elif call is None:
        assert work is not None
        world.act(lambda h: _begin(h, *work))
    elif call.request is None:
        world.act(Host.start_call)
    elif not call.request.is_open:
        world.act(lambda h: h.answer(is_error=False))


def _begin(host: Host, work: str, tool: str) -> None:
    if host.is_decided(work):
        host.finish_step(work)
    else:
        host.open_call(work, tool)


def open_requests(world: World) -> list[Request]:
    """Return what may still happen outside."""
    return [request for request in world.ledger.requests if request.is_open]


def happen(world: World) -> None:
    """Let something that was asked for happen."""
    requests = open_requests(world)
    request = requests[world.draws.stream("world").choose("request", len(requests))]
    world.trace.append(("happens", request.work))
    world.ledger.happen(request)
    if world.ledger.was_asked_twice:
        world.seen.add("key honoured outside")


OPS: Final[tuple[Op[World], ...]] = (
    Op("move", lambda w: 60 if w.host is not None else 0, move),
    Op("happen", lambda w: 25 if open_requests(w) else 0, happen),
    Op(
        "start",
        lambda w: 0 if w.host is not None or w.needs_person or w.is_over else 40,
        World.start_host,
    ),
    Op("decide", lambda w: 30 if w.host is None and w.needs_person else 0, World.decide),
)
