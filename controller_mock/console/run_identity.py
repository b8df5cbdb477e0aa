"""What a run of the command line is called and bound to.

It decides the six ids and the artifact that a runner must repeat. It refuses to know when a
run is created and who runs it.
"""

import secrets
from datetime import UTC, datetime
from typing import Final

from controller_mock.core.state import RunConfig
from controller_mock.io.runner_process import artifact_digest
from protocol.base.clock import UnixMs
from protocol.errors import ErrorCode, PrpError
from protocol.ids import Identity, RunId, is_stable_id
from protocol.limits import LEASE_TTL_MS, RUN_ID_LENGTH_MAX

RUNNER_VERSION: Final = "0.1.0"
_PREFIX_LENGTH_MAX: Final = len("environment-")


def checked_run_id(text: str) -> RunId:
    """Return a run id that a person chose; PrpError ``usage_invalid``."""
    if not is_stable_id(text, RUN_ID_LENGTH_MAX - _PREFIX_LENGTH_MAX):
        raise PrpError(
            ErrorCode.USAGE_INVALID,
            "a run id is letters, digits and . _ : - (not first),"
            f" at most {RUN_ID_LENGTH_MAX - _PREFIX_LENGTH_MAX} characters",
        )
    return RunId(text)


def fresh_run_id(now: UnixMs) -> RunId:
    """Return a name that sorts by time and that no other run has."""
    stamp = datetime.fromtimestamp(now / 1000, UTC).strftime("%Y%m%dT%H%M%S")
    return RunId(f"run-{stamp}-{secrets.token_hex(4)}")


def run_config(name: RunId, lease_ttl_ms: int = LEASE_TTL_MS) -> RunConfig:
    """Return what a run is bound to; its ids derive from its name."""
    return RunConfig(
        identity=Identity(
            runner_instance_id=f"runner-{name}",
            environment_lease_id=f"environment-{name}",
            run_id=name,
            normalized_session_id=f"session-{name}",
            turn_id=f"turn-{name}",
            item_id=f"item-{name}",
        ),
        runner_version=RUNNER_VERSION,
        runner_digest=artifact_digest(),
        lease_ttl_ms=lease_ttl_ms,
    )
