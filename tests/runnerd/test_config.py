"""Tests of the command line: which words are flags and which values they take."""

import tomllib
from pathlib import Path

import pytest

from protocol.errors import EXIT_STATUSES, ErrorCode, PrpError
from protocol.ids import Identity
from runnerd.config import Config, read_config
from runnerd.core.state import Settings
from runnerd.destination import Destination
from runnerd.flags import IGNORED_FLAGS, VALUE_FLAGS
from runnerd.help import ENDS, USAGE, VERSION, build_metadata, last_line

REQUIRED = {
    "--connect-url": "ws://127.0.0.1:4242/connect",
    "--state-dir": "/state",
    "--run-id": "run_1",
    "--session-id": "session_1",
    "--turn-id": "turn_1",
    "--item-id": "item_1",
    "--runner-id": "runner_1",
    "--environment-lease-id": "environment_1",
    "--runner-version": "1.2.3",
    "--runner-digest": "sha256:00",
}


def read(changed: dict[str, str | None] | None = None, *more: str) -> Config:
    """Read the required flags with some values changed, or left out where None."""
    values = {**REQUIRED, **(changed or {})}
    words = [word for item in values.items() if item[1] is not None for word in item]
    return read_config([str(word) for word in words] + list(more), None)


def reason_against(changed: dict[str, str | None] | None = None, *more: str) -> str:
    with pytest.raises(PrpError) as refused:
        read(changed, *more)
    assert refused.value.code is ErrorCode.USAGE_INVALID
    return refused.value.message


def test_required_flags_alone_give_the_documented_defaults() -> None:
    assert read() == Config(
        settings=Settings(
            identity=Identity(
                runner_instance_id="runner_1",
                environment_lease_id="environment_1",
                run_id="run_1",
                normalized_session_id="session_1",
                turn_id="turn_1",
                item_id="item_1",
            ),
            runner_version="1.2.3",
            runner_digest="sha256:00",
            max_outbox_bytes=16_777_216,
            p0_reserve_bytes=1_048_576,
            max_frame_bytes=1_048_576,
            reconnect_delay_ms=250,
            reconnect_grace_ms=None,
            max_runtime_ms=0,
            bootstrap_deadline_ms=60_000,
            keeps_run_log=True,
        ),
        destination=Destination(is_secure=False, host="127.0.0.1", port=4242, path="/connect"),
        state_dir="/state",
        ca_bundle_path=None,
        diagnostics_directory=None,
        ticket_file=None,
        log_level="info",
        ignored=(),
    )


@pytest.mark.parametrize("flag", sorted(REQUIRED))
def test_required_flag_is_named_when_it_is_missing_or_empty(flag: str) -> None:
    assert flag in reason_against({flag: None})
    if flag != "--connect-url":
        assert flag in reason_against({flag: ""})


@pytest.mark.parametrize("flag", ["--run-id", "--session-id", "--turn-id", "--item-id"])
@pytest.mark.parametrize("value", ["a b", "a/b", "a@b", "a+b", "_a", ".a", "-a", ":a", "é", "a\n"])
def test_stable_id_is_refused_when_a_character_is_not_one_of_an_id(flag: str, value: str) -> None:
    assert flag in reason_against({flag: value})


