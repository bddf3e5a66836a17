"""Phase 5: a destination for every bundle that has no owner or leaves one without a destination.

Decides where, by the placement strategy, counting what the same plan has placed. `machines` calls
it alone for failover. Source: Pulsar 4.0.8 ModularLoadManagerImpl.selectBroker; counting planned
placements is ours.
"""

import zlib
from dataclasses import replace

import numpy as np

from lbcore.plan.draft import NOBODY, Draft, Moves
from lbcore.plan.place.assign import AssignRequest, Candidates, assign_bundles
from lbcore.plan.snapshot import Ints, Snapshot

PHASE = "assign"


def assign(draft: Draft) -> Draft:
    """The draft with destinations; a bundle that nobody may take stays where it is."""
    draft = _destinations_of_shed(draft)
    if not draft.scope.assigns:
        return draft.skip(PHASE, "NotThisCycle")
    bundles = draft.snapshot.bundles
    needs = bundles.needs_owner if bundles.needs_owner is not None else bundles.owner < 0
    rows = np.flatnonzero(needs)
    if not len(rows):
        return draft.skip(PHASE, "NoUnownedBundle")
    nobody = np.full(len(rows), NOBODY, dtype=np.int64)
    found = _place(draft, rows, nobody)
    kept = np.flatnonzero(found >= 0)
    moves = Moves(bundle=rows, source=nobody, destination=found, origin=nobody).at(kept)
    draft = replace(draft, assignments=moves)
    return draft if len(kept) else draft.skip(PHASE, "NoBrokers")


def _destinations_of_shed(draft: Draft) -> Draft:
    """Shed bundles without a destination get one that is not their source, or stay."""
    moves = draft.sheddings
    open_rows = np.flatnonzero(moves.destination < 0)
    if not len(open_rows):
        return draft
    destination = moves.destination.copy()
    destination[open_rows] = _place(draft, moves.bundle[open_rows], moves.source[open_rows])
    moves = replace(moves, destination=destination)
    kept = moves.at(np.flatnonzero(destination >= 0))
    draft = replace(draft, sheddings=kept)
    return draft if len(kept.bundle) else draft.skip("shed", "NoDestination")


def _place(draft: Draft, rows: Ints, excluded: Ints) -> Ints:
    everywhere = Candidates.everywhere(draft.may_take, len(rows))
    request = AssignRequest(
        snapshot=_planned(draft),
        bundles=rows,
        candidates=replace(everywhere, excluded=excluded),
        usage=draft.usage,
    )
    return assign_bundles(request, draft.config.placement, cluster_seed(draft.snapshot.cluster))


def _planned(draft: Draft) -> Snapshot:
    """The snapshot as it will be when the plan's moves with a destination are done."""
    moves, bundles = draft.sheddings, draft.snapshot.bundles
    owner = bundles.owner.copy()
    owner[moves.bundle] = moves.destination
    return replace(draft.snapshot, bundles=replace(bundles, owner=owner))


def cluster_seed(cluster: str) -> int:
    """The seed of a cluster's deterministic choices, 0..2^32-1."""
    return zlib.crc32(cluster.encode())
