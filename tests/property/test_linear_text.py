"""Text from outside: linear reading time, namespace names of every form."""

import ast
import importlib
import random
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import permutations

import pytest

from lbcore.assess.owner_changes import sheds_of
from lbcore.balancer.ledger import Ledger
from lbcore.balancer.waiting import status_of
from lbcore.bridge.answers import parse_metrics
from lbcore.bridge.reports import parse_client_latency
from lbcore.config.pulsar_keys import parse_properties
from lbcore.config.tree import Config
from lbcore.config.values import ConfigError
from lbcore.model.names import index_namespaces, namespace_of_topic, parse_bundle
from lbcore.ownership.invariants import of_bundles
from lbcore.ownership.records import State
from lbcore.plan.filter.policies import matches_any
from lbcore.validation.check import with_dynamic
from tests.support.values.clusters import few
from tests.support.worlds.world import CLUSTER, World
from tests.tidy.source_files import module_of, name_of, parsed, python_files

LIMIT_S = 5.0
CHARS = 400_000
_OWN_WORDS = {
    "jobs/parser.py": "the command line of whoever calls it",
    "jobs/package.py": "the project's own lock files",
    "jobs/adapters/processes/preflight.py": "what java -version says",
    "jobs/sql/engine.py": "the statement of whoever asks",
}
"""Modules whose expressions meet no text from outside, with what they read."""


class TooSlowError(Exception):
    """The limit of CPU time is over."""


@contextmanager
def limited() -> Iterator[None]:
    """End what takes longer than LIMIT_S of CPU time; `re` looks for signals while it matches."""

    def end(*_: object) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _expressions() -> Iterator[tuple[str, "re.Pattern[str] | re.Pattern[bytes]", str]]:
    """Name, expression and method of each use of a module's own expressions."""
    for path in python_files("lbcore", "jobs"):
        tree = parsed(path)
        names = {
            node.targets[0].id
            for node in tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and "re.compile(" in ast.unparse(node.value)
        }
        if not names or name_of(path) in _OWN_WORDS:
            continue
        module = importlib.import_module(module_of(path))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                found = getattr(module, node.value.id, None)
                if node.value.id in names and isinstance(found, re.Pattern):
                    yield f"{module_of(path)}.{node.value.id}", found, node.attr


USES = sorted({(name, used): found for name, found, used in _expressions()}.items())


def _attacks(pattern: str) -> Iterator[str]:
    """Texts made of the expression's own literals, which begin to match and never end."""
    literal = re.sub(r"\\[dwsSDW]|\[[^\]]*\]|\(\?[:P<!=a-z_>]*|[\\()*+?{}^$|]", "", pattern)[:60]
    seeds = ["a", "0", "1.", "-", "/", "a=", 'a="', "{", "a{", "a{\n", "\\", " ", "\n", "_", "a/b/"]
    head = re.match(r"[\^]?([\w -]*)", pattern)[1]
    for seed in [*seeds, literal, f"{literal}\n", f"{literal}{{", f"{head}{{\n", f"{head}{{"]:
        if seed:
            yield seed * (CHARS // len(seed))
            yield literal + seed * (CHARS // len(seed)) + "\x00"


@pytest.mark.parametrize("use", USES, ids=[f"{name}.{used}" for (name, used), _ in USES])
def test_expression_is_linear_in_the_text(
    use: tuple[tuple[str, str], "re.Pattern[str] | re.Pattern[bytes]"],
) -> None:
    (_, used), compiled = use
    if used == "pattern":
        return
    source = compiled.pattern
    is_text = isinstance(source, str)
    for attack in _attacks(source if is_text else source.decode("latin-1")):
        text = attack if is_text else attack.encode()
        with limited():
            match used:
                case "sub":
                    compiled.sub("" if is_text else b"", text)
                case "finditer":
                    assert sum(1 for _ in compiled.finditer(text)) >= 0
                case _:
                    getattr(compiled, used)(text)


def _metrics(line: str) -> bytes:
    return (line * (CHARS // len(line))).encode()


def _refused(values: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        with_dynamic(Config(), values)


READERS: dict[str, Callable[[], object]] = {
    "metrics, open braces": lambda: parse_metrics(_metrics("pulsar_version_info{\n")),
    "metrics, one label": lambda: parse_metrics(b"pulsar_version_info{" + b"a" * CHARS + b"} 1"),
    "metrics, open quotes": lambda: parse_metrics(
        b"pulsar_version_info{" + b'a="' * CHARS + b"} 1"
    ),
    "metrics, a long number": lambda: parse_metrics(
        b"process_start_time_seconds " + b"9" * 10 * CHARS
    ),
    "felt": lambda: parse_client_latency(_metrics("pulsar_broker_publish_latency_sum{\n")),
    "felt, no number": lambda: parse_client_latency(b"pulsar_topic_load_times_sum 1.2.3\n"),
    "owner changes": lambda: sheds_of(
        'pulsar_lb_unload_broker_breakdown_total{reason="Admin"' * (CHARS // 20)
    ),
    "owner changes, lines": lambda: sheds_of("pulsar_lb_unload_bundle_total{\n" * (CHARS // 20)),
    "broker.conf, continued": lambda: parse_properties("a=" + "b\\\n" * CHARS),
    "broker.conf, backslashes": lambda: parse_properties("\\" * (4 * CHARS + 1) + "\n"),
    "settings, unknown": lambda: _refused({f"shedding.strategi{at}": "x" for at in range(1_000)}),
    "isolation": lambda: matches_any(["([a-z0-9-]+[.]?)+:8080", "(a|a)*b", "(.*)*x"], "a" * CHARS),
}


@pytest.mark.parametrize("reader", READERS)
def test_reader_of_outside_text_is_linear(reader: str) -> None:
    with limited():
        READERS[reader]()


def test_every_exception_names_a_module_that_has_expressions() -> None:
    assert sys.version_info >= (3, 10)
    paths = {name_of(path): path for path in python_files("jobs")}
    assert [name for name in _OWN_WORDS if "re." not in paths[name].read_text()] == []


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
        topic for topic in world.state.catalog.by_type["topic"] if namespace_of_topic(topic) == name
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


@pytest.mark.parametrize("seed", few(range(6), 3))
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


@pytest.mark.parametrize("seed", few(range(20), 5))
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
