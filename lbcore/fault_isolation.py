"""Putting aside: one item or phase that raises ends neither its batch nor the job.

Decides what is left out of a batch that raised as a whole, and how it is told. A Machine's step is
first run unguarded, which costs nothing; only when that raised it is run again, from the same
state, with a savepoint before each attempt. Of the items of a phase those that raise are found by
halves; then the phase runs once more, from its beginning, over the others together, so that they
come to what they would have come to without them. Which items those are follows from the state and
the batch alone, so that a repeated batch leaves out the same. Used by `balancer` and `scorer`. The
search by halves is Dorfman's group testing (Ann. Math. Stat. 14, 1943).
"""

import re
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Protocol, TypeVar

from lbcore.packing import fields_of

Item = TypeVar("Item")

ALARM = "faults"
"""The alarm that is on while something is put aside."""

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_ERROR_CHARS = 500
_TRACE_CHARS = 8_000
_NUMBER_SIZE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An error that was met while one item, or a phase as a whole, was worked on.

    number: names the cause, the same for equal causes: of phase, type of the error and place in
    the code, so that a repeated batch gives the same. item: what was worked on, "" for the phase.
    error, trace: for the log alone; they may differ between attempts at the same batch.
    """

    number: str
    phase: str
    item: str
    type: str
    place: str
    error: str
    trace: str

    @property
    def sentence(self) -> str:
        """Reason for the sender; the same whenever the batch is repeated."""
        return (
            f"internal error {self.number}: {self.type} at {self.place} in {self.phase}; nothing of"
            " it was done, all else went on; the job's log explains the number (event fault):"
            " report it with that line, and don't send the same again"
        )


def fault_of(error: Exception, phase: str, item: str = "") -> Fault:
    """Description of an error."""
    frames = traceback.extract_tb(error.__traceback__)
    files = [re.split(r"[/\\]", frame.filename) for frame in frames]
    ours = [at for at, parts in enumerate(files) if "lbcore" in parts] or [*range(len(frames))]
    place = f"{files[ours[-1]][-1]}:{frames[ours[-1]].lineno}" if ours else "an unknown place"
    kind = type(error).__name__
    cause = f"{phase}\n{kind}\n{place}".encode()
    lines = "".join(traceback.format_exception(error))
    return Fault(
        number=blake2b(cause, digest_size=_NUMBER_SIZE).hexdigest(),
        phase=phase,
        item=item,
        type=kind,
        place=place,
        error=_ADDRESS.sub("", str(error))[:_ERROR_CHARS],
        trace=lines[-_TRACE_CHARS:],
    )


def summarize_faults(faults: Sequence[Fault]) -> list[dict[str, Any]]:
    """Return the log's lines: the first fault of each cause, with their number."""
    counts = Counter(fault.number for fault in faults)
    first = {fault.number: fault for fault in reversed(faults)}
    return [{**fields_of(first[number]), "count": counts[number]} for number in sorted(first)]


