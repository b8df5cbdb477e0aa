"""How a turn ended: facts outweigh what the program says of itself.

It decides states, reason and disposition, and spells them as events. It refuses to know what
follows for the run: `turns` changes the state.

    intent               turn, run              reason
    interrupt            interrupted, cancelled turn_interrupted
    cancel               cancelled, cancelled   run_cancelled
    timeout              failed, failed         turn_timeout
    overflow             failed, failed         outbox_full
    budget               failed, failed         budget_exceeded
    unrecorded           failed, failed         durability_barrier_failed
    none, not ready      failed, failed         harness_not_ready
    none, other breach   failed, failed         harness_protocol_violation
    finished, result     as proposed            harness_ended_after_terminal
    finished, no result  failed, failed         semantic_result_missing
    none, exit 0         completed, succeeded   successful_process_and_result
    none, exit 0, but a result is owed
                         failed, failed         semantic_result_missing
    none, other exit     failed, failed         harness_process_failed
"""

from typing import Final, assert_never

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode
from runnerd.core.conversation import Conclusion, Dialogue
from runnerd.core.inputs import HarnessExited, ProcessExit
from runnerd.core.outbox import Draft
from runnerd.core.state import Turn
from runnerd.core.verdict import Outcome, RunState, TurnState

TERMINAL_SCHEMA: Final = "paperclip.prp.terminal.v1"
RESULT_SCHEMA: Final = "paperclip.run_result.v1"


def decide(turn: Turn, exited: HarnessExited, spoke: Dialogue | None) -> Outcome:
    """Return how a turn ended.

    Args:
        spoke: what was said, None for a program that only prints: there, exit status 0 is
            the result.

    Source: runner-behaviour 12, outcome table.
    """
    match turn.intent:
        case "interrupt":
            return _outcome("interrupted", "cancelled", "turn_interrupted")
        case "cancel":
            return _outcome("cancelled", "cancelled", "run_cancelled")
        case "timeout":
            return _failed("turn_timeout")
        case "overflow":
            return _failed(ErrorCode.OUTBOX_FULL.value)
        case "budget":
            return _failed(ErrorCode.BUDGET_EXCEEDED.value)
        case "unrecorded":
            return _failed(ErrorCode.DURABILITY_BARRIER_FAILED.value)
        case "stop" | "authority" | "finished" | None:
            return _by_exit(turn, exited, spoke)
        case _:
            assert_never(turn.intent)


def _by_exit(turn: Turn, exited: HarnessExited, spoke: Dialogue | None) -> Outcome:
    if exited.violation is ErrorCode.HARNESS_NOT_READY:
        return _failed(ErrorCode.HARNESS_NOT_READY.value)
    if exited.violation is not None:
        return _failed("harness_protocol_violation")
    has_result = spoke is None or spoke.has_result
    if turn.intent == "finished":
        return _as_proposed(None if spoke is None else spoke.conclusion, has_result)
    if not exited.exit.success:
        return _failed("harness_process_failed")
    if not has_result:
        return _failed("semantic_result_missing")
    return _outcome("completed", "succeeded", "successful_process_and_result")


def _as_proposed(conclusion: Conclusion | None, has_result: bool) -> Outcome:
    """Believe a program that was ended by us after its work, as far as it showed a result."""
    if not has_result:
        return _failed("semantic_result_missing")
    if conclusion is None or conclusion.run_state != "succeeded":
        return _failed("harness_ended_after_terminal")
    return _outcome("completed", "succeeded", "harness_ended_after_terminal")


def _outcome(turn_state: TurnState, run_state: RunState, reason: str) -> Outcome:
    return Outcome(turn_state=turn_state, run_state=run_state, reason=reason)


def _failed(reason: str) -> Outcome:
    return _outcome("failed", "failed", reason)


# --- as events --------------------------------------------------------------------------------


def interrupted(turn: Turn, reason: str, facts: dict[str, JsonValue]) -> list[Draft]:
    """Return the end of a turn that says nothing of its run: another turn may follow."""
    return [
        Draft(
            "turn.interrupted",
            0,
            {"turnOrdinal": turn.ordinal, "reason": reason, "recoverable": True},
        ),
        Draft("harness.exited", 0, {**facts, "reason": reason, "recoverable": True}),
    ]


