"""One list of codes, one reaction each, and no secret in a log; each rule notices a breach."""

from pathlib import Path

import pytest

from protocol.errors import EXIT_STATUSES, ErrorCode, ExitStatus, exit_status
from protocol.reactions import REACTIONS, Reaction
from tests.architecture.source import Module, product
from tests.architecture.words import code_literal_complaints, log_complaints, table_complaints

FROZEN = Path(__file__).with_name("error_codes.txt")
CODES = frozenset(code.value for code in ErrorCode)
ERRORS = "protocol.errors"
REACTION_TABLE = "protocol.reactions"


def module_of(name: str) -> Module:
    return next(module for module in product() if module.name == name)


def test_codes_are_exactly_those_of_the_frozen_list() -> None:
    """A code is never renamed and never reused; a new one gets a line of its own."""
    lines = FROZEN.read_text(encoding="utf-8").splitlines()

    assert lines == sorted(set(lines))
    assert sorted(CODES) == lines


def test_codes_are_spelled_like_their_names() -> None:
    assert [code.value for code in ErrorCode] == [code.name.lower() for code in ErrorCode]


def test_each_code_has_exactly_one_reaction() -> None:
    names = frozenset(code.name for code in ErrorCode)

    assert set(REACTIONS) == set(ErrorCode)
    assert list(table_complaints(module_of(REACTION_TABLE), "REACTIONS", names)) == []


def test_each_code_that_ends_a_process_has_one_documented_status_and_no_other_has() -> None:
    ending = frozenset(code for code in ErrorCode if REACTIONS[code] is Reaction.EXIT)

    assert set(EXIT_STATUSES) == ending
    names = frozenset(code.name for code in ending)
    assert list(table_complaints(module_of(ERRORS), "EXIT_STATUSES", names)) == []


def test_no_fault_ends_a_process_as_if_all_were_well() -> None:
    statuses = {exit_status(code) for code in ErrorCode}

    assert not statuses & {ExitStatus.OK, ExitStatus.RUN_FAILED, ExitStatus.RUN_CANCELLED}
    assert len({status.value for status in ExitStatus}) == len(ExitStatus.__members__)


def test_codes_are_named_and_not_spelled_outside_their_table() -> None:
    found = [
        line
        for module in product()
        if module.name != ERRORS
        for line in code_literal_complaints(module, CODES)
    ]

    assert found == []


def test_log_calls_say_snake_case_facts_and_no_secret() -> None:
    assert [line for module in product() for line in log_complaints(module)] == []


@pytest.mark.parametrize(
    "text",
    [
        "code = 'state_locked'",
        "EXIT_CODE: str = 'state_locked'",
        "is_locked = error.code == 'state_locked'",
        "is_locked = error.code.value in ('state_locked', 'other')",
        "refuse(code='state_locked')",
        "answer = {'code': 'state_locked'}",
        "raise PrpError('state_locked', 'words')",
    ],
)
def test_spelling_rule_fails_when_a_code_is_spelled(text: str) -> None:
    assert len(list(code_literal_complaints(Module("runnerd.a", text), CODES))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "log.info('state_locked', code=code.value)",
        "fact = INFO, 'state_locked', {'code': code.value}",
        "is_locked = error.code is ErrorCode.STATE_LOCKED",
    ],
)
def test_spelling_rule_is_content_when_the_words_are_no_code(text: str) -> None:
    assert list(code_literal_complaints(Module("runnerd.a", text), CODES)) == []


@pytest.mark.parametrize(
    "table",
    [
        "T: D = {ErrorCode.ONE: 1}",
        "T: D = {ErrorCode.ONE: 1, ErrorCode.TWO: 2, ErrorCode.ONE: 3}",
        "T: D = {ErrorCode.ONE: 1, ErrorCode.TWO: 2, ErrorCode.THREE: 3}",
    ],
)
def test_table_rule_fails_when_a_code_is_missing_doubled_or_unknown(table: str) -> None:
    names = frozenset({"ONE", "TWO"})

    assert len(list(table_complaints(Module("runnerd.a", table), "T", names))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "log.info('lease renewed')",
        "log.info(f'lease_{kind}')",
        "log.info('lease_%s', kind)",
        "log.error('failed', lease_token=token)",
        "self._log.warning('failed', reason=ticket)",
        "log.debug('sealed', bytes=channel.key)",
        "log.noted('sealed', bytes=channel.key)",
        "logger.info('opened', reason=secret.reveal())",
    ],
)
def test_log_rule_fails_when_a_sentence_or_a_secret_is_logged(text: str) -> None:
    assert len(list(log_complaints(Module("runnerd.a", text)))) == 1


def test_log_rule_is_content_with_facts() -> None:
    text = "log.info('lease_renewed', lease_id=lease.id, credential_id=credential.id, bytes=1)"

    assert list(log_complaints(Module("runnerd.a", text))) == []
