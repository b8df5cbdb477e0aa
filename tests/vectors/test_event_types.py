"""The closed lists of event types."""

from pathlib import Path

from protocol import event_types
from protocol.activity_payloads import ACTIVITY
from protocol.event_payloads import PAYLOADS_V1, PAYLOADS_V2
from tests.vectors.conftest import load


def test_event_types_are_those_of_upstream(prp_vectors: Path) -> None:
    lists = load(prp_vectors, "event_types")

    assert sorted(lists["v1"]) == sorted(event_types.V1)
    assert sorted(lists["v2"]) == sorted(event_types.V2)


def test_every_table_of_a_payload_belongs_to_an_event_type() -> None:
    assert ACTIVITY.keys() < PAYLOADS_V1.keys() < event_types.V1
    assert PAYLOADS_V2.keys() < event_types.V2
