"""Alarms from recent rows, as part of the status.

They are about decisions, silent brokers, rejected reports, policies, versions and waiting plans.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lbcore.balancer.balancer import KIND as FAULT
from lbcore.balancer.brokers import SILENCE
from lbcore.balancer.candidate_rows import ENDED
from lbcore.balancer.cycle import FULL
from lbcore.balancer.placement import ALARM as NO_CANDIDATE
from lbcore.balancer.placement import ISOLATION_POLICIES
from lbcore.balancer.rules import ISOLATION, PROPOSAL, PlanProposal, PlanStatus
from lbcore.explain.explanation import Row, count_of
from lbcore.model.times import duration, instant
from lbcore.packing import from_plain
from lbcore.plan.filter.policies import IsolationPolicy
from lbcore.plan.shed.custom import FAULTS

RECENT_MS = 600_000
"""Period in which alarms look for decisions and rejected reports."""
_LATELY_MS = 60_000
"""Period of the last cycles: each writes a row for each setting that leaves no candidate."""


_ADVICE = {
    "isolation policies": "`ballast policy list` shows them; widen one with `ballast policy"
    " set-isolation`, or start a broker that it admits",
    "anti-affinity groups": "`ballast policy list` shows them; take a namespace out with"
    " `ballast policy delete-group`, or start more brokers",
    "silent brokers": "they wait until these are heard; start them, or mend their way to Kafka",
}
_ADVICE_OF_SETTINGS = (
    "`ballast config set {0}=VALUE` with one that brokers meet, or `ballast config reset {0}` if a"
    " command has changed it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """Sentences on silent brokers.

    many: set if half of the brokers or more are silent, "" = fewer. suspected: one for each broker
    that may be dead, if not many are silent. dead: broker → when it was found dead, and which
    brokers got its bundles.
    """

    many: str = ""
    suspected: tuple[str, ...] = ()
    dead: Mapping[str, str] = field(default_factory=dict)


def silence_of(rows: Iterable[Row], now_ms: int) -> Silence:
    """Return the sentences of the newest row about each broker. O(n log n).

    rows: as StatusRows.silence, in any order.
    """
    ordered = sorted(rows, key=lambda row: (int(row["at_ms"]), str(row["decision_id"])))
    newest = {str(row["source"]): row for row in ordered if row["kind"] == SILENCE}
    many = newest.pop("", None)
    is_many = many is not None and many["reason"] == "Many"
    suspected = [r for _, r in sorted(newest.items()) if r["reason"] == "Suspected"]
    dead = {name: row for name, row in sorted(newest.items()) if row["reason"] == "Dead"}
    return Silence(
        many=silence_message(many, now_ms) if many is not None and is_many else "",
        suspected=() if is_many else tuple(silence_message(row, now_ms) for row in suspected),
        dead={name: _failover_message(row, ordered) for name, row in dead.items()},
    )


def silence_message(row: Row, now_ms: int) -> str:
    """Return a `silence` row as of now_ms: `broker-3 suspected: silent for 6 s, ...`."""
    inputs = json.loads(row["inputs"])
    silent = duration(
        (int(inputs["silent_ms"]) + max(0, now_ms - int(row["at_ms"]))) // 1_000 * 1_000
    )
    if row["reason"] == "Many":
        names = ", ".join(inputs["silent"][:3])
        return (
            f"{inputs['count']} of {inputs['brokers']} brokers are silent, such as {names}, for up"
            f" to {silent}, and failover waits"
        )
    if row["reason"] == "Suspected":
        end = duration(int(inputs["broker_timeout_ms"]))
        return f"{row['source']} suspected: silent for {silent}, failover at {end}"
    if row["reason"] == "Dead":
        found = instant(int(row["at_ms"]))[11:19]
        return (
            f"{row['source']} found dead at {found} UTC after"
            f" {duration(int(inputs['silent_ms']) // 1_000 * 1_000)} of silence"
        )
    return f"{row['source']} is heard again" if row["source"] else "most brokers are heard again"


def _failover_message(row: Row, rows: Iterable[Row]) -> str:
    """Return that a broker was found dead, and where its bundles went since."""
    since = [
        json.loads(one["inputs"])
        for one in rows
        if one["kind"] == "failover"
        and one["source"] == row["source"]
        and one["at_ms"] >= row["at_ms"]
    ]
    return f"{silence_message(row, int(row['at_ms']))}, {moves_message(since)}"


def moves_message(failovers: Iterable[Mapping[str, Any]]) -> str:
    """Return `10 bundles moved to broker-1 (4), ...`. failovers: decisions' inputs."""
    moved, to = 0, Counter[str]()
    for inputs in failovers:
        moved += int(inputs["bundles"])
        to.update(inputs.get("destinations", {}))
    names = ", ".join(f"{name} ({count})" for name, count in sorted(to.items()))
    return f"{moved} bundle{'' if moved == 1 else 's'} moved" + (f" to {names}" if names else "")


