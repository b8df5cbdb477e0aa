"""What everyone says and stores, held against what is durable.

It decides, message by message, whether its sender was entitled to it. It reads the wire, the
disk and the store; it refuses to read the state of either core.
"""

from typing import TYPE_CHECKING, Final

import msgspec

from controller_mock.core.actions import PutCredential
from controller_mock.storage.store import CommandRow
from runnerd.core.actions import Action, Dial
from runnerd.core.inputs import ConnectFailed, ConnectionLost, Input
from tests.simulator import invariants
from tests.simulator.full.sealed import Plain
from tests.simulator.full.tap import Session
from tests.simulator.short.world import LEAST_PAUSE_MS
from tests.simulator.verdict import Violation

if TYPE_CHECKING:
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

_REFUSALS: Final = (
    (b'"runner_draining"', "turn refused while draining"),
    (b'"runner_backpressure"', "turn refused under backpressure"),
    (b'"command_history_compacted"', "compacted command refused"),
)
_ENDS_SEEN: Final = {
    None: "ended cleanly",
    "lease_expired_requires_bootstrap": "lease expired",
    "stop_requested": "stopped on request",
    "bootstrap_consumed": "welcome lost after ticket use",
    "runner_rollback_detected": "runner rollback detected",
    "controller_rollback_detected": "controller rollback detected",
}


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
        self._failed_at_ms: int | None = None
        self._cursor_told = 0
        self._used: set[str] = set()
        self.welcomes: dict[str, int] = {}
        """How many welcomes each ticket has bought."""

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
        world = self._world
        body = bytes(message.payload)
        if message.kind == "event":
            event = _EVENT.decode(body)
            if event.run_id != world.run_id:
                raise Violation("I12", "an event names another run")
            if event.source_seq <= world.oracle.frozen_through:
                world.seen.add("event sent again")
            world.oracle.event_left(event.source_seq, body, world.surviving())
            if session.expected_seq is None:
                raise Violation("I15", "an event left before the welcome")
            invariants.I3(event.source_seq, session.expected_seq)
            session.expected_seq += 1
        elif message.kind == "command_result":
            result = _RESULT.decode(body)
            self._result_left(result, body)

    def _result_left(self, result: _Result, body: bytes) -> None:
        world = self._world
        if result.controller_seq in world.oracle.results:
            world.seen.add("result replayed")
        world.oracle.result_left(result.controller_seq, result.status, body, world.surviving())
        if result.command_type == "runner.drain" and result.status == "completed":
            world.oracle.drained(result.controller_seq)
        if result.status == "indeterminate":
            world.seen.add("indeterminate reported")
        for text, fact in _REFUSALS:
            if text in body:
                world.seen.add(fact)

    def heard(self, stimulus: Input) -> None:
        """Note when a connection or an attempt was reported as over."""
        if isinstance(stimulus, ConnectionLost | ConnectFailed):
            self._failed_at_ms = self._world.runner_machine.boot_ms

    def ordered(self, action: Action) -> None:
        """Judge what does not reach the wire."""
        if isinstance(action, Dial):
            invariants.I7_exists(self._world.surviving(), "dialled")
            if self._failed_at_ms is not None:
                waited_ms = self._world.runner_machine.boot_ms - self._failed_at_ms
                invariants.I20_backoff(waited_ms, LEAST_PAUSE_MS)

    def process_ended(self) -> None:
        """Forget what only the runner that is gone had to keep."""
        self._failed_at_ms = None

    def note_end(self, code: str | None) -> None:
        """Note how a runner ended."""
        if (fact := _ENDS_SEEN.get(code)) is not None:
            self._world.seen.add(fact)

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
        self._acknowledged(welcome.acked_source_seq)
        self._check_lease(welcome.connection_lease_expires_at_unix_ms)
        self._sessions[session.connection_id] = self._newest = session
        session.expected_seq = welcome.acked_source_seq + 1
        if welcome.connection_lease_token is not None:
            bought = self.welcomes[session.credential] = (
                self.welcomes.get(session.credential, 0) + 1
            )
            if bought > 1:
                raise Violation("I13", "a ticket bought a second lease")
            if not self._credentials[session.credential].used:
                raise Violation("I13", "a ticket is not used up in the store after its welcome")

    def _acknowledged(self, cursor: int) -> None:
        if cursor and self._world.store.event(self._world.run_id, cursor) is None:
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
        while (event := world.store.event(world.run_id, self.committed + 1)) is not None:
            if event.delivery_count > 1:
                world.seen.add("duplicate delivery absorbed")
            known = world.oracle.accepted.get(event.source_seq)
            if known is None or event.source_seq > world.oracle.frozen_through:
                raise Violation("I15", f"event {event.source_seq} was committed and never sent")
            if known != bytes(event.body):
                raise Violation("I2", f"event {event.source_seq} was committed with other bytes")
            self.committed = event.source_seq
        for seq, row in self._rows.items():
            if row.status is None or seq in self.settled:
                continue
            assert row.result is not msgspec.UNSET
            if world.oracle.results.get(seq) != bytes(row.result):
                raise Violation("I6", f"another answer to command {seq} was stored than was sent")
            self.settled[seq] = row.status
        self._check_tickets()

    def _check_tickets(self) -> None:
        """Only a right proof uses a ticket up (I13)."""
        for name, credential in self._credentials.items():
            if credential.used and name not in self._used:
                if name not in self._world.tap.proven:
                    raise Violation("I13", "a ticket was used up without a right proof")
                self._used.add(name)
