"""What tuning weighs: the price of a run, the steps that a setting may take, and what is noise.

Decides nothing about how runs are made. A run's cost is in *points*: percent by which the most
loaded broker was above what nobody can avoid, in the mean over time, and so many points for each
percent of the bundles that moved in an hour. Two settings are compared on the same stretches under
the same seeds, pair by pair, so that what is hard for both cancels out. Source: ours; the paired
differences are Student's, with two standard errors for any number of pairs.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lbcore.config.catalogue import Entry
from lbcore.config.tree import Config, value_of
from lbcore.plan.strategy import Strategy

HOUR_MS = 3_600_000.0
MOVE_PRICE = 0.2
"""Points for a percent of the bundles in an hour, unless somebody says otherwise."""
LEAST_GAIN = 0.5
"""Points; less is not worth a change of settings, however sure it is."""
PAIRS_MIN = 3
_ERRORS = 2.0
_PERCENT = 100.0
_FACTORS = (0.5, 2.0)
_NOT_TUNED = ("signals.", "transfer.in_flight")
"""What a broker's load is, and how long a step may take, is known and not searched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """By how much a setting is cheaper than another. points: the mean of the pairs' differences.

    noise: two standard errors of it, infinite for fewer than PAIRS_MIN pairs.
    """

    points: float
    noise: float

    @property
    def is_real(self) -> bool:
        """Whether it is worth having and more than noise."""
        return self.points >= LEAST_GAIN and self.points > self.noise


def imbalance_cost(floor_adjusted: float | None) -> float:
    """Points for a mean floor-adjusted imbalance, from 1.0; None = there was no load."""
    return 0.0 if floor_adjusted is None else _PERCENT * (floor_adjusted - 1.0)


def move_cost(moves: float, bundles: int, length_ms: float, price: float) -> float:
    """Points for moves. price: of a percent of the bundles in an hour. length_ms: above 0."""
    percent = _PERCENT * moves / max(1, bundles)
    return price * percent / (length_ms / HOUR_MS)


def gain(before: Sequence[float], after: Sequence[float]) -> Gain:
    """How much cheaper `after` is, pair by pair; both of one length, at least 1. O(n)."""
    differences = [old - new for old, new in zip(before, after, strict=True)]
    count = len(differences)
    mean = math.fsum(differences) / count
    if count < PAIRS_MIN:
        return Gain(points=mean, noise=math.inf)
    squares = math.fsum((one - mean) ** 2 for one in differences)
    return Gain(points=mean, noise=_ERRORS * math.sqrt(squares / (count - 1) / count))


def steps(config: Config, strategy: Strategy) -> Iterator[str]:
    """What else each setting of a strategy could be, "section.name=value": half, double, the other.

    Within its range; nothing of a setting that is 0 or switched off below 0.
    """
    for entry in strategy.entries():
        if is_tuned(entry):
            yield from (f"{entry.key}={value}" for value in _others(entry, value_of(config, entry)))


def is_tuned(entry: Entry) -> bool:
    """Whether a setting is one that is searched."""
    return not entry.key.startswith(_NOT_TUNED)


def as_text(value: object) -> str:
    """A value of a setting as an assignment has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _others(entry: Entry, value: object) -> list[str]:
    if isinstance(value, bool):
        return [as_text(not value)]
    if not isinstance(value, int | float) or value <= 0:
        return []
    found = []
    for factor in _FACTORS:
        other = round(value * factor) if entry.type is int else value * factor
        least, most = entry.about.minimum, entry.about.maximum
        other = other if least is None else max(least, other)
        other = other if most is None else min(most, other)
        if other != value and as_text(other) not in found:
            found.append(as_text(other))
    return found
