"""Status of a cluster from the tables alone: its phase, its figures, its alarms.

The phase is the first that applies: *off* (the job was never started), *stalled* (the job is away
or makes no cycles, no broker is heard, half of them or more are silent, or bundles are in flight
for longer than any timeout), *off* (the whole cluster is paused, or the brake is on), *late* (the
job's next commit is overdue), *in progress* (bundles are moving, a broker is being drained or
suspected dead, or a silent one still has bundles), *ready*. `job_state` judges the job.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import Enum
from functools import partial
from itertools import takewhile
from operator import itemgetter
from typing import Any

from lbcore.balancer.candidate_rows import (
    BLOCKED,
    BLOCKED_ALARM_S,
    BlockedStatus,
    blocked_status,
)
from lbcore.balancer.cycle import FULL
from lbcore.balancer.rules import SET_ASIDE
from lbcore.config.tree import Config
from lbcore.explain.explanation import ExplainRows, Row, by_decision, count_of, policy_values
from lbcore.explain.job_state import (
    NEVER_MS,
    CycleGap,
    JobContext,
    JobState,
    JobStatus,
    as_of,
    gaps,
    job_alarms,
    judge_job,
    misses_ticks,
)
from lbcore.explain.mirrored import (
    MirrorStatus,
    certificates_ending,
    mirror_alarms,
    mirror_status,
    troubles_found,
)
from lbcore.explain.reasons import cycle_message, decision_messages, reason_message
from lbcore.explain.recent_findings import (
    ADVICE,
    Silence,
    broker_versions,
    decided_alarms,
    plan_alarms,
    policy_alarms,
    rejected_alarms,
    several_versions,
    silence_of,
)
from lbcore.model.times import CertificateEnd, duration
from lbcore.ownership.changes import serving_broker
from lbcore.ownership.records import State
from lbcore.ownership.repair import stuck_after_ms
from lbcore.ownership.states import IN_FLIGHT
from lbcore.plan.registry import hot_points
from lbcore.signals.shown_load import (
    GroupLoad,
    ShownLoad,
    group_loads,
    groups_line,
    imbalance_of,
    shown_loads,
)
from lbcore.validation.check import in_force

HISTORY_MS = 3_600_000
"""Period in which times without cycles are reported."""

_DEATHS_SHOWN = 5
_SECTION = re.compile(r"section (\w+) of docs/runbook\.md")
_IN_FLIGHT = frozenset(state.value for state in IN_FLIGHT)


class ClusterPhase(str, Enum):
    """Overall activity of the cluster."""

    OFF = "off"
    READY = "ready"
    LATE = "late"
    IN_PROGRESS = "in progress"
    STALLED = "stalled"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusRows:
    """One cluster's rows. A field named like a table has rows of that table.

    writer_ms: time of the job's last commit, None = there was none.
    bundles: of `bundle_ownership`, those not Owned. at_rest: broker → number of Owned bundles.
    brokers, policies, pins: all rows. decisions: of the last HISTORY_MS, without inputs. The
    others are of the last RECENT_MS: load: of `load_history`. rejected: of `rejected_reports`.
    blocked: decisions about hot brokers and bundles that nobody may take, with inputs.
    silence: decisions of the kinds `silence` and `failover`, with inputs.
    mirror_commands: `observe_ownership` commands, by which a bridge reports.
    certificates: holder → end, ms since 1970, without those that a bridge reports.
    around: facts about the job that are in no table. settings: those that commands have changed.
    """

    writer_ms: int | None
    bundles: Sequence[Row]
    at_rest: Mapping[str, int] = field(default_factory=dict)
    brokers: Sequence[Row]
    decisions: Sequence[Row]
    policies: Sequence[Row]
    pins: Sequence[Row]
    load: Sequence[Row]
    rejected: Sequence[Row]
    blocked: Sequence[Row] = ()
    mirror_commands: Sequence[Row] = ()
    certificates: Mapping[str, int] = field(default_factory=dict)
    silence: Sequence[Row] = ()
    around: JobContext = field(default_factory=JobContext)
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatus:
    """State and load of one broker.

    bundles: number that it owns. usage: the weighted maximum over its resources, score: the same
    smoothed, 1.0 = 100 %; msg_rate: msg/s in and out; load_age_ms: age of that report. None, and
    load_age_ms -1, if the broker is silent or has no recent row. group: as in `ShownLoad`.
    """

    broker: str
    state: str
    bundles: int
    usage: float | None = None
    score: float | None = None
    msg_rate: float | None = None
    load_age_ms: int = NEVER_MS
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainStatus:
    """Drain of one broker. total, left: bundles at its start, and now.

    Times in ms since 1970, 0 = none, or not known yet.
    """

    broker: str
    since_ms: int
    total: int
    left: int
    estimated_end_ms: int
    deadline_ms: int
    is_done: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """State of a cluster. Silences and ages in ms, -1 = never; lists in name order.

    in_flight: the oldest first. pauses: namespace ("" = the whole cluster) → who, why, since when.
    set_aside: settings changed by command that don't suit the files, "section.name" → reason.
    versions: version → number of active brokers that report it. job_message: job, as a sentence.
    gaps: times without cycles within HISTORY_MS, oldest first. imbalance: of the message rates of
    the live brokers, in the worst group; None without load. groups: by isolation policies, empty
    if all brokers are one group. blocked: hot brokers that shed nothing, and why. alarms: what
    needs action now; alarm_sections: the section of each in docs/runbook.md, "" = none. warnings:
    what can wait for days. hot_points: points of usage above the mean of its group from which a
    broker is shown as hot.
    """

    cluster: str
    now_ms: int
    phase: ClusterPhase
    why: str
    writer_silent_ms: int
    cycle: int
    cycle_age_ms: int
    last_cycle: str
    brokers: Mapping[str, int]
    versions: Mapping[str, int]
    broker_rows: tuple[BrokerStatus, ...]
    bundles: Mapping[str, int]
    in_flight: tuple[Row, ...]
    drains: tuple[DrainStatus, ...]
    pauses: Mapping[str, Row]
    brake: Row | None
    pins: tuple[Row, ...]
    excluded: tuple[str, ...]
    set_aside: Mapping[str, str] = field(default_factory=dict)
    job: JobState
    job_message: str
    gaps: tuple[CycleGap, ...]
    imbalance: float | None
    groups: tuple[GroupLoad, ...]
    blocked: tuple[BlockedStatus, ...]
    alarms: tuple[str, ...] = ()
    alarm_sections: tuple[str, ...] = ()
    hot_points: float = 10.0
    warnings: tuple[str, ...] = ()
    mirror: MirrorStatus | None = None
    silence: Silence = field(default_factory=Silence)

    @property
    def headline(self) -> str:
        """The phase, followed by the number of alarms; with alarms, "ready" is left out."""
        if not self.alarms:
            return self.phase.value
        count = count_of(len(self.alarms), "alarm")
        return count if self.phase is ClusterPhase.READY else f"{self.phase.value}, {count}"

    def to_json(self) -> dict[str, Any]:
        """Return values that JSON can hold."""
        plain = asdict(self)
        plain["job"]["word"] = self.job.word.value
        plain["group_words"] = groups_line(self.groups)
        plain["gap_messages"] = [gap.message() for gap in self.gaps]
        return {**plain, "phase": self.phase.value}


def make_status(cluster: str, rows: StatusRows, config: Config, now_ms: int) -> ClusterStatus:
    """Return the state of the cluster at `now_ms`. O(rows).

    config: of the cluster, as the job was started.
    """
    policies = partial(policy_values, rows.policies)
    set_aside = policies(SET_ASIDE)
    config, _ = in_force(config, rows.settings, set_aside)
    last = _last_cycle(rows.decisions)
    loads = shown_loads(rows.brokers, rows.load, config.signals, now_ms)
    broker_rows, groups = _broker_rows(rows, loads, now_ms), group_loads(loads)
    in_flight = (row for row in rows.bundles if row["state"] in _IN_FLIGHT)
    states = Counter(row["state"] for row in rows.bundles if row["state"] != State.DELETED.value)
    states[State.OWNED.value] += sum(rows.at_rest.values())
    silent_ms = -1 if rows.writer_ms is None else max(0, now_ms - rows.writer_ms)
    cycle_age_ms = max(0, now_ms - last[0]["at_ms"]) if last else -1
    hears_ticks = not misses_ticks(rows.decisions)
    job = judge_job(
        silent_ms, cycle_age_ms, config.pipeline, hears_ticks=hears_ticks, around=rows.around
    )
    draft = ClusterStatus(
        cluster=cluster,
        now_ms=now_ms,
        phase=ClusterPhase.READY,
        why="",
        writer_silent_ms=silent_ms,
        cycle=last[0]["cycle"] if last else 0,
        cycle_age_ms=cycle_age_ms,
        last_cycle=cycle_message(last),
        brokers=dict(sorted(Counter(row.state for row in broker_rows).items())),
        versions=broker_versions(rows.brokers),
        broker_rows=broker_rows,
        bundles={state: count for state, count in sorted(states.items()) if count},
        in_flight=tuple(sorted(in_flight, key=itemgetter("at_ms", "bundle"))),
        drains=_drains(policies("drain")),
        pauses=policies("paused"),
        brake=policies("brake").get(""),
        pins=tuple(sorted(filter(itemgetter("is_set"), rows.pins), key=itemgetter("bundle"))),
        excluded=tuple(sorted(policies("excluded"))),
        set_aside={key: value["why"] for key, value in set_aside.items()},
        job=job,
        job_message=job.message(),
        gaps=gaps(rows.decisions, config.pipeline, now_ms),
        imbalance=imbalance_of(loads),
        groups=groups if len(groups) > 1 else (),
        blocked=blocked_status(rows.blocked, now_ms - max(0, silent_ms)),
        mirror=mirror_status(rows.mirror_commands, config, now_ms),
        silence=silence_of(rows.silence, now_ms if job.is_present else rows.writer_ms or 0),
        hot_points=hot_points(config),
    )
    phase, why = _phase(draft, config)
    alarms = tuple(_alarms(draft, rows, config))
    return replace(
        draft,
        phase=phase,
        why=why,
        alarms=tuple(words for words, _ in alarms),
        alarm_sections=tuple(section for _, section in alarms),
        warnings=_warnings(draft, rows),
    )


def _drains(values: Mapping[str, Mapping[str, Any]]) -> tuple[DrainStatus, ...]:
    names = [one.name for one in fields(DrainStatus) if one.name != "broker"]
    return tuple(
        DrainStatus(broker=broker, **{name: value.get(name, 0) for name in names})
        for broker, value in values.items()
    )


def _broker_rows(
    rows: StatusRows, loads: Mapping[str, ShownLoad], now_ms: int
) -> tuple[BrokerStatus, ...]:
    served = Counter(map(serving_broker, rows.bundles)) + Counter(rows.at_rest)
    return tuple(
        BrokerStatus(
            broker=row["broker"],
            state=row["state"],
            bundles=served[row["broker"]],
            **_load(loads.get(row["broker"]), now_ms),
        )
        for row in sorted(rows.brokers, key=lambda row: str(row["broker"]))
        if row["state"] != "forgotten"
    )


def _load(load: ShownLoad | None, now_ms: int) -> dict[str, Any]:
    if load is None:
        return {}
    shown = {name: getattr(load, name) for name in ("usage", "score", "msg_rate", "group")}
    return {**shown, "load_age_ms": max(0, now_ms - load.reported_ms)}


def _last_cycle(decisions: Iterable[Row]) -> list[Row]:
    """Return the decisions of the newest cycle.

    Decisions of commands after it have its number too, and are left out.
    """
    # by time: numbers begin at 1 again when the job's state is rebuilt
    cycles = [row for row in decisions if row["cycle"] > 0 and row["kind"] not in (FULL, BLOCKED)]
    cycles.sort(key=lambda row: (int(row["at_ms"]), int(row["cycle"])), reverse=True)
    newest = list(takewhile(lambda row: row["cycle"] == cycles[0]["cycle"], cycles))
    return [row for row in newest if row["at_ms"] == newest[-1]["at_ms"]]


def _phase(status: ClusterStatus, config: Config) -> tuple[ClusterPhase, str]:
    is_new = status.job.word is JobStatus.NEVER_STARTED
    for phase, reason in (
        (ClusterPhase.OFF, status.job.why() if is_new else ""),
        (ClusterPhase.STALLED, _stalled(status, config)),
        (ClusterPhase.OFF, _off(status)),
        (ClusterPhase.LATE, status.job.why()),
        (ClusterPhase.IN_PROGRESS, _progress(status)),
    ):
        if reason:
            return phase, reason
    if status.last_cycle.endswith("(QuietHours)"):
        return ClusterPhase.READY, "quiet hours: nothing is shed or split; all else goes on"
    hot, troubles = [one.broker for one in status.blocked], troubles_found(status.mirror)
    are_hot = f"{', '.join(hot)} {'is' if len(hot) == 1 else 'are'} hot" if hot else ""
    though = (are_hot, f"the guardian finds {troubles}" * bool(troubles))
    words = " and ".join(filter(None, though))
    return ClusterPhase.READY, "nothing is moving" + (f", though {words}" if words else "")


def _stalled(status: ClusterStatus, config: Config) -> str:
    if status.job.word is JobStatus.AWAY:
        return status.job.why()
    if "active" not in status.brokers and "draining" not in status.brokers and status.brokers:
        return "no broker is heard: records stay until one is"
    if status.job.is_stalled:
        return status.job.why()
    if status.silence.many:
        return status.silence.many
    stuck = _stuck(status, config)
    are = "is" if len(stuck) == 1 else "are"
    return f"{_bundles(len(stuck))} {are} in flight for longer than any timeout" if stuck else ""


def _stuck(status: ClusterStatus, config: Config) -> list[Row]:
    limit_ms = stuck_after_ms(config.ownership)
    return [row for row in status.in_flight if status.now_ms - row["at_ms"] > limit_ms]


def _off(status: ClusterStatus) -> str:
    if status.brake is not None:
        return "the brake is on: cycles, plans, drains and pins wait; failover and unloads go on"
    paused = status.pauses.get("")
    if paused is None:
        return ""
    why = f": {paused['reason']}" if paused.get("reason") else ""
    by = paused.get("by") or "somebody"
    return f"paused by {by}{why}; drains and pins wait, too; failover and unloads go on"


def _progress(status: ClusterStatus) -> str:
    count = len(status.in_flight)
    parts = [f"{_bundles(count)} in flight"] if count else []
    under_way = [drain.broker for drain in status.drains if not drain.is_done]
    parts += [f"draining {', '.join(under_way)}"] if under_way else []
    parts += status.silence.suspected
    silent = [row for row in status.broker_rows if row.state == "silent" and row.bundles]
    parts += [
        f"{row.broker} is silent and nobody serves its {_bundles(row.bundles)}" for row in silent
    ]
    return ", ".join(parts)


def _bundles(count: int) -> str:
    return f"{count} bundle{'' if count == 1 else 's'}"


def _alarms(status: ClusterStatus, rows: StatusRows, config: Config) -> Iterable[tuple[str, str]]:
    """Yield each alarm, and the runbook's section that it names, else its group's.

    An alarm says what is wrong, then what to do.
    """
    limit_ms, soon = status.now_ms - BLOCKED_ALARM_S * 1_000, CertificateEnd.EXPIRING_SOON
    by_rows: tuple[tuple[str, Iterable[str]], ...] = (
        ("BallastBrokerDown", _broker_alarms(status)),
        ("BallastBrake", _brake_alarms(status)),
        ("BallastStuckBundles", _stuck_alarms(status, config)),
        ("BallastDrainStalled", _drain_alarms(status)),
        (
            "BallastSettingIgnored",
            (
                f"the changed setting {key} is set aside and the file's value is in force ({why}):"
                f" `ballast config reset {key}`, or mend the file and start the job again"
                for key, why in status.set_aside.items()
            ),
        ),
        ("BallastNoCandidate", policy_alarms(rows.policies)),
        ("", plan_alarms(rows.policies)),
        ("BallastBrokerBlocked", (b.message for b in status.blocked if b.since_ms <= limit_ms)),
        ("BallastUnowned", _waiting(status, rows, config)),
        ("", decided_alarms(rows.decisions, rows.blocked, rows.writer_ms or 0)),
        ("BallastRejectedReports", rejected_alarms(rows.rejected)),
    )
    expiring = certificates_ending(rows.certificates, status.mirror, soon, status.now_ms)
    for section, words in (
        *(("BallastJobSilent", words) for words in job_alarms(status.job)),
        *((section, as_of(status.job, one)) for section, alarms in by_rows for one in alarms),
        *(("", words) for words in mirror_alarms(status.mirror, status.job.wrote_ago_ms)),
        *(("BallastCertificateExpiresSoon", words) for words in expiring),
    ):
        named = _SECTION.search(words)
        yield words, named[1] if named else section


def _broker_alarms(status: ClusterStatus) -> Iterable[str]:
    silence = status.silence
    if silence.many:
        yield (
            f"{silence.many}: their way to Kafka is the likelier cause; read an agent's log,"
            " section BallastManyBrokersSilent of docs/runbook.md"
        )
    yield from (
        f"{words}: see whether its process is frozen, or cut off from Kafka (its agent's log)"
        for words in silence.suspected
    )
    silent = [row.broker for row in status.broker_rows if row.state == "silent"]
    lately = [broker for broker in silent if broker in silence.dead][:_DEATHS_SHOWN]
    for broker in lately:
        yield f"{silence.dead[broker]}: start it, or `ballast broker forget {broker}`"
    others = [broker for broker in silent if broker not in lately]
    if others:
        yield (
            f"{', '.join(others)} {'is' if len(others) == 1 else 'are'} silent: start"
            f" {'it' if len(others) == 1 else 'them'}, or `ballast broker forget {others[0]}`"
        )


def _brake_alarms(status: ClusterStatus) -> Iterable[str]:
    if status.brake is not None:
        lost = ", ".join(status.brake.get("lost", ()))
        release = "`ballast resume --release-brake` when that is right"
        yield f"the brake is on since {lost} vanished: {release}"


def _stuck_alarms(status: ClusterStatus, config: Config) -> Iterable[str]:
    for row in _stuck(status, config)[:5]:
        who = row["source"] or row["destination"]
        yield (
            f"{row['bundle']} is {row['state']} for {duration(status.now_ms - row['at_ms'])}: read"
            f" the log of {who}, and `ballast explain bundle {row['bundle']}`"
        )


def _drain_alarms(status: ClusterStatus) -> Iterable[str]:
    for drain in status.drains:
        if not drain.is_done and 0 < drain.deadline_ms < status.now_ms:
            over = duration(status.now_ms - drain.deadline_ms)
            yield (
                f"the drain of {drain.broker} is over its deadline by {over}, and"
                f" {_bundles(drain.left)} are left: `ballast explain broker {drain.broker}`, or"
                f" `ballast broker cancel-drain {drain.broker}`"
            )


def _warnings(status: ClusterStatus, rows: StatusRows) -> tuple[str, ...]:
    """Return warnings, which can wait for days: what is wrong, then what to do."""
    several, near = several_versions(status.versions), CertificateEnd.EXPIRING
    expiring = certificates_ending(rows.certificates, status.mirror, near, status.now_ms)
    return (*([f"{several}: {ADVICE}"] if several else ()), *expiring)


def _waiting(status: ClusterStatus, rows: StatusRows, config: Config) -> Iterable[str]:
    """Yield an alarm for free bundles that should have an owner by now."""
    if config.ownership.assign != "eager" or status.mirror is not None:
        return
    limit_ms = 5 * config.pipeline.settle_ms + 2 * config.pipeline.decision_interval_ms
    free = [
        row
        for row in rows.bundles
        if row["state"] == "Free" and status.now_ms - row["at_ms"] > limit_ms
    ]
    if free:
        such = min(row["bundle"] for row in free)
        has = "has" if len(free) == 1 else "have"
        yield f"{_bundles(len(free))} {has} no owner: `ballast explain bundle {such}` says why"


DECISIONS_SHOWN = 20
_MANY = frozenset({"drain", "failover", "repair"})
IN_FLIGHT_SHOWN = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Message rates of the brokers at one time, msg/s: mean and highest."""

    at_ms: int
    brokers: int
    mean: float
    most: float

    @property
    def imbalance(self) -> float | None:
        """Highest over mean rate of the brokers that had reported; None = no load."""
        return self.most / self.mean if self.mean > 0.0 else None

    def to_json(self) -> dict[str, Any]:
        """Return values that JSON can hold."""
        return {**asdict(self), "imbalance": self.imbalance}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedDecision:
    """A decision with its explanation.

    why: the sentence for its reason. outcome: "" = not known (yet). messages: as `ballast explain`
    shows them. more: number of further decisions of the same kind, reason and source.
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
    """Summary of a cluster. balance: oldest first; decisions: newest first."""

    status: ClusterStatus
    balance: tuple[Moment, ...]
    decisions: tuple[ExplainedDecision, ...]

    def to_json(self) -> dict[str, Any]:
        """Return values that JSON can hold; only the oldest bundles in flight are listed."""
        status = self.status.to_json()
        count = len(status["in_flight"])
        status["in_flight"] = status["in_flight"][:IN_FLIGHT_SHOWN]
        return {
            "status": {**status, "in_flight_count": count},
            "balance": [moment.to_json() for moment in self.balance],
            "decisions": [asdict(decision) for decision in self.decisions],
        }


def last_decisions(rows: ExplainRows) -> tuple[ExplainedDecision, ...]:
    """Return the newest decisions, newest first. O(decisions).

    Skips are left out, unless one is the newest of all. Rows of one drain, failover or repair are
    grouped: the newest stands for all.
    """
    ordered = sorted(rows.decisions, key=lambda row: (-int(row["at_ms"]), by_decision(row)[1:]))
    found: dict[object, list[Row]] = {}
    for at, row in enumerate(ordered):
        if row["kind"] != "skip" or at == 0:
            alike = (row["kind"], row["reason"], row["source"])
            found.setdefault(alike if row["kind"] in _MANY else at, []).append(row)
    outcomes = {row["decision_id"]: row["outcome"] for row in rows.effects}
    known = fields(ExplainedDecision)
    return tuple(
        ExplainedDecision(
            **{one.name: decision[one.name] for one in known if one.name in decision},
            why=reason_message(decision["reason"], decision["kind"]),
            outcome=outcomes.get(decision["decision_id"], ""),
            messages=tuple(decision_messages(rows, decision))[1:],
            more=len(alike),
        )
        for decision, *alike in list(found.values())[:DECISIONS_SHOWN]
    )


def moments(rows: Iterable[tuple[Any, ...]]) -> tuple[Moment, ...]:
    """Return moments from (at_ms, group, brokers, mean, most) in any order.

    One row for each time and isolation group. Of several groups the worst counts; brokers of no
    group ("") count only if there are no others.
    """
    found: dict[int, dict[str, Moment]] = defaultdict(dict)
    for at_ms, group, brokers, mean, most in sorted(rows):
        moment = Moment(at_ms=int(at_ms), brokers=int(brokers), mean=mean, most=most)
        found[moment.at_ms][group] = moment
    for groups in found.values():
        if len(groups) > 1:
            groups.pop("", None)
    return tuple(
        max(groups.values(), key=lambda one: one.imbalance or 0) for groups in found.values()
    )
