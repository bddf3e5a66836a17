"""Objective that `ballast` minimizes: uneven brokers plus the price of moves.

Decides the value of a layout of bundles, as one number; `ballast_search` looks for a better one.
With L the ideal load, a broker that counts c (its capacity over the mean capacity) costs

c x (OVER x over^2 + UNDER x under^2)

over: how far its worst resource is above L. under: how far the cluster's busiest resource is below
L on it. Both are in parts of L. A bundle that is not where it was costs its price. The unit is that
of `over^2`: 1 is a broker of mean size at twice the level, by OVER. Overshoot four times as
expensive as undershoot is Dicer's (16 and 4).

Bits: elementwise arithmetic and sums in order only, so that every machine finds the same.
"""

from dataclasses import dataclass

import numpy as np

from lbcore.plan.shed.ballast_crowding import Crowding
from lbcore.plan.shed.common import sequential_sum
from lbcore.plan.snapshot import Bools, Floats, Ints

OVER, UNDER = 4.0, 1.0
_DUALS = 64
"""Prices tried for the bound; the best of them is within a thousandth of the best of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchProblem:
    """n brokers, m bundles, r resources, the cluster's busiest one in column 0.

    load: float64[n, r], points of the broker's own size. size: float64[n], capacity over the mean
    capacity. weight: float64[m, r], points that a bundle makes on a broker of size 1. home:
    int64[m], the owner, -1 = none. price: float64[m], of leaving home. min_price: no bundle's
    price for a part of the level is below it. level: points, above 0. can_move: bool[m].
    may_give, may_take: bool[n]. row: int64[m], each bundle's row of admits; admits: bool[rows, n],
    whom the filters let have it. left: int64[m], the broker that each bundle left lately (it
    returns dearly), -1 = none; None = not known. crowding: what belongs together, None = nothing
    that anybody has too much of. room: float64[n],
    points of size 1 that a broker may take, None = any. growth: float64[m], times what each bundle
    shows that it counts for there, away from home; only where there is a room.
    """

    load: Floats
    size: Floats
    weight: Floats
    home: Ints
    price: Floats
    min_price: float
    level: float
    can_move: Bools
    may_give: Bools
    may_take: Bools
    row: Ints
    admits: Bools
    left: Ints | None = None
    crowding: Crowding | None = None
    room: Floats | None = None
    growth: Floats | None = None


def broker_costs(load: Floats, size: Floats, level: float) -> Floats:
    """Return the cost of each broker.

    load: float64[..., n, r]; size: float64[n] or a number.
    """
    worst = load[..., 0]
    for resource in range(1, load.shape[-1]):  # of few, quicker than `max` along them
        worst = np.maximum(worst, load[..., resource])
    over = np.maximum(worst / level - 1.0, 0.0)
    under = np.maximum(1.0 - load[..., 0] / level, 0.0)
    cost: Floats = size * (OVER * over * over + UNDER * under * under)
    return cost


def objective(
    problem: SearchProblem, load: Floats, moved: Ints, beyond: Ints | None = None
) -> float:
    """Return the number that is minimised.

    load: float64[n, r], as it will be; moved: the rows that do. beyond: int64[g, n], as
    `Crowding.beyond` will be; None = as it is.

    Worked: two brokers of size 1 at 60 and 20 points, level 40: 4 x 0.5^2 + 1 x 0.5^2 = 1.25.
    """
    uneven = sequential_sum(broker_costs(load, problem.size, problem.level))
    crowds = 0.0
    if problem.crowding is not None:
        crowds = problem.crowding.cost(problem.crowding.beyond if beyond is None else beyond)
    return uneven + sequential_sum(problem.price[moved]) + crowds


def lower_bound(problem: SearchProblem) -> float:
    """Return a lower bound of the objective over all layouts.

    Load is divisible, only leaving costs, all is apart. Weak duality: with a price of `taken` for a
    part of the level that somebody takes and the rest of the least price for one that somebody
    gives, each broker finds its own least. Whatever the split is, the sum is a bound; the best of
    some is told. O(brokers).
    """
    above = problem.load.max(axis=1) / problem.level - 1.0
    below = problem.load[:, 0] / problem.level - 1.0
    stays = broker_costs(problem.load, problem.size, problem.level) / problem.size
    taken = problem.min_price * np.arange(_DUALS + 1)[:, np.newaxis] / _DUALS
    given = problem.min_price - taken
    top, bottom = given / (2.0 * OVER), -taken / (2.0 * UNDER)
    gives = OVER * top * top + given * (above - top)
    takes = UNDER * bottom * bottom + taken * (bottom - below)
    least = np.where(
        problem.may_give & (above > top),
        gives + np.where(below < bottom, takes, np.where(below < 0, UNDER * below * below, 0)),
        np.where(problem.may_take & (below < bottom), takes, stays),
    )
    sums = np.cumsum(problem.size * np.minimum(least, stays), axis=1)[:, -1]
    return max(0.0, float(sums.max()))
