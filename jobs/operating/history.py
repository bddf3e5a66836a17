"""History of a cluster from its tables: the heat of brokers, and a timeline."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from jobs.adapters.delta.rows import is_one_of, literal, of_cluster
from jobs.adapters.delta.table_reader import TableReader
from jobs.sql.engine import SqlEngine
from lbcore.balancer.brokers import SILENCE
from lbcore.explain.reasons import reason_message
from lbcore.explain.recent_findings import moves_message, silence_message
from lbcore.model.resources import RESOURCES
from lbcore.model.tables import LOAD_HISTORY
from lbcore.model.times import MINUTE_MS

_TRAFFIC = {
    "msg_rate": "msg/s",
    "msg_rate_in": "msg/s",
    "msg_rate_out": "msg/s",
    "msg_throughput_in": "bytes/s",
    "msg_throughput_out": "bytes/s",
}
OF_BROKERS = {
    "usage": "%",
    "score": "%",
    **{one.name: "%" for one in RESOURCES},
    **_TRAFFIC,
    "bundles": "bundles",
}
"""Measures of a broker's row → unit."""
OF_BUNDLES = {**_TRAFFIC, "topics": "topics", "sessions": "sessions"}
"""Measures of a bundle's row → unit."""

MOMENTS_MAX = 120
BROKERS_MAX = 1_000
BUNDLES_MAX = 200
_DIGITS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatQuestion:
    """Question for a heat map.

    until_ms: the end of the window, ms since 1970. broker: "" = all brokers, else its bundles. by:
    a key of OF_BROKERS, or of OF_BUNDLES for a broker's bundles.
    """

    by: str
    until_ms: int
    window_ms: int
    broker: str = ""

    @property
    def step_ms(self) -> int:
        """The width of a moment: whole minutes, at most MOMENTS_MAX of them in the window."""
        minutes = -(-self.window_ms // (MINUTE_MS * (MOMENTS_MAX - 1)))
        return max(1, minutes) * MINUTE_MS


def read_heat(reader: TableReader, question: HeatQuestion) -> dict[str, Any]:
    """Return the heat map: "values" is names × moments, None = nothing reported.

    Rows in name order. left_out: number of rows with lower peaks that are not among them.
    """
    step_ms = question.step_ms
    since_ms = (question.until_ms - question.window_ms) // step_ms * step_ms
    cells = _cells(reader, question, since_ms)
    names, left_out = _shown(cells, BUNDLES_MAX if question.broker else BROKERS_MAX)
    until_ms = question.until_ms // step_ms * step_ms
    moments = range(since_ms, until_ms + 1, step_ms)
    row_of = {name: at for at, name in enumerate(names)}
    grid: list[list[float | None]] = [[None] * len(moments) for _ in names]
    for name, at_ms, value in cells:
        if name in row_of and value is not None:
            grid[row_of[name]][(at_ms - since_ms) // step_ms] = float(f"{value:.{_DIGITS}g}")
    units = OF_BUNDLES if question.broker else OF_BROKERS
    return {
        "by": question.by,
        "unit": units[question.by],
        "broker": question.broker,
        "from_ms": since_ms,
        "step_ms": step_ms,
        "moments": len(moments),
        "names": names,
        "left_out": left_out,
        "values": grid,
    }


def _cells(
    reader: TableReader, question: HeatQuestion, since_ms: int
) -> list[tuple[str, int, float | None]]:
    view, name = ("bundle_loads", "bundle") if question.broker else ("broker_loads", "broker")
    where = [
        of_cluster(reader.cluster),
        f"minute_ms >= {since_ms}",
        f"minute_ms <= {question.until_ms}",
        *([f"broker = {literal(question.broker)}"] if question.broker else []),
    ]
    step_ms = question.step_ms
    moment = f"minute_ms - minute_ms % {step_ms} AS at_ms"
    asked = f"SELECT {name}, {moment}, MAX({question.by}) AS most"
    rows = f" FROM {view} WHERE {' AND '.join(where)} GROUP BY 1, 2"
    found: pa.Table = SqlEngine(reader.root, (LOAD_HISTORY.name,)).query(asked + rows)
    columns = (column.to_pylist() for column in found.columns)
    return list(zip(*columns, strict=True))


def _shown(cells: list[tuple[str, int, float | None]], most: int) -> tuple[list[str], int]:
    """Return names with the highest peaks, in name order, and the number of others."""
    peaks: dict[str, float] = {}
    for name, _, value in cells:
        peaks[name] = max(peaks.get(name, 0.0), value or 0.0)
    by_peak = sorted(peaks, key=lambda name: (-peaks[name], name))
    return sorted(by_peak[:most]), max(0, len(by_peak) - most)


KINDS: Mapping[str, tuple[str, ...]] = {
    "move": ("transfer", "unload", "drain"),
    "split": ("split",),
    "crash": ("failover", SILENCE),
    "placement": ("assign",),
    "plan": ("plan",),
    "command": (),
    "setting": (),
}
"""Kind of event → its kinds of decisions; () = from a table of its own."""

EVENTS_MAX = 500
_OF_DECISIONS = (
    "at_ms",
    "decision_id",
    "kind",
    "bundle",
    "source",
    "destination",
    "reason",
    "strategy",
    "inputs",
)
_LOADS = ("source_before", "source_after", "destination_before", "destination_after")
_OF_EFFECTS = ("decision_id", "bundle", "destination", "outcome", *_LOADS)
_SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineQuestion:
    """Question for a timeline. Times in ms since 1970.

    kinds: of KINDS. about: only events that name it, case-insensitive; "" = all.
    """

    from_ms: int
    until_ms: int
    kinds: tuple[str, ...] = tuple(KINDS)
    about: str = ""

    @property
    def within(self) -> str:
        """Condition on the time of a row."""
        return f"at_ms >= {self.from_ms} AND at_ms <= {self.until_ms}"


def read_timeline(reader: TableReader, question: TimelineQuestion) -> dict[str, Any]:
    """The newest EVENTS_MAX events, newest first, and how many more there are.

    Loads (1.0 = 100 %) of both brokers before and after are there once a move's effect is known.
    """
    found = [
        *_decided(reader, question),
        *_commands(reader, question),
        *_settings(reader, question),
    ]
    about = question.about.lower()
    if about:
        found = [event for event in found if about in json.dumps(event).lower()]
    found.sort(key=lambda event: (-event["at_ms"], event["kind"], event["id"]))
    return {"events": found[:EVENTS_MAX], "left_out": max(0, len(found) - EVENTS_MAX)}


def _decided(reader: TableReader, question: TimelineQuestion) -> Iterator[dict[str, Any]]:
    kind_of = {one: kind for kind in question.kinds for one in KINDS[kind]}
    if not kind_of:
        return
    condition = f"{question.within} AND {is_one_of('kind', sorted(kind_of))}"
    rows = reader.rows("decisions", _OF_DECISIONS, condition)
    effects = {
        (row["decision_id"], row["bundle"]): row
        for row in reader.rows("decision_effects", _OF_EFFECTS, f"at_ms >= {question.from_ms}")
    }
    for row in rows:
        effect = effects.get((row["decision_id"], row["bundle"]))
        yield {
            **_event(row, kind_of[row["kind"]], row["decision_id"], row["kind"]),
            **{name: row[name] for name in ("bundle", "source")},
            "reason": _reason(row),
            "destination": row["destination"] or (effect["destination"] if effect else ""),
            "by": row["strategy"],
            "outcome": "" if effect is None else effect["outcome"],
            "loads": effect
            and {name: None if math.isnan(effect[name]) else effect[name] for name in _LOADS},
        }


def _reason(row: Mapping[str, Any]) -> str:
    """Return the reason in words."""
    if row["kind"] == SILENCE:
        return silence_message(row, row["at_ms"])
    why = reason_message(str(row["reason"]), str(row["kind"]))
    is_crash = row["kind"] == "failover"
    return f"{why}: {moves_message([json.loads(row['inputs'])])}" if is_crash else why


def _commands(reader: TableReader, question: TimelineQuestion) -> Iterator[dict[str, Any]]:
    if "command" not in question.kinds:
        return
    rows = reader.rows("commands", condition=question.within)
    rows.sort(key=lambda row: (row["status"] != "accepted", row["at_ms"]))
    for row in {row["command_id"]: row for row in rows}.values():  # a command's last row
        given = json.loads(row["arguments"] or "{}")
        yield {
            **_event(row, "command", row["command_id"], row["kind"]),
            "bundle": str(given.get("bundle", "")),
            "source": str(given.get("broker", "")),
            "destination": str(given.get("destination", "")),
            "reason": row["reason"],
            "by": row["principal"],
            "outcome": row["status"],
        }


def _settings(reader: TableReader, question: TimelineQuestion) -> Iterator[dict[str, Any]]:
    """Yield each change of settings, with what differs from the version before."""
    if "setting" not in question.kinds:
        return
    before: Mapping[str, Any] = {}
    rows = reader.rows("config_versions", condition=f"at_ms <= {question.until_ms}")
    for row in sorted(rows, key=lambda one: one["number"]):
        after = json.loads(row["settings"])
        if row["at_ms"] >= question.from_ms:
            yield {
                **_event(row, "setting", row["config_version"], "settings"),
                "reason": _difference(before, after),
                "by": row["principal"],
            }
        before = after


def _event(row: Mapping[str, Any], kind: str, identity: str, what: str) -> dict[str, Any]:
    return {
        "at_ms": row["at_ms"],
        "kind": kind,
        "id": identity,
        "what": what,
        "loads": None,
        **dict.fromkeys(("bundle", "source", "destination", "outcome"), ""),
    }


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    keys = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
    words = [f"{key}={after[key]}" if key in after else f"{key} as in the files" for key in keys]
    text = ", ".join(words) or "nothing that was not so"
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]} ..."
