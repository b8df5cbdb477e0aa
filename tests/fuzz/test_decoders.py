"""Spoiled input gives a value or a typed refusal; a value survives its own spelling (I18, W11)."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.effort import cases
from tests.fuzz.decoders import DECODERS, Decoder
from tests.fuzz.mutations import spoiled

QUICK = settings(
    max_examples=cases(40),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def judge(decoder: Decoder, content: bytes) -> None:
    """Read, and read again what was read; anything but a value or a code is raised."""
    try:
        value = decoder.read(content)
    except decoder.refusals:
        return
    except SystemExit as ended:
        if ended.code:
            raise
        # Help was asked for, and shown.
        return
    if decoder.again is not None:
        spelled = decoder.again(value)
        assert decoder.again(decoder.read(spelled)) == spelled


@pytest.mark.parametrize("name", DECODERS)
def test_decoder_takes_its_samples(name: str) -> None:
    decoder = DECODERS[name]

    for sample in decoder.samples:
        decoder.read(sample)
        judge(decoder, sample)


@pytest.mark.parametrize("name", DECODERS)
def test_spoiled_input_gives_a_value_or_a_code(name: str) -> None:
    decoder = DECODERS[name]

    @QUICK
    @given(st.one_of([spoiled(sample) for sample in decoder.samples]))
    def check(content: bytes) -> None:
        judge(decoder, content)

    check()


def test_judge_fails_when_a_decoder_raises_something_else() -> None:
    def raises(content: bytes) -> str:
        return content.decode()

    with pytest.raises(UnicodeDecodeError):
        judge(Decoder(read=raises, samples=()), b"\xff")


def test_judge_fails_when_a_value_does_not_survive_its_spelling() -> None:
    lossy = Decoder(read=lambda content: content[:-1], samples=(), again=lambda value: value)

    with pytest.raises(AssertionError):
        judge(lossy, b"abc")
