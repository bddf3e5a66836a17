"""Approvals: plans that a person is asked about, from the proposal to its end.

`cluster.approval` says which of a cycle's decisions wait. A proposal lapses when nobody answers or
when it would help no more. What is approved is carried out step by step: each is checked against
the present and all rules first, and is done once its bundle is where it was to go. While one is
open, no cycle plans another. Failover, drains and pins never wait. Part of `balancer`;
`policy_commands` answers people. Strimzi's rebalance proposals wait and are approved likewise.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lbcore.balancer.batch_context import BatchContext
from lbcore.balancer.brokers import usable_brokers
from lbcore.balancer.moves import (
    PLAN_WAITS,
    carry_out,
    is_only_observed,
    reason_not_to_balance,
    reason_to_stand_still,
    reason_to_stay,
)
from lbcore.balancer.placement import make_snapshot, planning_config
from lbcore.balancer.rules import (
    STEP_BEGUN,
    STEP_DONE,
    PlanProposal,
    PlanStatus,
    ProposedStep,
)
from lbcore.config.cluster import ASK, ASK_ABOVE, AUTO
from lbcore.ownership.records import State
from lbcore.ownership.states import IN_FLIGHT
from lbcore.plan.decision import Decision, Kind, Plan, PlanState, Skip, exchanges
from lbcore.plan.draft import Moves
from lbcore.plan.filter.index import CandidateIndex, FilterVerdict, candidate_index
from lbcore.plan.filter.pipeline import FilterPipeline, FilterQuestion, empty_verdicts
from lbcore.plan.groups import members_by_group
from lbcore.plan.pending import move_of
from lbcore.plan.planner import project_moves
from lbcore.plan.shed.ballast import CROWDED
from lbcore.plan.snapshot import NOBODY, RATE_IN, RATE_OUT, Floats, Ints, Snapshot
from lbcore.wire.messages import Command

STEPS_MAX = 500
"""Steps of a proposal; what a plan has beyond them is planned again."""

OBSERVED = "cluster.observe_only is on: decisions are written down and not carried out"

KEPT_MS = 86_400_000
"""A proposal that has ended is among the rules for so long; its rows stay.

