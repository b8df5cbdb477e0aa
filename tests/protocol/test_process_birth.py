"""A process is known by number, birth and boot, and by nothing it can choose."""

import os
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.process_birth import ProcessBirth, birth_unix_ms, parse_stat, same_process

BOOT = "0f5b6b1c-0000-4000-8000-000000000000"
BIRTH = ProcessBirth(
    pid=4242, process_group_id=4200, session_id=4100, start_ticks=987654, boot_id=BOOT
)


def stat_of(name: bytes) -> bytes:
    behind = b"S 1 4200 4100 0 -1 4194560 104 0 0 0 1 2 3 4 20 0 1 0 987654 2818048 166 -1 1 1 0\n"
    return b"4242 (" + name + b") " + behind


@pytest.mark.parametrize(
    "name",
    [b"sh", b"", b"a b", b")", b") S 1 2 3", b"x) R 1 1 1 1 (y", b"line\nend", b"\xff", b"12 (34"],
)
def test_stat_is_read_whatever_the_process_calls_itself(name: bytes) -> None:
    assert parse_stat(stat_of(name), BOOT) == BIRTH


@given(st.binary(max_size=15))
def test_name_never_moves_the_fields(name: bytes) -> None:
    assert parse_stat(stat_of(name), BOOT) == BIRTH


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"4242",
        b"4242 (sh",
        b"4242 (sh) S 1 2 3",
        b"(sh) S 1 4200 4100 " + b"0 " * 20,
        b"-1 (sh) S 1 4200 4100 " + b"0 " * 20,
        b"0 (sh) S 1 4200 4100 " + b"0 " * 20,
        b"4_2 (sh) S 1 4200 4100 " + b"0 " * 20,
        b"4242 (sh) S 1 -1 4100 " + b"0 " * 20,
        b"4242 (sh) S 1 x 4100 " + b"0 " * 20,
        b"9" * 5000 + b" (sh) S 1 4200 4100 " + b"0 " * 20,
    ],
)
def test_text_that_is_no_stat_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        parse_stat(text, BOOT)


@given(st.binary(max_size=60))
def test_any_text_is_read_or_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        parse_stat(text, BOOT)


@pytest.mark.parametrize("boot", ["", "b" * 65])
def test_birth_without_a_plausible_boot_is_refused(boot: str) -> None:
    with pytest.raises(ValueError):
        parse_stat(stat_of(b"sh"), boot)


def test_process_is_the_same_after_it_changed_its_group_and_session() -> None:
    moved = msgspec.structs.replace(BIRTH, process_group_id=4242, session_id=4242)

    assert same_process(BIRTH, moved)


@pytest.mark.parametrize("change", [{"pid": 1}, {"start_ticks": 1}, {"boot_id": "other"}])
def test_process_is_another_when_number_birth_or_boot_differ(change: dict[str, int | str]) -> None:
    assert not same_process(BIRTH, msgspec.structs.replace(BIRTH, **change))


def test_birth_survives_a_file_and_a_wrong_one_is_refused_on_reading() -> None:
    encoded = msgspec.json.encode(BIRTH)

    assert b'"processGroupId":4200' in encoded
    assert msgspec.json.decode(encoded, type=ProcessBirth) == BIRTH
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(encoded.replace(b"4242", b"-1"), type=ProcessBirth)


def test_instant_of_birth_is_boot_plus_ticks() -> None:
    assert birth_unix_ms(250, 1_700_000_000, 100) == 1_700_000_002_500
    with pytest.raises(ValueError):
        birth_unix_ms(250, 1_700_000_000, 0)
    with pytest.raises(ValueError):
        birth_unix_ms(250, 0, 100)


def test_own_process_is_read_from_the_kernel() -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()

    birth = parse_stat(Path("/proc/self/stat").read_bytes(), boot)

    assert (birth.pid, birth.process_group_id) == (os.getpid(), os.getpgrp())
    assert birth.session_id == os.getsid(0)
    btime = next(
        int(line.split()[1])
        for line in Path("/proc/stat").read_text(encoding="ascii").splitlines()
        if line.startswith("btime")
    )
    born = birth_unix_ms(birth.start_ticks, btime, os.sysconf("SC_CLK_TCK"))
    rounding_ms = 2_000
    assert btime * 1000 <= born <= time.time() * 1000 + rounding_ms
