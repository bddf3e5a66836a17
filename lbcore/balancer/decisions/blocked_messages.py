"""Messages for a hot broker that sheds nothing: usage, and bundles by verdict.

The same words for status, page, `status --watch`, explain and the alarm. Reads rows of `decisions`
of the kind `blocked`, which `cycle` writes.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lbcore.model.times import duration
from lbcore.plan.blocked import FREE

BLOCKED, OVER = "blocked", "Over"
"""The kind of these rows, whose source is the broker; the reason of the row that ends them."""
BLOCKED_ALARM_S = 180
"""A broker is hot and gives nothing for so long before it is an alarm."""
VALID_MS = 600_000
"""Validity of such a row, ms: hits may take so long to be complete again."""

_BUNDLES: Mapping[str, str] = {
    "recently_unloaded": "moved a short while ago",
    "pinned": "are pinned to it",
    "excluded_namespace": "are in namespaces excluded from shedding",
    "paused": "are in namespaces for which balancing is paused",
    "in_flight": "are changing hands",
    "merging": "wait for their merge with a neighbour",
    "system_namespace": "are its own (system namespace)",
    "no_other_broker": "may go to no other broker",
    "no_destination": "found no destination",
    "anti_affinity": "would come back (anti-affinity groups)",
    "over_budget": "did not fit into what was to be moved",
    "cycle_limit": "waited (shedding.max_moves_per_cycle)",
    "broker_limit": "waited: as many as one broker may have in a cycle",
    "in_flight_limit": "waited: 2,000 moves are under way",
    "hour_limit": "waited (shedding.max_moves_per_hour)",
    "tenant_limit": "waited (shedding.max_moves_per_hour_of_tenant)",
    "role_cool_down": "waited (shedding.cool_down_ms)",
}
_STRATEGY: Mapping[str, str] = {
    "no_fitting_bundle": "each is larger than what is to be moved",
    "no_gain": "no move or exchange gains more than it costs",
    "suspended": "it got worse although it carries less",
    "below_min_unload": "all of them are less than is worth moving",
    "below_min_throughput": "all of them are less than is worth moving",
    "churn_budget": "the round has moved what its budget allows",
    "too_few_hits": "too few reports in a row",
}
"""The strategy's verdict on a broker → why it left the bundles that no rule stopped."""


_LIMIT = "another value of the limit: `ballast config set`"
_REMEDIES: Mapping[str, str] = {
    "recently_unloaded": "`ballast config set shedding.grace_period_ms=0`",
    "pinned": "`ballast bundle unpin`",
    "excluded_namespace": "`ballast namespace include`",
    "paused": "`ballast resume`",
    "in_flight": "the end of these moves",
    "merging": "the end of these merges",
    "no_other_broker": "one more broker that its policies admit",
    "no_destination": "one more broker, or other policies: `ballast policy list`",
    "anti_affinity": "another group: `ballast policy list`",
    "role_cool_down": "time, or `ballast config set shedding.cool_down_ms=0`",
    "no_fitting_bundle": "a split of the largest, or a higher shedding.max_unload_fraction",
    "suspended": "find what else uses it",
    "churn_budget": "the next round, or a higher ideal_load.churn_budget",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedStatus:
    """A hot broker that sheds nothing.

    since_ms: since when it is hot; messages: the alarm. reason: the commonest verdict on its
    bundles, or the strategy's.
    """

    broker: str
    reason: str
    since_ms: int
    messages: str


def is_believed(told_ms: int, now_ms: int) -> bool:
    """True if a message of told_ms is still valid, as no shedding may have run since."""
    return now_ms - told_ms <= VALID_MS


def blocked_status(rows: Iterable[Mapping[str, Any]], now_ms: int) -> tuple[BlockedStatus, ...]:
    """Return the brokers blocked now, in name order. O(rows log rows).

    rows: of `decisions`, in any order.
    """
    newest: dict[str, Mapping[str, Any]] = {}
    for row in sorted(rows, key=lambda row: int(row["at_ms"])):
        if row["kind"] == BLOCKED:
            newest[str(row["source"])] = row
    return tuple(
        BlockedStatus(
            broker=broker,
            reason=str(row["reason"]),
            since_ms=int(json.loads(row["inputs"])["since_ms"]),
            messages=f"{hot_messages(row, now_ms)} and gives nothing: {count_messages(row)}; what"
            f" would allow it: `ballast explain broker {broker}`",
        )
        for broker, row in sorted(newest.items())
        if row["reason"] != OVER and is_believed(row["at_ms"], now_ms)
    )


def hot_messages(row: Mapping[str, Any], now_ms: int) -> str:
    """`broker-1 is at 54 % (group mean 35 %) for 4 min`."""
    inputs = json.loads(row["inputs"])
    usage, mean = (f"{100 * inputs[name]:.0f} %" for name in ("usage", "mean"))
    hot_ms = now_ms - int(inputs["since_ms"])
    span = f" for {duration(hot_ms)}" if hot_ms > 0 else ""
    return f"{row['source']} is at {usage} (group mean {mean}){span}"


def count_messages(row: Mapping[str, Any]) -> str:
    """Return `10 of its 11 bundles moved a short while ago, ...`; adds up to all."""
    inputs = json.loads(row["inputs"])
    counts: Mapping[str, int] = inputs["counts"]
    stopped = sorted(set(counts) - FREE, key=lambda name: (-counts[name], name))
    parts = [f"{counts[name]} {_BUNDLES.get(name, f'stay ({name})')}" for name in stopped]
    free = sum(counts[name] for name in counts if name in FREE)
    if free:
        why = _STRATEGY.get(inputs["verdict"], inputs["verdict"])
        parts.append(f"{free} may move" + (f" ({why})" if why != "taken" else ""))
    if not parts:
        return "it has no bundle"
    first, *others = parts
    count, _, words = first.partition(" ")
    bundles = f"{count} of its {inputs['bundles']} bundles {words}"
    return ", ".join([bundles, *others])


def remedy_messages(row: Mapping[str, Any], until: str) -> Iterator[str]:
    """Yield what keeps bundles, the commonest first, and what would allow their moves.

    until: when the first of those that rest may move again, "" = not known.
    """
    inputs = json.loads(row["inputs"])
    counts: Mapping[str, int] = inputs["counts"]
    for name in sorted(set(counts) - FREE, key=lambda name: (-counts[name], name)):
        words = f"{counts[name]} of its {inputs['bundles']} bundles {_BUNDLES.get(name, name)}"
        if name == "recently_unloaded" and until:
            words += f"; the first may move again at {until}"
        yield f"{words}. To allow it now: {_REMEDIES.get(name, _LIMIT)}"
    if set(counts) <= FREE and inputs["verdict"] in _REMEDIES:
        yield f"{_STRATEGY[inputs['verdict']]}. To allow it now: {_REMEDIES[inputs['verdict']]}"
