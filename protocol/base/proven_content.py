"""The text of a file that proves its own bytes: schema, digest, content (R24).

It decides whether bytes at rest are exactly what was written. It refuses to know what the
content means.

    {"schema":"<family>.v<n>","contentSha256":"<64 hex>","content":<a JSON value>}<newline>
"""

import hashlib
from typing import Final

import msgspec

from protocol.errors import ErrorCode, PrpError

_DIGEST_LENGTH: Final = 64
_BEFORE_CONTENT: Final = b'","content":'
_AFTER_CONTENT: Final = b"}\n"
_VERSION_LENGTH_SHOWN_MAX: Final = 9


class _Header(msgspec.Struct, frozen=True):
    """What every version of every such file says about itself."""

    schema: str


def enclose(schema: str, content: bytes) -> bytes:
    """Return the file for ``content``, which is one JSON value; its digest covers it exactly."""
    digest = hashlib.sha256(content).hexdigest().encode()
    return b"".join((_before_digest(schema), digest, _BEFORE_CONTENT, content, _AFTER_CONTENT))


def disclose(schema: str, data: bytes) -> bytes:
    """Return the content of a file made by `enclose` under the same schema.

    Raises PrpError: ``state_version_unsupported`` for another version of the schema,
    ``state_foreign`` for JSON of another kind, ``state_corrupt`` for anything else, down
    to one changed bit.
    """
    digest_at = len(_before_digest(schema))
    digest_end = digest_at + _DIGEST_LENGTH
    content = data[digest_end + len(_BEFORE_CONTENT) : -len(_AFTER_CONTENT)]
    if (
        data.startswith(_before_digest(schema))
        and data.startswith(_BEFORE_CONTENT, digest_end)
        and data.endswith(_AFTER_CONTENT)
        and hashlib.sha256(content).hexdigest().encode() == data[digest_at:digest_end]
    ):
        return content
    raise _refusal(schema, data)


def _before_digest(schema: str) -> bytes:
    return b'{"schema":"%s","contentSha256":"' % schema.encode()


def _refusal(schema: str, data: bytes) -> PrpError:
    try:
        found = msgspec.json.decode(data, type=_Header).schema
    except msgspec.ValidationError:
        return PrpError(ErrorCode.STATE_FOREIGN, "the file names no schema")
    except (msgspec.DecodeError, RecursionError):
        return PrpError(ErrorCode.STATE_CORRUPT, "the file is damaged or incomplete")
    if found == schema:
        return PrpError(ErrorCode.STATE_CORRUPT, "the file does not match its own digest")
    family, _, version = found.rpartition(".v")
    if family == schema.rpartition(".v")[0] and version.isdecimal():
        shown = version[:_VERSION_LENGTH_SHOWN_MAX]
        reason = f"the file is of version {shown}, which this program does not know"
        return PrpError(ErrorCode.STATE_VERSION_UNSUPPORTED, reason)
    return PrpError(ErrorCode.STATE_FOREIGN, "the file holds another kind of state")
