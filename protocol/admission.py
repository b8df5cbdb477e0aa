"""Bodies that are stored now and sent later: they are judged before they are stored (R18).

It decides whether a body surely fits the frame that will carry it and survives the strict
reader at the other end. It refuses to know what the body says.
"""

from typing import Final

import msgspec

from protocol.canonical_json import JsonValue, parse_strict
from protocol.errors import ErrorCode, PrpError
from protocol.limits import BODY_BYTES_MAX


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What stands around a body in its message and counts against the reader's limits."""

    depth: int
    """Containers that the body lies in."""
    nodes: int
    """Values beside it and around it, at most."""


IN_ENVELOPE: Final = Surroundings(depth=1, nodes=16)
"""An event, a command or a result as the payload of an envelope."""
IN_WELCOME: Final = Surroundings(depth=3, nodes=64)
"""A command among the pending ones of a welcome."""


def admit(
    body: bytes, around: Surroundings, *, too_large: ErrorCode, invalid: ErrorCode
) -> JsonValue:
    """Read a body as its receiver will.

    Args:
        body: one JSON value as it will be sent.

    Returns:
        The parsed body. Or raises ``too_large`` if it is too long, too deep or has too many
        values for one message, ``invalid`` for anything else the receiver refuses.
    """
    if len(body) > BODY_BYTES_MAX:
        raise PrpError(too_large, f"{len(body)} bytes are more than fits a sealed frame")
    try:
        return parse_strict(body, depth=around.depth, nodes=around.nodes)
    except PrpError as error:
        code = too_large if error.code is ErrorCode.MESSAGE_TOO_LARGE else invalid
        raise PrpError(code, error.message) from None
