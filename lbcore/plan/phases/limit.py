"""Phase 6: how much of it may happen at once.

Decides which moves of the shed phase wait for another cycle: caps on a cycle, on a broker (as
source or destination), on a namespace, and on what is in flight. Bundles without an owner are
never held back. Source: ours (Pulsar's own caps are part of its strategies).
"""

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from lbcore.config.shedding import SheddingConfig
from lbcore.plan.draft import Draft
from lbcore.plan.trace import CODE, VERDICTS, Columns, Verdict

PHASE = "limit"


@dataclass(slots=True, kw_only=True)
class _Room:
    """What is still allowed while the moves are gone through in order."""

    config: SheddingConfig
    in_flight: int
    taken: int = 0
    brokers: Counter[int] = field(default_factory=Counter)
    namespaces: Counter[int] = field(default_factory=Counter)

    def verdict(self, source: int, destination: int, namespace: int) -> Verdict:
        """Take the move if there is room for it; otherwise say what is full."""
        config = self.config
        if _is_full(self.taken, config.max_moves_per_cycle):
            return Verdict.CYCLE_LIMIT
        if _is_full(self.in_flight + self.taken, config.max_moves_in_flight):
            return Verdict.IN_FLIGHT_LIMIT
        if any(
            _is_full(self.brokers[broker], config.max_moves_per_broker)
            for broker in (source, destination)
        ):
            return Verdict.BROKER_LIMIT
        if _is_full(self.namespaces[namespace], config.max_moves_per_namespace):
            return Verdict.NAMESPACE_LIMIT
        self.taken += 1
        self.brokers.update((source, destination))
        self.namespaces[namespace] += 1
        return Verdict.TAKEN


def limit(draft: Draft) -> Draft:
    """The draft with the moves that fit, in the strategy's order."""
    moves = draft.sheddings
    if not len(moves.bundle):
        return draft
    room = _Room(config=draft.config.shedding, in_flight=len(draft.state.moves))
    namespace = draft.snapshot.bundles.namespace[moves.bundle]
    columns = (moves.source.tolist(), moves.destination.tolist(), namespace.tolist())
    verdict = np.array(
        [CODE[room.verdict(*move)] for move in zip(*columns, strict=True)], dtype=np.int64
    )
    kept = moves.at(np.flatnonzero(verdict == CODE[Verdict.TAKEN]))
    draft = replace(draft, sheddings=kept).show(
        Columns(
            phase=PHASE,
            subjects=draft.snapshot.bundles.names,
            verdicts=[found.value for found in VERDICTS],
            subject=moves.bundle,
            broker=moves.destination,
            verdict=verdict,
            number=np.arange(len(verdict), dtype=np.float64),
        )
    )
    return draft if len(kept.bundle) else draft.skip("shed", "Limit")


def _is_full(count: int, cap: int) -> bool:
    return 0 <= cap <= count
