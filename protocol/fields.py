"""Rules of single fields that many payloads share.

It decides what an id, a digest, a path or a count may be. It refuses to know the payloads.
Source: prp-wire 9.1 and 14; limits of length count code points.
"""

from typing import Final

from protocol.ids import STABLE_ID_PATTERN
from protocol.shapes import choice, nullable, text, whole
from protocol.timestamps import TIMESTAMP_PATTERN

ID: Final = text(1, 160, STABLE_ID_PATTERN)
STABLE: Final = text(1, 240, STABLE_ID_PATTERN)
CODE: Final = text(1, 160, r"[a-z][a-z0-9_.:-]*")
DIGEST: Final = text(pattern=r"sha256:[a-f0-9]{64}")
TIME: Final = text(pattern=TIMESTAMP_PATTERN)
NAME: Final = text(1, 160)
WORDS: Final = text(1)
SHORT: Final = text(0, 4000)
MAYBE_SHORT: Final = nullable(SHORT)
MAYBE_LABEL: Final = nullable(text(0, 160))
MAYBE_MODEL: Final = nullable(text(0, 240))
COUNT: Final = whole()
MAYBE_COUNT: Final = nullable(COUNT)
_RELATIVE: Final = r"(?!/)(?!(?:.*/)?\.\.(?:/|\Z))[^\n\r\u2028\u2029]*"
"""A path that neither starts at the root nor climbs out of its folder."""
PATH: Final = nullable(text(0, 4096, _RELATIVE))
FILE_PATH: Final = text(1, 1024, _RELATIVE)
URL: Final = nullable(text(0, 8192, r"https?://.*"))
TEXT_SOURCE: Final = choice("harness_reported runner_verified")
