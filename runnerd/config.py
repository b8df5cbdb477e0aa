"""The daemon's configuration: what the command line fixed, judged once and for all.

It decides which values a flag may have. It refuses to read files, names and the ticket, and
to know what a setting leads to.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from protocol.ids import Identity, is_stable_id
from protocol.limits import (
    ARTIFACT_TEXT_BYTES_MAX,
    BOOTSTRAP_DEADLINE_MS,
    BOOTSTRAP_DEADLINE_MS_CEILING,
    EVENT_ID_LENGTH_MAX,
    FRAME_BYTES_CEILING,
    FRAME_BYTES_FLOOR,
    FRAME_BYTES_MAX,
    OUTBOX_BYTES_CEILING,
    OUTBOX_BYTES_MAX,
    P0_RESERVE_BYTES,
    RECONNECT_DELAY_MS,
    RECONNECT_DELAY_MS_CEILING,
    RUN_ID_LENGTH_MAX,
    SAFE_INTEGER_MAX,
    TURN_ID_LENGTH_MAX,
)
from runnerd.core.state import Settings
from runnerd.destination import Destination, parse_url
from runnerd.flags import IGNORED_FLAGS, read_flags, usage

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
LOG_LEVEL_VARIABLE: Final = "RUNNERD_LOG"

_DIGITS_MAX: Final = len(str(SAFE_INTEGER_MAX))


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the command line says, with defaults filled in."""

    settings: Settings
    destination: Destination
    state_dir: str
    ca_bundle_path: str | None
    diagnostics_directory: str | None
    ticket_file: str | None
    log_level: str
    ignored: tuple[str, ...]
    """Flags that were accepted and have no effect."""


def read_config(arguments: Sequence[str], log_level: str | None) -> Config:
    """Judge a command line.

    Args:
        arguments: without the program's name.
        log_level: what the environment asks for, if anything; a flag goes before it.

    Returns:
        The configuration. Or raises PrpError ``usage_invalid`` naming the flag, or
        ``destination_refused``.

    Source: runner-behaviour 1.
    """
    flags = read_flags(arguments)
    destination = parse_url(_text(flags, "--connect-url"))
    ca_bundle_path = _optional_path(flags, "--ca-bundle-path")
    if ca_bundle_path is not None and not destination.is_secure:
        raise usage("--ca-bundle-path needs a wss:// URL")
    return Config(
        settings=_settings(flags),
        destination=destination,
        state_dir=_path(flags, "--state-dir"),
        ca_bundle_path=ca_bundle_path,
        diagnostics_directory=_optional_path(flags, "--diagnostics-directory"),
        ticket_file=_optional_path(flags, "--ticket-file"),
        log_level=_log_level(flags, log_level),
        ignored=tuple(sorted(IGNORED_FLAGS.intersection(flags))),
    )


def _settings(flags: Mapping[str, str]) -> Settings:
    max_outbox_bytes = _number(
        flags, "--max-outbox-bytes", OUTBOX_BYTES_MAX, 1, OUTBOX_BYTES_CEILING
    )
    grace = _number(flags, "--reconnect-grace-ms", 0, 1, SAFE_INTEGER_MAX)
    return Settings(
        identity=_identity(flags),
        runner_version=_artifact_text(flags, "--runner-version"),
        runner_digest=_artifact_text(flags, "--runner-digest"),
        max_outbox_bytes=max_outbox_bytes,
        p0_reserve_bytes=_p0_reserve(flags, max_outbox_bytes),
        max_frame_bytes=_number(
            flags, "--max-frame-bytes", FRAME_BYTES_MAX, FRAME_BYTES_FLOOR, FRAME_BYTES_CEILING
        ),
        reconnect_delay_ms=_number(
            flags, "--reconnect-delay-ms", RECONNECT_DELAY_MS, 1, RECONNECT_DELAY_MS_CEILING
        ),
        reconnect_grace_ms=grace or None,
        max_runtime_ms=_number(flags, "--max-runtime-ms", 0, 0, SAFE_INTEGER_MAX),
        bootstrap_deadline_ms=_number(
            flags,
            "--bootstrap-deadline-ms",
            BOOTSTRAP_DEADLINE_MS,
            1,
            BOOTSTRAP_DEADLINE_MS_CEILING,
        ),
        keeps_run_log=True,
    )


