"""A scalable topic of a real Pulsar 5.0.0-M1: mirrored, told of, spread, split, complete.

One cluster for all of it, in the order of a day. Only where that version was chosen.
"""

import json
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lbcore.bridge.answers import TopicTable, parse_topics
from tests.integration.stack import PATIENCE_S, wait_for
from tests.pulsar.distribution import ensure_distribution
from tests.pulsar.pulsar_cluster import MODULAR, PulsarCluster, java_home
from tests.pulsar.pulsar_stack import (
    NAMESPACE,
    PULSAR,
    QUICK,
    QUICK_PULSAR,
    PulsarStack,
    running_pulsar,
)
from tests.pulsar.versions import require_version
from tests.support.processes.programs import run_ballast

_PROGRAM = Path(__file__).with_name("ScalableTraffic.java")
_MOVED = 307
_REDIRECTS_MAX = 5


class ScalableTopic:
    """One topic; `start` makes it."""

    def __init__(self, cluster: PulsarCluster, name: str, folder: Path) -> None:
        """name: tenant/namespace/topic. folder: of what the client says."""
        self._cluster, self.name, self._log = cluster, name, folder / "scalable-traffic.log"
        self._client: subprocess.Popen[bytes] | None = None

    def start(self, segments: int, per_second: int, size: int) -> None:
        """Make it, with so many segments, produce and consume; returns when messages arrive."""
        self._ask("PUT", f"?numInitialSegments={segments}")
        words = [f"{java_home()}/bin/java", "-Xmx256m", "-cp", f"{ensure_distribution()}/lib/*"]
        words += [str(_PROGRAM), self._cluster.service_url_of(2), f"topic://{self.name}"]
        self._client = subprocess.Popen(
            [*words, str(per_second), str(size)],
            stdin=subprocess.PIPE,
            stdout=self._log.open("wb"),
            stderr=subprocess.STDOUT,
        )
        wait_for("messages of the scalable topic", lambda: self.counts()[1] > 0, PATIENCE_S)

    def stop(self) -> None:
        """Stop producing and wait for what is under way; once."""
        if self._client is not None and self._client.stdin is not None:
            self._client.stdin.close()
            self._client.wait(PATIENCE_S)
            self._client = None

    def counts(self) -> tuple[int, int, int]:
        """Messages acknowledged and received, and errors, as the client told last."""
        lines = [line.split() for line in self._log.read_text().splitlines()]
        told = [line for line in lines if len(line) == 3 and all(map(str.isdigit, line))]
        acknowledged, received, errors = map(int, told[-1]) if told else (0, 0, 0)
        return acknowledged, received, errors

    def segments(self) -> Sequence[str]:
        found: Mapping[str, Any] = json.loads(self._ask("GET", "/stats"))["segments"]
        return sorted(one["name"] for one in found.values() if one["state"] == "ACTIVE")

    def split(self, segment: str) -> None:
        self._ask("POST", f"/split/{segment.rpartition('-')[2]}")

    def _ask(self, method: str, rest: str) -> str:
        url = f"{self._cluster.admin_url}/admin/v2/scalable/{self.name}{rest}"
        for _ in range(_REDIRECTS_MAX):
            request = urllib.request.Request(url, method=method)  # noqa: S310 (loopback)
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 (loopback)
                    return str(answer.read().decode())
            except urllib.error.HTTPError as error:
                if error.code != _MOVED:
                    raise
                url = str(error.headers["Location"])
        raise AssertionError(f"{url}: redirected more than {_REDIRECTS_MAX} times")


pytestmark = pytest.mark.xdist_group("pulsar")
SPREADING = replace(
    QUICK,
    settings=(*QUICK.settings, "shedding.strategy=ballast", "placement.strategy=ballast"),
)
FIXED = {**QUICK_PULSAR, "scalableTopicAutoScaleEnabled": "false"}
"""Pulsar itself would merge such cold segments after five minutes."""
ORDERS = f"{NAMESPACE}/orders"
SEGMENTS = 6


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarStack]:
    require_version("5.0.0-M1")
    folder = tmp_path_factory.mktemp("scalable")
    with running_pulsar(folder, MODULAR, settings=FIXED, balancing=SPREADING) as running:
        yield running


