"""How wrong the models of statsforecast are of recorded bundles: for docs/forecast.md.

    pip install statsforecast==2.1.1      # no dependency of Ballast
    python -m tests.experiments.forecast_models SCENARIO [--history 144] [--each 24] [--day]

Each model is fitted to the intervals before a time and asked for the next three, at times spread
over the rest; told is the sum of what it was wrong by over the sum of what came.
"""

import argparse
import sys
from importlib import import_module

import numpy as np
import pandas as pd

from jobs.operating.simulations import load_scenarios
from lbcore.sim.load.load import Floats

A_DAY = 288
AHEAD = (1, 3)


def main() -> int:
    """A line a scenario and horizon."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenario")
    parser.add_argument("--history", type=int, default=144, help="intervals of 5 min")
    parser.add_argument("--each", type=int, default=24, help="intervals between two fits")
    parser.add_argument("--day", action="store_true", help="models that know the day, too")
    args = parser.parse_args()
    loads = _loads(args.scenario)
    models = _models(is_daily=args.day)
    count = (len(loads) - args.history - max(AHEAD)) // args.each
    found = (
        import_module("statsforecast")
        .StatsForecast(models=models, freq=1, n_jobs=1)
        .cross_validation(
            df=_frame(loads),
            h=max(AHEAD),
            step_size=args.each,
            n_windows=count,
            input_size=args.history,
        )
    )
    found["ahead"] = found["ds"] - found["cutoff"]
    for ahead in AHEAD:
        part = found[found["ahead"] == ahead]
        wrong = {
            str(model): float((part[str(model)] - part["y"]).abs().sum() / part["y"].sum())
            for model in models
        }
        said = ", ".join(f"{name} {value:.1%}" for name, value in wrong.items())
        sys.stdout.write(f"{ahead * 5} min: {said} ({count} fits)\n")
    return 0


def _loads(path: str) -> Floats:
    """float64[intervals, bundles] of those that carry anything."""
    (loaded,) = load_scenarios([path])
    (recording,) = loaded.scenario.recordings.values()
    (space,) = recording.namespaces.values()
    loads: Floats = space.rates[:, :, :2].sum(axis=2)
    return loads[:, loads.mean(axis=0) > 0.0]


def _frame(loads: Floats) -> pd.DataFrame:
    intervals, bundles = loads.shape
    return pd.DataFrame(
        {
            "unique_id": np.repeat(np.arange(bundles), intervals),
            "ds": np.tile(np.arange(intervals), bundles),
            "y": loads.T.reshape(-1),
        }
    )


def _models(*, is_daily: bool) -> list[object]:
    of = import_module("statsforecast.models")  # no dependency, not even of development
    found = [
        of.Naive(),
        of.SimpleExponentialSmoothing(alpha=0.5),
        of.Holt(),
        of.AutoETS(season_length=1),
        of.AutoTheta(season_length=1),
    ]
    if is_daily:
        found += [
            of.SeasonalNaive(A_DAY),
            of.MSTL(season_length=A_DAY, trend_forecaster=of.Naive()),
        ]
    return found


if __name__ == "__main__":
    sys.exit(main())
