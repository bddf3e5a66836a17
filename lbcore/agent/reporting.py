"""Schedule of an agent's reports: heartbeats, its changed load, bundles' topics.

Makes each message when it is due by `signals.usage`; the service provides the load. Source: Pulsar
4.0.8's BrokerLoadDataReporter and TopBundleLoadDataReporter; heartbeats replace the session of
Pulsar's metadata store.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lbcore.config.signals import SignalsConfig
from lbcore.model.resources import COUNT
from lbcore.signals.usage import ReportedLoad, reported_load, resource_percent, should_report
from lbcore.wire.format import REASON_CHARS_MAX, bundle_load_parts
from lbcore.wire.messages import (
    NOT_REPORTED,
    Ack,
    BrokerLoad,
    BundleLoad,
    Envelope,
    Floats,
    Heartbeat,
    Topic,
    TopicLoad,
)

NEVER_MS = -(2**62)
PART_CHARS_MAX = 131_072
"""Maximum characters of a message of acks: half of wire.max_message_bytes, in any encoding (four
bytes in UTF-8, or escaped in JSON)."""

_ACK_CHARS = 64  # the names of an ack's fields, its version and outcome
_UNUSED = np.zeros(COUNT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One start of a broker, with its addresses and labels."""

    cluster: str
    broker: str
    incarnation: str
    web_service_url: str = ""
    web_service_url_tls: str = ""
    pulsar_service_url: str = ""
    pulsar_service_url_tls: str = ""
    advertised_listeners: Mapping[str, object] = field(default_factory=dict)
    broker_version: str = ""
    load_manager_class: str = ""
    failure_domain: str = ""
    capacity: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRead:
    """The service's answer to ReadLoad.

    usage, limit: float64[resources] in their order; traffic: float64[4] in the order of TRAFFIC;
    bundles: names of what is served, stats: float64[bundles, 8] in the order of BUNDLE_COLUMNS.
    offered_msg_rate: msg/s in and out that clients ask for (served, rejected and queued); None =
    unknown.
    """

    usage: Floats
    limit: Floats
    traffic: Floats
    bundles: tuple[str, ...]
    stats: Floats
    topic_count: int = 0
    consumer_count: int = 0
    producer_count: int = 0
    offered_msg_rate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsRead:
    """The topics of one bundle. traffic: float64[topics, 4] in the order of TRAFFIC."""

    bundle: str
    topics: tuple[str, ...]
    traffic: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsReported:
    """Last report of a bundle's topics."""

    topics: tuple[str, ...]
    load: ReportedLoad
    reported_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporting:
    """Reports that an agent has sent so far.

    seqs: the last seq of each topic. Times are of the last one of their kind: sent_at_ms of a
    message of broker-load, asked_at_ms of ReadLoad, reported_at_ms of load, bundles_reported_at_ms
    of the bundles' load. topics: last reports of served bundles' topics. is_draining: the broker
    asks to be drained.
    """

    seqs: Mapping[str, int] = field(default_factory=dict)
    sent_at_ms: int = NEVER_MS
    asked_at_ms: int = NEVER_MS
    reported_at_ms: int = NEVER_MS
    bundles_reported_at_ms: int = NEVER_MS
    load: ReportedLoad | None = None
    topics: Mapping[str, TopicsReported] = field(default_factory=dict)
    is_draining: bool = False


def envelope(
    reporting: Reporting, topic: Topic, identity: Identity, now_ms: int
) -> tuple[Reporting, Envelope]:
    """Return the next envelope of a topic, and the reporting that counts it."""
    seq = reporting.seqs.get(topic.value, 0) + 1
    made = Envelope(
        cluster=identity.cluster,
        broker=identity.broker,
        incarnation=identity.incarnation,
        seq=seq,
        reported_at_ms=now_ms,
    )
    return replace(reporting, seqs={**reporting.seqs, topic.value: seq}), made


def heartbeat(reporting: Reporting, identity: Identity, now_ms: int) -> tuple[Reporting, Heartbeat]:
    """A heartbeat."""
    counted, made = envelope(reporting, Topic.BROKER_LOAD, identity, now_ms)
    return replace(counted, sent_at_ms=now_ms), Heartbeat(envelope=made)


