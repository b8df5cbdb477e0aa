"""Persist, then act: every rule of the driver, one by one and in any order (D2, D6, R4)."""

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from protocol.base.clock import MonoMs, Now, UnixMs
from protocol.base.driver import Driver, Write
from protocol.base.revision import Gated, Revision, Transition

NOW = Now(UnixMs(0), MonoMs(0))


class State(msgspec.Struct, frozen=True):
    """The smallest core: it counts durable changes and remembers the last word."""

    revision: Revision = Revision(0)
    word: str = ""


class Order(msgspec.Struct, frozen=True):
    """An input that says what the core shall answer."""

    word: str
    durable: bool = False
    gated: tuple[str, ...] = ()
    free: tuple[str, ...] = ()
    passing: tuple[str, ...] = ()
    rises_by: int = 1


Actor = Driver[State, Order, str, str]
Sent = list[str]


def step(state: State, order: Order, now: Now) -> Transition[State, str, str]:
    revision = Revision(state.revision + order.rises_by) if order.durable else state.revision
    return Transition(
        State(revision, order.word),
        (
            *(Gated(action, after=revision) for action in order.gated),
            *(Gated(action) for action in order.free),
            *(Gated(action, passes=True) for action in order.passing),
        ),
        writes=(order.word,) if order.durable else (),
    )


def driver(*orders: Order) -> Actor:
    actor: Actor = Driver(State(), step)
    for order in orders:
        actor.feed(order, NOW)
    return actor


def sent(actor: Actor) -> Sent:
    actions: Sent = []
    while (action := actor.next_action()) is not None:
        actions.append(action)
    return actions


def wrote(actor: Actor) -> Write[State, str]:
    write = actor.next_write()
    assert write is not None
    actor.wrote()
    return write


def test_action_waits_until_its_revision_is_durable() -> None:
    actor = driver(Order("a", durable=True, gated=("send",)))

    assert sent(actor) == []
    write = actor.next_write()
    assert write == Write(State(Revision(1), "a"), Revision(1), ("a",))
    assert sent(actor) == []
    actor.wrote()
    assert sent(actor) == ["send"]


def test_one_write_serves_everything_staged() -> None:
    actor = driver(*(Order(word, durable=True, gated=(word,)) for word in "abc"))

    assert wrote(actor).writes == ("a", "b", "c")
    assert actor.next_write() is None
    assert sent(actor) == ["a", "b", "c"]


def test_no_write_is_asked_for_when_no_action_waits() -> None:
    actor = driver(Order("a", durable=True), Order("b", durable=True, free=("free",)))

    assert actor.next_write() is None
    assert sent(actor) == ["free"]
    assert actor.next_write() is None


def test_change_that_nobody_waited_for_rides_along_with_the_next_write() -> None:
    actor = driver(Order("a", durable=True), Order("b", durable=True, gated=("send",)))

    assert wrote(actor).writes == ("a", "b")


def test_no_second_write_starts_while_one_is_in_flight() -> None:
    actor = driver(Order("a", durable=True, gated=("first",)))
    actor.next_write()

    actor.feed(Order("b", durable=True, gated=("second",)), NOW)

    assert actor.is_writing
    assert actor.next_write() is None


def test_input_during_a_write_waits_for_the_next_write() -> None:
    actor = driver(Order("a", durable=True, gated=("first",)))
    actor.next_write()
    actor.feed(Order("b", durable=True, gated=("second",)), NOW)

    actor.wrote()

    assert not actor.is_writing
    assert sent(actor) == ["first"]
    assert wrote(actor) == Write(State(Revision(2), "b"), Revision(2), ("b",))
    assert sent(actor) == ["second"]


def test_no_further_write_follows_when_input_during_a_write_asks_for_nothing() -> None:
    actor = driver(Order("a", durable=True, gated=("first",)))
    actor.next_write()
    actor.feed(Order("b", durable=True), NOW)
    actor.wrote()

    assert actor.next_write() is None
    assert actor.committed == State(Revision(1), "a")
    assert actor.staged == State(Revision(2), "b")


def test_free_action_stays_behind_a_waiting_one() -> None:
    actor = driver(Order("a", durable=True, gated=("gated",), free=("free",)))

    assert sent(actor) == []
    wrote(actor)
    assert sent(actor) == ["gated", "free"]


def test_passing_action_overtakes_a_waiting_one() -> None:
    actor = driver(Order("a", durable=True, gated=("gated",), passing=("renewal",)))
    actor.next_write()

    assert sent(actor) == ["renewal"]
    actor.wrote()
    assert sent(actor) == ["gated"]


def test_passing_action_causes_no_write() -> None:
    actor = driver(Order("a", durable=True, passing=("renewal",)))

    assert actor.next_write() is None


def test_failed_write_drops_every_held_action_and_keeps_what_was_staged() -> None:
    actor = driver(Order("a", durable=True, gated=("first",), free=("free",)))
    actor.next_write()
    actor.feed(Order("b", durable=True, gated=("second",)), NOW)

    dropped = actor.write_failed()

    assert dropped == ("first", "free", "second")
    assert sent(actor) == []
    assert actor.committed == State()
    assert actor.staged == State(Revision(2), "b")


def test_failed_write_keeps_passing_actions() -> None:
    actor = driver(Order("a", durable=True, gated=("first",), passing=("renewal",)))
    actor.next_write()

    actor.write_failed()

    assert sent(actor) == ["renewal"]


