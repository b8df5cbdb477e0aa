"""What everyone says and stores, held against what is durable.

It decides, message by message, whether its sender was entitled to it. It reads the wire, the
disk and the store; it refuses to read the state of either core.
"""

from typing import TYPE_CHECKING, Final

import msgspec

from controller_mock.core.actions import PutCredential
from controller_mock.storage.store import CommandRow, StoredEvent
from tests.simulator import invariants
from tests.simulator.full.sealed import Plain
from tests.simulator.full.tap import Session
from tests.simulator.verdict import Violation

if TYPE_CHECKING:
    from tests.simulator.full.side import Side
    from tests.simulator.full.world import World


class _Event(msgspec.Struct, rename="camel"):
    source_seq: int
    run_id: str
    source_instance_id: str


class _Result(msgspec.Struct, rename="camel"):
    command_type: str
    controller_seq: int
    status: str


class _Cursor(msgspec.Struct, rename="camel"):
    acked_source_seq: int


class _Command(msgspec.Struct, rename="camel"):
    controller_seq: int
    command_id: str


class _Lease(msgspec.Struct, rename="camel"):
    connection_lease_expires_at_unix_ms: int


class _Welcome(msgspec.Struct, rename="camel"):
    acked_source_seq: int
    connection_lease_expires_at_unix_ms: int
    connection_lease_token: str | None = None


class _Sequence(msgspec.Struct, rename="camel"):
    controller_seq: int


class _Epoch(msgspec.Struct, rename="camel"):
    revocation_epoch: int


_EVENT: Final = msgspec.json.Decoder(_Event)
_RESULT: Final = msgspec.json.Decoder(_Result)
_CURSOR: Final = msgspec.json.Decoder(_Cursor)
_COMMAND: Final = msgspec.json.Decoder(_Command)
_LEASE: Final = msgspec.json.Decoder(_Lease)
_WELCOME: Final = msgspec.json.Decoder(_Welcome)
_SEQUENCE: Final = msgspec.json.Decoder(_Sequence)
_EPOCH: Final = msgspec.json.Decoder(_Epoch)

ASKED_TYPES: Final = ("semantic_tool.input", "runtime_request.created")
_EDGES: Final = (
    (b'"newTurnsAccepted":false', "backpressure entered"),
    (b'"newTurnsAccepted":true', "backpressure left"),
)
_CLAIMS: Final = ("event", "command_result")
_REFUSALS: Final = (
    (b'"runner_draining"', "turn refused while draining"),
    (b'"runner_backpressure"', "turn refused under backpressure"),
    (b'"command_history_compacted"', "compacted command refused"),
    (b'"tool_result_conflict"', "conflict of results"),
    (b'"stored"', "late result after turn end"),
    (b'"duplicate"', "same result again"),
)