One that a person rejected or stopped stays at least for the grace period.
"""

_AGAINST: Mapping[FilterVerdict, str] = {
    FilterVerdict.FLAPPING: "{to} has started too often of late",
    FilterVerdict.SUSPECTED: "{to} is silent and may be dead",
    FilterVerdict.NOT_IN_POLICY: "isolation policies keep it from {to}",
    FilterVerdict.SECONDARY_NOT_NEEDED: "isolation policies keep it from {to}",
    FilterVerdict.RESERVED_BY_POLICY: "isolation policies keep it from {to}",
    FilterVerdict.ANTI_AFFINITY: "its anti-affinity group keeps it from {to}",
    FilterVerdict.FAILURE_DOMAIN: "its anti-affinity group keeps it from {to}",
}
_HELPS = 1e-6  # of usage, 1.0 = 100 %


@dataclass(slots=True, kw_only=True)
class _Load:
    """The present, and what the steps taken so far make of it.

    measured, usage: float64[n], 1.0 = 100 %, without and with the steps taken. index: whom policies
    admit where. rows: bundle → row of the snapshot. taken: (row, source, destination) of each move.
    partners: bundle → the step that brings another back for it.
    """

    snapshot: Snapshot
    measured: Floats
    usage: Floats
    index: CandidateIndex
    brokers: Mapping[str, int]
    rows: Mapping[str, int]
    taken: list[tuple[int, int, int]]
    partners: Mapping[str, ProposedStep]

    @staticmethod
    def of(work: BatchContext, steps: Sequence[ProposedStep]) -> "_Load":
        """O(bundles)."""
        snapshot, _ = make_snapshot(work, usable_brokers(work))
        usage, _, _ = _followed(work, snapshot, ())
        by_bundle = {step.bundle: step for step in steps if step.strategy}  # of a cycle
        moves = ((step.bundle, step.source, step.destination) for step in by_bundle.values())
        pairs = exchanges(moves)
        return _Load(
            snapshot=snapshot,
            measured=usage,
            usage=usage,
            index=candidate_index(snapshot),
            brokers={name: at for at, name in enumerate(snapshot.brokers.names)},
            rows=snapshot.bundles.rows_of(step.bundle for step in steps),
            taken=[],
            partners={one: by_bundle[other] for one, other in pairs.items()},
        )

    def partner(self, step: ProposedStep) -> ProposedStep | None:
        """Return the step that is still to bring a bundle back for this one."""
        other = self.partners.get(step.bundle)
        return None if other is None or self._move(other) in self.taken else other

    def reason_not_admitted(self, work: BatchContext, step: ProposedStep) -> str:
        """Return the reason why filters refuse the step's destination; "" if they don't."""
        row, broker = self.rows.get(step.bundle), self.brokers.get(step.destination)
        if row is None or broker is None:
            return ""
        verdict = self.index.verdicts[self.index.row[row], broker]
        if self.index.group[self.snapshot.bundles.namespace[row]] >= 0:
            filters = replace(work.config.filters, distribute_evenly=False)
            rows, verdicts = np.array([row], dtype=np.int64), empty_verdicts(self.snapshot)
            pipeline = FilterPipeline.of(self.snapshot, self.index, filters, rows)
            source = self.brokers.get(step.source, NOBODY)
            pipeline.candidates(FilterQuestion(bundle=row, excluded=source), verdicts)
            verdict = verdicts[broker]
        return _AGAINST.get(FilterVerdict(verdict), "").format(to=step.destination)

    def take(self, step: ProposedStep, *, only_if_it_helps: bool) -> bool:
        """Count a move, unless it must help and does not; True for what is no move.

        It helps when the more loaded of the two brokers is less loaded then, as
        `moves` judges it afterwards. The halves of an exchange help together. A move that spreads a
        crowded topic helps whatever the load.
        """
        move = self._move(step)
        if move is None:
            return True
        after = self._after(self.usage, move)
        other = self.partner(step)
        back = self._move(other) if other else None
        both, pair = after if back is None else self._after(after, back), list(move[1:])
        is_better = both[pair].max() <= self.usage[pair].max() - _HELPS
        if only_if_it_helps and not is_better and step.reason != CROWDED:
            return False
        self.usage = after
        self.taken.append(move)
        return True

    def _move(self, step: ProposedStep) -> tuple[int, int, int] | None:
        row = self.rows.get(step.bundle)
        source, destination = (self.brokers.get(name) for name in (step.source, step.destination))
        if row is None or source is None or destination is None:
            return None
        return row, source, destination

    def _after(self, usage: Floats, move: tuple[int, int, int]) -> Floats:
        """Return each broker's usage after a move of the present. O(brokers)."""
        _, source, destination = move
        moved = move_of(self.snapshot, self.measured, move, 0)
        found: Floats = usage.copy()
        found[source] -= moved.ema_points
        found[destination] += moved.ema_points * moved.destination_scale
        return found


def propose(work: BatchContext, snapshot: Snapshot, result: Plan | Skip) -> bool:
    """Let a plan wait for a person if it is to; whether it does. O(steps)."""
    cluster = work.config.cluster
    if cluster.approval == AUTO or cluster.observe_only or isinstance(result, Skip):
        return False
    waiting = [
        one for one in result.decisions if not (one.kind is Kind.DRAIN or one.reason == "Pinned")
    ]
    if not waiting:
        return False
    is_asked = cluster.approval == ASK or (
        cluster.approval == ASK_ABOVE
        and (
            len(waiting) > cluster.approval_bundles
            or _moved_percent(work, snapshot, waiting) > cluster.approval_percent
        )
    )
    if not is_asked:
        return False
    records = [work.ledger.record(one.bundle) for one in waiting[:STEPS_MAX]]
    versions = [record.version_id if record is not None else 0 for record in records]
    steps = tuple(map(ProposedStep.of, waiting[:STEPS_MAX], versions))
    reasons = ", ".join(sorted({step.reason for step in steps}))
    offer(work, steps, f"{steps[0].strategy}: {reasons}")
    return True