@pytest.fixture(scope="module")
def orders(
    cluster: PulsarStack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ScalableTopic]:
    topic = ScalableTopic(cluster.pulsar, ORDERS, tmp_path_factory.mktemp("traffic"))
    try:
        topic.start(SEGMENTS, per_second=150, size=200)
        yield topic
    finally:
        topic.stop()


def homes(cluster: PulsarStack, topic: ScalableTopic) -> dict[str, str]:
    """Active segment → the broker that has loaded it."""
    found = {}
    for broker in cluster.admin.brokers(PULSAR):
        table = parse_topics(cluster.admin.topics(PULSAR, broker))
        assert isinstance(table, TopicTable)
        found |= {name: broker for rates in table.rates.values() for name in rates.topics}
    return {name: found[name] for name in topic.segments() if name in found}


def narrow(cluster: PulsarStack) -> list[str]:
    return [
        str(line["evidence"])
        for line in cluster.bridge_events("found")
        if line["trouble"] == "narrow" and line["subject"] == f"topic://{ORDERS}"
    ]


def test_segments_on_one_broker_are_mirrored_and_told_as_narrow(
    cluster: PulsarStack, orders: ScalableTopic
) -> None:
    hot = cluster.pulsar.broker(2)
    cluster.gather(hot)
    cluster.start_bridge()
    cluster.wait("the mirror", cluster.is_mirrored)
    cluster.wait("the finding", lambda: narrow(cluster))
    told = rf"\d segments are on 1 of 3 brokers: \d on {re.escape(hot)}"  # each has its last minute
    assert re.fullmatch(told, narrow(cluster)[0])
    assert set(homes(cluster, orders).values()) == {hot}
    assert {line["trouble"] for line in cluster.bridge_events("found")} == {"narrow"}
    assert cluster.stop_bridge() == 0


def test_assessment_shows_the_load_of_segments(
    cluster: PulsarStack, orders: ScalableTopic, tmp_path: Path
) -> None:
    words = ["assess", cluster.pulsar.admin_url, "--for", "30s", "--json"]
    words += ["--html", str(tmp_path / "page.html")]
    done = run_ballast(*words)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    rates = {one["topic"]: one["msg_rate"] for one in report["topics"]}
    assert any(rates.get(name, 0.0) > 1.0 for name in orders.segments())
    risks = {one["subject"]: one["text"] for one in report["risks"]}
    assert risks[f"topic://{ORDERS}"] == f"its {SEGMENTS} segments are on 1 of 3 brokers"


def test_segments_are_looked_up_where_they_are(cluster: PulsarStack, orders: ScalableTopic) -> None:
    for segment, broker in homes(cluster, orders).items():
        assert cluster.admin.look_up(segment).named == broker


def test_siblings_are_placed_apart_and_stay_so_when_a_segment_is_split(
    cluster: PulsarStack, orders: ScalableTopic
) -> None:
    cluster.start_bridge("--act")
    cluster.wait("siblings apart", lambda: len(set(homes(cluster, orders).values())) > 1)
    before = orders.segments()
    orders.split(before[0])
    cluster.wait("the children", lambda: len(homes(cluster, orders)) == SEGMENTS + 1)
    cluster.wait("the mirror", cluster.is_mirrored)
    assert set(before) - set(orders.segments()) == {before[0]}
    assert len(set(homes(cluster, orders).values())) > 1
    assert cluster.stop_bridge() == 0


def test_messages_of_the_scalable_topic_and_of_the_others_are_complete(
    cluster: PulsarStack, orders: ScalableTopic
) -> None:
    orders.stop()
    acknowledged, received, errors = orders.counts()
    assert (received, errors) == (acknowledged, 0)
    assert acknowledged > 100
    cluster.traffic.stop()
    assert cluster.traffic.lost() == {}
    assert cluster.traffic.errors() == []