@pytest.mark.parametrize(
    ("flag", "length_max"),
    [("--run-id", 160), ("--session-id", 160), ("--turn-id", 240), ("--item-id", 240)],
)
def test_stable_id_is_bounded(flag: str, length_max: int) -> None:
    read({flag: "1" + "a._-:" * ((length_max - 1) // 5) + "b" * ((length_max - 1) % 5)})

    assert flag in reason_against({flag: "a" * (length_max + 1)})


@pytest.mark.parametrize(
    "flag", ["--runner-id", "--environment-lease-id", "--runner-version", "--runner-digest"]
)
def test_artifact_text_may_hold_anything_but_controls(flag: str) -> None:
    read({flag: "a b/é"})

    for value in ("a\nb", "a\x00", "a\x7f", "a\x9f", "é" * 257, "\udcff"):
        assert flag in reason_against({flag: value})


def test_runner_id_is_refused_when_no_event_could_name_it() -> None:
    read({"--runner-id": "r" * 160})

    assert "--runner-id" in reason_against({"--runner-id": "r" * 161})


@pytest.mark.parametrize(
    ("flag", "accepted", "refused"),
    [
        ("--max-outbox-bytes", ("1048577", "536870912"), ("0", "536870913")),
        ("--max-frame-bytes", ("1024", "16777216"), ("1023", "16777217")),
        ("--reconnect-delay-ms", ("1", "60000"), ("0", "60001")),
        ("--reconnect-grace-ms", ("1", "9007199254740991"), ("0", "9007199254740992")),
        ("--max-runtime-ms", ("0", "9007199254740991"), ("9007199254740992",)),
        ("--bootstrap-deadline-ms", ("1", "86400000"), ("0", "86400001")),
        ("--p0-reserve-bytes", ("0", "16777215"), ("16777216",)),
    ],
)
def test_number_is_bounded(flag: str, accepted: tuple[str, ...], refused: tuple[str, ...]) -> None:
    for value in accepted:
        read({flag: value})
    for value in (
        *refused,
        "",
        "-1",
        "+1",
        "1.5",
        "1e3",
        "0x10",
        "1_000",
        " 1",
        "1 ",
        "٣",
        "9" * 99,
    ):
        assert flag in reason_against(None, f"{flag}={value}")


def test_reserve_is_refused_when_it_leaves_no_room() -> None:
    read({"--max-outbox-bytes": "2", "--p0-reserve-bytes": "1"})

    assert "--p0-reserve-bytes" in reason_against({"--max-outbox-bytes": "1048576"})


@pytest.mark.parametrize("flag", ["--bogus", "--state-directory", "--state-dir2", "--", "--=x"])
def test_unknown_flag_is_an_error_that_names_it(flag: str) -> None:
    assert repr(flag.partition("=")[0]) in reason_against(None, flag, "x")


@pytest.mark.parametrize(
    ("flag", "feature"),
    [
        ("--listen-port", "listening"),
        ("--acpx-sidecar-command", "acpx"),
        ("--opencode-executable", "opencode"),
        ("--indexed-state", "indexed state"),
    ],
)
def test_flag_of_another_build_is_refused_with_what_is_missing(flag: str, feature: str) -> None:
    assert feature in reason_against(None, flag, "x")


def test_unknown_flag_is_named_without_its_value() -> None:
    assert "hunter2" not in reason_against(None, "--bootstrap-ticket=hunter2")


@pytest.mark.parametrize("words", [("stray",), ("-x",), ("--run-id", "run_2"), ("--run-id=run_2",)])
def test_stray_words_and_repeated_flags_are_errors(words: tuple[str, ...]) -> None:
    assert words[0].partition("=")[0] in reason_against(None, *words)


@pytest.mark.parametrize("words", [("--log-level",), ("--log-level", "--run-id2")])
def test_flag_without_a_value_is_an_error(words: tuple[str, ...]) -> None:
    assert "--log-level has no value" in reason_against(None, *words)


def test_value_may_stand_behind_an_equals_sign() -> None:
    words = [f"{name}={value}" for name, value in REQUIRED.items()]

    assert read_config(words, None) == read()


def test_value_behind_an_equals_sign_may_begin_with_dashes() -> None:
    assert read({"--state-dir": None}, "--state-dir=--odd=name").state_dir == "--odd=name"


def test_flags_of_the_upstream_controller_are_ignored_and_reported() -> None:
    config = read(
        None,
        *("--fake-harness", "/bin/fake", "--fake-harness-script", "/script.json"),
        *("--lifecycle-mode", "warm", "--idle-timeout-ms", "bogus", "--max-lifetime-ms", "-1"),
    )

    assert config.ignored == tuple(sorted(IGNORED_FLAGS))
    assert config.settings == read().settings


@pytest.mark.parametrize("words", [("--fake-harness",), ("--fake-harness", "--log-level", "debug")])
def test_fake_harness_may_stand_without_a_value(words: tuple[str, ...]) -> None:
    assert read(None, *words).ignored == ("--fake-harness",)


def test_log_level_of_the_flag_goes_before_the_environment() -> None:
    words = [word for item in REQUIRED.items() for word in item]

    assert read_config(words, "debug").log_level == "debug"
    assert read_config([*words, "--log-level", "error"], "debug").log_level == "error"
    with pytest.raises(PrpError, match="RUNNERD_LOG"):
        read_config(words, "loud")
    assert "--log-level" in reason_against(None, "--log-level", "loud")


def test_ca_bundle_is_refused_without_tls() -> None:
    assert "--ca-bundle-path" in reason_against({"--ca-bundle-path": "/ca.pem"})
    secure: dict[str, str | None] = {
        "--ca-bundle-path": "/ca.pem",
        "--connect-url": "wss://controller.example/x",
    }
    assert read(secure).ca_bundle_path == "/ca.pem"


def test_usage_names_every_flag() -> None:
    assert [flag for flag in sorted(VALUE_FLAGS | IGNORED_FLAGS) if flag not in USAGE] == []


def test_every_way_to_end_has_words_and_a_remedy() -> None:
    of_the_controller = {
        ErrorCode.LISTEN_FAILED,
        ErrorCode.RUNNER_START_FAILED,
        ErrorCode.RUNNER_RESTARTS_EXHAUSTED,
    }

    assert set(EXIT_STATUSES) - of_the_controller - set(ENDS) == set()


def test_last_line_is_one_line_whatever_it_quotes() -> None:
    line = last_line(ErrorCode.USAGE_INVALID, "a\nb\x1b[31m\u2028c")

    assert line == "runnerd: usage_invalid: a?b?[31m?c; see runnerd --help"


def test_version_is_the_package_s() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())

    assert project["project"]["version"] == VERSION


def test_build_metadata_is_what_a_supervisor_checks() -> None:
    assert build_metadata() == (
        '{"schema":"paperclip-runner/runnerd-build-metadata/v1",'
        '"binaryName":"paperclip-runnerd","packageName":"@paperclipai/paperclip-runner",'
        f'"packageVersion":"{VERSION}","binaryContractVersion":2,"nativeExecutionVersion":1,'
        '"harnessDriverVersion":1,'
        '"prp":{"name":"paperclip.runner","minimumVersion":1,"maximumVersion":2},'
        '"prpTransportModes":["dial_ws_loopback","dial_wss"],'
        '"durableSessionCapabilities":["unlimited_runtime","connection_lease_renewal"]}'
    )
