"""Version selection against upstream's."""

from typing import Any

from protocol.negotiation import negotiate


def test_selected_version_equals_upstream(negotiation_case: dict[str, Any]) -> None:
    runner, controller = negotiation_case["runner"], negotiation_case["controller"]

    selected = negotiate(runner["min"], runner["max"], controller["min"], controller["max"])

    assert selected == negotiation_case["selected"]
