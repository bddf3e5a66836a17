"""Phase 6: moves of the shed phase that wait for another cycle.

Caps on a cycle, on an hour, on a broker (as source or destination), on a tenant's hour, and on what
is in flight; and a broker keeps the role of giver or taker for a while. Two bundles that are
exchanged move together or not at all. Bundles without an owner are never held back; drains have a
bound of their own. Pulsar's own caps are part of its strategies.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lbcore.model.names import tenant_of
from lbcore.plan.decision import CODE, VERDICTS, CandidateVerdict, Columns, moves_within_hour
from lbcore.plan.draft import Draft, Moves
from lbcore.plan.snapshot import NOBODY, Ints

PHASE = "limit"
NO_CAP = -1
TAKEN = CODE[CandidateVerdict.TAKEN]


@dataclass(slots=True, kw_only=True)
class _Room:
    """Remaining allowance while the moves are checked in order; inf = no cap.

    cycle: moves left. limited_by: verdict once none is left. broker, tenant: caps, for the counts
    `brokers` and `tenants`. givers, takers: brokers whose last role is within its cool-down.
    """

    cycle: float
    limited_by: CandidateVerdict
    broker: float
    tenant: float
    namespace_names: Sequence[str]
    givers: frozenset[int] = frozenset()
    takers: frozenset[int] = frozenset()
    brokers: Counter[int] = field(default_factory=Counter)
    tenants: Counter[str] = field(default_factory=Counter)

    @staticmethod
    def of(draft: Draft) -> "_Room":
        """Return the room at the start of a cycle."""
        config = draft.config.shedding
        in_flight = max(len(draft.state.moves), draft.snapshot.in_flight) + len(draft.forced.bundle)
        tenants = moves_within_hour(draft.state.hourly, draft.now_ms)
        cycle, limited_by = min(
            (_cap(config.max_moves_per_cycle), CandidateVerdict.CYCLE_LIMIT),
            (_cap(config.max_moves_in_flight) - in_flight, CandidateVerdict.IN_FLIGHT_LIMIT),
            (_cap(config.max_moves_per_hour) - tenants.total(), CandidateVerdict.HOUR_LIMIT),
            key=lambda one: one[0],
        )
        return _Room(
            cycle=cycle,
            limited_by=limited_by,
            broker=_cap(config.max_moves_per_broker),
            tenant=_cap(config.max_moves_per_hour_of_tenant),
            namespace_names=draft.snapshot.bundles.namespaces,
            givers=_indices_in_role(draft, draft.state.gave_ms),
            takers=_indices_in_role(draft, draft.state.took_ms),
            tenants=tenants,
        )

    def take(self, moves: Sequence[tuple[int, int, int]]) -> int:
        """Count a move or an exchange if there is room for all of it; return the verdict.

        moves: source, destination and namespace of each.
        """
        if len(moves) > self.cycle:
            return CODE[self.limited_by]
        if any(one in self.takers or other in self.givers for one, other, _ in moves):
            return CODE[CandidateVerdict.ROLE_COOL_DOWN]
        brokers = Counter(at for move in moves for at in move[:2] if at != NOBODY)
        if any(self.brokers[at] + count > self.broker for at, count in brokers.items()):
            return CODE[CandidateVerdict.BROKER_LIMIT]
        tenants = Counter(tenant_of(self.namespace_names[namespace]) for _, _, namespace in moves)
        if any(self.tenants[name] + count > self.tenant for name, count in tenants.items()):
            return CODE[CandidateVerdict.TENANT_LIMIT]
        self.cycle -= len(moves)
        self.brokers.update(brokers)
        self.tenants.update(tenants)
        return TAKEN


def limit(draft: Draft) -> Draft:
    """Return the draft with the moves that fit, in the strategy's order."""
    moves = draft.sheddings
    if not len(moves.bundle):
        return draft
    verdicts = limit_verdicts(draft, moves)
    kept = moves.at(np.flatnonzero(verdicts == TAKEN))
    draft = show_limits(replace(draft, sheddings=kept), moves, verdicts)
    return draft if len(kept.bundle) else draft.skip("shed", "Limit")


def limit_verdicts(draft: Draft, moves: Moves) -> Ints:
    """Return each move's verdict, int64[k], index into VERDICTS.

    A destination of -1 has no cap.
    """
    room = _Room.of(draft)
    namespace = draft.snapshot.bundles.namespace[moves.bundle]
    columns = (moves.source.tolist(), moves.destination.tolist(), namespace.tolist())
    each = list(zip(*columns, strict=True))
    found = np.full(len(namespace), CODE[room.limited_by], dtype=np.int64)
    for at, partner in enumerate(draft.partners(moves).tolist()):
        if room.cycle <= 0:
            break
        if at <= partner:
            pair = sorted({at, partner})
            found[pair] = room.take([each[one] for one in pair])
    return found


def _indices_in_role(draft: Draft, since: Mapping[str, int]) -> frozenset[int]:
    """Return `Draft.in_role` as indices of brokers."""
    recent = draft.in_role(since)
    return frozenset(at for at, name in enumerate(draft.snapshot.brokers.names) if name in recent)


def show_limits(draft: Draft, moves: Moves, verdicts: Ints) -> Draft:
    """Return the draft with the limits' verdicts on moves, in order, in its trace."""
    return draft.show(
        Columns(
            phase=PHASE,
            subjects=draft.snapshot.bundles.names,
            verdicts=[found.value for found in VERDICTS],
            subject=moves.bundle,
            broker=moves.destination,
            verdict=verdicts,
            number=np.arange(len(verdicts), dtype=np.float64),
        )
    )


def _cap(configured: int) -> float:
    return float("inf") if configured == NO_CAP else configured
