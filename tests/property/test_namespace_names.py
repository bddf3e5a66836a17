"""Namespaces of every name that Pulsar allows live side by side: none takes another's for its own.

The production balancer and agents in virtual time. What a namespace has is compared with a model
that keys by the namespace itself, whatever its name looks like beside its neighbours'.
"""

import random
from itertools import permutations

import pytest

from lbcore.balancer.state.ledger import Ledger
from lbcore.balancer.tasks.waiting import status_of
from lbcore.config.tree import Config
from lbcore.model.names import index_namespaces, namespace_of_topic, parse_bundle
from lbcore.ownership.invariants import of_bundles
from lbcore.ownership.records import State
from tests.support.worlds.world import CLUSTER, World

RANGE = "0x00000000_0x80000000"

FAMILIES: tuple[tuple[str, ...], ...] = (
    ("acme/prod", "acme/prod/orders"),
    ("acme/prod", "acme/prod/0x4", "acme/prod/0"),
    ("acme/prod", f"acme/prod/{RANGE}", "acme/prod/0x80000000_0xffffffff"),
    ("a/b", "a/b-", "a/b.", "a/b:", "a/b/-", "a/b0", "a/b=c"),
    ("a/b", "a/ba", "aa/b", "a/b_", "A/b"),
    ("a/.", "a/..", "a/./.."),
    ("t/" + "n" * 253, "t/" + "n" * 252, f"t/{'n' * 252}/n", "t/n"),
    (f"{RANGE}/{RANGE}", f"{RANGE}/{RANGE}/{RANGE}", f"{RANGE}/x"),
    ("-/-", "-/-/-", "=/=", "_/_/_"),
)
FOREIGN = ("a/b%2fc", "a/b%", "ä/b", "a/\u2603", "a/b c", "a//b", "/a/b", "a/b/c/d", "a", "")
LOCALS = ("t", "t%2Fu", "t/u/v", "☃", "t-partition-1", "t" * 255)


def live(world: World, namespace: str) -> list[str]:
    """The namespace's live bundles as the ledger gives them."""
    assert world.state is not None
    ledger = world.state.ledger
    return [ledger.names[row] for row in ledger.live_rows(namespace)]


def check_membership(world: World, namespaces: tuple[str, ...]) -> None:
    """Each live bundle is in its own namespace, once, and each namespace tiles the hashes."""
    assert world.state is not None
    ledger = world.state.ledger
    expected: dict[str, set[str]] = {name: set() for name in namespaces}
    for name in ledger.names:
        record = ledger.record(name)
        if record is not None and record.state is not State.DELETED:
            expected[parse_bundle(name)[0]].add(name)
    found, index = ledger.namespaces()
    assert len(set(found)) == len(found)
    assert [found[at] for at in index] == [parse_bundle(name)[0] for name in ledger.names]
    for name in namespaces:
        assert set(live(world, name)) == expected[name]
        assert of_bundles(name, live(world, name)) == []


def settled(world: World, *ids: str) -> None:
    world.run(4_000)
    assert world.state is not None
    for command_id in ids:
        status = status_of(world.state.commands.get(command_id, ""))
        assert status == "done", world.other_rows["commands"][-3:]


def populated(namespaces: tuple[str, ...]) -> World:
    world = World(Config(), 2)
    world.run(4_000)
    for namespace in namespaces:
        settled(world, world.command("create_namespace", namespace=namespace, bundles=2))
        check_membership(world, namespaces)
    return world


def rules_of(world: World, name: str) -> tuple[object, ...]:
    assert world.state is not None
    rules = world.state.rules
    pins = {one for one in rules.pins if parse_bundle(one)[0] == name}
    topics = sorted(
        topic for topic in world.state.records.by_type["topic"] if namespace_of_topic(topic) == name
    )
    marks = (name in rules.paused, name in rules.excluded, rules.anti_affinity.get(name))
    return (sorted(live(world, name)), sorted(pins), topics, marks)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family[0][:20])
