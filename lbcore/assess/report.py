"""The report: one value with everything that was found, from which every rendering is made.

Decides what is in it and how its parts are named; nothing about its looks. Source: ours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from lbcore.assess.loads import HotBundle, Loads, hottest_bundles, loads_of
from lbcore.assess.observer import Observer
from lbcore.assess.risks import (
    HotTopic,
    Risk,
    broker_risks,
    crowded_partitions,
    few_bundles,
    stuck,
    unrelievable,
)
from lbcore.assess.settings import Harm, harms_of, is_shedding
from lbcore.assess.sightings import GONE, Sightings, Unloads, who_moved
from lbcore.bridge.answers import Settings
from lbcore.bridge.mirror import Look
from lbcore.foresight.foresee import Foresight, Impossible, WhatIf, foresee
from lbcore.model.tables import DECISIONS, LOAD_HISTORY

HOTTEST_TOPICS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCluster:
    """What was read of the cluster beside the Machines' input.

    unread: broker → why its load or its topics are missing. topics: loaded topic → its broker.
    """

    sightings: Sightings
    look: Look
    settings: Mapping[str, Settings | None]
    unloads: tuple[Unloads, Unloads] = (Unloads(), Unloads())
    versions: Mapping[str, str] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    topics: Mapping[str, str] = field(default_factory=dict)
    hot_topics: Sequence[HotTopic] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A bundle that went from one broker to another meanwhile. who: whose doing it was."""

    at_ms: int
    bundle: str
    source: str
    destination: str
    who: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that was found. times: ms since 1970; strategies: rows of a backtest.

    foresight: the next cycles of Ballast, or None with a reason in `notes`; notes: what is not
    known, in sentences.
    """

    cluster: str
    url: str
    from_ms: int
    to_ms: int
    loads: Loads
    bundles: Sequence[HotBundle]
    topics: Sequence[HotTopic]
    moves: Sequence[Moved]
    harms: Sequence[Harm]
    risks: Sequence[Risk]
    decisions: int
    foresight: Foresight | None
    versions: Mapping[str, str]
    bundle_count: int
    strategies: Sequence[Mapping[str, Any]] = ()
    notes: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON-able values."""
        return asdict(self)


def make_report(
    observer: Observer, seen: SeenCluster, where: tuple[str, str], times_ms: tuple[int, int]
) -> Report:
    """The report of what was seen so far. where: cluster and URL; times_ms: from and to."""
    rows = observer.rows[LOAD_HISTORY.name]
    loads, bundles = loads_of(rows), hottest_bundles(rows)
    found, notes = _next_moves(observer, times_ms[1])
    brokers = tuple(sorted(seen.look.owned))
    decided = [row for row in observer.rows[DECISIONS.name] if row["bundle"]]
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
        risks=_risks(seen, loads, bundles, brokers),
        decisions=len({row["bundle"] for row in decided}),
        foresight=found,
        versions=seen.versions,
        bundle_count=sum(len(owned or ()) for owned in seen.look.owned.values()),
        notes=(*notes, *_untold(seen)),
    )


def _risks(
    seen: SeenCluster, loads: Loads, bundles: Sequence[HotBundle], brokers: Sequence[str]
) -> tuple[Risk, ...]:
    return (
        *broker_risks(brokers, seen.unread, seen.versions),
        *stuck(seen.sightings),
        *unrelievable(loads, bundles, seen.hot_topics),
        *crowded_partitions(seen.topics, len(brokers)),
        *few_bundles(seen.look.namespaces, len(brokers)),
    )


def _moves(seen: SeenCluster) -> tuple[Moved, ...]:
    between = [move for move in seen.sightings.moves if not move.is_gone]
    before, after = seen.unloads
    who = who_moved(len(between), before, after, is_shedding=is_shedding(seen.settings))
    return tuple(
        Moved(
            at_ms=move.at_ms,
            bundle=move.bundle,
            source=move.source,
            destination=move.destination,
            who=GONE if move.is_gone else who,
        )
        for move in seen.sightings.moves
    )


def _next_moves(observer: Observer, now_ms: int) -> tuple[Foresight | None, list[str]]:
    rows = observer.rehearsal_rows()
    found = foresee(observer.config, observer.cluster, rows, now_ms, WhatIf())
    if isinstance(found, Impossible):
        return None, [f"the next moves can't be foreseen yet: {found.reason}"]
    return found, []


def _untold(seen: SeenCluster) -> list[str]:
    silent = [name for name, found in sorted(seen.settings.items()) if found is None]
    if not silent:
        return []
    return [f"settings of {', '.join(silent)} were not told (a super user may read them)"]
