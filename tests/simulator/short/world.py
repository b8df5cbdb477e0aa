"""One runner on one disk: the production machine, driver and state file, step by step.

It decides how inputs, writes and orders follow each other, as the daemon's loop does. It
refuses to choose what happens next (the history) and to judge it (the oracle).
"""

from collections.abc import Callable
from typing import Any, Final, Never

from protocol.base.clock import MonoMs
from protocol.base.driver import Write
from protocol.codec import event_envelope
from protocol.errors import ExitStatus, PrpError, exit_status
from protocol.ids import Generation, Identity
from runnerd.core.actions import Action, Exit
from runnerd.core.inputs import Input, OrphanSettled, Started, TimePassed
from runnerd.core.recovery import start
from runnerd.core.state import Boot, Runner, Settings
from runnerd.core.step import next_deadline, step
from runnerd.driving import RunnerDriver, end_write, tell_room
from runnerd.io.state_file import StateFile
from tests.simulator.disk import Mode
from tests.simulator.disk_faults import Died
from tests.simulator.disk_process import DiskProcess
from tests.simulator.draws import Draws
from tests.simulator.image import PATH, Image
from tests.simulator.judge import StateJudge
from tests.simulator.machine import BOOT_MS, EPOCH_MS, Machine
from tests.simulator.option import Command
from tests.simulator.oracle import Oracle
from tests.simulator.profile import Profile
from tests.simulator.short.peer import Peer
from tests.simulator.short.program import Program
from tests.simulator.verdict import Violation

IDENTITY: Final = Identity(
    runner_instance_id="runner_1",
    environment_lease_id="envlease_1",
    run_id="run_1",
    normalized_session_id="session_1",
    turn_id="turn_1",
    item_id="item_1",
)
ENVELOPE_BYTES: Final = sum(len(part) for part in event_envelope(2, IDENTITY))
USUAL_BYTES: Final = (512 * 1024, 32 * 1024)
"""Outbox and reserve where no pressure is drawn: enough, and cheap to keep on a disk."""
CRAMMED_BYTES: Final = (12 * 1024, 2 * 1024)
"""An outbox so small that facts of priority 0 alone can fill it."""
RECONNECT_DELAY_MS: Final = 250
LEAST_PAUSE_MS: Final = RECONNECT_DELAY_MS * 74 // 100
TERMINAL_TYPES: Final = ("runner.suspend", "runner.shutdown")
OVER: Final = ("stopped", "revoked")


def settings_of(outbox_bytes_max: int, reserve_bytes: int) -> Settings:
    """Return what the command line would fix."""
    return Settings(
        identity=IDENTITY,
        runner_version="1.0.0",
        runner_digest="sha256:" + "0" * 64,
        max_outbox_bytes=outbox_bytes_max,
        p0_reserve_bytes=reserve_bytes,
        max_frame_bytes=2**20,
        reconnect_delay_ms=RECONNECT_DELAY_MS,
        reconnect_grace_ms=60_000,
        max_runtime_ms=0,
        bootstrap_deadline_ms=60_000,
    )


class SilentLog:
    """A log that nobody reads."""

    def heard(self, stimulus: Input) -> None:
        return

    def ordered(self, action: Action) -> None:
        return

    def noted(self, fact: str, **values: object) -> None:
        return


LOG: Final = SilentLog()


