"""Faults of a real Pulsar cluster are found by the bridge within ten seconds, at its own looks.

One cluster for all of it; a proxy in front of the first broker lets it claim what is another's.
"""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from tests.pulsar.pulsar_stack import QUICK, PulsarStack, running_pulsar
from tests.support.processes.lying_proxy import LyingProxy, lying_proxy

pytestmark = pytest.mark.xdist_group("pulsar")
FOUND_WITHIN_S = 10.0
DEFAULT_LOOKS = replace(QUICK, bridge=())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarStack]:
    with running_pulsar(tmp_path_factory.mktemp("guardian"), balancing=DEFAULT_LOOKS) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(cluster: PulsarStack) -> Iterator[LyingProxy]:
    with lying_proxy(cluster.pulsar.admin_url) as running:
        yield running


def claim(proxy: LyingProxy, bundle: str) -> None:
    """Let the first broker say that it owns the bundle, too."""
    status = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}

    def lie(path: str, content: bytes) -> bytes:
        if not path.endswith("/ownedNamespaces"):
            return content
        return json.dumps({**json.loads(content), bundle: status}).encode()

    proxy.alter = lie


def through(cluster: PulsarStack, proxy: LyingProxy) -> tuple[str, ...]:
    """Options of a bridge that asks the first broker through the proxy."""
    first = cluster.pulsar.broker(1)
    return "--admin-url", proxy.url, "--broker-url", f"{first}={proxy.url}"


def found(cluster: PulsarStack, trouble: str) -> list[Mapping[str, object]]:
    return [line for line in cluster.bridge_events("found") if line["trouble"] == trouble]


def seconds_until_found(cluster: PulsarStack, trouble: str) -> float:
    """From now; a second is the grain of the waiting."""
    began_s = time.monotonic()
    cluster.wait(f"{trouble} to be found", lambda: found(cluster, trouble))
    return time.monotonic() - began_s


def of_another(cluster: PulsarStack) -> str:
    first = cluster.pulsar.broker(1)
    return min(name for name, owner in cluster.owners().items() if owner != first)


def keep_away(cluster: PulsarStack, bundle: str) -> None:
    """Take it from the first broker, whose claim is a lie only as long as another has it."""
    if cluster.owners().get(bundle) == cluster.pulsar.broker(1):
        cluster.admin.unload(bundle, cluster.pulsar.broker(2))


def is_quarantined(cluster: PulsarStack, bundle: str) -> bool:
    """Whether it is, kept away meanwhile: Pulsar may give it to the very broker that claims it."""
    keep_away(cluster, bundle)
    return any(line["stage"] == "quarantined" for line in found(cluster, "doubled"))


def findings_gauge(cluster: PulsarStack, trouble: str) -> str:
    name = f'ballast_bridge_findings{{cluster="local",trouble="{trouble}"}}'
    return next(line for line in cluster.bridge_metrics().splitlines() if line.startswith(name))


def test_sound_cluster_has_no_findings(cluster: PulsarStack, proxy: LyingProxy) -> None:
    cluster.gather(cluster.pulsar.broker(3))
    cluster.start_bridge("--observe-only", *through(cluster, proxy))
    cluster.wait("the mirror", cluster.is_mirrored)
    cluster.wait("some looks", lambda: len(cluster.bridge_events("round")) >= 6)
    assert cluster.bridge_events("found") == []


def test_second_owner_is_found_in_time_and_told_by_the_metric_and_the_tables(
    cluster: PulsarStack, proxy: LyingProxy
) -> None:
    bundle = of_another(cluster)
    claim(proxy, bundle)
    took_s = seconds_until_found(cluster, "doubled")
    assert took_s <= FOUND_WITHIN_S
    (finding,) = found(cluster, "doubled")
    assert finding["subject"] == bundle
    assert finding["stage"] == "told"
    assert findings_gauge(cluster, "doubled").endswith(" 1.0")
    cluster.wait(
        "the table",
        lambda: any("doubled" in str(row["result"]) for row in cluster.rows("commands")),
    )
    proxy.alter = None
    cluster.wait("it to be over", lambda: findings_gauge(cluster, "doubled").endswith(" 0.0"))


def test_acting_bridge_asks_once_and_quarantines_what_stays(
    cluster: PulsarStack, proxy: LyingProxy
) -> None:
    assert cluster.stop_bridge() == 0
    before = len(cluster.bridge_events("asked to mend"))
    with cluster.job_away():  # its moves would be reasons of their own
        cluster.start_bridge("--act", *through(cluster, proxy))
        cluster.wait("acting", lambda: cluster.bridge_events("acting"))
        bundle = of_another(cluster)
        claim(proxy, bundle)
        cluster.wait("the quarantine", lambda: is_quarantined(cluster, bundle))
    asked = cluster.bridge_events("asked to mend")[before:]
    asked += cluster.bridge_events("not mended")
    assert [line["bundle"] for line in asked] == [bundle]
    proxy.alter = None
    cluster.wait("it to be over", lambda: findings_gauge(cluster, "doubled").endswith(" 0.0"))
    assert cluster.stop_bridge() == 0


def test_bundles_of_a_killed_broker_are_found_before_pulsar_notices(
    cluster: PulsarStack, proxy: LyingProxy
) -> None:
    cluster.gather(cluster.pulsar.broker(3))
    cluster.start_bridge("--observe-only", *through(cluster, proxy))
    looked = len(cluster.bridge_events("round"))
    cluster.wait("some looks", lambda: len(cluster.bridge_events("round")) >= looked + 6)
    cluster.pulsar.kill_broker(3)
    assert seconds_until_found(cluster, "unserved") <= FOUND_WITHIN_S
    evidence = {str(line["evidence"]) for line in found(cluster, "unserved")}
    assert any(f"{cluster.pulsar.broker(3)}, which had it" in one for one in evidence)
