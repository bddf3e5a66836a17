"""Overview for a page or terminal: how even the load is, and the last decisions.

Decides which decisions are shown and in which words; `lbcore.explain.status` has the state of the
cluster.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from lbcore.explain.explanation import ExplainRows, Row
from lbcore.explain.reasons import decision_messages, reason_message
from lbcore.explain.status import ClusterStatus
from lbcore.signals.imbalance import imbalance_of_sums

DECISIONS_SHOWN = 20
_MANY = frozenset({"drain", "failover", "repair"})
IN_FLIGHT_SHOWN = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The brokers' message rates at one time, msg/s; None of it without load."""

    at_ms: int
    brokers: int
    mean: float
    most: float

    @property
    def imbalance(self) -> float | None:
        """Imbalance as in `signals.imbalance`, by the sums of an SQL engine.

        Of the brokers that had reported.
        """
        return imbalance_of_sums(self.most, self.mean)

    def to_json(self) -> dict[str, Any]:
        """JSON-able values."""
        return {**asdict(self), "imbalance": self.imbalance}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedDecision:
    """A decision and what `explain` says of it; outcome: "" = not known (yet).

    why: the reason in words. more: how many others of the same kind, reason and source this one
    stands for.
    """

    decision_id: str
    at_ms: int
    kind: str
    strategy: str
    reason: str
    why: str
    bundle: str
    source: str
    destination: str
    outcome: str
    messages: tuple[str, ...]
    more: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A cluster at one glance. balance: oldest first; decisions: newest first."""

    status: ClusterStatus
    balance: tuple[Moment, ...]
    decisions: tuple[ExplainedDecision, ...]

    def to_json(self) -> dict[str, Any]:
        """JSON-able values; of what is in flight the oldest, and how many there are."""
        status = self.status.to_json()
        count = len(status["in_flight"])
        status["in_flight"] = status["in_flight"][:IN_FLIGHT_SHOWN]
        return {
            "status": {**status, "in_flight_count": count},
            "balance": [moment.to_json() for moment in self.balance],
            "decisions": [asdict(decision) for decision in self.decisions],
        }


def last_decisions(
    rows: ExplainRows, shown: int = DECISIONS_SHOWN
) -> tuple[ExplainedDecision, ...]:
    """Return the newest decisions, newest first.

    A cycle that did nothing only where it is the newest. Of those that a broker's end or an
    operator's wish makes by the hundred the newest stands for all. O(decisions).
    """
    ordered = sorted(rows.decisions, key=lambda row: (-int(row["at_ms"]), _number(row)))
    found: dict[object, list[Row]] = {}
    for at, row in enumerate(ordered):
        if row["kind"] != "skip" or at == 0:
            alike = (row["kind"], row["reason"], row["source"])
            found.setdefault(alike if row["kind"] in _MANY else at, []).append(row)
    newest = list(found.values())[:shown]
    return tuple(replace(_explained_decision(rows, same[0]), more=len(same) - 1) for same in newest)


def _number(row: Row) -> tuple[int, str]:
    """Ids end in a number that counts within a batch."""
    tail = str(row["decision_id"]).rpartition("-")[2]
    return (int(tail) if tail.isdigit() else 0, str(row["decision_id"]))


def _explained_decision(rows: ExplainRows, decision: Row) -> ExplainedDecision:
    outcomes = [e["outcome"] for e in rows.effects if e["decision_id"] == decision["decision_id"]]
    names = (
        "decision_id",
        "at_ms",
        "kind",
        "strategy",
        "reason",
        "bundle",
        "source",
        "destination",
    )
    return ExplainedDecision(
        **{name: decision[name] for name in names},
        why=reason_message(decision["reason"]),
        outcome=outcomes[-1] if outcomes else "",
        messages=tuple(decision_messages(rows, decision))[1:],
    )


def moments(rows: Iterable[tuple[Any, ...]]) -> tuple[Moment, ...]:
    """Return moments from (at_ms, group, brokers, mean, most) in any order.

    One row a time and broker group. Of several groups the worst counts; what is in none ("") counts
    only where there are no others.
    """
    found: dict[int, dict[str, Moment]] = {}
    for at_ms, group, brokers, mean, most in sorted(rows):
        moment = Moment(at_ms=int(at_ms), brokers=int(brokers), mean=mean, most=most)
        found.setdefault(int(at_ms), {})[group] = moment
    for groups in found.values():
        if len(groups) > 1:
            groups.pop("", None)
    return tuple(
        max(groups.values(), key=lambda one: one.imbalance or 0) for groups in found.values()
    )