def offer(
    work: BatchContext,
    steps: Sequence[ProposedStep],
    why: str,
    command: Command | None = None,
    name: str = "",
) -> tuple[str, PlanProposal]:
    """Make a proposal of steps; return its name and itself.

    It is of a cycle or (command) of a person. name: "" = chosen.
    """
    load = _Load.of(work, steps)
    before = load.measured
    for step in steps:
        load.take(step, only_if_it_helps=False)
    touched = sorted({load.snapshot.brokers.names[at] for one in load.taken for at in one[1:]})
    names, groups = load.snapshot.brokers.names, work.plan.groups
    members = np.arange(len(names), dtype=np.int64)
    if grouped := [one for one in touched if one in groups]:
        hottest = max(grouped, key=lambda one: float(before[load.brokers[one]]))
        members = members_by_group(names, groups)[groups[hottest]]
    name = name or _new_name(work)
    proposal = PlanProposal(
        station=PlanStatus.WAITS,
        since_ms=work.now_ms,
        until_ms=work.now_ms + work.config.cluster.approval_wait_ms,
        steps=tuple(steps),
        why=why,
        by=(command.principal or "somebody") if command else "",
        before=_shown(load, before, touched, members),
        after=_shown(load, load.usage, touched, members),
    )
    _keep(work, name, proposal, command)
    return name, proposal


def blocked_steps(work: BatchContext, steps: Sequence[ProposedStep]) -> dict[str, str]:
    """Bundle → why its step may not be carried out now. O(bundles).

    Nothing while balancing stands still or brokers have not reported: steps wait for that.
    """
    if not _is_load_known(work):
        return {}
    load = _Load.of(work, steps)
    found = {step.bundle: _reason_not_to_begin(work, load, step) for step in steps}
    return {bundle: reason for bundle, reason in found.items() if reason}


def approve(work: BatchContext, name: str, command: Command) -> Mapping[str, str]:
    """Note that a person approved a proposal; bundle → why its step is skipped."""
    proposal = work.rules.proposals[name]
    skipped = blocked_steps(work, proposal.steps)
    work.set_rule("proposals", name, _with_skipped(work, name, proposal, skipped))
    answer(work, name, PlanStatus.APPROVED, "", command)
    return skipped


def answer(work: BatchContext, name: str, station: PlanStatus, why: str, command: Command) -> None:
    """Note that a person approved, rejected or stopped a proposal that is open."""
    proposal = work.rules.proposals[name]
    kept_ms = max(KEPT_MS, work.config.shedding.grace_period_ms)
    answered = replace(
        proposal,
        station=station,
        answered_by=command.principal or "somebody",
        why=why or proposal.why,
        until_ms=proposal.until_ms if station.is_open else work.now_ms + kept_ms,
        rejected_ms=0 if station.is_open else work.now_ms,
    )
    _keep(work, name, answered, command)


def continue_proposals(work: BatchContext, names: Sequence[str]) -> None:
    """Continue approved proposals, and end those that are over.

    Over: unanswered in time, done, or no longer useful.
    """
    for name in names:
        proposal = work.rules.proposals[name]
        begun = [step for step in proposal.steps if step.became == STEP_BEGUN]
        ended = {step.bundle: became for step in begun if (became := _end_of_step(work, step))}
        if ended:
            proposal = proposal.with_steps(ended)
            work.set_rule("proposals", name, proposal)
        if proposal.station is PlanStatus.APPROVED:
            _advance(work, name, proposal)
        elif work.now_ms >= proposal.until_ms:
            if proposal.station.is_open:
                _end(work, name, proposal, PlanStatus.LAPSED, "nobody answered in time")
            else:
                work.set_rule("proposals", name, None)
        elif proposal.station is PlanStatus.WAITS and not proposal.by:
            _look_again(work, name, proposal)


def _look_again(work: BatchContext, name: str, proposal: PlanProposal) -> None:
    """End a cycle's proposal that would not help, or needs no approval.

    Looked at once a cycle.
    """
    if work.config.cluster.approval == AUTO:
        _end(work, name, proposal, PlanStatus.LAPSED, "plans need no approval any more")
    elif work.times.cycle_ms == work.now_ms and _is_load_known(work):
        load = _Load.of(work, proposal.steps)
        possible = (one for one in proposal.steps if not _reason_not_to_begin(work, load, one))
        if not any(load.take(step, only_if_it_helps=True) for step in possible):
            why = "none of its steps can be taken and helps any more"
            _end(work, name, proposal, PlanStatus.LAPSED, why)


