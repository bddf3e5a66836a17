"""Semantic versions of brokers, and which of them are the latest.

Decides which brokers run the latest version; not whether that matters (`prefer_later_versions`).
Used by both filter pipelines. Source: Pulsar 4.0.8 BrokerVersionFilter, with java-semver's order.

Worked: of 4.0.8, 4.1.0-rc.2 and 4.1.0-rc.10 the last is the latest. Build metadata orders versions
that are otherwise equal, and equal versions are all the latest: brokers of 4.1.0+1 and of 4.1.0+2
both stay. So it must be readable and changes nothing.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from itertools import pairwise

import numpy as np

from lbcore.plan.snapshot import Ints

UNREADABLE = -1

_NUMBER = "(0|[1-9][0-9]*)"
_IDENTIFIER = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_BUILD_IDENTIFIER = "[0-9A-Za-z-]+"
_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}"
    rf"(?:-({_IDENTIFIER}(?:\.{_IDENTIFIER})*))?"
    rf"(?:\+({_BUILD_IDENTIFIER}(?:\.{_BUILD_IDENTIFIER})*))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SemanticVersion:
    """major.minor.patch, then pre-release and build identifiers, () without any."""

    core: tuple[int, int, int]
    pre_release: tuple[str, ...]
    build: tuple[str, ...]


def parse_version(text: str) -> SemanticVersion | None:
    """The version of a text, None when it is missing or not a semantic version."""
    found = _VERSION.fullmatch(text)
    if found is None:
        return None
    major, minor, patch, pre_release, build = found.groups()
    return SemanticVersion(
        core=(int(major), int(minor), int(patch)),
        pre_release=tuple(pre_release.split(".")) if pre_release else (),
        build=tuple(build.split(".")) if build else (),
    )


def compare_versions(left: SemanticVersion, right: SemanticVersion) -> int:
    """-1, 0 or 1 by precedence: a pre-release comes before its release, build doesn't count."""
    if left.core != right.core:
        return -1 if left.core < right.core else 1
    if not left.pre_release or not right.pre_release:
        return bool(right.pre_release) - bool(left.pre_release)
    return _compare_identifiers(left.pre_release, right.pre_release)


def version_levels(texts: Sequence[str]) -> Ints:
    """The level of each version, int64[n]: equal for equal ones, higher for later; -1 = unreadable.

    O(distinct versions x log).
    """
    versions = {text: parse_version(text) for text in dict.fromkeys(texts)}
    known = [version for version in versions.values() if version is not None]
    known.sort(key=cmp_to_key(compare_versions))
    level = dict.fromkeys(known[:1], 0)
    for before, version in pairwise(known):
        level[version] = level[before] + (compare_versions(before, version) < 0)
    by_text = {
        text: UNREADABLE if found is None else level[found] for text, found in versions.items()
    }
    return np.array([by_text[text] for text in texts], dtype=np.int64)


def _compare_identifiers(left: Sequence[str], right: Sequence[str]) -> int:
    """Identifier by identifier; of equal beginnings the longer one is later."""
    for mine, other in zip(left, right, strict=False):
        if mine == other:
            continue
        if mine.isdigit() and other.isdigit() and int(mine) != int(other):
            return -1 if int(mine) < int(other) else 1
        if not (mine.isdigit() and other.isdigit()):
            return -1 if mine < other else 1
    return (len(left) > len(right)) - (len(left) < len(right))
