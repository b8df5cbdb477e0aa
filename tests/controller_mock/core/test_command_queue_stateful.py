"""Any order of queueing, results, lies, losses and crashes, against a list of commands."""

from typing import Final

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from controller_mock.core.actions import Reply
from protocol.commands import TERMINAL_COMMAND_TYPES, CommandStatus, WireCommand, decode_command
from protocol.envelope import CommandResultAck, Deliver, ResultMessage
from tests.controller_mock.core.lab import RUN_ID, Lab
from tests.controller_mock.core.world import result

TYPES: Final = ("turn.start", "turn.stop", "runner.suspend")
STATUSES: Final[tuple[CommandStatus, ...]] = ("completed", "failed", "rejected", "indeterminate")


class Queue(RuleBasedStateMachine):
    """The model: types in order of queueing, and the result of each settled one.

    Every input is committed before the next, so the store equals the model between rules;
    a crash may then come at any time and changes nothing but the connection.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lab = Lab()
        self.queued: list[str] = []
        self.results: list[ResultMessage] = []
        self.delivered: WireCommand | None = None
        """What this connection got last."""
        self.is_over = False
        """A terminal command was handed to this connection."""
        self.counts: dict[int, int] = {}
        self.seen = len(self.lab.messages)

    @property
    def out(self) -> int | None:
        """Number of the lowest open command."""
        return len(self.results) + 1 if len(self.results) < len(self.queued) else None

    @rule(type_=st.sampled_from(TYPES))
    def queue(self, type_: str) -> None:
        request = self.lab.world.requested(type_)
        left = self.lab.feed(request)
        self.lab.settle()
        self.queued.append(type_)

        replies = [found for found in (*left, *self.lab.world.sent) if isinstance(found, Reply)]
        assert replies[-1].controller_seq == len(self.queued)
        self._expect_delivery()

    @precondition(lambda self: self.lab.is_connected and self.delivered is not None)
    @rule(status=st.sampled_from(STATUSES))
    def settle(self, status: CommandStatus) -> None:
        command = self.delivered
        assert command is not None
        if command.controller_seq != self.out:
            return
        message = result(command, status)
        self.lab.feed(self.lab.world.said(self.lab.connection, message))
        self.lab.settle()
        self.results.append(message)

        assert self.lab.is_connected
        self._expect_result_ack(command.type, command.controller_seq)
        self._expect_delivery()

    @precondition(lambda self: self.lab.is_connected and self.results)
    @rule(data=st.data())
    def the_same_result_again(self, data: st.DataObject) -> None:
        message = data.draw(st.sampled_from(self.results))
        self.lab.feed(self.lab.world.said(self.lab.connection, message))
        self.lab.settle()

        assert self.lab.is_connected
        number = message.result.controller_seq
        self._expect_result_ack(self.queued[number - 1], number)
        assert self._new() == []

    @precondition(lambda self: self.lab.is_connected and self.results)
    @rule(data=st.data())
    def another_result(self, data: st.DataObject) -> None:
        stored = data.draw(st.sampled_from(self.results)).result
        other = STATUSES[(STATUSES.index(stored.status) + 1) % len(STATUSES)]
        lie = result(self._command(stored.controller_seq), other)
        self.lab.feed(self.lab.world.said(self.lab.connection, lie))

        assert not self.lab.is_connected

    @precondition(lambda self: self.lab.is_connected and len(self.queued) > len(self.results) + 1)
    @rule()
    def a_result_too_early(self) -> None:
        early = self._command(len(self.queued))
        self.lab.feed(self.lab.world.said(self.lab.connection, result(early)))

        assert not self.lab.is_connected

    @precondition(lambda self: self.lab.is_connected)
    @rule()
    def lose(self) -> None:
        self.lab.lose()

    @rule()
    def crash(self) -> None:
        self.lab.load()

    @precondition(lambda self: not self.lab.is_connected)
    @rule()
    def reconnect(self) -> None:
        welcome = self.lab.reconnect()
        self.seen = len(self.lab.messages)
        self.delivered, self.is_over = None, False

        pending = [command.controller_seq for command in welcome.pending_commands]
        assert pending == ([] if self.out is None else [self.out])
        for command in welcome.pending_commands:
            self._handed_out(command)

    @invariant()
    def the_store_holds_the_model(self) -> None:
        rows = self.lab.store.commands(RUN_ID)
        assert [row.type for row in rows] == self.queued
        settled = [row.result for row in rows if isinstance(row.result, msgspec.Raw)]
        assert [bytes(body) for body in settled] == [message.body for message in self.results]
        assert {row.controller_seq: row.delivery_count for row in rows} == {
            number: self.counts.get(number, 0) for number in range(1, len(rows) + 1)
        }

    def _command(self, number: int) -> WireCommand:
        row = self.lab.store.command(RUN_ID, number)
        assert row is not None
        return decode_command(bytes(row.body))

    def _new(self) -> list[object]:
        found: list[object] = list(self.lab.messages[self.seen :])
        self.seen = len(self.lab.messages)
        return found

    def _expect_delivery(self) -> None:
        """The lowest open command was handed out, unless nothing may be."""
        new = self._new()
        if not self.lab.is_connected or self.is_over or self.out is None:
            assert new == []
            return
        (delivery,) = new
        assert isinstance(delivery, Deliver)
        assert delivery.command.controller_seq == self.out
        self._handed_out(delivery.command)
        assert delivery.delivery == self.counts[self.out]

    def _handed_out(self, command: WireCommand) -> None:
        self.delivered = command
        number = command.controller_seq
        self.counts[number] = self.counts.get(number, 0) + 1
        self.is_over = command.type in TERMINAL_COMMAND_TYPES

    def _expect_result_ack(self, type_: str, number: int) -> None:
        if type_ in TERMINAL_COMMAND_TYPES:
            ack = self.lab.messages[self.seen]
            self.seen += 1
            assert isinstance(ack, CommandResultAck)
            assert (ack.controller_seq, ack.status) == (
                number,
                self.results[number - 1].result.status,
            )


TestQueue = Queue.TestCase
TestQueue.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
