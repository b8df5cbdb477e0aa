"""Our verdicts on events are those of the upstream validator, over every table of payloads."""

import subprocess

import msgspec
import pytest

from protocol.events import event_misfit
from tests.interop.peers import Missing, upstream_controller
from tests.protocol.payload_variants import events

pytestmark = pytest.mark.interop

JUDGE = """
import { readFileSync } from "node:fs";
const { validatePrpEvent } = await import(process.argv[1]);
const events = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(events.map((event) => validatePrpEvent(event).ok)));
"""


def test_bent_event_gets_the_verdict_of_upstream() -> None:
    controller = upstream_controller()
    if isinstance(controller, Missing):
        pytest.skip(controller.reason)
    module = controller.package / "protocol" / "replay-contract.js"
    bent = list(events())

    judged = subprocess.run(
        ["node", "--input-type=module", "-e", JUDGE, module.as_uri()],
        input=msgspec.json.encode(bent),
        capture_output=True,
        check=True,
        timeout=120,
    )

    verdicts = msgspec.json.decode(judged.stdout, type=list[bool])
    others = [
        event
        for event, verdict in zip(bent, verdicts, strict=True)
        if (event_misfit(event) is None) != verdict
    ]
    assert others == []
    assert 0.1 < sum(verdicts) / len(verdicts) < 0.9
