"""The pattern of every keyed stateful operator: a pure Machine run by a driver.

A Machine computes effects and its next state from its state, the events of one micro-batch and that
batch's time. Spark, the simulator and the tests are drivers of the same object. After Dicer's state
machines and bytewax's keyed logic.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from lbcore.fault_isolation import Guard

S = TypeVar("S")
E = TypeVar("E", contravariant=True)
F = TypeVar("F", covariant=True)
Encoded = TypeVar("Encoded")


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

    def step(
        self, state: S | None, events: Sequence[E], now_ms: int, guard: Guard | None = None
    ) -> Step[S, F]:
        """Apply the events of one micro-batch; equal arguments always give equal results.

        guard: leaves parts of the batch out; None = nothing.
        """
        ...

    def pack(self, state: S) -> Mapping[str, bytes]:
        """The state as named chunks of bytes, the same bytes for equal states."""
        ...

    def unpack(self, chunks: Mapping[str, bytes]) -> S:
        """Inverse of `pack`. Raises UnknownStateSchemaError for an unknown schema."""
        ...


def step_safely(
    machine: Machine[S, E, F],
    state: S | None,
    events: Sequence[E],
    now_ms: int,
    encode: Callable[[Step[S, F]], Encoded],
) -> tuple[Step[S, F], Encoded]:
    """A step that no item of the batch can end, and what `encode` makes of it.

    encode: packs state and effects; what it raises is an item's fault, too. Raises MemoryError at
    once, and what is raised although nothing of the batch is tried: both are no item's fault.
    """
    guard = Guard()
    while True:
        try:
            step = machine.step(state, events, now_ms, guard)
            return step, encode(step)
        except MemoryError:  # noqa: PERF203 (each turn leaves something out)
            raise
        except Exception as error:  # noqa: BLE001 the batch goes on without what raised it
            guard = guard.next_attempt(error)
