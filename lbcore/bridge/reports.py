"""A broker's load as wire messages, one fresh observation a report.

Decides what each reading of a broker sends: load and bundles if Pulsar has measured anew, and at
least once in report_max_interval_ms; the broker's load alone if only its usage has changed, by more
than report_change_percent; otherwise a heartbeat. A load that repeats a measurement would count as
another hit. `jobs.bridge.collector` reads the answers and sends these messages.

Also computes the latency for a broker's clients, as far as Pulsar reports it: the time to publish,
and the time to load a topic. The first is from the growth of the sums on a broker's Prometheus page
between two looks: the quantiles beside them cover the past minutes, and would slow moves long after
the latency has fallen. The second is the mean of one page, because Pulsar begins those sums anew.
The time that clients wait while they look for a topic's new broker is not included. Source: Pulsar
4.0.8, AbstractTopic (pulsar_broker_publish_latency) and BrokerOperabilityMetrics
(pulsar_topic_load_times), both in ms.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lbcore.bridge.answers import Gauges, TopicTable, is_mirrored, samples
from lbcore.config.signals import SignalsConfig
from lbcore.config.splitting import Splitting
from lbcore.config.tree import Config
from lbcore.model.names import whole_topic
from lbcore.model.resources import WIRE_NAMES
from lbcore.signals.usage import ReportedLoad, reported_load, resource_percent, should_report
from lbcore.wire.fields import MAX_NUMBER
from lbcore.wire.format import bundle_load_parts, busiest_topics
from lbcore.wire.messages import (
    BUNDLE_COLUMNS,
    TRAFFIC,
    BrokerLoad,
    BundleLoad,
    Envelope,
    Floats,
    Heartbeat,
    TopicLoad,
)
from lbcore.wire.pulsar import PulsarReport

Report = BrokerLoad | BundleLoad | Heartbeat | TopicLoad

_FULL, _UNKNOWN = 100.0, -1.0
_NEVER_MS = -(1 << 62)
_NEAR = 0.5
"""Part of a split limit from which a bundle may be split soon, so its topics are reported."""

_TOPICS, _CONSUMERS, _PRODUCERS = (
    BUNDLE_COLUMNS.index(name) for name in ("topics", "consumerCount", "producerCount")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One reading of a broker.

    stats: float64[names, 8] in the order of BUNDLE_COLUMNS.
    """

    load: BrokerLoad
    names: tuple[str, ...]
    stats: Floats

    @property
    def fingerprint(self) -> bytes:
        """Bytes that are equal for two readings of the same measurement.

        Pulsar computes the rates anew every statsUpdateFrequencyInSecs, and does not say when;
        lastUpdate and the usages are of the moment of asking.
        """
        return "\n".join(self.names).encode() + self.stats.tobytes()


@dataclass(frozen=True, slots=True, kw_only=True)
class SentReports:
    """The last messages sent about one broker.

    incarnation: the broker's then. seq: of the last message of any kind. fingerprint, reported_ms:
    of the last report with bundles. load: the broker's load as reported last.
    topics: bundle → fingerprint and time (ms) of the last report of its topics.
    """

    incarnation: str = ""
    seq: int = 0
    fingerprint: bytes = b""
    reported_ms: int = _NEVER_MS
    load: ReportedLoad | None = None
    topics: Mapping[str, tuple[bytes, int]] = field(default_factory=dict)


def measured_modular(report: PulsarReport) -> Measured:
    """Return the measurement in a load report of the modular manager."""
    load, bundles = report.load, report.bundles
    kept = [at for at, name in enumerate(bundles.names) if is_mirrored(name.rpartition("/")[0])]
    names = tuple(bundles.names[at] for at in kept)
    return Measured(load=load, names=names, stats=bundles.stats[kept])


def measured_extensible(
    envelope: Envelope, gauges: Gauges, table: TopicTable, web_service_url: str
) -> Measured:
    """Return the measurement of a broker with the extensible manager.

    It is from the broker's Prometheus page and its topics.
    """
    totals = table.stats.sum(axis=0) if len(table.bundles) else np.zeros(len(BUNDLE_COLUMNS))
    load = BrokerLoad(
        envelope=envelope,
        usage=np.nan_to_num(gauges.percent),
        limit=np.where(np.isnan(gauges.percent), _UNKNOWN, _FULL),
        traffic=totals[: len(TRAFFIC)].copy(),
        topic_count=int(totals[_TOPICS]),
        bundle_count=len(table.bundles),
        consumer_count=int(totals[_CONSUMERS]),
        producer_count=int(totals[_PRODUCERS]),
        web_service_url=web_service_url,
        broker_version=gauges.version,
        load_manager_class="extensible",
    )
    return Measured(load=load, names=table.bundles, stats=table.stats)


def partitions_in(topics: Iterable[str]) -> Mapping[str, int]:
    """Return partitioned or scalable topic → number of its parts in `topics`."""
    return Counter(whole for one in topics if (whole := whole_topic(one)) != one)


def with_network(measured: Measured, bytes_per_s: float) -> Measured:
    """Return the measurement with bandwidth usage computed from throughput.

    For brokers whose own figures are of no use: several on one machine, or a network of unknown
    speed. bytes_per_s: the network's capacity each way, > 0.
    """
    load = measured.load
    usage, limit = load.usage.copy(), load.limit.copy()
    for resource, traffic in (
        ("bandwidthIn", "msgThroughputIn"),
        ("bandwidthOut", "msgThroughputOut"),
    ):
        at = WIRE_NAMES.index(resource)
        usage[at] = load.traffic[TRAFFIC.index(traffic)]
        limit[at] = bytes_per_s
    return replace(measured, load=replace(load, usage=usage, limit=limit))


