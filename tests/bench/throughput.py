"""Durable events per second: with a thousand in history, and with far more.

It decides what is compared with what. It refuses to know how events are sent.
"""

from collections.abc import Mapping, Sequence
from statistics import median

from tests.bench.bare_client import bodies, our_client, send, upstream_history
from tests.bench.figures import Figure, Goal, Measured, Outcome
from tests.bench.ours import OurController, our_controller
from tests.bench.runner import agent_run
from tests.bench.site import Measurement, Site, none_measured
from tests.interop.peers import Missing, upstream_controller

HISTORY = 1_000
SHORT_HISTORY = 100
WARM_UP = 5_000
"""Events of another run: a new write-ahead log has no checkpoints at first, and still grows."""
UNIT = "events/s"
AGAINST_UPSTREAM = Goal(">=", 20, stretch=60)

THROUGH_RUNNER = Figure(
    name="events-through-runner",
    what="lines of an agent through runnerd until committed by our controller, over events of a"
    " bare client until acknowledged by the upstream controller; 1,000 events of history",
    unit=UNIT,
    goal=AGAINST_UPSTREAM,
)
CONTROLLER_ALONE = Figure(
    name="events-controller-alone",
    what="events of a bare client until acknowledged by our controller, over the same by the"
    " upstream controller; 1,000 events of history, pipelined",
    unit=UNIT,
    goal=AGAINST_UPSTREAM,
)
FLAT_CONTROLLER = Figure(
    name="flat-controller",
    what="events of a bare client until acknowledged by our controller, with a long history over"
    " with 100 events",
    unit=UNIT,
    goal=Goal(">=", 0.9),
)
FLAT_RUNNER = Figure(
    name="flat-runner",
    what="lines of an agent through runnerd until committed, with a long history over with 100"
    " events",
    unit=UNIT,
    goal=Goal(">=", 0.9),
)


async def against_upstream(site: Site) -> Mapping[str, Outcome]:
    """Measure both ways through our side in turns with the upstream controller."""
    peer = upstream_controller()
    if isinstance(peer, Missing):
        return none_measured((THROUGH_RUNNER, CONTROLLER_ALONE), peer.reason)
    size = site.size
    directory = site.folder("against-upstream")
    through: list[float] = []
    alone: list[float] = []
    upstream: list[float] = []
    # So that the middle of a sample has a thousand events behind it.
    before = HISTORY - size.upstream_burst // 2
    async with (
        our_controller(directory / "ours") as ours,
        upstream_history(peer, directory, before) as theirs,
    ):
        for number in range(size.rounds):
            through.append(await _through_runner(site, ours, HISTORY, size.burst))
            upstream.append(await theirs.events_per_s(size.upstream_burst))
            alone.append(await _controller_alone(ours, HISTORY, size.burst))
            site.tell(
                f"round {number + 1} of {size.rounds}: {through[-1]:.0f} events/s through the"
                f" runner, {alone[-1]:.0f} alone, {upstream[-1]:.0f} upstream"
            )
    base = tuple(upstream)
    return {
        THROUGH_RUNNER.name: Measured(ours=tuple(through), base=base),
        CONTROLLER_ALONE.name: Measured(ours=tuple(alone), base=base),
    }


async def flat_controller(site: Site) -> Mapping[str, Outcome]:
    """Measure our controller with a long and a short history in turns."""
    history, burst = site.size.long_history, site.size.flat_burst
    pairs: list[tuple[float, float]] = []
    async with (
        our_controller(site.fresh_folder()) as ours,
        our_controller(site.fresh_folder()) as other,
    ):
        site.tell(f"sending {history} events of history")
        await _controller_alone(other, 0, WARM_UP)
        async with our_client(ours, history) as (client, config):
            last = history
            for _ in range(site.size.flat_rounds):
                short = await _controller_alone(other, SHORT_HISTORY, burst)
                events = bodies(config, last + 1, burst)
                last += burst
                pairs.append((burst / await send(client, events, last), short))
    return _flat(site, FLAT_CONTROLLER, pairs)


async def flat_runner(site: Site) -> Mapping[str, Outcome]:
    """Measure runner and controller with a long and a short history in turns."""
    history, burst = site.size.long_history, site.size.flat_burst
    pairs: list[tuple[float, float]] = []
    async with (
        our_controller(site.fresh_folder()) as ours,
        our_controller(site.fresh_folder()) as other,
        agent_run(ours, site.fresh_folder()) as run,
    ):
        site.tell(f"printing {history} lines of history")
        await _controller_alone(other, 0, WARM_UP)
        await run.print_lines(history)
        for _ in range(site.size.flat_rounds):
            short = await _through_runner(site, other, SHORT_HISTORY, burst)
            pairs.append((burst / await run.print_lines(burst), short))
    return _flat(site, FLAT_RUNNER, pairs)


def _flat(
    site: Site, figure: Figure, pairs: Sequence[tuple[float, float]]
) -> Mapping[str, Outcome]:
    long, short = zip(*pairs, strict=True)
    site.tell(f"{median(long):.0f} events/s after a long history, {median(short):.0f} after little")
    notes = (f"from {site.size.long_history} events on",)
    return {figure.name: Measured(ours=long, base=short, notes=notes)}


async def _through_runner(site: Site, ours: OurController, history: int, burst: int) -> float:
    async with agent_run(ours, site.fresh_folder()) as run:
        await run.print_lines(history - run.events)
        return burst / await run.print_lines(burst)


async def _controller_alone(ours: OurController, history: int, burst: int) -> float:
    async with our_client(ours, history) as (client, config):
        events = bodies(config, history + 1, burst)
        return burst / await send(client, events, history + burst)


MEASUREMENTS = (
    Measurement((THROUGH_RUNNER, CONTROLLER_ALONE), against_upstream),
    Measurement((FLAT_CONTROLLER,), flat_controller),
    Measurement((FLAT_RUNNER,), flat_runner),
)
