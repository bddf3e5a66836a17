"""A custom strategy: the busiest broker gives the idlest one a fitting bundle.

ballast simulate SCENARIO --strategy even_pairs:decide      # in this folder
"""

from typing import Any

from ballast import Config, Proposal, ProposedMove, Snapshot

NEEDED = 3  # cycles in a row, so that a moment's peak moves nothing
GAP = 1.3  # times the idlest broker's traffic


def decide(
    snapshot: Snapshot, state: dict[str, Any], _config: Config, _now_ms: int
) -> tuple[Proposal, dict[str, Any]]:
    """Move one bundle at most, after three cycles with the same two brokers."""
    brokers, bundles = snapshot.brokers, snapshot.bundles
    rate = brokers.traffic[:, 0] + brokers.traffic[:, 1]
    hot, cold = int(rate.argmax()), int(rate.argmin())
    if rate[hot] <= GAP * rate[cold]:
        return Proposal(), {}
    pair = [brokers.names[hot], brokers.names[cold]]
    hits = state.get("hits", 0) + 1 if state.get("pair") == pair else 1
    load = bundles.short[:, 0] + bundles.short[:, 1]
    fits = (bundles.owner == hot) & bundles.can_move & (load < (rate[hot] - rate[cold]) / 2)
    if hits < NEEDED or not fits.any():
        return Proposal(), {"pair": pair, "hits": hits}
    row = int((load * fits).argmax())
    numbers = {"gap": float(rate[hot] - rate[cold]), "load": float(load[row])}
    move = ProposedMove(bundle=bundles.names[row], destination=pair[1], numbers=numbers)
    return Proposal(moves=(move,), numbers=numbers), {}
