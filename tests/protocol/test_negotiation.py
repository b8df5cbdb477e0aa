"""The newest common version wins."""

import pytest

from protocol.negotiation import negotiate


@pytest.mark.parametrize(
    ("runner", "controller", "selected"),
    [
        ((1, 2), (1, 2), 2),
        ((1, 2), (1, 1), 1),
        ((2, 2), (1, 1), None),
        ((1, 1), (2, 2), None),
        ((2, 1), (1, 2), None),
        ((0, 0), (1, 2), None),
        ((-5, 99), (1, 2), 2),
    ],
)
def test_newest_version_in_both_ranges_is_selected(
    runner: tuple[int, int], controller: tuple[int, int], selected: int | None
) -> None:
    assert negotiate(*runner, *controller) == selected
