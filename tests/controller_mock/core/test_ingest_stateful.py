"""Any order of events, redeliveries, lies, writes, failures and crashes, against a list."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from protocol.envelope import Ack, EventMessage, Welcome
from protocol.ids import SourceSeq
from tests.controller_mock.core.lab import RUN_ID, Lab
from tests.controller_mock.core.world import event

EVENTS = 40
PRODUCED: list[EventMessage] = [event(seq) for seq in range(1, EVENTS + 1)]
FORGED: list[EventMessage] = [event(seq, "forged") for seq in range(1, EVENTS + 1)]


class Ingest(RuleBasedStateMachine):
    """The model is the list of committed events: always a prefix of what was produced."""

    def __init__(self) -> None:
        super().__init__()
        self.lab = Lab()
        self.seen = 0
        self.is_latched = False

    @property
    def staged(self) -> int:
        """Events that are accepted, committed or not."""
        return self.lab.run.durable.acked_source_seq

    @precondition(lambda self: self.lab.is_connected and self.staged < EVENTS)
    @rule()
    def next_event(self) -> None:
        before = self.staged
        self.lab.feed(self.lab.world.said(self.lab.connection, PRODUCED[before]))

        accepted = self.staged == before + 1
        assert accepted is not self.is_latched
        assert self.lab.is_connected is accepted

    @precondition(lambda self: self.lab.is_connected and self.staged > 0)
    @rule(data=st.data())
    def the_same_event_again(self, data: st.DataObject) -> None:
        seq = data.draw(st.integers(1, self.staged))
        self.lab.feed(self.lab.world.said(self.lab.connection, PRODUCED[seq - 1]))

        assert self.lab.is_connected is not self.is_latched

    @precondition(lambda self: self.lab.is_connected and self.staged > 0)
    @rule(data=st.data())
    def another_event_of_the_same_number(self, data: st.DataObject) -> None:
        seq = data.draw(st.integers(1, self.staged))
        self.lab.feed(self.lab.world.said(self.lab.connection, FORGED[seq - 1]))

        assert not self.lab.is_connected
        assert self.lab.run.durable.integrity_fault is not None
        self.is_latched = True

    @precondition(lambda self: self.lab.is_connected and self.staged < EVENTS - 1)
    @rule(data=st.data())
    def an_event_too_far(self, data: st.DataObject) -> None:
        seq = data.draw(st.integers(self.staged + 2, EVENTS))
        before = self.lab.run.durable
        self.lab.feed(self.lab.world.said(self.lab.connection, PRODUCED[seq - 1]))

        assert not self.lab.is_connected
        assert self.lab.run.durable == before

    @rule()
    def begin_write(self) -> None:
        self.lab.begin_write()

    @precondition(lambda self: self.lab.world.driver.is_writing)
    @rule()
    def end_write(self) -> None:
        self.lab.end_write()

    @precondition(lambda self: self.lab.world.driver.is_writing)
    @rule()
    def fail_write(self) -> None:
        self.lab.fail_write()
        self.is_latched = self.lab.run.durable.integrity_fault is not None

    @rule()
    def crash(self) -> None:
        self.lab.load()
        self.is_latched = self.lab.run.durable.integrity_fault is not None

    @precondition(lambda self: self.lab.is_connected)
    @rule()
    def lose(self) -> None:
        self.lab.lose()

    @precondition(lambda self: not self.lab.is_connected)
    @rule()
    def reconnect(self) -> None:
        welcome = self.lab.reconnect()

        assert welcome.acked_source_seq == len(self.committed())

    def committed(self) -> list[bytes]:
        """The digests that the store holds, in order."""
        rows = self.lab.store.events(RUN_ID, 0, 2 * EVENTS)
        assert [row.source_seq for row in rows] == list(range(1, len(rows) + 1))
        return [bytes.fromhex(row.digest) for row in rows]

    @invariant()
    def committed_events_are_a_prefix_of_the_produced(self) -> None:
        committed = self.committed()
        assert committed == [message.digest for message in PRODUCED[: len(committed)]]

    @invariant()
    def no_cursor_passes_what_is_committed(self) -> None:
        committed = len(self.committed())
        for message in self.lab.messages[self.seen :]:
            if isinstance(message, Ack | Welcome):
                assert message.acked_source_seq is not None
                assert SourceSeq(0) <= message.acked_source_seq <= committed
        self.seen = len(self.lab.messages)


TestIngest = Ingest.TestCase
TestIngest.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
