"""Cost of messages and bytes: the CPU of brokers explained by their traffic.

Learnt from brokers' reports, for `plan.shed.ballast`. Deterministic to the bit: sums are taken in
order, and no library for linear algebra is called.
"""

from dataclasses import dataclass
from itertools import combinations_with_replacement, product

import numpy as np

from lbcore.signals.averages import Floats

RIDGE = 1e-9
MESSAGES, BYTES = 1e4, 1e7
"""Per second: units that give both columns numbers of about the same size."""
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
        return self.per_message * messages + self.per_byte * bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Evidence from reports: the ten sums of products that least squares need.

    reports: number that count, each older one a little less. products: of (capacity, messages,
    bytes, points), row by row, the upper triangle, messages and bytes in MESSAGES and BYTES.
    points: sum.
    """

    reports: float = 0.0
    points: float = 0.0
    products: tuple[float, ...] = (0.0,) * 10


NO_EVIDENCE = Evidence()


def with_reports(before: Evidence, reports: Floats, keep: float = 1.0) -> Evidence:
    """The evidence with more reports. O(reports).

    reports: float64[k, 4], a row each: percent of CPU, capacity, msg/s and bytes/s, in and out
    together. keep: what is left of the weight of what was known before, 0 to 1.
    """
    cpu, capacity, messages, volume = reports.T
    columns = (capacity, messages / MESSAGES, volume / BYTES, cpu * capacity)
    pairs = combinations_with_replacement(columns, 2)
    return Evidence(
        reports=before.reports * keep + len(reports),
        points=before.points * keep + _sum(columns[3]),
        products=tuple(
            old * keep + _sum(a * b) for old, (a, b) in zip(before.products, pairs, strict=True)
        ),
    )


def fit_costs(evidence: Evidence) -> Costs | None:
    """The costs that fit the reports best; None for fewer than three. O(1).

    Least squares over all reports, cpu × capacity = idle × capacity + a × messages + b × bytes,
    with no negative part: of the eight ways to leave parts out the one with the least residual
    whose parts are all above 0. That is the solution of non-negative least squares, as its optimum
    is such a way.

    A little is added to each column's own product (RIDGE of it), so that columns which always go
    together share what they explain instead of being told apart by the last bit.
    """
    if evidence.reports < 3:  # noqa: PLR2004 as many as there are unknowns
        return None
    # products of columns: capacity, messages, bytes, and points
    cc, cm, cb, cp, mm, mb, mp, bb, bp, power = evidence.products
    wanted, ridge = [cp, mp, bp], 1.0 + RIDGE
    matrix = [[cc * ridge, cm, cb], [cm, mm * ridge, mb], [cb, mb, bb * ridge]]
    best: tuple[float, tuple[float, ...]] = (power, (0.0, 0.0, 0.0))
    for used in product((True, False), repeat=3):
        found = _least_squares(matrix, wanted, used)
        if found is None or min(found) < 0.0:
            continue
        explains = sum(part * value for part, value in zip(found, wanted, strict=True))
        if power - explains < best[0] - _TINY * power:
            best = (power - explains, found)
    idle, per_message, per_byte = best[1]
    varied = power - evidence.points * evidence.points / evidence.reports
    return Costs(
        idle=idle,
        per_message=per_message / MESSAGES,
        per_byte=per_byte / BYTES,
        explained=min(1.0, max(0.0, 1.0 - best[0] / varied)) if varied > _TINY * power else 0.0,
    )


def _least_squares(
    matrix: list[list[float]], wanted: list[float], used: tuple[bool, ...]
) -> tuple[float, ...] | None:
    """Solve the normal equations of the used columns; None if they are singular.

    The others are 0.
    """
    kept = [at for at in range(3) if used[at] and matrix[at][at] > 0.0]
    solved = _solved([[matrix[a][b] for b in kept] + [wanted[a]] for a in kept])
    if solved is None:
        return None
    parts = dict(zip(kept, solved, strict=True))
    return tuple(parts.get(at, 0.0) for at in range(3))


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
