"""Text from anywhere, as every parser takes it."""

import sys

import pytest

from lbcore.agent.reporting import PART_CHARS_MAX, in_parts
from lbcore.config.wire import Wire
from lbcore.wire.format import format_message, plain_text
from lbcore.wire.messages import Ack, AckOutcome, Acks, Envelope
from lbcore.wire.parse import parse
from lbcore.wire.rules import ParseRules

WIDE = "\U0001f600"


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("", ""),
        ("disk full", "disk full"),
        ("two  blanks", "two blanks"),
        (" a\tb\r\n\x00d ", "a b d"),
        ("\u2028\u200b\x85", ""),
        ("größe ok", "größe ok"),
        ("\udc80x\ud83d", "?x?"),
        ("a" * 10, "a" * 10),
        ("a" * 11, "a" * 7 + "..."),
        (WIDE * 11, WIDE * 7 + "..."),
        ("\n" * 50 + "a", "..."),
    ],
)
def test_text_is_printable_short_and_the_same_where_nothing_is_wrong(text: str, plain: str) -> None:
    assert plain_text(text, 10) == plain


def test_every_character_there_is_can_be_sent_as_a_reason() -> None:
    limits = Wire(max_text_chars=256, max_bundles_per_message=100_000, max_message_bytes=16_777_216)
    chars = [chr(code) * 3 for code in range(0, sys.maxunicode + 1, 97)] + [chr(0xDCFF)]
    sent = acks_of([*chars, "x" * 5_000, "\x00" * 5_000])
    parsed = parse(*format_message(sent), ParseRules(clusters=frozenset("c"), limits=limits))
    assert isinstance(parsed, Acks), parsed
    assert len(parsed.acks) == len(sent.acks)


@pytest.mark.parametrize("reason", ["x" * 5_000, WIDE * 5_000, '"\\' * 5_000, "\udc80" * 5_000])
def test_parts_of_acks_are_read_whatever_their_reasons(reason: str) -> None:
    acks = acks_of([reason] * 2_000).acks
    parts = in_parts(acks, 2_000)
    assert [ack for part in parts for ack in part] == list(acks)
    for part in parts:
        message = Acks(envelope=envelope(), acks=tuple(part))
        parsed = parse(*format_message(message), ParseRules(clusters=frozenset("c"), limits=Wire()))
        assert isinstance(parsed, Acks), parsed


def test_parts_of_acks_without_reasons_are_as_large_as_they_may_be() -> None:
    acks = acks_of([""] * 1_000).acks
    assert [len(part) for part in in_parts(acks, 600)] == [600, 400]
    assert len(acks[0].bundle) * 600 < PART_CHARS_MAX


def acks_of(reasons: list[str]) -> Acks:
    acks = tuple(
        Ack(
            bundle=f"t/n/{number:#010x}_0xffffffff",
            version_id=1,
            outcome=AckOutcome.FAILED,
            reason=reason,
        )
        for number, reason in enumerate(reasons)
    )
    return Acks(envelope=envelope(), acks=acks)


def envelope() -> Envelope:
    return Envelope(cluster="c", broker="b", incarnation="i", seq=1, reported_at_ms=1)
