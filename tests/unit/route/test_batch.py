"""Lookups of whole arrays equal lookups one by one."""

import random
from itertools import pairwise

import pytest

from lbcore.model.bundles import even_boundaries
from lbcore.model.hashing import HashFunction
from lbcore.model.names import format_bundle
from lbcore.route.batch import BatchIndex
from lbcore.route.snapshot import LookupSnapshot
from tests.unit.route.test_bundles import route

CROWDED = tuple(range(0, 4096, 2))
"""Many bundles within one cell of the search table: found by bisection."""


def build(boundaries: tuple[int, ...], murmur_share: float) -> LookupSnapshot:
    functions = [HashFunction.CRC32, HashFunction.MURMUR3_32]
    hashes = {f"t/n{number}": functions[number < 10 * murmur_share] for number in range(10)}
    routes = [
        route(format_bundle(name, *ends), destination=f"b{ends[0] % 7}")
        for name in hashes
        for ends in pairwise(boundaries)
    ]
    return LookupSnapshot(cluster="c").with_namespaces(hashes).with_routes(routes)


@pytest.mark.parametrize("murmur_share", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize(
    "boundaries", [even_boundaries(1), even_boundaries(16), (*CROWDED, 0xFFFFFFFF)]
)
def test_batch_equals_single_lookups(boundaries: tuple[int, ...], murmur_share: float) -> None:
    found = build(boundaries, murmur_share)
    generator = random.Random(7)
    topics = [
        f"{generator.choice(['', 'non-'])}persistent://t/n{generator.randrange(12)}/x{number}"
        for number in range(500)
    ]
    topics += ["t/n3/short", "no topic at all/", "persistent://t/n4/\udc00", ""]
    index = BatchIndex(found)
    singles = [found.lookup(topic) for topic in topics[:-3]] + [None]
    singles += [found.lookup(topics[-2]), None]
    positions = index.find(topics).tolist()
    assert [index.routes[at] if at >= 0 else None for at in positions] == singles
    brokers = index.find_brokers(topics).tolist()
    assert brokers == [single.broker if single else "" for single in singles]


def test_batch_over_an_empty_snapshot_finds_nothing() -> None:
    index = BatchIndex(LookupSnapshot(cluster="c"))
    assert index.find(["persistent://t/n/x", "y"]).tolist() == [-1, -1]
    assert index.find([]).tolist() == []
