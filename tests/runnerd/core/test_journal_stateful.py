"""Any order of new, repeated, altered, forgotten and misplaced commands, against a dictionary."""

from typing import Final

import msgspec
import pytest
from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from protocol.commands import WireCommand
from protocol.envelope import Deliver
from protocol.errors import ErrorCode
from protocol.ids import CommandId, ControllerSeq
from runnerd.core import command_journal
from runnerd.core.actions import Action, CloseConnection, SendResult, StartHarness
from runnerd.core.inputs import ConnectionLost, HarnessSpawned, OrphanSettled, TimePassed
from runnerd.core.state import Durable
from tests.effort import cases
from tests.runnerd.core.world import BIRTH, PREPARE, World, members, restarted

KEPT: Final = 5
"""Records that the journal keeps here, so that it forgets early."""
TYPES: Final = (
    *("session.snapshot", "run.prepare", "session.open", "turn.start", "turn.start"),
    *("turn.interrupt", "turn.steer", "session.close"),
)


class Journal(RuleBasedStateMachine):
    """The model: every command that was taken, in order, and the first answer to each."""

    def __init__(self) -> None:
        super().__init__()
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(command_journal, "COMMAND_RECORDS_MAX", KEPT)
        self.world = World()
        self.world.connect()
        self.taken: list[WireCommand] = []
        self.answers: dict[int, bytes] = {}
        self.starts = 0
        self.admitted = 0

    def teardown(self) -> None:
        self._patch.undo()

    @property
    def durable(self) -> Durable:
        return self.world.durable

    @property
    def forgotten(self) -> int:
        return self.durable.compacted_through_controller_seq

    def deliver(self, command: WireCommand) -> list[Action]:
        left = self.world.control(Deliver(command))
        self.starts += sum(isinstance(action, StartHarness) for action in left)
        for action in left:
            if isinstance(action, SendResult) and self.is_taken(action.result.controller_seq):
                body = msgspec.json.encode(action.result)
                assert self.answers.setdefault(action.result.controller_seq, body) == body
        return left

    def is_taken(self, seq: int) -> bool:
        return self.forgotten < seq <= len(self.taken)

    def closes(self, command: WireCommand, code: ErrorCode) -> None:
        before = self.durable
        left = self.deliver(command)
        assert [a.code for a in left if isinstance(a, CloseConnection)] == [code]
        assert self.durable == before
        connection = self.world.binding.connection_id
        self.world.feed(ConnectionLost(connection, ErrorCode.CONNECTION_LOST))
        self.world.later(6_000, TimePassed())
        # Renewals are not what is looked at here.
        self.world.connect(bootstrap=self.world.runner.live.lease is None)

    def refused(self, command: WireCommand) -> ErrorCode:
        [answer] = [a for a in self.deliver(command) if isinstance(a, SendResult)]
        assert answer.result.status == "rejected"
        assert members(answer.result)["logicalEffectCount"] == 0
        return ErrorCode(str(members(answer.result)["code"]))

    def an_old_one(self, data: st.DataObject) -> WireCommand:
        """Return a forgotten command whose id is not known again by now."""
        old = self.taken[data.draw(st.integers(0, self.forgotten - 1))]
        assume(old.command_id not in {record.command_id for record in self.durable.commands})
        return old

    @property
    def is_blocked(self) -> bool:
        """True while the oldest record has no answer and there is no room behind it."""
        records = self.durable.commands
        return len(records) >= KEPT and records[0].result is None

    @precondition(lambda self: self.is_blocked)
    @rule()
    def take_what_has_no_room(self) -> None:
        command = self.world.command("session.snapshot")
        self.world.commands -= 1
        before = self.durable

        assert self.refused(command) is ErrorCode.COMMAND_QUEUE_FULL
        assert self.durable == before

    @precondition(lambda self: not self.is_blocked)
    @rule(type_=st.sampled_from(TYPES))
    def take(self, type_: str) -> None:
        command = self.world.command(type_, PREPARE if type_ == "run.prepare" else None)
        self.taken.append(command)
        before = self.durable.turns_started

        self.deliver(command)

        assert self.durable.last_controller_command_seq == len(self.taken)
        self.admitted += self.durable.turns_started - before

    @precondition(lambda self: self.durable.turn is not None and self.durable.turn.birth is None)
    @rule()
    def have_it_started(self) -> None:
        turn = self.durable.turn
        assert turn is not None
        for action in self.world.feed(HarnessSpawned(turn.generation, BIRTH)):
            if isinstance(action, SendResult):
                seq = action.result.controller_seq
                assert seq not in self.answers
                self.answers[seq] = msgspec.json.encode(action.result)

    @precondition(lambda self: self.durable.turn is not None and self.durable.turn.birth)
    @rule()
    def let_it_be_lost(self) -> None:
        """The program fails in a way that lets another turn follow only after a restart."""
        self.world.exit(None, 9)

    @precondition(lambda self: len(self.taken) > self.forgotten)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        seq = data.draw(st.integers(self.forgotten + 1, len(self.taken)))
        before, starts = self.durable, self.starts

        left = self.deliver(self.taken[seq - 1])

        answered = [msgspec.json.encode(a.result) for a in left if isinstance(a, SendResult)]
        assert answered == ([self.answers[seq]] if seq in self.answers else [])
        assert (self.durable, self.starts) == (before, starts)

    @precondition(lambda self: len(self.taken) > self.forgotten)
    @rule(data=st.data())
    def alter(self, data: st.DataObject) -> None:
        known = self.taken[data.draw(st.integers(self.forgotten, len(self.taken) - 1))]
        changes: list[dict[str, object]] = [
            {"payload": msgspec.Raw(b'{"x":1}')},
            {"type": "runner.drain"},
        ]
        change = data.draw(st.sampled_from(changes))

        self.closes(msgspec.structs.replace(known, **change), ErrorCode.COMMAND_CONFLICT)

    @rule(ahead=st.integers(1, 5))
    def leave_a_gap(self, ahead: int) -> None:
        seq = ControllerSeq(len(self.taken) + 1 + ahead)
        stray = self.world.command("session.snapshot", controller_seq=seq)
        self.world.commands -= 1
        strange = msgspec.structs.replace(stray, command_id=CommandId("stray"))

        self.closes(strange, ErrorCode.COMMAND_GAP)

    @precondition(lambda self: self.forgotten > 0)
    @rule(data=st.data())
    def repeat_what_is_forgotten(self, data: st.DataObject) -> None:
        old = self.an_old_one(data)
        before = self.durable

        assert self.refused(old) is ErrorCode.COMMAND_HISTORY_COMPACTED
        assert self.durable == before

    @precondition(lambda self: self.forgotten > 0 and not self.is_blocked)
    @rule(data=st.data())
    def reuse_a_forgotten_id(self, data: st.DataObject) -> None:
        old = self.an_old_one(data)
        reused = self.world.command("session.snapshot", command_id=old.command_id)
        self.taken.append(reused)

        assert self.refused(reused) is ErrorCode.COMMAND_ID_POSSIBLY_REUSED
        assert self.durable.last_controller_command_seq == len(self.taken)

    @rule()
    def restart(self) -> None:
        had_turn = self.durable.turn is not None
        pending = [record.controller_seq for record in self.durable.commands if not record.result]
        gone = OrphanSettled(self.durable.generation, "gone") if had_turn else None
        stored = self.world.stored
        assert stored is not None
        known = msgspec.json.decode(stored)["lastControllerCommandSeq"]
        assert known == len(self.taken), "what was taken was stored before anything left"
        self.world = restarted(self.world, gone)
        self.world.connect()
        for record in self.durable.commands:
            if record.controller_seq in pending:
                assert record.result is not None
                assert record.result.status == "indeterminate"
                self.answers[record.controller_seq] = msgspec.json.encode(record.result)

    @invariant()
    def the_journal_holds_the_model(self) -> None:
        records = self.durable.commands
        numbers = [record.controller_seq for record in records]
        assert numbers == list(range(self.forgotten + 1, len(self.taken) + 1))
        assert len(records) <= KEPT or records[0].result is None
        for record in records:
            given = self.taken[record.controller_seq - 1]
            assert (record.command_id, record.command_type) == (given.command_id, given.type)
            if record.result is not None and record.controller_seq in self.answers:
                body = msgspec.json.encode(record.result)
                assert body == self.answers[record.controller_seq]

    @invariant()
    def no_turn_is_started_twice(self) -> None:
        assert self.starts <= self.admitted


TestJournal = Journal.TestCase
TestJournal.settings = settings(max_examples=cases(40), stateful_step_count=30, deadline=None)
