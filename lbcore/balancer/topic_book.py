"""Topics: those that brokers report of each bundle, and those that were created.

Plans cut bundles between topics and see which partitions belong together. Names of reported topics
are not kept.
"""

import json
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lbcore import packing
from lbcore.balancer.book import set_or_drop
from lbcore.balancer.effects import to_json
from lbcore.model.names import namespace_of_topic, parse_bundle, whole_topic
from lbcore.plan.split.algorithms import TopicLoads
from lbcore.wire.kinds.namespace_commands import RECORD_TYPES, TOPIC, read_value

MAX_TOPICS = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """Tenants and topics that exist without a bundle's record.

    Table `records` has the same; the balancer keeps them because it alone writes. by_type: type →
    name → value, as `read_value` gives it.
    """

    by_type: Mapping[str, dict[str, Any]] = field(
        default_factory=lambda: {name: {} for name in RECORD_TYPES}
    )

    @staticmethod
    def from_rows(rows: Iterable[Mapping[str, Any]]) -> "Catalog":
        """Read rows of table `records`. Raises ValueError for invalid ones."""
        found = Catalog()
        for row in rows:
            if not row["is_deleted"]:
                kind = row["record_type"]
                found.by_type[kind][row["name"]] = read_value(kind, json.loads(row["value"]))
        return found


class OpenCatalog:
    """Records during one batch.

    A change is O(1), the first of a type copies it.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._before = catalog
        self._by_type = dict(catalog.by_type)
        self._topics: dict[str, dict[str, int]] | None = None

    def of(self, record_type: str) -> Mapping[str, Any]:
        """Name → value of all records of a type."""
        return self._by_type[record_type]

    def set(self, record_type: str, name: str, value: Any) -> dict[str, Any]:
        """Set a record, or (None) remove it; return the row of table `records`."""
        if self._by_type[record_type] is self._before.by_type[record_type]:
            self._by_type[record_type] = dict(self._by_type[record_type])
        set_or_drop(self._by_type[record_type], name, value)
        if record_type == TOPIC and self._topics is not None:
            set_or_drop(self._topics.setdefault(namespace_of_topic(name), {}), name, value)
        return {
            "record_type": record_type,
            "name": name,
            "value": to_json(value),
            "is_deleted": value is None,
        }

    def topics_of(self, namespace: str) -> Mapping[str, int]:
        """Return a namespace's topics, unordered. O(1), after one call of O(topics)."""
        if self._topics is None:
            self._topics = {}
            for name, partitions in self.of(TOPIC).items():
                self._topics.setdefault(namespace_of_topic(name), {})[name] = partitions
        return self._topics.get(namespace, {})

    def close(self) -> Catalog:
        """The records as they are now; the same object when nothing has changed."""
        before = self._before.by_type
        is_same = all(self._by_type[name] is before[name] for name in before)
        return self._before if is_same else Catalog(by_type=self._by_type)


_CHUNK = "topics."
_CHUNKS = 16
_HEADER = struct.Struct("<qQ")
_COLUMNS: Mapping[str, str] = {"hashes": "<u4", "msg_rate": "<f4", "throughput": "<f4", "of": "<u4"}
_TOPIC_SIZE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleTopics:
    """One bundle's topics, k of them in the order of their hashes.

    sender: which start of which broker reported them, see `sender_of`; seq: the number of that
    report. hashes: uint32[k]; msg_rate, throughput: float32[k], in and out together, msg/s and
    bytes/s. of: uint32[k], the partitioned topic that it is a partition of, see `partition_mark`.
    """

    sender: int
    seq: int
    hashes: NDArray[np.uint32]
    msg_rate: NDArray[np.float32]
    throughput: NDArray[np.float32]
    of: NDArray[np.uint32]

    def to_bytes(self) -> bytes:
        """A fixed header and four columns: 16 bytes and 16 for each topic."""
        of = (getattr(self, name).astype(dtype, copy=False) for name, dtype in _COLUMNS.items())
        return b"".join([_HEADER.pack(self.seq, self.sender), *(one.tobytes() for one in of)])

    @staticmethod
    def from_bytes(entry: bytes) -> "BundleTopics":
        """The inverse of `to_bytes`."""
        seq, sender = _HEADER.unpack_from(entry)
        count = (len(entry) - _HEADER.size) // _TOPIC_SIZE
        columns = {
            name: np.frombuffer(entry, dtype, count, _HEADER.size + 4 * count * at)
            for at, (name, dtype) in enumerate(_COLUMNS.items())
        }
        return BundleTopics(sender=sender, seq=seq, **columns)


