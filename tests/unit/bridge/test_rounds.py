"""The rounds of the bridge between fake brokers and a Kafka that loses messages."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from jobs.adapters.kafka.clients import Delivered, NotDelivered
from jobs.bridge import bridge
from jobs.bridge.admin_address import AdminAddress
from jobs.bridge.bridge import OBSERVE_ONLY, Bridge, BridgeOptions, brokers_settings
from jobs.bridge.collector import PollOptions
from jobs.bridge.pulsar_admin import PulsarAdmin
from lbcore.config.tree import Config
from lbcore.wire.kinds.balancing_commands import SetConfig
from tests.support import Patch
from tests.support.admin.fake_pulsar import CLUSTER, fake_pulsar
from tests.support.processes.programs import until

SOON_S = 20.0


class LossyKafka:
    """Sender, reader and watch at once. lost: so many of the next commands are lost."""

    def __init__(self) -> None:
        self.lost = 0
        self.delivered = self.not_delivered = 0
        self.modes: list[tuple[bool, int]] = []

    def send(
        self,
        topic: Any,
        key: str,  # noqa: ARG002 (as Sender names it)
        value: bytes,
        *,
        on_delivery: Callable[[Any], None] = lambda _: None,
    ) -> None:
        sent = json.loads(value)
        if sent.get("kind") == SetConfig.spec.kind:
            if self.lost:
                self.lost -= 1
                on_delivery(NotDelivered(topic=topic.value, reason="Kafka is away"))
                return
            self.modes.append((sent["arguments"]["values"][OBSERVE_ONLY], sent["timeout_ms"]))
        on_delivery(Delivered(partition=0, offset=0, timestamp_ms=0))

    def ends(self, _: int) -> dict[int, int]:
        return {}

    def poll(self, timeout_ms: int) -> list[Any]:
        time.sleep(timeout_ms / 1_000)
        return []

    def start(self) -> None:
        """Nothing."""

    def close(self, _: int = 0) -> None:
        """Nothing."""


@contextmanager
def running_bridge(kafka: LossyKafka, patch: Patch) -> Iterator[None]:
    """A bridge that observes, and looks at its mode in each round."""
    for name in ("Sender", "Tail", "KafkaWatch"):
        patch.setattr(bridge, name, lambda *_: kafka)
    patch.setattr(bridge, "_SHEDDING_CHECK_S", 0.0)
    with fake_pulsar() as fake:
        fake.own({0: []})
        fake.put("/admin/v2/tenants", [])
        admin = PulsarAdmin(AdminAddress(url=fake.url, timeout_s=2.0))
        options = BridgeOptions(
            cluster="local", pulsar_cluster=CLUSTER, polling=PollOptions(look_ms=100)
        )
        made = Bridge(admin, Any, Config(), options)  # type: ignore[arg-type]
        thread = threading.Thread(target=made.run)
        thread.start()
        try:
            yield
        finally:
            made.stop()
            thread.join(SOON_S)


def test_mode_that_kafka_has_lost_is_told_again_and_never_expires(monkeypatch: Patch) -> None:
    kafka = LossyKafka()
    kafka.lost = 2
    with running_bridge(kafka, monkeypatch):
        until(lambda: kafka.modes, SOON_S)
    assert kafka.modes == [(True, 0)]


def test_brokers_are_asked_for_their_settings_at_once(monkeypatch: Patch) -> None:
    both, path = threading.Barrier(2, timeout=5.0), "/admin/v2/brokers/configuration/runtime"
    with fake_pulsar() as fake:
        fake.own({0: [], 1: []})
        fake.put(path, {"loadBalancerSheddingEnabled": "false"})
        admin = PulsarAdmin(AdminAddress(url=fake.url, timeout_s=2.0))
        brokers, ask = admin.brokers(CLUSTER), admin.settings

        def settings(cluster: str, broker: str) -> Any:
            both.wait()  # neither is answered before both were asked
            return ask(cluster, broker)

        monkeypatch.setattr(admin, "settings", settings)
        found, failed = brokers_settings(admin, CLUSTER, brokers)
    assert failed == {}
    assert set(found) == set(brokers)
