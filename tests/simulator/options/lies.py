"""A peer that holds the keys and lies, or says things twice (A05, A08, A09, duplicate-command)."""

from typing import Final

import msgspec

from protocol.envelope import Ack, ControlMessage, Deliver, LeaseRenewed, Revoke
from protocol.ids import CommandId, ControllerSeq, RevocationEpoch, SourceSeq
from tests.simulator.image import Image
from tests.simulator.option import Op, Option
from tests.simulator.short.ops import link_is_open
from tests.simulator.short.world import World


def _say(world: World, message: ControlMessage, number: str) -> None:
    """Feed a lie behind all that waits; a runner with authority must close the connection."""
    world.turn(len(world.inbox))
    if not world.is_running or not link_is_open(world):
        return
    world.inbox.append(world.peer.says(message, world.peer_now_ms))
    if world.has_authority():
        world.must_close = number
    world.turn(1)


def forge_ack(world: World) -> None:
    """Acknowledge what was never produced, or take an acknowledgement back."""
    allowed = world.oracle.ack_allowed
    if allowed and world.draws.stream("peer").chance("backward", 50):
        cursor = world.draws.stream("peer").choose("cursor", allowed)
    else:
        cursor = world.oracle.produced + 200
    world.seen.add("forged ack")
    _say(world, Ack(SourceSeq(cursor)), "I4")


def alter_command(world: World) -> None:
    """Deliver a known command with one member changed."""
    commands = world.peer.commands
    known = commands[-1 - world.draws.stream("peer").choose("back", min(len(commands), 5))]
    altered = msgspec.structs.replace(known, payload=msgspec.Raw(b'{"altered":true}'))
    world.seen.add("altered command")
    image = world.oracle.image
    is_journaled = image is not None and (
        image.compacted_through_controller_seq
        < known.controller_seq
        <= image.last_controller_command_seq
    )
    if is_journaled:
        _say(world, Deliver(altered), "I6")


def skip_command(world: World) -> None:
    """Deliver a command whose number leaves a gap."""
    seq = ControllerSeq(len(world.peer.commands) + 2)
    template = world.peer.commands[0]
    skipping = msgspec.structs.replace(
        template, controller_seq=seq, command_id=f"{template.command_id}_gap"
    )
    _say(world, Deliver(skipping), "I6")


def repeat_command(world: World) -> None:
    """Deliver a known command again, as it was."""
    stream, commands = world.draws.stream("peer"), world.peer.commands
    known = commands[0] if stream.chance("first", 40) else stream.pick("again", commands)
    if known.controller_seq in world.peer.delivered:
        world.inbox.append(world.peer.says(Deliver(known), world.peer_now_ms))
        world.seen.add("command repeated")


def reuse_id(world: World) -> None:
    """Give the next command the id of one that the journal has forgotten (duplicate-command)."""
    image = world.oracle.image
    assert image is not None
    forgotten = world.draws.stream("peer").pick("id", _forgotten_ids(world, image))
    command = world.peer.queue("session.snapshot")
    reused = msgspec.structs.replace(command, command_id=forgotten)
    world.peer.commands[-1] = reused
    world.peer.delivered.add(reused.controller_seq)
    world.reused.add(reused.controller_seq)
    world.seen.add("id reused")
    world.inbox.append(world.peer.says(Deliver(reused), world.peer_now_ms))


def _forgotten_ids(world: World, image: Image) -> list[CommandId]:
    mark = image.compacted_through_controller_seq
    remembered = {command.command_id for command in world.peer.commands[mark:]}
    ids = (command.command_id for command in world.peer.commands[:mark])
    return [command_id for command_id in ids if command_id not in remembered]


def may_reuse(world: World) -> int:
    image, peer = world.oracle.image, world.peer
    if not _may_lie(world) or image is None or peer.open_command is not None or peer.revoked:
        return 0
    return 12 if _forgotten_ids(world, image) else 0


def renew_unasked(world: World) -> None:
    """Extend a lease by far although nobody asked, or for another expiry than was asked."""
    later = LeaseRenewed(
        previous_expires_at_unix_ms=world.peer.expires_at_unix_ms + 77,
        connection_lease_expires_at_unix_ms=world.peer.expires_at_unix_ms + 10**9,
        connection_lease_revocation_epoch=RevocationEpoch(world.peer.epoch),
    )
    _say(world, later, "I15")


def take_epoch_back(world: World) -> None:
    """Revoke with an epoch that is not above the welcome's."""
    _say(world, Revoke(RevocationEpoch(0)), "I4")


def _may_lie(world: World) -> int:
    is_possible = world.is_running and link_is_open(world) and bool(world.peer.commands)
    return 1 if is_possible else 0


SHORT: Final = Option[World](
    "lies",
    families=("forged_ack", "altered", "repeated", "unasked", "reused"),
    ops=(
        Op("forged ack", _may_lie, forge_ack, "forged_ack"),
        Op("altered command", _may_lie, alter_command, "altered"),
        Op("skipped command", _may_lie, skip_command, "altered"),
        Op("repeated command", lambda w: 3 * _may_lie(w), repeat_command, "repeated"),
        Op("reused id", may_reuse, reuse_id, "reused"),
        Op("unasked renewal", _may_lie, renew_unasked, "unasked"),
        Op("epoch back", _may_lie, take_epoch_back, "unasked"),
    ),
    sometimes=(
        "forged ack",
        "altered command",
        "command repeated",
        "result replayed",
        "compacted command refused",
        "id reused",
    ),
)
