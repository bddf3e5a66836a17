"""Tables with one namespace, and a follower that has loaded them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from jobs.adapters.delta.table_writer import TableWriter
from jobs.adapters.following.delta_follower import DeltaFollower
from jobs.adapters.spark.batch_sink import BatchSink
from jobs.adapters.spark.checkpoint import Manifest
from lbcore.balancer.effects import REPORT, Effect
from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config
from lbcore.sim.engine.engine import Engine, Run
from lbcore.sim.engine.scenario_run import schedule_events
from lbcore.sim.scenario.parse import parse_scenario
from tests.support.processes.kafka_cluster import KafkaNode, running_kafka
from tests.support.tables.lookup_tables import BROKER_NAMES, CLUSTER, NAMESPACE, TablesWriter, owned
from tests.support.tables.small_batches import EffectsFrame

SCENARIO = """
brokers 4
broker b4 absent
namespace t/n bundles=24 topics=2
own t/n 0-15 b1
own t/n 16-23 b2-b3
load t/n even 4pt each
load t/n even 1pt each bundles=0-3 from 4m
set shedding.is_shedding=false
at 3m start b4
run 9m
"""
KEPT = ("load_history", "brokers", "ownership_events", REPORT)


class Nobody:
    """A publisher that sends nothing."""

    def publish(self, messages: object) -> None:
        """Keep quiet."""


def recorded_run(tables: Path) -> Run:
    """A run in virtual time whose history the sink writes: batches with load_history, whole."""
    scenario = parse_scenario(SCENARIO)
    engine = Engine(scenario, parse_assignments(Config(), scenario.settings))
    schedule_events(engine)
    writer = TableWriter(tables)
    writer.claim()
    sink = BatchSink(
        writer=writer,
        publisher=Nobody(),
        claimed=Manifest(code_version="c", config_version="f", scorer_groups=1),
        heartbeat_ms=1 << 40,
        log=lambda _: None,
    )
    sink.use_query("q")

    def write(effects: Sequence[Effect]) -> None:
        if any(effect.kind == "load_history" for effect in effects):
            kept = [effect for effect in effects if effect.kind in KEPT]
            sink(EffectsFrame(kept, "local"), engine.job.batches)

    engine.when_committed = write
    return engine.run()


@pytest.fixture
def writer(tmp_path: Path) -> TablesWriter:
    """Tables with one namespace of four bundles, all owned."""
    made = TablesWriter(tmp_path)
    made.namespaces({NAMESPACE: "crc32"})
    made.brokers(*BROKER_NAMES)
    made.batch(owned(NAMESPACE, 4, BROKER_NAMES))
    return made


@pytest.fixture
def follower(tmp_path: Path, writer: TablesWriter) -> DeltaFollower:
    """A follower that has loaded the tables of `writer`."""
    assert writer.batch_id == 0
    made = DeltaFollower(tmp_path, CLUSTER)
    made.poll()
    return made


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    """A broker that tests share: each has topics, keys or a cluster of its own."""
    with running_kafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture(scope="session")
def recorded_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a run that nobody balanced; to be read only."""
    folder = tmp_path_factory.mktemp("recorded")
    recorded_run(folder)
    return folder


_LONGEST = (
    "test_job", "test_run_local", "test_serve_commands", "test_fencing",
    "test_kafka_clients",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first, so that no worker waits for another at the end."""
    turns = {name: turn for turn, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: turns.get(item.path.stem, len(turns)))
