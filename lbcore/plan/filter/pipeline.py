"""The filters in Pulsar's order, with its fallbacks: who may take this bundle now.

Decides the candidates of one bundle after the other, counting those placed before; not which
candidate wins. Used by the assign phase, and with a row for verdicts by dry runs. Source: Pulsar
4.0.8 ModularLoadManagerImpl.selectBroker, ExtensibleLoadManagerImpl.selectAsync.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lbcore.config.filters import EXTENSIBLE, FilterConfig
from lbcore.plan.filter.counts import GroupCounts, NamespaceCounts
from lbcore.plan.filter.index import CandidateIndex
from lbcore.plan.filter.narrow import (
    at_minimum,
    below_topic_limit,
    in_emptiest_domains,
    of_class,
    of_latest_version,
    within_topic_limit,
)
from lbcore.plan.filter.verdict import FilterVerdict, Verdicts
from lbcore.plan.filter.version import version_levels
from lbcore.plan.snapshot import Bools, Ints, Snapshot

SYSTEM_NAMESPACE = "pulsar/system"


class Narrowed(NamedTuple):
    """The brokers that may take a bundle, as ascending indices.

    left: after all filters. admitted: by its policies alone, to fall back on. is_restored: the
    filters left nobody or failed, and `left` is `admitted` again. is_failed: a filter failed.
    """

    left: Ints
    admitted: Ints
    is_restored: bool = False
    is_failed: bool = False


class FilterQuestion(NamedTuple):
    """One bundle to find brokers for.

    bundle: its row. excluded: a broker that may not take it (its source), -1 = none. pin: the
    broker it is pinned to, -1 = none; a pin to a broker that its policies don't admit, or that is
    closed, is passed over, so that the bundle is served.
    """

    bundle: int
    excluded: int = -1
    pin: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterPipeline:
    """Filters with counts that grow as bundles are placed.

    topics: int64[n], reported plus planned. spaces, groups: see `counts`. has_class: bool[n],
    advertises the wanted load manager class. levels: int64[n], see `version_levels`.
    is_topic_limit_far: nobody can reach it in this plan.
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
        """A pipeline for the bundles `placing` (rows of the snapshot's bundles)."""
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
            has_class=_has_class(snapshot, config.load_manager_class),
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

    def placed(self, bundle: int, broker: int) -> None:
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
        _start(verdicts, self.index.verdicts[row])
        admitted = self._chosen(self.index.admitted[row], question, verdicts)
        left = self._within_topics(admitted, verdicts)
        left = self._anti_affinity(left, question, verdicts)
        left = self._even(left, question, verdicts)
        of_same_class = self._same_class(left, verdicts)
        latest = self._latest(of_same_class, verdicts)
        if latest is not None and len(latest):
            return Narrowed(left=latest, admitted=admitted)
        _note(verdicts, admitted, admitted, FilterVerdict.OK)
        is_failed = latest is None
        return Narrowed(left=admitted, admitted=admitted, is_restored=True, is_failed=is_failed)

    def _extensible(self, question: FilterQuestion, verdicts: Verdicts | None) -> Narrowed:
        """A failing version filter is passed over; nobody left means nobody."""
        _start(verdicts, self.index.open_verdicts)
        admitted = self._chosen(self.index.open, question, verdicts)
        left = self._same_class(admitted, verdicts)
        below = self._within_topics(left, verdicts)
        latest = self._latest(below, verdicts)
        left = below if latest is None else latest
        left = self._anti_affinity(left, question, verdicts)
        row = int(self.index.row[question.bundle])
        policy = self.index.verdicts[row]
        isolated: Ints = left[policy[left] == FilterVerdict.OK]
        _note_each(verdicts, left, policy)
        return Narrowed(left=isolated, admitted=admitted, is_failed=latest is None)

    def _chosen(self, brokers: Ints, question: FilterQuestion, verdicts: Verdicts | None) -> Ints:
        """Without the excluded broker, and only the one it is pinned to if that is among them."""
        if question.excluded >= 0:
            kept = brokers[brokers != question.excluded]
            _note(verdicts, brokers, kept, FilterVerdict.CURRENT_OWNER)
            brokers = kept
        if question.pin < 0 or not (brokers == question.pin).any():
            return brokers
        row = int(self.index.row[question.bundle])
        if self.index.verdicts[row, question.pin] != FilterVerdict.OK:
            return brokers
        pinned: Ints = brokers[brokers == question.pin]
        _note(verdicts, brokers, pinned, FilterVerdict.PINNED_ELSEWHERE)
        return pinned

    def _within_topics(self, left: Ints, verdicts: Verdicts | None) -> Ints:
        if self.is_topic_limit_far:
            return left
        is_extensible = self.config.pipeline == EXTENSIBLE
        rule = below_topic_limit if is_extensible else within_topic_limit
        kept = rule(left, self.topics, self.config.max_topics_per_broker)
        _note(verdicts, left, kept, FilterVerdict.TOO_MANY_TOPICS)
        return kept

    def _anti_affinity(
        self, left: Ints, question: FilterQuestion, verdicts: Verdicts | None
    ) -> Ints:
        if not self.index.groups:
            return left
        group = int(self.index.group[self.snapshot.bundles.namespace[question.bundle]])
        if group < 0:
            return left
        counts = self.groups.counts[group]
        if self.config.failure_domains and len(self.index.domain):
            in_domains = in_emptiest_domains(left, counts, self.index.domain)
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
        if not self.config.load_manager_class:
            return left
        kept = of_class(left, self.has_class)
        _note(verdicts, left, kept, FilterVerdict.LOAD_MANAGER_CLASS)
        return kept

    def _latest(self, left: Ints, verdicts: Verdicts | None) -> Ints | None:
        if not self.config.prefer_later_versions:
            return left
        kept = of_latest_version(left, self.levels)
        if kept is not None:
            _note(verdicts, left, kept, FilterVerdict.OLDER_VERSION)
        return kept


def _has_class(snapshot: Snapshot, wanted: str) -> Bools:
    classes = snapshot.brokers.load_manager_classes
    return np.array([advertised == wanted for advertised in classes], dtype=np.bool_)


def _start(verdicts: Verdicts | None, row: Verdicts) -> None:
    if verdicts is not None:
        verdicts[:] = row


def _note(verdicts: Verdicts | None, before: Ints, after: Ints, verdict: FilterVerdict) -> None:
    """Of the brokers before, those not after get the verdict."""
    if verdicts is not None and (len(after) < len(before) or verdict == FilterVerdict.OK):
        verdicts[before] = verdict
        verdicts[after] = FilterVerdict.OK


def _note_each(verdicts: Verdicts | None, before: Ints, row: Verdicts) -> None:
    """The brokers before get their verdict of a row."""
    if verdicts is not None:
        verdicts[before] = row[before]


def empty_verdicts(snapshot: Snapshot) -> Verdicts:
    """A row to pass to `FilterPipeline.candidates`."""
    return np.zeros(len(snapshot.brokers.names), dtype=np.int8)
