"""What messages and bytes cost: CPU that traffic explains, and bundles that cost more than theirs.

Decides how both are learnt from what brokers report; nothing is moved by it here. Two steps, each
deterministic to the bit: sums are taken in order, and no library for linear algebra is called.

`fit_costs`: over all reports, cpu × capacity = idle × capacity + a × messages + b × bytes, least
squares with no negative part. Of the eight ways to leave parts out, the one with the least residual
whose parts are all above 0 (that of non-negative least squares, as its optimum is such a way).

`learn`: a bundle's factor says how many times the fitted cost its traffic costs (small messages,
filters, encryption). A report of a broker is one equation, sum(factor × expected) = measured; the
factors are projected on it, part of the way (Kaczmarz; in adaptive filters, normalised least mean
squares), and kept within [FACTOR_MIN, FACTOR_MAX]. Where the equations have a solution in that box,
no step leads away from it: a relaxed projection on a plane and one on a box never increase the
distance to a point of both. Bundles that never move apart can't be told apart; they share what
their broker costs too much, the heavier the more. Source: ours; Kaczmarz 1937.
"""

from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

FACTOR_MIN, FACTOR_MAX = 0.1, 20.0
GAIN = 0.2
"""Part of the way that one report leads, above 0 and below 2; less is steadier in noise."""
_TINY = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Points of CPU (percent of a broker of capacity 1), each from 0.

    idle: of a broker without traffic. per_message: of 1 msg/s. per_byte: of 1 byte/s. explained:
    part of the variance that traffic explains, 0 to 1.
    """

    idle: float
    per_message: float
    per_byte: float
    explained: float

    def expected(self, messages: Floats, bytes_per_s: Floats) -> Floats:
        """Points that so much traffic costs, without idle."""
        found: Floats = self.per_message * messages + self.per_byte * bytes_per_s
        return found


def fit_costs(cpu: Floats, capacity: Floats, messages: Floats, bytes_per_s: Floats) -> Costs | None:
    """The costs that fit reports best; None for fewer than three. Arrays have a row a report.

    cpu: percent of the broker. messages, bytes_per_s: in and out together. O(reports).
    """
    if len(cpu) < 3:  # noqa: PLR2004 as many as there are unknowns
        return None
    columns = [capacity, messages, bytes_per_s]
    scales = [float(np.abs(column).max()) or 1.0 for column in columns]
    scaled = [column / scale for column, scale in zip(columns, scales, strict=True)]
    points = cpu * capacity
    best: tuple[float, tuple[float, ...]] = (_sum(points * points), (0.0, 0.0, 0.0))
    for used in product((True, False), repeat=3):
        found = _least_squares(scaled, points, used)
        if found is None or min(found) < 0.0:
            continue
        error = points - sum(part * column for part, column in zip(found, scaled, strict=True))
        residual = _sum(error * error)
        if residual < best[0] - _TINY:
            best = (residual, found)
    idle, per_message, per_byte = (
        part / scale for part, scale in zip(best[1], scales, strict=True)
    )
    around = points - _sum(points) / len(points)
    varied = _sum(around * around)
    return Costs(
        idle=idle,
        per_message=per_message,
        per_byte=per_byte,
        explained=max(0.0, 1.0 - best[0] / varied) if varied > _TINY else 0.0,
    )


def learn(factors: Floats, expected: Floats, measured: float) -> Floats:
    """The factors of one broker's bundles after one of its reports.

    factors: float64[bundles], 1 of a new one. expected: float64[bundles], points by `Costs`.
    measured: points of the broker without idle. Returns new factors; those without load stay.
    """
    power = _sum(expected * expected)
    if power <= _TINY:
        return factors
    error = measured - _sum(factors * expected)
    step = GAIN * error / power
    moved: Floats = np.clip(factors + step * expected, FACTOR_MIN, FACTOR_MAX)
    moved[expected <= 0.0] = factors[expected <= 0.0]
    return moved


def _least_squares(
    columns: list[Floats], wanted: Floats, used: tuple[bool, ...]
) -> tuple[float, ...] | None:
    """By the normal equations of the used columns, 0 for the others; None: they are singular."""
    own = [column for column, is_used in zip(columns, used, strict=True) if is_used]
    rows = [[_sum(a * b) for b in own] + [_sum(a * wanted)] for a in own]
    solved = _solved(rows)
    if solved is None:
        return None
    parts = iter(solved)
    return tuple(next(parts) if is_used else 0.0 for is_used in used)


def _solved(rows: list[list[float]]) -> list[float] | None:
    """Gauss-Jordan elimination with the largest pivot; rows: matrix and right side."""
    size = len(rows)
    for at in range(size):
        pivot = max(range(at, size), key=lambda row: abs(rows[row][at]))
        if abs(rows[pivot][at]) <= _TINY:
            return None
        rows[at], rows[pivot] = rows[pivot], rows[at]
        rows[at] = [value / rows[at][at] for value in rows[at]]
        for other in range(size):
            if other != at:
                factor = rows[other][at]
                rows[other] = [
                    value - factor * own for value, own in zip(rows[other], rows[at], strict=True)
                ]
    return [row[-1] for row in rows]


def _sum(values: Floats) -> float:
    return float(np.cumsum(values)[-1]) if len(values) else 0.0
