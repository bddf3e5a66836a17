"""The one pattern of every keyed stateful operator: a pure Machine that a driver runs.

Decides nothing itself. A Machine computes effects and its next state from its state, the events of
one micro-batch and that batch's time; Spark, the simulator and the tests are drivers of the same
object. Source: ours, after Dicer's state machines and bytewax's keyed logic.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

S = TypeVar("S")
E = TypeVar("E", contravariant=True)
F = TypeVar("F", covariant=True)


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
    """What one step answers: the next state (None forgets the key), effects, and a wake-up time."""

    state: S | None
    effects: Sequence[F]
    wake_at_ms: int | None = None


class Machine(Protocol[S, E, F]):
    """A keyed operator without I/O, clock or randomness."""

    def step(self, state: S | None, events: Sequence[E], now_ms: int) -> Step[S, F]:
        """Apply the events of one micro-batch; equal arguments always give equal results."""
        ...

    def pack(self, state: S) -> Mapping[str, bytes]:
        """The state as named chunks of bytes, the same bytes for equal states."""
        ...

    def unpack(self, chunks: Mapping[str, bytes]) -> S:
        """The inverse of `pack`; raises UnknownStateSchemaError for a schema it can't read."""
        ...
