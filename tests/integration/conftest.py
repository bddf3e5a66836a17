"""Tables with one namespace, and a follower that has loaded them."""

from pathlib import Path

import pytest

from jobs.adapters.following.delta_follower import DeltaFollower
from tests.support.tables.lookup_tables import BROKER_NAMES, CLUSTER, NAMESPACE, TablesWriter, owned
from tests.support.tables.recorded_run import recorded_run


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
def recorded_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a run that nobody balanced; to be read only."""
    folder = tmp_path_factory.mktemp("recorded")
    recorded_run(folder)
    return folder


_LONGEST = (
    "test_job", "test_run_local", "test_serve_commands", "test_operating", "test_failover",
    "test_pulsar_http", "test_plans", "test_fencing", "test_kafka_clients",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first, so that no worker waits for another at the end."""
    turns = {name: turn for turn, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: turns.get(item.path.stem, len(turns)))
