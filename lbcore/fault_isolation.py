"""Fault isolation: an exception in one item or phase does not fail the batch.

A Machine's step is pure: one that raised is repeated from the same state without the item that
raised. Nothing half done is left, and a repeated batch leaves out the same items. They go to the
dead-letter table with the reason, and are counted. A step in which nothing raises runs once.
"""

import re
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from hashlib import blake2b
from typing import Any, NoReturn, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

Part = tuple[int, ...]
"""Number of a call of the guard, of an item in it, and of a fault handler of that item."""

ALARM = "faults"
"""The alarm that is on while an item or a phase is left out."""

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_ERROR_CHARS = 500
_TRACE_CHARS = 8_000

_ATTEMPTS_MAX = 64
"""After so many attempts nothing of the batch is tried any more."""

_TOGETHER = -1
"""Item number for several items of a call: they raised together, each alone may not."""

_FEW = 8
"""More items that raise in one phase are left out at once, though some may have raised only because
of what the first had changed.
"""


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
    """Return the description of an error; its place is the innermost one in lbcore."""
    frames = traceback.extract_tb(error.__traceback__)
    files = [re.split(r"[/\\]", frame.filename) for frame in frames]
    ours = [at for at, parts in enumerate(files) if "lbcore" in parts] or [*range(len(frames))]
    place = f"{files[ours[-1]][-1]}:{frames[ours[-1]].lineno}" if ours else "an unknown place"
    kind = type(error).__name__
    cause = f"{phase}\n{kind}\n{place}".encode()
    return Fault(
        number=blake2b(cause, digest_size=4).hexdigest(),
        phase=phase,
        item=item,
        type=kind,
        place=place,
        error=_ADDRESS.sub("", str(error))[:_ERROR_CHARS],
        trace="".join(traceback.format_exception(error))[-_TRACE_CHARS:],
    )


def summarize_faults(faults: Sequence[Fault]) -> list[dict[str, Any]]:
    """Return the log's lines: the first fault of each cause, with their number."""
    counts = Counter(fault.number for fault in faults)
    first = {fault.number: fault for fault in reversed(faults)}
    return [{**asdict(first[number]), "count": counts[number]} for number in sorted(first)]


@dataclass(slots=True)
class Guard:
    """One attempt at a step: runs its parts, without those that raised before.

    left_out: part → what it raised. searched: the call whose items are worked on one by one, to
    find those that raise; 0 = none. is_checked: `check` follows each part. check: set by the step;
    raises when its result can't be kept. refused: nothing is tried, and everything is left out for
    this reason. faults: what was left out of this attempt.
    """

    left_out: dict[Part, Fault] = field(default_factory=dict)
    searched: int = 0
    is_checked: bool = False
    refused: Exception | None = None
    attempts: int = 1
    check: Callable[[], None] = field(default=lambda: None)
    faults: list[Fault] = field(default_factory=list)
    _calls: int = 0
    _raised: dict[Part, Fault] = field(default_factory=dict)

    def run(self, phase: str, do: Callable[[], None]) -> None:
        """Do one phase as a whole, or leave it out."""
        self.each(phase, [None], lambda _: do())

    def each(
        self,
        phase: str,
        items: Sequence[Item],
        do: Callable[[Sequence[Item]], None],
        *fault_handlers: Callable[[Item, Fault], str],
    ) -> None:
        """Run a phase over independent items, without those that are left out.

        do: works on those that it is given, in order. fault_handlers: record that an item was left
        out and return its name; the first that doesn't raise counts.
        """
        self._calls += 1
        call = self._calls
        omitted = [at for at in range(len(items)) if self.refused or (call, at) in self.left_out]
        tried = sorted(set(range(len(items))).difference(omitted))
        together = self.left_out.get((call, _TOGETHER))
        if together is not None and self.searched == call:
            self._search(phase, {(call, at): items[at] for at in tried}, do, together)
        elif together is not None:
            self.faults.append(together)
            for at in tried:
                self._attempt(phase, (call, at), partial(do, [items[at]]))
        elif tried:
            at = tried[0] if len(tried) == 1 else _TOGETHER
            self._attempt(phase, (call, at), partial(do, [items[at] for at in tried]))
        for at in omitted:
            fault = fault_of(self.refused, phase) if self.refused else self.left_out[call, at]
            untried = [n for n in range(len(fault_handlers)) if (call, at, n) not in self.left_out]
            name = ""
            if untried:
                handler = partial(fault_handlers[untried[0]], items[at], fault)
                name = self._attempt(phase, (call, at, untried[0]), handler)
            self.faults.append(replace(fault, item=name))

    def next_attempt(self, error: Exception) -> "Guard":
        """Return the guard of the repeated step.

        Raises the error when nothing is left to try.
        """
        # no part raised: the error is from packing the step, or from its last check
        is_refused = self.refused is not None
        if self.attempts == 2 * _ATTEMPTS_MAX or (is_refused and not self._raised):
            raise error
        again = Guard(attempts=self.attempts + 1, is_checked=self.is_checked, refused=self.refused)
        if self.attempts == _ATTEMPTS_MAX or (self.is_checked and not self._raised):
            again.refused = error
        elif not self._raised:
            again.is_checked, again.left_out = True, self.left_out
        else:
            call, *_ = min(self._raised)
            together = (call, _TOGETHER)
            again.searched = call if together in self._raised and self.searched != call else 0
            # what was left out after this call may have another number in the repeated step
            kept = {part: of for part, of in self.left_out.items() if part[0] <= call}
            kept.pop(together, None)
            again.left_out = kept | self._raised
        return again

    def _attempt(self, phase: str, part: Part, do: Callable[[], Result]) -> Result:
        try:
            result = do()
            if self.is_checked:
                self.check()
        except MemoryError:
            raise  # the machine's state, not the item's: another attempt may do
        except Exception as error:
            if not self._raised:  # else a part within this one is known to be the cause
                self._raised = {part: fault_of(error, phase)}
            raise
        return result

    def _search(
        self,
        phase: str,
        items: Mapping[Part, Item],
        do: Callable[[Sequence[Item]], None],
        together: Fault,
    ) -> NoReturn:
        """Find the items that raise, and end the attempt, which they may have spoilt."""
        found: dict[Part, Fault] = {}
        for part, item in items.items():
            try:
                self._attempt(phase, part, partial(do, [item]))
            except MemoryError:  # noqa: PERF203 one item's error is no other's
                raise
            except Exception as error:  # noqa: BLE001 (of this item)
                found[part] = fault_of(error, phase)
                if self.is_checked:
                    break  # the check refuses what follows, too
        first = dict([*found.items()][:1]) or {(min(items)[0], _TOGETHER): together}
        self._raised = found if len(found) > _FEW else first
        raise AssertionError(together.sentence)
