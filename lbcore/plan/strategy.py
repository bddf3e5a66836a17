"""Common fields of a strategy's record, for shedding and placement.

The records are in `plan.registry`. Code that lists, checks, draws or runs strategies reads them
there. `Shedding` is the contract of the shed phase. A strategy of Pulsar's modular manager is a
function of the view, its state and the configuration, which `modular` makes a `Run` of.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias

from lbcore.config.placement import LEAST_LONG_TERM_MESSAGE_RATE
from lbcore.config.setting import Entry
from lbcore.config.tree import SETTINGS, Config
from lbcore.config.values import StrategyCheck
from lbcore.model.resources import RESOURCES
from lbcore.plan.decision import PlanState
from lbcore.plan.shed.common import Shed, ShedState, ShedView, TriggerStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """Description of one strategy.

    pulsar_class: "" = Ballast's. caveats: weaknesses. settings: keys, "section.name".
    plans_destinations: while it sheds, so it is set for both halves or for neither. checks: of
    settings, when it is in force. seen_in: examples, links into tests/. code: of a custom one, its
    place and digest.
    """

    name: str
    pulsar_class: str = ""
    rule: str
    use_when: str
    caveats: str
    settings: tuple[str, ...] = ()
    plans_destinations: bool = False
    checks: tuple[StrategyCheck, ...] = ()
    seen_in: str = ""
    code: str = ""

    def entries(self) -> Iterator[Entry]:
        """Return the declarations of its settings."""
        return (SETTINGS[key] for key in self.settings)


def keys(section: str, *names: str) -> tuple[str, ...]:
    """Settings of one section, "section.name"."""
    return tuple(f"{section}.{name}" for name in names)


WEIGHTS = keys("signals", *(one.weight for one in RESOURCES if one.is_local and one.weight))
"""Settings of the weighted usage of a broker, which has no heap, as in Pulsar 4.0.8."""

SCORE_WEIGHTS = keys("signals", *(one.weight for one in RESOURCES if one.weight))
"""Settings of the extensible score, which has the heap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShedCycle:
    """Input of a strategy.

    view: brokers that take part; everyone: also those that drain.
    """

    view: ShedView
    state: PlanState
    config: Config
    now_ms: int
    everyone: Collection[str] = ()


class Destinations(Enum):
    """Treatment of the destinations that a strategy names.

    OPEN: placement decides. KEPT: kept unless a filter forbids it. SETTLED: the strategy has asked
    the filters. UNPLANNED: bundles are unloaded without a destination; the first broker asked gets
    them.
    """

    OPEN = "open"
    KEPT = "kept"
    SETTLED = "settled"
    UNPLANNED = "unplanned"


class Grouping(Enum):
    """Mode of running a strategy: by group (`plan.groups`) or over the whole cluster.

    UNLESS_EXACT: by group unless `shedding.is_pulsar_exact`.
    """

    NEVER = "never"
    UNLESS_EXACT = "unless_exact"
    ALWAYS = "always"


Run: TypeAlias = Callable[[ShedCycle], tuple[Shed, PlanState]]
Rule: TypeAlias = Callable[[ShedView, ShedState, Config], Shed]


def multi_hits(config: Config) -> tuple[int, int]:
    """Return the hits that two-threshold counters need; one without `multi_hit`."""
    shedding = config.shedding
    if not shedding.multi_hit:
        return 1, 1
    return shedding.multi_hit_low_hits, shedding.multi_hit_high_hits


def default_hot_points(_config: Config) -> float:
    """Return the `hot_points` of strategies that have none of their own."""
    return 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shedding(Strategy):
    """A shedding strategy.

    run: cycle → answer and next state. observe: cycle in which no round is due → next state; None =
    not needed. trigger: cycle with next state, answer → distance of each broker from shedding.
    hits_needed: in a row, at the low and the high threshold. hot_points: points above its group's
    mean from which a broker is shown as hot. forget: drops state of brokers that are not active.
    prices_moves: it charges more for a bundle that moved lately, so the grace period forbids none.
    usual_placement: default beside it. learn: state with evidence of all brokers, before each group
    is asked. grouping: when it judges brokers within their group.
    """

    run: Run
    trigger: Callable[[ShedCycle, Shed], TriggerStatus]
    observe: Callable[[ShedCycle], PlanState] | None = None
    hits_needed: Callable[[Config], tuple[int, int]] = field(default=lambda _config: (1, 1))
    hot_points: Callable[[Config], float] = default_hot_points
    destinations: Callable[[Config], Destinations] = field(
        default=lambda _config: Destinations.OPEN
    )
    forget: Callable[[ShedState, Collection[str]], ShedState] = field(
        default=lambda state, _active: state
    )
    prices_moves: bool = False
    usual_placement: str = LEAST_LONG_TERM_MESSAGE_RATE
    learn: Callable[[ShedCycle], PlanState] | None = None
    grouping: Grouping = Grouping.NEVER


def modular(rule: Rule) -> Run:
    """Return a rule of the modular manager as a run; its state is `PlanState.shed`."""

    def run(cycle: ShedCycle) -> tuple[Shed, PlanState]:
        answer = rule(cycle.view, cycle.state.shed, cycle.config)
        return answer, replace(cycle.state, shed=answer.state)

    return run
