"""Tests of where the ticket comes from and what is left of it there."""

import os
from pathlib import Path

import pytest

from protocol.errors import ErrorCode, PrpError
from protocol.limits import TICKET_BYTES_MAX
from protocol.secrets import Secret
from runnerd.io.ticket_source import CREDENTIAL_NAME, choose_ticket
from runnerd.ticket import CapturedTicket


def captured(token: bytes | None) -> CapturedTicket:
    return CapturedTicket(None if token is None else bytearray(token), is_overwritten=True)


def private(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    path.chmod(0o600)
    return str(path)


def reason_of(
    environment: CapturedTicket, file: str | None = None, credentials: str | None = None
) -> str:
    with pytest.raises(PrpError) as refused:
        choose_ticket(environment, file, credentials)
    assert refused.value.code is ErrorCode.TICKET_MISSING
    return refused.value.message


def test_ticket_of_the_environment_is_taken_and_its_copy_wiped() -> None:
    environment = captured(b"bootstrap_1")

    ticket = choose_ticket(environment, None, None)

    assert ticket == Secret("bootstrap_1")
    assert environment.token == bytearray(11)


@pytest.mark.parametrize("token", [None, b"", b" ", b" \t\r\n", b"\xff\xfe"])
def test_ticket_is_missing_when_the_environment_holds_none_that_is_text(
    token: bytes | None,
) -> None:
    assert "PAPERCLIP_RUNNER_BOOTSTRAP_TICKET" in reason_of(captured(token))


def test_ticket_file_goes_before_the_environment_and_is_removed(tmp_path: Path) -> None:
    environment = captured(b"bootstrap_1")
    path = private(tmp_path / "ticket", b"bootstrap_2\n")

    ticket = choose_ticket(environment, path, None)

    assert ticket == Secret("bootstrap_2")
    assert list(tmp_path.iterdir()) == []
    assert environment.token == bytearray(11)


def test_credential_is_taken_when_nothing_else_is_there_and_stays(tmp_path: Path) -> None:
    private(tmp_path / CREDENTIAL_NAME, b"bootstrap_3")

    assert choose_ticket(captured(None), None, str(tmp_path)) == Secret("bootstrap_3")
    assert choose_ticket(captured(b"bootstrap_1"), None, str(tmp_path)) == Secret("bootstrap_1")
    assert [path.name for path in tmp_path.iterdir()] == [CREDENTIAL_NAME]


def test_credential_is_taken_when_an_access_list_shows_as_the_group_s_bits(tmp_path: Path) -> None:
    path = Path(private(tmp_path / CREDENTIAL_NAME, b"bootstrap_3"))

    path.chmod(0o440)
    assert choose_ticket(captured(None), None, str(tmp_path)) == Secret("bootstrap_3")
    for mode in (0o404, 0o460, 0o410):
        path.chmod(mode)
        assert f"{mode:04o}" in reason_of(captured(None), None, str(tmp_path))


def test_credentials_directory_without_ours_counts_for_nothing(tmp_path: Path) -> None:
    assert "is not set" in reason_of(captured(None), None, str(tmp_path))


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff", b"a" * (TICKET_BYTES_MAX + 1)])
def test_ticket_file_is_refused_when_it_holds_no_ticket(tmp_path: Path, content: bytes) -> None:
    assert "the ticket file" in reason_of(captured(None), private(tmp_path / "ticket", content))


def test_ticket_file_is_refused_when_others_may_read_it(tmp_path: Path) -> None:
    path = private(tmp_path / "ticket", b"bootstrap_1")
    Path(path).chmod(0o644)

    assert "0644" in reason_of(captured(None), path)
    assert Path(path).read_bytes() == b"bootstrap_1"


def test_ticket_file_is_refused_when_it_is_no_regular_file(tmp_path: Path) -> None:
    target = private(tmp_path / "target", b"bootstrap_1")
    (tmp_path / "link").symlink_to(target)
    (tmp_path / "directory").mkdir(mode=0o700)
    os.mkfifo(tmp_path / "fifo", 0o600)

    for name in ("link", "directory", "fifo", "absent"):
        assert reason_of(captured(None), str(tmp_path / name)).startswith("the ticket file: ")
    assert Path(target).read_bytes() == b"bootstrap_1"
