"""What may be shown or stored of text and values that others wrote.

It decides which members go, and how long a diagnostic may be. It refuses to know where it
is shown; it is never used on what is executed or digested. Its patterns cost more to load
than a start-up has to give, so they are loaded with the first use.
"""

from typing import Final

from protocol.canonical_json import JsonValue
from protocol.limits import DIAGNOSTIC_BYTES_MAX

MARK: Final = "[REDACTED]"
CUT: Final = "…[truncated]"


def redact_text(text: str) -> str:
    """Return ``text`` with every credential that its name or shape gives away replaced.

    Idempotent. Identities, digests, counters and sentences about tokens stay.

    Source: runner-behaviour 14, text rule.
    """
    from protocol.credential_text import without_credentials

    return without_credentials(text)


def redact_value(value: JsonValue) -> JsonValue:
    """Return a copy of ``value`` without credentials, judged by member name and by text.

    Source: runner-behaviour 14, key rule.
    """
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, list):
        return [redact_value(item) for item in value]
    if isinstance(value, dict):
        return {
            redact_text(name): MARK if _is_secret_member(name, item) else redact_value(item)
            for name, item in value.items()
        }
    return value


def bounded_diagnostic(text: str) -> str:
    """Return ``text`` redacted, then cut to `DIAGNOSTIC_BYTES_MAX` bytes of UTF-8.

    What cannot be encoded is replaced, so that the result may be stored as it is.
    """
    encoded = redact_text(text).encode("utf-8", "replace")
    if len(encoded) > DIAGNOSTIC_BYTES_MAX:
        kept = encoded[: DIAGNOSTIC_BYTES_MAX - len(CUT.encode())]
        return kept.decode("utf-8", "ignore") + CUT
    return encoded.decode()


def _is_secret_member(name: str, value: JsonValue) -> bool:
    from protocol.credential_text import is_boundary, is_counter, is_credential

    # Neither null nor a flag can hold a credential.
    if value is None or isinstance(value, bool) or not is_credential(name):
        return False
    if isinstance(value, str):
        return not is_boundary(name, value)
    return not is_counter(name) or _has_text(value)


def _has_text(value: JsonValue) -> bool:
    if isinstance(value, dict):
        return any(map(_has_text, value.values()))
    if isinstance(value, list):
        return any(map(_has_text, value))
    return isinstance(value, str)
