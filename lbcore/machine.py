"""The one pattern of every keyed stateful operator: a pure Machine that a driver runs.

Decides nothing itself. A Machine computes effects and its next state from its state, the events of
one micro-batch and that batch's time; Spark, the simulator and the tests are drivers of the same
object. After Dicer's state machines and bytewax's keyed logic.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Generic, Protocol, TypeVar

S = TypeVar("S")
E = TypeVar("E", contravariant=True)
F = TypeVar("F", covariant=True)
Encoded = TypeVar("Encoded")


class IsolationLevel(Enum):
    """Guard of a step against exceptions in it, from the cheapest on.

    NONE: whatever raises ends the step. ITEMS: the item is left out, see `fault_isolation`.
    PACKED: so is what can't be packed. ALL: nothing is tried, everything is put aside.
    """

    NONE = "none"
    ITEMS = "items"
    PACKED = "packed"
    ALL = "all"


class UnknownStateSchemaError(Exception):
    """A state was packed under a schema that this code can't read."""

    @classmethod
    def of(cls, machine: str, found: object, known: int) -> "UnknownStateSchemaError":
        """The error with what happened, why, and what to do next."""
        return cls(
            f"the state of {machine} has schema {found!r}, this code reads up to {known}: it was "
            "written by another version; run that version, or set the checkpoint aside with "
            "`ballast state rebuild`, and the next start rebuilds the state from the tables"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Generic[S, F]):
    """Next state (None forgets the key), effects and wake-up time of a step."""

    state: S | None
    effects: Sequence[F]
    wake_at_ms: int | None = None


class Machine(Protocol[S, E, F]):
    """A keyed operator without I/O, clock or randomness."""

    def step(self, state: S | None, events: Sequence[E], now_ms: int) -> Step[S, F]:
        """Apply the events of one micro-batch; equal arguments always give equal results."""
        ...

    def step_isolated(
        self,
        state: S | None,
        events: Sequence[E],
        now_ms: int,
        level: IsolationLevel,
        error: Exception,
    ) -> Step[S, F]:
        """The same step, without what raises; level: any but NONE. error: why it is taken."""
        ...

    def pack(self, state: S) -> Mapping[str, bytes]:
        """The state as named chunks of bytes, the same bytes for equal states."""
        ...

    def unpack(self, chunks: Mapping[str, bytes]) -> S:
        """The inverse of `pack`; raises UnknownStateSchemaError for a schema it can't read."""
        ...


def step_safely(
    machine: Machine[S, E, F],
    state: S | None,
    events: Sequence[E],
    now_ms: int,
    encode: Callable[[Step[S, F]], Encoded],
) -> tuple[Step[S, F], Encoded]:
    """A step that no item of the batch can end, and what `encode` makes of it.

    encode: packs state and effects; what it raises is an item's fault
    too. First as it is, at no extra price; then with ever more care. Raises what even the last
    attempt raised, and MemoryError at once: both are no item's fault.
    """
    why: Exception | None = None
    for level in IsolationLevel:
        if why is None:
            tried = _tried(lambda: machine.step(state, events, now_ms), encode)
        else:
            tried = _tried(
                partial(machine.step_isolated, state, events, now_ms, level, why), encode
            )
        if not isinstance(tried, Exception):
            return tried
        why = tried
    raise why or AssertionError("level must have a member, got none")


def _tried(
    take: Callable[[], Step[S, F]], encode: Callable[[Step[S, F]], Encoded]
) -> tuple[Step[S, F], Encoded] | Exception:
    try:
        step = take()
        return step, encode(step)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 whatever it is, the batch goes on without it
        return error
