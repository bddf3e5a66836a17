"""`python -m tests.bench search`: how far `ballast`'s search is from the best, by a solver.

Random clusters of 20 brokers and 500 bundles: skewed loads, brokers of one size or of several, one
resource or two. HiGHS solves the relaxation in which bundles can be cut (a bound that no layout
beats); the gap is the search's objective over that bound. Needs
`highspy`.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import highspy
import numpy as np

from lbcore.plan.shed.ballast_search import OVER, UNDER, Found, SearchProblem, search

BROKERS, BUNDLES, CASES = 20, 500, 200
STEPS = 1_000
POINTS = 40.0
TANGENTS = 40


def instance(seed: int, brokers: int = BROKERS, bundles: int = BUNDLES) -> SearchProblem:
    """A random cluster, the same for a seed on every machine."""
    rng = np.random.default_rng(seed)
    weight = rng.pareto(1.5, bundles) + 0.2 if seed % 2 else rng.lognormal(0, 1, bundles)
    weight = np.minimum(weight, weight.sum() / brokers * 0.6)
    weight *= brokers * POINTS / weight.sum()
    size = np.ones(brokers) if seed % 4 < 2 else rng.choice([0.5, 1.0, 1.0, 2.0], brokers)
    size = size / size.mean()
    home = rng.choice(brokers, bundles, p=rng.dirichlet(np.full(brokers, 3.0)))
    both = [weight] if seed % 3 else [weight, weight * rng.uniform(0.2, 1.1, bundles)]
    table = np.stack(sorted(both, key=lambda one: -one.sum()), axis=1)
    load = np.stack([np.bincount(home, one, brokers) / size for one in table.T], axis=1)
    level = float(load[:, 0] @ size) / brokers
    least = (0.05, 0.2, 0.4)[seed % 5 % 3]
    price = least * (table.max(axis=1) / level + 0.1 * brokers / bundles)
    return SearchProblem(
        load=load,
        size=size,
        weight=table,
        home=home,
        price=price,
        min_price=least,
        level=level,
        can_move=np.ones(bundles, dtype=np.bool_),
        may_give=np.ones(brokers, dtype=np.bool_),
        may_take=np.ones(brokers, dtype=np.bool_),
        row=np.zeros(bundles, dtype=np.int64),
        admits=np.ones((1, brokers), dtype=np.bool_),
    )


def bound_of(problem: SearchProblem) -> float:
    """The solver's bound.

    The squares are cut by tangents, which lie below them: what is found is a bound all the same.
    """
    brokers, bundles = len(problem.size), len(problem.home)
    model = highspy.Highs()
    model.setOptionValue("output_flag", False)  # noqa: FBT003 the solver's signature
    model.setOptionValue("threads", 1)
    lies = model.addVariables(bundles, brokers, lb=0, ub=1)
    over = model.addVariables(brokers, lb=0)
    under = model.addVariables(brokers, lb=0)
    costs = model.addVariables(2, brokers, lb=0)
    for row in range(bundles):
        model.addConstr(model.qsum(lies[row, :]) == 1)
    for broker in range(brokers):
        own = problem.weight[problem.home == broker].sum(axis=0) / problem.size[broker]
        fixed = problem.load[broker] - own
        for kind in range(problem.weight.shape[1]):
            part = problem.weight[:, kind] / problem.size[broker] / problem.level
            points = model.qsum(part[row] * lies[row, broker] for row in range(bundles))
            points = points + float(fixed[kind]) / problem.level
            model.addConstr(over[broker] >= points - 1)
            if not kind:
                model.addConstr(under[broker] >= 1 - points)
        for side, (away, dear) in enumerate(((over, OVER), (under, UNDER))):
            for at in np.linspace(0.0, 1.0, TANGENTS) ** 2 * (2.0 - side):
                model.addConstr(
                    costs[side, broker]
                    >= 2 * dear * float(at) * away[broker] - dear * float(at) ** 2
                )
    goal = model.qsum(
        float(problem.size[broker]) * costs[side, broker]
        for side in range(2)
        for broker in range(brokers)
    )
    leaves = model.qsum(
        float(problem.price[row]) * (1 - lies[row, int(problem.home[row])])
        for row in range(bundles)
    )
    model.minimize(goal + leaves)
    return float(model.getInfo().objective_function_value)


def main() -> None:
    """Solve, compare, print a line a quantile and one of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--output", type=Path, help="file for the figures as JSON")
    args = parser.parse_args()
    gaps, times, steps = [], [], []
    for seed in range(args.cases):
        problem = instance(seed)
        began = time.process_time()
        found: Found = search(problem, STEPS, np.inf)
        times.append((time.process_time() - began) * 1e3)
        steps.append(found.steps)
        gaps.append(found.after / bound_of(problem) - 1.0)
    figures = {
        "bench": "search",
        "cases": args.cases,
        "gap_median": round(statistics.median(gaps), 4),
        "gap_p90": round(float(np.quantile(gaps, 0.9)), 4),
        "gap_max": round(max(gaps), 4),
        "cpu_ms_median": round(statistics.median(times), 1),
        "steps_median": statistics.median(steps),
    }
    sys.stdout.write(f"{json.dumps(figures)}\n")
    if args.output is not None:
        args.output.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
