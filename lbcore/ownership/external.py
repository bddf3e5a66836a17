"""Forced transitions for ownership changes made by another authority.

Decides how a record follows what was observed. The observed owner owns the bundle at once, because
it has it open already, and no broker is asked. Used only where the setting cluster.authority is
external. `balancer.commands.mirroring` calls it. Pulsar's overrides force Owned, too.
"""

from lbcore.ownership.changes import (
    NOBODY,
    Instance,
    Origin,
    RefusalReason,
    Refused,
    Transition,
    holder_of,
    next_record,
    transition,
)
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.ownership.states import MOVES, Move, may_start


def observe(record: OwnershipRecord, owner: Instance, origin: Origin) -> Transition | Refused:
    """Any live state → Owned(owner), or Free when the owner is NOBODY; by force.

    REPEATED when the record says so already, DELETED when the bundle is gone.
    """
    move = Move.OBSERVE_OWNER if owner.broker else Move.OBSERVE_FREE
    if record.state in (State.DELETED, State.INIT):
        return Refused(reason=RefusalReason.DELETED)
    holder = holder_of(record)
    is_known = record.state is MOVES[move].target
    if not may_start(move, record.state) or (is_known and holder == owner):
        return Refused(reason=RefusalReason.REPEATED)
    source = NOBODY if holder.broker == owner.broker else holder
    made = next_record(record, move, origin, source, owner)
    return transition((record, made))
