"""Groups `budget` and `metrics`: limits in the order of the steps, numbers from the trace."""

from collections.abc import Callable
from typing import Any

import msgspec

from runnerd.runs import budget as budgets
from runnerd.runs.budget import Allocation, Budget, resolve_limits
from runnerd.runs.metrics import run_metrics
from tests.vectors.runs.verdicts import Json, attempted, passes


class Account:
    """Plays the steps of a case on one budget; remembers the result of each."""

    def __init__(self, limits: dict[str, Json]) -> None:
        self.budget = Budget(limits=resolve_limits(limits, {}))
        self.violations: list[budgets.Violation] = []

    def perform(self, step: dict[str, Any]) -> Json:
        action: Callable[[dict[str, Any]], Json] = getattr(self, step["op"])
        before = self.budget.violation
        result = action(step)
        if before is None and self.budget.violation is not None:
            self.violations.append(self.budget.violation)
        return result

    def _checked(self) -> dict[str, Json]:
        budgets.check(self.budget)
        return {}

    def _stands(self) -> bool:
        return self.budget.violation is not None

    def beforeToolCall(self, step: dict[str, Any]) -> Json:
        self.budget = budgets.count_tool_call(self.budget)
        return {"blocked": self._stands()}

    def beforeModelRequest(self, step: dict[str, Any]) -> Json:
        self.budget = budgets.take_request_slot(self.budget)
        return attempted(self._checked)

    def canRequestModel(self, step: dict[str, Any]) -> Json:
        return {"can": budgets.may_request_model(self.budget)}

    def throwIfExceeded(self, step: dict[str, Any]) -> Json:
        return attempted(self._checked)

    def turnEnd(self, step: dict[str, Any]) -> Json:
        self.budget = budgets.end_turn(
            self.budget,
            tokens=step.get("tokens"),
            cost_usd=step.get("costUsd"),
            wants_another_turn=step.get("requestsAnotherTurn", False),
        )
        return {"abort": self._stands()}

    def stepStart(self, step: dict[str, Any]) -> Json:
        self.budget = budgets.count_step(self.budget)
        return {"abort": self._stands()}

    def restore(self, step: dict[str, Any]) -> Json:
        self.budget = budgets.replay(self.budget, step["event"])
        return {"ok": True}

    def reserveChild(self, step: dict[str, Any]) -> Json:
        def reserve() -> dict[str, Json]:
            share = msgspec.convert(step["allocation"], Allocation)
            self.budget = budgets.reserve_child(
                self.budget, "child", share, elapsed_ms=step["elapsedMs"]
            )
            return {}

        return attempted(reserve)

    def releaseChild(self, step: dict[str, Any]) -> Json:
        self.budget = budgets.release_child(self.budget, "child")
        return {"ok": True}


def test_budget_does_what_the_case_says(budget_row: dict[str, Any]) -> None:
    given = budget_row["input"]
    if "config" in given:
        limits = resolve_limits(given["config"], given["overrides"])
        shown = msgspec.to_builtins(limits)
        passes(budget_row, {"limits": {k: v for k, v in shown.items() if v is not None}})
        return
    account = Account(given["limits"])

    results = [account.perform(step) for step in given["steps"]]

    violation = account.budget.violation
    passes(
        budget_row,
        {
            "results": results,
            "violation": None if violation is None else msgspec.to_builtins(violation),
            "events": [
                {"type": "budget_exceeded", **msgspec.to_builtins(each)}
                for each in account.violations
            ],
        },
    )


def test_metrics_are_what_the_case_says(metrics_row: dict[str, Any]) -> None:
    given = metrics_row["input"]

    metrics = run_metrics(
        given["events"],
        duration_ms=given["durationMs"],
        output_chars=given["outputChars"],
        rejected_after_abort=given.get("rejectedAfterAbort", 0),
    )

    passes(metrics_row, {"metrics": msgspec.json.decode(msgspec.json.encode(metrics))})
