"""Phase 6: moves of the shed phase that wait for another cycle.

Caps on a cycle, on an hour, on a broker (as source or destination), on a tenant's hour, and on what
is in flight; and a broker keeps the role of giver or taker for a while. Bundles without an owner
are never held back; drains have a bound of their own. Pulsar's own caps are part of its strategies.
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
            givers=_in_role(draft, draft.state.gave_ms),
            takers=_in_role(draft, draft.state.took_ms),
            tenants=tenants,
        )

    def take(self, source: int, destination: int, namespace: int) -> int:
        """Count the move if there is room for it, and return its verdict."""
        brokers = self.brokers
        if source in self.takers or destination in self.givers:
            return CODE[CandidateVerdict.ROLE_COOL_DOWN]
        if brokers[source] >= self.broker or brokers[destination] >= self.broker:
            return CODE[CandidateVerdict.BROKER_LIMIT]
        tenant = tenant_of(self.namespace_names[namespace])
        if self.tenants[tenant] >= self.tenant:
            return CODE[CandidateVerdict.TENANT_LIMIT]
        self.cycle -= 1
        brokers[source] += 1
        if destination != NOBODY:
            brokers[destination] += 1
        self.tenants[tenant] += 1
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
    found = np.full(len(namespace), CODE[room.limited_by], dtype=np.int64)
    for at, move in enumerate(zip(*columns, strict=True)):
        if room.cycle <= 0:
            break
        found[at] = room.take(*move)
    return found


def _in_role(draft: Draft, since: Mapping[str, int]) -> frozenset[int]:
    """Return the indices of brokers that gave, or took, within `role_cool_down_ms`."""
    after_ms = draft.now_ms - draft.config.shedding.role_cool_down_ms
    names = enumerate(draft.snapshot.brokers.names)
    return frozenset(at for at, name in names if since.get(name, after_ms) > after_ms)


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
