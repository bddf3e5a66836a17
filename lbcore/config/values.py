"""One value of one setting, checked or read from text, and findings of checks.

The type and the range are those of the setting's declaration; `lbcore.validation` checks whether
settings suit each other.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lbcore.config.setting import TYPES, Entry
from lbcore.config.tree import Config

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}(_[0-9]{3}){1,6}")
_QUOTES: Mapping[Any, str] = {str: '"', tuple[str, ...]: "["}
_FLAGS = {"true": True, "false": False}
_MAX_INT64 = 2**63 - 1
_SHOWN_CHARS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Problem with one key: the fault and the remedy."""

    key: str
    detail: str

    def __str__(self) -> str:
        return f"{self.key}: {self.detail}"


class ConfigError(ValueError):
    """Unusable configuration; `problems` has every reason once."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = tuple(
            dict.fromkeys(problems)
        )  # one key of Pulsar's may be that of three settings: each has the same problem
        super().__init__("; ".join(map(str, self.problems)))


def check_value(entry: Entry, value: Any, *, key: str = "") -> Any:
    """Return the value in its setting's type: int to float, list to tuple.

    key: how the error names the setting, its own key by default. Raises ConfigError.
    """
    typed = _typed(entry, value, key or entry.key)
    setting = entry.setting
    if setting.choices and any(item not in setting.choices for item in _items(typed)):
        raise _refusal(key or entry.key, value, f"take {' or '.join(setting.choices)}")
    if setting.reads is not None:
        for text in _items(typed):
            try:
                setting.reads(text)
            except ValueError as error:  # noqa: PERF203 the text that is refused is named
                raise _refusal(key or entry.key, text, str(error)) from None
    if not isinstance(typed, int | float):
        return typed
    if isinstance(typed, int) and not -_MAX_INT64 <= typed <= _MAX_INT64:
        raise _refusal(key or entry.key, value, "write a whole number of at most 64 bits")
    too_low = setting.minimum is not None and typed < setting.minimum
    too_high = setting.maximum is not None and typed > setting.maximum
    if too_low or too_high or not math.isfinite(typed):
        unit = f" {setting.unit}" if setting.unit else ""
        allowed = entry.range or "the finite numbers"
        raise _refusal(key or entry.key, value, f"take a value within {allowed}{unit}")
    return typed


def collect(
    keys: Iterable[str], read: Callable[[str], Any], problems: list[Problem]
) -> dict[str, Any]:
    """Return each key's value; add the problems of those that `read` refuses."""
    values: dict[str, Any] = {}
    for key in keys:
        try:
            values[key] = read(key)
        except ConfigError as error:  # noqa: PERF203 each has its problem
            problems += error.problems
    return values


def as_written(type_: Any, text: str) -> Any:
    """Parse a text that `ballast config show` writes, or a plain one as `from_text`.

    10_000, "a word", ["a", "b"].
    """
    if type_ is int and _GROUPED.fullmatch(text):
        return int(text)
    if type_ in _QUOTES and text.startswith(_QUOTES[type_]):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return from_text(type_, text)


def from_text(type_: Any, text: str) -> Any:
    """Return the value of a text (true, 10, 0.5, a word, a list with commas).

    A text that is no value of the type is returned unchanged; `check_value` refuses it then.
    """
    if type_ is bool:
        return _FLAGS.get(text.lower(), text)
    if type_ is int:
        return int(text) if _INTEGER.fullmatch(text) else text
    if type_ is float:
        try:
            return float(text)
        except ValueError:
            return text
    if type_ is str:
        return text
    return tuple(item.strip() for item in text.split(",") if item.strip())


def _typed(entry: Entry, value: Any, key: str) -> Any:
    if entry.type is float and type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise _refusal(key, value, "write a number that a double can hold") from None
    if entry.type == tuple[str, ...] and isinstance(value, list | tuple):
        if all(type(item) is str for item in value):
            return tuple(value)
    elif type(value) is entry.type:
        return value
    raise _refusal(key, value, f"write {TYPES[entry.type]}")


def _items(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _refusal(key: str, value: Any, advice: str) -> ConfigError:
    return ConfigError(
        (Problem(key=key, detail=f"{shown_value(value)} can't be used here: {advice}"),)
    )


def shown_value(value: Any) -> str:
    """Return any value as text for a message: shortened, in characters that UTF-8 has."""
    if isinstance(value, int) and not -_MAX_INT64 <= value <= _MAX_INT64:
        return f"a whole number of {value.bit_length()} bits"
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deeply, or a number of too many digits
        text = f"a {type(value).__name__} that is too large to be shown"
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFinding:
    """Fault in the settings: an error prevents a start, a warning does not.

    `ballast config check` shows them. cluster: "" = all.
    """

    problem: Problem
    is_error: bool
    cluster: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageGaps:
    """Largest known differences between two brokers of the real cluster.

    message_rate_per_s: in + out. throughput_bytes_per_s: in + out. usage_points: percentage points.
    """

    message_rate_per_s: float | None = None
    throughput_bytes_per_s: float | None = None
    usage_points: float | None = None


StrategyCheck = Callable[[Config, UsageGaps], Iterator[ConfigFinding]]
"""A strategy's own check, made when the configuration names it."""


def error(key: str, detail: str) -> ConfigFinding:
    """Return a finding that prevents a start."""
    return ConfigFinding(problem=Problem(key=key, detail=detail), is_error=True)


def warning(key: str, detail: str) -> ConfigFinding:
    """Return a finding that names what can't work, but does not prevent a start."""
    return ConfigFinding(problem=Problem(key=key, detail=detail), is_error=False)
