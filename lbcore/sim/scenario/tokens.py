"""The words of a scenario: durations, rates, ranges, and their errors.

`parse` knows which words stand where. Grammar: docs/simulator.md.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
Readers: TypeAlias = Mapping[str, Callable[[str], object]]

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_BROKERS = re.compile(r"b(\d+)(?:-b(\d+))?")
_PERCENT = 100.0

BROKERS_MAX = 10_000
DURATION_FORM = "a time such as 500ms, 30s, 5m, 2h or 1d"


class ScenarioError(ValueError):
    """Unreadable scenario.

    line: from 1; the text has what, why and what to do next.
    """

    def __init__(self, line: int, what: str, expected: str, next_step: str) -> None:
        super().__init__(f"line {line}: {what}; expected {expected}; {next_step}")
        self.line = line
        self.what = what
        self.expected = expected
        self.next_step = next_step


class ScenarioTokenError(ValueError):
    """A word that isn't what stands there. expected: what does."""

    def __init__(self, word: str, expected: str) -> None:
        super().__init__(f"{word!r} is not {expected}")
        self.word = word
        self.expected = expected


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """An amount of load, messages in + out.

    unit: % of what all brokers of the start can carry together; pt = 1 % of a broker of capacity 1;
    msg/s; recorded = unchanged. is_each: for each bundle, not for all together.
    """

    value: float
    unit: str
    is_each: bool = False


def format_ms(value_ms: int) -> str:
    """The shortest way to write a time: 90000 is 90s, 120000 is 2m."""
    for unit in ("d", "h", "m", "s"):
        if value_ms and value_ms % _UNITS_MS[unit] == 0:
            return f"{value_ms // _UNITS_MS[unit]}{unit}"
    return f"{value_ms}ms" if value_ms else "0s"


def _reader(
    pattern: str,
    value_of: Callable[[re.Match[str]], T],
    expected: str,
    is_good: Callable[[T], bool] = lambda _: True,
) -> Callable[[str], T]:
    """Return a reader of words of a pattern; of their values only the good ones."""
    form = re.compile(pattern)

    def read(word: str) -> T:
        found = form.fullmatch(word)
        value = None if found is None else value_of(found)
        if value is None or not is_good(value):
            raise ScenarioTokenError(word, expected)
        return value

    return read


duration_ms = _reader(
    r"(\d+(?:\.\d+)?)(ms|s|m|h|d)",
    lambda found: round(float(found[1]) * _UNITS_MS[found[2]]),
    DURATION_FORM,
)
number = _reader(r"-?\d+(?:\.\d+)?", lambda found: float(found[0]), "a number such as 3 or 0.5")
count = _reader(r"\d+", lambda found: int(found[0]), "a whole number from 1", lambda one: one > 0)
whole = _reader(r"\d+", lambda found: int(found[0]), "a whole number from 0")
rate = _reader(
    r"(\d+(?:\.\d+)?)(%|pt|msg/s)",
    lambda found: Rate(value=float(found[1]), unit=found[2]),
    "a load such as 45% (of the cluster), 30pt or 12000msg/s",
)
span = _reader(
    r"(\d+)(?:-(\d+))?",
    lambda found: (int(found[1]), int(found[2] or found[1])),
    "numbers of bundles such as 0-49, or 7",
    lambda ends: ends[0] <= ends[1],
)


def share(word: str) -> float:
    """A part of one: 5% is 0.05, and so is 0.05."""
    text = word.removesuffix("%")
    value = number(text) / (_PERCENT if text != word else 1.0)
    if not 0.0 <= value <= 1.0:
        raise ScenarioTokenError(word, "a part between 0 and 1, or 0% and 100%")
    return value


def _where(
    read: Callable[[str], T], is_good: Callable[[T], bool], expected: str
) -> Callable[[str], T]:
    """Return a reader of the values that meet a condition."""

    def read_good(word: str) -> T:
        value = read(word)
        if not is_good(value):
            raise ScenarioTokenError(word, expected)
        return value

    return read_good