def _identity(flags: Mapping[str, str]) -> Identity:
    return Identity(
        runner_instance_id=_runner_id(flags),
        environment_lease_id=_artifact_text(flags, "--environment-lease-id"),
        run_id=_stable_id(flags, "--run-id", RUN_ID_LENGTH_MAX),
        normalized_session_id=_stable_id(flags, "--session-id", RUN_ID_LENGTH_MAX),
        turn_id=_stable_id(flags, "--turn-id", TURN_ID_LENGTH_MAX),
        item_id=_stable_id(flags, "--item-id", TURN_ID_LENGTH_MAX),
    )


def _p0_reserve(flags: Mapping[str, str], max_outbox_bytes: int) -> int:
    reserve = _number(flags, "--p0-reserve-bytes", P0_RESERVE_BYTES, 0, OUTBOX_BYTES_CEILING)
    if reserve >= max_outbox_bytes:
        raise usage("--p0-reserve-bytes is not less than --max-outbox-bytes")
    return reserve


def _runner_id(flags: Mapping[str, str]) -> str:
    runner_id = _artifact_text(flags, "--runner-id")
    # Every event names its runner, and an event's schema allows no more.
    if len(runner_id) > EVENT_ID_LENGTH_MAX:
        raise usage(f"--runner-id is longer than {EVENT_ID_LENGTH_MAX} characters")
    return runner_id


def _log_level(flags: Mapping[str, str], from_environment: str | None) -> str:
    name = "--log-level" if "--log-level" in flags else LOG_LEVEL_VARIABLE
    level = flags.get("--log-level", from_environment or "info")
    if level not in LOG_LEVELS:
        raise usage(f"{name} is none of {', '.join(LOG_LEVELS)}")
    return level


# --- Kinds of values ------------------------------------------------------------------------


def _text(flags: Mapping[str, str], name: str) -> str:
    if name not in flags:
        raise usage(f"{name} is missing")
    value = flags[name]
    if not value:
        raise usage(f"{name} is empty")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise usage(f"{name} is not valid UTF-8")
    return value


def _path(flags: Mapping[str, str], name: str) -> str:
    if not flags.get(name, "-"):
        raise usage(f"{name} is empty")
    if name not in flags:
        raise usage(f"{name} is missing")
    return flags[name]


def _optional_path(flags: Mapping[str, str], name: str) -> str | None:
    return _path(flags, name) if name in flags else None


def _stable_id(flags: Mapping[str, str], name: str, length_max: int) -> str:
    value = _text(flags, name)
    if not is_stable_id(value, length_max):
        raise usage(f"{name} is not 1 to {length_max} letters, digits, '.', '_', ':' and '-'")
    return value


def _artifact_text(flags: Mapping[str, str], name: str) -> str:
    value = _text(flags, name)
    if len(value.encode()) > ARTIFACT_TEXT_BYTES_MAX:
        raise usage(f"{name} is longer than {ARTIFACT_TEXT_BYTES_MAX} bytes")
    if any(character < " " or "\x7f" <= character <= "\x9f" for character in value):
        raise usage(f"{name} holds a control character")
    return value


def _number(flags: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    """Read a decimal number from ``least`` to ``most``; an absent flag is the default."""
    if name not in flags:
        return default
    value = flags[name]
    is_decimal = value.isascii() and value.isdecimal() and len(value) <= _DIGITS_MAX
    number = int(value) if is_decimal else -1
    if not least <= number <= most:
        raise usage(f"{name} is not a number from {least} to {most}")
    return number