class OpenedState(Protocol):
    """A state opened for change, which can be put back to how it was at a savepoint."""

    def save(self) -> Mapping[str, Any]:
        """Return the present state."""
        ...

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Make it what it was; `saved` can be used again."""
        ...


class Guard(Protocol):
    """Runs the parts of a step, each with what becomes of it when it raises.

    refused: why nothing is tried at all; None = it is.
    """

    faults: list[Fault]
    refused: Exception | None

    def first_of(self, *ways: Callable[[], None]) -> None:
        """The first of these ways that can be gone."""
        ...

    def run(self, phase: str, do: Callable[[], None]) -> None:
        """One phase as a whole."""
        ...

    def each(
        self,
        phase: str,
        items: Sequence[Item],
        do: Callable[[Sequence[Item]], None],
        aside: Callable[[Item, Fault], str],
    ) -> None:
        """A phase over items that don't need each other.

        do: works on some of them, in their order. aside: notes that one was left out, and says its
        name.
        """
        ...


@dataclass(slots=True)
class Unguarded:
    """Puts nothing aside: what raises ends the step. Costs nothing."""

    faults: list[Fault] = field(default_factory=list)
    refused: Exception | None = None

    def first_of(self, *ways: Callable[[], None]) -> None:
        """The first one."""
        ways[0]()

    def run(self, phase: str, do: Callable[[], None]) -> None:
        """Do it."""
        del phase
        do()

    def each(
        self,
        phase: str,
        items: Sequence[Item],
        do: Callable[[Sequence[Item]], None],
        aside: Callable[[Item, Fault], str],
    ) -> None:
        """Work on all of them."""
        del phase, aside
        do(items)


@dataclass(slots=True)
class FaultIsolator:
    """Puts aside what raises, or leaves behind what `check` refuses.

    check: raises when what was done since the savepoint may not stay. refused: with it nothing is
    tried at all, and everything is put aside for this reason: when not even guarded parts come to
    a state that can be kept.
    """

    opened: OpenedState
    check: Callable[[Mapping[str, Any]], None]
    refused: Exception | None = None
    faults: list[Fault] = field(default_factory=list)

    def first_of(self, *ways: Callable[[], None]) -> None:
        """The first one that neither raises nor is refused; none, when all do."""
        for way in ways:
            if self._attempt(way, is_told=True) is None:
                return

    def run(self, phase: str, do: Callable[[], None]) -> None:
        """Do it; undone as a whole when it raises."""
        error = self._attempt(do)
        if error is not None:
            self.faults.append(fault_of(error, phase))

    def each(
        self,
        phase: str,
        items: Sequence[Item],
        do: Callable[[Sequence[Item]], None],
        aside: Callable[[Item, Fault], str],
    ) -> None:
        """Work on all that don't raise; the others are undone and put aside.

        O((1 + k log n) attempts) for k of n items that raise.
        """
        start = self.opened.save()
        found = self._search(items, 0, do)
        if not found:
            return
        left = [item for at, item in enumerate(items) if at not in found]
        self.opened.restore(start)
        error = self._attempt(lambda: do(left)) if left else None
        if error is not None:  # only together they raise: then as far as they came one by one
            self.faults.append(fault_of(error, phase))
            found |= self._search(left, 0, do, [i for i in range(len(items)) if i not in found])
        for at in sorted(found):
            self._put_aside(items[at], fault_of(found[at], phase), aside)

    def _put_aside(self, item: Item, fault: Fault, aside: Callable[[Item, Fault], str]) -> None:
        names: list[str] = []
        error = self._attempt(lambda: names.append(aside(item, fault)), is_told=True)
        named = names[-1] if names and error is None else ""
        self.faults.append(replace(fault, item=named))

    def _search(
        self,
        items: Sequence[Item],
        first: int,
        do: Callable[[Sequence[Item]], None],
        numbers: Sequence[int] = (),
    ) -> dict[int, Exception]:
        """The numbers of the items that raise, and what; all others have been worked on."""
        if not items:
            return {}
        error = self._attempt(lambda: do(items))
        if error is None:
            return {}
        if len(items) == 1:
            return {numbers[first] if numbers else first: error}
        half = len(items) // 2
        found = self._search(items[:half], first, do, numbers)
        return found | self._search(items[half:], first + half, do, numbers)

    def _attempt(self, do: Callable[[], None], *, is_told: bool = False) -> Exception | None:
        """Do it and check it; undone, with what was raised, when it may not stay."""
        if self.refused is not None and not is_told:
            return self.refused
        saved = self.opened.save()
        try:
            do()
            self.check(saved)
        except MemoryError:
            raise  # the machine's state, not the item's: another attempt may do
        except Exception as error:  # noqa: BLE001 whatever it is, it is this item's alone
            self.opened.restore(saved)
            return error
        return None
