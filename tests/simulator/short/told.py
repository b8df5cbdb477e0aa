"""What the runner is told, and whether it had the authority to apply it at that moment.

It decides by the world's own reckoning of leases and cursors. It refuses to ask the runner.
"""

from typing import Final

from protocol.envelope import Ack, Deliver, LeaseRenewed
from runnerd.core.inputs import (
    Connected,
    ConnectFailed,
    ConnectionLost,
    ControlReceived,
    Input,
)
from tests.simulator.short.world import World

_DOUBTED: Final = "doubted connection"


def note(world: World, stimulus: Input) -> None:
    """Remember what the runner is about to be fed."""
    match stimulus:
        case Connected():
            _note_welcome(world, stimulus)
        case ControlReceived():
            _note_control(world, stimulus)
        case ConnectionLost() | ConnectFailed():
            world.failed_at_boot_ms = world.machine.boot_ms
            link = world.peer.link
            if isinstance(stimulus, ConnectionLost) and link is not None and not link.is_open:
                world.peer.link = world.must_refuse = None
        case _:
            return


def _note_welcome(world: World, connected: Connected) -> None:
    welcome = connected.welcome
    world.kept["welcomed"] = world.driver
    assert connected.sent_at_unix_ms is not None
    left_ms = welcome.connection_lease_expires_at_unix_ms - connected.sent_at_unix_ms
    world.authority_ends = (
        world.machine.boot_ms + left_ms,
        welcome.connection_lease_expires_at_unix_ms,
    )
    world.renewal_observed = None
    cursor = welcome.acked_source_seq or 0
    if cursor < world.acked_now:
        world.must_refuse = "controller rollback detected"
    elif world.rolled_back and cursor >= world.loaded_next:
        world.must_refuse = "runner rollback detected"
    elif world.has_authority():
        _allow_ack(world, cursor)
        for command in welcome.pending_commands:
            _allow_command(world, command.controller_seq)


def _note_control(world: World, received: ControlReceived) -> None:
    link = world.peer.link
    if link is None or received.connection_id != link.binding.connection_id:
        return
    if not link.is_current:
        return
    is_late = not world.has_authority()
    if is_late:
        world.seen.add("told too late")
    match received.message:
        case Ack(acked_source_seq=cursor):
            if is_late:
                world.oracle.ack_late = max(world.oracle.ack_late, cursor)
            else:
                _allow_ack(world, cursor)
        case Deliver(command=command):
            if is_late:
                world.oracle.command_late = max(world.oracle.command_late, command.controller_seq)
            elif command in world.peer.commands:
                _allow_command(world, command.controller_seq)
        case LeaseRenewed() as renewed:
            if not is_late and received.sent_at_unix_ms is not None:
                _note_renewed(world, renewed, received.sent_at_unix_ms)
        case _:
            return


def _note_renewed(world: World, renewed: LeaseRenewed, sent_at_unix_ms: int) -> None:
    expires = renewed.connection_lease_expires_at_unix_ms
    if renewed.previous_expires_at_unix_ms == world.renewal_observed:
        world.renewal_observed = None
        world.authority_ends = (world.machine.boot_ms + expires - sent_at_unix_ms, expires)
    else:
        # Nobody has asked for it, so the connection may be on its way out.
        world.kept[_DOUBTED] = world.peer.link


def _allow_ack(world: World, cursor: int) -> None:
    if cursor <= world.peer.cursor:
        world.oracle.ack_allowed = max(world.oracle.ack_allowed, cursor)
        # What comes behind a message for which the runner closes is not applied.
        if world.must_close is None and world.kept.get(_DOUBTED) is not world.peer.link:
            world.acked_now = max(world.acked_now, cursor)


def _allow_command(world: World, seq: int) -> None:
    world.oracle.command_allowed = max(world.oracle.command_allowed, seq)