def test_namespaces_with_names_alike_are_created_and_deleted_alone_in_any_order(
    family: tuple[str, ...],
) -> None:
    for order in permutations(family[:2]):
        world = populated((*order, *family[2:]))
        for gone in order:
            others = [name for name in family if name != gone]
            before = {name: sorted(live(world, name)) for name in others}
            settled(world, world.command("delete_namespace", namespace=gone))
            assert live(world, gone) == []
            assert {name: sorted(live(world, name)) for name in others} == before
            check_membership(world, family)


@pytest.mark.parametrize("seed", range(6))
def test_random_commands_touch_the_namespace_that_they_name_and_no_other(seed: int) -> None:
    dice = random.Random(seed)
    family = FAMILIES[seed % len(FAMILIES)]
    names = tuple(dice.sample(family, min(3, len(family))))
    world = populated(names)
    for _ in range(12):
        target = dice.choice(names)
        before = {name: rules_of(world, name) for name in names if name != target}
        kind, arguments = drawn(dice, world, target)
        world.command(kind, **arguments)
        world.run(4_000)
        assert {name: rules_of(world, name) for name in names if name != target} == before, kind
        check_membership(world, names)
    state = world.state
    assert state is not None
    world.restart_job()
    assert world.state is not None
    assert world.job.balancer.pack(world.state) == world.job.balancer.pack(state)
    world.rebuild_job()
    check_membership(world, names)


def drawn(dice: random.Random, world: World, name: str) -> tuple[str, dict[str, object]]:
    """A command that names the namespace, one of its bundles, or one of its topics."""
    bundles = live(world, name)
    if not bundles:
        return "create_namespace", {"namespace": name, "bundles": dice.randint(1, 4)}
    bundle, topic = dice.choice(bundles), f"persistent://{name}/{dice.choice(LOCALS)}"
    return dice.choice(
        [
            ("delete_namespace", {"namespace": name}),
            ("unload_namespace", {"namespace": name}),
            ("split_bundle", {"bundle": bundle, "algorithm": "range_equally_divide"}),
            ("pin_bundle", {"bundle": bundle, "broker": "broker-0:8080"}),
            ("pause", {"namespace": name}),
            ("exclude_namespace", {"namespace": name}),
            ("set_anti_affinity_group", {"namespace": name, "group": "g"}),
            ("create_record", {"record_type": "topic", "name": topic}),
            ("delete_record", {"record_type": "topic", "name": topic}),
        ]
    )


@pytest.mark.parametrize("name", FOREIGN)
def test_name_that_pulsar_does_not_allow_is_refused_and_changes_nothing(name: str) -> None:
    world = World(Config(), 1)
    command_id = world.command("create_namespace", namespace=name, bundles=2)
    world.run(1_000)
    assert world.state is not None
    assert status_of(world.state.commands[command_id]) == "refused"
    assert len(world.state.ledger) == 0


@pytest.mark.parametrize("seed", range(20))
def test_ledger_of_any_names_in_any_order_has_one_stretch_for_each_namespace(seed: int) -> None:
    dice = random.Random(seed)
    spaces = [name for family in FAMILIES for name in family]
    names = [f"{name}/{text}" for name in spaces for text in (RANGE, "0x80000000_0xffffffff")]
    dice.shuffle(names)
    together, one_by_one = Ledger(CLUSTER), Ledger(CLUSTER)
    together.add(names)
    for name in names:
        one_by_one.add([name])
    assert together.names == one_by_one.names
    found, index = index_namespaces(together.names)
    assert len(found) == len(set(spaces))
    assert sorted(index.tolist()) == index.tolist()
    gone = dice.sample(names, 10)
    together.remove(gone)
    assert set(together.names) == set(names) - set(gone)
    again = Ledger.unpack(together.pack())
    assert again.names == together.names
    assert [again.index[name] for name in again.names] == list(range(len(again)))