def sender_of(broker: str, incarnation: str) -> int:
    """A start of a broker as a number of 64 bits."""
    return int.from_bytes(
        blake2b(f"{broker}\n{incarnation}".encode(), digest_size=8).digest(), "big"
    )


NO_PARTITION = 0


def partition_mark(topic: str) -> int:
    """Return the mark of a partition's topic, 1 .. 2^32-1; else NO_PARTITION.

    A segment counts as a partition of its scalable topic.
    """
    whole = whole_topic(topic)
    return NO_PARTITION if whole == topic else zlib.crc32(whole.encode("utf-8", "replace")) or 1


_NONE = np.zeros(0, dtype=np.int64)


KnownPartitions: TypeAlias = tuple[list[str], NDArray[np.int64], NDArray[np.int64]]
"""k pairs of a bundle and a partitioned topic that has partitions in it.

Bundles; int64[k], `partition_mark` of each topic; int64[k], how many partitions, at least 1.
"""


@dataclass(frozen=True, kw_only=True)
class _Chunk:
    """Some of the bundles: name → bytes of its topics.

    Its properties are computed once.
    """

    entries: Mapping[str, bytes]

    @cached_property
    def count(self) -> int:
        """The number of topics."""
        size = sum(map(len, self.entries.values())) - _HEADER.size * len(self.entries)
        return size // _TOPIC_SIZE

    @cached_property
    def partitions(self) -> KnownPartitions:
        """The partitions of all its bundles."""
        names: list[str] = []
        marks, counts = [_NONE], [_NONE]
        for name in sorted(self.entries):
            of = BundleTopics.from_bytes(self.entries[name]).of
            found, times = np.unique(of[of != NO_PARTITION], return_counts=True)
            names += [name] * len(found)
            marks.append(found.astype(np.int64))
            counts.append(times)
        return names, np.concatenate(marks), np.concatenate(counts)

    @cached_property
    def blob(self) -> bytes:
        """The packed chunk; equal chunks give equal bytes."""
        names = sorted(self.entries)
        found = [self.entries[name] for name in names]
        arrays = {
            "names": packing.join_names(names),
            "sizes": np.fromiter(map(len, found), dtype="<i8", count=len(found)),
            "entries": np.frombuffer(b"".join(found), dtype=np.uint8),
        }
        return packing.pack({"topics": self.count}, arrays)

    @staticmethod
    def of_blob(blob: bytes) -> "_Chunk":
        """The inverse of `blob`, which it keeps."""
        _, arrays = packing.unpack(blob)
        whole, ends = arrays["entries"].tobytes(), np.cumsum(arrays["sizes"]).tolist()
        names = packing.split_names(arrays["names"], len(ends))
        parts = zip(names, [0, *ends[:-1]], ends, strict=True)
        chunk = _Chunk(entries={name: whole[start:end] for name, start, end in parts})
        vars(chunk)["blob"] = blob
        return chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicBook:
    """The reported topics of all bundles.

    Only changed chunks are packed again, so that reports of some bundles don't cost as much as all.
    """

    chunks: Mapping[int, _Chunk] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The number of topics."""
        return sum(chunk.count for chunk in self.chunks.values())

    @property
    def bundles(self) -> int:
        """The number of bundles with a report, also one of no topics."""
        return sum(len(chunk.entries) for chunk in self.chunks.values())

    def topics_of(self, bundle: str) -> BundleTopics | None:
        """Return the reported topics of a bundle; None = nothing reported."""
        chunk = self.chunks.get(_chunk_of(bundle))
        entry = None if chunk is None else chunk.entries.get(bundle)
        return None if entry is None else BundleTopics.from_bytes(entry)

    def loads_of(self, bundle: str) -> TopicLoads | None:
        """Return the topic loads of a bundle, as a plan reads them; None = nothing known."""
        topics = self.topics_of(bundle)
        if topics is None:
            return None
        return TopicLoads(
            hashes=topics.hashes.astype(np.int64),
            msg_rate=topics.msg_rate.astype(np.float64),
            throughput=topics.throughput.astype(np.float64),
        )

    def partitions(self) -> KnownPartitions:
        """Return the partitions of all bundles.

        O(answer), and O(topics) of what changed since the last call.
        """
        found = [self.chunks[at].partitions for at in sorted(self.chunks)]
        names, marks, counts = zip(([], _NONE, _NONE), *found, strict=True)
        return [*chain(*names)], np.concatenate(marks), np.concatenate(counts)

    def changed(self, bundles: Mapping[str, BundleTopics | None]) -> "TopicBook":
        """Return the book with these topics, or (None) without; itself if none given.

        O(bundles in the chunks that change).
        """
        if not bundles:
            return self
        opened: dict[int, dict[str, bytes]] = {}
        for bundle, topics in sorted(bundles.items()):
            at = _chunk_of(bundle)
            if at not in opened:
                opened[at] = dict(self.chunks[at].entries) if at in self.chunks else {}
            set_or_drop(opened[at], bundle, topics and topics.to_bytes())
        chunks = {**self.chunks, **{at: _Chunk(entries=opened[at]) for at in opened}}
        return TopicBook(chunks={at: chunk for at, chunk in chunks.items() if chunk.entries})

    def without(self, bundles: Iterable[str]) -> "TopicBook":
        """The book without these bundles; the same book when it has none of them."""
        known = (name for name in bundles if self.topics_of(name) is not None)
        return self.changed(dict.fromkeys(known))

    def divided(self, parent: str, children: Sequence[str]) -> "TopicBook":
        """Return the book after a split: children have the parent's topics in their range."""
        topics = self.topics_of(parent)
        if topics is None:
            return self
        lowers = [parse_bundle(child)[1] for child in sorted(children)]
        starts = np.searchsorted(topics.hashes, np.array(lowers, dtype=np.int64)).tolist()
        ends = [*starts[1:], len(topics.hashes)]
        parts = zip(sorted(children), starts, ends, strict=True)
        known = {
            child: replace(topics, **{name: getattr(topics, name)[first:end] for name in _COLUMNS})
            for child, first, end in parts
        }
        return self.changed({parent: None, **known})

    def joined(self, parents: Sequence[str], child: str) -> "TopicBook":
        """The book after a merge: the child has its parents' topics.

        It has none where two brokers reported them. parents: ascending.
        """
        known = [one for parent in parents if (one := self.topics_of(parent)) is not None]
        together = None
        if len(known) == len(parents) and len({topics.sender for topics in known}) == 1:
            together = BundleTopics(
                sender=known[0].sender,
                seq=max(topics.seq for topics in known),
                **{
                    name: np.concatenate([getattr(topics, name) for topics in known])
                    for name in _COLUMNS
                },
            )
        return self.without(parents).changed({child: together})

    def pack(self) -> dict[str, bytes]:
        """Chunks by name, each made once; equal books give equal bytes."""
        return {f"{_CHUNK}{at}": self.chunks[at].blob for at in sorted(self.chunks)}

    @staticmethod
    def unpack(chunks: Mapping[str, bytes]) -> "TopicBook":
        """The inverse of `pack`."""
        found = {
            int(name.removeprefix(_CHUNK)): _Chunk.of_blob(chunks[name])
            for name in sorted(chunks)
            if name.startswith(_CHUNK)
        }
        return TopicBook(chunks=found)


def _chunk_of(bundle: str) -> int:
    return zlib.crc32(bundle.encode()) % _CHUNKS
