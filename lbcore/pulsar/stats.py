"""Load as Pulsar's broker-stats: a broker's report, metrics, topic statistics.

The numbers are the newest row of `load_history`; what Ballast does not measure (sessions of a
bundle, storage, subscriptions) is 0 or empty. Source: Pulsar 4.0.8, LocalBrokerData,
NamespaceBundleStats, TopicStats, BrokerStatsBase; the exchanges in tests/recordings.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any

from lbcore.model.names import Domain
from lbcore.model.resources import RESOURCES, WIRE_NAMES, complete, local_max
from lbcore.pulsar.names import (
    CONFLICT,
    NOT_ACCEPTABLE,
    SERVER_ERROR,
    PulsarError,
    unexpected,
)
from lbcore.route.slices import Fields

Row = Mapping[str, Any]

_FULL = 100.0
_TRAFFIC = ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut")
_COLUMNS = ("msg_rate_in", "msg_rate_out", "msg_throughput_in", "msg_throughput_out")
_WRAPPER = "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerWrapper"
_METRICS = tuple(f"brk_lb_{one.metric}_usage" for one in RESOURCES)


def no_load_report() -> PulsarError:
    """The extensible manager's answer to a load report without a broker."""
    why = "Ballast knows every broker's load: name one with ?broker="
    text = unexpected("null", "java.lang.UnsupportedOperationException", why)
    return PulsarError(SERVER_ERROR, text)


def no_availability() -> PulsarError:
    """The extensible manager's answer to broker-resource-availability."""
    return PulsarError(CONFLICT, f"{_WRAPPER} does not support this operation")


def allocator_stats(name: str) -> dict[str, Any]:
    """Return AllocatorStats without arenas. Raises PulsarError 406 for unknown names."""
    if name not in ("default", "ml-cache"):
        raise PulsarError(NOT_ACCEPTABLE, f"Invalid allocator name : {name}")
    counts = ("numDirectArenas", "numHeapArenas", "numThreadLocalCaches", "normalCacheSize")
    sizes = ("smallCacheSize", "usedHeapMemory", "usedDirectMemory")
    return {"directArenas": [], "heapArenas": [], **dict.fromkeys((*counts, *sizes), 0)}


def load_report(broker: Row, load: Row | None) -> dict[str, Any]:
    """Return LocalBrokerData.

    broker: its row of `brokers`; load: of `load_history`. Usages are percentages of a limit of 100.
    """
    percent = dict(zip(WIRE_NAMES, complete(load["percent"]), strict=True)) if load else {}
    traffic = dict(zip(_TRAFFIC, load["traffic"], strict=True)) if load else {}
    bundles = load["bundles"] if load else ()
    urls = {
        "webServiceUrl": broker["web_service_url"],
        "webServiceUrlTls": broker["web_service_url_tls"],
        "pulsarServiceUrl": broker["pulsar_service_url"],
        "pulsarServiceUrlTls": broker["pulsar_service_url_tls"],
    }
    highest = local_max(tuple(percent.values()))
    return {
        **{name: url for name, url in urls.items() if url},
        "persistentTopicsEnabled": True,
        "nonPersistentTopicsEnabled": True,
        **{name: {"usage": percent.get(name, 0.0), "limit": _FULL} for name in WIRE_NAMES},
        **{name: traffic.get(name, 0.0) for name in sorted(_TRAFFIC, reverse=True)},
        "lastUpdate": load["at_ms"] if load else broker["at_ms"],
        "lastStats": Fields(bundle_stats(load) if load else ()),
        "numTopics": int(sum(load["topics"])) if load else 0,
        "numBundles": len(bundles),
        "numConsumers": 0,
        "numProducers": 0,
        "bundles": sorted(bundles),
        "lastBundleGains": [],
        "lastBundleLosses": [],
        "brokerVersionString": broker["version"],
        "protocols": {},
        "advertisedListeners": {},
        "loadManagerClassName": broker["load_manager_class"],
        "startTimestamp": 0,
        "maxResourceUsage": highest / _FULL,
        "loadReportType": "LocalBrokerData",
    }


def bundle_stats(load: Row) -> Iterator[tuple[str, dict[str, Any]]]:
    """NamespaceBundleStats of each bundle of a broker's load."""
    for at, bundle in enumerate(load["bundles"]):
        rates = {name: load[column][at] for name, column in zip(_TRAFFIC, _COLUMNS, strict=True)}
        yield (
            bundle,
            {
                **rates,
                "consumerCount": 0,
                "producerCount": 0,
                "topics": int(load["topics"][at]),
                "cacheSize": 0,
            },
        )


