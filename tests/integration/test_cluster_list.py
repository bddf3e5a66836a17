"""A cluster joins the job's list, another leaves it and comes back: the others notice nothing."""

from collections.abc import Iterator, Mapping
from typing import ClassVar

import pytest

from jobs.adapters.kafka.embedded_kafka import EmbeddedKafka, KafkaOptions
from tests.integration.several_clusters import SeveralClusters
from tests.integration.stack import Cluster
from tests.support.processes.kafka_cluster import make_topics

BUNDLES = 20
EAST, WEST = "east", "west"


class Clusters(SeveralClusters):
    """East is served from the beginning, west joins."""

    spaces: ClassVar[Mapping[str, str]] = {EAST: "demo/one", WEST: "demo/two"}

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
    kafka = EmbeddedKafka(folder / "kafka", KafkaOptions(java_options=cluster.java_options))
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


@pytest.mark.long
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


@pytest.mark.long
def test_a_cluster_that_is_back_is_rebuilt_and_its_dead_broker_found(stack: Clusters) -> None:
    lost = set(stack.owners_in(EAST).values()) - set(stack.owners_in(WEST).values())
    assert stack.serve(EAST, WEST) == f"clusters are back that were served before: {EAST}"
    stack.wait("others to have it in east", lambda: not lost & set(stack.owners_in(EAST).values()))
    for cluster in (EAST, WEST):
        stack.wait(f"{cluster} to be served", lambda one=cluster: stack.is_settled_in(one))