def test_nothing_is_written_after_a_failed_write_until_an_action_waits_again() -> None:
    actor = driver(Order("a", durable=True, gated=("first",)))
    actor.next_write()
    actor.write_failed()

    assert not actor.is_writing
    assert actor.next_write() is None
    actor.feed(Order("b", gated=("derived again",)), NOW)
    assert wrote(actor) == Write(State(Revision(1), "b"), Revision(1), ("a",))
    assert sent(actor) == ["derived again"]


def test_later_attempt_writes_each_staged_change_once() -> None:
    actor = driver(Order("a", durable=True, gated=("first",)))
    actor.next_write()
    actor.feed(Order("b", durable=True), NOW)
    actor.write_failed()
    actor.feed(Order("c", durable=True, gated=("third",)), NOW)

    assert wrote(actor).writes == ("a", "b", "c")
    actor.feed(Order("d", durable=True, gated=("fourth",)), NOW)
    assert wrote(actor).writes == ("d",)


@pytest.mark.parametrize("report", ["wrote", "write_failed"])
def test_report_of_a_write_that_was_not_asked_for_is_a_fault_of_ours(report: str) -> None:
    actor = driver(Order("a", durable=True, gated=("send",)))

    with pytest.raises(AssertionError):
        getattr(actor, report)()


@pytest.mark.parametrize(
    "transition",
    [
        Transition(State(Revision(4))),
        Transition(State(Revision(5)), writes=("lost",)),
        Transition(State(Revision(5)), (Gated("early", after=Revision(6)),)),
        Transition(State(Revision(6)), (Gated("claims", after=Revision(6), passes=True),)),
    ],
    ids=["goes_back", "write_without_revision", "gate_ahead", "passing_with_gate"],
)
def test_transition_that_breaks_a_rule_is_a_fault_of_ours(
    transition: Transition[State, str, str],
) -> None:
    actor: Actor = Driver(State(Revision(5)), lambda state, order, now: transition)

    with pytest.raises(AssertionError):
        actor.feed(Order("a"), NOW)


class AnyOrderOfEvents(RuleBasedStateMachine):
    """The driver beside a model that knows, for each action, what it must wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = driver()
        self.count = 0
        self.waiting: list[tuple[str, int]] = []
        self.passing: list[str] = []
        self.durable_words: list[str] = []
        self.staged_words: list[str] = []
        self.durable_revision = 0
        self.staged_revision = 0
        self.in_flight: Write[State, str] | None = None

    @rule(
        durable=st.booleans(),
        gated=st.integers(0, 2),
        free=st.integers(0, 2),
        passing=st.integers(0, 1),
        rises_by=st.integers(1, 3),
    )
    def feed(self, durable: bool, gated: int, free: int, passing: int, rises_by: int) -> None:
        self.count += 1
        word = f"w{self.count}"
        order = Order(
            word,
            durable=durable,
            gated=tuple(f"{word}g{number}" for number in range(gated)),
            free=tuple(f"{word}f{number}" for number in range(free)),
            passing=tuple(f"{word}p{number}" for number in range(passing)),
            rises_by=rises_by,
        )
        self.actor.feed(order, NOW)
        if durable:
            self.staged_revision += rises_by
            self.staged_words.append(word)
        self.waiting += [(action, self.staged_revision) for action in order.gated]
        self.waiting += [(action, 0) for action in order.free]
        self.passing += order.passing

    @precondition(lambda self: self.in_flight is None)
    @rule()
    def begin_write(self) -> None:
        write = self.actor.next_write()
        needed = any(gate > self.durable_revision for _, gate in self.waiting)
        assert (write is not None) == needed
        if write is not None:
            assert write.revision == write.state.revision == self.staged_revision
            assert list(write.writes) == self.staged_words
        self.in_flight = write

    @precondition(lambda self: self.in_flight is not None)
    @rule()
    def begin_second_write(self) -> None:
        assert self.actor.next_write() is None

    @precondition(lambda self: self.in_flight is not None)
    @rule()
    def finish_write(self) -> None:
        assert self.in_flight is not None
        self.actor.wrote()
        self.durable_words += self.in_flight.writes
        self.staged_words = self.staged_words[len(self.in_flight.writes) :]
        self.durable_revision = self.in_flight.revision
        self.in_flight = None

    @precondition(lambda self: self.in_flight is not None)
    @rule()
    def fail_write(self) -> None:
        assert list(self.actor.write_failed()) == [action for action, _ in self.waiting]
        self.waiting.clear()
        self.in_flight = None

    @rule()
    def take_action(self) -> None:
        action = self.actor.next_action()
        if self.passing:
            assert action == self.passing.pop(0)
        elif self.waiting and self.waiting[0][1] <= self.durable_revision:
            assert action == self.waiting.pop(0)[0]
        else:
            assert action is None

    @invariant()
    def views_are_right(self) -> None:
        assert self.actor.committed.revision == self.durable_revision
        assert self.actor.staged.revision == self.staged_revision
        assert self.actor.is_writing == (self.in_flight is not None)
        changes = self.durable_words + self.staged_words
        assert changes == sorted(set(changes), key=lambda word: int(word[1:]))


AnyOrderOfEvents.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None
)
TestAnyOrderOfEvents = AnyOrderOfEvents.TestCase
