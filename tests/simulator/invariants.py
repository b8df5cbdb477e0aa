"""One function per invariant of faults.md section 2, each of which can fail.

They decide from bytes on the wire, images of the disk and the ledger of the outside world.
They refuse to look at the product's own state.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

from tests.simulator.image import Image, ImageEvent
from tests.simulator.verdict import Violation

if TYPE_CHECKING:
    from tests.simulator.oracle import Oracle

COMMAND_RECORDS_MAX = 128
DIAGNOSTICS_MAX = 32
NOT_JOURNALED = ("command_history_compacted", "command_queue_full")
"""Refusals that claim nothing but that the command was not executed."""


class _Result(msgspec.Struct, rename="camel"):
    status: str
    result: dict[str, object]


class _DeltaPayload(msgspec.Struct, rename="camel"):
    text: str | None = None
    coalesced_count: int | None = None


class _Delta(msgspec.Struct):
    payload: _DeltaPayload


_MONOTONE = (
    "acked_source_seq",
    "next_source_seq",
    "last_controller_command_seq",
    "compacted_through_controller_seq",
    "generation",
    "turns_started",
    "lines_accepted",
    "peak_outbox_bytes",
)
_MARKS = attrgetter(*_MONOTONE)
_DELTA = msgspec.json.Decoder(_Delta)
_RESULT = msgspec.json.Decoder(_Result)


def I1(image: Image, oracle: "Oracle") -> None:
    """No acknowledged or accepted event is lost: what is not acknowledged is in the outbox."""
    numbers = [event.source_seq for event in image.outbox]
    due = range(image.acked_source_seq + 1, image.next_source_seq)
    if numbers != list(due):
        raise Violation("I1", f"not all of events {due} are stored: {numbers}")
    accepted = oracle.accepted
    for event in image.outbox:
        known = accepted.get(event.source_seq)
        if known is not None and known != bytes(event.body):
            I2_stored(event.source_seq, known, event, oracle)


def I2(seq: int, body: bytes, oracle: "Oracle") -> None:
    """No logical event is duplicated: a number that was seen names the same bytes for ever."""
    known = oracle.accepted.get(seq)
    if known is not None and known != body:
        raise Violation("I2", f"event {seq} left with other bytes than before")


def I2_stored(seq: int, known: bytes, event: ImageEvent, oracle: "Oracle") -> None:
    """Only display text that nobody has seen may still grow, and it loses nothing (R2)."""
    if event.priority != 2 or seq <= oracle.frozen_through:
        raise Violation("I2", f"event {seq} has other bytes in a later state")
    before, after = _DELTA.decode(known).payload, _DELTA.decode(event.body).payload
    if before.text is not None and not (after.text or "").startswith(before.text):
        raise Violation("I1", f"event {seq} was merged and lost text")
    if (after.coalesced_count or 1) <= (before.coalesced_count or 1):
        raise Violation("I2", f"event {seq} was merged and does not say so")


def I3(seq: int, expected: int) -> None:
    """No gap, no reorder: a connection carries events from its cursor on, one by one."""
    if seq != expected:
        raise Violation("I3", f"event {seq} left where {expected} was due")


def I4(before: Image | None, image: Image, oracle: "Oracle") -> None:
    """Cursors are monotone, and the acknowledged one claims no more than was told."""
    if image.acked_source_seq >= image.next_source_seq:
        raise Violation("I4", f"acknowledged {image.acked_source_seq} was never produced")
    if image.acked_source_seq > oracle.ack_allowed:
        I24(image.acked_source_seq, oracle.ack_late, "an acknowledgement")
        raise Violation("I4", f"acknowledged {image.acked_source_seq}, told {oracle.ack_allowed}")
    if image.last_controller_command_seq > oracle.command_allowed:
        I24(image.last_controller_command_seq, oracle.command_late, "a command")
        raise Violation(
            "I15", f"command {image.last_controller_command_seq} was journaled and never delivered"
        )
    if before is None:
        return
    for name, old, new in zip(_MONOTONE, _MARKS(before), _MARKS(image), strict=True):
        if new < old:
            raise Violation("I4", f"{name} went back from {old} to {new}")
    if before.state_id != image.state_id:
        raise Violation("I12", "the state is another one")


def I5_result(seq: int, status: str, body: bytes, oracle: "Oracle") -> None:
    """One outcome per command: the answer counts the effects that the ledger has."""
    count = _RESULT.decode(body).result.get("logicalEffectCount", "absent")
    expected = {"completed": 1, "rejected": 0, "failed": 0, "indeterminate": None}[status]
    if count != expected:
        raise Violation("I5", f"command {seq} is {status} with effect count {count}")
    spawned = sum(command == seq for command in oracle.marks.values())
    if status in ("rejected", "failed") and spawned:
        raise Violation("I5", f"command {seq} is {status} and started {spawned} programs")


def I5_spawn(mark: str, seq: int, oracle: "Oracle", replaces: str | None = None) -> None:
    """At most one effect per command: a program is spawned once, and never after an answer.

    Args:
        replaces: mark of the program that was lost within the turn, if this takes its place.
    """
    if replaces is not None and oracle.marks.get(replaces) == seq and mark not in oracle.marks:
        return
    if mark in oracle.marks or seq in oracle.marks.values():
        raise Violation("I5", f"command {seq} started a program twice")
    if seq in oracle.results:
        raise Violation("I5", f"command {seq} started a program after its answer")


def I6(seq: int, body: bytes, oracle: "Oracle") -> None:
    """Command identity: the same command gets the same answer, byte for byte.

    Once it is compacted it is refused, which claims nothing but that nothing was done.
    """
    known, image = oracle.results.get(seq), oracle.image
    is_compacted = image is not None and seq <= image.compacted_through_controller_seq
    if is_compacted and _RESULT.decode(body).result.get("code") in NOT_JOURNALED:
        return
    if known is not None and known != body:
        raise Violation("I6", f"command {seq} got another answer than before")


def I7_event(seq: int, body: bytes, surviving: Sequence[Image | None]) -> None:
    """Persist before visible: whatever power loss leaves, the event is stored or acknowledged."""
    for image in surviving:
        if image is None or seq >= image.next_source_seq:
            raise Violation("I7", f"event {seq} left before it was durable")
        if seq > image.acked_source_seq:
            place = seq - image.acked_source_seq - 1
            if place >= len(image.outbox) or image.outbox[place].source_seq != seq:
                raise Violation("I1", f"event {seq} left and is not in the outbox")
            if bytes(image.outbox[place].body) != body:
                raise Violation("I7", f"event {seq} left with bytes that are not durable")


def I7_result(seq: int, body: bytes, surviving: Sequence[Image | None]) -> None:
    """Persist before visible: the answer is in the journal of every state that may be found."""
    for image in surviving:
        if image is None:
            raise Violation("I7", f"the answer to command {seq} left before it was durable")
        if seq <= image.compacted_through_controller_seq:
            continue
        place = seq - image.compacted_through_controller_seq - 1
        if place >= len(image.commands):
            if _RESULT.decode(body).result.get("code") in NOT_JOURNALED:
                continue
            raise Violation("I7", f"the answer to command {seq} left before it was durable")
        if image.commands[place].answer != body:
            raise Violation("I7", f"the answer to command {seq} left before it was durable")


def I7_spawn(generation: int, surviving: Sequence[Image | None]) -> int:
    """Persist before visible: no program is spawned before its turn is durable."""
    seq = 0
    for image in surviving:
        if image is None or image.turn is None or image.turn.generation != generation:
            raise Violation("I7", f"program {generation} was ordered before its turn was durable")
        seq = image.turn.controller_seq
        if image.turn.restarts:
            continue  # Its program was lost after the answer and takes its own place again.
        place = seq - image.compacted_through_controller_seq - 1
        if 0 <= place < len(image.commands) and image.commands[place].answer is not None:
            raise Violation("I14", f"command {seq} has an answer and is executed")
    return seq


def I7_release(generation: int, surviving: Sequence[Image | None]) -> None:
    """Persist before visible: no program runs before its birth is durable."""
    for image in surviving:
        turn = None if image is None else image.turn
        if turn is None or turn.generation != generation or not turn.is_born:
            raise Violation("I7", f"program {generation} ran before its birth was durable")


def I7_exists(surviving: Sequence[Image | None], what: str) -> None:
    """Persist before visible: some whole state is on the disk before anything is done."""
    if None in surviving:
        raise Violation("I7", f"{what} before any state was durable")


def I8(found: Image | None, allowed: Sequence[Image | None]) -> None:
    """The state file is whole: a start finds one complete published state, never an older one."""
    if found not in allowed:
        raise Violation("I8", f"a start found {_named(found)}, which was not to be found")


def I9(before: Image | None, image: Image) -> None:
    """No fact of priority 0 is dropped: what changed has its event, or the runner gives up."""
    if before is None or image.unrecoverable_outcome is not None:
        return
    produced = image.next_source_seq - before.next_source_seq
    types = {
        event.event_type
        for event in image.outbox[max(0, len(image.outbox) - produced) :]
        if event.priority == 0
    }
    over, live = before.turn, image.turn
    is_over = over is not None and (live is None or live.ordinal != over.ordinal)
    if is_over and not types & _TURN_ENDS:
        raise Violation("I9", "a turn is over and no event says so")
    if before.session_open != image.session_open and not types & _SESSION_EDGES:
        raise Violation("I9", "the session was opened or closed and no event says so")
    if image.lifecycle == "draining" != before.lifecycle and "runner.draining" not in types:
        raise Violation("I9", "the runner drains and no event says so")


_TURN_ENDS = {"turn.completed", "turn.failed", "turn.interrupted", "turn.cancelled"}
_SESSION_EDGES = {"session.started", "session.resumed", "session.closed"}


def I10(image: Image, oracle: "Oracle") -> int:
    """Everything is bounded, and the recorded peak covers what is stored, which is returned."""
    each = oracle.envelope_bytes
    sizes = [len(event.body) for event in image.outbox]
    total = sum(sizes) + len(sizes) * each
    small = sum([len(event.body) + each for event in image.outbox if event.priority])
    if total > oracle.outbox_bytes_max:
        raise Violation("I10", f"{total} bytes are stored, {oracle.outbox_bytes_max} are allowed")
    if small > oracle.outbox_bytes_max - oracle.p0_reserve_bytes:
        raise Violation("I10", f"{small} bytes of priority 1 and 2 use the reserve")
    if total > image.peak_outbox_bytes:
        raise Violation("I10", f"{total} bytes exceed the recorded peak")
    if len(image.commands) > COMMAND_RECORDS_MAX or len(image.diagnostics) > DIAGNOSTICS_MAX:
        raise Violation("I10", "journal or diagnostics exceed their bound")
    return total


def I13(before: Image | None, image: Image) -> None:
    """Terminal is final."""
    if before is None:
        return
    if before.lifecycle == "revoked" and image.lifecycle != "revoked":
        raise Violation("I13", f"a revoked runner became {image.lifecycle}")
    if before.run_terminal and not image.run_terminal:
        raise Violation("I13", "a run that is over goes on")
    if before.run_terminal and image.turns_started > before.turns_started:
        raise Violation("I13", "a run that is over started a turn")
    ended = [event.event_type for event in image.outbox].count("run.terminal")
    was_told = before.run_terminal and not before.cancel_unrecorded
    if ended > 1 or (ended and was_told and _is_new_terminal(before, image)):
        raise Violation("I13", "a run ended twice")


def _is_new_terminal(before: Image, image: Image) -> bool:
    return any(
        event.event_type == "run.terminal" and event.source_seq >= before.next_source_seq
        for event in image.outbox
    )


def I17(seq: int, oracle: "Oracle") -> None:
    """Honest admission: a draining runner starts no program for a later command."""
    if oracle.drained_by is not None and seq > oracle.drained_by:
        raise Violation("I17", f"command {seq} started a program after drain {oracle.drained_by}")


def I18(code: str | None, documented: frozenset[str]) -> None:
    """Fail closed with a name: an end has a code of the list that ends a process."""
    if code is not None and code not in documented:
        raise Violation("I18", f"the process ended as {code}")


def I20_backoff(waited_ms: int, least_ms: int) -> None:
    """No reconnect storm: a lost or refused connection is followed by a pause."""
    if waited_ms < least_ms:
        raise Violation("I20", f"dialled again {waited_ms} ms after a failure")


def I20(unfinished: str) -> None:
    """Progress after faults stop: in bounded virtual time nothing is owed any more."""
    if unfinished:
        raise Violation("I20", unfinished)


def I24(applied: int, late: int, what: str) -> None:
    """Time cannot extend authority: what came when the lease was over leaves no trace."""
    if applied <= late:
        raise Violation("I24", f"{what} ({applied}) was applied when the lease was over")


def _named(image: Image | None) -> str:
    if image is None:
        return "no whole state"
    return f"events through {image.next_source_seq - 1}, acknowledged {image.acked_source_seq}"
