"""What operators want moved: bundles of draining brokers, and bundles away from their pins.

Decides which go in this cycle, at a bounded rate; the assign phase finds the drained ones a
destination. Part of the plan's shed phase, before any strategy. Source: ours.
"""

import numpy as np

from lbcore.plan.draft import NOBODY, Draft, Moves
from lbcore.plan.phases.eligible import pins


def forced_moves(draft: Draft) -> Moves:
    """Pins first, then drains, in the order of the bundle table; -1 = placement says where."""
    bundles, brokers = draft.reported.bundles, draft.reported.brokers
    pin = pins(draft)
    at_rest = bundles.can_move & (bundles.owner >= 0)
    is_strayed = at_rest & (pin >= 0) & (pin != bundles.owner)
    is_strayed &= ~np.append(brokers.is_draining, True)[pin]
    on_draining = at_rest & ~is_strayed & brokers.is_draining[bundles.owner]
    rows = np.concatenate([np.flatnonzero(is_strayed), np.flatnonzero(on_draining)])
    rows = rows[: draft.config.shedding.max_drains_per_cycle]
    return Moves(
        bundle=rows,
        source=bundles.owner[rows],
        destination=np.where(is_strayed[rows], pin[rows], NOBODY),
        origin=np.full(len(rows), NOBODY, dtype=np.int64),
    )
