"""Tests that the joined test of a policy's patterns agrees with each pattern alone."""

import pytest

from lbcore.plan.filter.policies import matcher

PATTERNS = (
    "t/stores",
    "t/new.*",
    "b1:8080",
    "b2.*:80",
    "(?i)T/up",
    "^t/edge$",
    "t/a|t/b",
    r"\Qt/quote.",
    "t/(",
    ".*",
)
TEXTS = ("t/stores", "t/new", "t/new\n", "b1:8080", "b22:80", "t/UP", "t/edge", "t/b", "t/quote.")
LISTS = (*(PATTERNS[:count] for count in range(len(PATTERNS))), PATTERNS[4:7])


@pytest.mark.parametrize("patterns", LISTS)
def test_list_matches_what_one_of_its_patterns_matches(patterns: tuple[str, ...]) -> None:
    alone = [matcher((pattern,)) for pattern in patterns]
    for text in (*TEXTS, "x"):
        assert matcher(patterns)(text) == any(test(text) for test in alone), text


def test_patterns_too_large_for_one_are_matched_in_turn() -> None:
    patterns = tuple(f"(x{at}|y[a-z]{{900}})" for at in range(1_000))
    assert matcher(patterns)("x999")
    assert not matcher(patterns)("x1000")
