"""The transfer shedder's statistics: average and deviation of load, or why there are none.

Decides whether a cycle has usable load data; not who sheds. First step of `transfer`. Source:
Pulsar 4.0.8 TransferShedder.LoadStats.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lbcore.config.transfer import TransferConfig
from lbcore.plan.shed.transfer_types import Reason, TransferView
from lbcore.plan.snapshot import Bools, Floats


@dataclass(slots=True, kw_only=True)
class LoadStats:
    """Sums over the brokers with fresh load data, and the window of brokers still to pair.

    order: indices into the view, by load ascending, ties in store order. min_at, max_at: positions
    in `order`. std: changes with every pair, the average does not.
    """

    order: list[int]
    squares: float
    count: int
    average: float
    std: float
    min_at: int = 0
    max_at: int = 0
    pairs: int = 0

    def offload(self, most: float, least: float, moved: float) -> None:
        """Move `moved` of load from a broker at `most` to one at `least`."""
        self.squares -= most * most + least * least
        left = java_max(0.0, most - moved)
        taken = least + moved
        self.squares += left * left + taken * taken
        self.std = java_sqrt(abs(self.squares / self.count - self.average * self.average))
        self.pairs += 1
        self.min_at += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The statistics, or the reason why the cycle ends; and the brokers still cooling down."""

    stats: LoadStats | None
    reason: Reason | None
    unloaded_brokers: dict[str, int]


def survey(
    view: TransferView,
    registered: frozenset[str],
    unloaded_brokers: Mapping[str, int],
    config: TransferConfig,
    now_ms: int,
) -> Survey:
    """Judge the load store: one broker too early after an unload ends the cycle, as in Pulsar.

    Brokers whose data is too old don't count but stay in the order of brokers. O(n log n).
    """
    is_fresh: Bools = now_ms - view.updated_at_ms <= config.load_data_ttl_ms
    remaining = dict(unloaded_brokers)
    if _is_cooling_down(view, is_fresh, remaining, config):
        return Survey(stats=None, reason=Reason.COOL_DOWN, unloaded_brokers=remaining)
    if not is_fresh.any():
        reason = Reason.OUT_DATED_DATA if len(view.names) else Reason.NO_BROKERS
        return Survey(stats=None, reason=reason, unloaded_brokers=remaining)
    if not registered.issubset(view.names):
        return Survey(stats=None, reason=Reason.NO_LOAD_DATA, unloaded_brokers=remaining)
    return Survey(stats=_stats(view, view.load[is_fresh]), reason=None, unloaded_brokers=remaining)


def _is_cooling_down(
    view: TransferView, is_fresh: Bools, remaining: dict[str, int], config: TransferConfig
) -> bool:
    """True if a broker is cooling down.

    Removes brokers whose cool-down has passed, in store order, up to the first that is cooling
    down.
    """
    if not remaining:
        return False
    index = {name: at for at, name in enumerate(view.names) if name in remaining}
    for name, at in index.items():
        if not is_fresh[at]:
            continue
        if int(view.updated_at_ms[at]) - remaining[name] < config.shedding_delay_ms:
            return True
        del remaining[name]
    return False


def _stats(view: TransferView, load: Floats) -> LoadStats:
    """Population statistics, summed one after the other in store order."""
    count = len(load)
    total = float(np.cumsum(load)[-1])
    squares = float(np.cumsum(load * load)[-1])
    average = total / count
    return LoadStats(
        order=np.argsort(view.load, kind="stable").tolist(),
        squares=squares,
        count=count,
        average=average,
        std=java_sqrt(squares / count - average * average),
        max_at=len(view.names) - 1,
    )


def java_sqrt(value: float) -> float:
    """Java's Math.sqrt: NaN below zero and for NaN."""
    return math.sqrt(value) if value >= 0 else math.nan


def java_max(left: float, right: float) -> float:
    """Java's Math.max: NaN when either is."""
    return math.nan if math.isnan(left) or math.isnan(right) else max(left, right)


def java_divide(left: float, right: float) -> float:
    """Java's division of doubles: infinite or NaN by zero."""
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)
