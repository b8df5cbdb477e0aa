"""Picks the protocol version that both ends speak.

It decides from two ranges. It refuses to know who sent them.
"""

from typing import Final

from protocol.envelope import PROTOCOL_MAX, PROTOCOL_MIN, ProtocolVersion

_NEWEST_FIRST: Final[tuple[ProtocolVersion, ...]] = (2, 1)


def negotiate(
    runner_min: int,
    runner_max: int,
    controller_min: int = PROTOCOL_MIN,
    controller_max: int = PROTOCOL_MAX,
) -> ProtocolVersion | None:
    """Return the newest version inside both inclusive ranges, or None if there is none.

    Source: prp-wire 3.1 and 3.2.
    """
    for version in _NEWEST_FIRST:
        if runner_min <= version <= runner_max and controller_min <= version <= controller_max:
            return version
    return None
