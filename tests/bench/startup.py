"""From the start of a runner to its welcome, over other programs that do as much or less.

It decides what is started and which moment counts. It refuses to look into a start.
"""

import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

import msgspec

from controller_mock.core.state import RunConfig
from tests.bench.figures import Figure, Goal, Measured, NotMeasured, Outcome
from tests.bench.imports import before_welcome, importing, parse
from tests.bench.ours import BenchFailed, OurController, our_controller
from tests.bench.runner import QUIET, runner_argv, runner_environment, runner_program
from tests.bench.site import Measurement, Site
from tests.interop.peers import Missing, upstream_runner

FIRST_CONTACT = Path(__file__).with_name("first_contact.py")
UNIT = "ms"
_MS_PER_NS = 1e-6

OVER_CONTACT = Figure(
    name="start-over-blocking-contact",
    what="start of runnerd to its welcome, over a bare Python program that imports the same"
    " modules, replaces one small file and does the handshake on a blocking socket, no more",
    unit=UNIT,
    goal=Goal("<=", 1.1),
)
OVER_LEAST = Figure(
    name="start-over-least-contact",
    what="start of runnerd to its welcome, over the same program with no file and only the"
    " modules that a handshake needs",
    unit=UNIT,
)
OVER_IMPORTS = Figure(
    name="start-over-imports",
    what="start of runnerd to its welcome, over a bare Python process until it has imported the"
    " same modules",
    unit=UNIT,
)
OVER_UPSTREAM = Figure(
    name="start-over-upstream-runner",
    what="start of runnerd to its welcome, over the same of the upstream runner, both by our"
    " controller",
    unit=UNIT,
)

_Start: TypeAlias = Callable[[], Awaitable[float]]
_Argv: TypeAlias = Callable[[RunConfig], Sequence[str]]


async def startup(site: Site) -> Mapping[str, Outcome]:
    """Start all programs in turns; only a start with a fresh state counts."""
    directory = site.folder("startup")
    async with our_controller(directory / "ours") as ours:
        starts = Starts(site, ours)
        modules = await starts.modules_of_start()
        site.tell(f"runnerd loads {len(modules)} modules before its welcome")
        programs: dict[str, _Start] = {
            "runnerd": starts.runnerd,
            OVER_CONTACT.name: starts.blocking_contact,
            OVER_LEAST.name: starts.least_contact,
            OVER_IMPORTS.name: starts.bare_imports,
        }
        peer = upstream_runner()
        if not isinstance(peer, Missing):
            executable = str(peer.executable)
            programs[OVER_UPSTREAM.name] = lambda: starts.upstream(executable)
        samples = await _in_turns(site, programs)
    ours_ms = samples.pop("runnerd")
    outcomes: dict[str, Outcome] = {
        name: Measured(ours=ours_ms, base=base) for name, base in samples.items()
    }
    if isinstance(peer, Missing):
        outcomes[OVER_UPSTREAM.name] = NotMeasured(peer.reason)
    return outcomes


async def _in_turns(site: Site, programs: Mapping[str, _Start]) -> dict[str, tuple[float, ...]]:
    samples: dict[str, list[float]] = {name: [] for name in programs}
    for start in programs.values():
        # The first start of each fills the file caches.
        await start()
    for number in range(site.size.starts):
        for name, start in programs.items():
            samples[name].append(await start())
        last = ", ".join(
            f"{name.removeprefix('start-over-')} {taken[-1]:.0f} ms"
            for name, taken in samples.items()
        )
        site.tell(f"start {number + 1} of {site.size.starts}: {last}")
    return {name: tuple(taken) for name, taken in samples.items()}


class Starts:
    """Each method starts one program once and returns the milliseconds it took."""

    def __init__(self, site: Site, controller: OurController) -> None:
        self._site = site
        self._controller = controller
        self._modules: tuple[str, ...] = ()

    async def runnerd(self) -> float:
        """Start our runner as a supervisor does."""
        return await self._until_welcome(self._runner(runner_program(), QUIET))

    async def upstream(self, executable: str) -> float:
        """Start the upstream runner with what its own controller passes."""
        harness = ("--fake-harness", "/nonexistent", "--fake-harness-script", "/nonexistent")
        return await self._until_welcome(self._runner((executable,), harness))

    async def blocking_contact(self) -> float:
        """Start the program that does nothing but the handshake, with all our imports."""
        return await self._contact((str(self._site.fresh_folder()), *self._modules))

    async def least_contact(self) -> float:
        """Start the program that does nothing but the handshake."""
        return await self._contact(())

    async def _contact(self, more: Sequence[str]) -> float:
        url = urlsplit(self._controller.url)
        place = (str(url.hostname), str(url.port), url.path)

        def argv(config: RunConfig) -> Sequence[str]:
            offered = msgspec.json.encode(config).decode()
            return (sys.executable, "-P", str(FIRST_CONTACT), *place, offered, *more)

        return await self._until_welcome(argv)

    async def bare_imports(self) -> float:
        """Start Python and import what `modules_of_start` found."""
        start_ns = time.monotonic_ns()
        with _started((sys.executable, "-P", "-c", importing(self._modules)), {}) as process:
            assert process.stdout is not None
            byte = process.stdout.read(1)
            took_ns = time.monotonic_ns() - start_ns
        if not byte:
            raise BenchFailed("the bare imports failed")
        return took_ns * _MS_PER_NS

    async def modules_of_start(self) -> tuple[str, ...]:
        """Have the interpreter report the imports of one start, up to the welcome."""
        config = await self._controller.new_run()
        program = runner_program()
        # The interpreter of a script is the one that runs this.
        script = program if len(program) == 1 else program[1:]
        argv = self._runner((sys.executable, "-X", "importtime", *script), QUIET)(config)
        environment = runner_environment(await self._controller.ticket(config))
        with _started(argv, environment, stderr=subprocess.PIPE) as process:
            assert process.stderr is not None
            modules = before_welcome(parse(line.decode() for line in process.stderr))
        self._modules = modules
        return modules

    def _runner(self, program: Sequence[str], extra: Sequence[str]) -> _Argv:
        state = self._site.fresh_folder() / "runner"
        return lambda config: runner_argv(config, self._controller.url, state, program, extra)

    async def _until_welcome(self, argv: _Argv) -> float:
        config = await self._controller.new_run()
        environment = runner_environment(await self._controller.ticket(config))
        start_ns = time.monotonic_ns()
        with _started(argv(config), environment):
            welcome_ns = await self._controller.connected(config)
        return (welcome_ns - start_ns) * _MS_PER_NS


@contextmanager
def _started(
    argv: Sequence[str], environment: Mapping[str, str], stderr: int | None = None
) -> "Generator[subprocess.Popen[bytes]]":
    """Run a program for the length of the block, then kill it."""
    with subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if stderr is None else stderr,
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


MEASUREMENTS = (Measurement((OVER_CONTACT, OVER_LEAST, OVER_IMPORTS, OVER_UPSTREAM), startup),)
