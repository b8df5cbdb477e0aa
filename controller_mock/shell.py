"""The controller's one loop: inputs in, one commit for all runs that need one, actions out.

It decides when runs are fed, drained and written. It refuses to take any decision of the
protocol, and it never waits for the disk.

    inbox ─▶ feed ─▶ drain ─▶ flush ─▶ begin commit ─▶ (writer thread) ─▶ drain ─▶ ...
"""

import asyncio
import itertools
from collections.abc import Callable

from controller_mock.commits import Commits
from controller_mock.core.actions import (
    Action,
    CallTool,
    CloseConnection,
    OpenChannel,
    Publish,
    PutCredential,
    Reply,
    SendControl,
    SendPlain,
)
from controller_mock.core.inputs import (
    Input,
    IntegrityConflictFound,
    RequestHandle,
    TimePassed,
)
from controller_mock.core.state import RunConfig, new_run, restore
from controller_mock.core.step import next_deadline
from controller_mock.deadlines import Deadlines
from controller_mock.io.peer import Peer
from controller_mock.io.websocket import Connection
from controller_mock.io.writer import Writer
from controller_mock.reception import Reception
from controller_mock.run_slot import Commit, RunSlot
from controller_mock.storage.store import CountsOwners, Store
from controller_mock.tool_bridge import ToolBridge
from protocol.base.clock import MonoMs, Now
from protocol.base.ports import Clock, Entropy
from protocol.envelope import Ack
from protocol.errors import ErrorCode, PrpError
from protocol.ids import CredentialId, RunId
from protocol.timestamps import rfc3339_ms


