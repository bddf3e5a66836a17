"""Values with numbers: equal values have equal numbers, so that a world is a few integers."""

from collections.abc import Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Interned(Generic[Value]):
    """Numbers values by a key of theirs; `self[number]` is the value that had the key first."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._values: list[Value] = []

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, number: int) -> Value:
        return self._values[number]

    def add(self, key: Hashable, value: Value) -> int:
        """The value's number."""
        number = self._numbers.setdefault(key, len(self._values))
        if number == len(self._values):
            self._values.append(value)
        return number


class Tuples(Interned[tuple[int, ...]]):
    """Numbered tuples of numbers; 0 is the empty one."""

    def __init__(self) -> None:
        super().__init__()
        self.of(())

    def of(self, numbers: tuple[int, ...]) -> int:
        """The tuple's number."""
        return self.add(numbers, numbers)
