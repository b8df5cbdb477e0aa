"""Group `envelope`: a run result is accepted only if it and its snapshot say the same."""

from typing import Any

from runnerd.runs.snapshot import check_result
from tests.vectors.runs.verdicts import attempted, passes


def test_envelope_is_judged_as_the_case_says(envelope_row: dict[str, Any]) -> None:
    result = envelope_row["input"]["result"]

    passes(envelope_row, attempted(lambda: {"snapshot": check_result(result)}))
