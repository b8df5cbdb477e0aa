"""The log of the run as an observer keeps it: what it was made to say, and what may follow.

It outlives every process, as the real one does. It decides that nothing of a call or an
answer becomes visible before the log has it (I7). It refuses to know records.
"""

from typing import Final

import msgspec

from protocol.errors import ErrorCode
from runnerd.core.actions import RecordCancel, RecordFacts, StartHarness
from runnerd.core.inputs import CancelRecorded, FactsRecorded, HarnessStartFailed
from runnerd.core.run_fact import CallFact, RequestFact, RunFact
from runnerd.driving import RunnerDriver
from tests.simulator.short.world import World
from tests.simulator.verdict import Violation

FAMILY: Final = "run log"


class RunLog:
    """What the log says, and the orders of the present process that are not answered."""

    def __init__(self) -> None:
        self.begun: set[str] = set()
        self.answered: set[str] = set()
        self.resolved: set[str] = set()
        self._orders: list[tuple[RunnerDriver, RecordFacts | RecordCancel]] = []

    def order(self, world: World, action: RecordFacts | RecordCancel) -> None:
        """Take an order; what it names must be on the disk already."""
        assert world.driver is not None
        if isinstance(action, RecordFacts):
            for fact in action.facts:
                _is_stored(world, fact)
        self._orders.append((world.driver, action))

    def has_order(self, world: World) -> bool:
        """Tell whether the present process waits for an answer."""
        self._orders = [one for one in self._orders if one[0] is world.driver]
        return bool(self._orders)

    def carry_out(self, world: World) -> None:
        """Make the log say what the oldest order names, and answer it."""
        action = self._next()
        if isinstance(action, RecordCancel):
            world.inbox.append(CancelRecorded(None))
            return
        self.note(action.facts)
        world.inbox.append(FactsRecorded(facts=action.facts))

    def refuse(self, world: World, fault: ErrorCode, taken: int) -> None:
        """Let the log take the first few facts of the oldest order and fail."""
        action = self._next()
        if isinstance(action, RecordCancel):
            world.inbox.append(CancelRecorded(None))
            return
        self.note(action.facts[:taken])
        world.inbox.append(FactsRecorded(facts=action.facts, fault=fault))

    def lose_answer(self) -> None:
        """Let the log take the oldest order, without anybody knowing."""
        action = self._next()
        if isinstance(action, RecordFacts):
            self.note(action.facts)

    def note(self, facts: tuple[RunFact, ...]) -> None:
        """Say this, once."""
        for fact in facts:
            if isinstance(fact, CallFact):
                self.begun.add(fact.call_id)
                if fact.effect is not None:
                    self.answered.add(fact.call_id)
            elif isinstance(fact, RequestFact) and fact.decision is not None:
                self.resolved.add(fact.request_id)

    def refuses_start(self, order: StartHarness) -> HarnessStartFailed | None:
        """Refuse an attempt while a call is in doubt, as the real log does."""
        if self.begun <= self.answered:
            return None
        return HarnessStartFailed(order.generation, "unknown_effect")

    def _next(self) -> RecordFacts | RecordCancel:
        return self._orders.pop(0)[1]


def log_of(world: World) -> RunLog | None:
    """Return the log, None in a history without one."""
    log = world.kept.get(FAMILY)
    assert log is None or isinstance(log, RunLog)
    return log


def event_left(world: World, body: bytes) -> None:
    """Judge an event that was sent: a call is in the log before anybody hears of it."""
    log, image = log_of(world), world.oracle.image
    if log is None or b'"semantic_tool.input"' not in body:
        return
    call_id = msgspec.json.decode(body)["payload"]["semantic_tool"]["callId"]
    is_over = image is not None and image.run_terminal
    if call_id not in log.begun and not is_over:
        raise Violation("I7", f"{call_id} left before the run's log had it")
    world.seen.add("call left behind its record")


def answer_told(world: World, answers: tuple[str, ...]) -> None:
    """Judge what a program was told: an answer is in the log before."""
    log = log_of(world)
    if log is None:
        return
    for what in answers:
        kind, _, name = what.rpartition(" ")
        known = log.answered if kind == "result of" else log.resolved
        if name not in known:
            raise Violation("I7", f"the {what} was told before the run's log had it")


def _is_stored(world: World, fact: RunFact) -> None:
    for image in world.surviving():
        calls = () if image is None else [call.call_id for call in image.tool_calls]
        asked = () if image is None else [request.request_id for request in image.requests]
        is_known = (
            fact.call_id in calls
            if isinstance(fact, CallFact)
            else isinstance(fact, RequestFact) and fact.request_id in asked
        )
        if not is_known:
            raise Violation("I7", "the run's log was told of what is not durable")
