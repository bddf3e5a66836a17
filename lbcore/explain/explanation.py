"""An explanation: facts, reasons, candidates, constraints, and what would change.

It also says for which time the tables have no rows. The modules beside this one make explanations
from rows of the tables; the command `ballast explain` and the service show them.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from lbcore.config.load import digest
from lbcore.config.tree import Config
from lbcore.model.tables import BROKERS, DECISIONS, OWNERSHIP_EVENTS
from lbcore.model.times import instant
from lbcore.ownership.changes import parties
from lbcore.packing import finite
from lbcore.signals.shown_load import ShownLoad, shown_loads

Row = Mapping[str, Any]

SECTIONS = (
    ("unknown", "what is not known"),
    ("why", "why"),
    ("candidates", "recent candidates"),
    ("blocks", "what prevents a move"),
    ("changes", "what would have to change"),
)
_WHOLE_FROM = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TableGap:
    """Gap in a table: what it no longer has about a past moment.

    reach_ms: time from which it has all rows. names: the keys whose rows were written again since
    that moment; () = rows of all keys before `reach_ms` are gone.
    """

    table: str
    reach_ms: int
    names: tuple[str, ...] = ()


def policy_values(policies: Iterable[Row], kind: str) -> dict[str, Any]:
    """Return name → value of the policies of a kind that are set, by their rows."""
    rows = [row for row in policies if row["kind"] == kind and row["is_set"]]
    return {row["name"]: json.loads(row["value"]) for row in sorted(rows, key=itemgetter("name"))}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainRows:
    """One cluster's rows as they were at `at_ms`.

    records: of bundle_ownership, the bundles that are not gone. events: of the bundle that is asked
    for. decisions, candidates, effects: of the last `window_ms`, and those that the question names.
    load: of load_history, of the last ten minutes. config: the cluster's, in force at `at_ms`.
    gaps: what the tables no longer have about that moment. is_past: True if `at_ms` is not now.
    Rows may be given in any order; they are sorted here.
    """

    cluster: str
    at_ms: int
    window_ms: int
    config: Config
    records: Sequence[Row] = ()
    events: Sequence[Row] = ()
    decisions: Sequence[Row] = ()
    candidates: Sequence[Row] = ()
    effects: Sequence[Row] = ()
    brokers: Sequence[Row] = ()
    policies: Sequence[Row] = ()
    pins: Sequence[Row] = ()
    load: Sequence[Row] = ()
    gaps: Sequence[TableGap] = ()
    is_past: bool = False

    def __post_init__(self) -> None:
        """Sort each table's rows by time or name, so that the last of some is the newest."""
        for name, key in _ORDER.items():
            object.__setattr__(self, name, tuple(sorted(getattr(self, name), key=key)))

    def rules(self, kind: str) -> dict[str, Any]:
        """Return the values set for a kind of policy: name → value."""
        return policy_values(self.policies, kind)

    def loads(self) -> dict[str, ShownLoad]:
        """Return live broker → its load, as `ballast status` shows it."""
        return shown_loads(self.brokers, self.load, self.config.signals, self.at_ms)

    def state_of(self, broker: str) -> str:
        """Return the state of a broker; "not known" if it has no row."""
        states = (str(row["state"]) for row in self.brokers if row["broker"] == broker)
        return next(states, "not known")

    def decision(self, decision_id: str) -> Row | None:
        """Return the row of a decision; None if it is not among those that were read."""
        return next((row for row in self.decisions if row["decision_id"] == decision_id), None)

    def cycles(self) -> int:
        """Return the number of cycles within the window.

        Each cycle writes a decision or a skip. Decisions of commands and repairs between cycles
        have the number of the cycle before.
        """
        since_ms = self.at_ms - self.window_ms
        numbers = [r["cycle"] for r in self.decisions if r["cycle"] and r["at_ms"] >= since_ms]
        return sum(True for number, _ in groupby(numbers))


def by_decision(row: Row) -> tuple[int, int, str]:
    """Return a key that sorts decisions by time, then by the number in their ids."""
    tail = str(row["decision_id"]).rpartition("-")[2]
    return int(row["at_ms"]), int(tail) if tail.isdigit() else 0, str(row["decision_id"])


def _by_number(row: Row) -> tuple[object, ...]:
    """Return a key that sorts by time, phase and number: the highest first, none last."""
    number = float(row["number"])
    names = (row["subject"], row["broker"], row["verdict"], row["decision_id"])
    return (row["at_ms"], row["phase"], -number if math.isfinite(number) else math.inf, *names)


