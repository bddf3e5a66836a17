"""The bundles that one broker gives to another, and those it gets in exchange.

Decides which reported bundles of the most loaded broker move to the least loaded one; not which
brokers are paired. Called by `transfer` for each pair. Source: Pulsar 4.0.8 TransferShedder.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lbcore.config.transfer import TransferConfig
from lbcore.plan.shed.transfer_types import (
    BundleLookup,
    Reason,
    TopBundle,
    TransferDecision,
    TransferRefusal,
)

BALANCED_SHARE = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two brokers. throughput: in plus out of their records, bytes/s. target: bytes/s to move."""

    source: str
    destination: str
    source_throughput: float
    destination_throughput: float
    target: float
    reason: Reason


@dataclass(slots=True, kw_only=True)
class Offload:
    """Progress of an offload: the traffic taken so far, and the decisions.

    marked: bytes/s marked to leave. gained: bytes/s gained back.
    """

    marked: float = 0.0
    gained: float = 0.0
    decisions: list[TransferDecision] = field(default_factory=list)
    refused: list[tuple[str, TransferRefusal]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairMove:
    """The rule for one pair: what it needs to know while it walks the reported bundles.

    returnable: the destination's report, one forward pass for all bundles; None without a report
    or when swaps are off.
    """

    pair: Pair
    lookup: BundleLookup
    config: TransferConfig
    returnable: Iterator[TopBundle] | None

    def take(self, reported: Sequence[TopBundle]) -> Offload:
        """Walk the source's report, lightest first, until the target is reached.

        One reported bundle always stays. A bundle that overshoots the target is taken only in
        exchange for bundles of the destination that leave both below the source's throughput.
        """
        offload = Offload()
        remaining = len(reported)
        for top in reported:
            refusal = self._refusal(top)
            if refusal is None and remaining <= 1:
                offload.refused.append((top.bundle, TransferRefusal.LAST_BUNDLE))
                break
            if refusal is None and top.throughput == 0:
                refusal = TransferRefusal.NO_THROUGHPUT
            if refusal is not None:
                offload.refused.append((top.bundle, refusal))
                continue
            if not self._take_one(top, offload):
                offload.refused.append((top.bundle, TransferRefusal.ABOVE_TARGET))
                break
            remaining -= 1
        return offload

    def _refusal(self, top: TopBundle) -> TransferRefusal | None:
        """Return the reason this bundle can't leave the source, in Pulsar's check order."""
        if not self.lookup.is_owner(top.bundle, self.pair.source):
            return TransferRefusal.NOT_OWNED
        if self.lookup.is_excluded(top.bundle):
            return TransferRefusal.EXCLUDED_NAMESPACE
        if self.lookup.is_recently_unloaded(top.bundle):
            return TransferRefusal.RECENTLY_UNLOADED
        if not self._is_transferable(top.bundle, self.pair.source, self.pair.destination):
            return TransferRefusal.NOT_TRANSFERABLE
        return None

    def _is_transferable(self, bundle: str, source: str, destination: str) -> bool:
        """Policies allow it, and the destination passes the filters even when it isn't named."""
        if self.lookup.has_policy(bundle) and not self.config.shed_bundles_with_policies:
            return False
        candidates = self.lookup.candidates(bundle)
        return candidates is not None and destination in candidates and destination != source

    def _take_one(self, top: TopBundle, offload: Offload) -> bool:
        """Mark the bundle to leave, with a swap when it overshoots; False when that fails."""
        if offload.marked - offload.gained + top.throughput > self.pair.target:
            swapped = self._swap(top.throughput, offload)
            if swapped is None:
                return False
            back = self.pair.destination, self.pair.source
            offload.decisions += [self._decision(found.bundle, *back) for found in swapped]
            if self.config.count_swapped_back:
                offload.gained += _sequential_sum(swapped)
        destination = self.pair.destination if self.config.is_destination_planned else ""
        offload.decisions.append(self._decision(top.bundle, self.pair.source, destination))
        offload.marked += top.throughput
        return True

    def _swap(self, leaving: float, offload: Offload) -> list[TopBundle] | None:
        """Bundles of the destination to take back, so that both sides end balanced; or None.

        Those looked at are used up, also when the swap fails.
        """
        if self.returnable is None:
            return None
        limit = self.pair.source_throughput
        source = limit - offload.marked + offload.gained - leaving
        destination = self.pair.destination_throughput + offload.marked - offload.gained + leaving
        swapped = []
        for top in self.returnable:
            if not self._is_returnable(top):
                continue
            new_source, new_destination = source + top.throughput, destination - top.throughput
            if not (new_source < limit and new_destination < limit):
                continue
            swapped.append(top)
            source, destination = new_source, new_destination
            if destination <= source < limit * BALANCED_SHARE:
                return swapped
        return None

    def _is_returnable(self, top: TopBundle) -> bool:
        """Pulsar asks nothing else of a swapped bundle: not its owner, nor when it last moved."""
        if not self._is_transferable(top.bundle, self.pair.destination, self.pair.source):
            return False
        return top.throughput != 0

    def _decision(self, bundle: str, source: str, destination: str) -> TransferDecision:
        return TransferDecision(
            source=source, bundle=bundle, destination=destination, reason=self.pair.reason
        )


def _sequential_sum(bundles: Sequence[TopBundle]) -> float:
    total = 0.0
    for top in bundles:
        total += top.throughput
    return total
