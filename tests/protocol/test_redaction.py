"""Credentials go, by name or by shape; prose, identities and counters stay."""

import json
import subprocess
import sys
from typing import Any, Final

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from protocol.errors import ErrorCode
from protocol.limits import DIAGNOSTIC_BYTES_MAX
from protocol.redaction import CUT, MARK, bounded_diagnostic, redact_text, redact_value

HEX: Final = "0123456789abcdef" * 4
JWT: Final = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4fw"
PEM: Final = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAK\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("password=hunter2", f"password={MARK}"),
        ("PASSWORD: correcthorse, user bob", f"PASSWORD: {MARK}, user bob"),
        ('{"apiKey": "abc def", "x": 1}', f'{{"apiKey": "{MARK}", "x": 1}}'),
        ('{"api_key":"a\\"b","x":1}', f'{{"api_key":"{MARK}","x":1}}'),
        (r'"{\"token\":\"a\\\"b\",\"x\":1}"', rf'"{{\"token\":\"{MARK}\",\"x\":1}}"'),
        ("os.environ['TOKEN'] = 'x y'", f"os.environ['TOKEN'] = '{MARK}'"),
        ("token: 'never closed\nnext line", f"token: '{MARK}\nnext line"),
        ("my-client-secret => abc", f"my-client-secret => {MARK}"),
        ("--token abc --user bob", f"--token {MARK} --user bob"),
        ("--client-secret-value abc", f"--client-secret-value {MARK}"),
        ("the password hunter2.", f"the password {MARK}."),
        ("Authorization: Bearer abc.def", f"Authorization: Bearer {MARK}"),
        ("authorization: Basic dXNlcjpwYXNz.", f"authorization: Basic {MARK}."),
        ("bearer abc", f"bearer {MARK}"),
        ("Set-Cookie: a=b; c=d\nnext", f"Set-Cookie: {MARK}\nnext"),
        ("secrets: [one, two] three", f"secrets: {MARK}"),
        ("GET /x?access_token=abc&page=2", f"GET /x?access_token={MARK}&page=2"),
        ("https://user:p@ss@host/path", f"https://user:{MARK}@host/path"),
        (f"loginUrl={JWT}", f"loginUrl={MARK}"),
        (f"sent {JWT} to it", f"sent {MARK} to it"),
        ("key sk-abcdefghijkl1234", f"key {MARK}"),
        (f"ghp_{'a1' * 12} github_pat_{'b2' * 12}", f"{MARK} {MARK}"),
        (f"before {PEM} after", f"before {MARK} after"),
        (json.dumps({"key": PEM}), f'{{"key": "{MARK}"}}'),
        (PEM.partition("-----END")[0], MARK),
        (f"used bootstrap_{HEX}.", f"used {MARK}."),
        (f"lease_{HEX}", MARK),
        ("lease_b409dee2-54da-46dd-95cf-615bb92bf128", MARK),
        ("PAPERCLIP_RUNNER_BOOTSTRAP_TICKET=abc runnerd", None),
        ("access_token: hunter", f"access_token: {MARK}"),
        ('"accessTokens": ["abc"]', f'"accessTokens": {MARK}'),
    ],
)
def test_credential_is_taken_out_and_its_surroundings_stay(text: str, redacted: str | None) -> None:
    if redacted is None:
        redacted = text.replace("abc", MARK)

    assert redact_text(text) == redacted


@pytest.mark.parametrize(
    "text",
    [
        "exchange the ticket for a lease",
        "SyntaxError: Unexpected token } in JSON at position 5",
        "Unexpected token: '}'",
        "invalid token: unexpected end of input",
        "the token expired at 12:30",
        "ticket ABC-123 was closed, see ticket https://tracker.example/browse/ABC-123",
        "Token budget left: 5",
        "inputTokens: 5, outputTokens=7, max_completion_tokens=4,096",
        '{"tokens":{"input":5,"cache":{"read":1}},"a":"b"}',
        '"tokenBudget": null',
        "password: none",
        "secret=",
        "authorizationBoundary: active_task",
        "protocol_things.harness_driver.executor_module",
        f"credential sha256:{HEX} is unknown",
        "connection_lease_b409dee2-54da-46dd-95cf-615bb92bf128",
        f"lease_{HEX[:32]}",
        "sk-short and gh_x",
        "https://user@host:8080/path",
        "",
    ],
)
def test_text_without_a_credential_is_not_damaged(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.parametrize("code", ErrorCode)
def test_own_error_messages_are_not_damaged(code: ErrorCode) -> None:
    text = f"{code.value}: the frame was refused"

    assert redact_text(text) == text


FRAGMENTS: Final = [
    *"\"'`\\:=,.;&<>()[]{}- \n\tab1",
    "token",
    "password",
    "Authorization",
    "cookie",
    "bearer ",
    "api_key",
    "tokens",
    "hunter2x",
    "null",
    "://u:p@h",
    "eyJabcdefgh.abcdefgh.abcdefgh",
    "-----BEGIN PRIVATE KEY-----",
    "-----END PRIVATE KEY-----",
    MARK,
    "é😀",
]
mixtures = st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join)


