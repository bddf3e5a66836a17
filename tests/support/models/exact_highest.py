"""The lowest highest load that whole bundles can have, by a solver."""

from typing import Any

import highspy

from lbcore.bounds.imbalance import Brokers, Floats


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
