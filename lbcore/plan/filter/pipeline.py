"""Filters in Pulsar's order with its fallbacks: brokers that may take a bundle.

Called for one bundle after the other; bundles placed before count. Each filter takes the brokers
that are left, int64 and ascending, and returns those that it keeps. Source: Pulsar 4.0.8
ModularLoadManagerImpl.selectBroker, ExtensibleLoadManagerImpl.selectAsync, LoadManagerShared;
BrokerVersionFilter with java-semver's order.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from lbcore.config.placement import EXTENSIBLE, FilterConfig
from lbcore.plan.filter.index import (
    CandidateIndex,
    FilterVerdict,
    GroupCounts,
    NamespaceCounts,
    Verdicts,
)
from lbcore.plan.snapshot import Bools, Ints, Snapshot

UNREADABLE = -1

_NUMBER = "(0|[1-9][0-9]*)"
_IDENTIFIER = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}"
    rf"(?:-({_IDENTIFIER}(?:\.{_IDENTIFIER})*))?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)


class SemanticVersion(NamedTuple):
    """Major, minor and patch, then pre-release identifiers, () without any."""

    core: tuple[int, ...]
    pre_release: tuple[str, ...]


def parse_version(text: str) -> SemanticVersion | None:
    """Return the version of a text; None if it is no semantic version."""
    found = _VERSION.fullmatch(text)
    if found is None:
        return None
    *core, pre_release = found.groups()
    identifiers = tuple(pre_release.split(".")) if pre_release else ()
    return SemanticVersion(tuple(map(int, core)), identifiers)


def compare_versions(left: SemanticVersion, right: SemanticVersion) -> int:
    """Compare two versions by precedence: -1, 0 or 1.

    A pre-release comes before its release, build metadata doesn't count: 4.0.8 < 4.1.0-rc.2 <
    4.1.0-rc.10 < 4.1.0+1 = 4.1.0+2. If all identifiers are equal, the longer list is later.
    """
    if left.core != right.core:
        return -1 if left.core < right.core else 1
    mines, others = left.pre_release, right.pre_release
    if not mines or not others:
        return bool(others) - bool(mines)
    for mine, other in zip(mines, others, strict=False):
        kind: Callable[[str], Any] = int if mine.isdigit() and other.isdigit() else str
        if kind(mine) != kind(other):
            return -1 if kind(mine) < kind(other) else 1
    return (len(mines) > len(others)) - (len(mines) < len(others))


def version_levels(texts: Sequence[str]) -> Ints:
    """Return the rank of each version, int64[n]; equal versions have equal ranks.

    Later versions rank higher; -1 = unreadable. O(distinct versions x log).
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


def of_latest_version(candidates: Ints, levels: Ints) -> Ints | None:
    """Keep the brokers of the latest version among the candidates.

    None if a version is unreadable: BrokerVersionFilter throws then. levels: int64[n], of
    `version_levels`.
    """
    if not len(candidates):
        return candidates
    own = levels[candidates]
    if own.min() == UNREADABLE:
        return None
    kept: Ints = candidates[own == own.max()]
    return kept


def at_minimum(candidates: Ints, counts: Ints) -> Ints:
    """Keep the brokers with the least count among the candidates. counts: int64[n].

    Even distribution (bundles of the namespace) and anti-affinity (namespaces of the group):
    LoadManagerShared.removeMostServicingBrokersForNamespace, filterAntiAffinityGroupOwnedBrokers.
    """
    if not len(candidates):
        return candidates
    own = counts[candidates]
    kept: Ints = candidates[own == own[own.argmin()]]
    return kept


SYSTEM_NAMESPACE = "pulsar/system"


class Narrowed(NamedTuple):
    """The brokers that may take a bundle, as ascending indices.

    left: after all filters; in the modular pipeline, `admitted` if they left none or the version
    filter failed (is_failed). admitted: after policy, exclusion and pin only.
    """

    left: Ints
    admitted: Ints
    is_failed: bool = False


