"""What a restart would make of a stored state: the recovery itself, tried on a copy.

It decides nothing of its own: it feeds a start, a welcome and a `turn.start` to the real
machine and reads off what followed. It refuses to know disks, and whether anybody will start.
"""

import enum
from typing import Final

import msgspec

from protocol.base.clock import Now, UnixMs
from protocol.commands import WireCommand
from protocol.envelope import Binding, Deliver, Welcome
from protocol.errors import ErrorCode
from protocol.ids import (
    CommandId,
    ConnectionId,
    ControllerSeq,
    LeaseId,
    RevocationEpoch,
)
from protocol.limits import (
    BOOTSTRAP_DEADLINE_MS,
    FRAME_BYTES_MAX,
    LEASE_TTL_MS,
    OUTBOX_BYTES_MAX,
    P0_RESERVE_BYTES,
    RECONNECT_DELAY_MS,
)
from protocol.secrets import Secret
from protocol.timestamps import rfc3339_ms
from runnerd.core import recovery, step
from runnerd.core.actions import Exit, SendResult
from runnerd.core.inputs import Connected, ControlReceived, OrphanSettled, Started
from runnerd.core.state import Boot, Durable, Runner, Settings
from runnerd.core.transition import Step

_TRIED: Final = "prospect"
"""Id of the lease, the connection and the command of a trial, none of which leaves it."""


class Outlook(enum.StrEnum):
    """What a start would do. Stable words: a program may branch on them."""

    BEGINS_NEW = "begins_new"
    """There is no state: a new run begins."""
    ENDS_AT_ONCE = "ends_at_once"
    """The run is over and delivered: status 0, without a connection."""
    DELIVERS_AND_ENDS = "delivers_and_ends"
    """With a fresh ticket: what is stored is delivered, no new work is taken."""
    RESUMES = "resumes"
    """With a fresh ticket: everything is delivered and commands are taken."""


class Prospect(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a start with default limits would do with a state."""

    outlook: Outlook
    lifecycle: str
    """The lifecycle after the welcome, or at the end if there is none."""
    resent_events: int = 0
    new_events: tuple[str, ...] = ()
    """Types of the events that the start itself would report."""
    indeterminate_commands: tuple[CommandId, ...] = ()
    """Commands without a result: they are never run again."""
    turn_refusal: ErrorCode | None = None
    """Why a `turn.start` would be refused, None if it would be taken; of `resumes` only."""


def prospect(durable: Durable | None, now: Now) -> Prospect:
    """Return what a start would do with a stored state, None if there is none.

    A harness that the state names as live is taken for ended and proven gone.

    Source: runner-behaviour 4, "Start-up on a stored lifecycle"; ruling R1.
    """
    if durable is None:
        return Prospect(outlook=Outlook.BEGINS_NEW, lifecycle="connecting")
    turn = durable.turn
    orphan = None if turn is None else OrphanSettled(turn.generation, "ended")
    boot = Boot(state_id=durable.state_id, jitter_seed=0, now=now)
    found = recovery.start(_settings(durable), durable, boot)
    started = step.step(found, Started(orphan), now)
    if any(isinstance(gated.action, Exit) for gated in started.actions):
        lifecycle = started.state.durable.lifecycle.value
        return Prospect(outlook=Outlook.ENDS_AT_ONCE, lifecycle=lifecycle)
    welcomed = step.step(started.state, _welcome(started.state, now), now).state
    is_ending = welcomed.live.ending is not None
    return Prospect(
        outlook=Outlook.DELIVERS_AND_ENDS if is_ending else Outlook.RESUMES,
        lifecycle=welcomed.durable.lifecycle.value,
        resent_events=len(durable.outbox),
        new_events=tuple(
            entry.event_type for entry in started.state.durable.outbox[len(durable.outbox) :]
        ),
        indeterminate_commands=tuple(
            record.command_id for record in durable.commands if record.result is None
        ),
        turn_refusal=None if is_ending else _turn_refusal(welcomed, now),
    )


def _turn_refusal(runner: Runner, now: Now) -> ErrorCode | None:
    command = WireCommand(
        schema="paperclip.prp.command.v1",
        command_id=CommandId(f"{_TRIED}.{runner.durable.state_id}"),
        controller_seq=ControllerSeq(runner.durable.last_controller_command_seq + 1),
        type="turn.start",
        issued_at=rfc3339_ms(UnixMs(max(0, now.unix_ms))),
        payload=msgspec.Raw(b"{}"),
    )
    received = ControlReceived(connection_id=ConnectionId(_TRIED), message=Deliver(command))
    answered = step.step(runner, received, now)
    return _refusal_in(answered)


def _refusal_in(answered: Step) -> ErrorCode | None:
    for gated in answered.actions:
        if isinstance(gated.action, SendResult):
            result = gated.action.result
            if result.command_id.startswith(_TRIED):
                members = msgspec.json.decode(result.result, type=dict[str, object])
                return ErrorCode(str(members["code"]))
    return None


def _welcome(runner: Runner, now: Now) -> Connected:
    durable = runner.durable
    return Connected(
        binding=Binding(
            version=2,
            identity=durable.identity,
            connection_id=ConnectionId(_TRIED),
            connection_lease_id=LeaseId(_TRIED),
        ),
        welcome=Welcome(
            selected_version=2,
            connection_lease_id=LeaseId(_TRIED),
            connection_lease_expires_at_unix_ms=now.unix_ms + LEASE_TTL_MS,
            connection_lease_revocation_epoch=RevocationEpoch(durable.revocation_epoch or 0),
            acked_source_seq=durable.acked_source_seq,
        ),
        lease_token=Secret(_TRIED),
        sent_at_unix_ms=now.unix_ms,
    )


def _settings(durable: Durable) -> Settings:
    return Settings(
        identity=durable.identity,
        runner_version="0",
        runner_digest="0",
        max_outbox_bytes=OUTBOX_BYTES_MAX,
        p0_reserve_bytes=P0_RESERVE_BYTES,
        max_frame_bytes=FRAME_BYTES_MAX,
        reconnect_delay_ms=RECONNECT_DELAY_MS,
        reconnect_grace_ms=None,
        max_runtime_ms=0,
        bootstrap_deadline_ms=BOOTSTRAP_DEADLINE_MS,
    )
