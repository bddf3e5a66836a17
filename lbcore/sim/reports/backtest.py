"""A recorded run as a scenario: same brokers, bundles and load, other balancing.

Decides what is taken over from a history: who owned what at its start, which brokers came and went,
what each stretch of the hash space carried. What balancing did is left out: that is what a strategy
shall do now. Open loop: load is attributed to bundles as it was recorded and goes with them,
whatever it would have been elsewhere.
"""

import re
from collections.abc import Mapping
from itertools import pairwise

from lbcore.model.bundles import NamespaceBundles
from lbcore.model.names import FULL_UPPER, parse_bundle
from lbcore.sim.load.recording import RecordedNamespace, Recording, positions_of
from lbcore.sim.reports.history import History, Interval
from lbcore.sim.scenario.model import (
    AS_RECORDED,
    BrokerSpec,
    LoadSpec,
    NamespaceSpec,
    OwnerSpec,
    Scenario,
    ScenarioEvent,
)
from lbcore.sim.scenario.tokens import Rate

MOVE_PRICE = 0.2
"""Points for a percent of the bundles that moves in an hour."""
_HOUR_MS = 3_600_000.0
_PERCENT = 100.0
_SAMPLE_MS = 10_000
_FILE = "history"


def backtest_scenario(
    history: History, recording: Recording, domains: Mapping[str, str], seed: int = 1
) -> Scenario:
    """Return the scenario of a recorded run.

    domains: failure domains of brokers, where they have any.
    """
    first = _first_owners(history)
    spaces = [_namespace(name, space, first) for name, space in recording.namespaces.items()]
    loads = [
        LoadSpec(
            namespace=space.name,
            spread="replay",
            rate=Rate(value=1.0, unit=AS_RECORDED),
            last=space.bundles - 1,
            file=_FILE,
        )
        for space in spaces
    ]
    return Scenario(
        title="what was recorded",
        seed=seed,
        run_ms=recording.length_ms,
        sample_ms=min(_SAMPLE_MS, recording.length_ms),
        brokers=_brokers(history, domains),
        namespaces=tuple(sorted(spaces, key=lambda space: space.name)),
        owners=tuple(spec for space in spaces for spec in _owners(space, first, history)),
        loads=tuple(loads),
        scenario_events=(*_policies(history), *_happenings(history)),
        full_rate=history.fit.full_rate,
        recordings={loads[0].recording: recording},
    )


def run_cost(floor_adjusted: float | None, moves: float, bundles: int, length_ms: float) -> float:
    """Return a run's cost in points: imbalance in percent, and moves at MOVE_PRICE.

    floor_adjusted: its mean, from 1.0; None: there was no load. length_ms: above 0.
    """
    imbalance = 0.0 if floor_adjusted is None else _PERCENT * (floor_adjusted - 1.0)
    moved_percent = _PERCENT * moves / max(1, bundles)
    return imbalance + MOVE_PRICE * moved_percent / (length_ms / _HOUR_MS)


def _first_owners(history: History) -> dict[str, str]:
    """Return bundle → first owner, of each namespace's first bundles."""
    found: dict[str, str] = {}
    seen: set[str] = set()
    for interval in history.intervals:
        new = {name: owner for name, owner in interval.owners.items() if _space(name) not in seen}
        found |= new
        seen |= {_space(name) for name in new}
    return found


def _space(bundle: str) -> str:
    return bundle.rpartition("/")[0]


def _namespace(name: str, space: RecordedNamespace, first: Mapping[str, str]) -> NamespaceSpec:
    """Return a namespace with its first bundles.

    A gap (a bundle on its way) is a bundle, too.
    """
    ends = {0, FULL_UPPER}
    for bundle in first:
        if _space(bundle) == name:
            ends.update(parse_bundle(bundle)[1:])
    return NamespaceSpec(
        name=name,
        bundles=len(ends) - 1,
        boundaries=tuple(sorted(ends)),
        positions=tuple(positions_of(space).tolist()),
    )


def _owners(space: NamespaceSpec, first: Mapping[str, str], history: History) -> list[OwnerSpec]:
    """Return the owner of each bundle at the start.

    A bundle that had no owner then goes to the first broker, of its isolation group where there are
    several.
    """
    there = sorted(_start(history).there)
    homes = sorted(
        owner for name, owner in first.items() if _space(name) == space.name and owner in there
    )
    spare = homes[0] if homes and history.intervals[-1].groups else there[0]
    names = [
        f"{space.name}/{each.text}" for each in NamespaceBundles(space.name, space.edges).ranges()
    ]
    owners = [first.get(name, spare) for name in names]
    return [
        OwnerSpec(
            namespace=space.name,
            first=number,
            last=number,
            brokers=(owner if owner in there else spare,),
        )
        for number, owner in enumerate(owners)
    ]


def _start(history: History) -> Interval:
    """The first interval with a broker."""
    return next(interval for interval in history.intervals if interval.there)


def _brokers(history: History, domains: Mapping[str, str]) -> tuple[BrokerSpec, ...]:
    there = _start(history).there
    return tuple(
        BrokerSpec(
            name=name,
            capacity=history.capacities[name],
            domain=domains.get(name, ""),
            foreign=history.fit.idle,
            is_absent=name not in there,
        )
        for name in sorted(history.capacities)
    )


def _policies(history: History) -> tuple[ScenarioEvent, ...]:
    """An isolation policy for each group of the last interval."""
    return tuple(
        ScenarioEvent(
            at_ms=0,
            verb="command",
            options={
                "kind": "set_isolation_policy",
                "arguments": {
                    "policy": f"group-{number}",
                    "namespaces": sorted({re.escape(_space(name)) for name in part.owners}),
                    "primary": sorted(map(re.escape, part.there)),
                },
            },
        )
        for number, part in enumerate(history.intervals[-1].parts())
        if part.groups and part.owners
    )


def _happenings(history: History) -> tuple[ScenarioEvent, ...]:
    """Brokers that came and went."""
    found: list[ScenarioEvent] = []
    begin_ms = history.intervals[0].at_ms
    for before, after in pairwise(history.intervals):
        at_ms = after.at_ms - begin_ms
        gone, come = before.there - after.there, after.there - before.there
        for verb, names in (("crash", gone), ("start", come)):
            if names:
                found.append(ScenarioEvent(at_ms=at_ms, verb=verb, brokers=tuple(sorted(names))))
    return tuple(found)
