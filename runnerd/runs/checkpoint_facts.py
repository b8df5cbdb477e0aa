"""What the log says about checkpoints: each is written before its tool runs and once after.

It decides whether a checkpoint record may follow the one before it. It refuses to know the
saved content, and forgets checkpoints of effects that are settled and done.
"""

from collections.abc import Container

import msgspec

from protocol.canonical_json import JsonValue
from protocol.errors import PrpError
from runnerd.runs.fingerprints import fingerprint
from runnerd.runs.records import corrupt
from runnerd.runs.terminal_rules import AFTER_STATE, CHECKPOINT_RULE


class _Seen(msgspec.Struct, frozen=True):
    before: str
    """Fingerprint of the record without its after-state."""
    after: str
    """Fingerprint of the after-state, of an empty object if there is none."""
    key: str | None


class CheckpointFacts:
    """The checkpoints of open effects, by their ids."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def apply(self, payload: JsonValue, run_id: str) -> str:
        """Take a checkpoint record and return the checkpoint's id.

        Raises PrpError ``run_state_corrupt`` for a malformed record, one of another run,
        and one that changes anything but an after-state that was missing.
        """
        misfit = CHECKPOINT_RULE(payload)
        if misfit is not None or not isinstance(payload, dict):
            raise corrupt(f"checkpoint{misfit}")
        if payload["runId"] != run_id:
            raise corrupt("a checkpoint of another run")
        after: JsonValue = {name: payload[name] for name in AFTER_STATE if name in payload}
        rest: JsonValue = {name: payload[name] for name in payload if name not in AFTER_STATE}
        key = payload.get("idempotencyKey")
        told = _Seen(_fingerprint(rest), _fingerprint(after), key if isinstance(key, str) else None)
        checkpoint_id = str(payload["checkpointId"])
        seen = self._seen.get(checkpoint_id)
        if seen is not None:
            gains = seen.after == _fingerprint({})
            if seen.before != told.before or not (gains or seen.after == told.after):
                raise corrupt("a checkpoint changed")
        self._seen[checkpoint_id] = told
        return checkpoint_id

    def forget_unless(self, keys: Container[str]) -> None:
        """Forget the checkpoints whose effect is not among the open ones."""
        self._seen = {
            checkpoint_id: seen
            for checkpoint_id, seen in self._seen.items()
            if seen.key is None or seen.key in keys
        }


def _fingerprint(value: JsonValue) -> str:
    try:
        return fingerprint(value)
    except PrpError:
        raise corrupt("a checkpoint that has no fingerprint") from None
