"""A runner process on its simulated machine: the daemon's own parts, wired to virtual ports.

It decides what the composition root decides: the order of a start, and what an end means.
Shell, endpoint, wire, link, state file, driver and core are the product's. Only waiting is
simulated: where the product blocks or awaits, a callback is scheduled instead.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

from anyio.abc import TaskGroup

from protocol.base.atomic_file import WriteFailed as ReplaceFailed
from protocol.errors import ErrorCode
from protocol.ids import Generation
from protocol.limits import (
    SHELL_SLEEP_MS_MAX,
)
from protocol.secrets import Secret
from runnerd.core.actions import Dial, Exit
from runnerd.core.inputs import (
    Connected,
    ConnectFailed,
    ControlReceived,
    Input,
    OrphanSettled,
    Started,
    StopRequested,
)
from runnerd.core.recovery import start
from runnerd.core.state import Boot, Durable
from runnerd.core.step import next_deadline, step
from runnerd.destination import Destination
from runnerd.driving import Alarm, RunnerDriver, end_write, tell_room
from runnerd.inbox import Inbox
from runnerd.io.caller import Caller
from runnerd.io.endpoint import Endpoint
from runnerd.io.link import Link
from runnerd.io.resolver import Address
from runnerd.io.state_file import StateFile
from runnerd.io.wire import Wire
from runnerd.io.writer import StateWriter
from runnerd.shell import Fault, RoomFound, Shell, WriteEnded
from tests.simulator.disk_process import DiskProcess
from tests.simulator.full.contact import Contact
from tests.simulator.full.executor import SimulatedExecutor
from tests.simulator.full.loop import VirtualLoop
from tests.simulator.full.network import Transport
from tests.simulator.image import PATH, Image

if TYPE_CHECKING:
    from tests.simulator.full.side import Side

DESTINATION: Final = Destination(
    is_secure=False, host="127.0.0.1", port=7000, path="/api/runner/v1/connect"
)
ADDRESSES: Final = (Address(2, "127.0.0.1", 7000),)
LONG_SLEEP_MS: Final = 60_000
_MS: Final = 1000


class RunnerNode:
    """One incarnation of the runner."""

    def __init__(self, side: "Side", ticket: bytes) -> None:
        self.side = side
        machine = side.runner_machine
        self.loop = VirtualLoop(machine)
        self.fs = DiskProcess(machine.disk, side.judge.strike, side.draws.stream("disk"))
        self.store = StateFile(self.fs, machine, PATH, side.settings, machine.lock_of(self))
        self.caller = Caller(
            side.settings, DESTINATION, Secret(ticket), machine, addresses=ADDRESSES
        )
        self.driver: RunnerDriver | None = None
        self.executor: SimulatedExecutor | None = None
        self.shell: NodeShell | None = None
        self.is_writing = False
        self._alarm: Alarm | None = None
        self._contact: Contact | None = None
        self._stops: list[StopRequested] = []
        self._stop_count = 0
        self._wake: asyncio.TimerHandle | None = None
        self._is_due = False

    @property
    def staged(self) -> Any:
        """Return the core's present state, for deadlines and options alone."""
        return None if self.driver is None else self.driver.staged

    def begin(self, durable: Durable | None, image: Image | None) -> None:
        """Give the core its first input; the state is loaded."""
        machine = self.side.runner_machine
        boot = Boot(
            state_id=machine.token_bytes(16).hex(),
            jitter_seed=int.from_bytes(machine.token_bytes(4)),
            now=machine.now(),
        )
        self.driver = RunnerDriver(start(self.side.settings, durable, boot), step)
        self._alarm = Alarm(self.driver)
        self._feed(Started(self._settle_orphan(image)))
        tell_room(self.driver, self.side, self.store, machine.now())
        self.loop.call_soon(self._drive)

    def stop(self, signal: int) -> None:
        """Send the process a signal."""
        self._stop_count += 1
        stop = StopRequested(signal, self._stop_count)
        if self.shell is not None:
            self.shell.post(stop)
            return
        self._stops.append(stop)
        if self._contact is not None:
            self.loop.call_soon(self._contact.fail, ErrorCode.CONNECTION_LOST)
        else:
            self.loop.call_soon(self._drive)

    # --- before the first welcome (first_contact.make_contact) --------------------------------

    def _feed(self, stimulus: Input) -> None:
        assert self.driver is not None
        self.side.heard(stimulus)
        self.driver.feed(stimulus, self.side.runner_machine.now())

    def _drive(self) -> None:
        if self._contact is not None or self.shell is not None:
            return
        driver, alarm = self.driver, self._alarm
        assert driver is not None
        assert alarm is not None
        while True:
            stops, self._stops = self._stops, []
            for stop in stops:
                self._feed(stop)
            self._write_inline()
            action = driver.next_action()
            if action is None:
                self._sleep(self._sleep_ms(alarm), self._woken)
                return
            self.side.ordered(action)
            if isinstance(action, Exit):
                self.side.runner_ended(action)
                return
            assert isinstance(action, Dial), "an order that needs a connection, before the first"
            self._contact = Contact(self, action)
            return

    def _woken(self) -> None:
        if self._contact is not None or self.shell is not None:
            return
        assert self._alarm is not None
        self._alarm.tell(self.side.runner_machine.now())
        self._drive()

    def _write_inline(self) -> None:
        driver = self.driver
        assert driver is not None
        while (write := driver.next_write()) is not None:
            failure = self.side.replace_state(self, write.state.durable)
            end_write(driver, self.side, failure, self.side.runner_machine.now())
            tell_room(driver, self.side, self.store, self.side.runner_machine.now())

    def contact_failed(self, failed: ConnectFailed) -> None:
        """Go on without a connection."""
        self._contact = None
        self._feed(failed)
        self._drive()

    # --- after it (shell.serve) ---------------------------------------------------------------

    def contacted(self, contact: Contact) -> None:
        """Hand the welcomed connection to the shell."""
        welcomed, *further = contact.facts
        assert isinstance(welcomed, Connected), "a welcome comes before all else"
        self._contact = None
        self._feed(welcomed)
        self.caller.forget_ticket()
        shell = self.shell = NodeShell(self)
        self.executor = shell.programs
        for fact in further:
            assert isinstance(fact, ControlReceived)
            shell.post(fact)
        shell.adopt(contact.link, contact.transport)
        self._turn_out()

    def turn_is_due(self) -> None:
        """Let the shell have its turn when the loop is next free."""
        if not self._is_due and self.shell is not None:
            self._is_due = True
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_due = False
        assert self.shell is not None
        self.shell.take_in()
        self._turn_out()

    def _turn_out(self) -> None:
        assert self.shell is not None
        order = self.shell.let_out()
        if order is not None:
            self.side.runner_ended(order)
            return
        self._sleep(self._sleep_ms(self.shell.alarm), self.turn_is_due)

    def _sleep_ms(self, alarm: Alarm) -> int:
        """Return how long nothing can be due.

        The product never sleeps long, because timers do not count suspension. Here whoever
        suspends the machine wakes the process, and all other short sleeps would do nothing.
        """
        assert self.driver is not None
        now = self.side.runner_machine.now()
        short_ms, deadline = alarm.sleep_ms(now), next_deadline(self.driver.staged)
        if short_ms < SHELL_SLEEP_MS_MAX:
            return short_ms
        return LONG_SLEEP_MS if deadline is None else max(short_ms, deadline - now.mono_ms)

    def woken_by_the_machine(self) -> None:
        """Look at the clocks soon, as a sleep that is never long makes sure."""
        then = self._woken if self.shell is None else self.turn_is_due
        self._sleep(self.side.draws.stream("clock").choose("wakes after", SHELL_SLEEP_MS_MAX), then)

    def _sleep(self, milliseconds: int, then: Callable[[], None]) -> None:
        if self._wake is not None:
            self._wake.cancel()
        self._wake = self.loop.call_later(milliseconds / _MS, then)

    # --- the end ------------------------------------------------------------------------------

    def close(self) -> None:
        """End in order: connection, harness, then the directory."""
        if self.shell is not None:
            self.shell.end()
        self.store.close()

    def _settle_orphan(self, image: Image | None) -> OrphanSettled | None:
        if image is None or image.turn is None:
            return None
        outcome = self.side.settle_orphan()
        return OrphanSettled(Generation(image.turn.generation), outcome)


