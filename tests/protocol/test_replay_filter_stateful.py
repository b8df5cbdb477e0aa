"""The replay filter against a set: nothing that was added is ever missed, also over a file."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from protocol import replay_filter
from protocol.errors import ErrorCode, PrpError
from tests.effort import cases

IDS = st.one_of(st.text(min_size=1, max_size=8), st.integers(0, 10**6).map("command_{}".format))
SURE_IDS = 50
"""With so few ids a false hit is far rarer than a bug (R14)."""


class Filter(RuleBasedStateMachine):
    """The model: the ids that were added."""

    def __init__(self) -> None:
        super().__init__()
        self.content = replay_filter.EMPTY
        self.added: set[str] = set()

    @rule(name=IDS)
    def add(self, name: str) -> None:
        before = int.from_bytes(self.content)
        self.content = replay_filter.with_id(self.content, name)
        self.added.add(name)

        assert before & int.from_bytes(self.content) == before, "nothing is forgotten"

    @precondition(lambda self: self.added)
    @rule(data=st.data())
    def add_again(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.added)))

        assert replay_filter.with_id(self.content, name) == self.content

    @precondition(lambda self: len(self.added) < SURE_IDS)
    @rule(name=IDS)
    def ask(self, name: str) -> None:
        assert replay_filter.may_contain(self.content, name) == (name in self.added)

    @rule()
    def keep_it_in_a_file(self) -> None:
        self.content = replay_filter.from_hex(replay_filter.to_hex(self.content))

    @rule(data=st.data())
    def spoil_the_file(self, data: st.DataObject) -> None:
        text = replay_filter.to_hex(self.content)
        at = data.draw(st.integers(0, len(text) - 1))
        for spoiled in (text[:at], text[:at] + "g" + text[at + 1 :], text + "0"):
            with pytest.raises(PrpError, match="replay filter") as refused:
                replay_filter.from_hex(spoiled)
            assert refused.value.code is ErrorCode.STATE_CORRUPT

    @invariant()
    def every_added_id_is_found(self) -> None:
        assert all(replay_filter.may_contain(self.content, name) for name in self.added)
        bits = int.from_bytes(self.content).bit_count()
        assert bits <= 7 * len(self.added)


TestFilter = Filter.TestCase
TestFilter.settings = settings(max_examples=cases(30), stateful_step_count=20, deadline=None)
