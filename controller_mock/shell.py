"""The controller's one loop: inputs in, one commit for all runs that need one, actions out.

It decides when runs are fed, written and drained, and what follows from a store that fails.
It refuses to take any decision of the protocol, and it never waits for the disk.

    inbox ─▶ feed ─▶ drain ─▶ flush ─▶ begin commit ─▶ (writer thread) ─▶ committed ─▶ drain ...
"""

import asyncio
import heapq
import itertools
from collections.abc import Callable

import structlog

from controller_mock.core.actions import (
    Action,
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
from controller_mock.core.state import Run, RunConfig, StoredRun, new_run, restore
from controller_mock.core.step import next_deadline
from controller_mock.io.peer import Peer
from controller_mock.io.websocket import Connection
from controller_mock.io.writer import Writer
from controller_mock.reception import Reception
from controller_mock.run_slot import Commit, RunSlot
from controller_mock.storage.store import EventIdConflict, Store
from protocol.base.clock import MonoMs, Now
from protocol.base.ports import Clock, Entropy
from protocol.envelope import Ack
from protocol.errors import ErrorCode, PrpError
from protocol.ids import CredentialId, RunId
from protocol.limits import STORE_RETRY_MS, STORE_RETRY_MS_MAX
from protocol.timestamps import rfc3339_ms

log = structlog.get_logger()


class Shell:
    """Everything that is live in one controller; used from one event loop only."""

    def __init__(self, store: Store, clock: Clock, entropy: Entropy) -> None:
        self._store = store
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._writer = Writer(self._loop)
        self.reception = Reception(self._find_run, self.post, entropy)
        self._runs: dict[RunId, RunSlot] = {}
        self._credentials: dict[CredentialId, RunSlot] = {}
        self._requests = itertools.count(1)
        self._inbox: list[tuple[RunSlot, Input]] = []
        self._touched: dict[RunSlot, None] = {}
        """Fed or committed since they were last drained."""
        self._unwritten: dict[RunSlot, None] = {}
        """Fed since they were last asked for a write."""
        self._in_flight: list[Commit] = []
        self._unflushed: dict[Connection, None] = {}
        self._deadlines: list[tuple[MonoMs, int, RunSlot]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._woken = asyncio.Event()
        self._fault: Exception | None = None

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
        self._woken.set()

    def drop_connections(self, slot: RunSlot) -> None:
        """Drop a run's connections, as a broken network would."""
        for peer in list(slot.peers.values()):
            peer.connection.drop()

    async def run(self) -> None:
        """Serve until cancelled. Raises only for a fault of ours."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            if self._fault is not None:
                raise self._fault
            self._turn()

    async def close(self) -> None:
        """Drop every connection, finish the commit in flight and end the writer thread."""
        if self._timer is not None:
            self._timer.cancel()
        self.reception.drop_all()
        await self._writer.close()

    # --- the loop -------------------------------------------------------------------------------

    def _turn(self) -> None:
        now = self._clock.now()
        inbox, self._inbox = self._inbox, []
        for slot, stimulus in inbox:
            self._feed(slot, stimulus, now)
        self._feed_due(now)
        touched, self._touched = self._touched, {}
        for slot in touched:
            self._drain(slot, now)
            self._note_deadline(slot)
        unflushed, self._unflushed = self._unflushed, {}
        for connection in unflushed:
            connection.flush()
        # Last: from here on the writer thread wants the interpreter, and peers have their answers.
        self._begin_commit()
        self._arm_timer(now)

    def _feed(self, slot: RunSlot, stimulus: Input, now: Now) -> None:
        # What a fenced run is told refers to connections and callers that it has given up.
        if not slot.is_fenced:
            slot.driver.feed(stimulus, now)
            self._touched[slot] = None
            self._unwritten[slot] = None

    def _feed_due(self, now: Now) -> None:
        while self._deadlines and self._deadlines[0][0] <= now.mono_ms:
            deadline, _, slot = heapq.heappop(self._deadlines)
            if slot.deadline == deadline:
                slot.deadline = None
                self._feed(slot, TimePassed(), now)

    def _note_deadline(self, slot: RunSlot) -> None:
        deadline = next_deadline(slot.driver.staged)
        if deadline != slot.deadline:
            slot.deadline = deadline
            if deadline is not None:
                heapq.heappush(self._deadlines, (deadline, next(self._requests), slot))

    def _arm_timer(self, now: Now) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._deadlines and self._deadlines[0][2].deadline != self._deadlines[0][0]:
            heapq.heappop(self._deadlines)
        if self._deadlines:
            wait_ms = max(1, self._deadlines[0][0] - now.mono_ms)
            self._timer = self._loop.call_later(wait_ms / 1000, self._woken.set)

    # --- actions --------------------------------------------------------------------------------

    def _drain(self, slot: RunSlot, now: Now) -> None:
        ack: SendControl | None = None
        published = False
        while (action := slot.driver.next_action()) is not None:
            if isinstance(action, Publish):
                published = True
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
        if published:
            slot.published()

    def _perform(self, slot: RunSlot, action: Action, now: Now) -> None:
        match action:
            case Reply():
                slot.reply(action)
            case Publish():
                slot.published()
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

    # --- commits --------------------------------------------------------------------------------

    def _begin_commit(self) -> None:
        if self._in_flight:
            return
        unwritten, self._unwritten = self._unwritten, {}
        for slot in unwritten:
            if not slot.is_fenced and (write := slot.driver.next_write()) is not None:
                self._in_flight.append(Commit(slot, write))
        if self._in_flight:
            self.reception.commit_started()
            self._submit()

    def _submit(self) -> None:
        batches = [(commit.slot.run_id, commit.write.writes) for commit in self._in_flight]
        self._writer.submit(lambda: self._store.commit(batches), self._commit_ended)

    def _commit_ended(self, outcome: Exception | None) -> None:
        self._woken.set()
        if isinstance(outcome, EventIdConflict):
            # The transaction left nothing behind; the other runs' shares are tried without it.
            for commit in self._in_flight:
                if commit.slot.run_id == outcome.run_id:
                    commit.slot.conflict = outcome.source_seq
                    self._fence(commit.slot, outcome.code)
            self._in_flight = [commit for commit in self._in_flight if not commit.slot.is_fenced]
            if self._in_flight:
                self._submit()
                return
        commits, self._in_flight = self._in_flight, []
        self.reception.commit_ended()
        if outcome is None:
            for commit in commits:
                self._wrote(commit)
        elif isinstance(outcome, PrpError):
            for commit in commits:
                self._fence(commit.slot, outcome.code)
        else:
            self._fault = outcome

    def _wrote(self, commit: Commit) -> None:
        slot = commit.slot
        slot.driver.wrote()
        slot.failures = 0
        if any(isinstance(change, PutCredential) for change in commit.write.writes):
            self._index_credentials(slot)
        slot.published()
        self._touched[slot] = None
        self._unwritten[slot] = None

    # --- runs -----------------------------------------------------------------------------------

    def _take(self, slot: RunSlot) -> None:
        self._runs[slot.run_id] = slot
        self._index_credentials(slot)
        self._note_deadline(slot)
        self._woken.set()

    def _find_run(self, credential_id: CredentialId) -> RunSlot | None:
        return self._credentials.get(credential_id)

    def _index_credentials(self, slot: RunSlot) -> None:
        for credential_id in slot.credentials:
            del self._credentials[credential_id]
        slot.credentials = slot.stored_credentials()
        self._credentials.update(dict.fromkeys(slot.credentials, slot))

    # --- fence and reload -----------------------------------------------------------------------

    def _fence(self, slot: RunSlot, code: ErrorCode) -> None:
        dropped = slot.driver.write_failed()
        log.error("store_commit_failed", run_id=slot.run_id, code=code.value, bytes=len(dropped))
        peers, slot.peers = slot.peers, {}
        for peer in peers.values():
            self.reception.close(peer, code)
        slot.fence()
        self._reload_later(slot)

    def _reload_later(self, slot: RunSlot) -> None:
        delay_ms = min(STORE_RETRY_MS * 2 ** (slot.failures - 1), STORE_RETRY_MS_MAX)
        self._loop.call_later(delay_ms / 1000, self._reload, slot)

    def _reload(self, slot: RunSlot) -> None:
        def done(outcome: tuple[RunConfig, StoredRun] | Exception) -> None:
            self._reloaded(slot, outcome)

        self._writer.submit(lambda: self._store.load_run(slot.run_id), done)

    def _reloaded(self, slot: RunSlot, outcome: tuple[RunConfig, StoredRun] | Exception) -> None:
        if isinstance(outcome, PrpError):
            log.error("store_load_failed", run_id=slot.run_id, code=outcome.code.value)
            slot.failures += 1
            self._reload_later(slot)
            return
        if isinstance(outcome, Exception):
            self._fault = outcome
            self._woken.set()
            return
        run: Run = restore(*outcome)
        slot.reload(run)
        self._index_credentials(slot)
        log.info("run_reloaded", run_id=slot.run_id, attempt=slot.failures)
        if slot.conflict is not None:
            self.post(slot, IntegrityConflictFound(slot.conflict))
            slot.conflict = None
        self._note_deadline(slot)
        self._woken.set()


# `RunSlot` and `Connection` are compared by identity, which is what the ordered sets above need.
assert RunSlot.__hash__ is object.__hash__
assert Connection.__hash__ is object.__hash__
