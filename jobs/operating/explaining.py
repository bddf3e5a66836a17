"""Reads what an explanation is made of, and asks `lbcore.explain` for it.

Decides which rows are read: those of a window before the moment that is asked about, and the
decisions that a bundle's own records name. Used by the verb and by the service.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jobs.adapters.delta.rows import is_one_of
from jobs.adapters.delta.table_reader import PastRows, Row, TableReader
from jobs.adapters.delta.table_upkeep import KEPT_DAYS, STAYS
from lbcore.config.cluster import EXTERNAL
from lbcore.config.tree import Config
from lbcore.explain.broker import explain_broker
from lbcore.explain.bundle import explain_bundle
from lbcore.explain.cluster import explain_cluster, explain_decision
from lbcore.explain.explanation import ExplainRows, Explanation, TableGap, unknown, with_unknown
from lbcore.explain.mirrored import with_findings
from lbcore.explain.recent_findings import RECENT_MS
from lbcore.model.tables import (
    BROKERS,
    DECISION_CANDIDATES,
    DECISION_EFFECTS,
    DECISIONS,
    LOAD_HISTORY,
    OWNERSHIP_EVENTS,
    PINS,
    POLICIES,
    Table,
)
from lbcore.model.times import DAY_MS
from lbcore.validation.check import in_force

KINDS = ("bundle", "broker", "cluster", "decision")
WINDOW_MS = 3_600_000
_LOAD_MS = 600_000
_NAMED_MAX = 200
_GROWING = tuple(
    table.name
    for table in (OWNERSHIP_EVENTS, DECISIONS, DECISION_CANDIDATES, DECISION_EFFECTS, LOAD_HISTORY)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainQuestion:
    """Question to explain. name: bundle, broker or decision; "" for the cluster.

    at_ms: 0 = now, which is now_ms.
    """

    kind: str
    name: str
    now_ms: int
    at_ms: int = 0
    window_ms: int = WINDOW_MS


def explain(reader: TableReader, config: Config, question: ExplainQuestion) -> Explanation | None:
    """Return the explanation; None without the subject.

    config: what the job was started with.
    """
    rows = read_rows(reader, config, question)
    found = _EXPLAINERS[question.kind](rows, question.name)
    found = found and with_unknown(rows, found)
    if found is None:
        return unknown(rows, question.kind, question.name)
    if config.cluster.authority != EXTERNAL:
        return found
    commands = reader.rows(
        "commands",
        ("status", "result", "at_ms"),
        f"kind = 'observe_ownership' AND {_between('at_ms', rows.at_ms, RECENT_MS)}",
    )
    return with_findings(found, commands, config)


_EXPLAINERS: Mapping[str, Callable[[ExplainRows, str], Explanation | None]] = {
    "bundle": explain_bundle,
    "broker": explain_broker,
    "cluster": lambda rows, _: explain_cluster(rows),
    "decision": explain_decision,
}


def read_rows(reader: TableReader, config: Config, question: ExplainQuestion) -> ExplainRows:
    """Return the explanation's rows, none newer than the requested moment."""
    at_ms = question.at_ms or question.now_ms
    kept = {
        table: reader.rows_at(table, question.at_ms)
        if question.at_ms
        else PastRows(rows=reader.rows(table.name))
        for table in (BROKERS, POLICIES, PINS)
    }
    rows = ExplainRows(
        cluster=reader.cluster,
        at_ms=at_ms,
        window_ms=question.window_ms,
        config=changed_settings(
            config, reader.rows("config_versions", condition=f"at_ms <= {at_ms}")
        )[0],
        records=_records(reader, question),
        brokers=kept[BROKERS].rows,
        policies=kept[POLICIES].rows,
        pins=kept[PINS].rows,
        load=reader.rows("load_history", condition=_between("minute_ms", at_ms, _LOAD_MS)),
        gaps=list(_gaps(reader, question, kept)),
        is_past=bool(question.at_ms),
    )
    recent = _between("at_ms", at_ms, question.window_ms)
    by_then = f" AND at_ms <= {at_ms}" if question.at_ms else ""
    if question.kind == "decision":
        recent = is_one_of("decision_id", [question.name]) + by_then
    events: Sequence[Row] = ()
    if question.kind == "bundle":
        events = reader.rows(
            "ownership_events",
            condition=f"{is_one_of('bundle', [question.name])} AND at_ms <= {at_ms}",
        )
        named = sorted({row["decision_id"] for row in events} - {""})[-_NAMED_MAX:]
        if named:
            recent = f"({recent}) OR ({is_one_of('decision_id', named)}{by_then})"
    decisions = reader.rows("decisions", condition=recent)
    of_candidates = recent
    if question.kind == "decision" and decisions:
        of_candidates = f"at_ms = {decisions[0]['at_ms']}"
    return replace(
        rows,
        events=events,
        decisions=decisions,
        candidates=reader.rows("decision_candidates", condition=of_candidates),
        effects=reader.rows("decision_effects", condition=recent),
    )


def changed_settings(config: Config, changes: Iterable[Row]) -> tuple[Config, Mapping[str, str]]:
    """The configuration with the newest of these rows, and what is set aside and why.

    changes: rows of config_versions, each with all that commands had changed by then.
    """
    return in_force(config, settings_by_command(changes))


def settings_by_command(changes: Iterable[Row]) -> Mapping[str, Any]:
    """Return what commands have changed, by the newest row of config_versions."""
    newest = max(changes, key=lambda row: int(row["number"]), default={"settings": "{}"})
    found: Mapping[str, Any] = json.loads(newest["settings"])
    return found


def _records(reader: TableReader, question: ExplainQuestion) -> Sequence[Row]:
    if question.at_ms:
        return reader.at_time(question.at_ms).rows
    return reader.rows("bundle_ownership", condition="state <> 'Deleted' AND state <> 'Init'")


def _gaps(
    reader: TableReader, question: ExplainQuestion, kept: Mapping[Table, PastRows]
) -> Iterator[TableGap]:
    """Yield what is not known of the moment.

    Things whose rows don't reach back to it, and tables whose rows don't reach back to it, or to
    the window where rows are removed.
    """
    for table, past in kept.items():
        if past.unknown:
            yield TableGap(
                table=table.name,
                reach_ms=past.reach_ms,
                names=tuple(" ".join(filter(None, key)) for key in past.unknown),
            )
    at_ms = question.at_ms or question.now_ms
    for name in _GROWING:
        is_events = name == OWNERSHIP_EVENTS.name
        oldest_ms = reader.known_from_ms() if is_events else reader.oldest_ms(name)
        days = KEPT_DAYS.get(name)
        if name in STAYS and days and (oldest_ms or 0) < question.now_ms - days * DAY_MS:
            oldest_ms = reader.oldest_ms(name, f"NOT ({STAYS[name]})")
        may_be_gone = (
            days is not None and at_ms - question.window_ms < question.now_ms - days * DAY_MS
        )
        since_ms = at_ms - question.window_ms if may_be_gone else at_ms
        if oldest_ms is not None and since_ms < oldest_ms:
            yield TableGap(table=name, reach_ms=oldest_ms)


def _between(column: str, at_ms: int, span_ms: int) -> str:
    return f"{column} >= {at_ms - span_ms} AND {column} <= {at_ms}"
