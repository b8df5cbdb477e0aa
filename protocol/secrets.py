"""A holder for secret bytes that nothing prints, encodes or copies by accident.

It decides how a secret may be seen and ended. It refuses to know what the bytes unlock.
"""

import hmac
from typing import Final, NoReturn

REDACTED: Final = "<redacted>"


class Secret:
    """A ticket, token or key in memory of its own, which `wipe` overwrites in place."""

    __slots__ = ("_data", "_wiped")

    def __init__(self, data: bytes | bytearray | str) -> None:
        self._data = bytearray(data.encode() if isinstance(data, str) else data)
        self._wiped = False

    @property
    def wiped(self) -> bool:
        """True once the bytes are gone."""
        return self._wiped

    def reveal(self) -> memoryview:
        """Return a read-only view of the bytes themselves; a wipe is seen through it.

        Pass it straight to the primitive that needs it; a copy of it cannot be wiped.
        """
        assert not self._wiped, "a wiped secret was asked for"
        return memoryview(self._data).toreadonly()

    def wipe(self) -> None:
        """Overwrite the bytes with zeros. Any number of calls do the same."""
        self._data[:] = bytes(len(self._data))
        self._wiped = True

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._data, other._data) and self._wiped == other._wiped

    def __repr__(self) -> str:
        return REDACTED

    def __format__(self, format_spec: str) -> str:
        return REDACTED

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a secret is neither copied nor pickled")
