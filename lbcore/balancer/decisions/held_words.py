"""Messages for a hot broker that sheds nothing: rule, numbers, until when, remedy.

Decides the words, the same for status, page, `top`, explain and the alarm. Reads rows of
`decisions` of the kind `held`, which `cycle` writes.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lbcore.model.times import duration, instant

HELD, OVER = "held", "Over"
"""The kind of these rows, whose source is the broker and reason the rule; the reason of the end."""
VALID_MS = 600_000
"""Validity of such a row, ms: hits may take so long to be complete again."""

_RULES: Mapping[str, tuple[str, str]] = {
    "grace": ("moved a short while ago (grace)", "a shorter grace"),
    "cool_down": ("got another owner a short while ago (cool-down)", "a shorter cool-down"),
    "pinned": ("pinned to it", "`ballast bundle unpin`"),
    "excluded_namespace": ("in namespaces excluded from shedding", "`ballast namespace include`"),
    "paused_namespace": ("in namespaces for which balancing is paused", "`ballast resume`"),
    "in_flight": ("changing hands", "the end of these moves"),
    "max_moves_per_cycle": ("as many moves as one cycle may have", "a higher limit"),
    "max_moves_per_broker": ("as many moves as one broker may have", "a higher limit"),
    "max_moves_per_namespace": ("the budget of moves of its namespaces", "a higher limit"),
    "max_moves_in_flight": ("as many moves as may be under way", "a higher limit"),
    "role_cool_down": ("a broker that gave of late does not take, nor the other way round", "time"),
    "isolation": (
        "isolation policies keep its bundles from brokers with room",
        "another isolation policy",
    ),
    "anti_affinity": (
        "anti-affinity groups keep its bundles from brokers with room",
        "another group",
    ),
    "max_topics": ("brokers with room have as many topics as they may", "a higher limit"),
    "distribute_evenly": ("other brokers have more bundles of its namespaces", "even=false"),
    "older_version": ("other brokers run older versions", "upgrading them"),
    "flapping": ("other brokers start again and again", "a broker that stays up"),
    "suspected": ("other brokers have not been heard of for too long", "their next heartbeat"),
    "policies_not_shed": ("bundles of namespaces with policies are not shed", "the setting"),
    "min_unload": ("what may move is less than is worth moving", "a lower bound"),
    "min_throughput": ("what would move is less than is worth moving", "a lower bound"),
    "unload_budget": (
        "each of {bundles} is larger than what is to be moved",
        "a split of its largest bundle, or a larger part",
    ),
    "churn_budget": ("the round has moved what its budget allows", "a larger budget"),
    "left_alone": (
        "it got worse although it carries less, so nothing more is taken from it",
        "what else uses it",
    ),
    "shedding_delay": ("it gave a short while ago", "a shorter delay"),
}
"""Rule → what it is, and what would free the broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldStatus:
    """A broker that is hot and gives nothing. since_ms: since when it is hot; words: the alarm.

    reason: the rule; until_ms: when the last bundle that it holds is free by itself, 0 = never.
    """

    broker: str
    reason: str
    since_ms: int
    until_ms: int
    words: str


def is_believed(told_ms: int, now_ms: int) -> bool:
    """True if a message of told_ms is still valid, as no shedding may have run since."""
    return now_ms - told_ms <= VALID_MS


def held_status(rows: Iterable[Mapping[str, Any]], now_ms: int) -> tuple[HeldStatus, ...]:
    """Return the brokers held now, in name order. O(rows log rows).

    rows: of `decisions`, in any order.
    """
    newest: dict[str, Mapping[str, Any]] = {}
    for row in sorted(rows, key=lambda row: int(row["at_ms"])):
        if row["kind"] == HELD:
            newest[str(row["source"])] = row
    return tuple(
        _status(row, now_ms)
        for _, row in sorted(newest.items())
        if row["reason"] != OVER and is_believed(row["at_ms"], now_ms)
    )


def _status(row: Mapping[str, Any], now_ms: int) -> HeldStatus:
    inputs = json.loads(row["inputs"])
    until = [cause["last_ms"] for cause in inputs["causes"]]
    since_ms = int(inputs["since_ms"])
    words = "; ".join((*held_words(row), *breakdown_words(row)))
    hot = f"hot for {duration(now_ms - since_ms)}" if now_ms > since_ms else "hot"
    return HeldStatus(
        broker=str(row["source"]),
        reason=str(row["reason"]),
        since_ms=since_ms,
        until_ms=0 if 0 in until else max(until, default=0),
        words=f"{row['source']} is {hot} and gives nothing ({_usage(inputs)}): {words}",
    )


def _usage(inputs: Mapping[str, Any]) -> str:
    return f"usage {100 * inputs['usage']:.0f} %, mean {100 * inputs['mean']:.0f} %"


def held_words(row: Mapping[str, Any]) -> list[str]:
    """A sentence for each rule that holds the broker."""
    inputs = json.loads(row["inputs"])
    causes = inputs["causes"]
    if not causes:
        return [f"no rule that can be lifted holds it ({inputs['verdict']}): its bundles stay"]
    is_joint = inputs["is_joint"] and len(causes) > 1
    words = [_cause(cause, inputs, is_joint=is_joint) for cause in causes]
    if is_joint:
        words = [f"only together: {word}" for word in words]
    return words


def breakdown_words(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the number of bundles held per rule; counts add up to the broker's total."""
    inputs = json.loads(row["inputs"])
    if len(inputs["causes"]) < 2 or not inputs.get("blocked"):  # noqa: PLR2004 (the one says it)
        return
    parts = [f"{count} held by {rules}" for rules, count in sorted(inputs["blocked"].items())]
    listed = ", ".join([*parts, f"{inputs['free']} by no rule"])
    yield f"its {inputs['bundles']} bundles: {listed}"


def _cause(cause: Mapping[str, Any], inputs: Mapping[str, Any], *, is_joint: bool) -> str:
    bundles, free = inputs["bundles"], inputs.get("free", 0)
    about, frees = _RULES.get(cause["rule"], (cause["rule"], "its end"))
    # what holds only together with other rules holds those bundles, too, that they hold
    which = f"the {free} that no rule holds" if free and not is_joint else "its bundles"
    about = about.format(bundles=which)
    held = f"{cause['bundles']} of its {bundles} bundles are {about}" if cause["bundles"] else about
    if cause["bundles"] and about.startswith(("moved", "got")):
        held = f"{cause['bundles']} of its {bundles} bundles {about}"
    until = ""
    if cause["last_ms"]:
        until = f", the first until {instant(cause['first_ms'])}"
        until += f", the last until {instant(cause['last_ms'])}"
    setting = f" ({cause['setting']})" if cause["setting"] else ""
    return f"held by {cause['rule']}: {held}{until}; {frees}{setting} would free it"