def terminal(
    turn: Turn,
    outcome: Outcome,
    process_exit: ProcessExit,
    facts: dict[str, JsonValue],
    spoke: Dialogue | None,
    envelope: dict[str, JsonValue],
) -> list[Draft]:
    """Return the last events of a turn and of its run: exactly one `run.terminal`.

    Args:
        envelope: members of its payload that say how the run's log ended.
    """
    has_result = outcome.succeeded if spoke is None else spoke.has_result
    conclusion = None if spoke is None else spoke.conclusion
    is_proposed = spoke is None and outcome.succeeded
    reconciliation: dict[str, JsonValue] = {
        "authority": "runner",
        "reason": outcome.reason,
        "processExit": exit_facts(process_exit),
        "semanticResultObserved": has_result,
    }
    if spoke is not None:
        facts = {**facts, "semanticResultObserved": has_result}
        reconciliation["proposalValid"] = conclusion is not None and conclusion.is_valid
        reconciliation["proposalContradicted"] = conclusion is not None and (
            (conclusion.turn_state, conclusion.run_state) != (outcome.turn_state, outcome.run_state)
        )
    payload = terminal_payload(
        outcome.turn_state,
        outcome.run_state,
        _disposition(outcome, spoke),
        reconciliation,
    )
    if conclusion is not None:
        payload["harnessTerminalProposal"] = conclusion.proposal
    payload.update(envelope)
    return [
        *([Draft("run.result.proposed", 0, _result(turn))] if is_proposed else []),
        Draft(
            f"turn.{outcome.turn_state}",
            0,
            {"turnOrdinal": turn.ordinal, "reason": outcome.reason},
        ),
        Draft("harness.exited", 0, facts),
        Draft("run.terminal", 0, payload),
    ]


def terminal_payload(
    turn_state: TurnState,
    run_state: RunState,
    disposition: str,
    reconciliation: dict[str, JsonValue],
) -> dict[str, JsonValue]:
    """Return the payload of `run.terminal`."""
    return {
        "schema": TERMINAL_SCHEMA,
        "turnTerminalState": turn_state,
        "runTerminalState": run_state,
        "reportedWorkDisposition": disposition,
        "reconciliation": reconciliation,
    }


def _disposition(outcome: Outcome, spoke: Dialogue | None) -> str:
    """Source: runner-behaviour 12, "Disposition"."""
    conclusion = None if spoke is None else spoke.conclusion
    said = [
        None if spoke is None else spoke.disposition,
        None if conclusion is None else conclusion.disposition,
    ]
    reported = [disposition for disposition in said if disposition is not None]
    if outcome.succeeded:
        return reported[0] if reported else "done"
    return next((disposition for disposition in reported if disposition != "done"), "yielded")


def item_completed(turn: Turn) -> Draft:
    """Return the end of the one item of a program that only prints."""
    return Draft(
        "item.completed",
        1,
        {"channel": "progress", "outputLines": turn.lines, "outputBytes": turn.output_bytes},
    )


def survivors(turn: Turn, count: int) -> Draft:
    """Return the fact that processes of a harness could not be ended."""
    return Draft(
        "harness.diagnostic",
        0,
        {
            "code": ErrorCode.HARNESS_SURVIVED.value,
            "generation": turn.generation,
            "survivors": count,
        },
    )


def exit_facts(process_exit: ProcessExit) -> dict[str, JsonValue]:
    """Return how a process ended, as events spell it."""
    return {
        "exitCode": process_exit.exit_code,
        "success": process_exit.success,
        "signal": process_exit.signal,
    }


def _result(turn: Turn) -> dict[str, JsonValue]:
    """Say what exit status 0 says and no more: the program claims to be done."""
    lines = f"{turn.lines} line{'' if turn.lines == 1 else 's'}"
    return {
        "schema": RESULT_SCHEMA,
        "reportedWorkDisposition": "done",
        "summary": f"The program exited with status 0 after {lines} of output.",
        "completionClaim": {
            "contractRevision": "command.v1",
            "objectiveSatisfied": True,
            "criteria": [],
            "remainingWork": [],
        },
        "evidence": [],
        "verification": [{"commandOrCheck": "process exit status", "status": "passed"}],
        "attentionRequests": [],
        "artifacts": [],
    }
