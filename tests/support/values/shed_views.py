"""What a shedder is shown of a snapshot, without a plan's phases before it."""

import numpy as np

from lbcore.plan.shed.common import ShedView, owner_index
from lbcore.plan.snapshot import Bools, Floats, Snapshot


def shed_view(snapshot: Snapshot, usage: Floats, is_due: Bools | None = None) -> ShedView:
    """The view of a snapshot; every broker is due unless told otherwise."""
    due = np.ones(len(usage), dtype=np.bool_) if is_due is None else is_due
    return ShedView(
        snapshot=snapshot,
        usage=usage,
        is_due=due,
        owned=owner_index(snapshot),
        keys=snapshot.bundles.names,
    )
