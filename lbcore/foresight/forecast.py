"""Forecast: the next cycles by the balancer's own code, without acting.

A state is rebuilt from the tables, and several cycles are run on it under the same load. Each cycle
has fresh reports, and each move is complete before the next: a bundle takes with it the load that
the balancer itself expects (`plan.pending`). Grace periods, cool-downs, roles, hits and averages
are from the tables (`planning_memory`); the answer lists what can't be known.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import count, islice
from operator import itemgetter
from typing import Any

import numpy as np

from lbcore.balancer.batch_context import BalancerState, BatchContext
from lbcore.balancer.book import ACCEPTED, DONE, BrokerEntry
from lbcore.balancer.brokers import is_draining, usable_brokers
from lbcore.balancer.candidate_rows import BLOCKED, blocked_status
from lbcore.balancer.commands import take_command
from lbcore.balancer.cycle import FULL, place_free, run_cycle
from lbcore.balancer.effects import Row
from lbcore.balancer.ledger import NOBODY
from lbcore.balancer.placement import cycle_offset_ms, make_snapshot
from lbcore.balancer.transitions import BrokerAnswer, repair_ownership, take_answers
from lbcore.config.cluster import AUTO
from lbcore.config.load import digest, parse_assignments
from lbcore.config.tree import Config
from lbcore.foresight.planning_memory import (
    LandedMove,
    add_unreported_moves,
    moved_load,
    next_cycle_ms,
    recalled_plan,
    unknowns,
)
from lbcore.foresight.rehearse import RehearsalRows, state_of
from lbcore.model.tables import DECISION_CANDIDATES, DECISIONS
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.ownership.states import IN_FLIGHT
from lbcore.packing import finite
from lbcore.plan.groups import worst_imbalance
from lbcore.plan.pending import with_load
from lbcore.plan.registry import placement_name, shedding_name
from lbcore.plan.snapshot import RATE_IN, RATE_OUT, Snapshot
from lbcore.signals.usage import weighted_usage
from lbcore.validation.check import in_force, require_suitable
from lbcore.wire.messages import Ack, AckOutcome, Command, Position

CYCLES = 10
ADDED_MAX = 1_000
NEW_BROKER = "new-broker-{}"
_DONE_VERDICTS = frozenset({"taken", "split"})
_SHOWN = ("kind", "strategy", "reason", "bundle", "source", "destination")


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """Assumed differences from the current state.

    settings: texts like "shedding.strategy=uniform", on top of those in force. add_brokers: idle
    brokers to add, up to ADDED_MAX. remove_brokers: brokers to drain.
    """

    settings: tuple[str, ...] = ()
    add_brokers: int = 0
    remove_brokers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeseenBroker:
    """A live broker.

    msg_rate: msg/s in and out. usage: weighted, 1.0 = 100 %. bundles: those it has or is opening.
    group: the first broker of its isolation group; "" if all brokers are one group, or it drains.
    """

    broker: str
    is_draining: bool
    msg_rate: float
    usage: float
    bundles: int
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadMoment:
    """Load at one moment.

    imbalance, floor_adjusted: of the message rates of live brokers, in the worst isolation group,
    without drained brokers that are empty, as they are to be stopped. None = no load.
    """

    brokers: tuple[ForeseenBroker, ...]
    imbalance: float | None
    floor_adjusted: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Foresight:
    """Forecast of `cycles` cycles, `cycle_ms` apart, the first one when it is due.

    decisions: in order, each with its cycle and `more_hits`, the fresh observations before it.
    after_ms of a decision: its time if brokers report in every cycle; latest_ms: its time if they
    report at the longest interval. skips: of cycles that would decide nothing. waiting: candidates
    of the first cycle that lack hits: number, thresholds, hits, and how many more are needed (None:
    the number is below each threshold).

    idle: brokers without known load, which count as idle. blocked: why hot brokers would shed
    nothing, even with enough hits. broken_pins: pinned bundles that a drain moves. hot: brokers
    that begin below the overload threshold and end above it. unreported_moves: recent moves that
    `before` does not show yet, but the cycles count. unknown: what cannot be known here.
    """

    strategy: str
    placement: str
    cycle_ms: int
    cycles: int
    before: LoadMoment
    after: LoadMoment
    decisions: tuple[Mapping[str, Any], ...]
    skips: tuple[Mapping[str, Any], ...]
    waiting: tuple[Mapping[str, Any], ...]
    idle: tuple[str, ...]
    blocked: tuple[str, ...] = ()
    broken_pins: tuple[str, ...] = ()
    hot: tuple[str, ...] = ()
    unreported_moves: int = 0
    unknown: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return values that JSON can hold."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Impossible:
    """Reason why the question has no answer, in a sentence."""

    reason: str


def foresee(
    config: Config, cluster: str, rows: RehearsalRows, now_ms: int, what_if: WhatIf
) -> Foresight | Impossible:
    """Forecast the next CYCLES cycles. O(cycles × bundles).

    config: of the cluster, as the job was started. Raises ConfigError for settings that don't suit
    each other.
    """
    state = state_of(cluster, rows, now_ms)
    ordered = sorted(rows.load, key=itemgetter("broker", "minute_ms"))
    newest = {str(row["broker"]): row for row in ordered}
    groups = {name: row["broker_group"] for name, row in newest.items() if row.get("broker_group")}
    config, _ = in_force(config, state.settings, state.rules.set_aside)
    plan = replace(state.plan, groups=state.plan.groups or groups)
    state = replace(state, settings={}, plan=plan)
    asks = config.cluster.approval != AUTO
    config = replace(
        config, cluster=replace(config.cluster, observe_only=False, approval=AUTO)
    )  # else nothing moves
    before = _balance(BatchContext.on(state, config, "", now_ms))
    config = require_suitable(parse_assignments(config, what_if.settings))
    changed = _changed(state, config, now_ms, what_if)
    if isinstance(changed, Impossible):
        return changed
    plan = recalled_plan(state.plan, rows.decisions, config, now_ms)
    work = BatchContext.on(replace(changed, plan=plan), config, digest(config), now_ms)
    unseen = add_unreported_moves(work, rows.load, rows.decisions)
    offset_ms = cycle_offset_ms(cluster, config)
    first_ms = next_cycle_ms(rows.decisions, now_ms, _cycle_ms(config), offset_ms)
    found = _run(work.close(), config, now_ms, first_ms, before)
    newest_ms = max((int(row["at_ms"]) for row in rows.load), default=now_ms + 1)
    names = (one.broker for one in found.after.brokers)
    return replace(
        found,
        idle=tuple(name for name in names if name not in newest),
        broken_pins=tuple(
            sorted(b for b, pin in state.rules.pins.items() if pin.broker in what_if.remove_brokers)
        ),
        unreported_moves=unseen,
        unknown=(
            *unknowns(config, state.plan, max(-1, now_ms - newest_ms)),
            *(("which moves wait for approval (cluster.approval), and how long",) if asks else ()),
        ),
    )


def _run(
    state: BalancerState, config: Config, now_ms: int, first_ms: int, before: LoadMoment
) -> Foresight:
    """Run the cycles.

    first_ms: time of the first one. before: the balance without changes.
    """
    step_ms = _cycle_ms(config)
    longest_ms = max(step_ms, config.signals.longest_silence_ms)
    decisions: list[Mapping[str, Any]] = []
    skips: list[Mapping[str, Any]] = []
    waiting: tuple[Mapping[str, Any], ...] = ()
    blocked: dict[str, str] = {}
    for number in range(CYCLES):
        after_ms = first_ms - now_ms + number * step_ms
        rows, state = _cycle(state, config, now_ms, after_ms, step_ms)
        times = {
            "cycle": number + 1,
            "more_hits": number,
            "after_ms": after_ms,
            "latest_ms": first_ms - now_ms + number * longest_ms,
        }
        made = rows.get(DECISIONS.name, [])
        blocked = {one.broker: one.message for one in blocked_status(made, now_ms)} | blocked
        for row in made:
            if row["kind"] in (BLOCKED, FULL):
                continue
            shown = {name: row[name] for name in _SHOWN}
            chosen = skips if row["kind"] == "skip" else decisions
            chosen.append({**times, **shown, "inputs": finite(json.loads(row["inputs"]))})
        if number == 0:
            waiting = tuple(
                _near(row)
                for row in rows.get(DECISION_CANDIDATES.name, [])
                if row["hits_needed"] and row["verdict"] not in _DONE_VERDICTS
            )
    limit = config.placement.overloaded_threshold_percent / 100.0
    hot_before = {one.broker for one in before.brokers if one.usage > limit}
    after = _balance(BatchContext.on(state, config, "", now_ms))
    hot = [one.broker for one in after.brokers if one.usage > limit]
    return Foresight(
        strategy=shedding_name(config.shedding.strategy),
        placement=placement_name(config.placement.strategy),
        cycle_ms=step_ms,
        cycles=CYCLES,
        before=before,
        after=after,
        decisions=tuple(decisions),
        skips=tuple(skips),
        waiting=waiting,
        idle=(),
        blocked=tuple(blocked[broker] for broker in sorted(blocked)),
        hot=tuple(broker for broker in hot if broker not in hot_before),
    )


def _cycle_ms(config: Config) -> int:
    """Return an interval of cycles at which each one sheds, splits and counts hits."""
    pipeline = config.pipeline
    return max(
        pipeline.decision_interval_ms,
        pipeline.shed_interval_ms,
        pipeline.split_interval_ms,
        pipeline.hit_period_ms,
    )


def _cycle(
    state: BalancerState, config: Config, now_ms: int, after_ms: int, step_ms: int
) -> tuple[Mapping[str, list[Row]], BalancerState]:
    """Return the rows that one cycle would write, and the state after it.

    after_ms: time from now until the cycle. Repairs come first, as in every batch.
    """
    work = BatchContext.on(state, config, digest(config), now_ms + after_ms)
    work.set_times(tick_ms=work.now_ms, clock_ms=config.pipeline.settle_ms + after_ms)
    owners = owners_of(work)
    repair_ownership(work)
    place_free(work)
    run_cycle(work)
    rows = {name: list(found) for name, found in work.rows.items()}
    land(work)
    report_landed(work, owners, work.now_ms + step_ms)
    return rows, work.close()


def _changed(
    state: BalancerState, config: Config, now_ms: int, what_if: WhatIf
) -> BalancerState | Impossible:
    """Return the state with the assumed brokers added, and the others being drained."""
    if not 0 <= what_if.add_brokers <= ADDED_MAX:
        return Impossible(
            reason=f"0 to {ADDED_MAX} brokers can be added, not {what_if.add_brokers}"
        )
    work = BatchContext.on(state, config, digest(config), now_ms)
    texts = next((work.brokers[name].texts for name in usable_brokers(work)), {})
    unused = (name for name in map(NEW_BROKER.format, count(1)) if name not in state.brokers)
    for name in islice(unused, what_if.add_brokers):
        work.brokers[name] = BrokerEntry(
            incarnation="foreseen", reported_ms=now_ms, weighted_max_ema=0.0, texts=texts
        )
    for broker in what_if.remove_brokers:
        command_id = f"foreseen drain of {broker}"
        drain = Command(
            cluster=work.cluster,
            command_id=command_id,
            kind="drain_broker",
            arguments={"broker": broker},
        )
        take_command(work, drain, now_ms)
        outcome = work.outcomes[command_id]
        if outcome["status"] not in (ACCEPTED, DONE):
            return Impossible(reason=outcome["reason"])
    return work.close()


def _near(row: Row) -> dict[str, Any]:
    """Return a candidate that hits are counted for, with the hits that it still needs."""
    detail = json.loads(row["detail"])
    one = {name: row[name] for name in ("threshold", "hits")}
    levels = detail.get("levels") or [{**one, "needed": row["hits_needed"]}]
    left = [
        level["needed"] - level["hits"] for level in levels if row["number"] >= level["threshold"]
    ]
    found = {
        "phase": row["phase"],
        "subject": row["subject"],
        "compared_with": row["broker"],
        "verdict": row["verdict"],
        "number": row["number"],
        "measure": detail.get("measure", ""),
        "levels": levels,
        "more_hits": max(0, min(left)) if left else None,
    }
    return {name: finite(value) for name, value in found.items()}


def _balance(work: BatchContext) -> LoadMoment:
    names = usable_brokers(work)
    if not names:
        return LoadMoment(brokers=(), imbalance=None, floor_adjusted=None)
    snapshot, _ = make_snapshot(work, names)
    usage = weighted_usage(snapshot.brokers.percent, work.config.signals)
    owner, groups = snapshot.bundles.owner, work.plan.groups
    bundles = np.bincount(owner + 1, minlength=len(names) + 1)[1:]
    rates = snapshot.brokers.traffic[:, [RATE_IN, RATE_OUT]].sum(axis=1)
    brokers = tuple(
        ForeseenBroker(
            broker=name,
            is_draining=is_draining(work, name),
            msg_rate=float(rates[at]),
            usage=float(usage[at]),
            bundles=int(bundles[at]),
            group=groups.get(name, ""),
        )
        for at, name in enumerate(names)
    )
    bundle_rates = snapshot.bundles.short[:, [RATE_IN, RATE_OUT]].sum(axis=1)
    heaviest = np.zeros(len(names))
    np.maximum.at(heaviest, owner[owner >= 0], bundle_rates[owner >= 0])
    hottest: dict[str, float] = defaultdict(float)
    for one, rate in zip(brokers, heaviest.tolist(), strict=True):
        hottest[one.group] = max(rate, hottest[one.group])
    uneven, floor_adjusted = worst_imbalance(
        {one.broker: one.msg_rate for one in brokers if one.bundles or not one.is_draining},
        groups,
        hottest,
    )
    return LoadMoment(brokers=brokers, imbalance=uneven, floor_adjusted=floor_adjusted)


_NOWHERE = Position(topic="", partition=0, offset=0, timestamp_ms=0)
_ROUNDS = 4
"""Rounds of acks: a split, its children closed, and opened elsewhere; one more finds none."""


def owners_of(work: BatchContext) -> dict[str, str]:
    """Return bundle → live broker once moves in flight have ended; "" = nobody."""
    names = usable_brokers(work)
    owners = work.ledger.broker_indices(names)[work.ledger.prospects()].tolist()
    return {
        bundle: names[owner] if owner != NOBODY else ""
        for bundle, owner in zip(work.ledger.names, owners, strict=True)
    }


def land(work: BatchContext) -> None:
    """Acknowledge, as live brokers would, all transitions until none is in flight."""
    for _ in range(_ROUNDS):
        found: dict[str, list[Ack]] = defaultdict(list)
        for record in map(work.ledger.record_at, work.ledger.rows_in(*IN_FLIGHT).tolist()):
            broker, outcome = _answer(record)
            ack = Ack(bundle=record.bundle, version_id=record.version_id, outcome=outcome)
            found[broker].append(ack)
        answers = [
            BrokerAnswer(work.instance(broker), ack, _NOWHERE)
            for broker in usable_brokers(work)
            for ack in found.get(broker, ())
        ]
        if not answers:
            return
        take_answers(work, answers)


def report_landed(work: BatchContext, before: Mapping[str, str], now_ms: int) -> None:
    """Report live brokers at `now_ms`, with the load of bundles that they received.

    before: `owners_of` when the cycle began.
    """
    names = usable_brokers(work)
    snapshot, rows = make_snapshot(work, names)
    landed = _landed(work, snapshot, before)
    shown = with_load(snapshot.brokers, moved_load(work, snapshot, landed))
    count = np.bincount(snapshot.bundles.owner + 1, minlength=len(names) + 1)[1:]
    topics = np.bincount(
        snapshot.bundles.owner + 1, weights=work.ledger.topics[rows], minlength=len(names) + 1
    )[1:]
    for at, name in enumerate(names):
        work.brokers[name] = replace(
            work.brokers[name],
            reported_ms=now_ms,
            percent=tuple(shown.percent[at].tolist()),
            traffic=tuple(shown.traffic[at].tolist()),
            weighted_max_ema=float(shown.weighted_max_ema[at]),
            throughput_ema=float(shown.throughput_ema[at]),
            bundle_count=int(count[at]),
            topic_count=int(topics[at]),
        )


def _answer(record: OwnershipRecord) -> tuple[str, AckOutcome]:
    if record.state is State.ASSIGNING:
        return record.destination, AckOutcome.OPENED
    outcomes = {State.SPLITTING: AckOutcome.SPLIT, State.MERGING: AckOutcome.MERGED}
    return record.source, outcomes.get(record.state, AckOutcome.CLOSED)


def _landed(
    work: BatchContext, snapshot: Snapshot, before: Mapping[str, str]
) -> Iterator[LandedMove]:
    """Yield the move of each bundle that has another owner now."""
    index = {name: at for at, name in enumerate(snapshot.brokers.names)}
    known = {
        **{
            child: before.get(after.bundle, "")
            for _, after in work.transitions
            if after.state is State.SPLITTING
            for child in after.children
        },
        **before,
    }
    owners = snapshot.bundles.owner.tolist()
    for row, (bundle, owner) in enumerate(zip(snapshot.bundles.names, owners, strict=True)):
        source = index.get(known.get(bundle, ""), NOBODY)
        if owner not in (source, NOBODY):
            yield LandedMove(row=row, source=source, destination=owner)
