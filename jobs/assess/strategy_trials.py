"""Trial of each strategy on the recorded minutes.

Decides which strategies are tried; the simulator and `backtesting` do the rest.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from jobs.operating.backtesting import Past, recorded_row, try_again
from jobs.operating.simulations import config_of
from lbcore.config.tree import Config
from lbcore.sim.load.recording import RecordingError, make_recording
from lbcore.sim.reports.backtest import backtest_scenario
from lbcore.sim.reports.history import make_history

TRIED = ("none", "ballast", "avg", "threshold", "transfer", "pulsar-threshold", "pulsar-avg")
_INTERVALS_MIN = 6
_BUNDLES_MAX = 20_000


def try_strategies(rows: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """A row a strategy, what was recorded first; or none, and why. O(strategies × recording)."""
    if len({row["minute_ms"] for row in rows}) < _INTERVALS_MIN:
        return [], "too little was recorded to try strategies on: look for some minutes longer"
    if sum(len(row["bundles"]) for row in rows[-len({row["broker"] for row in rows}) :]) > (
        _BUNDLES_MAX
    ):
        return [], f"strategies are tried on up to {_BUNDLES_MAX} bundles"
    try:
        recording = make_recording(rows)
    except RecordingError as error:
        return [], f"strategies can't be tried: {error}"
    history = make_history(rows, {})
    if not any(interval.there for interval in history.intervals):
        return [], "strategies can't be tried: no broker was there"
    scenario = backtest_scenario(history, recording, {})
    past = Past(history=history, recording=recording, scenario=scenario)
    tried = [try_again(past, name, config_of(scenario, name, (), Config())) for name in TRIED]
    return [recorded_row(past), *(row for row in tried if row is not None)], ""
