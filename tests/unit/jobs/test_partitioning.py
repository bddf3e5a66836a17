"""Keys that spread over partitions, and how many partitions there are by default."""

import pytest

from jobs.adapters.spark.operators import balancer_operator, scorer_operator
from jobs.adapters.spark.partitioning import (
    PARTITIONS,
    default_partitions,
    hash_of_key,
    local_cores,
    plain_cluster,
    spread_keys,
)
from jobs.adapters.spark.stream import chosen_partitions
from jobs.console import CommandError
from lbcore.config.load import parse_config
from lbcore.config.tree import Config


def config_of(groups: int, clusters: int) -> Config:
    names = [f"cluster-{number}" for number in range(clusters)]
    return parse_config({"pipeline": {"scorer_groups": groups, "clusters": names}})


@pytest.mark.parametrize(
    ("master", "groups", "clusters", "partitions"),
    [
        ("local[2,4]", 2, 1, 1),
        ("local[2]", 8, 10, 1),
        ("local", 4, 1, 1),
        ("local[8,4]", 4, 1, 4),
        ("local[8]", 2, 10, 8),
        ("local[*]", 4, 1, 4),
        ("spark://host:7077", 4, 1, 4),
        ("spark://host:7077", 1, 10, 10),
        ("k8s://https://host", 8, 3, 8),
        ("local-cluster[2,1,1024]", 4, 1, 4),
        ("yarn", 4_000, 1, 64),
    ],
)
def test_partitions_follow_from_groups_clusters_and_master(
    master: str, groups: int, clusters: int, partitions: int
) -> None:
    config = config_of(groups, clusters)
    assert default_partitions(config, master) == partitions
    assert chosen_partitions(config, master, {}) == partitions
    assert chosen_partitions(config, master, {PARTITIONS: "3"}) == 3


def test_partitions_that_are_no_number_are_refused() -> None:
    for told in ("0", "many", "-1", ""):
        with pytest.raises(CommandError, match=PARTITIONS):
            chosen_partitions(config_of(2, 1), "local[2]", {PARTITIONS: told})


@pytest.mark.parametrize(("clusters", "groups"), [(1, 2), (1, 4), (1, 8), (10, 1), (10, 4), (3, 5)])
@pytest.mark.parametrize("partitions", [1, 2, 3, 4, 8, 10, 64])
def test_every_partition_has_keys_by_construction(
    clusters: int, groups: int, partitions: int
) -> None:
    config = config_of(groups, clusters)
    names = config.pipeline.clusters
    keys = spread_keys(names, groups, partitions)
    balancers = [hash_of_key(one.cluster) % partitions for one in keys.values()]
    scorers = [
        hash_of_key(one.cluster, group) % partitions
        for one in keys.values()
        for group in one.groups
    ]
    assert len(set(balancers)) == min(partitions, clusters)
    assert len(set(scorers)) == min(partitions, clusters * groups)
    for found in (balancers, scorers):
        counts = [found.count(one) for one in set(found)]
        assert max(counts) - min(counts) <= 1
    assert [plain_cluster(one.cluster) for one in keys.values()] == list(names)
    for one in keys.values():
        assert [group % groups for group in one.groups] == list(range(groups))
    if partitions == 1:
        assert all(one.cluster == name for name, one in keys.items())
        assert all(one.groups == list(range(groups)) for one in keys.values())


def test_operators_know_cluster_and_group_of_a_spread_key() -> None:
    config = config_of(4, 2)
    keys = spread_keys(config.pipeline.clusters, 4, 3)["cluster-1"]
    assert keys.cluster != "cluster-1" or max(keys.groups) > 3
    scorer = scorer_operator(config).make_machine((keys.cluster, keys.groups[2]))
    balancer = balancer_operator(config).make_machine((keys.cluster,))
    assert vars(scorer)["_group"] == 2
    assert vars(balancer)["_cluster"] == "cluster-1"


def test_local_cores_are_those_of_a_local_master_alone() -> None:
    assert [local_cores(one) for one in ("local", "local[3]", "local[3,4]")] == [1, 3, 3]
    assert local_cores("spark://local:7077") is None


SPARK_SAYS = {
    ("", None): 142593372,
    ("cl\u00fcster", None): 509604601,
    ("local   ", None): -1029811855,
    ("local   ", 0): -302501337,
    ("local   ", 77): -84135843,
    (" abcdxyz", 3): 1930112751,
}
"""SELECT hash(text) and hash(text, group), as Spark 4.2.1 answers."""


def test_hashes_are_sparks() -> None:
    assert {key: hash_of_key(*key) for key in SPARK_SAYS} == SPARK_SAYS