class Observers:
    """Reads along; every method raises what it finds wrong."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._sessions: dict[str, Session] = {}
        self._newest: Session | None = None
        self.committed = 0
        """Highest event in the store."""
        self.settled: dict[int, str] = {}
        """Status of every command that has an answer in the store."""
        self._cursor_told = 0
        self._adopted = 0
        """What a sparse checkpoint has taken over from the runner: no event is known of it."""
        self.lagging: int | None = None
        """The cursor of a welcome that lags behind, until it leaves."""
        self.is_contradicted = False
        """True once one of the two histories was put back."""
        self.asked: dict[str, list[bytes]] = {name: [] for name in ASKED_TYPES}
        """Committed events that wait for an answer, or had one."""
        self._events_left: dict[int, list[bytes]] = {}
        """What left under each number, also of a state that was put back since."""
        self._answers_left: dict[int, list[bytes]] = {}
        self._newest_number = 0
        """Of the connection that carried the newest committed event."""
        self._used: set[str] = set()
        self.welcomes: dict[str, int] = {}
        """How many welcomes each ticket has bought."""

    def store_put_back(self, committed: int, *, is_sparse: bool = False) -> None:
        """Expect of the controller what its store says now, and no more."""
        self.committed, self._cursor_told, self._newest_number = committed, 0, 0
        self._adopted = committed if is_sparse else 0
        rows = self._rows.items()
        self.settled = {seq: row.status for seq, row in rows if row.status is not None}
        self._used = {name for name, held in self._credentials.items() if held.used}
        self.welcomes = {name: 1 for name in self.welcomes if name in self._used}

    def session_of(self, connection_id: str) -> Session | None:
        """Return the session whose welcome named this connection."""
        return self._sessions.get(connection_id)

    @property
    def is_connected(self) -> bool:
        """True while the newest welcomed connection has two living ends."""
        if self._newest is None:
            return False
        return any(
            connection.number == self._newest.number
            and connection.client is not None
            and connection.server is not None
            and not connection.client.is_closing()
            and not connection.server.is_closing()
            and not connection.to_client.blocked
            and not connection.to_server.blocked
            for connection in self._world.network.connections
        )

    # --- the runner's side --------------------------------------------------------------------

    def runner_said(self, session: Session, message: Plain) -> None:
        """Judge a message of the runner when it leaves its process."""
        world, side = self._world, session.side
        if session.must_refuse and message.kind in _CLAIMS:
            raise Violation("I4", f"{message.kind} left although {session.must_refuse} was due")
        body = bytes(message.payload)
        if message.kind == "event":
            event = _EVENT.decode(body)
            if event.run_id != world.run_id:
                raise Violation("I12", "an event names another run")
            if event.source_seq <= side.oracle.frozen_through:
                world.seen.add("event sent again")
            side.oracle.event_left(event.source_seq, body, side.surviving())
            self._events_left.setdefault(event.source_seq, []).append(body)
            session.answers_before[event.source_seq] = len(session.answers)
            for text, fact in _EDGES:
                if text in body:
                    world.seen.add(fact)
            if session.expected_seq is None:
                raise Violation("I15", "an event left before the welcome")
            invariants.I3(event.source_seq, session.expected_seq)
            session.expected_seq += 1
        elif message.kind == "command_result":
            result = _RESULT.decode(body)
            session.answers.append(result.controller_seq)
            self._result_left(side, result, body)

    def _result_left(self, side: "Side", result: _Result, body: bytes) -> None:
        world, oracle = self._world, side.oracle
        if result.controller_seq in oracle.results:
            world.seen.add("result replayed")
        oracle.result_left(result.controller_seq, result.status, body, side.surviving())
        self._answers_left.setdefault(result.controller_seq, []).append(body)
        if result.command_type == "runner.drain" and result.status == "completed":
            oracle.drained(result.controller_seq)
        if result.status == "indeterminate":
            world.seen.add("indeterminate reported")
        for text, fact in _REFUSALS:
            if text in body:
                world.seen.add(fact)

    # --- the controller's side ------------------------------------------------------------------

    def controller_said(self, session: Session, message: Plain) -> None:
        """Judge a message of the controller when it leaves its process, against the store."""
        match message.kind:
            case "welcome":
                self._welcomed(session, message)
            case "ack":
                self._acknowledged(_CURSOR.decode(message.payload).acked_source_seq)
            case "command":
                self._delivered(_COMMAND.decode(message.payload))
            case "lease_renewed":
                expires = _LEASE.decode(message.payload).connection_lease_expires_at_unix_ms
                self._check_lease(expires)
            case "command_result_ack":
                seq = _SEQUENCE.decode(message.payload).controller_seq
                if seq not in self._rows or self._rows[seq].status is None:
                    raise Violation("I7", f"result {seq} was acknowledged before it was stored")
            case "revoke":
                epoch = _EPOCH.decode(message.payload).revocation_epoch
                row = self._world.store.run_row_of(self._world.run_id)
                if row.revocation_epoch < epoch:
                    raise Violation("I7", "a revocation left before it was stored")
            case _:
                return

    def _welcomed(self, session: Session, message: Plain) -> None:
        welcome = _WELCOME.decode(message.payload)
        if not session.proof_is_right:
            raise Violation("I15", "a welcome was sent without a right proof")
        if welcome.acked_source_seq != self.lagging:
            self._acknowledged(welcome.acked_source_seq)
        self.lagging = None
        self._check_lease(welcome.connection_lease_expires_at_unix_ms)
        self._sessions[session.connection_id] = self._newest = session
        session.expected_seq = welcome.acked_source_seq + 1
        session.must_refuse = session.side.contradiction(welcome.acked_source_seq)
        if welcome.connection_lease_token is not None:
            bought = self.welcomes[session.credential] = (
                self.welcomes.get(session.credential, 0) + 1
            )
            if bought > 1:
                raise Violation("I13", "a ticket bought a second lease")
            if not self._credentials[session.credential].used:
                raise Violation("I13", "a ticket is not used up in the store after its welcome")

    def _acknowledged(self, cursor: int) -> None:
        if cursor > self._adopted and self._world.store.event(self._world.run_id, cursor) is None:
            raise Violation("I7", f"event {cursor} was acknowledged before it was committed")
        if cursor < self._cursor_told:
            raise Violation("I4", f"cursor {cursor} was told after {self._cursor_told}")
        self._cursor_told = cursor

    def _delivered(self, command: _Command) -> None:
        row = self._rows.get(command.controller_seq)
        if row is None or row.command_id != command.command_id:
            raise Violation("I7", f"command {command.controller_seq} left before it was stored")

    def _check_lease(self, expires_at_unix_ms: int) -> None:
        stored = (c.expires_at_unix_ms for c in self._credentials.values() if c.kind == "lease")
        if max(stored, default=0) < expires_at_unix_ms:
            raise Violation("I7", "a lease expiry was told before it was stored")

    # --- the store --------------------------------------------------------------------------------

    @property
    def _rows(self) -> dict[int, CommandRow]:
        return self._world.store.rows(self._world.run_id)

    @property
    def _credentials(self) -> dict[str, PutCredential]:
        return self._world.store.held_credentials(self._world.run_id)

    def store_changed(self) -> None:
        """Judge what a commit has added."""
        world = self._world
        self._adopt(world.store.run_row_of(world.run_id).acked_source_seq)
        while (event := world.store.event(world.run_id, self.committed + 1)) is not None:
            sent = self._events_left.get(event.source_seq)
            if sent is None:
                raise Violation("I15", f"event {event.source_seq} was committed and never sent")
            if bytes(event.body) not in sent:
                raise Violation("I2", f"event {event.source_seq} was committed with other bytes")
            if event.connection_number < self._newest_number:
                words = f"event {event.source_seq} came by a connection that was replaced"
                raise Violation("I16", words)
            self._newest_number = event.connection_number
            self._check_none_skipped(event)
            self.committed = event.source_seq
            if event.event_type in ASKED_TYPES:
                self.asked[event.event_type].append(bytes(event.body))
        for seq, row in self._rows.items():
            if row.status is None or seq in self.settled:
                continue
            assert row.result is not msgspec.UNSET
            if bytes(row.result) not in self._answers_left.get(seq, ()):
                raise Violation("I6", f"another answer to command {seq} was stored than was sent")
            self.settled[seq] = row.status
        if world.store.run_row_of(world.run_id).replay_deliveries:
            world.seen.add("duplicate delivery absorbed")
        self._check_tickets()

    def _check_none_skipped(self, event: StoredEvent) -> None:
        """What is taken is all that was sealed: an answer in front of an event too (I15)."""
        session = self._sessions.get(f"connection_{event.connection_number}")
        count = 0 if session is None else session.answers_before.get(event.source_seq, 0)
        if session is None or count <= session.answers_taken:
            return
        for seq in session.answers[session.answers_taken : count]:
            row = self._rows.get(seq)
            if row is not None and row.status is None:
                raise Violation("I15", f"the answer to command {seq} was skipped")
        session.answers_taken = count

    def _adopt(self, acked: int) -> None:
        """A sparse checkpoint skips what the runner was told is stored, and no more (I3)."""
        world = self._world
        if acked <= self.committed or world.store.event(world.run_id, self.committed + 1):
            return
        if not world.store.is_sparse(world.run_id):
            raise Violation("I3", f"a store with all its events skips those through {acked}")
        if acked > world.oracle.ack_allowed:
            raise Violation("I3", f"events through {acked} were skipped and never acknowledged")
        self.committed = self._adopted = acked
        world.seen.add("sparse recovery")

    def _check_tickets(self) -> None:
        """Only a right proof uses a ticket up (I13)."""
        for name, credential in self._credentials.items():
            if credential.used and name not in self._used:
                if name not in self._world.tap.proven:
                    raise Violation("I13", "a ticket was used up without a right proof")
                self._used.add(name)
