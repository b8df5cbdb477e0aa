"""A refusal as a test expects one: by its code alone."""

import pytest

from protocol.errors import ErrorCode, PrpError


def refused(code: ErrorCode) -> "pytest.RaisesExc[PrpError]":
    """Return a context that passes only if a PrpError with this code leaves it."""
    return pytest.RaisesExc(PrpError, check=lambda error: error.code is code)