broker_count = _where(
    count, lambda value: value <= BROKERS_MAX, f"a number of brokers, {BROKERS_MAX} at most"
)
positive_share = _where(share, lambda value: value > 0.0, "a part above 0")
positive_ms = _where(duration_ms, lambda value: value > 0, "a time above 0s")
capacity = _where(number, lambda value: value > 0.0, "a capacity above 0")
"""Capacity of a broker; 1 = that of a usual one."""


def points(word: str) -> float:
    """Percentage points: 3pt, 3% or 3."""
    return number(word.removesuffix("pt").removesuffix("%"))


def broker_names(word: str) -> tuple[str, ...]:
    """Return the names of b1, b3-b5 or b1,b3-b5; `all` stands for itself.

    In the order written.
    """
    if word == "all":
        return ("all",)
    names: list[str] = []
    for part in word.split(","):
        found = _BROKERS.fullmatch(part)
        if found is None:
            raise ScenarioTokenError(word, "brokers such as b1, b1-b4, b1,b7-b9, or all")
        first, last = int(found[1]), int(found[2] or found[1])
        if len(names) + last - first >= BROKERS_MAX:
            raise ScenarioTokenError(word, f"{BROKERS_MAX} brokers at most")
        names += [f"b{at}" for at in range(first, last + 1)]
    return tuple(names)


def one_of(*choices: str) -> Callable[[str], str]:
    """A reader of one of these words."""

    def read(word: str) -> str:
        if word not in choices:
            raise ScenarioTokenError(word, f"one of {', '.join(choices)}{_near(word, choices)}")
        return word

    return read


def _near(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {near[0]}?)" if near else ""


class Line:
    """One line, read word by word; an error is a ScenarioError of this line."""

    def __init__(self, number_of_line: int, content: str) -> None:
        self.number = number_of_line
        self.content = content
        self._words = content.split()

    def peek(self) -> str:
        """The next word, "" at the end."""
        return self._words[0] if self._words else ""

    def rest(self) -> list[str]:
        """All words that are left; none is afterwards."""
        words, self._words = self._words, []
        return words

    def take(self, read: Callable[[str], T], expected: str) -> T:
        """Return the next word's value.

        expected: what stands there, for the error when nothing does.
        """
        if not self._words:
            raise self.error("the line ends too early", expected)
        return self.value(read, self._words.pop(0))

    def value(self, read: Callable[[str], T], word: str, of: str = "") -> T:
        """A word's value. of: the option that it belongs to."""
        try:
            return read(word)
        except ScenarioTokenError as error:
            where = f"{of}={error.word}" if of else error.word
            raise self.error(f"{where!r} can't stand here", error.expected) from None

    def take_word(self, word: str) -> bool:
        """Take the next word if it is this one; returns True if it was."""
        if self.peek() != word:
            return False
        self._words.pop(0)
        return True

    def options(self, readers: Readers) -> dict[str, Any]:
        """Return the values of name=value, and of the for T, from T, to T that follow."""
        found: dict[str, Any] = {}
        while self._words:
            word = self._words.pop(0)
            name, equals, value = word.partition("=")
            if not equals and name in ("for", "from", "to", "every") and self._words:
                value = self._words.pop(0)
            elif not equals and readers.get(name) is str:
                value = name
            elif not equals:
                raise self._unknown(word, readers)
            if name not in readers:
                raise self._unknown(name, readers)
            found[name] = self.value(readers[name], value, of=name)
        return found

    def require_order(self, window: Mapping[str, object]) -> None:
        """Raise ScenarioError if `to` is not after `from`."""
        begin, end = window.get("from", 0), window.get("to")
        if isinstance(begin, int) and isinstance(end, int) and end <= begin:
            what = f"the time from {format_ms(begin)} to {format_ms(end)} is empty"
            raise self.error(what, "a later end than beginning")

    def _unknown(self, word: str, readers: Iterable[str]) -> ScenarioError:
        known = ", ".join(f"{name}=..." for name in readers) or "the end of the line"
        return self.error(f"{word!r} is not known here{_near(word, readers)}", known)

    def error(self, what: str, expected: str, next_step: str = "") -> ScenarioError:
        """An error of this line."""
        advice = next_step or "see docs/simulator.md, or put # before a line of prose"
        return ScenarioError(self.number, what, expected, advice)
