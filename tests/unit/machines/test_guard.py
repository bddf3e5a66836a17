"""A guarded step leaves out what raises, and nothing of what that had changed is left."""

from collections.abc import Callable, Mapping, Sequence

import pytest

from lbcore.fault_isolation import Fault, Guard
from lbcore.machine import Step, step_safely


class Adder:
    """A Machine that adds up numbers.

    raises: True if it raises for these numbers, after it has added them.
    """

    def __init__(self, raises: Callable[[Sequence[int]], bool]) -> None:
        self._raises = raises
        self.attempts = 0

    def step(
        self, state: int | None, events: Sequence[int], now_ms: int, guard: Guard | None = None
    ) -> Step[int, int]:
        guard = guard or Guard()
        self.attempts += 1
        total, aside = [state or 0], list[int]()

        def add(items: Sequence[int]) -> None:
            total.extend(items)
            if self._raises(items):
                raise ValueError(f"{now_ms}")

        def put_aside(item: int, fault: Fault) -> str:
            assert fault.type == "ValueError"
            aside.append(item)
            return str(item)

        guard.each("add", events, add, put_aside)
        guard.run("end", lambda: total.append(0))
        assert [fault.item for fault in guard.faults if fault.item] == list(map(str, aside))
        return Step(state=sum(total), effects=aside)

    def pack(self, state: int) -> dict[str, bytes]:
        return {"sum": str(state).encode()}

    def unpack(self, chunks: Mapping[str, bytes]) -> int:
        return int(chunks["sum"])


def stepped(adder: Adder, events: Sequence[int]) -> tuple[int | None, list[int]]:
    step, _ = step_safely(adder, 1000, events, 0, lambda step: step.state)
    return step.state, list(step.effects)


@pytest.mark.parametrize("bad", [[], [0], [7], [3, 4], [0, 1, 2, 3, 4, 5, 6, 7]])
def test_items_that_raise_are_left_out_and_the_others_count(bad: list[int]) -> None:
    adder = Adder(lambda items: any(one in bad for one in items))
    good = sum(one for one in range(8) if one not in bad)
    assert stepped(adder, range(8)) == (1000 + good, bad)
    assert adder.attempts <= 1 + 2 * len(bad)


def test_a_flood_of_items_that_raise_takes_few_attempts() -> None:
    adder = Adder(lambda items: any(one % 2 for one in items))
    assert stepped(adder, range(1000)) == (1000 + sum(range(0, 1000, 2)), [*range(1, 1000, 2)])
    assert adder.attempts == 3


def test_items_that_raise_only_together_are_worked_on_one_by_one() -> None:
    adder = Adder(lambda items: len(items) > 1)
    assert stepped(adder, range(8)) == (1000 + sum(range(8)), [])


def test_a_step_that_cannot_be_encoded_is_refused_as_a_whole() -> None:
    def encode(step: Step[int, int]) -> int:
        if step.state != 1000:
            raise ValueError
        return 0

    step, _ = step_safely(Adder(lambda _: False), 1000, range(3), 0, encode)
    assert (step.state, step.effects) == (1000, [0, 1, 2])


def test_what_is_raised_although_nothing_is_tried_ends_the_job() -> None:
    def encode(_: Step[int, int]) -> int:
        raise ValueError("of the machine")

    with pytest.raises(ValueError, match="of the machine"):
        step_safely(Adder(lambda _: False), 1000, range(3), 0, encode)
