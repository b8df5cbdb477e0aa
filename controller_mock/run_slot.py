"""One run in the shell: its driver, its connections and the local callers that wait for it.

It decides who is told when a run changes or loses its store. It refuses to know how an
action is performed and what a commit writes.
"""

import asyncio

import msgspec

from controller_mock.core.actions import Action, Change, Reply
from controller_mock.core.inputs import ConnectionHandle, Input, RequestHandle
from controller_mock.core.state import Run, RunConfig
from controller_mock.core.step import step
from controller_mock.core.view import RunView, view
from controller_mock.io.peer import Peer
from protocol.base.clock import MonoMs
from protocol.base.driver import Driver, Write
from protocol.errors import ErrorCode, PrpError
from protocol.ids import CredentialId, RunId, SourceSeq

RunDriver = Driver[Run, Input, Action, Change]


class Commit(msgspec.Struct, frozen=True):
    """One run's share of a commit in flight."""

    slot: "RunSlot"
    write: Write[Run, Change]


class RunSlot:
    """Mutable, owned by the shell's loop."""

    def __init__(self, run: Run) -> None:
        self.config: RunConfig = run.config
        self.driver: RunDriver = Driver(run, step)
        self.peers: dict[ConnectionHandle, Peer] = {}
        self.credentials: tuple[CredentialId, ...] = ()
        self.deadline: MonoMs | None = None
        self.is_fenced = False
        self.failures = 0
        """Commits and loads that failed since the last commit that did not."""
        self.conflict: SourceSeq | None = None
        """An event whose id the store found to be used already; told to the core after a load."""
        self._requests: dict[RequestHandle, asyncio.Future[Reply]] = {}
        self.changed = asyncio.Event()
        """Set at the next change of the view, and then replaced by a new one."""

    @property
    def run_id(self) -> RunId:
        """The run that this is."""
        return RunId(self.config.identity.run_id)

    def view(self) -> RunView:
        """Return what outsiders may see of the run."""
        return view(self.driver.committed, self.driver.staged)

    def is_open(self, controller_seq: int) -> bool:
        """Tell whether a command has no result in the view, whatever the store has by now."""
        open_commands = self.driver.committed.durable.open_commands
        return any(found.command.controller_seq == controller_seq for found in open_commands)

    def stored_credentials(self) -> tuple[CredentialId, ...]:
        """Return the ids of all credentials that a hello may name, as committed."""
        durable = self.driver.committed.durable
        held = [*durable.credentials, *([durable.lease] if durable.lease is not None else [])]
        return tuple(credential.credential_id for credential in held)

    # --- local callers ----------------------------------------------------------------------

    def expect_reply(self, request: RequestHandle) -> "asyncio.Future[Reply]":
        """Return a future for the core's reply."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._requests[request] = future
        return future

    def reply(self, reply: Reply) -> None:
        """Hand a reply to its caller, if it still waits."""
        future = self._requests.pop(reply.request, None)
        if future is not None and not future.done():
            future.set_result(reply)

    def published(self) -> None:
        """Wake everyone who waits for a change."""
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    # --- the store's failures -----------------------------------------------------------------

    def fence(self) -> None:
        """Give up everything that is not known to be durable; local callers learn that much."""
        self.is_fenced = True
        self.failures += 1
        self.deadline = None
        requests, self._requests = self._requests, {}
        for future in requests.values():
            if not future.done():
                words = "whether the request was stored is unknown"
                future.set_exception(PrpError(ErrorCode.STORAGE_WRITE_FAILED, words))
        self.published()

    def reload(self, run: Run) -> None:
        """Take up the run again as its store has it."""
        assert self.is_fenced, "only a fenced run is loaded again"
        self.driver = Driver(run, step)
        self.is_fenced = False
        self.published()