def decided_alarms(
    decisions: Iterable[Row], whole: Iterable[Row], written_ms: int
) -> Iterable[str]:
    """Yield alarms about decisions: what is wrong, then what to do. O(decisions).

    whole: decisions with their inputs, at least those of the kinds NO_CANDIDATE and FULL.
    written_ms: time of the job's last commit.
    """
    recent = [row for row in decisions if row["at_ms"] >= written_ms - RECENT_MS]
    if any(row["kind"] == FAULT for row in recent):
        yield (
            "something raised while it was worked on and was put aside: read the events fault of"
            " the job's log and section BallastFaults of docs/runbook.md, and report it"
        )
    lately_ms = written_ms - _LATELY_MS
    wrong = {
        row["reason"] for row in recent if row["reason"] in FAULTS and row["at_ms"] > lately_ms
    }
    if wrong:
        yield f"your strategy decides nothing ({min(wrong)}): read `ballast explain cluster`"
    without = [row for row in whole if row["kind"] == NO_CANDIDATE and row["at_ms"] > lately_ms]
    yield from sorted(set(map(_no_candidate, without)))
    full = sorted((r for r in whole if r["kind"] == FULL), key=lambda r: int(r["at_ms"]))
    if full and full[-1]["reason"] != ENDED and full[-1]["at_ms"] > written_ms - RECENT_MS:
        yield capacity_message(full[-1])
    clocks = sorted((r for r in recent if r["kind"] == "clock"), key=lambda r: int(r["at_ms"]))
    words = {name: row["reason"] for row in clocks for name in str(row["source"]).split(", ")}
    for name in sorted(name for name, reason in words.items() if reason == "Apart"):
        yield f"the clock {name} is wrong: section BallastClockSkew of docs/runbook.md"
    for broker in sorted({row["source"] for row in recent if row["kind"] == "back_off"}):
        yield (
            f"{broker} starts again and again and gets no bundles for now: read its log; section"
            " BallastFlapping of docs/runbook.md"
        )


def capacity_message(row: Row) -> str:
    """Return a sentence on a `full` row: how full the cluster is, and the remedy."""
    inputs = json.loads(row["inputs"])
    missing, target = inputs["missing"], inputs["target"]
    needed, full = count_of(missing, "broker"), count_of(inputs["brokers"], "broker")
    whole = f"the isolation group of {inputs['group']}" if "group" in inputs else "the cluster"
    of = ", ".join(inputs["of"])
    of += ", ..." if inputs["brokers"] > len(inputs["of"]) else ""
    return (
        f"{whole} is full: the mean usage of {full} ({of}) is"
        f" {inputs['mean']:.0f} %, and moves can't help; start at least {needed} of the mean"
        f" capacity, which brings it to {target:.0f} %; section BallastClusterFull of"
        " docs/runbook.md"
    )


