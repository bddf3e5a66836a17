"""A broker's load as messages of ours, one fresh observation a report.

Decides what is worth a report: what Pulsar has measured anew, or, when nothing changes, one in
report_max_interval_ms; between them the broker's load alone when its usage has changed by more than
report_change_percent; a heartbeat otherwise. Loads that say nothing new must not count as hits.
`jobs.bridge.collector` reads the answers and sends what comes out.

Latency for a broker's clients: time to publish, and to load a topic. It is known only as far as
Pulsar reports it. Decides the first from the growth of the sums on a broker's Prometheus page
between two looks. The quantiles beside them are of the past minutes, which would hold a pace back
long after. The second is a page's own mean, because Pulsar begins its sums anew. The time that
clients wait while they look for a topic's new broker is not included. Source: Pulsar 4.0.8,
AbstractTopic (pulsar_broker_publish_latency) and BrokerOperabilityMetrics
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
from lbcore.wire.format import bundle_load_parts
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
"""A bundle at half of a split limit may be split soon: its topics are reported."""

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
        """Equal for readings of the same measurement.

        Pulsar computes the rates anew every statsUpdateFrequencyInSecs, and says nowhere when;
        lastUpdate and the usages are those of the moment of asking.
        """
        return "\n".join(self.names).encode() + self.stats.tobytes()


@dataclass(frozen=True, slots=True, kw_only=True)
class SentReports:
    """Last messages sent about one broker.

    incarnation: of the start that they were about. seq: of the last message of any kind.
    fingerprint, reported_ms: of the last report with bundles. load: the last of the broker's own.
    topics: bundle → fingerprint and time (ms) of the last report of its topics.
    """

    incarnation: str = ""
    seq: int = 0
    fingerprint: bytes = b""
    reported_ms: int = _NEVER_MS
    load: ReportedLoad | None = None
    topics: Mapping[str, tuple[bytes, int]] = field(default_factory=dict)


def measured_modular(report: PulsarReport) -> Measured:
    """Of a load report of the modular manager."""
    load, bundles = report.load, report.bundles
    kept = [at for at, name in enumerate(bundles.names) if is_mirrored(name.rpartition("/")[0])]
    names = tuple(bundles.names[at] for at in kept)
    return Measured(load=load, names=names, stats=bundles.stats[kept])


def measured_extensible(
    envelope: Envelope, gauges: Gauges, table: TopicTable, web_service_url: str
) -> Measured:
    """Of the Prometheus page and the topics of a broker with the extensible manager."""
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
    """Return the measurement with bandwidth as throughput over the network's capacity.

    For brokers whose own figures say nothing: several on one machine, or a network of unknown
    speed. bytes_per_s: each way, > 0.
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
    told: SentReports,
    measured: Measured,
    now_ms: int,
    signals: SignalsConfig,
    bundles_per_part: int,
) -> tuple[SentReports, list[Report]]:
    """The messages of one reading: load and bundles, or load alone, when it is news.

    Envelopes count by the collector's clock, so a collector that starts again goes on above.
    """
    incarnation = measured.load.envelope.incarnation
    before = told if told.incarnation == incarnation else SentReports(incarnation=incarnation)
    seq = max(before.seq, told.seq, now_ms - 1) + 1
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
    told: SentReports, measured: Measured, table: TopicTable, config: Config, now_ms: int
) -> tuple[SentReports, list[TopicLoad]]:
    """Topics of some bundles, when they change and at the longest interval.

    Of those that may be split soon names and rates, of others that have partitions of a partitioned
    topic the names: those are to be on more than a few brokers. O(topics).
    """
    known, sent, seq = dict(told.topics), [], told.seq
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
        sent.append(
            TopicLoad(envelope=envelope, bundle=name, topics=rates.topics, traffic=rates.traffic)
        )
    return replace(told, topics=known, seq=seq), sent


def near_a_split(names: Sequence[str], stats: Floats, config: Splitting) -> list[str]:
    """Return the bundles at half of one of the four split limits or more. O(bundles).

    In order.
    """
    if not len(names):
        return []
    column = {name: stats[:, at] for at, name in enumerate(BUNDLE_COLUMNS)}
    limited = (
        (column["topics"], config.max_topics),
        (column["consumerCount"] + column["producerCount"], config.max_sessions),
        (column["msgRateIn"] + column["msgRateOut"], config.max_msg_rate_per_s),
        (column["msgThroughputIn"] + column["msgThroughputOut"], config.max_throughput_bytes_per_s),
    )
    is_near = np.zeros(len(names), dtype=np.bool_)
    for used, limit in limited:
        is_near |= (limit > 0) & (used >= _NEAR * limit)
    return [names[at] for at in np.flatnonzero(is_near).tolist()]


_PUBLISHED = ("pulsar_broker_publish_latency_sum", "pulsar_broker_publish_latency_count")
_LOADED = ("pulsar_topic_load_times_sum", "pulsar_topic_load_times_count")


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySums:
    """Of one page: ms in all, and how often; None where it has no such."""

    published: tuple[float, float] | None = None
    loaded: tuple[float, float] | None = None


def parse_client_latency(raw: bytes) -> LatencySums:
    """Return the sums of a broker's Prometheus page. O(bytes).

    What can't be read is left out.
    """
    page = raw.decode("utf-8", "replace")
    found = {
        name: value
        for name, _, value in samples(page, (*_PUBLISHED, *_LOADED))
        if 0.0 <= value <= MAX_NUMBER
    }
    return LatencySums(published=_pair(found, _PUBLISHED), loaded=_pair(found, _LOADED))


def publish_ms(before: LatencySums, now: LatencySums) -> float | None:
    """Return the mean between two pages; None if unknown or after a restart."""
    if before.published is None or now.published is None:
        return None
    total_ms, count = (now.published[at] - before.published[at] for at in (0, 1))
    if count < 0 or total_ms < 0:
        return None
    return total_ms / count if count else 0.0


def load_ms(now: LatencySums) -> float | None:
    """The mean time that a topic has taken to load of late; None when it is not told."""
    if now.loaded is None:
        return None
    total_ms, count = now.loaded
    return total_ms / count if count else 0.0


def worst_ms(found: Iterable[float | None]) -> float | None:
    """Of several brokers; None when none of them tells."""
    return max((one for one in found if one is not None), default=None)


def _pair(found: Mapping[str, float], names: tuple[str, str]) -> tuple[float, float] | None:
    total, count = (found.get(name) for name in names)
    return None if total is None or count is None else (total, count)
