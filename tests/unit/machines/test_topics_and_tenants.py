"""Tenants, topics and reserved rows that the balancer keeps."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest

from lbcore.balancer.balancer import ClusterBalancer
from lbcore.balancer.batch_context import BalancerState
from lbcore.balancer.ledger import Ledger
from lbcore.balancer.topic_book import (
    Catalog,
    sender_of,
)
from lbcore.config.tree import Config
from lbcore.scorer.group_update import Arrivals, GroupUpdate, PositionedMessage
from lbcore.wire.messages import Command, Position
from tests.support.worlds.world import World

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


def kept(world: World) -> Catalog:
    assert world.state is not None
    return world.state.catalog


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
    wanted = Catalog(by_type={"tenant": {"other": value}, "topic": {topic: 8}})
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
        PositionedMessage(
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
        group=0,
        brokers=(),
        incarnations=(),
        arrivals=arrivals,
        loads=(),
        bundles=(),
        messages=placed,
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


def test_senders_are_told_apart_by_start() -> None:
    starts = {("b:1", "1"), ("b:1", "2"), ("b:11", ""), ("b", ":1")}
    assert len({sender_of(*start) for start in starts}) == len(starts)
