"""The command line as words: which flags exist and which value each was given.

It decides which words are flags of this program. It refuses to judge a value: that is
`config`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from protocol.errors import ErrorCode, PrpError

VALUE_FLAGS: Final = frozenset(
    {
        "--connect-url",
        "--ca-bundle-path",
        "--state-dir",
        "--run-id",
        "--session-id",
        "--turn-id",
        "--item-id",
        "--runner-id",
        "--environment-lease-id",
        "--runner-version",
        "--runner-digest",
        "--max-outbox-bytes",
        "--p0-reserve-bytes",
        "--max-frame-bytes",
        "--reconnect-delay-ms",
        "--reconnect-grace-ms",
        "--max-runtime-ms",
        "--bootstrap-deadline-ms",
        "--diagnostics-directory",
        "--ticket-file",
        "--log-level",
    }
)
IGNORED_FLAGS: Final = frozenset(
    {
        "--fake-harness",
        "--fake-harness-script",
        "--lifecycle-mode",
        "--idle-timeout-ms",
        "--max-lifetime-ms",
    }
)
"""Flags that the upstream controller passes and its own daemon ignores (runner-behaviour 1)."""
BARE_FLAGS: Final = frozenset({"--fake-harness"})
"""Flags that may stand without a value."""

_UNOFFERED: Final[Mapping[str, str]] = {
    "--listen-": "listening for the controller",
    "--acpx-": "the acpx provider",
    "--opencode-": "the opencode provider",
    "--indexed-state": "the indexed state",
}
"""Flags that other builds have, so that their refusal can say what is missing."""
_NAME_LENGTH_MAX: Final = 64


def read_flags(arguments: Sequence[str]) -> dict[str, str]:
    """Return the value of every flag that stands on the command line, by its name.

    A value stands behind the name or behind an equals sign; one that begins with two
    dashes needs the latter. An ignored flag may be without a value, which is empty then.

    Returns:
        Or raises PrpError ``usage_invalid`` naming the flag: unknown, repeated, without a
        value, or a word that belongs to no flag.

    Source: runner-behaviour 1; there, unknown and repeated flags passed in silence.
    """
    values: dict[str, str] = {}
    position = 0
    while position < len(arguments):
        word = arguments[position]
        position += 1
        name, has_equals, value = word.partition("=")
        if not word.startswith("--"):
            raise usage(f"{_shown(word)} belongs to no flag")
        if name not in VALUE_FLAGS and name not in IGNORED_FLAGS:
            raise _unknown(name)
        if name in values:
            raise usage(f"{name} is given twice")
        if not has_equals:
            if position < len(arguments) and not arguments[position].startswith("--"):
                value = arguments[position]
                position += 1
            elif name not in BARE_FLAGS:
                raise usage(f"{name} has no value")
        values[name] = value
    return values


def usage(reason: str) -> PrpError:
    """Return the error of a command line that cannot be meant."""
    return PrpError(ErrorCode.USAGE_INVALID, reason)


def _unknown(name: str) -> PrpError:
    for prefix, feature in _UNOFFERED.items():
        if name.startswith(prefix):
            return usage(f"{_shown(name)} asks for {feature}, which this build does not offer")
    return usage(f"{_shown(name)} is not a flag of this program")


def _shown(word: str) -> str:
    """Cut a word for a message: a mistyped line may hold anything, also a secret behind `=`."""
    return ascii(word.partition("=")[0][:_NAME_LENGTH_MAX])
