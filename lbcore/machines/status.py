"""Status: how a cluster is, from the tables alone, in the words of an operator.

Decides the phase, and what is wrong enough to be an alarm. Stands beside the balancer, which knows
nothing of it; verbs and services show it. Source: ours.

Phases, the first that holds: *stalled* (the job is away, makes no cycles, or bundles are in flight
for longer than any timeout), *off* (never started, paused as a whole, or braked), *in progress*
(bundles are moving, or a broker is drained), *ready*.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any

from lbcore.config.tree import Config
from lbcore.machines.faults import KIND as FAULT
from lbcore.machines.mirrored import MirrorStatus, mirror_alarms, mirror_status
from lbcore.machines.rules import SET_ASIDE
from lbcore.ownership.repair import stuck_after_ms

Row = Mapping[str, Any]

RECENT_MS = 600_000
"""How far back decisions and rejected reports are looked at."""

_IN_FLIGHT = ("Assigning", "Releasing", "Splitting")
_HEARTBEATS_MISSED, _CYCLES_MISSED = 3, 3
_SLACK_MS = 5_000


class Phase(str, Enum):
    """What the cluster is doing, on the whole."""

    OFF = "off"
    READY = "ready"
    IN_PROGRESS = "in progress"
    STALLED = "stalled"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusRows:
    """One cluster's rows, each table's as its name says.

    load: of load_history, decisions and rejected: of the last RECENT_MS; observed: the commands
    with which a bridge told of another authority, as recent. writer_ms: time of the
    job's last commit, None = there was none.
    """

    writer_ms: int | None
    bundles: Sequence[Row]
    brokers: Sequence[Row]
    decisions: Sequence[Row]
    policies: Sequence[Row]
    pins: Sequence[Row]
    load: Sequence[Row]
    rejected: Sequence[Row]
    observed: Sequence[Row] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatus:
    """A broker. bundles: that it owns. load: None = no row of load_history is recent."""

    broker: str
    state: str
    bundles: int
    score: float | None = None
    msg_rate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainStatus:
    """A broker that is being emptied; times in ms since 1970, 0 = none, or not known yet."""

    broker: str
    since_ms: int
    total: int
    left: int
    estimated_end_ms: int
    deadline_ms: int
    is_done: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """How a cluster is. Silences and ages in ms, -1 = never; lists in name order.

    in_flight: the oldest first. pauses: namespace ("" = the whole cluster) → who, why, since when.
    set_aside: changed settings that don't suit the files, by "section.name" → why not.
    """

    cluster: str
    now_ms: int
    phase: Phase
    why: str
    writer_silent_ms: int
    cycle: int
    cycle_age_ms: int
    last_cycle: str
    brokers: Mapping[str, int]
    broker_rows: tuple[BrokerStatus, ...]
    bundles: Mapping[str, int]
    in_flight: tuple[Row, ...]
    drains: tuple[DrainStatus, ...]
    pauses: Mapping[str, Row]
    brake: Row | None
    pins: tuple[Row, ...]
    excluded: tuple[str, ...]
    set_aside: Mapping[str, str] = field(default_factory=dict)
    alarms: tuple[str, ...] = ()
    mirror: MirrorStatus | None = None

    def to_json(self) -> dict[str, Any]:
        """JSON-able values."""
        return {**asdict(self), "phase": self.phase.value}


def make_status(cluster: str, rows: StatusRows, config: Config, now_ms: int) -> ClusterStatus:
    """How the cluster is at `now_ms`. config: of the cluster. O(rows)."""
    policies = _policies(rows.policies)
    last = _last_cycle(rows.decisions)
    broker_rows = _broker_rows(rows)
    draft = ClusterStatus(
        cluster=cluster,
        now_ms=now_ms,
        phase=Phase.READY,
        why="",
        writer_silent_ms=-1 if rows.writer_ms is None else max(0, now_ms - rows.writer_ms),
        cycle=last[0]["cycle"] if last else 0,
        cycle_age_ms=max(0, now_ms - last[0]["at_ms"]) if last else -1,
        last_cycle=_cycle_words(last),
        brokers=_counted(row.state for row in broker_rows),
        broker_rows=broker_rows,
        bundles=_counted(row["state"] for row in rows.bundles if row["state"] != "Deleted"),
        in_flight=_in_flight(rows.bundles),
        drains=_drains(policies.get("drain", {})),
        pauses=policies.get("paused", {}),
        brake=policies.get("brake", {}).get(""),
        pins=tuple(sorted(_set(rows.pins), key=lambda row: str(row["bundle"]))),
        excluded=tuple(sorted(policies.get("excluded", {}))),
        set_aside={key: value["why"] for key, value in policies.get(SET_ASIDE, {}).items()},
        mirror=mirror_status(rows.observed, config, now_ms),
    )
    phase, why = _phase(draft, config)
    return replace(draft, phase=phase, why=why, alarms=tuple(_alarms(draft, rows, config)))


def _counted(words: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(words).items()))


def _in_flight(rows: Iterable[Row]) -> tuple[Row, ...]:
    found = [row for row in rows if row["state"] in _IN_FLIGHT]
    return tuple(sorted(found, key=lambda row: (row["at_ms"], row["bundle"])))


def _set(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row["is_set"]]


def _policies(rows: Iterable[Row]) -> dict[str, dict[str, Any]]:
    """Kind → name → value, of what is set; names sorted."""
    found: dict[str, dict[str, Any]] = {}
    for row in sorted(_set(rows), key=lambda row: (row["kind"], row["name"])):
        found.setdefault(row["kind"], {})[row["name"]] = json.loads(row["value"])
    return found


def _drains(values: Mapping[str, Mapping[str, Any]]) -> tuple[DrainStatus, ...]:
    names = ("since_ms", "total", "left", "estimated_end_ms", "deadline_ms", "is_done")
    return tuple(
        DrainStatus(broker=broker, **{name: value.get(name, 0) for name in names})
        for broker, value in values.items()
    )


def _broker_rows(rows: StatusRows) -> tuple[BrokerStatus, ...]:
    leaving = ("Releasing", "Splitting")
    held = Counter(row["destination"] for row in rows.bundles if row["state"] == "Owned")
    held.update(row["source"] for row in rows.bundles if row["state"] in leaving)
    load = {row["broker"]: row for row in sorted(rows.load, key=lambda row: int(row["minute_ms"]))}
    return tuple(
        BrokerStatus(
            broker=row["broker"],
            state=row["state"],
            bundles=held[row["broker"]],
            score=load[row["broker"]]["score"] if row["broker"] in load else None,
            msg_rate=sum(load[row["broker"]]["traffic"][:2]) if row["broker"] in load else None,
        )
        for row in sorted(rows.brokers, key=lambda row: str(row["broker"]))
        if row["state"] != "forgotten"
    )


def _last_cycle(decisions: Iterable[Row]) -> list[Row]:
    """What the newest cycle decided; commands that came after it bear its number, too."""
    cycles = [row for row in decisions if row["cycle"] > 0]
    number = max((row["cycle"] for row in cycles), default=0)
    newest = [row for row in cycles if row["cycle"] == number]
    begun_ms = min((row["at_ms"] for row in newest), default=0)
    return [row for row in newest if row["at_ms"] == begun_ms]


def _cycle_words(rows: Iterable[Row]) -> str:
    """What a cycle decided: `2 transfer (HitCount)`; several, by count."""
    counts = Counter((row["kind"], row["reason"]) for row in rows)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {kind} ({reason})" for (kind, reason), count in ordered)


def _phase(status: ClusterStatus, config: Config) -> tuple[Phase, str]:
    if status.writer_silent_ms < 0:
        return Phase.OFF, "the streaming job has never written anything"
    tests: Sequence[tuple[Phase, Callable[[], str]]] = (
        (Phase.STALLED, lambda: _stalled(status, config)),
        (Phase.OFF, lambda: _off(status)),
        (Phase.IN_PROGRESS, lambda: _progress(status)),
    )
    for phase, reason_of in tests:
        reason = reason_of()
        if reason:
            return phase, reason
    return Phase.READY, "nothing is moving"


def _stalled(status: ClusterStatus, config: Config) -> str:
    if _is_job_away(status, config):
        return "the streaming job is away: nothing is decided, lookups go on"
    if "active" not in status.brokers and "draining" not in status.brokers and status.brokers:
        return "no broker is heard: records stay until one is"
    rhythm = config.pipeline
    if status.cycle_age_ms > _CYCLES_MISSED * rhythm.decision_interval_ms + _SLACK_MS:
        return "the job writes, but makes no cycles"
    stuck = _stuck(status, config)
    return f"{len(stuck)} bundles are in flight for longer than any timeout" if stuck else ""


def _is_job_away(status: ClusterStatus, config: Config) -> bool:
    limit_ms = _HEARTBEATS_MISSED * config.pipeline.heartbeat_commit_ms
    return status.writer_silent_ms > limit_ms


def _stuck(status: ClusterStatus, config: Config) -> list[Row]:
    limit_ms = stuck_after_ms(config.ownership)
    return [row for row in status.in_flight if status.now_ms - row["at_ms"] > limit_ms]


def _off(status: ClusterStatus) -> str:
    if status.brake is not None:
        return "the brake is on: failover goes on, nothing else moves"
    paused = status.pauses.get("")
    if paused is None:
        return ""
    why = f": {paused['reason']}" if paused.get("reason") else ""
    return f"paused by {paused.get('by') or 'somebody'}{why}; failover and commands go on"


def _progress(status: ClusterStatus) -> str:
    count = len(status.in_flight)
    parts = [f"{count} bundle{'' if count == 1 else 's'} in flight"] if count else []
    under_way = [drain.broker for drain in status.drains if not drain.is_done]
    parts += [f"draining {', '.join(under_way)}"] if under_way else []
    return ", ".join(parts)


def _alarms(status: ClusterStatus, rows: StatusRows, config: Config) -> Iterable[str]:
    """What somebody should look at: what is wrong, then what to do."""
    if status.writer_silent_ms >= 0 and _is_job_away(status, config):
        silent_s = status.writer_silent_ms // 1000
        yield f"no heartbeat of the job for {silent_s} s: read its log, start it again"
    silent = [row.broker for row in status.broker_rows if row.state == "silent"]
    if silent:
        yield f"silent: {', '.join(silent)}; start them, or `ballast broker forget` them"
    if status.brake is not None:
        lost = ", ".join(status.brake.get("lost", ()))
        yield f"the brake is on since {lost} vanished: `ballast release-brake` when that is right"
    for row in _stuck(status, config)[:5]:
        who = row["source"] or row["destination"]
        yield f"{row['bundle']} is {row['state']} for too long: read the log of {who}"
    for drain in status.drains:
        if not drain.is_done and 0 < drain.deadline_ms < status.now_ms:
            yield f"the drain of {drain.broker} is over its deadline with {drain.left} bundles left"
    for key, why in status.set_aside.items():
        yield (
            f"the changed setting {key} is set aside and the file's value is in force ({why}):"
            f" `ballast config reset {key}`, or mend the file and start the job again"
        )
    yield from _waiting(status, rows, config)
    yield from mirror_alarms(status.mirror)
    yield from _decided(rows)
    reasons = Counter(row["reason"] for row in rows.rejected)
    for reason, count in sorted(reasons.items()):
        yield f"{count} messages rejected ({reason}) within 10 minutes: see rejected_reports"


def _decided(rows: StatusRows) -> Iterable[str]:
    """What the job itself has noticed of late, as rows of `decisions` say it."""
    if any(row["kind"] == FAULT for row in rows.decisions):
        yield (
            "something raised while it was worked on and was put aside: read the events fault of"
            " the job's log and section BallastFaults of docs/runbook.md, and report it"
        )
    ticks = [row for row in rows.decisions if row["kind"] == "ticks"]
    if max(ticks, key=lambda row: int(row["at_ms"]), default={"reason": ""})["reason"] == "Missing":
        yield "no ticks on broker-load: nobody is judged until they are back; read the job's log"
    for broker in sorted({row["source"] for row in rows.decisions if row["kind"] == "back_off"}):
        yield f"{broker} starts again and again and gets no bundles for now: read its log"


def _waiting(status: ClusterStatus, rows: StatusRows, config: Config) -> Iterable[str]:
    """Free bundles that should have an owner by now."""
    if config.ownership.assign != "eager" or status.mirror is not None:
        return
    limit_ms = 5 * config.pipeline.settle_ms + 2 * config.pipeline.decision_interval_ms
    free = [
        row
        for row in rows.bundles
        if row["state"] == "Free" and status.now_ms - row["at_ms"] > limit_ms
    ]
    if free:
        such = free[0]["bundle"]
        yield f"{len(free)} bundles have no owner, such as {such}: no broker may take it"
