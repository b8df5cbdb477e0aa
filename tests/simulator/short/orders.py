"""What the runner orders, and what an observer says about each order that became visible.

It decides who gets an order: the peer, the program or nobody. It refuses to know why the
runner gave it.
"""

import msgspec

from runnerd.core.actions import (
    Action,
    CloseConnection,
    Dial,
    Exit,
    ReadHarness,
    RecordCancel,
    RecordFacts,
    ReleaseHarness,
    SendEvent,
    SendRenewal,
    SendResult,
    StartHarness,
    StopHarness,
    TellHarness,
)
from runnerd.core.inputs import ConnectionLost
from tests.simulator import invariants
from tests.simulator.judge import ENDS
from tests.simulator.short.peer import Link
from tests.simulator.short.program import Program
from tests.simulator.short.run_log import answer_told, event_left, log_of
from tests.simulator.short.talker import Talker
from tests.simulator.short.world import LEAST_PAUSE_MS, TERMINAL_TYPES, World
from tests.simulator.verdict import Violation


def perform(world: World, action: Action) -> None:
    """Carry out one order."""
    match action:
        case SendEvent():
            _send_event(world, action)
        case SendResult():
            _send_result(world, action)
        case SendRenewal():
            if (link := _current(world, action.connection_id)) is not None:
                world.renewal_observed = action.renewal.connection_lease_expires_at_unix_ms
                world.peer.renewals.append(world.renewal_observed)
        case CloseConnection():
            if (link := _current(world, action.connection_id)) is not None:
                link.is_open = link.is_current = False
                world.inbox.append(ConnectionLost(action.connection_id, action.code))
        case Dial():
            _dial(world, action)
        case StartHarness():
            _start_program(world, action)
        case ReleaseHarness() | ReadHarness() | StopHarness():
            _order_program(world, action)
        case TellHarness():
            if isinstance(world.program, Talker):
                before = len(world.program.answers)
                world.program.tell(action, world.surviving(), world.seen)
                answer_told(world, world.program.answers[before:])
        case RecordFacts() | RecordCancel():
            if (log := log_of(world)) is not None:
                log.order(world, action)
        case Exit():
            _exit(world, action)
        case _:
            return


def _current(world: World, connection_id: str) -> Link | None:
    """Return the connection that an order is for; what is for another one is nobody's."""
    link = world.peer.link
    if link is None or not link.is_open or link.binding.connection_id != connection_id:
        return None
    return link


def _dial(world: World, dial: Dial) -> None:
    invariants.I7_exists(world.surviving(), "dialled")
    if dial.credential_kind == "bootstrap" and world.kept.get("welcomed") is world.driver:
        raise Violation("I13", "a ticket that has bought a lease is dialled with")
    if world.failed_at_boot_ms is not None:
        waited_ms = world.machine.boot_ms - world.failed_at_boot_ms
        invariants.I20_backoff(waited_ms, LEAST_PAUSE_MS)
    world.peer.dial = dial


def _send_event(world: World, action: SendEvent) -> None:
    if (link := _current(world, action.connection_id)) is None:
        return
    if world.must_refuse is not None:
        raise Violation("I3", f"an event left although a {world.must_refuse} was due")
    if action.source_seq <= world.oracle.frozen_through:
        world.seen.add("event sent again")
    world.oracle.event_left(action.source_seq, action.body, world.surviving())
    event_left(world, action.body)
    invariants.I3(action.source_seq, link.expected_seq)
    link.expected_seq += 1
    if b'"outbox_full"' in action.body:
        world.seen.add("output had no room")
    world.peer.arrived = max(world.peer.arrived, action.source_seq)


def _send_result(world: World, action: SendResult) -> None:
    result, peer = action.result, world.peer
    if _current(world, action.connection_id) is None:
        return
    if result.controller_seq in peer.settled:
        world.seen.add("result replayed")
    body = msgspec.json.encode(result)
    world.oracle.result_left(result.controller_seq, result.status, body, world.surviving())
    if result.controller_seq in world.reused and result.status != "rejected":
        raise Violation("I6", f"command {result.controller_seq} has an old id and was executed")
    if result.command_type == "runner.drain" and result.status == "completed":
        world.oracle.drained(result.controller_seq)
    peer.settle(result)
    if result.command_type in TERMINAL_TYPES:
        peer.owed_acks.append(result)
    _notice(world, result.status, bytes(result.result))


def _notice(world: World, status: str, members: bytes) -> None:
    if status == "indeterminate":
        world.seen.add("indeterminate reported")
    elif status == "failed":
        world.seen.add("turn failed")
    elif status == "rejected":
        for text, fact in _REFUSALS:
            if text in members:
                world.seen.add(fact)


_REFUSALS = (
    (b'"runner_draining"', "turn refused while draining"),
    (b'"runner_backpressure"', "turn refused under backpressure"),
    (b'"command_history_compacted"', "compacted command refused"),
)


def _start_program(world: World, order: StartHarness) -> None:
    program = world.program
    if program is not None and program.generation == order.generation:
        return  # An order that is repeated changes nothing.
    seq = world.oracle.program_ordered(order.generation, world.surviving())
    log = log_of(world)
    if log is not None and (refused := log.refuses_start(order)) is not None:
        world.inbox.append(refused)
        return
    kind = Talker if order.kind == "jsonl" else Program
    world.program = kind.ordered(order, seq)
    if program is not None and program.was_lost and program.controller_seq == seq:
        world.program.replaces = program.mark
        world.seen.add("lost program replaced")


def _order_program(world: World, order: ReleaseHarness | ReadHarness | StopHarness) -> None:
    program = world.program
    if program is None or program.generation != order.generation:
        return
    match order:
        case ReleaseHarness():
            invariants.I7_release(order.generation, world.surviving())
            program.released = True
        case ReadHarness():
            program.reading = order
        case StopHarness():
            program.stopping = True


def _exit(world: World, order: Exit) -> None:
    code = None if order.code is None else order.code.value
    invariants.I18(code, ENDS)
    if world.must_refuse is not None and code is not None and code.endswith("rollback_detected"):
        world.seen.add(world.must_refuse)
    if (fact := _ENDS_SEEN.get(code)) is not None:
        world.seen.add(fact)
    world.end_process(order)


_ENDS_SEEN = {
    None: "ended cleanly",
    "lease_expired_requires_bootstrap": "lease expired",
    "stop_requested": "stopped on request",
    "storage_sync_failed": "ended on an undecided write",
    "storage_unavailable": "ended on a dead disk",
}
