"""The files that are checked in for readers of a run's terminal envelope.

Decides which they are and what they hold now. Knows nothing of how a schema becomes a type.
"""

import json
from pathlib import Path
from typing import Final

from runnerd.runs.snapshot import snapshot_schema
from tests.schema.typescript import typescript

FOLDER: Final = Path(__file__).resolve().parents[2] / "deploy" / "schema"
SCHEMA: Final = FOLDER / "run-snapshot.schema.json"
TYPES: Final = FOLDER / "run-snapshot.d.ts"

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def current() -> dict[Path, str]:
    """Return what each file must hold."""
    schema = {"$schema": _DIALECT, **snapshot_schema()}
    return {SCHEMA: json.dumps(schema, indent=2) + "\n", TYPES: typescript(schema)}
