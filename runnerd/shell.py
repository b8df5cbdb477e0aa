"""The one loop of a connected runner: inputs in, one write in flight, actions out.

It decides nothing about the protocol: it feeds whole batches, lets the driver say what may
leave, and hands over without waiting. It refuses to know sockets, processes and files.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, assert_never

import anyio
import msgspec
from anyio.abc import TaskGroup

from protocol.base.atomic_file import WriteFailed as ReplaceFailed
from protocol.ids import Identity
from protocol.limits import HARNESS_GRACE_MS
from runnerd.core.actions import (
    Action,
    CloseConnection,
    Dial,
    Exit,
    ForgetHarness,
    ReadHarness,
    RecordCancel,
    RecordFacts,
    ReleaseHarness,
    SendEvent,
    SendPong,
    SendRenewal,
    SendResult,
    StartHarness,
    StopHarness,
    TellHarness,
)
from runnerd.core.inputs import HarnessExited, Input
from runnerd.core.recording import end_facts_of
from runnerd.core.turns import judge
from runnerd.driving import Alarm, RunnerDriver, end_write, tell_room
from runnerd.first_contact import World
from runnerd.harness.executor import Executor
from runnerd.harness.recording import Recording, recorder_in
from runnerd.harness.worker import Worker
from runnerd.inbox import Inbox
from runnerd.io.dialling import Call
from runnerd.io.endpoint import Endpoint
from runnerd.io.writer import StateWriter

_MS: Final = 1000


class WriteEnded(msgspec.Struct, frozen=True):
    """The write in flight is durable, or ``failure`` says why not."""

    failure: ReplaceFailed | None


class RoomFound(msgspec.Struct, frozen=True):
    """The disk of the state has room again."""


class Fault(msgspec.Struct, frozen=True):
    """Something happened beside the loop that nothing of ours may do."""

    cause: BaseException


class Faulted(Exception):
    """The shell cannot go on; the cause is attached."""


async def serve(driver: RunnerDriver, world: World, call: Call, environ: Mapping[str, str]) -> Exit:
    """Run the daemon from its first welcome to its end.

    Args:
        driver: has been fed the welcome of ``call``.
        environ: the environment of which a harness may see the allowed part.

    Returns:
        The core's order to end; connection and harness are gone by then.
    """
    order: Exit | None = None
    async with anyio.create_task_group() as tasks:
        shell = Shell(driver, world, tasks, environ)
        try:
            order = await shell.run(call)
        finally:
            with anyio.CancelScope(shield=True):
                await shell.close()
        tasks.cancel_scope.cancel()
    assert order is not None, "nobody else cancels the tasks"
    return order


class Shell:
    """Feeds the driver and performs what it lets out."""

    def __init__(
        self, driver: RunnerDriver, world: World, tasks: TaskGroup, environ: Mapping[str, str]
    ) -> None:
        self._driver = driver
        self._world = world
        self._loop = asyncio.get_running_loop()
        self._inbox: Inbox[Input | WriteEnded | RoomFound | Fault] = Inbox(self._wake)
        self._endpoint = Endpoint(world.caller, world.clock, self._inbox.post, tasks)
        identity = driver.staged.settings.identity
        self._executor = Executor(
            self._inbox.post,
            run_id=identity.run_id,
            environ=environ,
            recording=self._recording(identity),
        )
        self._writer = StateWriter(
            world.store,
            done=self._write_ended,
            failed=lambda cause: self._inbox.post(Fault(cause)),
            room=world.room,
            room_found=lambda _: self._inbox.post(RoomFound()),
        )
        self._alarm = Alarm(driver)
        self._timer: asyncio.TimerHandle | None = None
        self._end: asyncio.Future[Exit] | None = None
        """Why it serves no more; None until it does."""

    def _recording(self, identity: Identity) -> Recording | None:
        folder = self._world.run_folder
        if folder is None:
            return None
        worker = Worker(failed=lambda cause: self._inbox.post(Fault(cause)))
        return Recording(lambda: recorder_in(folder, self._world.clock, identity), worker)

    async def run(self, call: Call) -> Exit:
        """Serve until the core orders the end."""
        self._loop.set_exception_handler(self._note_fault)
        self._world.stops.attach(self._loop, self._inbox.post)
        for fact in call.further:
            self._inbox.post(fact)
        await self._endpoint.adopt(call)
        self._end = self._loop.create_future()
        self._turn()
        try:
            return await self._end
        finally:
            if self._timer is not None:
                self._timer.cancel()

    async def close(self) -> None:
        """End connection and harness; the write in flight, if any, is left to itself."""
        self._endpoint.close()
        self._writer.close()
        await self._executor.close(HARNESS_GRACE_MS)

    # --- the loop ---------------------------------------------------------------------------

    def _wake(self) -> None:
        # After the descriptors that are readable now, so that their inputs share one turn.
        self._loop.call_soon(self._turn_if_due)

    def _turn_if_due(self) -> None:
        if not self._inbox.is_empty:
            self._turn()

    def _turn(self) -> None:
        """Feed what waits, let out what may leave, and see to it that no deadline is slept over.

        A callback and no task: after an idle wait each layer between an arrival and the
        write that it causes takes several times as long.
        """
        end = self._end
        if end is None or end.done():
            return
        try:
            self._feed_waiting()
            self._begin_write()
            order = self._perform_ready()
            self._arm()
        except Exception as fault:  # noqa: BLE001 - the boundary of the loop; it ends `run`
            end.set_exception(fault)
        else:
            if order is not None:
                end.set_result(order)

    def _write_ended(self, failure: ReplaceFailed | None) -> None:
        # What waited for the disk does not wait for the loop to come round once more.
        self._inbox.post(WriteEnded(failure))
        self._turn()

    def _arm(self) -> None:
        due_s = self._loop.time() + self._alarm.sleep_ms(self._world.clock.now()) / _MS
        if self._timer is not None:
            # A deadline that moved away finds the timer too early, which costs a look.
            if self._timer.when() <= due_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due_s, self._look_at_clock)

    def _look_at_clock(self) -> None:
        self._timer = None
        self._alarm.tell(self._world.clock.now())
        self._turn()

    # --- into the core ----------------------------------------------------------------------

    def _feed_waiting(self) -> None:
        """Feed everything that waits before anything is let out: one write serves it all."""
        clock, driver, log = self._world.clock, self._driver, self._world.log
        for item in self._inbox.take():
            match item:
                case WriteEnded(failure=failure):
                    self._endpoint.state_is_being_written(False)
                    end_write(driver, log, failure, clock.now())
                    tell_room(driver, log, self._world.room, clock.now())
                case RoomFound():
                    tell_room(driver, log, self._world.room, clock.now())
                case Fault(cause=cause):
                    raise Faulted from cause
                case HarnessExited(recorded=None) if self._executor.record(
                    item, judge(driver.staged, item), end_facts_of(driver.staged.durable)
                ):
                    # It comes again once the log of the run has it (D9).
                    continue
                case _:
                    log.heard(item)
                    driver.feed(item, clock.now())

    # --- out of the core --------------------------------------------------------------------

    def _begin_write(self) -> None:
        if (write := self._driver.next_write()) is not None:
            self._endpoint.state_is_being_written(True)
            self._writer.begin(write.state.durable)

    def _perform_ready(self) -> Exit | None:
        log, order = self._world.log, None
        while order is None and (action := self._driver.next_action()) is not None:
            log.ordered(action)
            if isinstance(action, Exit):
                order = action
            else:
                self._perform(action)
        self._endpoint.flush()
        return order

    def _perform(self, action: Action) -> None:
        match action:
            case (
                Dial() | SendEvent() | SendResult() | SendRenewal() | SendPong() | CloseConnection()
            ):
                self._endpoint.perform(action)
            case (
                StartHarness()
                | ReleaseHarness()
                | ReadHarness()
                | TellHarness()
                | StopHarness()
                | ForgetHarness()
            ):
                # In the order of the core: what it sends first leaves first.
                self._endpoint.flush()
                self._executor.perform(action)
            case RecordFacts():
                self._executor.note(action)
            case RecordCancel():
                self._executor.record_cancel()
            case Exit():
                raise AssertionError("the end is not performed, it is returned")
            case _:
                assert_never(action)

    def _note_fault(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Take what the event loop would print with a traceback and go on after."""
        cause = context.get("exception")
        self._inbox.post(Fault(cause if isinstance(cause, BaseException) else Faulted()))
