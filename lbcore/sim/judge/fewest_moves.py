"""How few moves would have done: what a run's moves are held against.

Decides the lower bound only; nobody promises that it can be reached. Source: ours.
"""

import math
from collections.abc import Iterable

from lbcore.sim.engine.engine import Run
from lbcore.sim.engine.traffic import MSG_PER_S_PER_POINT

TOLERATED = 1.2
"""Over the greater of the mean and the hottest bundle: as `balanced:1.2` has it."""


def least_moves(run: Run) -> int | None:
    """The fewest bundles that must change hands from the run's first owners to balance at its end.

    Every bundle of a broker that is gone at the end; of any other as many of the largest as take it
    to 1.2 times the fair load at most, by the load at the end. None where bundles were split, or
    nothing runs. Worked: 90 and 10 points in bundles of one, so a mean of 50: 30.
    """
    samples = run.recorder.samples
    if run.recorder.splits or not samples:
        return None
    loads = samples[-1].loads.tolist()
    running = {n.name for n in run.nodes.values() if not math.isnan(_at(loads, n.number))}
    if not running:
        return None
    mean = math.fsum(load for load in loads if not math.isnan(load)) / len(running)
    limit = TOLERATED * max(mean, samples[-1].floor)
    owned: dict[str, list[str]] = {}
    for bundle, broker in sorted(first_owners(run).items()):
        owned.setdefault(broker, []).append(bundle)
    return sum(
        _leaving(run, broker, bundles, limit) if broker in running else len(bundles)
        for broker, bundles in sorted(owned.items())
    )


def first_owners(run: Run) -> dict[str, str]:
    """Who had each bundle first: the owners at the end, with every move taken back."""
    owners = dict(run.recorder.owner)
    for one in reversed(run.recorder.moves):
        if one.move.bundle in owners:
            owners[one.move.bundle] = one.move.source
    return owners


def interrupted_topics(run: Run) -> int:
    """Topics that were without service, counted again each time."""
    return sum(one.topics for one in (*run.coverage.outages, *run.coverage.open_outages()))


def _leaving(run: Run, broker: str, bundles: Iterable[str], limit: float) -> int:
    """How many of a broker's bundles, the largest first, must go to bring it to the limit."""
    spec = run.nodes[broker].spec
    rates = sorted((run.coverage.rate_of(bundle) for bundle in bundles), reverse=True)
    points = [rate / MSG_PER_S_PER_POINT / spec.capacity for rate in rates]
    excess = math.fsum(points) + spec.foreign - limit
    count = 0
    for each in points:
        if excess <= 0:
            break
        excess -= each
        count += 1
    return count


def _at(loads: list[float], number: int) -> float:
    return loads[number] if number < len(loads) else math.nan
