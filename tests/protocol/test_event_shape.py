"""Both ways to judge an event's shape agree, and the quick one is what nearly all events meet."""

from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.event_shape import EVENT_SCHEMA_V2, shape_misfit, surely_fits
from tests.protocol.samples import EVENT, NOW_TEXT

V1: Final[dict[str, Any]] = EVENT | {"observedAt": NOW_TEXT, "debug": {"a": []}}
V2: Final[dict[str, Any]] = V1 | {"schema": EVENT_SCHEMA_V2, "schemaVersion": 2}
COMMON: Final = {"channel": "final", "providerPhase": "", "providerMethod": "m", "more": [1]}

ODD: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, 1, 2, 3, -1, 1.0, 2.0, 1.5, 2**53 - 1, 2**53),
    *("", "x", "x" * 160, "x" * 161, "é" * 160, "😀" * 160, "😀" * 161, "x" * 240, "x" * 241),
    *("runner", "control_plane", "item.delta", "runner.backpressure", "session.goal.cleared"),
    *("paperclip.prp.event.v1", EVENT_SCHEMA_V2, "2026-01-02T03:04:05Z", NOW_TEXT + "\n"),
    *("٢026-01-02T03:04:05Z", "2026-01-02T03:04:05.6789Z", [], {}, [{}], {"channel": "loud"}),
    *({"channel": "final"}, {"channel": None}, {"providerPhase": 1}, {"providerMethod": []}),
)


def fits_by_rule(value: dict[str, Any], is_v2: bool) -> bool:
    return shape_misfit(value, is_v2) is None


def fits_by_decoder(value: dict[str, Any], is_v2: bool) -> bool:
    return surely_fits(msgspec.json.encode(value), is_v2)


def has_odd_number(value: dict[str, Any]) -> bool:
    return any(isinstance(member, float) for member in value.values())


@pytest.mark.parametrize("event", [V1, V2])
@pytest.mark.parametrize("is_v2", [False, True])
def test_decoder_and_rules_agree_on_every_member_with_every_odd_value(
    event: dict[str, Any], is_v2: bool
) -> None:
    changed = [event | {name: odd} for name in event for odd in ODD]
    lacking = [{key: event[key] for key in event if key != name} for name in event]

    for value in (*changed, *lacking):
        by_rule = fits_by_rule(value, is_v2)
        # The rule takes 1.0 for 1, on which the decoder may hold back.
        if not (by_rule and has_odd_number(value)):
            assert fits_by_decoder(value, is_v2) == by_rule, value


@pytest.mark.parametrize(
    ("event", "is_v2"), [(V1, False), (V2, True), (V1 | {"payload": COMMON}, False)]
)
def test_decoder_takes_a_plain_event_of_either_version(event: dict[str, Any], is_v2: bool) -> None:
    assert fits_by_rule(event, is_v2)
    assert fits_by_decoder(event, is_v2)
    assert not fits_by_decoder(event, not is_v2)


@given(
    st.dictionaries(
        st.sampled_from(sorted(V1)) | st.text(max_size=3),
        st.sampled_from(ODD) | st.text(max_size=5) | st.integers(-(2**60), 2**60) | st.floats(),
        max_size=4,
    ),
    st.booleans(),
)
def test_decoder_never_takes_what_the_rules_refuse(changes: dict[str, Any], is_v2: bool) -> None:
    body = msgspec.json.encode((V2 if is_v2 else V1) | changes)

    if surely_fits(body, is_v2):
        assert fits_by_rule(msgspec.json.decode(body), is_v2)


def test_first_misfit_is_a_member_before_the_common_part_of_its_payload() -> None:
    value = V1 | {"payload": {"channel": "loud"}, "turnId": ""}

    assert shape_misfit(value, False) == "/turnId"
    assert shape_misfit(V1 | {"payload": {"channel": "loud"}}, False) == "/payload/channel"
