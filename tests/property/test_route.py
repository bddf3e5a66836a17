"""Lookup snapshots and batches against slow references."""

from itertools import pairwise
from random import Random
from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from lbcore.model.bundles import BundleRange, HashFunction, children_of, hash_topic
from lbcore.model.names import FULL_LOWER, FULL_UPPER, InvalidNameError, format_bundle
from lbcore.ownership.records import State
from lbcore.route.batch import BatchIndex
from lbcore.route.bundles import BundleRoute
from lbcore.route.snapshot import LookupSnapshot

NAMESPACES = {"t/crc": HashFunction.CRC32, "t/murmur": HashFunction.MURMUR3_32}
BROKERS = ("b0", "b1", "b2")
moves = st.lists(
    st.tuples(st.sampled_from(["own", "free", "release", "split"]), st.integers(0, 1 << 30)),
    max_size=30,
)


def record(
    namespace: str, ends: tuple[int, int], version: int, state: State, broker: str
) -> BundleRoute:
    is_source = state in (State.FREE, State.DELETED)
    return BundleRoute(
        bundle=format_bundle(namespace, *ends),
        namespace=namespace,
        lower=ends[0],
        upper=ends[1],
        state=state,
        version_id=version,
        source=broker if is_source or state is State.RELEASING else "",
        destination="" if is_source else broker,
    )


class History:
    """The batches of a cluster's life; each leaves every namespace sound."""

    def __init__(self) -> None:
        whole = (0, 0xFFFFFFFF)
        self.now = {(name, whole): (1, State.OWNED, "b0") for name in NAMESPACES}
        self.batches = [[record(name, whole, 1, State.OWNED, "b0") for name in sorted(NAMESPACES)]]

    def play(self, kind: str, choice: int) -> None:
        """One batch more: a live bundle changes its state, or is split."""
        live = sorted(key for key, (_, state, _) in self.now.items() if state != State.DELETED)
        name, ends = live[choice % len(live)]
        version = self.now[name, ends][0] + 1
        broker = BROKERS[choice % len(BROKERS)]
        if kind == "split" and ends[1] - ends[0] > 1:
            middle = (ends[0] + ends[1]) // 2
            batch = [(child, 1, State.OWNED) for child in ((ends[0], middle), (middle, ends[1]))]
            batch.append((ends, version, State.DELETED))
        else:
            states = {"own": State.OWNED, "free": State.FREE, "release": State.RELEASING}
            batch = [(ends, version, states.get(kind, State.OWNED))]
        for key, number, state in batch:
            self.now[name, key] = (number, state, broker)
        self.batches.append([record(name, *row, broker) for row in batch])

    def slow_lookup(self, topic: str) -> tuple[str, str] | None:
        """Bundle and broker by trying every record."""
        name = topic.partition("://")[2].rpartition("/")[0]
        if name not in NAMESPACES:
            return None
        number = hash_topic(NAMESPACES[name], topic)
        for (owner, ends), (version, state, broker) in self.now.items():
            is_live = owner == name and state is not State.DELETED
            if is_live and BundleRange(*ends).includes(number):
                route = record(name, ends, version, state, broker)
                return route.bundle, "" if state is State.FREE else broker
        return None


def history_of(played: list[tuple[str, int]]) -> History:
    history = History()
    for move in played:
        history.play(*move)
    return history


TOPICS = [
    f"{domain}://{name}/x{number}"
    for domain in ("persistent", "non-persistent")
    for name in ("t/crc", "t/murmur", "t/none")
    for number in range(8)
]


@given(moves)
def test_snapshot_answers_as_the_slow_reference_at_every_step(
    played: list[tuple[str, int]],
) -> None:
    found = LookupSnapshot(cluster="c").with_namespaces(NAMESPACES)
    history = History()
    found = found.with_routes(history.batches[0])
    for move in played:
        history.play(*move)
        found = found.with_routes(history.batches[-1])
        assert not found.unsound
    singles = [found.lookup(topic) for topic in TOPICS]
    pairs = [None if route is None else (route.bundle, route.broker) for route in singles]
    assert pairs == [history.slow_lookup(topic) for topic in TOPICS]
    index = BatchIndex(found)
    batched = [index.routes[at] if at >= 0 else None for at in index.find(TOPICS).tolist()]
    assert batched == singles


@given(moves, st.randoms(use_true_random=False))
def test_events_in_any_order_and_doubled_equal_a_load_from_scratch(
    played: list[tuple[str, int]], generator: Random
) -> None:
    batches = history_of(played).batches
    events = [route for batch in batches for route in batch]
    whole = LookupSnapshot(cluster="c").with_routes(events).with_namespaces(NAMESPACES)
    shuffled = [*events, *events[::2]]
    generator.shuffle(shuffled)
    piecemeal = LookupSnapshot(cluster="c").with_namespaces(NAMESPACES)
    for route in shuffled:
        piecemeal = piecemeal.with_routes([route])
    assert piecemeal.namespaces == whole.namespaces
    assert dict(piecemeal.hash_indexes) == dict(whole.hash_indexes)
    assert piecemeal.unsound == whole.unsound == {}


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