def _no_candidate(row: Row) -> str:
    setting, inputs = str(row["reason"]), json.loads(row["inputs"])
    if setting != ISOLATION_POLICIES or not inputs.get("namespaces"):
        advice = _ADVICE.get(setting, _ADVICE_OF_SETTINGS.format(setting))
        return (
            f"no broker may take some bundles because of {setting}: {advice}; section"
            " BallastNoCandidate of docs/runbook.md"
        )
    more = inputs["namespace_count"] - len(inputs["namespaces"])
    whose = ", ".join(inputs["namespaces"]) + (f" and {more} more" if more else "")
    if not inputs["policy"]:
        return (
            f"isolation policies reserve every broker, so none may take bundles of {whose}: start"
            " a broker that no policy names as primary, or name fewer"
        )
    return (
        f"isolation policy {inputs['policy']} admits no broker for bundles of {whose}: start a"
        " broker that it names, or `ballast policy set-isolation` it with patterns that match"
        " brokers"
    )


def policy_alarms(policies: Iterable[Row]) -> Iterable[str]:
    """Yield a sentence for each unusable pattern of isolation policies. O(patterns).

    policies: rows of the table, the newest of each name. Older versions and Pulsar accept patterns
    that can't be matched in linear time.
    """
    for row in sorted(policies, key=lambda row: str(row["name"])):
        if row["kind"] == ISOLATION and row["is_set"]:
            policy = IsolationPolicy.from_json(row["name"], json.loads(row["value"]))
            for problem in policy.problems():
                yield f"{problem}; it matches nobody until the policy is set without it"


def rejected_alarms(rejected: Iterable[Row]) -> Iterable[str]:
    """Yield the number of rejected messages for each reason.

    rejected: rows of the last RECENT_MS.
    """
    reasons = Counter(row["reason"] for row in rejected)
    for reason, count in sorted(reasons.items()):
        messages = count_of(count, "message")
        yield f"{messages} rejected ({reason}) within 10 minutes: `ballast sql rejected`"


ADVICE = "end the upgrade; filters.prefer_later_versions keeps bundles off the older ones"


def broker_versions(brokers: Iterable[Row]) -> dict[str, int]:
    """Return version → number of active brokers that report it, in order of versions."""
    there = Counter(str(row.get("version") or "") for row in brokers if row["state"] == "active")
    return {version: count for version, count in sorted(there.items()) if version}


def counted_versions(versions: Mapping[str, int]) -> str:
    """Return the versions as text, each with its number of brokers."""
    return ", ".join(f"{version} ({count})" for version, count in versions.items())


def several_versions(versions: Mapping[str, int]) -> str:
    """Return a sentence that brokers run several versions; "" = they don't."""
    if len(versions) < 2:  # noqa: PLR2004 (several)
        return ""
    return f"the active brokers are of several versions: {counted_versions(versions)}"


def plan_alarms(policies: Iterable[Row]) -> Iterator[str]:
    """Yield a sentence for each waiting plan.

    policies: rows of the table, the newest of each name.
    """
    for row in sorted(policies, key=lambda row: str(row["name"])):
        if row["kind"] != PROPOSAL or not row["is_set"]:
            continue
        plan = from_plain(PlanProposal, json.loads(row["value"]))
        if plan.station is PlanStatus.WAITS:
            hottest = f"{100 * plan.before['max']:.0f} -> {100 * plan.after['max']:.0f} %"
            # the plan of a cycle names nobody
            meanwhile = f"by {plan.by}" if plan.by else "and no cycle moves anything meanwhile"
            yield (
                f"plan {row['name']} waits for somebody until {instant(plan.until_ms)}:"
                f" {len(plan.steps)} {'step' if len(plan.steps) == 1 else 'steps'}, hottest broker"
                f" {hottest}, {meanwhile}: `ballast plan show {row['name']}`"
            )
