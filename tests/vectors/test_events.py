"""Verdicts on event objects against upstream's validator."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol.errors import ErrorCode, PrpError
from protocol.events import event_misfit, read_event, validate_event
from tests.vectors.conftest import load


def test_event_gets_the_verdict_of_upstream(events_case: dict[str, Any]) -> None:
    event = events_case["event"]
    body = msgspec.json.encode(event)

    assert (event_misfit(event) is None) == events_case["ok"]
    if events_case["ok"]:
        read = read_event(event, body)
        assert msgspec.json.decode(msgspec.json.encode(read)).items() <= event.items()
        validate_event(read, event["payload"])
    else:
        with pytest.raises(PrpError) as refusal:
            read_event(event, body)
        assert refusal.value.code is ErrorCode.EVENT_INVALID


def test_event_is_refused_at_the_pointer_of_upstream_but_for_a_few(prp_vectors: Path) -> None:
    refused = [case for case in load(prp_vectors, "events")["cases"] if not case["ok"]]
    others = {
        case["name"]
        for case in refused
        if (event_misfit(case["event"]) or "/") != case["firstIssue"]["path"]
    }

    assert others == {
        # Upstream looks into the payload before the members around it.
        "missing eventType",
        # Upstream first misses the members that a result would have.
        "semantic phase result on input type",
    }