def report_load(
    reporting: Reporting, read: LoadRead, identity: Identity, config: SignalsConfig, now_ms: int
) -> tuple[Reporting, BrokerLoad]:
    """Report the broker's own load."""
    counted, made = envelope(reporting, Topic.BROKER_LOAD, identity, now_ms)
    load = BrokerLoad(
        envelope=made,
        usage=read.usage,
        limit=read.limit,
        traffic=read.traffic,
        topic_count=read.topic_count,
        bundle_count=len(read.bundles),
        consumer_count=read.consumer_count,
        producer_count=read.producer_count,
        web_service_url=identity.web_service_url,
        web_service_url_tls=identity.web_service_url_tls,
        pulsar_service_url=identity.pulsar_service_url,
        pulsar_service_url_tls=identity.pulsar_service_url_tls,
        advertised_listeners=identity.advertised_listeners,
        broker_version=identity.broker_version,
        load_manager_class=identity.load_manager_class,
        failure_domain=identity.failure_domain,
        capacity=identity.capacity,
        is_draining=reporting.is_draining,
        offered_msg_rate=NOT_REPORTED if read.offered_msg_rate is None else read.offered_msg_rate,
    )
    served = {name: counted.topics[name] for name in read.bundles if name in counted.topics}
    reported = replace(
        counted,
        sent_at_ms=now_ms,
        reported_at_ms=now_ms,
        load=_load_of(read, config),
        topics=served,
    )
    return reported, load


def report_bundles(
    reporting: Reporting, read: LoadRead, identity: Identity, now_ms: int, bundles_per_part: int
) -> tuple[Reporting, Sequence[BundleLoad]]:
    """Report the bundles' loads, in one or more parts."""
    counted, made = envelope(reporting, Topic.BUNDLE_LOAD, identity, now_ms)
    parts = bundle_load_parts(made, read.bundles, read.stats, bundles_per_part)
    return replace(counted, bundles_reported_at_ms=now_ms), parts


def in_parts(acks: Sequence[Ack], acks_per_part: int) -> list[list[Ack]]:
    """Return the acks in order, in parts within the limits of a message."""
    parts: list[list[Ack]] = []
    size = PART_CHARS_MAX
    for ack in acks:
        chars = len(ack.bundle) + min(len(ack.reason), REASON_CHARS_MAX) + _ACK_CHARS
        if not parts or len(parts[-1]) == acks_per_part or size + chars > PART_CHARS_MAX:
            parts.append([])
            size = 0
        parts[-1].append(ack)
        size += chars
    return parts


def report_topics(
    reporting: Reporting, read: TopicsRead, identity: Identity, config: SignalsConfig, now_ms: int
) -> tuple[Reporting, TopicLoad | None]:
    """Report a bundle's topics: at once when they changed, else by the trigger."""
    load = reported_load(_UNUSED, read.traffic.sum(axis=0), len(read.topics), config)
    last = reporting.topics.get(read.bundle)
    if (
        last is not None
        and last.topics == read.topics
        and not should_report(last.load, load, now_ms - last.reported_at_ms, config)
    ):
        return reporting, None
    counted, made = envelope(reporting, Topic.TOPIC_LOAD, identity, now_ms)
    reported = TopicsReported(topics=read.topics, load=load, reported_at_ms=now_ms)
    message = TopicLoad(envelope=made, bundle=read.bundle, topics=read.topics, traffic=read.traffic)
    return replace(counted, topics={**counted.topics, read.bundle: reported}), message


def are_due(
    reporting: Reporting, read: LoadRead, config: SignalsConfig, now_ms: int
) -> tuple[bool, bool]:
    """Return whether the broker's load is due now, and whether its bundles' is.

    Its load: the first time, at the longest interval, or by the trigger. Its bundles': at their own
    interval if they have one, else with the broker's.
    """
    if reporting.load is None:
        return True, True
    elapsed_ms = now_ms - reporting.reported_at_ms
    is_due = should_report(reporting.load, _load_of(read, config), elapsed_ms, config)
    if config.bundle_report_interval_ms == 0:
        return is_due, is_due
    elapsed_ms = now_ms - reporting.bundles_reported_at_ms
    return is_due, elapsed_ms >= config.bundle_report_interval_ms


def _load_of(read: LoadRead, config: SignalsConfig) -> ReportedLoad:
    percent = resource_percent(read.usage, read.limit)
    return reported_load(percent, read.traffic, len(read.bundles), config)
