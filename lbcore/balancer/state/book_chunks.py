"""Brokers, namespaces, commands and settings as packed chunks: what reports change apart from it.

Decides what a batch packs again: a tenth of 1,000 brokers report in each, so their loads are arrays
that are cheap to pack, and their names and addresses another chunk, packed when one of them
changes. Source: ours.
"""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import numpy as np

from lbcore import packing
from lbcore.balancer.state.book import (
    BrokerEntry,
    NamespaceEntry,
    broker_from_plain,
    namespace_from_plain,
)
from lbcore.balancer.state.memo import Memo, remembered
from lbcore.model.resources import COUNT

_BOOK, _BROKERS, _LOADS = "book", "brokers", "brokers.loads"
_LOAD_FIELDS: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "reported_ms": ("<i8", ()),
    "percent": ("<f8", (COUNT,)),
    "traffic": ("<f8", (4,)),
    "weighted_max_ema": ("<f8", ()),
    "throughput_ema": ("<f8", ()),
    "topic_count": ("<i8", ()),
    "bundle_count": ("<i8", ()),
}
_FIXED = tuple(name for name in BrokerEntry.__dataclass_fields__ if name not in _LOAD_FIELDS)
_fixed_of = attrgetter(*_FIXED)

Brokers = Mapping[str, BrokerEntry]
Namespaces = Mapping[str, NamespaceEntry]


def pack_brokers(brokers: Brokers, memo: Memo) -> Mapping[str, bytes]:
    """Their chunks by name. O(brokers)."""
    names = sorted(brokers)
    entries = [brokers[name] for name in names]
    loads = {
        field: np.array([getattr(entry, field) for entry in entries], dtype=dtype).reshape(
            len(entries), *shape
        )
        for field, (dtype, shape) in _LOAD_FIELDS.items()
    }
    fixed = dict(zip(names, map(_fixed_of, entries), strict=True))

    def made() -> bytes:
        plain = {name: dict(zip(_FIXED, values, strict=True)) for name, values in fixed.items()}
        return packing.pack(plain, {})

    return {_BROKERS: remembered(memo, _BROKERS, fixed, made), _LOADS: packing.pack({}, loads)}


def pack_book(
    namespaces: Namespaces, commands: Mapping[str, str], settings: Mapping[str, Any], memo: Memo
) -> Mapping[str, bytes]:
    """Their chunk by its name. O(namespaces + commands)."""
    latest = list(commands.items())  # their order is part of the state

    def made() -> bytes:
        entries = {name: packing.fields_of(entry) for name, entry in namespaces.items()}
        plain = {"namespaces": entries, "commands": latest, "settings": dict(settings)}
        return packing.pack(plain, {})

    return {_BOOK: remembered(memo, _BOOK, (namespaces, latest, settings), made)}


def unpack_brokers(chunks: Mapping[str, bytes]) -> dict[str, BrokerEntry]:
    """The inverse of `pack_brokers`, also for older states. Raises MalformedBlobError."""
    if _BROKERS not in chunks:
        entries = packing.unpack(chunks[_BOOK])[0]["brokers"]
        return {name: broker_from_plain(plain) for name, plain in entries.items()}
    fixed, _ = packing.unpack(chunks[_BROKERS])
    _, arrays = packing.unpack(chunks[_LOADS])
    loads = zip(*(arrays[field].tolist() for field in _LOAD_FIELDS), strict=True)
    return {
        name: broker_from_plain({**fixed[name], **dict(zip(_LOAD_FIELDS, load, strict=True))})
        for name, load in zip(sorted(fixed), loads, strict=True)
    }


def unpack_book(
    chunks: Mapping[str, bytes],
) -> tuple[dict[str, NamespaceEntry], dict[str, str], Mapping[str, Any]]:
    """Namespaces, commands and settings as packed. Raises MalformedBlobError."""
    plain, _ = packing.unpack(chunks[_BOOK])
    namespaces = {name: namespace_from_plain(p) for name, p in plain["namespaces"].items()}
    return namespaces, dict(plain["commands"]), plain["settings"]
