"""Held: which rules keep a broker that is hot for long enough from giving anything.

Decides nothing about the cluster. A plan is pure, so the question is put to the planner itself: a
rule is a cause if the same cycle without that rule takes something from the broker. Causes that
hold only together are found by halving. Asked by the cycle after a plan that left a hot broker as
it was. A cause is what is meant by "but for" it.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lbcore.plan.decision import Decision, Kind, Plan, Scope, Skip
from lbcore.plan.groups import group_means
from lbcore.plan.lifts import (
    FILTERS,
    HOLDS,
    LIMITS,
    RULES,
    STRATEGY,
    Inputs,
    idle_caps,
    in_force,
    lifted,
)
from lbcore.plan.phases.limit import PHASE as LIMIT
from lbcore.plan.planner import giving
from lbcore.plan.shed.gauge import Gauge
from lbcore.plan.snapshot import Ints
from lbcore.plan.trace import Columns, GaugeRows
from lbcore.signals.usage import weighted_usage

BROKERS_MAX = 20
_PLANNED_MAX = 1_200_000
"""Bundles that are planned for one question, all its plans together: 12 plans of 100,000."""

_NEVER_STUCK = frozenset({"", "below_threshold"})
_TOO_LITTLE = frozenset(
    {
        "no_fitting_bundle",
        "no_gain",
        "left_alone",
        "no_eligible_bundle",
        "below_min_unload",
        "below_min_throughput",
    }
)
"""Verdicts of strategies before limits and filters are asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldingRule:
    """A rule that holds the broker. setting: where it is set, "" = by a command.

    bundles: of the broker's that it holds, 0 = it holds none by name. first_ms, last_ms: when the
    first and the last of these are free by the clock alone, ms since 1970, 0 = never.
    """

    rule: str
    setting: str
    bundles: int = 0
    first_ms: int = 0
    last_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBroker:
    """A hot broker that gives nothing. verdict: the strategy's word; usage, mean: 1.0 = 100 %.

    mean: of its group. causes: each of which alone, lifted, lets it give; or, where is_joint, all
    of which together. None: its bundles can't move whatever is set. bundles: that it has. free: of
    these, held by no rule. blocked: names of rules, joined by " and " → the bundles that exactly
    these hold; with `free` they add up to `bundles`.
    """

    broker: str
    verdict: str
    usage: float
    mean: float
    bundles: int
    causes: tuple[HoldingRule, ...]
    is_joint: bool = False
    free: int = 0
    blocked: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldQuestion:
    """The arguments of the plan that is asked about.

    refused: of `refusals`, what its limits said; None = not known. groups: of the state after it.
    """

    inputs: Inputs
    now_ms: int
    scope: Scope
    refused: frozenset[str] | None = None
    groups: Mapping[str, str] = field(default_factory=dict)

    def plan(self, inputs: Inputs) -> frozenset[str]:
        """The brokers that give something in this cycle under other inputs."""
        scope = replace(self.scope, splits=False, is_traced=False)
        return giving(inputs.snapshot, inputs.state, inputs.config, self.now_ms, scope)


def givers(result: Plan | Skip) -> frozenset[str]:
    """The brokers that balancing takes something from."""
    if isinstance(result, Skip):
        return frozenset()
    return frozenset(one.source for one in result.decisions if _is_shed(one))


def _is_shed(one: Decision) -> bool:
    return one.kind in (Kind.TRANSFER, Kind.UNLOAD) and one.reason != "Pinned"


def stuck(result: Plan | Skip) -> dict[str, str]:
    """Broker → the strategy's verdict, of the brokers that are to give and give nothing.

    They are beyond a threshold for as many observations as it takes. Needs a traced plan.
    """
    found: dict[str, str] = {}
    giving = givers(result)
    for part in result.trace.parts:
        if not isinstance(part, GaugeRows):
            continue
        names = zip(result.trace.brokers, part.verdicts, _is_ready(part.gauge), strict=True)
        for name, verdict, is_ready in names:
            waits = verdict == "too_few_hits" and not is_ready
            if verdict not in _NEVER_STUCK and not waits and name not in giving:
                found[name] = verdict
    return found


def refusals(result: Plan | Skip) -> frozenset[str]:
    """Return the limit phase's verdicts on the moves it checked; needs a traced plan."""
    found: set[str] = set()
    for part in result.trace.parts:
        if isinstance(part, Columns) and part.phase == LIMIT:
            found |= {part.verdicts[code] for code in np.unique(part.verdict).tolist()}
    return frozenset(found)


def near(result: Plan | Skip) -> frozenset[str]:
    """The brokers that are beyond a threshold now, for however long. Needs a traced plan."""
    return frozenset(
        name
        for part in result.trace.parts
        if isinstance(part, GaugeRows)
        for name, verdict in zip(result.trace.brokers, part.verdicts, strict=True)
        if verdict not in _NEVER_STUCK
    )


def _is_ready(gauge: Gauge) -> list[bool]:
    """Return the brokers with the hits of a level that they are beyond."""
    is_ready = np.zeros(len(gauge.number), dtype=np.bool_)
    for level in gauge.levels:
        is_ready |= (gauge.number >= level.threshold) & (level.hits >= level.needed)
    ready: list[bool] = is_ready.tolist()
    return ready


