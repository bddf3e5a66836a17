"""Checking: what a batch will write keeps the invariants of ownership, or nothing is written.

Decides nothing; `ownership.invariants` knows what must hold. A phase of `balancer` before its
effects leave. A violation is a bug of ours: what brought it about is left out (`put_aside`), and
where that can't be told, the whole batch is. Source: ours.
"""

from lbcore.balancer.state.work import Work
from lbcore.ownership.changes import Change
from lbcore.ownership.invariants import violations_of_changes

_SHOWN = 3


class BrokenInvariantError(AssertionError):
    """The balancer was about to write records that must never be."""


def check_transitions(work: Work, since: int = 0) -> None:
    """Raise BrokenInvariantError when the batch's transitions break what must always hold.

    since: the number of those that are known to hold.
    """
    new = work.transitions[since:]
    changes = [Change(before=before, after=after) for before, after in new]
    ledger = work.ledger
    found = violations_of_changes(
        changes, lambda namespace: (ledger.names[row] for row in ledger.live_rows(namespace))
    )
    if found:
        sentences = "; ".join(violation.sentence for violation in found[:_SHOWN])
        message = (
            f"{len(found)} violations of ownership in one batch, nothing of it was written: "
            f"{sentences}; this is a bug: keep the state folder and report it"
        )
        raise BrokenInvariantError(message)
