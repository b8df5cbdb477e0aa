"""The list of faults.md 5.10: every item is shown by a stack, or somebody else is named."""

import pytest

from tests.simulator.registry import sometimes_of
from tests.simulator.sometimes import ITEMS, Item, table

LIST_LENGTH = 22


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.words)
def test_item_is_a_fact_that_a_batch_must_see_or_names_who_shows_it(item: Item) -> None:
    missing = [
        fact
        for stack, facts in item.facts.items()
        for fact in facts
        if fact not in sometimes_of(stack)
    ]

    assert missing == []
    assert bool(item.facts) != bool(item.why_not)


def test_list_is_whole() -> None:
    assert len({item.words for item in ITEMS}) == LIST_LENGTH
    assert len(list(table())) == LIST_LENGTH
