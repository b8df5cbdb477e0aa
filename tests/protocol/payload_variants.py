"""Odd events around the samples: each member of each payload made something else."""

import copy
from collections.abc import Iterator
from typing import Any, Final

from protocol.canonical_json import JsonValue
from tests.protocol.payload_samples import SAMPLES_V1, SAMPLES_V2, TIME

_OTHERS: Final[tuple[JsonValue, ...]] = (
    None,
    True,
    -1,
    0,
    1,
    1.0,
    1.5,
    "",
    "x",
    "a b",
    "/x",
    "x/../y",
    "x" * 161,
    "x" * 241,
    "x" * 4001,
    "x" * 12_001,
    "x" * 65_537,
    "blocked",
    "x\n",
    "x\u2028",
    [],
    {},
    ["x", "x"],
)


def variants(value: JsonValue) -> Iterator[JsonValue]:
    """The value with one thing changed: each member missing, added, doubled or replaced."""
    for other in _OTHERS:
        yield copy.deepcopy(other)
    if isinstance(value, str):
        yield from (value.upper(), value + " ", value + "\n", "é" * len(value))
    elif isinstance(value, dict):
        yield {**value, "novel": 1}
        for name, member in value.items():
            rest = {key: kept for key, kept in value.items() if key != name}
            yield rest
            for variant in variants(member):
                yield {**rest, name: variant}
    elif isinstance(value, list):
        for count in (65, 257, 2001):
            yield [*value, *value[:1] * count]
        yield [*value, *value[:1]]
        for index, item in enumerate(value):
            for variant in variants(item):
                yield [*value[:index], variant, *value[index + 1 :]]


def events() -> Iterator[dict[str, Any]]:
    """Every sample in its event, and every variant of it."""
    for version, samples in ((1, SAMPLES_V1), (2, SAMPLES_V2)):
        for event_type, payload in samples.items():
            for bent in (payload, *variants(payload)):
                yield {
                    "schema": f"paperclip.prp.event.v{version}",
                    "sourceEventId": "event_1",
                    "sourceSeq": 1,
                    "sourceInstanceId": "runner_1",
                    "sourceKind": "runner",
                    "runId": "run_1",
                    "eventType": event_type,
                    "schemaVersion": version,
                    "priority": 1,
                    "emittedAt": TIME,
                    "payload": bent,
                }
