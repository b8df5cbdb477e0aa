"""Any order of output, acknowledgements, losses, failed writes and restarts, against a list."""

from typing import Final

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from protocol.envelope import Ack, Deliver
from protocol.errors import ErrorCode
from protocol.ids import SourceSeq
from runnerd.core.actions import Action, CloseConnection, SendEvent
from runnerd.core.inputs import (
    ConnectionLost,
    HarnessOutput,
    OrphanSettled,
    TimePassed,
    WriteFailed,
)
from runnerd.core.outbox import outbox_bytes
from tests.effort import cases
from tests.runnerd.core.world import IDENTITY, SETTINGS, World, restarted

SMALL: Final = msgspec.structs.replace(SETTINGS, max_outbox_bytes=90_000, p0_reserve_bytes=30_000)
SOFT: Final = SMALL.max_outbox_bytes - SMALL.p0_reserve_bytes
TEXTS: Final = st.lists(
    st.one_of(st.text(max_size=12), st.integers(0, 9_000).map(lambda size: "x" * size)),
    min_size=1,
    max_size=4,
)


class Outbox(RuleBasedStateMachine):
    """The model: what was sent under each number, what is acknowledged, and the lines so far."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(settings=SMALL)
        self.world.connect()
        self.world.prepare()
        self.world.start_turn()
        self.sent: dict[int, bytes] = {}
        self.acked = 0
        self.lines: list[str] = []
        self.displayed: dict[int, str] = {}
        self.sees(self.world.left)

    @property
    def is_connected(self) -> bool:
        return self.world.runner.live.connection is not None

    @property
    def produced(self) -> int:
        return self.world.durable.next_source_seq - 1

    def sees(self, actions: list[Action]) -> None:
        """Note what left: the bytes of a number are the same each time."""
        for action in actions:
            if isinstance(action, SendEvent):
                assert self.sent.setdefault(action.source_seq, action.body) == action.body

    @precondition(lambda self: self.world.durable.turn is not None)
    @rule(texts=TEXTS)
    def print_lines(self, texts: list[str]) -> None:
        before = self.world.durable.lines_accepted
        self.sees(self.world.feed(HarnessOutput(self.world.durable.generation, tuple(texts))))
        self.lines += texts[: self.world.durable.lines_accepted - before]

    @precondition(lambda self: self.is_connected)
    @rule()
    def make_facts(self) -> None:
        for type_ in ("session.close", "session.open"):
            self.sees(self.world.control(Deliver(self.world.command(type_))))

    @precondition(lambda self: self.is_connected)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        cursor = data.draw(st.integers(self.acked, max(self.sent, default=0)))
        self.sees(self.world.control(Ack(SourceSeq(cursor))))
        self.acked = cursor

    @precondition(lambda self: self.is_connected)
    @rule(data=st.data())
    def acknowledge_what_cannot_be(self, data: st.DataObject) -> None:
        beyond = st.integers(self.produced + 1, self.produced + 9)
        choices = [beyond] if self.acked == 0 else [beyond, st.integers(0, self.acked - 1)]
        before = self.world.durable

        left = self.world.control(Ack(SourceSeq(data.draw(st.one_of(choices)))))

        [close] = [action for action in left if isinstance(action, CloseConnection)]
        assert close.code in (ErrorCode.ACK_REGRESSED, ErrorCode.ACK_BEYOND_PRODUCED)
        assert self.world.durable == before
        self.lose()

    @precondition(lambda self: self.is_connected)
    @rule()
    def lose(self) -> None:
        connection = self.world.binding.connection_id
        self.sees(self.world.feed(ConnectionLost(connection, ErrorCode.CONNECTION_LOST)))

    @precondition(lambda self: not self.is_connected and not self.world.exits())
    @rule(data=st.data())
    def reconnect(self, data: st.DataObject) -> None:
        self.world.later(1, TimePassed())
        cursor = data.draw(st.integers(self.acked, max(self.acked, *self.sent, 0)))
        has_lease = self.world.runner.live.lease is not None

        left = self.world.connect(bootstrap=not has_lease, acked=cursor)

        self.sees(left)
        self.acked = cursor
        again = [action.source_seq for action in left if isinstance(action, SendEvent)]
        assert again == list(range(cursor + 1, self.produced + 1))

    @rule(errno=st.sampled_from((5, 28)))
    def fail_a_write(self, errno: int) -> None:
        """The next write fails; nothing that it was to store may leave."""
        self.world.driver.feed(
            HarnessOutput(self.world.durable.generation, ("lost?",)), self.world.now
        )
        accepted = self.world.durable.lines_accepted > len(self.lines)
        self.lines += ["lost?"] if accepted else []
        if self.world.driver.next_write() is not None:
            self.world.driver.write_failed()
            self.sees(self.world.feed(WriteFailed(errno=errno)))
            if self.is_connected:
                self.lose()
            self.sees(self.world.later(600, TimePassed()))
        else:
            self.sees(self.world.settle())

    @rule()
    def restart(self) -> None:
        self.world.settle()
        had_turn = self.world.durable.turn is not None
        gone = OrphanSettled(self.world.durable.generation, "gone") if had_turn else None
        stored = self.world.stored
        assert stored is not None
        lines = msgspec.json.decode(stored)["linesAccepted"]
        # A line that nobody waited for was not stored, and then it was not accepted.
        self.lines = self.lines[:lines]
        self.world = restarted(self.world, gone)
        self.acked = self.world.durable.acked_source_seq

    @invariant()
    def the_outbox_is_what_is_produced_and_not_acknowledged(self) -> None:
        durable = self.world.durable
        assert durable.acked_source_seq == self.acked
        numbers = [entry.source_seq for entry in durable.outbox]
        assert numbers == list(range(self.acked + 1, self.produced + 1))
        for entry in durable.outbox:
            assert self.sent.get(entry.source_seq, bytes(entry.body)) == bytes(entry.body)

    @invariant()
    def the_bytes_are_counted_and_bounded(self) -> None:
        durable = self.world.durable
        total = outbox_bytes(durable.outbox, IDENTITY)
        assert self.world.runner.live.outbox_bytes == total <= SMALL.max_outbox_bytes
        assert durable.peak_outbox_bytes >= total
        displayed = [entry for entry in durable.outbox if entry.priority > 0]
        assert outbox_bytes(displayed, IDENTITY) <= SOFT

    @invariant()
    def no_character_is_lost(self) -> None:
        bodies = {**self.sent}
        bodies.update({e.source_seq: bytes(e.body) for e in self.world.durable.outbox})
        text = ""
        for _, body in sorted(bodies.items()):
            event = msgspec.json.decode(body)
            if event["eventType"] == "item.delta":
                text += event["payload"]["text"]
        assert text == "".join(f"{line}\n" for line in self.lines)


TestOutbox = Outbox.TestCase
TestOutbox.settings = settings(max_examples=cases(40), stateful_step_count=30, deadline=None)