def report(
    sent: SentReports,
    measured: Measured,
    now_ms: int,
    signals: SignalsConfig,
    bundles_per_part: int,
) -> tuple[SentReports, list[Report]]:
    """Return the messages of one reading, and `sent` with them added.

    Sequence numbers are times of the collector's clock, so they go on rising after a restart of the
    collector.
    """
    incarnation = measured.load.envelope.incarnation
    before = sent if sent.incarnation == incarnation else SentReports(incarnation=incarnation)
    seq = max(before.seq, sent.seq, now_ms - 1) + 1
    envelope = replace(measured.load.envelope, seq=seq, reported_at_ms=now_ms)
    is_same = before.fingerprint == measured.fingerprint
    load = measured.load
    percent = resource_percent(load.usage, load.limit)
    now = reported_load(percent, load.traffic, len(measured.names), signals)
    message = replace(measured.load, envelope=envelope)
    if is_same and now_ms - before.reported_ms < signals.report_max_interval_ms:
        if before.load is None or not should_report(before.load, now, 0, signals):
            return replace(before, seq=seq), [Heartbeat(envelope=envelope)]
        return replace(before, seq=seq, load=now), [message]
    after = replace(before, seq=seq, fingerprint=measured.fingerprint, reported_ms=now_ms, load=now)
    parts = bundle_load_parts(envelope, measured.names, measured.stats, bundles_per_part)
    return after, [message, *parts]


def report_topics(
    sent: SentReports, measured: Measured, table: TopicTable, config: Config, now_ms: int
) -> tuple[SentReports, list[TopicLoad]]:
    """Return the reports of bundles' topics that are due, and `sent` with them added.

    A bundle is reported if it may be split soon, or has partitions of a partitioned topic, which
    are to be spread over brokers. It is due when its topics change (of one that may be split soon
    also their rates), and at the longest interval. Of more topics than one message may have only
    the busiest are reported. O(topics).
    """
    known, due, seq = dict(sent.topics), [], sent.seq
    near = set(near_a_split(measured.names, measured.stats, config.splitting))
    for name in measured.names:
        rates = table.rates.get(name)
        if rates is None or not (name in near or partitions_in(rates.topics)):
            continue
        fingerprint = "\n".join(rates.topics).encode()
        fingerprint += rates.traffic.tobytes() if name in near else b""
        last, sent_ms = known.get(name, (b"", _NEVER_MS))
        if last == fingerprint and now_ms - sent_ms < config.signals.report_max_interval_ms:
            continue
        seq = max(seq, now_ms - 1) + 1
        known[name] = fingerprint, now_ms
        envelope = replace(measured.load.envelope, seq=seq, reported_at_ms=now_ms)
        topics, traffic = busiest_topics(rates.topics, rates.traffic)
        due.append(TopicLoad(envelope=envelope, bundle=name, topics=topics, traffic=traffic))
    return replace(sent, topics=known, seq=seq), due


def near_a_split(names: Sequence[str], stats: Floats, config: Splitting) -> list[str]:
    """Return the bundles that have reached half of a split limit. O(bundles)."""
    if not len(names):
        return []
    column = dict(zip(BUNDLE_COLUMNS, stats.T, strict=True))
    limited = (
        (column["topics"], config.max_topics),
        (column["consumerCount"] + column["producerCount"], config.max_sessions),
        (column["msgRateIn"] + column["msgRateOut"], config.max_msg_rate_per_s),
        (column["msgThroughputIn"] + column["msgThroughputOut"], config.max_throughput_bytes_per_s),
    )
    is_near = np.any([(limit > 0) & (used >= _NEAR * limit) for used, limit in limited], axis=0)
    return [names[at] for at in np.flatnonzero(is_near).tolist()]


_PUBLISHED = ("pulsar_broker_publish_latency_sum", "pulsar_broker_publish_latency_count")
_LOADED = ("pulsar_topic_load_times_sum", "pulsar_topic_load_times_count")


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySums:
    """Sums of one Prometheus page: (total ms, count), or None if the page lacks them."""

    published: tuple[float, float] | None = None
    loaded: tuple[float, float] | None = None


def parse_client_latency(raw: bytes) -> LatencySums:
    """Return the sums of a Prometheus page; unreadable ones are None. O(bytes)."""
    page = raw.decode("utf-8", "replace")
    found = {
        name: value
        for name, _, value in samples(page, (*_PUBLISHED, *_LOADED))
        if 0.0 <= value <= MAX_NUMBER
    }
    published, loaded = (
        (found[total], found[count]) if total in found and count in found else None
        for total, count in (_PUBLISHED, _LOADED)
    )
    return LatencySums(published=published, loaded=loaded)


def publish_ms(before: LatencySums, now: LatencySums) -> float | None:
    """Return the mean time to publish between two pages; None = unknown, or restarted."""
    if before.published is None or now.published is None:
        return None
    total_ms, count = (now.published[at] - before.published[at] for at in (0, 1))
    if count < 0 or total_ms < 0:
        return None
    return total_ms / count if count else 0.0


def load_ms(now: LatencySums) -> float | None:
    """Return the mean time in which topics were loaded of late; None if not reported."""
    if now.loaded is None:
        return None
    total_ms, count = now.loaded
    return total_ms / count if count else 0.0


def worst_ms(found: Iterable[float | None]) -> float | None:
    """Return the highest of several brokers' latencies; None if none is reported."""
    return max((one for one in found if one is not None), default=None)
