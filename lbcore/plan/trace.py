"""What a planning cycle saw: every candidate, each verdict, the number that decided.

Decides nothing. Phases add to it; `rows` turns it into one row a candidate, on demand, because a
full trace of 100,000 bundles is too much to make rows of in every cycle. Source: ours.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

import numpy as np

from lbcore.plan.snapshot import Floats, Ints


class Verdict(str, Enum):
    """Why a candidate was taken or not; the value is also the metric's label."""

    TAKEN = "taken"
    ELIGIBLE = "eligible"
    UNOWNED = "unowned"
    SOURCE_NOT_SHEDDING = "source_not_shedding"
    AT_WORK = "at_work"
    RECENTLY_UNLOADED = "recently_unloaded"
    EXCLUDED_NAMESPACE = "excluded_namespace"
    MOVE_IN_FLIGHT = "move_in_flight"
    NOT_NEEDED = "not_needed"
    OVER_BUDGET = "over_budget"
    NO_DESTINATION = "no_destination"
    CYCLE_LIMIT = "cycle_limit"
    BROKER_LIMIT = "broker_limit"
    NAMESPACE_LIMIT = "namespace_limit"
    IN_FLIGHT_LIMIT = "in_flight_limit"


VERDICTS = tuple(Verdict)
CODE = {verdict: code for code, verdict in enumerate(VERDICTS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One candidate of one phase: a bundle (or a broker), what was said of it, and by what number.

    subject: the bundle's or the broker's name. broker: the broker it was considered for, or "".
    """

    phase: str
    subject: str
    broker: str
    verdict: str
    number: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Candidates of one phase as arrays of length k.

    subject: index into `subjects`. broker: index into the trace's brokers, -1 = none. verdict:
    index into `verdicts`. number: what decided, NaN = no number.
    """

    phase: str
    subjects: Sequence[str]
    verdicts: Sequence[str]
    subject: Ints
    broker: Ints
    verdict: Ints
    number: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerNumbers:
    """One number a broker in one phase, e.g. its score. values: float64[n]."""

    phase: str
    name: str
    values: Floats


Part: TypeAlias = Columns | BrokerNumbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What the phases saw, in order. numbers: "phase.name" → number of the whole cycle."""

    brokers: tuple[str, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()

    def rows(self) -> Iterator[Candidate]:
        """Every candidate as a row, phase after phase. O(candidates)."""
        for part in self.parts:
            if isinstance(part, BrokerNumbers):
                yield from self._broker_rows(part)
            else:
                yield from self._column_rows(part)

    def _broker_rows(self, part: BrokerNumbers) -> Iterator[Candidate]:
        for name, value in zip(self.brokers, part.values.tolist(), strict=True):
            yield Candidate(
                phase=part.phase, subject=name, broker=name, verdict=part.name, number=value
            )

    def _column_rows(self, part: Columns) -> Iterator[Candidate]:
        columns = (part.subject, part.broker, part.verdict, part.number)
        for subject, broker, verdict, number in zip(*(c.tolist() for c in columns), strict=True):
            yield Candidate(
                phase=part.phase,
                subject=part.subjects[subject],
                broker=self.brokers[broker] if broker >= 0 else "",
                verdict=part.verdicts[verdict],
                number=number,
            )

    def counts(self) -> dict[str, int]:
        """How many candidates got each verdict, by "phase.verdict"; none are left out."""
        found: dict[str, int] = {}
        for part in self.parts:
            if isinstance(part, BrokerNumbers):
                continue
            sums = np.bincount(part.verdict, minlength=len(part.verdicts)).tolist()
            for verdict, count in zip(part.verdicts, sums, strict=True):
                if count:
                    key = f"{part.phase}.{verdict}"
                    found[key] = found.get(key, 0) + count
        return found