class FilterQuestion(NamedTuple):
    """One bundle to find brokers for.

    bundle: its row. excluded: a broker that may not take it (its source), -1 = none. pin: the
    broker that it is pinned to, -1 = none; ignored if that broker is closed or not admitted, as the
    bundle must be served.
    """

    bundle: int
    excluded: int = -1
    pin: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterPipeline:
    """Filters with counts that grow as bundles are placed.

    topics: int64[n], reported plus planned. spaces, groups: see `index`. has_class: bool[n],
    reports the wanted load manager class. levels: int64[n], of `version_levels`.
    is_topic_limit_far: no broker can reach the topic limit in this plan.
    """

    snapshot: Snapshot
    index: CandidateIndex
    config: FilterConfig
    topics: Ints
    spaces: NamespaceCounts
    groups: GroupCounts
    has_class: Bools
    levels: Ints
    is_topic_limit_far: bool

    @staticmethod
    def of(
        snapshot: Snapshot, index: CandidateIndex, config: FilterConfig, placing: Ints
    ) -> "FilterPipeline":
        """Return a pipeline for the bundles `placing` (rows of the snapshot's bundles)."""
        bundles, brokers = snapshot.bundles, len(snapshot.brokers.names)
        topics = snapshot.brokers.topic_count.copy()
        topics_max = int(topics.max(initial=0)) + int(bundles.topics[placing].sum())
        return FilterPipeline(
            snapshot=snapshot,
            index=index,
            config=config,
            topics=topics,
            spaces=NamespaceCounts.of(bundles, placing, brokers),
            groups=GroupCounts.of(bundles, index.group, index.groups, brokers),
            has_class=np.array(
                [
                    name == config.load_manager_class
                    for name in snapshot.brokers.load_manager_classes
                ],
                dtype=np.bool_,
            ),
            levels=version_levels(snapshot.brokers.versions),
            is_topic_limit_far=topics_max < config.max_topics_per_broker,
        )

    def candidates(self, question: FilterQuestion, verdicts: Verdicts | None = None) -> Narrowed:
        """Return the brokers that may take the bundle.

        verdicts: int8[n]; when given, overwritten with each broker's verdict.
        """
        if self.config.pipeline == EXTENSIBLE:
            return self._extensible(question, verdicts)
        return self._modular(question, verdicts)

    def count_placed(self, bundle: int, broker: int) -> None:
        """Count a bundle of this plan on its broker."""
        bundles = self.snapshot.bundles
        namespace = int(bundles.namespace[bundle])
        self.topics[broker] += bundles.topics[bundle]
        self.spaces.add(namespace, broker)
        group = int(self.index.group[namespace])
        if group >= 0:
            self.groups.add(namespace, group, broker)

    def _modular(self, question: FilterQuestion, verdicts: Verdicts | None) -> Narrowed:
        row = int(self.index.row[question.bundle])
        if verdicts is not None:
            verdicts[:] = self.index.verdicts[row]
        admitted = self._chosen(self.index.admitted[row], question, verdicts)
        left = self._within_topics(admitted, verdicts)
        left = self._anti_affinity(left, question, verdicts)
        left = self._even(left, question, verdicts)
        of_same_class = self._same_class(left, verdicts)
        latest = self._latest(of_same_class, verdicts)
        if latest is not None and len(latest):
            return Narrowed(left=latest, admitted=admitted)
        _note(verdicts, admitted, admitted, FilterVerdict.OK)  # all of them again
        return Narrowed(left=admitted, admitted=admitted, is_failed=latest is None)

    def _extensible(self, question: FilterQuestion, verdicts: Verdicts | None) -> Narrowed:
        """Apply the extensible manager's filters; ignore a version filter that fails.

        May leave no broker.
        """
        if verdicts is not None:
            verdicts[:] = self.index.open_verdicts
        admitted = self._chosen(self.index.open, question, verdicts)
        left = self._same_class(admitted, verdicts)
        below = self._within_topics(left, verdicts)
        latest = self._latest(below, verdicts)
        left = below if latest is None else latest
        left = self._anti_affinity(left, question, verdicts)
        row = int(self.index.row[question.bundle])
        policy = self.index.verdicts[row]
        isolated: Ints = left[policy[left] == FilterVerdict.OK]
        if verdicts is not None:
            verdicts[left] = policy[left]
        return Narrowed(left=isolated, admitted=admitted, is_failed=latest is None)

    def _chosen(self, brokers: Ints, question: FilterQuestion, verdicts: Verdicts | None) -> Ints:
        """Leave out the excluded broker; keep only the pinned one if that is admitted."""
        if question.excluded >= 0:
            kept = brokers[brokers != question.excluded]
            _note(verdicts, brokers, kept, FilterVerdict.CURRENT_OWNER)
            brokers = kept
        if question.pin < 0 or not (brokers == question.pin).any():
            return brokers
        row = int(self.index.row[question.bundle])
        # the extensible pipeline applies policies last
        if self.index.verdicts[row, question.pin] != FilterVerdict.OK:
            return brokers
        pinned: Ints = brokers[brokers == question.pin]
        _note(verdicts, brokers, pinned, FilterVerdict.PINNED_ELSEWHERE)
        return pinned

    def _within_topics(self, left: Ints, verdicts: Verdicts | None) -> Ints:
        """Leave out brokers with too many topics, planned ones included.

        Modular manager: above the limit, unless all are
        (LoadManagerShared.filterBrokersWithLargeTopicCount). Extensible manager: at the limit,
        even if none is left (BrokerMaxTopicCountFilter).
        """
        if self.is_topic_limit_far:
            return left
        topics, limit = self.topics[left], self.config.max_topics_per_broker
        if self.config.pipeline == EXTENSIBLE:
            kept = left[topics < limit]
        else:
            kept = left[topics <= limit] if (topics <= limit).any() else left
        _note(verdicts, left, kept, FilterVerdict.TOO_MANY_TOPICS)
        return kept

    def _anti_affinity(
        self, left: Ints, question: FilterQuestion, verdicts: Verdicts | None
    ) -> Ints:
        """Keep brokers with fewest namespaces of the group, in the emptiest domains."""
        if not self.index.groups or not len(left):
            return left
        group = int(self.index.group[self.snapshot.bundles.namespace[question.bundle]])
        if group < 0:
            return left
        counts = self.groups.counts[group]
        if self.config.failure_domains and len(self.index.domain):
            domain = self.index.domain[left]
            held = np.bincount(domain, weights=counts[left])[domain]
            in_domains = left[held == held.min()]
            _note(verdicts, left, in_domains, FilterVerdict.FAILURE_DOMAIN)
            left = in_domains
        least = at_minimum(left, counts)
        _note(verdicts, left, least, FilterVerdict.ANTI_AFFINITY)
        return least

    def _even(self, left: Ints, question: FilterQuestion, verdicts: Verdicts | None) -> Ints:
        namespace = int(self.snapshot.bundles.namespace[question.bundle])
        is_system = self.snapshot.bundles.namespaces[namespace] == SYSTEM_NAMESPACE
        if not (self.config.distribute_evenly or is_system):
            return left
        counts = self.spaces.counts(namespace)
        if counts is None:
            return left
        least = at_minimum(left, counts)
        _note(verdicts, left, least, FilterVerdict.UNEVEN)
        return least

    def _same_class(self, left: Ints, verdicts: Verdicts | None) -> Ints:
        """Keep brokers that report the wanted load manager class.

        BrokerLoadManagerClassFilter. A broker that reports no class is left out.
        """
        if not self.config.load_manager_class:
            return left
        kept = left[self.has_class[left]]
        _note(verdicts, left, kept, FilterVerdict.LOAD_MANAGER_CLASS)
        return kept

    def _latest(self, left: Ints, verdicts: Verdicts | None) -> Ints | None:
        if not self.config.prefer_later_versions:
            return left
        kept = of_latest_version(left, self.levels)
        if kept is not None:
            _note(verdicts, left, kept, FilterVerdict.OLDER_VERSION)
        return kept


def _note(verdicts: Verdicts | None, before: Ints, after: Ints, verdict: FilterVerdict) -> None:
    """Write the verdict for the brokers in `before` that are not in `after`."""
    if verdicts is not None and (len(after) < len(before) or verdict == FilterVerdict.OK):
        verdicts[before] = verdict
        verdicts[after] = FilterVerdict.OK


def empty_verdicts(snapshot: Snapshot) -> Verdicts:
    """Return a row to pass to `FilterPipeline.candidates`."""
    return np.zeros(len(snapshot.brokers.names), dtype=np.int8)