def throughput(loads: Iterable[Row]) -> Iterator[tuple[str, float]]:
    """Each bundle's bytes/s in and out."""
    for load in loads:
        for at, bundle in enumerate(load["bundles"]):
            yield bundle, load["msg_throughput_in"][at] + load["msg_throughput_out"][at]


def topic_counts(loads: Iterable[Row]) -> Iterator[tuple[str, int]]:
    """Each bundle's topics, as its broker has reported them."""
    for load in loads:
        yield from zip(load["bundles"], map(int, load["topics"]), strict=True)


def metrics(loads: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """Metrics of broker-stats: each broker's usage in percent, its rates, its bundles."""
    for load in loads:
        broker = load["broker"]
        usage = dict(zip(_METRICS, complete(load["percent"]), strict=True))
        labels = {"broker": broker, "metric": "loadBalancing"}
        yield {"metrics": usage, "dimensions": labels}
        yield {
            "metrics": {"brk_lb_resource_usage": load["score"]},
            "dimensions": {**labels, "feature": "max_ema"},
        }
        yield {
            "metrics": {"brk_sunit_state_chn_owned_su_total": len(load["bundles"])},
            "dimensions": {"broker": broker, "metric": "sunitStateChn"},
        }


def stats_of(topics: Iterable[str]) -> dict[str, Fields]:
    """Return the topics of one bundle in broker-stats, by domain.

    topics: full names, in order.
    """
    found: dict[str, list[str]] = {}
    for topic in topics:
        found.setdefault(topic.partition("://")[0], []).append(topic)
    return {
        domain.value: Fields(zip(found[domain.value], repeat(_plain_stats(domain)), strict=False))
        for domain in Domain
        if domain.value in found
    }


def _plain_stats(domain: Domain) -> dict[str, Any]:
    counts = ("msgInCount", "bytesInCount", "msgOutCount", "bytesOutCount")
    stored = ("storageSize", "backlogSize", "pendingAddEntriesCount")
    return {
        "publishers": [],
        "replication": {},
        "subscriptions": {},
        "producerCount": 0,
        "averageMsgSize": 0.0,
        "msgRateIn": 0.0,
        "msgRateOut": 0.0,
        **dict.fromkeys(counts, 0),
        "msgThroughputIn": 0.0,
        "msgThroughputOut": 0.0,
        **dict.fromkeys(stored if domain is Domain.PERSISTENT else (), 0),
        "filteredEntriesCount": 0,
    }


def topic_stats(owner: str) -> dict[str, Any]:
    """Return TopicStats of a topic that was not measured. owner: broker, "" = none."""
    stats: dict[str, Any] = {
        "msgRateIn": 0.0,
        "msgThroughputIn": 0.0,
        "msgRateOut": 0.0,
        "msgThroughputOut": 0.0,
        "bytesInCounter": 0,
        "msgInCounter": 0,
        "systemTopicBytesInCounter": 0,
        "bytesOutCounter": 0,
        "msgOutCounter": 0,
        "bytesOutInternalCounter": 0,
        "averageMsgSize": 0.0,
        "msgChunkPublished": False,
        "storageSize": 0,
        "backlogSize": 0,
        "backlogQuotaLimitSize": -1,
        "backlogQuotaLimitTime": -1,
        "oldestBacklogMessageAgeSeconds": -1,
        "publishRateLimitedTimes": 0,
        "earliestMsgPublishTimeInBacklogs": 0,
        "offloadedStorageSize": 0,
        "lastOffloadLedgerId": 0,
        "lastOffloadSuccessTimeStamp": 0,
        "lastOffloadFailureTimeStamp": 0,
        "ongoingTxnCount": 0,
        "abortedTxnCount": 0,
        "committedTxnCount": 0,
        "publishers": [],
        "waitingPublishers": 0,
        "subscriptions": {},
        "replication": {},
        "deduplicationStatus": "Disabled",
        "nonContiguousDeletedMessagesRanges": 0,
        "nonContiguousDeletedMessagesRangesSerializedSize": 0,
        "delayedMessageIndexSizeInBytes": 0,
        "compaction": {
            "lastCompactionRemovedEventCount": 0,
            "lastCompactionSucceedTimestamp": 0,
            "lastCompactionFailedTimestamp": 0,
            "lastCompactionDurationTimeInMills": 0,
        },
    }
    return stats | {"ownerBroker": owner} if owner else stats


DEFAULT_QUOTA: Mapping[str, Any] = {
    "msgRateIn": 40.0,
    "msgRateOut": 120.0,
    "bandwidthIn": 100000.0,
    "bandwidthOut": 300000.0,
    "memory": 80.0,
    "dynamic": True,
}
"""ResourceQuota before any report: Pulsar's starting value, which decides nothing here."""
