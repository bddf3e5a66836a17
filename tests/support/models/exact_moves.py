"""The fewest moves by a solver (HiGHS): what the bound of `lbcore.bounds.moves` is held against.

A search that ends early (by its limit of nodes, never of time) gives the solver's dual bound, which
is a lower bound as well.
"""

import math
from collections.abc import Sequence
from typing import Any

import highspy
import numpy as np
from numpy.typing import NDArray

from lbcore.bounds.moves import Brokers, Course, Floats, leaving

NODES_MAX = 2_000
_GAP = 1e-6


def exact_moves(course: Course, times: Sequence[int]) -> int | None:
    """The fewest moves that hold the bar at these times, in this order; None: nobody can.

    Times that are left out only make it fewer, so it is a lower bound for all of them.
    """
    if not times:
        return 0
    model = _model()
    bundles, brokers = len(course.first), len(course.capacity)
    limits = course.limits()
    moved: list[Any] = []
    before: list[list[Any]] | None = None
    for at in times:
        where = [[model.addBinary() for _ in range(brokers)] for _ in range(bundles)]
        for bundle in range(bundles):
            model.addConstr(sum(where[bundle]) == 1)
            moved.append(model.addVariable(lb=0.0, ub=1.0))
            _count_move(
                model, moved[-1], where[bundle], (before, int(course.first[bundle]), bundle)
            )
        for broker in range(brokers):
            _hold(model, course, (at, broker), [where[b][broker] for b in range(bundles)], limits)
        before = where
    model.minimize(sum(moved))
    if str(model.getModelStatus()).endswith("kInfeasible"):
        return None
    return max(0, math.ceil(_bound(model) - _GAP))


def worst_times(course: Course, counts: NDArray[np.bool_]) -> list[int]:
    """Return the first of the worst times of each broker, ascending."""
    needed = leaving(course, counts)
    brokers = np.flatnonzero(needed.any(axis=0)).tolist()
    return sorted({int(np.argmax(needed[:, broker])) for broker in brokers})


def _count_move(model: Any, moved: Any, where: Sequence[Any], since: Any) -> None:
    """`moved` is 1 where the bundle is elsewhere than it was."""
    before, first, bundle = since
    if before is None:
        if first >= 0:
            model.addConstr(moved + where[first] >= 1)
        return
    for broker, here in enumerate(where):
        model.addConstr(moved - here + before[bundle][broker] >= 0)


def _hold(
    model: Any, course: Course, place: tuple[int, int], own: Sequence[Any], limits: Floats
) -> None:
    """Keep a broker under its limit at a time; empty, where it is gone."""
    at, broker = place
    if not course.is_there[at, broker]:
        model.addConstr(sum(own) == 0)
        return
    room = (float(limits[at]) - float(course.foreign[broker])) * float(course.capacity[broker])
    load = sum(float(weight) * here for weight, here in zip(course.weights[at], own, strict=True))
    model.addConstr(load <= room * (1.0 + 1e-9))


def _model() -> Any:
    """An empty, silent model whose search is the same each time."""
    model: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    model.silent()
    for name, value in (("threads", 1), ("random_seed", 0), ("mip_max_nodes", NODES_MAX)):
        model.setOptionValue(name, value)
    return model


def _bound(model: Any) -> float:
    return float(model.getInfo().mip_dual_bound)


def exact_highest(weights: Floats, brokers: Brokers) -> float:
    """In percent; a lower bound where the search ends early, by its limit of nodes."""
    model: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    model.silent()
    for name, value in (("threads", 1), ("random_seed", 0), ("mip_max_nodes", 2_000)):
        model.setOptionValue(name, value)
    count, places = len(weights), range(len(brokers.capacity))
    where = [[model.addBinary() for _ in places] for _ in range(count)]
    highest = model.addVariable(lb=float(brokers.foreign.max()))
    for bundle in range(count):
        model.addConstr(sum(where[bundle]) == 1)
    for broker in places:
        scale = 1.0 / float(brokers.capacity[broker])
        own = sum(float(weights[b]) * scale * where[b][broker] for b in range(count))
        model.addConstr(own + float(brokers.foreign[broker]) <= highest)
    model.minimize(highest)
    return float(model.getInfo().mip_dual_bound)
