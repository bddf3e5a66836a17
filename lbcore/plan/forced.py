"""Forced moves: bundles of draining brokers, and bundles away from their pins.

Decides which of these moves that operators want go now, limited per broker. The assign phase finds
a destination for the drained bundles. Part of the plan's shed phase, before any strategy.
"""

import numpy as np

from lbcore.plan.draft import NOBODY, Draft, Moves
from lbcore.plan.phases.eligible import paused, pins
from lbcore.plan.snapshot import Ints


def forced_moves(draft: Draft) -> Moves:
    """Pins first, then drains, in the order of the bundle table; -1 = placement says where."""
    bundles, brokers = draft.reported.bundles, draft.reported.brokers
    pin = pins(draft)[: len(bundles.names)]
    at_rest = bundles.can_move & (bundles.owner >= 0) & ~paused(bundles)
    is_strayed = at_rest & (pin >= 0) & (pin != bundles.owner)
    is_strayed &= ~np.append(brokers.is_draining, True)[pin]
    on_draining = at_rest & ~is_strayed & brokers.is_draining[bundles.owner]
    rows = np.concatenate([np.flatnonzero(is_strayed), np.flatnonzero(on_draining)])
    rows = rows[_fits(bundles.owner[rows], _room(draft))]
    return Moves(
        bundle=rows,
        source=bundles.owner[rows],
        destination=np.where(is_strayed[rows], pin[rows], NOBODY),
        origin=np.full(len(rows), NOBODY, dtype=np.int64),
    )


def _room(draft: Draft) -> Ints:
    """Return the number of bundles that may leave each broker now, int64[n]."""
    brokers = draft.reported.brokers
    if brokers.room is not None:
        return brokers.room
    return np.full(len(brokers.names), draft.config.shedding.max_drains_in_flight, dtype=np.int64)


def _fits(source: Ints, room: Ints) -> Ints:
    """The positions, in order, of the first `room` bundles of each source."""
    order = np.argsort(source, kind="stable")
    _, starts, counts = np.unique(source[order], return_index=True, return_counts=True)
    rank = np.empty(len(source), dtype=np.int64)
    rank[order] = np.arange(len(source)) - np.repeat(starts, counts)
    return np.flatnonzero(rank < room[source])