def held_brokers(asked: HeldQuestion, verdicts: Mapping[str, str]) -> tuple[HeldBroker, ...]:
    """Return the reasons these brokers give nothing, the hottest broker first.

    At most BROKERS_MAX. verdicts: of `stuck`. O(rules × plan), and first only the rules that hold a
    bundle of theirs. In a large cluster it returns fewer brokers, at least one, because a cycle
    waits for it. Ask again for the others.
    """
    brokers = asked.inputs.snapshot.brokers
    usage = weighted_usage(brokers.percent, asked.inputs.config.signals)
    mean = group_means(brokers.names, asked.groups, usage)
    index = {name: at for at, name in enumerate(brokers.names)}
    hot = sorted((-float(usage[index[name]]), name) for name in verdicts)
    chosen = [name for low, name in hot if -low >= mean.get(name, 0.0)][:BROKERS_MAX]
    search, found = _Search(asked), list[HeldBroker]()
    plans_max = _PLANNED_MAX // max(1, len(asked.inputs.snapshot.bundles.names))
    for name in chosen:
        if found and search.plans > plans_max:
            break
        is_chosen = verdicts[name] not in _TOO_LITTLE
        causes, is_joint = search.causes(name, index[name], is_chosen=is_chosen)
        blocked = search.blocked(index[name])
        found.append(
            HeldBroker(
                broker=name,
                verdict=verdicts[name],
                usage=float(usage[index[name]]),
                mean=mean.get(name, 0.0),
                bundles=sum(blocked.values()),
                causes=causes,
                is_joint=is_joint,
                free=blocked.pop("", 0),
                blocked=blocked,
            )
        )
    return tuple(found)


class _Search:
    """Plans without rules, each made once for all brokers."""

    def __init__(self, asked: HeldQuestion) -> None:
        self._asked = asked
        self._known: dict[tuple[str, ...], frozenset[str]] = {}
        inputs = asked.inputs
        self._in_force = in_force(inputs)
        self._idle = frozenset() if asked.refused is None else idle_caps(asked.refused)
        self._holds = {n: hold.holds(inputs, asked.now_ms) for n, hold in HOLDS.items()}

    def causes(
        self, broker: str, at: int, *, is_chosen: bool
    ) -> tuple[tuple[HoldingRule, ...], bool]:
        """The causes, and whether they hold only together.

        is_chosen: the strategy chose bundles of it, so what stopped them came after.
        """
        holding = [name for name in HOLDS if len(self._held(name, at))]
        later = [name for name in (*LIMITS, *FILTERS) if name in self._in_force]
        strategy = [name for name in STRATEGY if name in self._in_force]
        tried = [name for name in later if name not in self._idle]
        for rules in (holding, tried if is_chosen else []):
            alone = [name for name in rules if self._frees(broker, (name,))]
            if alone:
                return self._named(alone, at), False
        every = (*holding, *later)
        smallest_set = self._smallest_set(broker, every)
        if smallest_set:
            return self._named(smallest_set, at), True
        alone = [name for name in strategy if self._frees(broker, (name,))]
        if alone:
            return self._named(alone, at), False
        return self._named(self._smallest_set(broker, (*every, *strategy)), at), True

    def blocked(self, at: int) -> dict[str, int]:
        """Rules that hold bundles of the broker together → how many; "" = no rule holds them."""
        rows = np.flatnonzero(self._asked.inputs.snapshot.bundles.owner == at).tolist()
        held = {name: rows_held.tolist() for name, rows_held in self._holds.items()}
        counts = Counter(
            " and ".join(n for n, is_held in held.items() if is_held[row]) for row in rows
        )
        return dict(sorted(counts.items()))

    def _named(self, rules: Iterable[str], at: int) -> tuple[HoldingRule, ...]:
        return tuple(self._cause(name, at) for name in rules)

    def _smallest_set(self, broker: str, rules: Sequence[str]) -> tuple[str, ...]:
        """Rules that free the broker together, and none of which may be left out; () = none do.

        The last rules are left out first, as many as may be, found by halving: few plans, for few
        rules hold together. Halving believes that more rules lifted free more, which is not so of
        each plan, so what it finds is tried without each. Source: after QuickXplain (Junker 2004).
        """
        if not self._frees(broker, rules):
            return ()
        rest, needed = tuple(rules), tuple[str, ...]()
        while rest:
            enough = self._enough(broker, rest, needed)
            if not enough:
                break
            rest, needed = rest[: enough - 1], (rest[enough - 1], *needed)
        for name in needed:
            fewer = tuple(one for one in needed if one != name)
            if self._frees(broker, fewer):
                needed = fewer
        return needed

    def _enough(self, broker: str, rest: Sequence[str], needed: Sequence[str]) -> int:
        """Return the length of the prefix of `rest` that frees the broker.

        Freed together with `needed`.
        """
        return bisect_left(
            range(len(rest)),
            1,
            key=lambda end: int(self._frees(broker, (*rest[:end], *needed))),
        )

    @property
    def plans(self) -> int:
        """Made so far."""
        return len(self._known)

    def _frees(self, broker: str, rules: Iterable[str]) -> bool:
        names = tuple(rules)
        if not names:
            return False  # as the plan is that is asked about
        if names not in self._known:
            self._known[names] = self._asked.plan(lifted(self._asked.inputs, names))
        return broker in self._known[names]

    def _held(self, name: str, at: int) -> Ints:
        """The rows of the broker's bundles that a rule holds."""
        owner = self._asked.inputs.snapshot.bundles.owner
        rows: Ints = np.flatnonzero(self._holds[name] & (owner == at))
        return rows

    def _cause(self, name: str, at: int) -> HoldingRule:
        if name not in HOLDS:
            return HoldingRule(rule=name, setting=RULES[name].setting)
        rows = self._held(name, at)
        until_ms = HOLDS[name].until_ms(self._asked.inputs)[rows].tolist()
        return HoldingRule(
            rule=name,
            setting=HOLDS[name].setting,
            bundles=len(rows),
            first_ms=min(until_ms, default=0),
            last_ms=max(until_ms, default=0),
        )