_ORDER: Mapping[str, Callable[[Row], Any]] = {
    "records": itemgetter("bundle", "version_id"),
    "events": itemgetter("bundle", "version_id"),
    "decisions": by_decision,
    "candidates": _by_number,
    "effects": itemgetter("at_ms", "decision_id", "bundle"),
    "brokers": itemgetter("broker"),
    "policies": itemgetter("kind", "name"),
    "pins": itemgetter("bundle"),
    "load": itemgetter("minute_ms", "broker"),
}
"""Table → what its rows are sorted by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Sentences in the order in which they are read, and the numbers behind them."""

    kind: str
    subject: str
    at_ms: int
    headline: str
    unknown: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return values that JSON can hold; NaN and infinity become null."""
        plain: dict[str, Any] = finite(asdict(self))
        return plain

    def lines(self) -> Iterable[str]:
        """Yield the lines of the text, the most important first."""
        yield self.headline
        for name, title in SECTIONS:
            sentences = getattr(self, name)
            if sentences:
                yield ""
                yield f"{title}:"
                yield from (f"  - {sentence}" for sentence in sentences)
        if self.numbers:
            yield ""
            yield "numbers:"
            width = max(map(len, self.numbers))
            for name, value in self.numbers.items():
                yield f"  {name:<{width}}  {_value(value)}"


def _value(value: Any) -> str:
    if value is None:  # NaN or infinity, as `to_json` writes them
        return "-"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_value(one)}" for name, one in value.items()) or "none"
    if isinstance(value, list | tuple):
        return "; ".join(map(_value, value)) or "none"
    return str(value)


def number(value: float) -> str:
    """Return a number as people read it: 1,234 or 12.3 or 0.05; "-" if not finite."""
    if not math.isfinite(value):
        return "-"
    if value == int(value) or abs(value) >= _WHOLE_FROM:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"


def percent(usage: float) -> str:
    """Return a usage (1.0 = 100 %) as text."""
    return f"{100 * usage:.0f} %" if math.isfinite(usage) else "unknown"


def brokers_of(record: Row) -> str:
    """Return the brokers in a record as text: the owner, or source → destination."""
    return " → ".join(parties(record))


def has_moved(record: Row) -> bool:
    """Return True if the record's owner got the bundle from another one.

    The balancer counts moves in the same way.
    """
    return bool(record["state"] == "Owned" and record["source"])


def count_of(count: int, noun: str) -> str:
    """Return the count with its noun: `1 bundle`, `2 bundles`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


_NAMED_MAX = 5
_TABLE_OF = {
    "bundle": OWNERSHIP_EVENTS.name,
    "broker": BROKERS.name,
    "decision": DECISIONS.name,
}
"""Kind of subject → the table that shows whether it existed."""


def with_unknown(rows: ExplainRows, found: Explanation) -> Explanation:
    """Return the explanation with what the tables could not tell."""
    return replace(found, unknown=tuple(_sentences(rows)))


def unknown(rows: ExplainRows, kind: str, name: str) -> Explanation | None:
    """Return an explanation that it is unknown whether the subject existed.

    None = the tables reach back far enough: it did not exist.
    """
    gaps = [gap for gap in rows.gaps if gap.table == _TABLE_OF.get(kind)]
    if not any(name in gap.names if gap.names else rows.at_ms < gap.reach_ms for gap in gaps):
        return None
    return Explanation(
        kind=kind,
        subject=name,
        at_ms=rows.at_ms,
        headline=f"How {kind} {name} was at {instant(rows.at_ms)} is not known.",
        unknown=tuple(_sentences(rows)),
    )


def _sentences(rows: ExplainRows) -> Iterator[str]:
    for gap in rows.gaps:
        since, more = instant(gap.reach_ms), len(gap.names) - _NAMED_MAX
        named = ", ".join(gap.names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
        if gap.names:
            yield (
                f"what {gap.table} had of {named} is not known: written again since, and what was"
                f" before is kept from {since} on"
            )
        else:
            yield f"{gap.table} reaches back to {since}; what it had before is not known"
    newest = max(rows.decisions, key=lambda row: int(row["at_ms"]), default=None)
    if rows.is_past and newest is not None and newest["config_version"] != digest(rows.config):
        yield (
            "settings are those of today's files with what commands had changed by then; the job "
            f"had others at {instant(newest['at_ms'])} (config_version {newest['config_version']})"
        )