class Shell:
    """Everything that is live in one controller; used from one event loop only."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        entropy: Entropy,
        new_writer: Callable[[asyncio.AbstractEventLoop], Writer] = Writer,
    ) -> None:
        self._store = store
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._writer = new_writer(self._loop)
        self._commits = Commits(store, self._writer, self)
        self.reception = Reception(
            self._find_run,
            self.post,
            entropy,
            owner=store.owner if isinstance(store, CountsOwners) else None,
        )
        self.tools = ToolBridge(self.request)
        self._runs: dict[RunId, RunSlot] = {}
        self._credentials: dict[CredentialId, RunSlot] = {}
        self._requests = itertools.count(1)
        self._inbox: list[tuple[RunSlot, Input]] = []
        self._touched: dict[RunSlot, None] = {}
        """Fed or committed since they were last drained."""
        self._unflushed: dict[Connection, None] = {}
        self._changed: dict[RunSlot, None] = {}
        """Whose view is another since those who wait for that were last woken."""
        self._deadlines = Deadlines()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: MonoMs | None = None
        self._is_serving = False
        self._turn_is_due = False
        self._fault: asyncio.Future[None] = self._loop.create_future()

    # --- orders of the controller ---------------------------------------------------------------

    async def load(self) -> None:
        """Take up every run of the store.

        Raises:
            PrpError: the store's code.
        """
        for config, stored in await self._writer.call(self._store.load_runs):
            self._take(RunSlot(restore(config, stored)))

    async def create(self, config: RunConfig) -> None:
        """Add a run; PrpError ``run_exists`` or ``storage_write_failed``."""
        await self._writer.call(lambda: self._store.create_run(config))
        self._take(RunSlot(new_run(config)))

    def runs(self) -> list[RunSlot]:
        """Return all runs in the order of their creation."""
        return list(self._runs.values())

    def slot(self, run_id: RunId) -> RunSlot:
        """Return a run; PrpError ``run_unknown``."""
        slot = self._runs.get(run_id)
        if slot is None:
            raise PrpError(ErrorCode.RUN_UNKNOWN, run_id)
        return slot

    async def request(self, run_id: RunId, make: Callable[[RequestHandle], Input]) -> Reply:
        """Feed a local caller's input and return the core's reply, once it is durable.

        Raises:
            PrpError: STORAGE_WRITE_FAILED if the store failed meanwhile: it may or may not hold.
        """
        slot = self.slot(run_id)
        while slot.is_fenced:
            await slot.changed.wait()
        handle = RequestHandle(next(self._requests))
        reply = slot.expect_reply(handle)
        self.post(slot, make(handle))
        return await reply

    def post(self, slot: RunSlot, stimulus: Input) -> None:
        """Put an input into the inbox; the loop feeds it with all others that wait."""
        self._inbox.append((slot, stimulus))
        self._wake()

    def drop_connections(self, slot: RunSlot) -> None:
        """Drop a run's connections, as a broken network would."""
        for peer in list(slot.peers.values()):
            peer.connection.drop()

    async def run(self) -> None:
        """Serve until cancelled. Raises only for a fault of ours."""
        self._is_serving = True
        self._wake()
        try:
            await self._fault
        finally:
            self._is_serving = False

    async def close(self) -> None:
        """Drop every connection, finish the commit in flight and end the writer thread."""
        if self._timer is not None:
            self._timer.cancel()
        self.reception.drop_all()
        await self.tools.close()
        await self._writer.close()

    # --- the loop -------------------------------------------------------------------------------

    def _wake(self) -> None:
        # After the sockets that are readable now, so that their inputs share one turn.
        if not self._turn_is_due:
            self._turn_is_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_is_due = False
        self._guard(self._serve)

    def _guard(self, work: Callable[[], None]) -> None:
        if not self._is_serving:
            return
        try:
            work()
        except Exception as fault:  # noqa: BLE001 - the boundary of the loop; it ends `run`
            self.commit_broke(fault)

    def _serve(self) -> None:
        now = self._clock.now()
        inbox, self._inbox = self._inbox, []
        for slot, stimulus in inbox:
            self._feed(slot, stimulus, now)
        for slot in self._deadlines.take_due(now.mono_ms):
            self._feed(slot, TimePassed(), now)
        touched, self._touched = self._touched, {}
        for slot in touched:
            self._drain(slot, now)
        unflushed, self._unflushed = self._unflushed, {}
        for connection in unflushed:
            connection.flush()
        # Once peers have their answers: from here on the writer thread wants the interpreter.
        self._commits.begin()
        # Nobody waits for the rest, and there is time for it while the disk is waited for.
        for slot in touched:
            self._deadlines.set(slot, next_deadline(slot.driver.staged))
        changed, self._changed = self._changed, {}
        for slot in changed:
            slot.published()
        self._arm_timer(now)

    def _feed(self, slot: RunSlot, stimulus: Input, now: Now) -> None:
        # What a fenced run is told refers to connections and callers that it has given up.
        if not slot.is_fenced:
            slot.driver.feed(stimulus, now)
            self._touched[slot] = None
            self._commits.want(slot)

    def _arm_timer(self, now: Now) -> None:
        deadline = self._deadlines.earliest()
        if deadline == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = None
        if deadline is not None:
            wait_ms = max(1, deadline - now.mono_ms)
            self._timer = self._loop.call_later(wait_ms / 1000, self._deadline_came)

    def _deadline_came(self) -> None:
        self._timer_at = None
        self._wake()

    # --- actions --------------------------------------------------------------------------------

    def _drain(self, slot: RunSlot, now: Now) -> None:
        ack: SendControl | None = None
        while (action := slot.driver.next_action()) is not None:
            if isinstance(action, Publish):
                self._changed[slot] = None
            elif isinstance(action, SendControl) and isinstance(action.message, Ack):
                # Cumulative: of several that leave together the last says it all.
                if ack is not None and ack.connection != action.connection:
                    self._perform(slot, ack, now)
                ack = action
            else:
                if ack is not None:
                    self._perform(slot, ack, now)
                    ack = None
                self._perform(slot, action, now)
        if ack is not None:
            self._perform(slot, ack, now)

    def _perform(self, slot: RunSlot, action: Action, now: Now) -> None:
        match action:
            case Reply():
                slot.reply(action)
            case CallTool():
                self.tools.call(slot.run_id, slot.config.identity, action)
            case Publish():
                self._changed[slot] = None
            case SendPlain() | OpenChannel() | SendControl() | CloseConnection():
                peer = slot.peers.get(action.connection)
                if peer is not None and peer.connection.is_open:
                    self._perform_on(peer, action, now)

    def _perform_on(
        self, peer: Peer, action: SendPlain | OpenChannel | SendControl | CloseConnection, now: Now
    ) -> None:
        match action:
            case SendPlain():
                peer.connection.send_text(action.frame)
            case OpenChannel():
                self.reception.seal(peer, action.keys, action.binding)
            case SendControl():
                try:
                    peer.send_control(action.message, action.envelope_id, rfc3339_ms(now.unix_ms))
                except PrpError as error:
                    peer.connection.refuse(error.code)
            case CloseConnection():
                self.reception.close(peer, action.code)
        self._unflushed[peer.connection] = None

    # --- CommitListener -------------------------------------------------------------------------

    def commit_started(self) -> None:
        """Read only so much more, lest a busy loop starve the writer."""
        self.reception.commit_started()

    def commit_ended(self, written: list[Commit]) -> None:
        """Drain what waited, then read and commit on."""
        self.reception.commit_ended()
        self._guard(lambda: self._note_written(written))
        self._turn()

    def _note_written(self, written: list[Commit]) -> None:
        for commit in written:
            if any(isinstance(change, PutCredential) for change in commit.write.writes):
                self._index_credentials(commit.slot)
            self._changed[commit.slot] = None
            self._touched[commit.slot] = None

    def run_fenced(self, slot: RunSlot, code: ErrorCode) -> None:
        """Drop the run's connections; nothing that is staged may leave."""
        peers, slot.peers = slot.peers, {}
        for peer in peers.values():
            self.reception.close(peer, code)

    def run_reloaded(self, slot: RunSlot) -> None:
        """Serve the run again."""
        self._index_credentials(slot)
        if slot.conflict is not None:
            self.post(slot, IntegrityConflictFound(slot.conflict))
            slot.conflict = None
        self._deadlines.set(slot, next_deadline(slot.driver.staged))
        self._wake()

    def commit_broke(self, fault: Exception) -> None:
        """End `run` with a fault of ours."""
        if self._is_serving and not self._fault.done():
            self._is_serving = False
            self._fault.set_exception(fault)

    # --- runs -----------------------------------------------------------------------------------

    def _take(self, slot: RunSlot) -> None:
        self._runs[slot.run_id] = slot
        self._index_credentials(slot)
        self._deadlines.set(slot, next_deadline(slot.driver.staged))
        self._wake()

    def _find_run(self, credential_id: CredentialId) -> RunSlot | None:
        return self._credentials.get(credential_id)

    def _index_credentials(self, slot: RunSlot) -> None:
        for credential_id in slot.credentials:
            del self._credentials[credential_id]
        slot.credentials = slot.stored_credentials()
        self._credentials.update(dict.fromkeys(slot.credentials, slot))


# Both are keys of ordered sets above: compared by identity.
assert RunSlot.__hash__ is object.__hash__
assert Connection.__hash__ is object.__hash__