def _end_of_step(work: BatchContext, step: ProposedStep) -> str:
    """Return the outcome of a begun step by its bundle's owner; "" = under way."""
    record = work.ledger.record(step.bundle)
    if record is not None and record.state in IN_FLIGHT:
        return ""
    is_split = step.kind == Kind.SPLIT.value
    if record is None or record.state is State.DELETED:
        return STEP_DONE if is_split else "it was split or deleted meanwhile"
    if is_split:
        return f"{step.source} did not split it"
    owner = record.destination
    if owner == step.destination or (not step.destination and owner != step.source):
        return STEP_DONE
    why = f": {work.failures[step.bundle]}" if work.failures.get(step.bundle) else ""
    return f"it is at {owner or 'nobody'}, not at {step.destination or 'another broker'}{why}"


def _advance(work: BatchContext, name: str, proposal: PlanProposal) -> None:
    """Execute as many steps as may be in flight, if each still helps.

    Each must suit the present.
    """
    under_way = sum(step.became == STEP_BEGUN for step in proposal.steps)
    if not proposal.left:
        if not under_way:
            station = PlanStatus.DONE if proposal.done else PlanStatus.STOPPED
            reasons = sorted({step.became for step in proposal.steps})
            more = f" and {len(reasons) - 1} other reasons" if reasons[1:] else ""
            none = f"none of its steps was carried out: {reasons[0]}{more}" if reasons else ""
            why = proposal.why if proposal.done else none or proposal.why
            _end(work, name, proposal, station, why)
        return
    room = work.config.shedding.max_drains_in_flight - under_way
    if room <= 0 or not _is_load_known(work):
        return
    load = _Load.of(work, proposal.left)
    became: dict[str, str] = {}
    skipped: dict[str, str] = {}
    useless = ""
    for step in proposal.left[:room]:
        taken = len(load.taken)
        problem = _reason_not_to_begin(work, load, step)
        if not problem and not load.take(step, only_if_it_helps=not proposal.by):
            useless = step.bundle
            break
        if not problem:
            _, problem = carry_out(work, step.decision(name))
        if problem:
            skipped[step.bundle] = problem
            del load.taken[taken:]
        else:
            became[step.bundle] = STEP_BEGUN
    if load.taken:  # the next cycles count the moves as decided
        _, _, work.plan = _followed(work, load.snapshot, load.taken)
    driven = _with_skipped(work, name, proposal.with_steps(became), skipped)
    if useless:
        why = f"moving {useless} would not help any more"
        _end(work, name, driven, PlanStatus.STOPPED, why)
    else:
        work.set_rule("proposals", name, driven)


def _with_skipped(
    work: BatchContext, name: str, proposal: PlanProposal, skipped: Mapping[str, str]
) -> PlanProposal:
    """Return the proposal with steps noted as skipped, each with a row that stays."""
    for step in proposal.steps:
        if step.bundle in skipped:
            work.write_decision(
                kind="plan",
                reason="StepSkipped",
                inputs={"plan": name, "step": step.kind, "why": skipped[step.bundle]},
                bundle=step.bundle,
                source=step.source,
                destination=step.destination,
            )
    return proposal.with_steps(skipped)


def _is_load_known(work: BatchContext) -> bool:
    """True if a cycle would assess load now, apart from a pending plan.

    Reports are in, and balancing is not paused.
    """
    is_moving = not reason_to_stand_still(work)[0]
    return is_moving and reason_not_to_balance(work)[0] in ("", PLAN_WAITS)


def _reason_not_to_begin(work: BatchContext, load: _Load, step: ProposedStep) -> str:
    """Return why a step, or the other half of its exchange, may not begin."""
    problem, other = _reason_to_skip(work, load, step), load.partner(step)
    if not problem and other and (missing := _reason_to_skip(work, load, other)):
        problem = f"{other.bundle} can't come back for it: {missing}"
    return problem


