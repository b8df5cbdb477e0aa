"""One machine with a runner on it: its disk, its process, its programs, and who watches them.

It decides how a process starts, ends and leaves its machine, and what its log is told. It
refuses to know the controller and which machine the world counts as the runner's.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from protocol.base.atomic_file import WriteFailed as ReplaceFailed
from protocol.errors import PrpError
from protocol.limits import ROOM_RETRY_MS
from runnerd.core.actions import Action, Dial, Exit, StartHarness, TellHarness
from runnerd.core.inputs import ConnectFailed, ConnectionLost, Input
from runnerd.core.state import Durable, Settings
from tests.simulator import invariants
from tests.simulator.disk_faults import Died
from tests.simulator.draws import Draws
from tests.simulator.full.authority import Authority
from tests.simulator.full.executor import Program, ProgramWorld
from tests.simulator.full.loop import VirtualLoop
from tests.simulator.full.network import Transport
from tests.simulator.full.runner_node import RunnerNode
from tests.simulator.image import Image
from tests.simulator.judge import ENDS, StateJudge
from tests.simulator.machine import Machine
from tests.simulator.oracle import Oracle
from tests.simulator.short.talker import Talker
from tests.simulator.short.world import ENVELOPE_BYTES, LEAST_PAUSE_MS
from tests.simulator.verdict import Violation

if TYPE_CHECKING:
    from tests.simulator.full.world import World

_ENDS_SEEN = {
    None: "ended cleanly",
    "lease_expired_requires_bootstrap": "lease expired",
    "stop_requested": "stopped on request",
    "bootstrap_consumed": "welcome lost after ticket use",
    "runner_rollback_detected": "runner rollback detected",
    "controller_rollback_detected": "controller rollback detected",
    "superseded": "superseded by a newer incarnation",
}


class Side:
    """Outlives every process on its machine."""

    def __init__(self, world: "World", name: str, machine: Machine, settings: Settings) -> None:
        """Begin without a process.

        Args:
            name: of its process, for the schedule.
        """
        self.world = world
        self.name = name
        self.runner_machine = machine
        self.settings = settings
        self.trace, self.seen = world.trace, world.seen
        self.judge = StateJudge(machine, world.trace, world.seen)
        self.oracle = Oracle(ENVELOPE_BYTES, settings.max_outbox_bytes, settings.p0_reserve_bytes)
        self.authority = Authority(machine, self.oracle, world.seen, world.session_of)
        self.programs = ProgramWorld(world.draws.stream("program"), world.line_text)
        self.programs.ordered = self._program_ordered
        self.programs.spawned = self._program_spawned
        self.programs.released = self._program_released
        self.programs.told = self._program_told
        self.runner: RunnerNode | None = None
        self.exit: Exit | None = None
        """How the last process ended by itself; None while one runs or after a crash."""
        self.is_put_back = False
        """True once its state was replaced by an older copy."""
        self._loaded_next = 1
        """The first number that the present process gives to an event."""
        self.loses_power = False
        """The next death of a process is a power loss."""
        self._failed_at_ms: int | None = None

    @property
    def draws(self) -> Draws:
        """Return the streams of the history."""
        return self.world.draws

    # --- the process ----------------------------------------------------------------------------

    def start(self, ticket: bytes) -> None:
        """Start a process with a ticket."""
        self.world.tap.know(ticket)
        self.exit = None
        node = self.runner = RunnerNode(self, ticket)
        try:
            durable = self.judge.opened(node.store.open)
        except Died:
            self.trace.append("died at start")
            self.died()
            return
        except PrpError:
            self._forget(is_told=True)
            return
        image = self.judge.found(durable, self.oracle)
        self._loaded_next = image.next_source_seq if image else 1
        self.authority.acked_now = image.acked_source_seq if image else 0
        self.trace.append(("start", image.next_source_seq if image else None))
        node.begin(durable, image)

    def contradiction(self, cursor: int) -> str:
        """Return what the process must end with if a welcome names this cursor (R5, R6).

        What a state that was put back has since given numbers to can hide that it is old.
        """
        if cursor < self.authority.acked_now:
            return "controller rollback detected"
        if self.is_put_back and cursor < self._loaded_next:
            self.is_put_back = False
        return "runner rollback detected" if self.is_put_back else ""

    def died(self) -> None:
        """Let the kernel tidy up behind a process that was killed, if there still is one."""
        if self.loses_power:
            self.seen.add("power loss in a disk call")
            self.lose_power()
        self._forget(is_told=True)

    def runner_ended(self, order: Exit) -> None:
        """Let the process end as it ordered."""
        assert self.runner is not None
        code = None if order.code is None else order.code.value
        invariants.I18(code, ENDS)
        if (fact := _ENDS_SEEN.get(code)) is not None:
            self.seen.add(fact)
        self.exit = order
        try:
            self.runner.close()
        except Died:
            self.trace.append("died at the end")
        self._forget(is_told=True)
        self.programs.program = None

    def lose_power(self) -> None:
        """Let the machine lose power; nobody is told."""
        self.loses_power = False
        self.trace.append("power loss")
        self._forget(is_told=False)
        self.programs.program = None
        self.runner_machine.disk.lose_power(self.draws.stream("disk"))
        self.judge.disk_moved()

    def _forget(self, *, is_told: bool) -> None:
        node, self.runner = self.runner, None
        self.authority.process_ended()
        self._failed_at_ms = None
        self.judge.disk_moved()
        if node is not None:
            self.world.process_died(node.loop, is_told=is_told)
            node.loop.kill()
            node.fs.kill()
            self.runner_machine.process_ended(node)

    def dial(self, loop: VirtualLoop, then: Callable[[Transport | None], None]) -> None:
        """Open a connection to whoever listens; ``then`` gets it, or None."""
        self.world.dial(self, loop, then)

    # --- its log: what its core is fed and orders -------------------------------------------------

    def heard(self, stimulus: Input) -> None:
        """Note an input of the core."""
        self.trace.append(stimulus)
        self.authority.heard(stimulus)
        if isinstance(stimulus, ConnectFailed) and stimulus.code.value == "owner_epoch_superseded":
            self.seen.add("replaced controller refused")
        if isinstance(stimulus, ConnectionLost | ConnectFailed):
            self._failed_at_ms = self.runner_machine.boot_ms

    def ordered(self, action: Action) -> None:
        """Note an order of the core, and judge what does not reach the wire."""
        self.trace.append(action)
        self.authority.ordered(action)
        if isinstance(action, Dial):
            invariants.I7_exists(self.surviving(), "dialled")
            if action.credential_kind == "bootstrap" and self.authority.obeyed is not None:
                raise Violation("I13", "a ticket that has bought a lease is dialled with")
            if self._failed_at_ms is not None:
                waited_ms = self.runner_machine.boot_ms - self._failed_at_ms
                invariants.I20_backoff(waited_ms, LEAST_PAUSE_MS)

    def noted(self, fact: str, **values: object) -> None:
        """Note anything else."""
        self.trace.append(fact)

    # --- its disk ---------------------------------------------------------------------------------

    def surviving(self) -> list[Image | None]:
        """Return every state that a power loss now could leave."""
        return self.judge.surviving()

    def replace_state(self, node: RunnerNode, durable: Durable) -> ReplaceFailed | None:
        """Let a write reach the disk; the process may die in it."""
        failure = self.judge.replaced(node.store.replace, durable, self.oracle)
        if failure is None and node.store.is_tight:
            self.seen.add("stored in the reserve")
        return failure

    def begin_write(
        self, node: RunnerNode, durable: Durable, done: Callable[[ReplaceFailed | None], None]
    ) -> None:
        """Give the state writer something to do."""

        def job() -> None:
            failure = self.replace_state(node, durable)
            node.loop.call_soon_threadsafe(done, failure)

        self.world.begin_job("state writer", node.loop, job)

    def look_for_room(self, node: RunnerNode, found: Callable[[], None]) -> None:
        """Let the state writer look for room on a full disk, again and again until there is."""

        def job() -> None:
            if _has_room(node):
                self.seen.add("room came back")
                node.loop.call_soon_threadsafe(found)
            else:
                self.look_for_room(node, found)

        self.world.begin_job("room", node.loop, job, delay_ms=ROOM_RETRY_MS)

    # --- programs ---------------------------------------------------------------------------------

    def settle_orphan(self) -> Literal["gone", "ended", "survived"]:
        """End what an earlier process left behind, as far as that is possible."""
        program, self.programs.program = self.programs.program, None
        self.seen.add("interrupted turn")
        if program is None or not program.is_alive:
            return "gone"
        program.is_alive = False
        if self.world.faults_are_on and self.world.profile.has("survivor"):
            outcomes: tuple[Literal["ended", "survived"], ...] = ("ended", "ended", "survived")
            return self.draws.stream("program").pick("orphan", outcomes)
        return "ended"

    def _program_ordered(self, order: StartHarness) -> int:
        return self.oracle.program_ordered(order.generation, self.surviving())

    def _program_spawned(self, program: Program) -> None:
        self.oracle.program_spawned(program.mark, program.controller_seq, program.replaces)
        if program.replaces is not None:
            self.seen.add("lost program replaced")

    def _program_told(self, talker: Talker, order: TellHarness) -> None:
        talker.tell(order, self.surviving(), self.seen)

    def _program_released(self, generation: int) -> None:
        invariants.I7_release(generation, self.surviving())


def _has_room(node: RunnerNode) -> bool:
    node.store.find_room()
    return not node.store.is_tight
