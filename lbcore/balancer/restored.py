"""Restored: what is written once more when tables were put back from a backup.

Decides that every record gets a version that nobody has seen, by force, and that namespaces begin
above it, those too that were made after the backup and that no table knows: agents and stores have
seen newer versions than the backup has, and would take nothing older. Source: ours.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from lbcore.balancer.state.book import NamespaceEntry, namespace_row
from lbcore.balancer.tasks.forgetting import FLOOR
from lbcore.ownership.records import Cause

Row = Mapping[str, Any]


def lifted_events(current: Iterable[Row], now_ms: int, epoch: int) -> list[dict[str, Any]]:
    """An event for each current record, as batch 0 of a query of its own.

    now_ms, the time in ms since 1970, is the version: no bundle changes a thousand times a second,
    so that it is above all that came before, be it after an earlier restore. epoch: the writer's.
    """
    return [_lifted(row, number, now_ms, epoch) for number, row in enumerate(current)]


def lifted_namespaces(
    namespaces: Iterable[Row], clusters: Iterable[str], now_ms: int
) -> list[dict[str, Any]]:
    """The rows of `namespaces`, and each cluster's version floor, with versions from now_ms on.

    clusters: all that the tables know.
    """
    floor = namespace_row(FLOOR, NamespaceEntry(hash="", is_deleted=True))
    rows: list[dict[str, Any]] = [{**floor, "cluster": cluster} for cluster in sorted({*clusters})]
    known = {(row["cluster"], row["namespace"]): row for row in rows}
    known |= {(row["cluster"], row["namespace"]): dict(row) for row in namespaces}
    stamp = {"at_ms": now_ms, "batch_id": 0}
    return [
        {**row, **stamp, "highest_version": max(row["highest_version"], now_ms)}
        for row in known.values()
    ]


def _lifted(row: Row, number: int, now_ms: int, epoch: int) -> dict[str, Any]:
    before = {f"{name}_before": row[name] for name in ("state", "source", "destination")}
    lifted = {"version_id": max(row["version_id"] + 1, now_ms), "is_forced": True}
    why = {"cause": Cause.REPAIR.value, "writer_epoch": epoch, "seq_in_batch": number}
    return {**row, **before, **lifted, **why, "at_ms": now_ms, "batch_id": 0}
