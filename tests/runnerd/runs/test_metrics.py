"""What a run's numbers do with members that are missing or that no honest program writes."""

import pytest
from msgspec import UNSET

from protocol.canonical_json import JsonValue
from runnerd.runs.metrics import ContextMetrics, run_metrics


@pytest.mark.parametrize("status", [["available"], {"a": 1}, None, 1])
def test_cache_status_is_unknown_when_no_turn_names_one(status: JsonValue) -> None:
    metrics = run_metrics(
        [{"type": "turn_end", "promptCacheStatus": status}], duration_ms=1, output_chars=0
    )

    assert isinstance(metrics.context, ContextMetrics)
    assert metrics.context.prompt_cache_status == "unknown"


@pytest.mark.parametrize("kind", [["turn_end"], {"a": 1}, None])
def test_event_counts_as_nothing_when_its_type_is_no_text(kind: JsonValue) -> None:
    events: list[dict[str, JsonValue]] = [{"type": kind}, {"type": "turn_end"}]

    assert run_metrics(events, duration_ms=1, output_chars=0).turns == 1


REPORTED: tuple[tuple[list[dict[str, JsonValue]], object, object], ...] = (
    ([{}], UNSET, UNSET),
    ([{"tokens": 5}], 5, UNSET),
    ([{"costUsd": 0.5}], UNSET, 0.5),
    ([{"tokens": True, "costUsd": "1"}], UNSET, UNSET),
    ([{"tokens": 0, "costUsd": 0}, {}], 0, 0),
)


@pytest.mark.parametrize(("turns", "tokens", "cost_usd"), REPORTED)
def test_number_that_no_turn_reported_is_absent_and_not_zero(
    turns: list[dict[str, JsonValue]], tokens: object, cost_usd: object
) -> None:
    metrics = run_metrics(
        [{"type": "turn_end", **turn} for turn in turns], duration_ms=0, output_chars=0
    )

    assert (metrics.tokens, metrics.cost_usd) == (tokens, cost_usd)
