"""Semantic versions of brokers."""

import pytest

from lbcore.plan.filter.pipeline import compare_versions, parse_version, version_levels

RISING = [
    "0.9.0",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0",
    "1.0.1",
    "1.10.0",
    "2.0.0-SNAPSHOT",
    "2.0.0",
]


def test_versions_rise_as_semver_says() -> None:
    assert version_levels(RISING).tolist() == list(range(len(RISING)))
    assert version_levels(RISING[::-1]).tolist() == list(range(len(RISING)))[::-1]


def test_build_metadata_is_read_and_distinguishes_nothing() -> None:
    assert version_levels(["1.0.0+1", "1.0.0+2", "1.0.0", "1.0.1"]).tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize(
    "text", ["", "1", "1.2", "1.2.3.4", "01.2.3", "1.2.x", "v1.2.3", "1.2.3-", "1.2.3+", "1.2.3-01"]
)
def test_text_that_is_no_semantic_version_is_unreadable(text: str) -> None:
    assert parse_version(text) is None
    assert version_levels([text, "1.0.0"]).tolist() == [-1, 0]


def test_comparison_of_equal_precedence_is_zero() -> None:
    left, right = parse_version("1.0.0-rc.1+5"), parse_version("1.0.0-rc.1")
    assert left is not None
    assert right is not None
    assert compare_versions(left, right) == 0


def test_levels_of_no_versions_are_none() -> None:
    assert version_levels([]).tolist() == []
