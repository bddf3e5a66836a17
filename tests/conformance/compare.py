"""How an answer is compared with the expected one: exactly, and where it first differs.

Numbers compare as doubles: 1 equals 1.0, NaN equals NaN, also when the file has it as Java's text.
Only averages of several brokers' EMAs, which Pulsar sums in the order of a concurrent map, may
differ by 1e-12 relative.
"""

import math
from typing import Any

AVERAGES = frozenset({"loadAvg", "loadStd"})
RELATIVE_TOLERANCE = 1e-12
NOT_FINITE = {text: float(text) for text in ("NaN", "Infinity", "-Infinity")}


def first_difference(expected: Any, answer: Any, path: str = "") -> str | None:
    """Where `answer` first differs from `expected`, in words; None when they are equal."""
    if isinstance(expected, dict) and isinstance(answer, dict):
        return _mapping_difference(expected, answer, path)
    if isinstance(expected, list) and isinstance(answer, list | tuple):
        return _sequence_difference(expected, answer, path)
    is_average = path.rsplit(".", 1)[-1] in AVERAGES
    if _is_same(expected, answer, is_average=is_average):
        return None
    return f"{path or 'answer'}: expected {expected!r}, got {answer!r}"


def _mapping_difference(expected: Any, answer: Any, path: str) -> str | None:
    for key, value in expected.items():
        where = f"{path}.{key}" if path else str(key)
        if key not in answer:
            return f"{where}: expected {value!r}, got nothing"
        difference = first_difference(value, answer[key], where)
        if difference is not None:
            return difference
    extra = [key for key in answer if key not in expected]
    if extra:
        where = f"{path}.{extra[0]}" if path else str(extra[0])
        return f"{where}: expected nothing, got {answer[extra[0]]!r}"
    return None


def _sequence_difference(expected: Any, answer: Any, path: str) -> str | None:
    for at, (left, right) in enumerate(zip(expected, answer, strict=False)):
        difference = first_difference(left, right, f"{path}[{at}]")
        if difference is not None:
            return difference
    if len(expected) != len(answer):
        return f"{path}: expected {len(expected)} entries, got {len(answer)}"
    return None


def _is_same(expected: Any, answer: Any, *, is_average: bool) -> bool:
    if isinstance(expected, str) and _is_number(answer):
        expected = NOT_FINITE.get(expected, expected)
    if not (_is_number(expected) and _is_number(answer)):
        return type(expected) is type(answer) and bool(expected == answer)
    if math.isnan(expected) or math.isnan(answer):
        return math.isnan(expected) and math.isnan(answer)
    if is_average:
        return math.isclose(expected, answer, rel_tol=RELATIVE_TOLERANCE)
    return bool(expected == answer)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
