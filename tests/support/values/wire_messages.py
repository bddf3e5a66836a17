"""One good message of every kind, and the rules they are parsed by."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson

from lbcore.model.names import Wire
from lbcore.model.resources import complete
from lbcore.wire.fields import ParseRules
from lbcore.wire.messages import (
    Ack,
    AckOutcome,
    Acks,
    AuditEntry,
    BrokerLoad,
    BundleLoad,
    Command,
    Envelope,
    Heartbeat,
    Message,
    Tick,
    TopicLoad,
)

RULES = ParseRules(clusters=frozenset({"local", "east"}), limits=Wire(), loads=orjson.loads)
STANDARD_RULES = ParseRules(clusters=RULES.clusters, limits=Wire(), loads=json.loads)

ENVELOPE = Envelope(
    cluster="local",
    broker="broker-1:8080",
    incarnation="1795248295272",
    seq=7,
    reported_at_ms=1_795_249_787_508,
)
BUNDLES = ("acme/orders/0x00000000_0x80000000", "acme/orders/0x80000000_0xffffffff")

GOOD: Mapping[str, Message] = {
    "tick": Tick(cluster="local", number=12),
    "heartbeat": Heartbeat(envelope=ENVELOPE),
    "broker_load": BrokerLoad(
        envelope=ENVELOPE,
        usage=np.array(complete([150.5, 100.0, 10.0, 0.0, 20.0])),
        limit=np.array(complete([200.0, 600.0, 500.0, -1000.0, 1000.0])),
        traffic=np.array([10.0, 20.5, 1000.0, 2000.0]),
        topic_count=3,
        bundle_count=2,
        consumer_count=4,
        producer_count=1,
        web_service_url="http://broker-1:8080",
        pulsar_service_url="pulsar://broker-1:6650",
        advertised_listeners={"external": {"brokerServiceUrl": "pulsar://1.2.3.4:6650"}},
        broker_version="4.0.8",
        failure_domain="rack-1",
        capacity=2.0,
        is_draining=True,
        offered_msg_rate=90.5,
    ),
    "bundle_load": BundleLoad(
        envelope=ENVELOPE,
        part=0,
        parts=2,
        names=BUNDLES,
        stats=np.array([[1.5, 2, 100, 200, 3, 4, 5, 6], [0, 0, 0.25, 0, 1, 0, 0, 0]]),
    ),
    "no_bundles": BundleLoad(envelope=ENVELOPE, part=0, parts=1, names=(), stats=np.zeros((0, 8))),
    "topic_load": TopicLoad(
        envelope=ENVELOPE,
        bundle=BUNDLES[0],
        topics=("persistent://acme/orders/a", "persistent://acme/orders/ü-partition-0"),
        traffic=np.array([[1.0, 2.0, 3.0, 4.0], [0.5, 0.0, 0.0, 0.0]]),
    ),
    "acks": Acks(
        envelope=ENVELOPE,
        acks=(
            Ack(bundle=BUNDLES[0], version_id=3, outcome=AckOutcome.OPENED),
            Ack(bundle=BUNDLES[1], version_id=9, outcome=AckOutcome.FAILED, reason="disk full"),
        ),
    ),
    "command": Command(
        cluster="local",
        command_id="c-1",
        kind="create_namespace",
        arguments={"namespace": "acme/orders", "bundles": 4},
        principal="ops",
        address="10.0.0.1",
        timeout_ms=5_000,
    ),
    "audit": AuditEntry(
        cluster="local",
        principal="eve",
        address="10.0.0.9",
        action="unload",
        is_allowed=False,
        reason="role viewer",
        command_id="c-2",
    ),
}


def content(value: Any) -> Any:
    """A message as plain values, which compare by equality."""
    if isinstance(value, np.ndarray):
        return (value.shape, str(value.dtype), value.tolist())
    slots = getattr(type(value), "__slots__", None)
    if slots is not None:
        fields = {name: content(getattr(value, name)) for name in slots}
        return (type(value).__name__, fields)
    if isinstance(value, tuple):
        return tuple(content(item) for item in value)
    return value


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) inside of a JSON value, outer ones first."""
    inner = list(value) if isinstance(value, dict) else range(len(value))
    here = [(value, key) for key in inner]
    return here + [
        place
        for key in inner
        if isinstance(value[key], dict | list)
        for place in places(value[key])
    ]
