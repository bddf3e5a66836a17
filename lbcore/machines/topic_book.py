"""The topic book: hashes and rates of the topics in each bundle, as their holders reported them.

Decides nothing; `topics` takes reports in, `splits` divides them, plans cut between them. Names are
not kept, only what a cut needs. A part of the balancer's state that is packed when it has changed.
Source: ours.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lbcore import packing
from lbcore.model.names import parse_bundle
from lbcore.plan.split.algorithms import TopicLoads


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleTopics:
    """One bundle's topics, k of them in the order of their hashes.

    sender: who reported them, as broker and incarnation; seq: the number of that report. hashes:
    uint32[k]; msg_rate, throughput: float32[k], in and out together, msg/s and bytes/s.
    """

    sender: tuple[str, str]
    seq: int
    hashes: NDArray[np.uint32]
    msg_rate: NDArray[np.float32]
    throughput: NDArray[np.float32]

    def between(self, first: int, end: int) -> "BundleTopics":
        """Those from one place in the order to another."""
        return BundleTopics(
            sender=self.sender,
            seq=self.seq,
            hashes=self.hashes[first:end],
            msg_rate=self.msg_rate[first:end],
            throughput=self.throughput[first:end],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicBook:
    """The topics of all bundles that anything is known of; count: of the topics."""

    bundles: Mapping[str, BundleTopics] = field(default_factory=dict)
    _blobs: list[bytes] = field(default_factory=list, compare=False, repr=False)

    @property
    def count(self) -> int:
        """The number of topics. O(bundles)."""
        return sum(len(topics.hashes) for topics in self.bundles.values())

    def loads_of(self, bundle: str) -> TopicLoads | None:
        """What a plan knows of a bundle's topics; None = nothing."""
        topics = self.bundles.get(bundle)
        if topics is None:
            return None
        return TopicLoads(
            hashes=topics.hashes.astype(np.int64),
            msg_rate=topics.msg_rate.astype(np.float64),
            throughput=topics.throughput.astype(np.float64),
        )

    def without(self, bundles: Iterable[str]) -> "TopicBook":
        """The book without these bundles; the same book when it has none of them."""
        gone = self.bundles.keys() & set(bundles)
        if not gone:
            return self
        left = {name: topics for name, topics in self.bundles.items() if name not in gone}
        return TopicBook(bundles=left)

    def divided(self, parent: str, children: Sequence[str]) -> "TopicBook":
        """The book after a split: each child has those of its parent's topics in its range."""
        topics = self.bundles.get(parent)
        if topics is None:
            return self
        lowers = [parse_bundle(child)[1] for child in sorted(children)]
        starts = np.searchsorted(topics.hashes, np.array(lowers, dtype=np.int64)).tolist()
        ends = [*starts[1:], len(topics.hashes)]
        parts = {
            child: topics.between(first, end)
            for child, first, end in zip(sorted(children), starts, ends, strict=True)
        }
        return TopicBook(bundles={**self.without([parent]).bundles, **parts})

    def pack(self) -> bytes:
        """One chunk, made once a book; equal books give equal bytes."""
        if not self._blobs:
            names = sorted(self.bundles)
            found = [self.bundles[name] for name in names]
            plain = {
                "bundles": [
                    [name, *topics.sender, topics.seq, len(topics.hashes)]
                    for name, topics in zip(names, found, strict=True)
                ]
            }
            nothing = np.empty(0)
            arrays = {
                "hashes": np.concatenate([nothing, *(t.hashes for t in found)]).astype("<u4"),
                "msg_rate": np.concatenate([nothing, *(t.msg_rate for t in found)]).astype("<f4"),
                "throughput": np.concatenate([nothing, *(t.throughput for t in found)]).astype(
                    "<f4"
                ),
            }
            self._blobs.append(packing.pack(plain, arrays))
        return self._blobs[0]

    @staticmethod
    def unpack(blob: bytes | None) -> "TopicBook":
        """The inverse of `pack`; a state from before there was a book has an empty one."""
        if blob is None:
            return TopicBook()
        plain, arrays = packing.unpack(blob)
        bundles, start = {}, 0
        for name, broker, incarnation, seq, count in plain["bundles"]:
            columns = {key: arrays[key][start : start + count] for key in arrays}
            bundles[name] = BundleTopics(sender=(broker, incarnation), seq=seq, **columns)
            start += count
        return TopicBook(bundles=bundles, _blobs=[blob])
