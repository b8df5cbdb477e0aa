"""Addresses behind a destination, looked up once and kept for the life of the process.

It decides which addresses may be dialled. It refuses to open sockets.
"""

import socket
from typing import TYPE_CHECKING, Final

import msgspec

from protocol.errors import ErrorCode, PrpError
from protocol.limits import RESOLVE_TIMEOUT_MS
from runnerd.destination import Destination

if TYPE_CHECKING:
    from queue import SimpleQueue

_IPV4_LOOPBACK_NET: Final = 127
_IPV6_LOOPBACK: Final = bytes(15) + b"\x01"
_MS: Final = 1000


class Address(msgspec.Struct, frozen=True, order=True):
    """One address of a destination, numeric."""

    family: int
    host: str
    port: int


Answer = tuple[Address, ...] | OSError | UnicodeError


class NotResolved(Exception):
    """No answer for now; asking again later may help."""


def resolve(destination: Destination) -> tuple[Address, ...]:
    """Return the sorted addresses of a destination.

    With `ws://` every one of them must be loopback: a name that also stands for another
    machine is refused whole.

    Raises:
        PrpError: ``destination_refused``.
        NotResolved: if the name server did not answer.

    Source: runner-behaviour 1 and 10, architecture 7.12.
    """
    literal = _literal(destination)
    addresses = (literal,) if literal is not None else _look_up(destination)
    if not destination.is_secure and not all(_is_loopback(address) for address in addresses):
        raise PrpError(ErrorCode.DESTINATION_REFUSED, "ws:// may only lead to loopback addresses")
    return addresses


def _literal(destination: Destination) -> Address | None:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            packed = socket.inet_pton(family, destination.host)
        except OSError:
            continue
        return Address(family, socket.inet_ntop(family, packed), destination.port)
    return None


def _is_loopback(address: Address) -> bool:
    try:
        packed = socket.inet_pton(address.family, address.host)
    except OSError:
        return False
    if address.family == socket.AF_INET:
        return packed[0] == _IPV4_LOOPBACK_NET
    return packed == _IPV6_LOOPBACK


def _look_up(destination: Destination) -> tuple[Address, ...]:
    """Ask the system's resolver, which knows no time limit of its own."""
    # Imported for names alone: most starts have a numeric address.
    import queue
    import threading

    answers: SimpleQueue[Answer] = queue.SimpleQueue()
    threading.Thread(target=_ask, args=(destination, answers), daemon=True).start()
    try:
        answer = answers.get(timeout=RESOLVE_TIMEOUT_MS / _MS)
    except queue.Empty:
        raise NotResolved from None
    if isinstance(answer, socket.gaierror) and answer.errno == socket.EAI_AGAIN:
        raise NotResolved
    if isinstance(answer, OSError | UnicodeError) or not answer:
        raise PrpError(ErrorCode.DESTINATION_REFUSED, "the host has no address")
    return answer


def _ask(destination: Destination, answers: "SimpleQueue[Answer]") -> None:
    try:
        # As bytes, the name is not run through an international encoding that it cannot need.
        found = socket.getaddrinfo(
            destination.host.encode(), destination.port, type=socket.SOCK_STREAM
        )
    except (OSError, UnicodeError) as error:
        answers.put(error)
        return
    addresses = {Address(family, str(end[0]), destination.port) for family, _, _, _, end in found}
    answers.put(tuple(sorted(addresses)))
