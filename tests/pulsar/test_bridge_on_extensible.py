"""A real Pulsar cluster with the extensible manager, which tells its load elsewhere.

Its answers to a load report are errors, it moves a bundle by handing it over, and it takes one
position of a split at a time. The modular manager's tests have the rest.
"""

from collections.abc import Iterator

import pytest

from jobs.cli import main
from tests.pulsar.pulsar_cluster import EXTENSIBLE
from tests.pulsar.pulsar_stack import (
    NAMESPACE,
    PULSAR,
    PulsarStack,
    create_namespace,
    running_pulsar,
    tell_pulsar,
)

pytestmark = pytest.mark.xdist_group("pulsar")
BALANCED_POINTS = 40.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarStack]:
    with running_pulsar(tmp_path_factory.mktemp("extensible"), EXTENSIBLE) as running:
        yield running


def test_skewed_traffic_is_balanced_without_losing_a_message(cluster: PulsarStack) -> None:
    cluster.gather(cluster.pulsar.broker(2))
    cluster.start_bridge("--act")
    cluster.wait("balance", lambda: cluster.moves() and cluster.spread() < BALANCED_POINTS)
    cluster.wait("the mirror", cluster.is_mirrored)
    assert len(set(cluster.owners().values())) > 1
    assert cluster.traffic.errors() == []


def test_split_into_three_is_a_chain_of_two(cluster: PulsarStack) -> None:
    topics = {bundle: cluster.topics_in(bundle) for bundle in cluster.owners()}
    bundle = max(sorted(topics), key=lambda name: len(topics[name]))
    words = ["bundle", "split", bundle, "--parts", "3", "--force", "--timeout", "120s"]
    before = cluster.admin.boundaries(NAMESPACE)
    main([*words, *cluster.where()])
    after = cluster.admin.boundaries(NAMESPACE)
    assert set(before) < set(after)
    cluster.wait("the mirror", cluster.is_mirrored)


def test_policies_of_pulsar_stand_instead_of_ours(cluster: PulsarStack) -> None:
    admin, other = f"{cluster.pulsar.admin_url}/admin/v2", "public/other"
    clusters = f"{admin}/clusters/{PULSAR}"
    create_namespace(cluster.pulsar.admin_url, other, 4)
    failover = {"min_limit": "1", "usage_threshold": "80"}
    policy = {
        "namespaces": [other],
        "primary": ["127.0.0.1"],
        "secondary": [],
        "auto_failover_policy": {"policy_type": "min_available", "parameters": failover},
    }
    near = cluster.pulsar.broker(1)
    tell_pulsar("POST", f"{clusters}/namespaceIsolationPolicies/mine", policy)
    tell_pulsar("POST", f"{clusters}/failureDomains/east", {"brokers": [near]})
    tell_pulsar("POST", f"{admin}/namespaces/{other}/antiAffinity", "racks")
    cluster.wait("the policies", lambda: rules(cluster) == {"mine", other})
    cluster.wait(
        "the failure domain",
        lambda: any(
            row["broker"] == near and row["failure_domain"] == "east"
            for row in cluster.rows("brokers")
        ),
    )
    tell_pulsar("DELETE", f"{clusters}/namespaceIsolationPolicies/mine")
    cluster.wait("the policy to be gone", lambda: rules(cluster) == {other})


def rules(cluster: PulsarStack) -> set[str]:
    newest = {row["name"]: row["is_set"] for row in cluster.rows("policies")}
    return {str(name) for name, is_set in newest.items() if is_set}


def test_traffic_is_complete(cluster: PulsarStack) -> None:
    cluster.traffic.stop()
    assert cluster.traffic.lost() == {}
    assert cluster.traffic.errors() == []
