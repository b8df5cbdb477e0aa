"""What a runner node is told, and whether it had authority at that moment.

It decides by the world's own reckoning of leases and by what the controller has sealed. It
refuses to ask the runner.
"""

from collections.abc import Callable

import msgspec

from protocol.envelope import (
    Ack,
    CommandResultAck,
    ControlMessage,
    Deliver,
    LeaseRenewed,
    Ping,
    Revoke,
    Superseded,
    Welcome,
)
from runnerd.core.actions import Action, CloseConnection, SendRenewal
from runnerd.core.inputs import Connected, ConnectionLost, ControlReceived, Input
from tests.simulator.full.sealed import Plain
from tests.simulator.full.tap import Session
from tests.simulator.machine import Machine
from tests.simulator.oracle import Oracle
from tests.simulator.verdict import Violation

KINDS: dict[type[ControlMessage], str] = {
    Welcome: "welcome",
    Ack: "ack",
    Deliver: "command",
    CommandResultAck: "command_result_ack",
    LeaseRenewed: "lease_renewed",
    Revoke: "revoke",
    Superseded: "superseded",
    Ping: "ping",
}


class _Acked(msgspec.Struct, rename="camel"):
    acked_source_seq: int


class _Numbered(msgspec.Struct, rename="camel"):
    controller_seq: int


_ACK = msgspec.json.Decoder(_Acked)
_COMMAND = msgspec.json.Decoder(_Numbered)


class Authority:
    """One incarnation's view of its leases, kept beside it."""

    def __init__(
        self,
        machine: Machine,
        oracle: Oracle,
        seen: set[str],
        session_of: Callable[[str], Session | None],
    ) -> None:
        self._machine = machine
        self._oracle = oracle
        self._seen = seen
        self._session_of = session_of
        self._current: str | None = None
        self._applied = 0
        self._ends = (0, 0)
        self._observed: int | None = None
        self.acked_now = 0
        """Highest cursor that the process was told with authority, or has found stored."""
        self.obeyed: object = None
        """The controller whose welcome the process has taken last."""
        self.obeyed_epoch = 0
        """The highest owner epoch whose welcome the process has taken (R7)."""

    def process_ended(self) -> None:
        """Forget the connection: lease and token die with the process."""
        self._current = None
        self._ends = (0, 0)
        self.obeyed, self.obeyed_epoch = None, 0

    def holds(self) -> bool:
        """Tell whether control data may be applied now."""
        now = self._machine.now()
        boot_end, wall_end = self._ends
        return self._current is not None and now.mono_ms < boot_end and now.unix_ms < wall_end

    def heard(self, stimulus: Input) -> None:
        """Note what the core is about to be fed."""
        match stimulus:
            case Connected():
                self._welcomed(stimulus)
            case ControlReceived():
                self._control(stimulus)
            case ConnectionLost(connection_id=connection_id):
                if connection_id == self._current:
                    self._note_lost_renewal()
                    self._current = None
            case _:
                return

    def ends_within(self, milliseconds: int) -> bool:
        """Tell whether a lease that holds now will not hold any more after a while."""
        return self.holds() and self._machine.boot_ms + milliseconds >= self._ends[0]

    def _note_lost_renewal(self) -> None:
        session = self._session_of(self._current or "")
        unheard = [] if session is None else session.told[self._applied :]
        if any(message.kind == "lease_renewed" for message in unheard):
            self._seen.add("renewal reply lost")

    def ordered(self, action: Action) -> None:
        """Note what the core has ordered."""
        if isinstance(action, CloseConnection) and action.connection_id == self._current:
            self._current = None
        elif isinstance(action, SendRenewal):
            self._observed = action.renewal.connection_lease_expires_at_unix_ms

    def _welcomed(self, connected: Connected) -> None:
        welcome = connected.welcome
        assert connected.sent_at_unix_ms is not None
        self._current = connected.binding.connection_id
        self._applied = 0
        self._observed = None
        left_ms = welcome.connection_lease_expires_at_unix_ms - connected.sent_at_unix_ms
        self._ends = (
            self._machine.boot_ms + left_ms,
            welcome.connection_lease_expires_at_unix_ms,
        )
        self._check_order("welcome")
        session = self._session_of(self._current)
        assert session is not None
        self.obeyed = session.listener
        self.obeyed_epoch = max(self.obeyed_epoch, session.owner_epoch)
        if self.holds():
            self._allow_ack(welcome.acked_source_seq or 0)
            for command in welcome.pending_commands:
                self._allow_command(command.controller_seq)

    def _control(self, received: ControlReceived) -> None:
        if received.connection_id != self._current:
            return
        message = received.message
        self._check_order(KINDS[type(message)], message)
        if not self.holds():
            self._seen.add("told too late")
        match message:
            case Ack(acked_source_seq=cursor) if self.holds():
                self._allow_ack(cursor)
            case Ack(acked_source_seq=cursor):
                self._oracle.ack_late = max(self._oracle.ack_late, cursor)
            case Deliver(command=command) if self.holds():
                self._allow_command(command.controller_seq)
            case Deliver(command=command):
                late = max(self._oracle.command_late, command.controller_seq)
                self._oracle.command_late = late
            case LeaseRenewed() as renewed if self.holds():
                self._renewed(renewed, received.sent_at_unix_ms)
            case _:
                return

    def _renewed(self, renewed: LeaseRenewed, sent_at_unix_ms: int | None) -> None:
        assert sent_at_unix_ms is not None
        if renewed.previous_expires_at_unix_ms == self._observed:
            self._observed = None
            expires = renewed.connection_lease_expires_at_unix_ms
            self._ends = (self._machine.boot_ms + expires - sent_at_unix_ms, expires)
            self._seen.add("lease renewed")

    def _allow_ack(self, cursor: int) -> None:
        self._oracle.ack_allowed = max(self._oracle.ack_allowed, cursor)
        self.acked_now = max(self.acked_now, cursor)

    def _allow_command(self, seq: int) -> None:
        self._oracle.command_allowed = max(self._oracle.command_allowed, seq)

    def _check_content(self, sealed: Plain, message: object) -> None:
        """One of several messages of a kind may be left out by a relay."""
        number: int
        match message:
            case Ack(acked_source_seq=cursor):
                number = cursor
                known = _ACK.decode(sealed.payload).acked_source_seq
            case Deliver(command=command):
                number = command.controller_seq
                known = _COMMAND.decode(sealed.payload).controller_seq
            case _:
                return
        if number != known:
            raise Violation("I15", f"a {sealed.kind} ({number}) was taken where {known} was sealed")

    def _check_order(self, kind: str, message: object = None) -> None:
        """Control data is what the controller has sealed, each once and in its order (I15)."""
        session = self._session_of(self._current or "")
        if session is None or self._applied >= len(session.told):
            raise Violation("I15", f"a {kind} was taken that the controller never sealed")
        sealed = session.told[self._applied].kind
        if sealed != kind:
            raise Violation("I15", f"a {kind} was taken where a {sealed} was sealed")
        self._check_content(session.told[self._applied], message)
        self._applied += 1
