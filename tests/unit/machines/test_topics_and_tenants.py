"""Tenants, topics and reserved rows that the balancer keeps."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lbcore.balancer.balancer import ClusterBalancer
from lbcore.balancer.decisions.placement import partitions_of
from lbcore.balancer.intake.intake import take_topics
from lbcore.balancer.state.batch_context import BalancerState, BatchContext
from lbcore.balancer.state.ledger import Ledger
from lbcore.balancer.state.topic_book import (
    NO_PARTITION,
    BundleTopics,
    Records,
    TopicBook,
    partition_mark,
    sender_of,
)
from lbcore.config.pipeline import Pipeline
from lbcore.config.tree import Config
from lbcore.model.bundles import HashFunction, hash_topic
from lbcore.scorer.group_update import Arrivals, GroupUpdate, Placed
from lbcore.wire.messages import Command, Envelope, Position, TopicLoad
from tests.support.worlds.world import CLUSTER, World

NAMESPACE = "acme/ns1"


@pytest.fixture
def world() -> World:
    """A cluster with one namespace."""
    made = World(Config(), 1, seed=3)
    made.run(2_000)
    ask(made, "create_namespace", namespace=NAMESPACE, bundles=1)
    return made


def ask(world: World, kind: str, **arguments: Any) -> tuple[str, str]:
    """Status and reason of a command."""
    command_id = world.command(kind, **arguments)
    world.run(3_000)
    (row,) = [row for row in world.other_rows["commands"] if row["command_id"] == command_id]
    return row["status"], row["reason"]


def kept(world: World) -> Records:
    assert world.state is not None
    return world.state.records


def test_tenant_is_made_once_changed_and_deleted(world: World) -> None:
    roles = {"admin_roles": ["ops"], "allowed_clusters": ["c1"]}
    assert ask(world, "create_record", record_type="tenant", name="other", value=roles) == (
        "done",
        "",
    )
    status, reason = ask(world, "create_record", record_type="tenant", name="other")
    assert (status, reason) == (
        "refused",
        "tenant other exists already; change it with update_record",
    )
    assert ask(
        world, "update_record", record_type="tenant", name="other", value={"admin_roles": ["dev"]}
    ) == ("done", "")
    value = {"admin_roles": ["dev"], "allowed_clusters": []}
    assert kept(world).by_type["tenant"] == {"other": value}
    assert ask(world, "delete_record", record_type="tenant", name="other") == ("done", "")
    assert kept(world).by_type["tenant"] == {}
    assert ask(world, "delete_record", record_type="tenant", name="other")[0] == "refused"


def test_tenant_with_a_namespace_exists_and_stays(world: World) -> None:
    assert ask(
        world, "update_record", record_type="tenant", name="acme", value={"admin_roles": ["dev"]}
    ) == ("done", "")
    status, reason = ask(world, "delete_record", record_type="tenant", name="acme")
    assert (status, "acme/ns1" in reason) == ("refused", True)
    assert ask(world, "update_record", record_type="tenant", name="nobody")[0] == "refused"


@pytest.mark.parametrize(
    ("kind", "arguments", "why"),
    [
        ("create_record", {"name": "persistent://acme/none/t"}, "no namespace"),
        ("create_record", {"name": f"persistent://{NAMESPACE}/t-partition-1"}, "exists already"),
        (
            "create_record",
            {"name": f"persistent://{NAMESPACE}/u-partition-1", "value": 2},
            "name of a partition",
        ),
        ("create_record", {"name": f"persistent://{NAMESPACE}/t"}, "exists already"),
        ("update_record", {"name": f"persistent://{NAMESPACE}/t", "value": 3}, "4 partitions"),
        ("update_record", {"name": f"persistent://{NAMESPACE}/u", "value": 3}, "create it"),
        ("delete_record", {"name": f"persistent://{NAMESPACE}/u"}, "no topic"),
    ],
)
def test_topic_that_does_not_fit_is_refused(
    world: World, kind: str, arguments: Mapping[str, Any], why: str
) -> None:
    ask(world, "create_record", record_type="topic", name=f"persistent://{NAMESPACE}/t", value=4)
    status, reason = ask(world, kind, record_type="topic", **arguments)
    assert status == "refused"
    assert why in reason


def test_records_survive_a_restart_and_a_rebuild(world: World) -> None:
    topic = f"persistent://{NAMESPACE}/t"
    ask(world, "create_record", record_type="tenant", name="other", value={"admin_roles": ["ops"]})
    ask(world, "create_record", record_type="tenant", name="gone")
    ask(world, "delete_record", record_type="tenant", name="gone")
    ask(world, "create_record", record_type="topic", name=topic, value=4)
    ask(world, "update_record", record_type="topic", name=topic, value=8)
    ask(world, "create_record", record_type="topic", name=f"{topic}2")
    ask(world, "delete_record", record_type="topic", name=f"{topic}2")
    value = {"admin_roles": ["ops"], "allowed_clusters": []}
    wanted = Records(by_type={"tenant": {"other": value}, "topic": {topic: 8}})
    assert kept(world) == wanted
    world.restart_job()
    assert kept(world) == wanted
    world.rebuild_job()
    assert kept(world) == wanted


@pytest.mark.parametrize(
    ("record_type", "name", "value", "why"),
    [
        ("tenant", "a/b", None, "letters"),
        ("tenant", "a", 3, "admin_roles"),
        ("tenant", "a", {"roles": []}, "admin_roles"),
        ("tenant", "a", {"admin_roles": [1]}, "a string"),
        ("topic", "t", 0, "full name"),
        ("topic", f"persistent://{NAMESPACE}/t", -1, "negative"),
        ("topic", f"persistent://{NAMESPACE}/t", True, "whole number"),
        ("topic", f"persistent://{NAMESPACE}/t", {"partitions": 1}, "whole number"),
        ("namespace", NAMESPACE, None, "one of"),
    ],
)
def test_name_or_value_that_its_type_cannot_have_is_refused(
    world: World, record_type: str, name: str, value: Any, why: str
) -> None:
    before = kept(world)
    arguments = {"record_type": record_type, "name": name, "value": value}
    status, reason = ask(world, "create_record", **arguments)
    assert (status, why in reason) == ("refused", True), reason
    assert kept(world) is before


def after(state: BalancerState | None, *asked: Mapping[str, Any]) -> BalancerState:
    placed = tuple(
        Placed(
            position=Position(topic="commands", partition=0, offset=i, timestamp_ms=0),
            message=Command(
                cluster="c", command_id=f"{len(asked)}-{i}", kind="create_namespace", arguments=a
            ),
        )
        for i, a in enumerate(asked)
    )
    none = np.empty(0, dtype=np.int64)
    arrivals = Arrivals(partition=none, offset=none, timestamp_ms=none, broker=none)
    update = GroupUpdate(
        group=0, brokers=(), incarnations=(), arrivals=arrivals, loads=(), bundles=(), placed=placed
    )
    step = ClusterBalancer(cluster="c", config=Config()).step(state, [update], 1_000)
    assert step.state is not None
    return step.state


def spaces(count: int) -> list[dict[str, Any]]:
    return [{"namespace": f"t/n{count - i}", "bundles": 4} for i in range(count)]


@pytest.mark.parametrize("count", [2, 40])
def test_many_namespaces_of_a_batch_add_their_rows_at_once(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown: list[int] = []
    original = Ledger.add

    def counted(self: Ledger, names: Iterable[str]) -> None:
        before = len(self)
        original(self, names)
        grown.extend([len(self)] * (len(self) > before))

    monkeypatch.setattr(Ledger, "add", counted)
    state = after(None, *spaces(count))
    assert grown == [4 * count]
    assert all(state.ledger.record(name) is not None for name in state.ledger.names)


def test_namespaces_created_together_are_the_same_as_one_after_another() -> None:
    together = after(None, *spaces(3))
    alone: BalancerState | None = None
    for number, space in enumerate(spaces(3)):
        alone = after(alone, *[{"namespace": "bad"}] * (number + 4), space)
    assert alone is not None
    assert alone.ledger.names == together.ledger.names
    assert [alone.ledger.version.tolist(), alone.ledger.state.tolist()] == [
        together.ledger.version.tolist(),
        together.ledger.state.tolist(),
    ]


def test_rows_for_namespaces_that_are_refused_are_taken_back() -> None:
    before = after(None, {"namespace": "t/a", "bundles": 2})
    asked = [
        {"namespace": "t/a", "bundles": 4},
        {"namespace": "t/c", "bundles": 3},
        {"namespace": "t/c", "bundles": 5},
    ]
    names = after(before, *asked).ledger.names
    assert [name for name in names if name.startswith("t/a")] == before.ledger.names
    assert len([name for name in names if name.startswith("t/c")]) == 3
    assert len(names) == 5


PARENT = "t/n/0x00000000_0xffffffff"
CHILDREN = ("t/n/0x00000000_0x40000000", "t/n/0x40000000_0xffffffff")
NAMES = tuple(f"persistent://t/n/topic-{number}" for number in range(6))


def topics(*hashes: int, seq: int = 1) -> BundleTopics:
    rates = np.arange(1, len(hashes) + 1, dtype=np.float32)
    return BundleTopics(
        sender=sender_of("b:1", "b/1"),
        seq=seq,
        hashes=np.array(hashes, dtype=np.uint32),
        msg_rate=rates,
        throughput=rates * 1_000,
        of=np.array(hashes, dtype=np.uint32) % 3,
    )


def partitions_in(book: TopicBook) -> dict[tuple[str, int], int]:
    """Bundle and mark → how many."""
    known = book.partitions()
    pairs = zip(known.bundles, known.marks.tolist(), strict=True)
    return dict(zip(pairs, known.counts.tolist(), strict=True))


def test_book_knows_what_it_was_given_also_after_packing() -> None:
    book = TopicBook().changed({PARENT: topics(5, 0x40000000, 0xFFFFFFFF, seq=7)})
    for known in (book, TopicBook.unpack(book.pack())):
        assert known.count == 3
        loads = known.loads_of(PARENT)
        assert loads is not None
        assert loads.hashes.tolist() == [5, 0x40000000, 0xFFFFFFFF]
        assert loads.msg_rate.tolist() == [1, 2, 3]
        assert loads.throughput.tolist() == [1_000, 2_000, 3_000]
        kept = known.topics_of(PARENT)
        assert kept is not None
        assert (kept.seq, kept.sender) == (7, sender_of("b:1", "b/1"))
    assert TopicBook.unpack(book.pack()) == book


def test_equal_books_give_equal_bytes_whatever_their_history() -> None:
    names = [f"t/n{number}/0x00000000_0xffffffff" for number in range(40)]
    at_once = TopicBook().changed(dict.fromkeys(names, topics(3, 4)))
    step_by_step = TopicBook()
    for name in reversed(names):
        step_by_step = step_by_step.changed({name: topics(9)}).changed({name: topics(3, 4)})
    assert step_by_step.pack() == at_once.pack()
    assert step_by_step.count == at_once.count == 80
    assert step_by_step.without(names).pack() == {}


def test_partitions_are_told_by_bundle_and_topic_and_go_with_the_children_of_a_split() -> None:
    book = TopicBook().changed({PARENT: topics(1, 3, 4, 0x40000000, 0x40000003)})
    assert partitions_in(book) == {(PARENT, 1): 4}  # of 3 nobody is a partition
    divided = book.divided(PARENT, CHILDREN)
    assert partitions_in(divided) == {(CHILDREN[0], 1): 2, (CHILDREN[1], 1): 2}
    assert partitions_in(TopicBook.unpack(divided.pack())) == partitions_in(divided)
    assert partitions_in(divided.changed({CHILDREN[0]: None})) == {(CHILDREN[1], 1): 2}


def test_change_of_one_bundle_packs_its_chunk_only() -> None:
    names = [f"t/n{number}/0x00000000_0xffffffff" for number in range(200)]
    book = TopicBook().changed(dict.fromkeys(names, topics(3, 4)))
    before, after = book.pack(), book.changed({names[0]: topics(5)}).pack()
    assert before.keys() == after.keys()
    assert sum(before[name] is not after[name] for name in before) == 1


def test_book_that_nothing_is_taken_from_stays_itself() -> None:
    book = TopicBook().changed({PARENT: topics(1)})
    assert book.without(["t/other/0x00000000_0xffffffff"]) is book
    assert book.divided("t/other/0x00000000_0xffffffff", CHILDREN) is book


def test_children_get_the_topics_in_their_range_and_the_boundary_falls_in_the_upper() -> None:
    book = TopicBook().changed({PARENT: topics(0, 0x3FFFFFFF, 0x40000000, 0xFFFFFFFF)})
    divided = book.divided(PARENT, CHILDREN)
    assert divided.loads_of(PARENT) is None
    found = [divided.loads_of(child) for child in CHILDREN]
    assert [loads.hashes.tolist() for loads in found if loads] == [
        [0, 0x3FFFFFFF],
        [0x40000000, 0xFFFFFFFF],
    ]
    assert divided.count == 4


@pytest.fixture
def work() -> BatchContext:
    """A cluster with one bundle, opened for a batch."""
    world = World(Config(), 2, seed=3)
    world.run(2_000)
    world.append(
        Command(
            cluster=CLUSTER,
            command_id="c",
            kind="create_namespace",
            arguments={"namespace": "t/n", "bundles": 1},
        )
    )
    world.run(20_000)
    assert world.state is not None
    return BatchContext.on(world.state, Config(), "v", world.now_ms)


def report(
    work: BatchContext, names: tuple[str, ...] = NAMES, *, seq: int, rate: float = 1.0
) -> TopicLoad:
    record = work.ledger.record(PARENT)
    assert record is not None
    envelope = Envelope(
        cluster=CLUSTER,
        broker=record.destination,
        incarnation=record.destination_incarnation,
        seq=seq,
        reported_at_ms=0,
    )
    traffic = np.full((len(names), 4), rate)
    return TopicLoad(envelope=envelope, bundle=PARENT, topics=names, traffic=traffic)


def counted(work: BatchContext, *messages: TopicLoad) -> dict[str, int]:
    work.counts.clear()
    take_topics(work, messages)
    return {name.removeprefix("topics:"): count for name, count in work.counts.items()}


def test_report_of_the_holder_is_taken_in_the_order_of_its_hashes(work: BatchContext) -> None:
    assert counted(work, report(work, seq=4)) == {"taken": 1}
    loads = work.topics.loads_of(PARENT)
    assert loads is not None
    expected = sorted(hash_topic(HashFunction.CRC32, name) for name in NAMES)
    assert loads.hashes.tolist() == expected
    assert loads.msg_rate.tolist() == [2.0] * len(NAMES)


def test_reports_that_are_late_foreign_or_unknown_change_nothing(work: BatchContext) -> None:
    assert counted(work, report(work, seq=4)) == {"taken": 1}
    before = work.topics
    late = report(work, NAMES[:2], seq=3)
    own = report(work, NAMES[:3], seq=9)
    other = next(n for n in sorted(work.brokers) if n != own.envelope.broker)
    foreign = replace(own, envelope=replace(own.envelope, broker=other))
    older = replace(own, envelope=replace(own.envelope, incarnation="a start before"))
    unknown = replace(own, bundle=CHILDREN[0])
    found = counted(work, late, foreign, older, unknown)
    assert found == {"late": 1, "foreign_bundle": 2, "unknown_bundle": 1}
    assert work.topics is before


def test_report_of_the_same_topics_counts_only_near_a_limit(work: BatchContext) -> None:
    assert counted(work, report(work, seq=4)) == {"taken": 1}
    before = work.topics
    assert counted(work, report(work, seq=5, rate=2.0)) == {"unchanged": 1}
    assert work.topics is before
    assert counted(work, report(work, seq=6, rate=9_000.0)) == {"taken": 1}
    assert counted(work, report(work, seq=7, rate=2.0)) == {"taken": 1}
    assert counted(work, report(work, NAMES[:2], seq=8)) == {"taken": 1}
    assert work.topics.count == 2


def test_partitions_of_a_topic_have_its_mark_and_other_topics_none(work: BatchContext) -> None:
    orders = [f"persistent://t/n/orders-partition-{number}" for number in range(3)]
    names = (*orders, "persistent://t/n/orders", "persistent://t/n/paid-partition-01")
    assert counted(work, report(work, names, seq=4)) == {"taken": 1}
    known = partitions_of(work.topics, work.ledger, np.arange(len(work.ledger)))
    assert known.count.tolist() == [3]
    namespaces, _ = work.ledger.namespaces()
    assert known.name(0, namespaces) == f"t/n/0x{partition_mark(orders[1]):08x}"
    assert partition_mark(names[3]) == partition_mark(names[4]) == NO_PARTITION


def test_same_topics_count_once_more_where_it_was_not_known_whose_partitions_they_are(
    work: BatchContext,
) -> None:
    names = tuple(f"persistent://t/n/orders-partition-{number}" for number in range(3))
    assert counted(work, report(work, names, seq=4)) == {"taken": 1}
    known = work.topics.topics_of(PARENT)
    assert known is not None
    work.topics = work.topics.changed({PARENT: replace(known, of=known.of * 0)})
    assert counted(work, report(work, names, seq=5)) == {"taken": 1}
    assert counted(work, report(work, names, seq=6)) == {"unchanged": 1}


def test_topics_that_do_not_fit_are_left_out_and_what_was_known_stays(work: BatchContext) -> None:
    work.config = Config(pipeline=Pipeline(topics_kept_max=4))
    assert counted(work, report(work, seq=1)) == {"full": 1}
    assert work.topics.count == 0
    assert counted(work, report(work, NAMES[:3], seq=2), report(work, seq=3)) == {
        "taken": 1,
        "full": 1,
    }
    assert work.topics.count == 3
    assert counted(work, report(work, NAMES[:4], seq=4)) == {"taken": 1}


def test_senders_are_told_apart_by_start() -> None:
    starts = {("b:1", "1"), ("b:1", "2"), ("b:11", ""), ("b", ":1")}
    assert len({sender_of(*start) for start in starts}) == len(starts)
