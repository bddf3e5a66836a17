"""A snapshot against a slow reference, and any order of events against one load."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from lbcore.model.bundles import BundleRange
from lbcore.model.hashing import HashFunction, hash_topic
from lbcore.model.names import format_bundle
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
    assert dict(piecemeal.lanes) == dict(whole.lanes)
    assert piecemeal.unsound == whole.unsound == {}
