"""Lookups in batches against lookups one by one, for any layout, any splits and any name."""

from itertools import pairwise
from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from lbcore.model.bundles import BundleRange, children_of
from lbcore.model.hashing import HashFunction, hash_topic
from lbcore.model.names import FULL_LOWER, FULL_UPPER, InvalidNameError, format_bundle
from lbcore.ownership.records import State
from lbcore.route.batch import BatchIndex
from lbcore.route.bundles import BundleRoute
from lbcore.route.snapshot import LookupSnapshot

NAMES = ("t/n0", "t/n1", "t/n2", "t/c/v1")

hashes = st.integers(FULL_LOWER + 1, FULL_UPPER - 1)
crowded = st.integers(1, 4_000)
"""Boundaries so near to each other that many lie in one cell of the search table."""

Layout: TypeAlias = dict[str, tuple[HashFunction, set[int], list[int]]]
"""Of some namespaces: hash, inner boundaries (none: no bundle is known), which is split when."""

layouts: st.SearchStrategy[Layout] = st.dictionaries(
    st.sampled_from(NAMES),
    st.tuples(
        st.sampled_from(HashFunction),
        st.one_of(st.just(set[int]()), st.sets(st.one_of(hashes, crowded), max_size=60)),
        st.lists(st.integers(0, 1 << 20), max_size=6),
    ),
)

locals_ = st.text(st.characters(), min_size=1, max_size=12)
topics = st.one_of(
    st.builds(
        "{}://{}/{}".format,
        st.sampled_from(["persistent", "non-persistent", "Persistent", "other"]),
        st.sampled_from([*NAMES, "t/none", "public/default"]),
        locals_,
    ),
    st.builds("{}/{}".format, st.sampled_from(NAMES), locals_),
    st.text(st.characters(), max_size=12),
)


def split(ranges: list[BundleRange], choice: int) -> None:
    """Put two halves in the place of one range."""
    target = ranges[choice % len(ranges)]
    if target.can_split:
        ranges.remove(target)
        ranges += children_of(target, [(target.lower + target.upper) // 2])


def cut_at(found: Layout, asked: list[str]) -> None:
    """Let bundles begin and end at the very hashes of the topics that are asked for."""
    for topic in asked:
        name = topic.partition("://")[2].rpartition("/")[0]
        if name in found:
            function, inner, _ = found[name]
            inner |= {hash_topic(function, topic)} - {FULL_LOWER, FULL_UPPER}


def snapshot_of(found: Layout) -> LookupSnapshot:
    """Each live bundle is owned by a broker of its own."""
    routes = []
    for name, (_, inner, splits) in found.items():
        ends = (FULL_LOWER, *sorted(inner), FULL_UPPER)
        ranges = [BundleRange(*one) for one in pairwise(ends)] if inner else []
        for choice in splits if ranges else ():
            split(ranges, choice)
        routes += [
            BundleRoute(
                bundle=format_bundle(name, one.lower, one.upper),
                namespace=name,
                lower=one.lower,
                upper=one.upper,
                state=State.OWNED,
                version_id=1,
                destination=f"broker of {name}/{one.text}",
            )
            for one in ranges
        ]
    functions = {name: function for name, (function, _, _) in found.items()}
    return LookupSnapshot(cluster="c").with_namespaces(functions).with_routes(routes)


def one_by_one(snapshot: LookupSnapshot, topic: str) -> BundleRoute | None:
    """As the batch has it, where what is no name is told like what nobody has."""
    try:
        return snapshot.lookup(topic)
    except InvalidNameError:
        return None


@given(found=layouts, asked=st.lists(topics, max_size=40), is_cut=st.booleans())
def test_batch_of_any_names_on_any_layout_equals_lookups_one_by_one(
    *, found: Layout, asked: list[str], is_cut: bool
) -> None:
    if is_cut:
        cut_at(found, asked)
    snapshot = snapshot_of(found)
    assert not snapshot.unsound
    singles = [one_by_one(snapshot, topic) for topic in asked]
    index = BatchIndex(snapshot)
    positions = index.find(asked).tolist()
    assert [index.routes[at] if at >= 0 else None for at in positions] == singles
    brokers = index.find_brokers(asked).tolist()
    assert brokers == [single.broker if single else "" for single in singles]
