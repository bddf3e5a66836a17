"""A cluster joins the job's list, another leaves it and comes back: the others notice nothing."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pytest

from jobs.adapters.kafka.clients import Sender
from jobs.adapters.kafka.embedded_kafka import KafkaOptions
from lbcore.wire.format import format_message
from lbcore.wire.messages import Command
from tests.integration.stack import Cluster, Stack, http_json
from tests.support.processes.kafka_cluster import KafkaNode, make_topics

pytestmark = pytest.mark.long


BUNDLES = 20
EAST, WEST = "east", "west"


class Clusters(Stack):
    """East is served from the beginning, west joins.

    spaces: cluster → its namespace, as `cluster.namespaces` has it.
    """

    spaces: ClassVar[Mapping[str, str]] = {EAST: "demo/one", WEST: "demo/two"}

    def start_fleet(self) -> None:
        """Start the brokers of all clusters, of the same names in each."""
        for cluster in self.spaces:
            self.start_fleet_of(cluster)
        for cluster in self.spaces:
            self.wait(f"the fleet's port of {cluster}", (self.folder / f"port-{cluster}").exists)

    def start_fleet_of(self, cluster: str) -> None:
        space = self.spaces[cluster]
        function, bundles = self.cluster.namespaces[space]
        words = ["--bootstrap", self.kafka.bootstrap, "--cluster", cluster]
        words += ["--state-dir", str(self.folder / f"fleet-{cluster}")]
        words += ["--brokers", str(self.cluster.brokers)]
        words += ["--heartbeat-interval-ms", "600", "--report-interval-ms", "2000"]
        words += ["--namespace", f"{space}:{function}:{bundles}"]
        words += ["--port-file", str(self.folder / f"port-{cluster}")]
        self._start(f"fleet-{cluster}", "jobs.run_fleet", words)

    def create_namespace_of(self, cluster: str) -> None:
        sender = Sender(self.address("operator"), "test-commands")
        command = Command(
            cluster=cluster,
            command_id=f"create-{cluster}",
            kind="create_namespace",
            arguments={
                "namespace": self.spaces[cluster],
                "bundles": self.cluster.namespaces[self.spaces[cluster]][1],
            },
            timeout_ms=600_000,
        )
        topic, key, value = format_message(command)
        sender.send(topic, key.decode(), value)
        sender.close(timeout_ms=10_000)

    def of_fleet(self, cluster: str, path: str, method: str = "GET") -> Any:
        port = (self.folder / f"port-{cluster}").read_text().strip()
        return http_json(f"http://127.0.0.1:{port}{path}", method)[1]

    def served(self) -> dict[str, list[str]]:
        """Of all clusters together: their bundles have different names."""
        truths = [self.of_fleet(cluster, "/truth") for cluster in self.spaces]
        return {
            bundle: [broker for broker, _ in by]
            for truth in truths
            for bundle, by in truth.items()
            if by
        }

    def is_settled_in(self, cluster: str) -> bool:
        """Whether every bundle of one is owned and open at its owner alone."""
        owners, served = self.owners_in(cluster), self.served()
        _, bundles = self.cluster.namespaces[self.spaces[cluster]]
        return len(owners) == bundles and all(served.get(b) == [o] for b, o in owners.items())

    def owners_in(self, cluster: str) -> dict[str, str]:
        """Bundle → broker, of one."""
        space = f"{self.spaces[cluster]}/"
        return {name: owner for name, owner in self.owners().items() if name.startswith(space)}

    def serve_lookups(self, cluster: str) -> None:
        port_file = self.folder / f"lookup-port-{cluster}"
        words = ["--tables", str(self.tables), "--cluster", cluster, "--port", "0"]
        words += ["--bootstrap", self.kafka.bootstrap, "--port-file", str(port_file)]
        self._start(f"lookup-{cluster}", "jobs.serve_lookup", words)
        self.wait_loaded(port_file)

    def found(self, cluster: str) -> tuple[int, Any]:
        """A lookup of a topic of the cluster's namespace."""
        port = (self.folder / f"lookup-port-{cluster}").read_text().strip()
        path = f"/lookup/v2/topic/persistent/{self.spaces[cluster]}/topic"
        return http_json(f"http://127.0.0.1:{port}{path}")

    def serve(self, *clusters: str) -> str:
        """Have the job serve these from now on; why its state was rebuilt, "" = it was not."""
        if "job" in self.children:
            self.stop("job")
        self.start_job("job", "--set", f"pipeline.clusters={','.join(clusters)}")
        starts = len(self.lines("job", "start"))
        self.wait("the job to start", lambda: len(self.lines("job", "start")) > starts)
        self.wait_for_batches(2)
        return str(self.lines("job", "start")[-1]["rebuilt_because"])

    def versions_in(self, cluster: str) -> dict[str, int]:
        """Bundle → version, of one cluster."""
        rows = self.rows("bundle_ownership")
        return {row["bundle"]: row["version_id"] for row in rows if row["cluster"] == cluster}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    folder = tmp_path_factory.mktemp("clusters")
    cluster = Cluster(
        brokers=3,
        namespaces=dict.fromkeys(Clusters.spaces.values(), ("crc32", BUNDLES)),
        # twice conf/test.toml's: a crowded machine may stop a process for three seconds
        settings=(
            "ownership.broker_timeout_ms=6000",
            # AvgShedder leaves so little load alone, so that nothing moves but what a test moves
            "shedding.strategy=avg",
            "placement.strategy=avg",
        ),
    )
    kafka = KafkaNode(folder / "kafka", KafkaOptions(java_options=cluster.java_options))
    stack = Clusters(folder=folder, kafka=kafka, cluster=cluster)
    try:
        kafka.start()
        make_topics(kafka, stack.address("operator"))
        stack.start_fleet()
        stack.serve(EAST)
        stack.create_namespace_of(EAST)
        stack.wait("east to be served", lambda: stack.is_settled_in(EAST))
        yield stack
    finally:
        stack.stop_all()


def test_a_cluster_that_joins_is_served_and_the_others_stay_as_they_are(stack: Clusters) -> None:
    before = stack.versions_in(EAST)
    assert stack.serve(EAST, WEST) == ""
    stack.create_namespace_of(WEST)
    stack.wait("west to be served", lambda: stack.is_settled_in(WEST))
    assert stack.versions_in(EAST) == before


def test_a_cluster_that_left_stays_as_it_was_and_lookups_go_on(stack: Clusters) -> None:
    assert stack.serve(WEST) == ""
    before = stack.versions_in(EAST)
    lost = min(set(stack.owners_in(WEST).values()) & set(stack.owners_in(EAST).values()))
    for cluster in (EAST, WEST):
        stack.of_fleet(cluster, f"/kill/{lost}", "POST")
    stack.wait("others to have it in west", lambda: lost not in stack.owners_in(WEST).values())
    stack.serve_lookups(EAST)
    assert stack.found(EAST)[0] == 200
    assert stack.versions_in(EAST) == before


def test_a_cluster_that_is_back_is_rebuilt_and_its_dead_broker_found(stack: Clusters) -> None:
    lost = set(stack.owners_in(EAST).values()) - set(stack.owners_in(WEST).values())
    assert stack.serve(EAST, WEST) == f"clusters are back that were served before: {EAST}"
    stack.wait("others to have it in east", lambda: not lost & set(stack.owners_in(EAST).values()))
    for cluster in (EAST, WEST):
        stack.wait(f"{cluster} to be served", lambda one=cluster: stack.is_settled_in(one))