class _Inbox(Inbox[Input | WriteEnded | RoomFound | Fault]):
    """The shell's inbox; whoever posts wakes the node instead of an awaiting task."""

    def __init__(self, node: RunnerNode) -> None:
        self._items = deque()
        self._node = node

    def post(self, item: Input | WriteEnded | RoomFound | Fault) -> None:
        self._items.append(item)
        self._node.turn_is_due()


class _Tasks:
    """Starts dials without tasks."""

    def __init__(self, dial: Callable[[Dial, int], None]) -> None:
        self._dial = dial

    def start_soon(self, func: Callable[..., object], dial: Dial, number: int) -> None:
        self._dial(dial, number)


class _Writer(StateWriter):
    """The writer thread as a simulated job."""

    def __init__(self, node: RunnerNode, inbox: _Inbox) -> None:
        self._node = node
        self._inbox = inbox
        self._is_looking = False

    def begin(self, durable: Durable) -> None:
        self._node.side.begin_write(self._node, durable, self._done)

    def _done(self, failure: ReplaceFailed | None) -> None:
        self._inbox.post(WriteEnded(failure))
        if self._node.store.is_tight and not self._is_looking:
            self._is_looking = True
            self._node.side.look_for_room(self._node, self._found)

    def _found(self) -> None:
        self._is_looking = False
        self._inbox.post(RoomFound())

    def close(self) -> None:
        return