class World:
    """The runner, and what surrounds it."""

    def __init__(
        self,
        draws: Draws,
        profile: Profile,
        settings: Settings,
        mode: Mode,
        note: Callable[["World", Input], None],
        perform: Callable[["World", Action], None],
    ) -> None:
        """Begin with an empty disk and no process.

        Args:
            note: is told what the runner is about to be fed.
            perform: carries out what the runner orders.
        """
        self.draws = draws
        self.profile = profile
        self._note = note
        self._perform = perform
        self.machine = Machine(mode, draws.seed)
        self.trace: list[object] = []
        self.seen: set[str] = set()
        self.judge = StateJudge(self.machine, self.trace, self.seen)
        self.use_settings(settings)
        self.peer = Peer(IDENTITY)
        self.program: Program | None = None
        self.inbox: list[Input] = []
        self.start_name = ""
        self.grammar: tuple[Command[World], ...] = ()
        self.driver: RunnerDriver | None = None
        self.write: Write[Runner, Never] | None = None
        self.exit: Exit | None = None
        """How the last process ended by itself; None while one runs or after a crash."""
        self.must_close: str | None = None
        """The invariant that is broken unless the runner closes the connection in this turn."""
        self.must_end: str | None = None
        """The invariant that is broken unless the runner ends with the write in flight."""
        self.must_refuse: str | None = None
        """The contradiction of two histories that the runner was told of on this connection."""
        self.rolled_back = False
        self.kept: dict[str, Any] = {}
        """What options remember between their steps."""
        self.loaded_next = 1
        """The first number that this process gives to an event."""
        self.acked_now = 0
        """What this process was told with authority, or has found stored."""
        self.faults_are_on = True
        self.authority_ends: tuple[int, int] = (0, 0)
        """Suspend-aware and wall clock at which control data must not be applied any more."""
        self.renewal_observed: int | None = None
        self.failed_at_boot_ms: int | None = None
        """When the runner was last told that a connection or an attempt ended."""
        self.reused: set[int] = set()
        """Commands under an id that was used before and is forgotten: they are to be refused."""
        self.stops = 0
        self.line_length = 0
        self._fs: DiskProcess | None = None
        self._store: StateFile | None = None
        self._deadline: tuple[Runner | None, MonoMs | None] = (None, None)
        """The deadline of a state, which is asked for more often than states change."""

    def use_settings(self, settings: Settings) -> None:
        """Fix what the command line fixes, before the first process."""
        self.settings = settings
        self.oracle = Oracle(ENVELOPE_BYTES, settings.max_outbox_bytes, settings.p0_reserve_bytes)

    # --- what can be asked --------------------------------------------------------------------

    @property
    def elapsed_ms(self) -> int:
        """Virtual time since the beginning."""
        return self.machine.boot_ms - BOOT_MS

    @property
    def peer_now_ms(self) -> int:
        """The controller's wall clock."""
        return EPOCH_MS + self.elapsed_ms

    @property
    def is_running(self) -> bool:
        """True while a process runs."""
        return self.driver is not None

    @property
    def is_over(self) -> bool:
        """True once no start would do anything any more, or a person must look first."""
        image, ended = self.oracle.image, self.exit
        if ended is None or self.is_running:
            return False
        if ended.code is not None:
            return exit_status(ended.code) is ExitStatus.PROTOCOL
        return image is not None and image.lifecycle in OVER and not image.outbox

    def has_authority(self) -> bool:
        """Tell whether control data may be applied now, by the world's own reckoning."""
        now = self.machine.now()
        boot_end, wall_end = self.authority_ends
        is_current = self.peer.link is not None and self.peer.link.is_current
        return is_current and now.mono_ms < boot_end and now.unix_ms < wall_end

    def deadline(self) -> MonoMs | None:
        """Return when time alone changes something, None if never."""
        if self.driver is None:
            return None
        staged = self.driver.staged
        if self._deadline[0] is not staged:
            self._deadline = (staged, next_deadline(staged))
        return self._deadline[1]

    def surviving(self) -> list[Image | None]:
        """Return every state that a power loss now could leave."""
        return self.judge.surviving()

    def scaled(self, family: str, weight: int) -> int:
        """Return a weight that is threefold in a storm."""
        return weight * (2 * self.profile.level(family) - 1)

    def line_text(self, number: int) -> str:
        """Return the text of an output line, which nobody may change."""
        return f"line {number} ".ljust(self.line_length, "x")

    # --- the process ------------------------------------------------------------------------

    def start_process(self) -> None:
        """Start a process on whatever the disk holds."""
        self._fs = DiskProcess(self.machine.disk, self.judge.strike, self.draws.stream("disk"))
        lock = self.machine.lock_of(self._fs)
        self._store = StateFile(self._fs, self.machine, PATH, self.settings, lock)
        self.exit = self.failed_at_boot_ms = None
        self.stops = 0
        try:
            durable = self.judge.opened(self._store.open)
        except Died:
            self.trace.append("died at start")
            self._forget_process()
            return
        except PrpError:
            self._close_store()
            return
        image = self.judge.found(durable, self.oracle)
        self.acked_now = image.acked_source_seq if image else 0
        self.loaded_next = image.next_source_seq if image else 1
        boot = Boot(
            state_id=self.machine.token_bytes(16).hex(),
            jitter_seed=int.from_bytes(self.machine.token_bytes(4)),
            now=self.machine.now(),
        )
        self.driver = RunnerDriver(start(self.settings, durable, boot), step)
        self.trace.append(("start", image.next_source_seq if image else None))
        self.driver.feed(Started(self._settle_orphan(image)), self.machine.now())
        tell_room(self.driver, LOG, self._store, self.machine.now())
        self.settle()

    def crash(self) -> None:
        """End the process between two of its steps."""
        self.trace.append("crash")
        self._forget_process()

    def lose_power(self) -> None:
        """End every process of the machine, and keep of the disk what was synchronised."""
        self.trace.append("power loss")
        self._forget_process()
        self.program = None
        self.machine.disk.lose_power(self.draws.stream("disk"))
        self.judge.disk_moved()

    def end_process(self, order: Exit) -> None:
        """End the process as it ordered; its harness ends with it."""
        self.exit = order
        self.program = None
        self._close_store()

    def _close_store(self) -> None:
        assert self._store is not None
        try:
            self._store.close()
        except Died:
            self.trace.append("died at the end")
        self._forget_process()

    def _forget_process(self) -> None:
        self.driver = self.write = None
        self.inbox.clear()
        self.peer.dial = self.peer.link = None
        self.must_close = self.must_end = self.must_refuse = None
        self.judge.disk_moved()
        if self._fs is not None:
            self._fs.kill()
            self.machine.process_ended(self._fs)
            self._fs = None

    def _settle_orphan(self, image: Image | None) -> OrphanSettled | None:
        if image is None or image.turn is None:
            return None
        program, self.program = self.program, None
        self.seen.add("interrupted turn")
        generation = Generation(image.turn.generation)
        if program is None or not program.is_alive:
            return OrphanSettled(generation, "gone")
        may_survive = self.faults_are_on and self.profile.has("survivor")
        if may_survive and self.draws.stream("program").chance("orphan survives", 25):
            return OrphanSettled(generation, "survived")
        return OrphanSettled(generation, "ended")

    # --- the loop -----------------------------------------------------------------------------

    def turn(self, count: int) -> None:
        """Feed some of what waits, then time, then let out what may leave."""
        assert self.driver is not None
        for _ in range(count):
            stimulus = self.inbox.pop(0)
            self.trace.append(stimulus)
            self._note(self, stimulus)
            self.driver.feed(stimulus, self.machine.now())
        deadline, now = self.deadline(), self.machine.now()
        if deadline is not None and now.mono_ms >= deadline:
            self.trace.append("time passed")
            self.driver.feed(TimePassed(), now)
        self.settle()
        self._judge_turn()

    def _judge_turn(self) -> None:
        """A lie, or a history that contradicts the runner's, closes the connection at once."""
        is_open = self.peer.link is not None and self.peer.link.is_open
        number, self.must_close = self.must_close, None
        if number is not None and is_open:
            # The one excuse is an end that was decided before and waits for a write.
            self.must_end = number
            self._judge_lie()
        if self.must_refuse is not None and is_open:
            raise Violation("I4", f"no {self.must_refuse}: the connection stays open")

    def _judge_lie(self) -> None:
        if self.must_end is not None and self.write is None:
            raise Violation(self.must_end, "a lie was taken: the connection stays open")

    def settle(self) -> None:
        """Begin the write that is waited for, and perform what may leave."""
        driver = self.driver
        assert driver is not None
        if self.write is None:
            self.write = driver.next_write()
        while (action := driver.next_action()) is not None:
            self.trace.append(action)
            self._perform(self, action)
            if self.driver is None:
                return

    def finish_write(self) -> None:
        """Let the write in flight reach the disk, or fail, or kill the process."""
        write, driver = self.write, self.driver
        assert write is not None
        assert driver is not None
        assert self._store is not None
        self.write = None
        try:
            failure = self.judge.replaced(self._store.replace, write.state.durable, self.oracle)
        except Died:
            self.trace.append("died in a write")
            self.seen.add("died in a write")
            self._forget_process()
            return
        self.trace.append(("wrote", write.revision))
        if failure is not None:
            self.must_end = None
        end_write(driver, LOG, failure, self.machine.now())
        tell_room(driver, LOG, self._store, self.machine.now())
        self.settle()
        self._judge_lie()
