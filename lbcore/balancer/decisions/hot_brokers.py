"""Hot brokers that give nothing: since when, what holds them, and that it is over.

Decides when that is told: as soon as a broker has all hits and gives nothing (of a large cluster
the hottest first, the others in the next cycles), again once a minute, and when it is over. Which
rules hold it, `plan.held` finds. Part of `balancer`, after a plan that shed or could have. Source:
ours.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from lbcore.balancer.decisions.held_words import HELD, OVER
from lbcore.balancer.state.work import Work
from lbcore.config.tree import Config
from lbcore.plan.decision import Hot, Plan, PlanState, Scope, Skip
from lbcore.plan.held import HeldBroker, HeldQuestion, givers, held_brokers, near, refusals, stuck
from lbcore.plan.lifts import Inputs
from lbcore.plan.snapshot import Snapshot

RETOLD_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A plan that was made: of what, and what came of it. before: the memory that it began with."""

    snapshot: Snapshot
    before: PlanState
    config: Config
    scope: Scope
    result: Plan | Skip


def watch_hot(work: Work, planned: Planned) -> None:
    """Note who is hot and gives nothing, and tell why. O(rules × plan) once a minute at most."""
    if not planned.scope.sheds:
        return
    known = planned.before.hot
    beyond = near(planned.result) - givers(planned.result)
    hot = {name: known.get(name, Hot(since_ms=work.now_ms)) for name in sorted(beyond)}
    for name in sorted(set(known) - set(hot)):
        if known[name].told_ms:
            _write(work, name, OVER, {"since_ms": known[name].since_ms})
    verdicts = {
        name: verdict
        for name, verdict in stuck(planned.result).items()
        if name in hot and work.now_ms - hot[name].told_ms >= RETOLD_MS
    }
    for found in _held(work, planned, verdicts):
        hot[found.broker] = replace(hot[found.broker], told_ms=work.now_ms, rule=reason_of(found))
        inputs = {"since_ms": hot[found.broker].since_ms, **asdict(found)}
        _write(work, found.broker, reason_of(found), inputs)
    work.plan = replace(work.plan, hot=hot)


def reason_of(held: HeldBroker) -> str:
    """The rule that holds it; the strategy's own verdict where no rule does."""
    return held.causes[0].rule if held.causes else held.verdict


def _held(work: Work, planned: Planned, verdicts: Mapping[str, str]) -> tuple[HeldBroker, ...]:
    if not verdicts:
        return ()
    inputs = Inputs(snapshot=planned.snapshot, state=planned.before, config=planned.config)
    asked = HeldQuestion(
        inputs=inputs,
        now_ms=work.now_ms,
        scope=planned.scope,
        refused=refusals(planned.result),
    )
    return held_brokers(asked, verdicts)


def _write(work: Work, broker: str, reason: str, inputs: Mapping[str, Any]) -> None:
    work.write_decision(work.next_decision(), HELD, reason, inputs, source=broker)
