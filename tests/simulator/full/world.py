"""A runner and a controller on two machines, and everything between and around them.

It decides how time, tasks, bytes and jobs move. It refuses to choose what happens next (the
history) and to judge it (the observers and the oracle).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from controller_mock.core.state import RunConfig
from protocol.errors import ExitStatus, exit_status
from runnerd.core.actions import Exit
from runnerd.core.state import Settings
from tests.simulator.disk import Mode
from tests.simulator.disk_faults import Died
from tests.simulator.draws import Draws
from tests.simulator.full.controller_node import ControllerNode
from tests.simulator.full.executor import ProgramWorld
from tests.simulator.full.loop import VirtualLoop
from tests.simulator.full.network import Connection, Network, Pipe, Transport
from tests.simulator.full.observers import Observers
from tests.simulator.full.runner_node import RunnerNode
from tests.simulator.full.scheduler import Scheduler
from tests.simulator.full.side import Side
from tests.simulator.full.store import SimulatedStore
from tests.simulator.full.tap import Session, Tap
from tests.simulator.image import Image
from tests.simulator.judge import StateJudge
from tests.simulator.machine import Machine
from tests.simulator.option import Command
from tests.simulator.oracle import Oracle
from tests.simulator.profile import Profile
from tests.simulator.short.world import IDENTITY, OVER

JUMP_MS_MAX: Final = 60_000
CONNECT_TIMEOUT_MS: Final = 3_000


@dataclass
class Job:
    """Work of a thread that reports to a loop."""

    actor: str
    loop: VirtualLoop
    ready_ms: int
    run: Callable[[], None]


Task = tuple[str, Callable[..., None], tuple[Any, ...]]
"""A name for the schedule, and what happens to what."""


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
        self.line_length = 0
        self._runner_machine = Machine(mode, draws.seed, drift_ppm)
        self.controller_machine = Machine(mode, ~draws.seed)
        self.network = Network(lambda: self.now_ms, self._delay_ms, self._tapped)
        self.use_settings(settings)
        self.former: list[Side] = []
        """Machines whose runner may still live although another one has taken its place."""
        self.run_id = IDENTITY.run_id
        self.config = RunConfig(
            identity=IDENTITY,
            runner_version=settings.runner_version,
            runner_digest=settings.runner_digest,
        )
        self.store = SimulatedStore()
        self.store.create_run(self.config)
        self.scheduler = Scheduler(draws.stream("schedule"), "round robin", 0)
        self.jobs: list[Job] = []
        self.controller: ControllerNode | None = None
        self.retired: list[ControllerNode] = []
        """Controllers that live on although another one has taken over."""
        self.epochs = 1
        """How many controllers have opened the store."""
        self.paused_until: dict[str, int] = {}
        self.faults_are_on = True
        self.grammar: tuple[Command[World], ...] = ()
        self.kept: dict[str, Any] = {}
        """What options remember between their steps."""
        self.latency_ms: tuple[int, ...] = (0, 1, 5)
        self.disk_latency_ms: tuple[int, ...] = (0, 1, 3)
        self.segments = False
        self.recorded: Callable[..., None] | None = None
        """Is told of everything that is written, for whoever records it."""

    def use_settings(self, settings: Settings) -> None:
        """Fix what the command line fixes, before the first process."""
        self.settings = settings
        self.observers = Observers(self)
        self.tap = Tap(self.observers)
        self.network.arrives = self.tap.arrives
        self.side = Side(self, "runner", self._runner_machine, settings)
        """The machine whose runner counts."""

    # --- what can be asked ----------------------------------------------------------------------

    @property
    def runner_machine(self) -> Machine:
        return self.side.runner_machine

    @property
    def judge(self) -> StateJudge:
        return self.side.judge

    @property
    def oracle(self) -> Oracle:
        return self.side.oracle

    @property
    def programs(self) -> ProgramWorld:
        return self.side.programs

    @property
    def runner(self) -> RunnerNode | None:
        return self.side.runner

    @property
    def exit(self) -> Exit | None:
        return self.side.exit

    @property
    def sides(self) -> list[Side]:
        """Every machine on which a runner may live."""
        return [self.side, *self.former]

    @property
    def controllers(self) -> list[ControllerNode]:
        """Every controller that lives."""
        return self.retired if self.controller is None else [self.controller, *self.retired]

    def session_of(self, connection_id: str) -> Session | None:
        """Return the session whose welcome named this connection."""
        return self.observers.session_of(connection_id)

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
        while not (tasks := self._ready()):
            if not self._jump():
                return False
        place = self.scheduler.pick([task[0] for task in tasks])
        name, act, subjects = tasks[place]
        self.trace.append(name)
        try:
            act(*subjects)
        except Died:
            self.trace.append("died")
            for side in self.sides:
                if side.runner is not None and side.runner.fs.is_dead:
                    side.died()
        for controller in self.controllers:
            controller.check()
        return True

    def _ready(self) -> list[Task]:
        """Return what can happen now; whatever is asked here is asked at every step."""
        now_ms, paused = self.now_ms, self.paused_until
        tasks: list[Task] = [
            (name, loop.run_one, ())
            for name, loop in self._loops()
            if loop.is_ready and paused.get(name, 0) <= now_ms
        ]
        for connection, pipe in self.network.pipes():
            is_up = pipe is connection.to_server
            reader = connection.listener.name if is_up else connection.caller.name
            if paused.get(reader, 0) <= now_ms and self.network.is_ready(connection, pipe):
                tasks.append((pipe.name, self._deliver, (connection, pipe)))
        for job in self.jobs:
            if job.ready_ms <= now_ms:
                tasks.append((job.actor, self._execute, (job,)))
        return tasks

    def _loops(self) -> list[tuple[str, VirtualLoop]]:
        loops: list[tuple[str, VirtualLoop]] = []
        if self.side.runner is not None:
            loops.append((self.side.name, self.side.runner.loop))
        for side in self.former:
            if side.runner is not None:
                loops.append((side.name, side.runner.loop))
        for controller in self.controllers:
            loops.append((controller.name, controller.loop))
        return loops

    def _deliver(self, connection: Connection, pipe: Pipe) -> None:
        count, cut = len(pipe.chunks), 0
        if self.segments:
            stream = self.draws.stream("net")
            count = 1 + stream.choose("together", min(4, len(pipe.chunks)))
            if stream.chance("cut", 30):
                cut = stream.choose("cut at", min(4096, max(1, len(pipe.chunks[0].data))))
        self.network.deliver(connection, pipe, count, cut)

    def _execute(self, job: Job) -> None:
        self.jobs.remove(job)
        job.run()

    def _jump(self) -> bool:
        """Let time pass to the next moment at which something can happen."""
        waits: list[int] = []
        for name, loop in self._loops():
            if (due_ms := loop.due_in_ms()) is not None:
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
        for side in self.sides:
            side.runner_machine.pass_time(milliseconds)
        self.controller_machine.pass_time(milliseconds)

    def suspend_runner(self, milliseconds: int) -> None:
        """Put the runner's machine to sleep while the rest of the world goes on."""
        self.now_ms += milliseconds
        self.runner_machine.suspend(milliseconds)
        for side in self.former:
            side.runner_machine.pass_time(milliseconds)
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

    # --- the network ----------------------------------------------------------------------------

    def _delay_ms(self) -> int:
        return self.draws.stream("net").pick("latency", self.latency_ms)

    def _tapped(self, end: Transport, data: bytes) -> None:
        self.tap.wrote(end, data)
        if self.recorded is not None:
            self.recorded(data, is_client=end.is_client)

    def dial(self, side: Side, loop: VirtualLoop, then: Callable[[Transport | None], None]) -> None:
        """Open a connection to whoever listens; ``then`` gets it, or None."""
        fate = 0
        if self.faults_are_on and self.profile.has("dial"):
            fate = self.draws.stream("net").pick("dial", (0, 0, 0, 0, 0, 1, 2))
        if fate == 2:
            loop.call_later(CONNECT_TIMEOUT_MS / 1000, then, None)
            return

        def connected() -> None:
            controller = self._listener(side)
            if controller is None or fate == 1:
                then(None)
                return
            self.network.tidy()
            connection = self.network.connect(side, controller)
            connection.client = Transport(self.network, connection, loop, True)
            connection.server = Transport(self.network, connection, controller.loop, False)
            controller.loop.call_soon(controller.accept, connection.server)
            self.trace.append(("connected", connection.number))
            then(connection.client)

        loop.call_later(self._delay_ms() / 1000, connected)

    def _listener(self, side: Side) -> ControllerNode | None:
        """Return who takes a connection: now and then a controller that was replaced."""
        if self.retired and side.authority.obeyed is self.controller is not None:
            return self.draws.stream("net").pick("listener", (self.controller, *self.retired))
        return self.controller

    # --- runners --------------------------------------------------------------------------------

    def start_runner(self, ticket: bytes) -> None:
        """Start a process with a ticket."""
        self.side.start(ticket)

    def runner_died(self) -> None:
        """Let the kernel tidy up behind a process that was killed."""
        self.side.died()

    def lose_power(self) -> None:
        """Let the runner's machine lose power; nobody is told."""
        self.side.lose_power()

    def process_died(self, loop: VirtualLoop, *, is_told: bool) -> None:
        """End what a process that is gone had open, and what its threads were about to do."""
        self.network.process_died(loop, is_told=is_told)
        self.jobs = [job for job in self.jobs if job.loop is not loop]

    # --- the controller -------------------------------------------------------------------------

    def start_controller(self) -> None:
        """Start a process on what the store holds."""
        self.trace.append("controller starts")
        self.epochs += 1
        self.store.begin_epoch(self.epochs)
        self.controller = ControllerNode(self)

    def controller_died(self) -> None:
        """Let the kernel tidy up behind a controller that was killed."""
        node, self.controller = self.controller, None
        self.trace.append("controller dies")
        if node is not None:
            self._end_controller(node)

    def retired_died(self) -> None:
        """End the controllers that were replaced."""
        while self.retired:
            self._end_controller(self.retired.pop())

    def _end_controller(self, node: ControllerNode) -> None:
        self.process_died(node.loop, is_told=True)
        node.close()

    def committed(self) -> None:
        """Look at the store after one of the writer's jobs."""
        self.trace.append("commit")
        self.observers.store_changed()

    def put_down(self) -> None:
        """End whatever still lives, outside all judgement."""
        for side in self.sides:
            if side.runner is not None:
                side.runner.loop.kill()
        for controller in self.controllers:
            controller.close()