@given(st.text() | mixtures)
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    once = redact_text(text)

    assert redact_text(once) == once


@given(
    st.sampled_from(["password", "X-Api-Key", "CLIENT_SECRET", "private-key", "jwt"]),
    st.sampled_from(["=", ":", ": ", '": "', "='", r"\":\""]),
    st.text(alphabet=st.characters(categories=["L", "N"]), min_size=8, max_size=30),
    mixtures,
)
def test_assigned_value_never_survives(name: str, sign: str, value: str, rest: str) -> None:
    assume(value not in rest and value.lower() != "undefined")

    assert value not in redact_text(f"{rest}\n{name}{sign}{value} {rest}")


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "a.",
        "token",
        "token ",
        "token:",
        'token="',
        r"token=\"",
        "token: 'x",
        "://a:",
        "-----BEGIN PRIVATE KEY-----",
        "eyJabcdefgh.",
        "-",
        "\\",
        '"',
        "tokens={a:",
        "bootstrap_",
        "cookie: a\n",
    ],
)
def test_long_hostile_text_comes_to_an_end(piece: str) -> None:
    # Were a pattern quadratic, this would take minutes.
    text = piece * (2**18 // len(piece))

    assert isinstance(redact_text(text), str)


# --- Values -----------------------------------------------------------------------------------


def test_secret_members_are_replaced_and_the_rest_is_kept() -> None:
    value: Any = {
        "user": "bob",
        "apiKey": "abc",
        "nested": [{"session-token": {"a": 1}}, "password=x", 5, None],
        "ticketNumber": 5,
        "usage": {"inputTokens": 5, "tokens": {"total": 9}, "tokensUsed": 3},
        "tokenBudget": None,
        "tokenBudgetControl": True,
        "tokens": ["abc"],
        "authorizationBoundary": "active_task",
    }

    assert redact_value(value) == {
        "user": "bob",
        "apiKey": MARK,
        "nested": [{"session-token": MARK}, f"password={MARK}", 5, None],
        "ticketNumber": MARK,
        "usage": {"inputTokens": 5, "tokens": {"total": 9}, "tokensUsed": 3},
        "tokenBudget": None,
        "tokenBudgetControl": True,
        "tokens": MARK,
        "authorizationBoundary": "active_task",
    }


@pytest.mark.parametrize("boundary", ["hunter2", ["active_task"], 5])
def test_boundary_that_is_no_known_word_is_replaced(boundary: Any) -> None:
    assert redact_value({"authorizationBoundary": boundary}) == {"authorizationBoundary": MARK}


def test_credential_in_a_member_name_is_replaced() -> None:
    assert redact_value({f"lease_{HEX}": 1}) == {MARK: 1}


def test_value_is_not_changed_in_place() -> None:
    value: Any = {"a": [{"password": "x"}]}

    redact_value(value)

    assert value == {"a": [{"password": "x"}]}


# --- Diagnostics ------------------------------------------------------------------------------


def test_diagnostic_is_cut_at_a_character_within_its_bytes() -> None:
    cut = bounded_diagnostic("é" * DIAGNOSTIC_BYTES_MAX)

    assert cut.endswith(CUT)
    assert set(cut.removesuffix(CUT)) == {"é"}
    assert DIAGNOSTIC_BYTES_MAX - 1 <= len(cut.encode()) <= DIAGNOSTIC_BYTES_MAX
    assert bounded_diagnostic(cut) == cut


def test_diagnostic_that_fits_is_whole() -> None:
    assert bounded_diagnostic("x" * DIAGNOSTIC_BYTES_MAX) == "x" * DIAGNOSTIC_BYTES_MAX
    assert bounded_diagnostic("") == ""


def test_diagnostic_is_redacted_before_it_is_cut() -> None:
    padding = "x" * (DIAGNOSTIC_BYTES_MAX - 30)

    assert "hunter2" not in bounded_diagnostic(f"{padding} password={'hunter2' * 100}")


@given(st.text(alphabet=st.characters()))
def test_any_text_gives_a_diagnostic_that_can_be_stored(text: str) -> None:
    assert len(bounded_diagnostic(text + "\ud800").encode()) <= DIAGNOSTIC_BYTES_MAX


@pytest.mark.process
def test_patterns_are_not_loaded_before_the_first_use() -> None:
    script = (
        "import sys, protocol.redaction as r\n"
        "assert 'protocol.credential_text' not in sys.modules\n"
        "assert r.redact_text('password=x') == 'password=[REDACTED]'\n"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)

    assert (done.returncode, done.stderr) == (0, b"")
