"""Phase 6: moves of the shed phase that wait for another cycle.

Caps on a cycle, on an hour, on a broker (as source or destination), on a tenant's hour, and on what
is in flight; and a broker keeps the role of giver or taker for a while. Two bundles that are
exchanged move together or not at all. Bundles without an owner are never held back; drains have a
bound of their own. Pulsar's own caps are part of its strategies.
"""

from collections import Counter
from dataclasses import replace

import numpy as np

from lbcore.model.names import tenant_of
from lbcore.plan.decision import CODE, VERDICTS, CandidateVerdict, Columns, moves_within_hour
from lbcore.plan.draft import Draft, Moves
from lbcore.plan.snapshot import NOBODY, Ints

PHASE = "limit"
NO_CAP = -1
TAKEN = CODE[CandidateVerdict.TAKEN]


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

    The moves are checked in order, each counting what was taken before. A destination of -1 has no
    cap.
    """
    config, state, snapshot = draft.config.shedding, draft.state, draft.snapshot
    in_flight = max(len(state.moves), snapshot.in_flight) + len(draft.forced.bundle)
    tenants, brokers = moves_within_hour(state.hourly, draft.now_ms), Counter[int]()
    room, limited_by = min(
        (_cap(config.max_moves_per_cycle), CandidateVerdict.CYCLE_LIMIT),
        (_cap(config.max_moves_in_flight) - in_flight, CandidateVerdict.IN_FLIGHT_LIMIT),
        (_cap(config.max_moves_per_hour) - tenants.total(), CandidateVerdict.HOUR_LIMIT),
        key=lambda one: one[0],
    )
    of_broker, of_tenant = (
        _cap(one) for one in (config.max_moves_per_broker, config.max_moves_per_hour_of_tenant)
    )
    gave, took = draft.in_role(state.gave_ms), draft.in_role(state.took_ms)
    name_of = dict(enumerate(snapshot.brokers.names))  # NOBODY has none
    ends = [(source, destination) for _, source, destination in moves.steps()]
    namespaces = snapshot.bundles.namespace[moves.bundle].tolist()
    owners = [tenant_of(snapshot.bundles.namespaces[at]) for at in namespaces]
    found = np.full(len(ends), CODE[limited_by], dtype=np.int64)
    for at, partner in enumerate(draft.partners(moves).tolist()):
        if room <= 0:
            break
        if at > partner:
            continue
        pair = sorted({at, partner})  # a move, or an exchange: all of it or nothing
        touched = Counter(broker for one in pair for broker in ends[one] if broker != NOBODY)
        asking = Counter(owners[one] for one in pair)
        verdict = CandidateVerdict.TAKEN
        if len(pair) > room:
            verdict = limited_by
        elif any(
            name_of[ends[one][0]] in took or name_of.get(ends[one][1]) in gave for one in pair
        ):
            verdict = CandidateVerdict.ROLE_COOL_DOWN
        elif any(brokers[broker] + count > of_broker for broker, count in touched.items()):
            verdict = CandidateVerdict.BROKER_LIMIT
        elif any(tenants[name] + count > of_tenant for name, count in asking.items()):
            verdict = CandidateVerdict.TENANT_LIMIT
        else:
            room -= len(pair)
            brokers.update(touched)
            tenants.update(asking)
        found[pair] = CODE[verdict]
    return found


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
