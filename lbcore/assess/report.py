"""The report: one value with everything that was found; `jobs.assess` renders it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lbcore.assess.loads import HotBundle, Loads, hottest_bundles, loads_of
from lbcore.assess.owner_changes import Observer, OwnerChange, OwnerChanges, who_moved
from lbcore.assess.risks import (
    HotTopic,
    Risk,
    broker_risks,
    churn_by_isolation,
    crowded_partitions,
    few_bundles,
    stuck,
    unread_risks,
    unrelievable,
)
from lbcore.assess.settings import Harm, harms_of, is_shedding
from lbcore.bridge.answers import Settings
from lbcore.bridge.mirror import Look
from lbcore.foresight.forecast import Foresight, Impossible, WhatIf, foresee
from lbcore.model.names import parse_bundle
from lbcore.model.tables import DECISIONS, LOAD_HISTORY

HOTTEST_TOPICS = 15
_NAMED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterObservation:
    """Data read from the cluster beside the Machines' input.

    unread: broker → why its load or its topics are missing. topics: loaded topic → its broker.
    failed_reads: what could not be read, brokers included → reason. unreported: broker → field of
    its load that can't be used → reason. sheds: of `sheds_of` by broker, at the start and now.
    """

    owner_changes: OwnerChanges
    look: Look
    settings: Mapping[str, Settings | None]
    sheds: tuple[Mapping[str, float], Mapping[str, float]] = ({}, {})
    versions: Mapping[str, str] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    topics: Mapping[str, str] = field(default_factory=dict)
    hot_topics: Sequence[HotTopic] = ()
    failed_reads: Mapping[str, str] = field(default_factory=dict)
    unreported: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that was found. times: ms since 1970; strategies: rows of a backtest.

    foresight: the next cycles of Ballast, or None with a reason in `notes`; notes: what is not
    known, in sentences. unread: what could not be read → why; unreported: broker → field of its
    load that counts as not reported → why.
    """

    cluster: str
    url: str
    from_ms: int
    to_ms: int
    loads: Loads
    bundles: Sequence[HotBundle]
    topics: Sequence[HotTopic]
    moves: Sequence[OwnerChange]
    harms: Sequence[Harm]
    risks: Sequence[Risk]
    decisions: int
    foresight: Foresight | None
    versions: Mapping[str, str]
    bundle_count: int
    strategies: Sequence[Mapping[str, Any]] = ()
    notes: Sequence[str] = ()
    unread: Mapping[str, str] = field(default_factory=dict)
    unreported: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """True if nothing is unread, and some load is known."""
        return not self.unread and bool(self.loads.times_ms)


def make_report(
    observer: Observer, seen: ClusterObservation, where: tuple[str, str], times_ms: tuple[int, int]
) -> Report:
    """Return the report of what was seen so far.

    where: cluster and URL; times_ms: from and to.
    """
    rows = observer.rows[LOAD_HISTORY.name]
    loads, bundles = loads_of(rows), hottest_bundles(rows)
    found = foresee(
        observer.config, observer.cluster, observer.rehearsal_rows(), times_ms[1], WhatIf()
    )
    notes = []
    if isinstance(found, Impossible):
        notes.append(f"the next moves can't be foreseen yet: {found.reason}")
    if not seen.topics:
        notes.append("no topic is loaded, or none was told: topics and partitions were not judged")
    if not rows:
        notes.append("no broker's load was read yet")
    return Report(
        cluster=where[0],
        url=where[1],
        from_ms=times_ms[0],
        to_ms=times_ms[1],
        loads=loads,
        bundles=bundles,
        topics=tuple(seen.hot_topics)[:HOTTEST_TOPICS],
        moves=_moves(seen),
        harms=tuple(harms_of(seen.settings)),
        risks=_risks(observer, seen, loads, bundles),
        decisions=len({row["bundle"] for row in observer.rows[DECISIONS.name] if row["bundle"]}),
        foresight=None if isinstance(found, Impossible) else found,
        versions=seen.versions,
        bundle_count=sum(len(owned or ()) for owned in seen.look.owned.values()),
        notes=(*notes, *_unread_notes(seen)),
        unread=dict(sorted(seen.failed_reads.items())),
        unreported=seen.unreported,
    )


def _risks(
    observer: Observer, seen: ClusterObservation, loads: Loads, bundles: Sequence[HotBundle]
) -> tuple[Risk, ...]:
    brokers = tuple(sorted(seen.look.owned))
    is_set = {
        row["name"]: row["is_set"]
        for row in observer.rows["policies"]
        if row["kind"] == "isolation"
    }
    isolation = [name for name, found in is_set.items() if found]
    room = {name: len(loads.group_of(name)) or len(brokers) for name in brokers}
    return (
        *broker_risks(brokers, seen.unread, seen.versions),
        *unread_risks(seen.failed_reads),
        *stuck(seen.owner_changes),
        *unrelievable(loads, bundles, seen.hot_topics),
        *crowded_partitions(seen.topics, room),
        *few_bundles(seen.look.namespaces, _room_of_namespaces(seen, room)),
        *churn_by_isolation(seen.settings, isolation),
    )


def _room_of_namespaces(seen: ClusterObservation, room: Mapping[str, int]) -> dict[str, int]:
    """Return namespace → how many brokers may take its bundles.

    The size of its owners' largest isolation group; of the cluster where nobody owns a bundle.
    """
    found: dict[str, int] = {}
    for broker, owned in seen.look.owned.items():
        for bundle in owned or ():
            namespace = parse_bundle(bundle)[0]
            found[namespace] = max(room[broker], found.get(namespace, 0))
    return {name: found.get(name, len(room)) for name in seen.look.namespaces}


def _moves(seen: ClusterObservation) -> tuple[OwnerChange, ...]:
    moves = seen.owner_changes.moves
    of_living = sum(not move.who for move in moves)
    who = who_moved(of_living, *seen.sheds, is_shedding=is_shedding(seen.settings))
    return tuple(replace(move, who=move.who or who) for move in moves)


def _unread_notes(seen: ClusterObservation) -> list[str]:
    """Return what could not be read, and which load fields count as not reported."""
    silent = [name for name, found in sorted(seen.settings.items()) if found is None]
    notes = [f"settings of {', '.join(silent)} were not told (a super user may read them)"]
    parts = [f"{what}: {why}" for what, why in sorted(seen.failed_reads.items())]
    notes = [*(notes if silent else ()), *parts[:_NAMED]]
    if len(parts) > _NAMED:
        notes.append(f"{len(parts) - _NAMED} more could not be read (--json has all)")
    for broker, found in sorted(seen.unreported.items()):
        why = "; ".join(found.values())
        notes.append(f"{broker} reports {len(found)} fields that count as not reported: {why}")
    return notes
