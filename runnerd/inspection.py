"""`runnerd inspect`: what a state directory holds and what a restart would do with it.

It decides what is worth showing. It refuses to judge: the state's own checks and the
recovery itself do, on a copy.
"""

import math
from collections import Counter
from typing import Final

import msgspec

from protocol.errors import ErrorCode
from protocol.ids import Identity
from protocol.limits import REPLAY_FILTER_BYTES
from protocol.process_birth import ProcessBirth
from runnerd.core.outbox import outbox_bytes
from runnerd.core.prospect import Outlook, Prospect
from runnerd.core.state import Durable, TerminalDelivery, Turn
from runnerd.io.state_reader import Life, Look, Owner, life_of

SHOWN_DIAGNOSTICS: Final = 5
_FILTER_HASHES: Final = 7


class Cursors(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Event sequences. Every stored event may be offered: it is frozen once it is stored."""

    produced: int
    acked: int
    offered: int


class OutboxFacts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Unacknowledged events."""

    events: int
    bytes: int
    peak_bytes: int
    by_priority: dict[str, int]
    by_type: dict[str, int]


class CommandFacts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The command journal; ``false_refusal_rate`` is the share of fresh ids refused (R14)."""

    last_controller_seq: int
    journaled: int
    pending: tuple[str, ...]
    compacted: int
    filter_bits_set: int
    filter_bits: int
    false_refusal_rate: float


class TurnFacts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The live turn and whether the process that was recorded for it lives."""

    ordinal: int
    generation: int
    birth: ProcessBirth | None
    process: Life
    intent: str | None


class StateFacts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the state file says."""

    identity: Identity
    state_id: str
    state_bytes: int
    lifecycle: str
    reason: str | None
    """Why the lifecycle is what it is, where a code was recorded."""
    cursors: Cursors
    outbox: OutboxFacts
    commands: CommandFacts
    turn: TurnFacts | None
    turns_started: int
    generation: int
    lines_accepted: int
    run_terminal: bool
    harness_survived: bool
    terminal_fence: TerminalDelivery | None
    reconnect_count: int
    revocation_epoch: int | None
    diagnostics: tuple[str, ...]
    """The newest, oldest first."""


class Report(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything that `inspect` shows; ``now`` is what a start would meet at this moment."""

    daemon: Owner
    state: StateFacts | None
    restart: Prospect
    now: ErrorCode | None
    """``state_locked`` while a daemon has the directory: the restart is for after its end."""


def report(look: Look, prospect: Prospect) -> Report:
    """Return what a look showed, with what a restart would do."""
    return Report(
        daemon=look.owner,
        state=None if look.durable is None else _state_facts(look.durable, look.state_bytes),
        restart=prospect,
        now=ErrorCode.STATE_LOCKED if look.owner.status == "running" else None,
    )


def _state_facts(durable: Durable, state_bytes: int) -> StateFacts:
    produced = durable.next_source_seq - 1
    return StateFacts(
        identity=durable.identity,
        state_id=durable.state_id,
        state_bytes=state_bytes,
        lifecycle=durable.lifecycle.value,
        reason=durable.unrecoverable_outcome or durable.recoverable_failure,
        cursors=Cursors(produced=produced, acked=durable.acked_source_seq, offered=produced),
        outbox=_outbox_facts(durable),
        commands=_command_facts(durable),
        turn=None if durable.turn is None else _turn_facts(durable.turn),
        turns_started=durable.turns_started,
        generation=durable.generation,
        lines_accepted=durable.lines_accepted,
        run_terminal=durable.run_terminal,
        harness_survived=durable.harness_survived,
        terminal_fence=durable.terminal_delivery,
        reconnect_count=durable.reconnect_count,
        revocation_epoch=durable.revocation_epoch,
        diagnostics=durable.diagnostics[-SHOWN_DIAGNOSTICS:],
    )


def _outbox_facts(durable: Durable) -> OutboxFacts:
    priorities = Counter(f"p{entry.priority}" for entry in durable.outbox)
    types = Counter(entry.event_type for entry in durable.outbox)
    return OutboxFacts(
        events=len(durable.outbox),
        bytes=outbox_bytes(durable.outbox, durable.identity),
        peak_bytes=durable.peak_outbox_bytes,
        by_priority=dict(sorted(priorities.items())),
        by_type=dict(types.most_common()),
    )


def _command_facts(durable: Durable) -> CommandFacts:
    content = bytes.fromhex(durable.compacted_command_filter or "")
    bits_set = int.from_bytes(content, "big").bit_count()
    bits = REPLAY_FILTER_BYTES * 8
    return CommandFacts(
        last_controller_seq=durable.last_controller_command_seq,
        journaled=len(durable.commands),
        pending=tuple(
            f"{record.controller_seq} {record.command_type} {record.command_id}"
            for record in durable.commands
            if record.result is None
        ),
        compacted=durable.compacted_commands,
        filter_bits_set=bits_set,
        filter_bits=bits,
        false_refusal_rate=math.pow(bits_set / bits, _FILTER_HASHES),
    )


def _turn_facts(turn: Turn) -> TurnFacts:
    return TurnFacts(
        ordinal=turn.ordinal,
        generation=turn.generation,
        birth=turn.birth,
        process="unknown" if turn.birth is None else life_of(turn.birth),
        intent=turn.intent,
    )


# --- words ------------------------------------------------------------------------------------

_OUTLOOKS: Final[dict[Outlook, str]] = {
    Outlook.BEGINS_NEW: "begins a new run with a ticket",
    Outlook.ENDS_AT_ONCE: "ends at once with status 0: the run is over and delivered",
    Outlook.DELIVERS_AND_ENDS: "needs a fresh ticket, delivers what is stored, then ends",
    Outlook.RESUMES: "needs a fresh ticket, delivers what is stored, then takes commands",
}


def lines_of(shown: Report) -> list[str]:
    """Return a report for people, one fact a line."""
    lines = [_daemon_line(shown.daemon)]
    if shown.state is None:
        lines.append("state       none yet")
    else:
        lines += _state_lines(shown.state)
    return [*lines, *_restart_lines(shown)]


def _daemon_line(owner: Owner) -> str:
    who = "" if owner.pid is None else f" (process {owner.pid} on {owner.host or 'this host'})"
    words = {"running": "running", "not_running": "not running", "unknown": "cannot be told"}
    return f"daemon      {words[owner.status]}{who}"


def _state_lines(state: StateFacts) -> list[str]:
    identity, cursors, outbox, commands = (
        state.identity,
        state.cursors,
        state.outbox,
        state.commands,
    )
    reason = "" if state.reason is None else f" ({state.reason})"
    lines = [
        f"run         {identity.run_id}, session {identity.normalized_session_id}",
        f"runner      {identity.runner_instance_id}, lease {identity.environment_lease_id}",
        f"lifecycle   {state.lifecycle}{reason}",
        f"cursors     produced {cursors.produced}, acked {cursors.acked}, "
        f"offered {cursors.offered}",
        f"outbox      {outbox.events} events, {outbox.bytes} bytes, peak {outbox.peak_bytes}"
        + _counts(outbox.by_priority)
        + _counts(outbox.by_type),
        f"commands    last {commands.last_controller_seq}, {len(commands.pending)} without a "
        f"result, {commands.compacted} compacted",
        *(f"  pending   {pending}" for pending in commands.pending),
        f"filter      {commands.filter_bits_set} of {commands.filter_bits} bits, refuses "
        f"{100 * commands.false_refusal_rate:.3g} % of fresh ids",
        f"output      {state.lines_accepted} lines accepted, {state.turns_started} turns started",
    ]
    if state.turn is not None:
        lines.append(_turn_line(state.turn))
    if state.terminal_fence is not None:
        fence = state.terminal_fence
        lines.append(
            f"fence       command {fence.controller_seq}: {fence.lifecycle} once delivered"
        )
    return [*lines, *(f"diagnostic  {text}" for text in state.diagnostics)]


def _turn_line(turn: TurnFacts) -> str:
    birth = turn.birth
    who = "no process recorded" if birth is None else f"process {birth.pid} {turn.process}"
    return f"turn        {turn.ordinal}, generation {turn.generation}, {who}"


def _restart_lines(shown: Report) -> list[str]:
    restart = shown.restart
    lines = [f"restart     {restart.outlook.value}: {_OUTLOOKS[restart.outlook]}"]
    if shown.now is not None:
        lines.append(f"  now       a second start is refused with {shown.now.value}")
    if restart.outlook in (Outlook.RESUMES, Outlook.DELIVERS_AND_ENDS):
        lines.append(f"  sends     {restart.resent_events} stored events")
        lines += [f"  reports   {event_type}" for event_type in restart.new_events]
        lines += [
            f"  settles   {command_id} as indeterminate"
            for command_id in restart.indeterminate_commands
        ]
    if restart.outlook is Outlook.RESUMES:
        refusal = restart.turn_refusal
        words = "is taken" if refusal is None else f"is refused with {refusal.value}"
        lines.append(f"  turn      a new turn.start {words}")
    return lines


def _counts(counts: dict[str, int]) -> str:
    return "".join(f", {name} {count}" for name, count in counts.items())
