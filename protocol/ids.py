"""Identities and sequences of the protocol as distinct types.

It decides what text may name a thing. It refuses to know where an id comes from.
"""

import re
from typing import Final, NewType

import msgspec

RunId = NewType("RunId", str)
CommandId = NewType("CommandId", str)
ConnectionId = NewType("ConnectionId", str)
LeaseId = NewType("LeaseId", str)
CredentialId = NewType("CredentialId", str)
"""`sha256:` and 64 lower-case hex digits; public, it names a credential without revealing it."""
SourceEventId = NewType("SourceEventId", str)

SourceSeq = NewType("SourceSeq", int)
"""Counts events of one run, from 1."""
ControllerSeq = NewType("ControllerSeq", int)
"""Counts commands of one run, from 1."""
RevocationEpoch = NewType("RevocationEpoch", int)
Generation = NewType("Generation", int)
"""Counts harness starts of one run, from 1; 0 before the first."""

STABLE_ID_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._:-]*$"
_STABLE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*", re.ASCII)


def is_stable_id(text: str, length_max: int) -> bool:
    """Tell whether ``text`` is a stable identity of at most ``length_max`` characters."""
    return 1 <= len(text) <= length_max and _STABLE_ID.fullmatch(text) is not None


class Identity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The six ids that every envelope repeats; fixed for a state directory.

    Source: prp-wire 3.1, runner-behaviour 2.
    """

    runner_instance_id: str
    environment_lease_id: str
    run_id: str
    normalized_session_id: str
    turn_id: str
    item_id: str
