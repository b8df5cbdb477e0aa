"""One event at a time to its durable ACK, over the bare file operations that it needs.

It decides what is compared with what. It refuses to hide a hop: both processes, the wire and
the threads of both writers are in our side, nothing but system calls in the other.
"""

import contextlib
import itertools
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import urlsplit

from tests.bench.bare_client import bodies
from tests.bench.bare_file import BareFile
from tests.bench.bare_table import BareTable
from tests.bench.blocking import Offered, Session, Wire
from tests.bench.figures import Figure, Goal, Measured, Outcome
from tests.bench.ours import our_controller, run_config
from tests.bench.runner import DEBUG, agent_run
from tests.bench.site import Measurement, Site

UNIT = "ms"
_MS = 1_000.0
_WARM_UP = 5
_ROUND_TRIPS = 200
_ECHO = """
import socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
wire = server.accept()[0]
wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
while data := wire.recv(1):
    wire.sendall(data)
"""

LINE_TO_ACK = Figure(
    name="single-line-to-ack",
    what="a line of an agent until runnerd has heard its durable ACK, over one replacement of a"
    " file of the state's size and one SQLite commit of such a row, both bare",
    unit=UNIT,
    goal=Goal("<=", 2, stretch=1.6),
)
EVENT_TO_ACK = Figure(
    name="single-event-to-ack",
    what="an event of a bare client until acknowledged by our controller, over one bare SQLite"
    " commit of such a row",
    unit=UNIT,
    goal=Goal("<=", 2, stretch=1.6),
)


async def line_to_ack(site: Site) -> Mapping[str, Outcome]:
    """Measure the whole way in turns with both bare operations."""
    directory = site.folder("line-to-ack")
    body = bodies(run_config("000001"), 1, 1)[0]
    async with (
        our_controller(directory / "ours") as ours,
        agent_run(ours, directory, DEBUG) as run,
    ):
        # The file holds the last event, as it does whenever one event is on its way.
        state = (directory / "runner" / "runner-state.json").read_bytes()
        with (
            contextlib.closing(BareFile(str(site.fresh_folder()))) as file,
            contextlib.closing(BareTable(site.fresh_folder())) as table,
        ):

            def bare() -> float:
                start = time.perf_counter()
                file.replace(state)
                table.commit(body)
                return time.perf_counter() - start

            measured = await _in_turns(site, run.print_line_until_ack, bare)
    notes = (f"the state file has {len(state)} bytes, the event {len(body)}",)
    return {LINE_TO_ACK.name: Measured(ours=measured[0], base=measured[1], notes=notes)}


async def event_to_ack(site: Site) -> Mapping[str, Outcome]:
    """Measure the controller alone in turns with a bare commit."""
    directory = site.folder("event-to-ack")
    async with our_controller(directory / "ours") as ours:
        config = await ours.new_run()
        url = urlsplit(ours.url)
        with (
            contextlib.closing(Wire(str(url.hostname), url.port or 0, url.path)) as wire,
            contextlib.closing(BareTable(site.fresh_folder())) as table,
        ):
            offered = Offered(config.identity, config.runner_version, config.runner_digest)
            session = Session(wire, offered, await ours.ticket(config))
            seqs = itertools.count(1)
            body = bodies(config, 1, 1)[0]

            async def event() -> float:
                seq = next(seqs)
                return session.event_until_ack(bodies(config, seq, 1)[0], seq)

            def bare() -> float:
                start = time.perf_counter()
                table.commit(body)
                return time.perf_counter() - start

            measured = await _in_turns(site, event, bare)
    notes = (f"a bare loopback round trip to another process takes {round_trip_ms():.3f} ms",)
    return {EVENT_TO_ACK.name: Measured(ours=measured[0], base=measured[1], notes=notes)}


def round_trip_ms() -> float:
    """Return what one byte to another process and back costs, with no work on either side."""
    with (
        subprocess.Popen((sys.executable, "-I", "-c", _ECHO), stdout=subprocess.PIPE) as process,
        contextlib.ExitStack() as stack,
    ):
        assert process.stdout is not None
        wire = socket.create_connection(("127.0.0.1", int(process.stdout.readline())))
        stack.enter_context(wire)
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        took: list[float] = []
        for _ in range(_ROUND_TRIPS):
            start = time.perf_counter()
            wire.sendall(b".")
            wire.recv(1)
            took.append(time.perf_counter() - start)
    return statistics.median(took) * _MS


async def _in_turns(
    site: Site, ours: Callable[[], Awaitable[float]], bare: Callable[[], float]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Take pairs in turns; the middle of as many as `Size.singles` on each side is one sample."""
    samples: tuple[list[float], list[float]] = ([], [])
    for _ in range(_WARM_UP):
        await ours()
        bare()
    for number in range(site.size.rounds):
        pairs = [(await ours(), bare()) for _ in range(site.size.singles)]
        for taken, side in zip(samples, zip(*pairs, strict=True), strict=True):
            taken.append(statistics.median(side) * _MS)
        site.tell(
            f"round {number + 1} of {site.size.rounds}: {samples[0][-1]:.2f} ms,"
            f" bare {samples[1][-1]:.2f} ms"
        )
    return tuple(samples[0]), tuple(samples[1])


MEASUREMENTS = (
    Measurement((LINE_TO_ACK,), line_to_ack),
    Measurement((EVENT_TO_ACK,), event_to_ack),
)
