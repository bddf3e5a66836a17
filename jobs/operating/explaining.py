"""Reads what an explanation is made of, and asks `lbcore.explain` for it.

Decides which rows are read: those of a window before the moment that is asked about, and the
decisions that a bundle's own records name. Used by the verb and by the service. Source: ours.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jobs.adapters.table_reader import Row, TableReader
from lbcore.config.dynamic import in_force
from lbcore.config.tree import Config
from lbcore.explain.broker import explain_broker
from lbcore.explain.bundle import explain_bundle
from lbcore.explain.cluster import explain_cluster, explain_decision
from lbcore.explain.explanation import ExplainRows, Explanation

KINDS = ("bundle", "broker", "cluster", "decision")
WINDOW_MS = 3_600_000
_LOAD_MS = 600_000
_NAMED_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked. name: bundle, broker or decision; "" for the cluster.

    at_ms: 0 = now, which is now_ms.
    """

    kind: str
    name: str
    now_ms: int
    at_ms: int = 0
    window_ms: int = WINDOW_MS


def explain(reader: TableReader, config: Config, question: Question) -> Explanation | None:
    """The answer; None when there is no such thing. config: the cluster's, as its files say."""
    rows = _read(reader, config, question)
    if question.kind == "bundle":
        return explain_bundle(rows, question.name)
    if question.kind == "broker":
        return explain_broker(rows, question.name)
    if question.kind == "decision":
        return explain_decision(rows, question.name)
    return explain_cluster(rows)


def _read(reader: TableReader, config: Config, question: Question) -> ExplainRows:
    at_ms = question.at_ms or question.now_ms
    rows = ExplainRows(
        cluster=reader.cluster,
        at_ms=at_ms,
        window_ms=question.window_ms,
        config=_in_force(config, reader.rows("config_versions", condition=f"at_ms <= {at_ms}")),
        records=_records(reader, question),
        brokers=_set_rows(reader, "brokers", question),
        policies=_set_rows(reader, "policies", question),
        pins=_set_rows(reader, "pins", question),
        load=reader.rows("load_history", condition=_between("minute_ms", at_ms, _LOAD_MS)),
    )
    recent = _between("at_ms", at_ms, question.window_ms)
    if question.kind == "decision":
        recent = _is("decision_id", [question.name])
    events: Sequence[Row] = ()
    if question.kind == "bundle":
        wanted = f"{_is('bundle', [question.name])} AND at_ms <= {at_ms}"
        events = reader.rows("ownership_events", condition=wanted)
        named = sorted({row["decision_id"] for row in events} - {""})[-_NAMED_MAX:]
        if named:
            recent = f"({recent}) OR ({_is('decision_id', named)})"
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


def _in_force(config: Config, changes: Iterable[Row]) -> Config:
    """The configuration with what commands had changed by then."""
    ordered = sorted(changes, key=lambda row: int(row["number"]))
    settings: dict[str, Any] = json.loads(ordered[-1]["settings"]) if ordered else {}
    return in_force(config, settings)[0]


def _records(reader: TableReader, question: Question) -> Sequence[Row]:
    if question.at_ms:
        return reader.at_time(question.at_ms).rows
    return reader.rows("bundle_ownership", condition="state <> 'Deleted' AND state <> 'Init'")


def _set_rows(reader: TableReader, name: str, question: Question) -> Sequence[Row]:
    if question.at_ms:
        return reader.rows_at(name, question.at_ms)
    return reader.rows(name)


def _between(column: str, at_ms: int, span_ms: int) -> str:
    return f"{column} >= {at_ms - span_ms} AND {column} <= {at_ms}"


def _is(column: str, texts: Sequence[str]) -> str:
    """The SQL condition that a column has one of some texts."""
    quoted = ("'" + text.replace("'", "''") + "'" for text in texts)
    return f"{column} IN ({', '.join(quoted)})"
