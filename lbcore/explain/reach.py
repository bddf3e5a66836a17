"""Limits of an answer about the past, in sentences: how far each table reaches.

Decides only the words. Tables with one row per key hold the newest one. Older ones stay in the
table's log for a while, then nowhere. Rows of other tables expire after a time.
"""

from collections.abc import Iterator
from dataclasses import replace

from lbcore.config.load import digest
from lbcore.explain.explanation import ExplainRows, Explanation, TableGap
from lbcore.model.tables import BROKERS, DECISIONS, OWNERSHIP_EVENTS
from lbcore.model.times import instant

_NAMED_MAX = 5
_TABLE_OF = {
    "bundle": OWNERSHIP_EVENTS.name,
    "broker": BROKERS.name,
    "decision": DECISIONS.name,
}
"""Tables that show whether an entity exists."""


def with_unknown(rows: ExplainRows, found: Explanation) -> Explanation:
    """The explanation, which says what it could not see."""
    return replace(found, unknown=tuple(_sentences(rows)))


def unknown(rows: ExplainRows, kind: str, name: str) -> Explanation | None:
    """That nobody knows whether there was such a thing; None when there was none."""
    gaps = [gap for gap in rows.gaps if gap.table == _TABLE_OF.get(kind)]
    if not any(name in gap.names if gap.names else rows.at_ms < gap.reach_ms for gap in gaps):
        return None
    headline = f"How {kind} {name} was at {instant(rows.at_ms)} is not known."
    about = Explanation(kind=kind, subject=name, at_ms=rows.at_ms, headline=headline)
    return with_unknown(rows, about)


def _sentences(rows: ExplainRows) -> Iterator[str]:
    for gap in rows.gaps:
        yield _of_names(gap) if gap.names else _of_rows(gap)
    newest = max(rows.decisions, key=lambda row: int(row["at_ms"]), default=None)
    if rows.is_past and newest is not None and newest["config_version"] != digest(rows.config):
        yield (
            "settings are those of today's files with what commands had changed by then; the job "
            f"had others at {instant(newest['at_ms'])} (config_version {newest['config_version']})"
        )


def _of_names(gap: TableGap) -> str:
    shown, more = gap.names[:_NAMED_MAX], len(gap.names) - _NAMED_MAX
    named = ", ".join(shown) + (f" and {more} more" if more > 0 else "")
    return (
        f"what {gap.table} had of {named} is not known: written again since, and what was before "
        f"is kept from {instant(gap.reach_ms)} on"
    )


def _of_rows(gap: TableGap) -> str:
    return f"{gap.table} reaches back to {instant(gap.reach_ms)}; what it had before is not known"