class NodeShell(Shell):
    """The product's shell over simulated ports; its loop is driven from outside."""

    def __init__(self, node: RunnerNode) -> None:
        assert node.driver is not None
        side = node.side
        self._node = node
        self._driver = node.driver
        self._world = cast(
            Any,
            SimpleNamespace(clock=side.runner_machine, store=node.store, log=side, room=node.store),
        )
        self._inbox = inbox = _Inbox(node)
        tasks = cast(TaskGroup, _Tasks(self._start_dial))
        self._endpoint = Endpoint(node.caller, side.runner_machine, inbox.post, tasks)
        self.programs = SimulatedExecutor(inbox.post, node.loop, side.programs)
        self._executor = self.programs
        self._writer = _Writer(node, inbox)
        self._alarm = Alarm(node.driver)

    def post(self, fact: Input) -> None:
        """Put a fact behind the others."""
        self._inbox.post(fact)

    def adopt(self, link: Link, transport: Transport) -> None:
        """Take over the connection of the first contact."""
        wire = Wire(link, self._node.side.runner_machine, self._inbox.post)
        self._put(wire, transport)

    def take_in(self) -> None:
        """Feed what waits, and time."""
        self._feed_waiting()
        self._alarm.tell(self._node.side.runner_machine.now())

    def let_out(self) -> Exit | None:
        """Begin a write, perform what may leave; the order to end, if there is one."""
        self._begin_write()
        return self._perform_ready()

    @property
    def alarm(self) -> Alarm:
        """Return what tells the core of time."""
        return self._alarm

    def end(self) -> None:
        """Drop the connection and the harness."""
        self._endpoint.close()
        self.programs.abandon()

    def _put(self, wire: Wire, transport: Transport) -> None:
        self._endpoint.use(wire)
        transport.set_protocol(wire)
        wire.connection_made(transport)

    def _start_dial(self, dial: Dial, number: int) -> None:
        loop, endpoint = self._node.loop, self._endpoint
        began_s = loop.time()

        def connected(transport: Transport | None) -> None:
            if not endpoint.is_latest(number):
                if transport is not None:
                    transport.set_protocol(asyncio.Protocol())
                    transport.abort()
                return
            if transport is None:
                self.post(ConnectFailed(code=ErrorCode.CONNECTION_LOST))
                return
            wire = Wire(
                self._node.caller.link(dial), self._node.side.runner_machine, self._inbox.post
            )
            wire.expect_welcome(dial.timeout_ms / _MS - (loop.time() - began_s))
            self._put(wire, transport)

        self._node.side.dial(loop, connected)