def _reason_to_skip(work: BatchContext, load: _Load, step: ProposedStep) -> str:
    """Return the reason why a step may not be carried out now; "" if it may."""
    record = work.ledger.record(step.bundle)
    if record is None or record.state is not State.OWNED or record.destination != step.source:
        return f"it is not {step.source}'s to give any more"
    if step.version_id not in (0, record.version_id):
        return (
            f"its ownership has changed since the plan was made: version {record.version_id} now, "
            f"{step.version_id} then"
        )
    entry = work.brokers.get(step.source)
    if entry is None or entry.is_dead:
        return f"{step.source} is not active: failover decides where it goes"
    is_split = step.kind == Kind.SPLIT.value
    problem = reason_to_stay(work, step.bundle, step.destination, is_split=is_split)
    is_observed = is_only_observed(work, step.decision(""))
    return problem or load.reason_not_admitted(work, step) or (OBSERVED if is_observed else "")


def _followed(
    work: BatchContext, snapshot: Snapshot, taken: Sequence[tuple[int, int, int]]
) -> tuple[Floats, Floats, PlanState]:
    columns = np.array([(*one, NOBODY) for one in taken], dtype=np.int64).reshape(-1, 4)
    moves = Moves(
        bundle=columns[:, 0], source=columns[:, 1], destination=columns[:, 2], origin=columns[:, 3]
    )
    return project_moves(snapshot, work.plan, planning_config(work), work.now_ms, moves)


def _end(
    work: BatchContext, name: str, proposal: PlanProposal, station: PlanStatus, why: str
) -> None:
    ended = replace(proposal, station=station, why=why, until_ms=work.now_ms + KEPT_MS)
    _keep(work, name, ended, None)


def _keep(work: BatchContext, name: str, proposal: PlanProposal, command: Command | None) -> None:
    """Let the proposal stand as it is now, and write down what has become of it."""
    work.set_rule("proposals", name, proposal, command)
    status = proposal.station
    reason = "Proposed" if status is PlanStatus.WAITS else status.value.capitalize()
    inputs = {
        "plan": name,
        "why": proposal.why,
        "by": proposal.by,
        "answered_by": proposal.answered_by,
        "steps": len(proposal.steps),
        "done": proposal.done,
        "passed_over": proposal.skipped,
        "before": proposal.before,
        "after": proposal.after,
    }
    work.write_decision("plan", reason, inputs)


def _moved_percent(work: BatchContext, snapshot: Snapshot, decisions: Sequence[Decision]) -> float:
    """Return the largest share of a group's messages that decisions move.

    Of isolation groups, in percent.
    """
    names, groups = snapshot.brokers.names, work.plan.groups
    moved: dict[str, float] = defaultdict(float)
    for one in decisions:
        moved[groups.get(one.source, "")] += float(one.inputs.get("msg_rate", 0.0))
    rates = snapshot.bundles.short[:, [RATE_IN, RATE_OUT]].sum(axis=1)
    owner = snapshot.bundles.owner
    served = np.bincount(owner + 1, weights=rates, minlength=len(names) + 1)[1:]
    members = members_by_group(names, groups)
    total = {group: float(served[at].sum()) for group, at in members.items()}
    return max(
        (100.0 * rate / total[group] for group, rate in moved.items() if total.get(group)),
        default=0.0,
    )


def _shown(load: _Load, usage: Floats, touched: Sequence[str], members: Ints) -> dict[str, float]:
    """Return usage of the touched brokers, and the maximum and mean of members.

    members: the isolation group of the hottest; all brokers without groups.
    """
    found = {name: round(float(usage[load.brokers[name]]), 4) for name in touched}
    part = usage[members]
    if len(part):
        found |= {"max": round(float(part.max()), 4), "mean": round(float(part.mean()), 4)}
    return found


def _new_name(work: BatchContext) -> str:
    """Return a name of six digits to the base 36 that no other proposal has.

    Made from the batch's time; short to type.
    """
    number = work.now_ms // 1_000
    while (name := np.base_repr(number % 36**6, 36).lower().zfill(6)) in work.rules.proposals:
        number += 1
    return name
