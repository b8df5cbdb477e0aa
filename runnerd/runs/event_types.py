"""Which trace events a run's facts may hold: one list.

It decides which names are known, so that a log with a fact nobody here understands is not
acted on. It refuses to know their shapes: that is `trace_rules`.
"""

from typing import Final

KNOWN_EVENTS: Final = frozenset(
    {
        "approval_required",
        "approval_resolved",
        "artifact_created",
        "budget_exceeded",
        "capability_resolved",
        "context_budget",
        "context_compacted",
        "context_prefix",
        "compaction",
        "effect_receipt",
        "input_claimed",
        "input_completed",
        "input_discarded",
        "input_receipt",
        "policy_denied",
        "retry",
        "step_end",
        "step_output",
        "step_start",
        "text",
        "text_delta",
        "tool_attempt",
        "tool_call",
        "tool_lifecycle",
        "tool_result",
        "turn_end",
        "turn_start",
        "workspace_lease",
    }
)
"""Source: durable-runs 2 to 6, and the cases of `vectors/runs`."""
