"""Brokers for many bundles where the caller says who is allowed.

Decides the destination of every bundle of a list by least long-term message rate, each choice
counting the ones before; not who is allowed: the caller's masks do. For repairs and commands, which
need owners without the whole of the policies; the plan's assign phase uses `place`. Source: Pulsar
4.0.8 LeastLongTermMessageRate; see `place` for what is ours.
"""

from dataclasses import dataclass, replace

import numpy as np

from lbcore.config.filters import FilterConfig
from lbcore.config.placement import LEAST_LONG_TERM_MESSAGE_RATE, PlacementConfig
from lbcore.plan.filter.index import CandidateIndex
from lbcore.plan.filter.verdict import Verdict
from lbcore.plan.place.place import place_bundles
from lbcore.plan.place.request import PlacementState, PlaceSettings, place_request
from lbcore.plan.snapshot import Bools, Floats, Ints, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Which brokers may take which bundle; bundles of equal policies share a row.

    masks: bool[rows, brokers]. row: int64[bundles], the row of each bundle to assign.
    excluded: int64[bundles], one broker more that may not take it (its source), -1 = none.
    """

    masks: Bools
    row: Ints
    excluded: Ints

    @staticmethod
    def everywhere(allowed: Bools, bundle_count: int) -> "Candidates":
        """One row for all bundles. allowed: bool[brokers], e.g. alive and not draining."""
        return Candidates(
            masks=allowed[np.newaxis, :],
            row=np.zeros(bundle_count, dtype=np.int64),
            excluded=np.full(bundle_count, -1, dtype=np.int64),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignRequest:
    """Bundles to assign.

    bundles: indices into `snapshot.bundles`. usage: weighted usage of each broker, 1.0 = 100 %.
    """

    snapshot: Snapshot
    bundles: Ints
    candidates: Candidates
    usage: Floats


def assign_bundles(request: AssignRequest, config: PlacementConfig, seed: int) -> Ints:
    """The destination of each bundle of the request, as a broker index; -1 where none is allowed.

    The rule, one bundle after the other: among its candidates the least score; of equal ones one
    by hash. A score is infinite above the overload threshold, else the long-term message rate of
    the broker's bundles plus that of those placed on it before. O(bundles x brokers), vectorised
    over brokers.
    """
    index = _index(request)
    asked = place_request(request.snapshot, request.bundles, index, request.usage)
    settings = PlaceSettings(
        placement=replace(config, strategy=LEAST_LONG_TERM_MESSAGE_RATE),
        filters=FilterConfig(distribute_evenly=False),
    )
    asked = replace(asked, excluded=request.candidates.excluded)
    return place_bundles(asked, PlacementState(), settings, seed).brokers


def _index(request: AssignRequest) -> CandidateIndex:
    """The caller's masks in the form of the filters."""
    masks, bundles = request.candidates.masks, request.snapshot.bundles
    verdicts = np.where(masks, Verdict.OK, Verdict.NOT_IN_POLICY).astype(np.int8)
    row = np.zeros(len(bundles.names), dtype=np.int64)
    row[request.bundles] = request.candidates.row
    return CandidateIndex(
        open_verdicts=np.zeros(masks.shape[1], dtype=np.int8),
        verdicts=verdicts,
        open=np.arange(masks.shape[1]),
        admitted=tuple(np.flatnonzero(mask) for mask in masks),
        row=row,
        group=np.full(len(bundles.namespaces), -1, dtype=np.int64),
        groups=0,
        domain=np.zeros(0, dtype=np.int64),
        has_policy=np.zeros(len(bundles.namespaces), dtype=np.bool_),
    )
