"""Checking: what a batch will write keeps the invariants of ownership, or nothing is written.

Decides nothing; `ownership.invariants` knows what must hold. Last phase of `balancer` before its
effects leave. A violation is a bug of ours, so it stops the job. Source: ours.
"""

import bisect
from collections.abc import Iterator

from lbcore.machines.ledger import STATE_CODE
from lbcore.machines.work import Work
from lbcore.ownership.changes import Change
from lbcore.ownership.invariants import violations_of_changes
from lbcore.ownership.records import State

_SHOWN = 3


class BrokenInvariantError(AssertionError):
    """The balancer was about to write records that must never be."""


def check_transitions(work: Work) -> None:
    """Raise BrokenInvariantError when the batch's transitions break what must always hold."""
    changes = [Change(before=before, after=after) for before, after in work.transitions]
    found = violations_of_changes(changes, lambda namespace: _live(work, namespace))
    if found:
        sentences = "; ".join(violation.sentence for violation in found[:_SHOWN])
        message = (
            f"{len(found)} violations of ownership in one batch, nothing of it was written: "
            f"{sentences}; this is a bug: keep the state folder and report it"
        )
        raise BrokenInvariantError(message)


def _live(work: Work, namespace: str) -> Iterator[str]:
    """The bundles of a namespace that are not deleted."""
    ledger = work.ledger
    deleted = STATE_CODE[State.DELETED]
    first = bisect.bisect_left(ledger.names, f"{namespace}/")
    for row in range(first, len(ledger.names)):
        if not ledger.names[row].startswith(f"{namespace}/"):
            return
        if ledger.state[row] != deleted and ledger.version[row] > 0:
            yield ledger.names[row]
