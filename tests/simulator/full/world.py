"""A runner and a controller on two machines, and everything between and around them.

It decides how time, tasks, bytes and jobs move. It refuses to choose what happens next (the
history) and to judge it (the observers and the oracle).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from controller_mock.core.state import RunConfig
from protocol.base.atomic_file import WriteFailed as ReplaceFailed
from protocol.errors import ExitStatus, PrpError, exit_status
from protocol.limits import ROOM_RETRY_MS
from runnerd.core.actions import Action, Exit, StartHarness
from runnerd.core.inputs import Input
from runnerd.core.state import Durable, Settings
from tests.simulator import invariants
from tests.simulator.disk import Mode
from tests.simulator.disk_process import Died
from tests.simulator.draws import Draws
from tests.simulator.full.authority import Authority
from tests.simulator.full.controller_node import ControllerNode
from tests.simulator.full.executor import Program, ProgramWorld
from tests.simulator.full.loop import VirtualLoop
from tests.simulator.full.network import Connection, Network, Pipe, Transport
from tests.simulator.full.observers import Observers
from tests.simulator.full.runner_node import RunnerNode
from tests.simulator.full.scheduler import Scheduler
from tests.simulator.full.store import SimulatedStore
from tests.simulator.full.tap import Tap
from tests.simulator.image import Image
from tests.simulator.judge import ENDS, StateJudge
from tests.simulator.machine import Machine
from tests.simulator.option import Command
from tests.simulator.oracle import Oracle
from tests.simulator.profile import Profile
from tests.simulator.short.world import ENVELOPE_BYTES, IDENTITY, OVER

JUMP_MS_MAX: Final = 60_000
CONNECT_TIMEOUT_MS: Final = 3_000


@dataclass
class Job:
    """Work of a thread that reports to a loop."""

    actor: str
    loop: VirtualLoop
    ready_ms: int
    run: Callable[[], None]


class World:
    """Everything that a schedule can touch."""

    def __init__(
        self, draws: Draws, profile: Profile, settings: Settings, mode: Mode, drift_ppm: int
    ) -> None:
        self.draws = draws
        self.profile = profile
        self.now_ms = 0
        self.trace: list[object] = []
        self.seen: set[str] = set()
        self.runner_machine = Machine(mode, draws.seed, drift_ppm)
        self.controller_machine = Machine(mode, ~draws.seed)
        self.judge = StateJudge(self.runner_machine, self.trace, self.seen)
        self.network = Network(lambda: self.now_ms, self._delay_ms, self._tapped)
        self.use_settings(settings)
        self.run_id = IDENTITY.run_id
        self.config = RunConfig(
            identity=IDENTITY,
            runner_version=settings.runner_version,
            runner_digest=settings.runner_digest,
        )
        self.store = SimulatedStore()
        self.store.create_run(self.config)
        self.programs = ProgramWorld(draws.stream("program"), self.line_text)
        self.programs.ordered = self._program_ordered
        self.programs.spawned = self._program_spawned
        self.programs.released = self._program_released
        self.scheduler = Scheduler(draws.stream("schedule"), "round robin", 0)
        self.jobs: list[Job] = []
        self.runner: RunnerNode | None = None
        self.controller: ControllerNode | None = None
        self.exit: Exit | None = None
        """How the last runner ended by itself; None while one runs or after a crash."""
        self.paused_until: dict[str, int] = {}
        self.faults_are_on = True
        self.grammar: tuple[Command[World], ...] = ()
        self.kept: dict[str, Any] = {}
        """What options remember between their steps."""
        self.line_length = 0
        self.latency_ms: tuple[int, ...] = (0, 1, 5)
        self.disk_latency_ms: tuple[int, ...] = (0, 1, 3)
        self.segments = False
        self.recorded: Callable[..., None] | None = None
        """Is told of everything that is written, for whoever records it."""

    def use_settings(self, settings: Settings) -> None:
        """Fix what the command line fixes, before the first process."""
        self.settings = settings
        self.oracle = Oracle(ENVELOPE_BYTES, settings.max_outbox_bytes, settings.p0_reserve_bytes)
        self.observers = Observers(self)
        self.tap = Tap(self.observers)
        self.network.arrives = self.tap.arrives
        self.authority = Authority(
            self.runner_machine, self.oracle, self.seen, self.observers.session_of
        )

    # --- what can be asked ----------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """True once no start would do anything any more, or a person must look first."""
        image, ended = self.oracle.image, self.exit
        if ended is None or self.runner is not None:
            return False
        if ended.code is not None:
            return exit_status(ended.code) is ExitStatus.PROTOCOL
        return image is not None and image.lifecycle in OVER and not image.outbox

    def scaled(self, family: str, weight: int) -> int:
        """Return a weight that is threefold in a storm."""
        return weight * (2 * self.profile.level(family) - 1)

    def line_text(self, number: int) -> str:
        """Return the text of an output line, which nobody may change."""
        return f"line {number} ".ljust(self.line_length, "x")

    def surviving(self) -> list[Image | None]:
        """Return every state that a power loss now could leave."""
        return self.judge.surviving()

    # --- tasks and time -------------------------------------------------------------------------

    def step(self) -> bool:
        """Run one ready task; without one let time pass until there is. False if there is none."""
        tasks = self._ready()
        while not tasks:
            if not self._jump():
                return False
            tasks = self._ready()
        name, act = tasks[self.scheduler.pick([name for name, _ in tasks])]
        self.trace.append(name)
        try:
            act()
        except Died:
            self.trace.append("died")
            self.runner_died()
        if self.controller is not None:
            self.controller.check()
        return True

    def _ready(self) -> list[tuple[str, Callable[[], None]]]:
        tasks: list[tuple[str, Callable[[], None]]] = []
        runner, controller = self.runner, self.controller
        if runner is not None and self._runs("runner") and runner.loop.is_ready:
            tasks.append(("runner", runner.loop.run_one))
        if controller is not None and self._runs("controller") and controller.loop.is_ready:
            tasks.append(("controller", controller.loop.run_one))
        for connection, pipe in self.network.pipes():
            reader = "controller" if pipe is connection.to_server else "runner"
            if self._runs(reader) and self.network.is_ready(connection, pipe):
                tasks.append((pipe.name, self._delivery(connection, pipe)))
        for job in self.jobs:
            if job.ready_ms <= self.now_ms:
                tasks.append((job.actor, self._execution(job)))
        return tasks

    def _runs(self, process: str) -> bool:
        return self.paused_until.get(process, 0) <= self.now_ms

    def _delivery(self, connection: Connection, pipe: Pipe) -> Callable[[], None]:
        def deliver() -> None:
            count, cut = len(pipe.chunks), 0
            if self.segments:
                stream = self.draws.stream("net")
                count = 1 + stream.choose("together", min(4, len(pipe.chunks)))
                if stream.chance("cut", 30):
                    cut = stream.choose("cut at", min(4096, max(1, len(pipe.chunks[0].data))))
            self.network.deliver(connection, pipe, count, cut)

        return deliver

    def _execution(self, job: Job) -> Callable[[], None]:
        def execute() -> None:
            self.jobs.remove(job)
            job.run()

        return execute

    def _jump(self) -> bool:
        """Let time pass to the next moment at which something can happen."""
        waits: list[int] = []
        for name, node in (("runner", self.runner), ("controller", self.controller)):
            if node is not None and (due_ms := node.loop.due_in_ms()) is not None:
                waits.append(max(due_ms, self.paused_until.get(name, 0) - self.now_ms))
        waits += [job.ready_ms - self.now_ms for job in self.jobs]
        waits += [
            pipe.chunks[0].ready_ms - self.now_ms
            for _, pipe in self.network.pipes()
            if not pipe.blocked
        ]
        waits += [until - self.now_ms for until in self.paused_until.values()]
        later = [wait for wait in waits if wait > 0]
        if not later:
            return False
        self.pass_time(min(later))
        return True

    def pass_time(self, milliseconds: int) -> None:
        """Let both machines' clocks go on."""
        self.now_ms += milliseconds
        self.runner_machine.pass_time(milliseconds)
        self.controller_machine.pass_time(milliseconds)

    def suspend_runner(self, milliseconds: int) -> None:
        """Put the runner's machine to sleep while the rest of the world goes on."""
        self.now_ms += milliseconds
        self.runner_machine.suspend(milliseconds)
        self.controller_machine.pass_time(milliseconds)
        if self.runner is not None and self.runner.driver is not None:
            self.runner.woken_by_the_machine()

    def begin_job(
        self, actor: str, loop: VirtualLoop, run: Callable[[], None], delay_ms: int | None = None
    ) -> None:
        """Give a thread something to do."""
        if delay_ms is None:
            delay_ms = self.draws.stream("disk").pick("job takes", self.disk_latency_ms)
        self.jobs.append(Job(actor, loop, self.now_ms + delay_ms, run))

    def _drop_jobs(self, loop: VirtualLoop) -> None:
        self.jobs = [job for job in self.jobs if job.loop is not loop]

    # --- the network ----------------------------------------------------------------------------

    def _delay_ms(self) -> int:
        return self.draws.stream("net").pick("latency", self.latency_ms)

    def _tapped(self, end: Transport, data: bytes) -> None:
        self.tap.wrote(end, data)
        if self.recorded is not None:
            self.recorded(data, is_client=end.is_client)

    def dial(self, loop: VirtualLoop, then: Callable[[Transport | None], None]) -> None:
        """Open a connection to whoever listens; ``then`` gets it, or None."""
        fate = 0
        if self.faults_are_on and self.profile.has("dial"):
            fate = self.draws.stream("net").pick("dial", (0, 0, 0, 0, 0, 1, 2))
        if fate == 2:
            loop.call_later(CONNECT_TIMEOUT_MS / 1000, then, None)
            return

        def connected() -> None:
            controller = self.controller
            if controller is None or fate == 1:
                then(None)
                return
            self.network.tidy()
            connection = self.network.connect()
            connection.client = Transport(self.network, connection, loop, True)
            connection.server = Transport(self.network, connection, controller.loop, False)
            controller.loop.call_soon(controller.accept, connection.server)
            self.trace.append(("connected", connection.number))
            then(connection.client)

        loop.call_later(self._delay_ms() / 1000, connected)

    # --- the runner -----------------------------------------------------------------------------

    def start_runner(self, ticket: bytes) -> None:
        """Start a process with a ticket."""
        self.tap.know(ticket)
        self.exit = None
        node = self.runner = RunnerNode(self, ticket)
        try:
            durable = self.judge.opened(node.store.open)
        except Died:
            self.trace.append("died at start")
            self.runner_died()
            return
        except PrpError:
            self._forget_runner(is_told=True)
            return
        image = self.judge.found(durable, self.oracle)
        self.trace.append(("start", image.next_source_seq if image else None))
        node.begin(durable, image)

    def runner_died(self) -> None:
        """Let the kernel tidy up behind a process that was killed."""
        self._forget_runner(is_told=True)

    def runner_ended(self, order: Exit) -> None:
        """Let the process end as it ordered."""
        assert self.runner is not None
        code = None if order.code is None else order.code.value
        invariants.I18(code, ENDS)
        self.observers.note_end(code)
        self.exit = order
        try:
            self.runner.close()
        except Died:
            self.trace.append("died at the end")
        self._forget_runner(is_told=True)
        self.programs.program = None

    def lose_power(self) -> None:
        """Let the runner's machine lose power; nobody is told."""
        self.trace.append("power loss")
        self._forget_runner(is_told=False)
        self.programs.program = None
        self.runner_machine.disk.lose_power(self.draws.stream("disk"))
        self.judge.disk_moved()

    def _forget_runner(self, *, is_told: bool) -> None:
        node, self.runner = self.runner, None
        self.authority.process_ended()
        self.observers.process_ended()
        self.judge.disk_moved()
        if node is not None:
            self.network.process_died(node.loop, is_told=is_told)
            self._drop_jobs(node.loop)
            node.loop.kill()
            node.fs.kill()
            self.runner_machine.process_ended(node)

    def settle_orphan(self) -> Literal["gone", "ended", "survived"]:
        """End what an earlier process left behind, as far as that is possible."""
        program, self.programs.program = self.programs.program, None
        self.seen.add("interrupted turn")
        if program is None or not program.is_alive:
            return "gone"
        program.is_alive = False
        if self.faults_are_on and self.profile.has("survivor"):
            outcomes: tuple[Literal["ended", "survived"], ...] = ("ended", "ended", "survived")
            return self.draws.stream("program").pick("orphan", outcomes)
        return "ended"

    def replace_state(self, node: RunnerNode, durable: Durable) -> ReplaceFailed | None:
        """Let a write reach the disk; the process may die in it."""
        return self.judge.replaced(node.store.replace, durable, self.oracle)

    def begin_write(
        self, node: RunnerNode, durable: Durable, done: Callable[[ReplaceFailed | None], None]
    ) -> None:
        """Give the state writer something to do."""

        def job() -> None:
            failure = self.replace_state(node, durable)
            node.loop.call_soon_threadsafe(done, failure)

        self.begin_job("state writer", node.loop, job)

    def look_for_room(self, node: RunnerNode, found: Callable[[], None]) -> None:
        """Let the state writer look for room on a full disk, again and again until there is."""

        def job() -> None:
            if _has_room(node):
                node.loop.call_soon_threadsafe(found)
            else:
                self.look_for_room(node, found)

        self.begin_job("room", node.loop, job, delay_ms=ROOM_RETRY_MS)

    # --- the runner's log: what its core is fed and orders --------------------------------------

    def heard(self, stimulus: Input) -> None:
        """Note an input of the runner's core."""
        self.trace.append(stimulus)
        self.authority.heard(stimulus)
        self.observers.heard(stimulus)

    def ordered(self, action: Action) -> None:
        """Note an order of the runner's core."""
        self.trace.append(action)
        self.authority.ordered(action)
        self.observers.ordered(action)

    def noted(self, fact: str, **values: object) -> None:
        """Note anything else."""
        self.trace.append(fact)

    # --- the controller -------------------------------------------------------------------------

    def start_controller(self) -> None:
        """Start a process on what the store holds."""
        self.trace.append("controller starts")
        self.controller = ControllerNode(self)

    def controller_died(self) -> None:
        """Let the kernel tidy up behind a controller that was killed."""
        node, self.controller = self.controller, None
        self.trace.append("controller dies")
        if node is not None:
            self.network.process_died(node.loop, is_told=True)
            self._drop_jobs(node.loop)
            node.close()

    def committed(self) -> None:
        """Look at the store after one of the writer's jobs."""
        self.trace.append("commit")
        self.observers.store_changed()

    def put_down(self) -> None:
        """End whatever still lives, outside all judgement."""
        if self.runner is not None:
            self.runner.loop.kill()
        if self.controller is not None:
            self.controller.close()

    # --- programs -------------------------------------------------------------------------------

    def _program_ordered(self, order: StartHarness) -> int:
        return self.oracle.program_ordered(order.generation, self.surviving())

    def _program_spawned(self, program: Program) -> None:
        self.oracle.program_spawned(program.mark, program.controller_seq)

    def _program_released(self, generation: int) -> None:
        invariants.I7_release(generation, self.surviving())


def _has_room(node: RunnerNode) -> bool:
    node.store.find_room()
    return not node.store.is_tight
