"""The checked-in schema and types are those of the code."""

import pytest

from tests.schema.files import current
from tests.schema.typescript import typescript


@pytest.mark.parametrize("path", current(), ids=lambda path: path.name)
def test_checked_in_file_is_fresh(path: object) -> None:
    [(found, text)] = [(one, text) for one, text in current().items() if one == path]

    assert found.read_text() == text, "run ./dev python -m tests.schema"


def test_type_that_has_no_spelling_is_an_error_and_not_a_wider_type() -> None:
    odd = {"$defs": {"Odd": {"type": "object", "properties": {"a": {"type": "symbol"}}}}}

    with pytest.raises(ValueError, match="symbol"):
        typescript(odd)
