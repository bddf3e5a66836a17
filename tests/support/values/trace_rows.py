"""The candidates of a plan's trace, one row each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lbcore.plan.decision import CandidateVerdict, Columns, PlacementRows, Trace, TriggerRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One candidate of one phase: a bundle or broker, its verdict and number."""

    phase: str
    subject: str
    broker: str
    verdict: str
    number: float


def rows_of_trace(trace: Trace) -> Iterator[Candidate]:
    for part in trace.parts:
        if isinstance(part, PlacementRows):
            yield from _placements(part, trace.brokers)
        elif isinstance(part, TriggerRows):
            yield from _triggers(part, trace.brokers)
        else:
            yield from _columns(part, trace.brokers)


def _placements(part: PlacementRows, brokers: Sequence[str]) -> Iterator[Candidate]:
    """The chosen broker, the runner-up, and every broker that a filter took away."""
    columns = (part.subject, part.chosen, part.number, part.runner_up, part.runner_up_number)
    for at, row in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        subject, chosen, number, second, second_number = row
        shown = [(chosen, CandidateVerdict.TAKEN.value, number)]
        shown += [(second, CandidateVerdict.RUNNER_UP.value, second_number)]
        shown += [
            (broker, part.labels[part.verdicts[at, broker]], np.nan)
            for broker in np.flatnonzero(part.verdicts[at]).tolist()
            if broker != chosen
        ]
        for broker, verdict, value in shown:
            if broker >= 0:
                yield Candidate(
                    phase=part.phase,
                    subject=part.subjects[subject],
                    broker=brokers[broker],
                    verdict=verdict,
                    number=value,
                )


def _triggers(part: TriggerRows, brokers: Sequence[str]) -> Iterator[Candidate]:
    columns = (part.verdicts, part.trigger.number.tolist(), part.trigger.partner.tolist())
    for name, verdict, number, partner in zip(brokers, *columns, strict=True):
        if verdict:
            yield Candidate(
                phase=part.phase,
                subject=name,
                broker=brokers[partner] if partner >= 0 else "",
                verdict=verdict,
                number=number,
            )


def _columns(part: Columns, brokers: Sequence[str]) -> Iterator[Candidate]:
    columns = (part.subject, part.broker, part.verdict, part.number)
    for subject, broker, verdict, number in zip(*(c.tolist() for c in columns), strict=True):
        yield Candidate(
            phase=part.phase,
            subject=part.subjects[subject],
            broker=brokers[broker] if broker >= 0 else "",
            verdict=part.verdicts[verdict],
            number=number,
        )
