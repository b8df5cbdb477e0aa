"""A run over a store that is written, fails and is loaded again when a test says so."""

from controller_mock.core.actions import Action, Change, SendControl
from controller_mock.core.inputs import ConnectionHandle, ConnectionLost, Input
from controller_mock.core.state import Run, restore
from protocol.base.driver import Write
from protocol.envelope import ControlMessage, Welcome
from protocol.ids import RunId
from tests.controller_mock.core.world import (
    CONFIG,
    IDENTITY,
    Lease,
    World,
    challenge_in,
    lease_of,
    lease_offer,
    welcome_in,
)
from tests.storage.memory import MemoryStore

RUN_ID = RunId(IDENTITY.run_id)


class Lab:
    """The shell's part, one step at a time. Connections are numbered from 1."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.store.create_run(CONFIG)
        self.world = World()
        self.connection = 1
        self.messages: list[ControlMessage] = []
        """Everything sealed that left, in order."""
        self._write: Write[Run, Change] | None = None
        self.world.issue()
        self._persist()
        self.lease: Lease = lease_of(1, self._connected(self.world.bootstrap()))

    @property
    def run(self) -> Run:
        """The newest state."""
        return self.world.driver.staged

    @property
    def is_connected(self) -> bool:
        """True while the core listens to the connection; its close may still wait in line."""
        return self.run.live.session is not None

    def feed(self, stimulus: Input) -> list[Action]:
        """Feed an input and let leave what needs no write."""
        self.world.driver.feed(stimulus, self.world.now)
        return self._drain()

    def begin_write(self) -> bool:
        """Hand the demanded write out, if there is one."""
        self._write = self._write or self.world.driver.next_write()
        return self._write is not None

    def end_write(self) -> None:
        """Commit the write that was handed out."""
        assert self._write is not None
        self.store.commit([(RUN_ID, self._write.writes)])
        self.world.driver.wrote()
        self._write = None
        self._drain()

    def fail_write(self) -> None:
        """Let the write fail: the shell drops everything and loads the run again."""
        assert self._write is not None
        self.world.driver.write_failed()
        self.load()

    def load(self) -> None:
        """Take the run up from the store, as after a crash."""
        now = self.world.now
        self.world = World(restore(*self.store.load_run(RUN_ID)))
        self.world.now = now
        self._write = None

    def settle(self) -> None:
        """Write until nothing waits."""
        while self.begin_write():
            self.end_write()

    def lose(self) -> None:
        """Cut the connection."""
        self.feed(ConnectionLost(ConnectionHandle(self.connection)))

    def reconnect(self) -> Welcome:
        """Connect on the lease, committing what stands in the way."""
        self.connection += 1
        offer = lease_offer(self.lease)
        self.feed(self.world.hello_received(self.connection, offer))
        self.settle()
        # The challenge waits for what is staged, so it is the newest action that left.
        frame = challenge_in(self.world.sent[-1:])
        self.feed(self.world.answer(self.connection, offer, self.lease.token, frame))
        self.settle()
        (*_, welcome) = [found for found in self.messages if isinstance(found, Welcome)]
        return welcome

    def _connected(self, left: list[Action]) -> Welcome:
        self._persist()
        self.messages.append(welcome := welcome_in(left))
        return welcome

    def _persist(self) -> None:
        """Store what the world committed by itself."""
        self.store.commit([(RUN_ID, tuple(self.world.written))])
        self.world.written.clear()

    def _drain(self) -> list[Action]:
        left = self.world.drain()
        for action in left:
            if isinstance(action, SendControl):
                self.messages.append(action.message)
        return left
