import pwd
from pathlib import Path

import pytest

from controller_mock.console.arguments import parse
from controller_mock.console.data_directory import default_directory
from protocol.errors import ErrorCode, PrpError

ENVIRONMENT = {"XDG_STATE_HOME": "/state"}


def test_everything_behind_the_dashes_belongs_to_the_program() -> None:
    options = parse(["run", "--env", "A", "--env", "B", "--", "cmd", "--data", "x"], ENVIRONMENT)

    assert options.command[-3:] == ["cmd", "--data", "x"]
    assert options.env == ["A", "B"]
    assert options.data == Path("/state/runnerd")
    assert options.resume_interrupted == 0


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"XDG_STATE_HOME": "/state"}, Path("/state/runnerd")),
        ({"XDG_STATE_HOME": "relative"}, Path.home() / ".local/state/runnerd"),
        ({"XDG_STATE_HOME": ""}, Path.home() / ".local/state/runnerd"),
        ({}, Path.home() / ".local/state/runnerd"),
    ],
)
def test_default_directory_follows_the_xdg_rules(
    environment: dict[str, str], expected: Path
) -> None:
    assert default_directory(environment) == expected


def test_default_directory_is_none_for_a_user_without_a_home(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", unknown)

    assert default_directory({}) is None


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["frobnicate"],
        ["run", "--restarts", "-1", "--", "x"],
        ["run", "--restarts", "many", "--", "x"],
        ["run", "--resume-interrupted", "9" * 5_000, "--", "x"],
        ["run", "--no-such-flag", "--", "x"],
        ["serve", "--port", "65536"],
        ["serve", "--lease-ttl-ms", "0"],
        ["inspect", "--data"],
    ],
)
def test_wrong_command_line_is_a_code_and_not_an_exit(argv: list[str]) -> None:
    with pytest.raises(PrpError) as caught:
        parse(argv, ENVIRONMENT)

    assert caught.value.code is ErrorCode.USAGE_INVALID


@pytest.mark.parametrize("verb", ["run", "serve", "inspect"])
def test_help_names_the_exit_statuses(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse([verb, "--help"], ENVIRONMENT)

    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert all(f"\n  {status} " in text for status in (0, 1, 2, 3, 64, 65, 69, 70, 73, 74, 76, 77))
