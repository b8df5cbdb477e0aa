"""`python -m tests.demo.recovery RUNS LEDGER`: a run dies between an effect and its receipt.

It decides when the process dies: a real SIGKILL, after the outside has taken the order and before
the log says so. It refuses to recover anything: that is for a person, as the README has it.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Final

from protocol.base.posix_fs import PosixFilesystem, PosixLocks, SystemClock, SystemEntropy
from protocol.canonical_json import JsonValue
from protocol.timestamps import rfc3339_ms
from runnerd.runs.fingerprints import config_fingerprint, idempotency_key
from runnerd.runs.journal import RunJournal
from runnerd.runs.operation import accept_operation, transition
from runnerd.runs.records import OperationEvent, RecordKind, struct_members
from runnerd.runs.run_store import RunStore

RUN: Final = "order-7"
CALL: Final = "call-1"
STEP: Final = "pay"


def main(folder: str, ledger: str) -> int:
    """Have the run killed, and return 0 if it was."""
    child = os.fork()
    if child == 0:
        _pay(folder, Path(ledger))
        os._exit(1)
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    print(f"{RUN}: {'killed' if killed else 'not killed'}")
    return 0 if killed else 1


def _pay(folder: str, ledger: Path) -> None:
    store = RunStore(PosixFilesystem(), SystemEntropy(), PosixLocks(), folder)
    journal = RunJournal(store.open_run(RUN))
    told = 0

    def now() -> str:
        return rfc3339_ms(SystemClock().now().unix_ms)

    def tell(**event: JsonValue) -> None:
        nonlocal told
        told += 1
        entry: JsonValue = {
            "eventId": f"e{told}",
            "runId": RUN,
            "sequence": told,
            "timestamp": now(),
            "event": event,
        }
        journal.append(RecordKind.EVENT, entry, timestamp=now())

    started: JsonValue = {"configFingerprint": config_fingerprint({"name": "shop"})}
    journal.append(RecordKind.START, started, timestamp=now())
    accepted = accept_operation(run_id=RUN, operation_id="run", event_id="1", timestamp=now())
    running = transition(accepted, OperationEvent.START, event_id="2", timestamp=now()).operation
    for record in running.records:
        journal.append(RecordKind.OPERATION, struct_members(record), timestamp=now())
    call: dict[str, JsonValue] = {
        "agent": "main",
        "turnId": "turn-1",
        "stepId": STEP,
        "callId": CALL,
        "tool": "pay",
        "idempotencyKey": idempotency_key(RUN, STEP, CALL),
    }
    tell(type="tool_call", args={"order": 7}, **call)
    # The start is durable before anything happens outside.
    tell(type="effect_receipt", status="started", **call)
    ledger.write_text("order 7 paid\n")
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
