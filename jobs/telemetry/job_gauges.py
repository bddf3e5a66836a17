"""Gauges from a batch's report: brokers, states, balance, alarms.

A broker that is forgotten loses its series with the same batch. The names of Pulsar are those of
its LoadManagerReport and BrokerLoadData.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from jobs.telemetry.job_counts import WrittenBatch
from jobs.telemetry.job_names import ALARMS, CHANNEL, LOADING, UNLOADING, USAGE_NAMES
from jobs.telemetry.store import MetricStore
from lbcore.balancer.intake.clock import DRIVER, KAFKA
from lbcore.balancer.report import CLOCKS, GAUGES, HIGH, LOW
from lbcore.model.tables import LOAD_HISTORY
from lbcore.ownership.records import State

_S = 1_000
_DISAGREEMENTS = {
    "reported_not_owned": "reported_not_owned",
    "owned_not_reported": "owned_not_reported",
    "disagreement_lasts": "lasting",
}
_BUNDLE_COLUMNS = (
    "msg_rate_in",
    "msg_rate_out",
    "msg_throughput_in",
    "msg_throughput_out",
    "topics",
)


def show_cluster(store: MetricStore, report: Mapping[str, Any]) -> None:
    """Show one cluster as it is after a batch."""
    cluster = report["cluster"]
    on = {alarm.partition(":")[0] for alarm in report["alarms"]}
    for alarm in ALARMS:
        store.set("ballast_alarm", int(alarm in on), cluster, alarm)
    store.set("ballast_batch_timestamp_seconds", report["now_ms"] / _S, cluster)
    ahead_ms = {DRIVER: 0, KAFKA: 0, **report.get(CLOCKS, {})}
    ahead_s = {(clock,): ms / _S for clock, ms in ahead_ms.items()}
    store.replace("ballast_clock_ahead_seconds", ahead_s, cluster)
    if GAUGES not in report:
        return  # making them raised: the metrics stay what they were, and the alarm says so
    gauges = report[GAUGES]
    store.set("ballast_cycle", report["cycle"], cluster)
    store.set("ballast_catching_up", int(gauges["is_catching_up"]), cluster)
    store.set("ballast_debug", int(report["is_debugging"]), cluster)
    store.set("ballast_paused", int("" in report["rules"]["paused"]), cluster)
    store.set("ballast_quiet", int(gauges["is_quiet"]), cluster)
    without = {(setting,): float(n) for setting, n in report["without_candidate"].items()}
    store.replace("ballast_bundles_without_candidate", without, cluster)
    store.set("ballast_ignored_settings", len(report["rules"]["set_aside"]), cluster)
    store.set("ballast_split_hits", gauges["split_hits"], cluster)
    store.set("ballast_unsplittable_bundles", gauges["unsplittable"], cluster)
    store.set("ballast_bundles_with_topics", gauges["topics"]["bundles"], cluster)
    blocked = {(n, one["reason"]): one["for_ms"] / _S for n, one in gauges["blocked"].items()}
    store.replace("ballast_broker_blocked_seconds", blocked, cluster)
    needed = {(level,): float(hits) for level, hits in gauges["hits_needed"].items()}
    store.replace("ballast_hits_needed", needed, cluster)
    _show_brokers(store, cluster, report["brokers"], gauges["brokers"])
    _show_ownership(store, report)
    _show_balance(store, cluster, gauges["balance"])
    drains = report["rules"]["drains"]
    left = {(name,): float(drain["left"]) for name, drain in drains.items()}
    store.replace("ballast_drain_remaining_bundles", left, cluster)


def show_bundles(store: MetricStore, seen: WrittenBatch) -> None:
    """Show each bundle's load, when the batch wrote its history."""
    names = ("cluster", "broker", "bundles", *_BUNDLE_COLUMNS)
    found: dict[tuple[str, str], dict[tuple[str, ...], float]] = defaultdict(dict)
    for cluster, broker, bundles, *columns in seen.rows(LOAD_HISTORY.name, *names):
        for column, values in zip(_BUNDLE_COLUMNS, columns, strict=True):
            name = f"pulsar_bundle_{'topics_count' if column == 'topics' else column}"
            shown = found[cluster, name]
            for bundle, value in zip(bundles, values, strict=True):
                shown[broker, bundle, LOADING] = value
    for (cluster, name), shown in sorted(found.items()):
        store.replace(name, shown, cluster)


def _show_brokers(
    store: MetricStore, cluster: str, brokers: Mapping[str, Any], columns: Mapping[str, Any]
) -> None:
    names, is_up = columns["name"], columns["is_up"]
    for at, usage in enumerate(USAGE_NAMES):
        percent = {(n, LOADING): p[at] for n, p in zip(names, columns["percent"], strict=True)}
        store.replace(usage, _live(percent, brokers), cluster)
    highest = zip(names, columns["max_usage"], strict=True)
    scores = {(n, "max", LOADING): usage for n, usage in highest}
    scores |= {(n, "max_ema", LOADING): one["score"] for n, one in brokers.items()}
    store.replace("pulsar_lb_resource_usage", _live(scores, brokers), cluster)
    owned = {(name, CHANNEL): one["bundles"] for name, one in brokers.items()}
    store.replace("pulsar_sunit_state_chn_owned_su_total", owned, cluster)
    for metric, column in (
        ("ballast_broker_messages_per_second", [one["msg_rate"] for one in brokers.values()]),
        ("ballast_broker_usage", [one["usage"] for one in brokers.values()]),
        ("ballast_broker_bytes_per_second", columns["throughput"]),
        ("ballast_broker_topics", columns["topics"]),
    ):
        values = {(name,): v for name, v in zip(names, column, strict=True)}
        store.replace(metric, _live(values, brokers), cluster)
    ups = {(name,): float(one) for name, one in zip(names, is_up, strict=True)}
    store.replace("ballast_broker_up", ups, cluster)
    ages_ms = zip(names, columns["report_age_ms"], strict=True)
    ages = {(name,): ms / _S for name, ms in ages_ms if ms is not None}
    store.replace("ballast_report_age_seconds", ages, cluster)
    hits = {
        (n, level): h for level in (LOW, HIGH) for n, h in zip(names, columns[level], strict=True)
    }
    store.replace("ballast_broker_hits", hits, cluster)
    states = [one["state"] for one in brokers.values()]
    for state in ("active", "draining", "silent"):
        store.set("ballast_brokers", states.count(state), cluster, state)


def _live(
    values: Mapping[tuple[Any, ...], Any], brokers: Mapping[str, Any]
) -> dict[tuple[Any, ...], float]:
    """The values, by labels that begin with the broker, of those whose load is known."""
    known = {name for name, one in brokers.items() if one["usage"] is not None}
    return {labels: float(v) for labels, v in values.items() if labels[0] in known}


def _show_ownership(store: MetricStore, report: Mapping[str, Any]) -> None:
    cluster, states = report["cluster"], report[GAUGES]["states"]
    for state in State:
        store.set("ballast_bundles", report["bundles"].get(state.value, 0), cluster, state.value)
    for state, found in states.items():
        store.set("ballast_oldest_record_seconds", found["oldest_ms"] / _S, cluster, state)
    stuck = sum(found["stuck"] for found in states.values())
    store.set("ballast_stuck_bundles", stuck, cluster)
    for key, kind in _DISAGREEMENTS.items():
        store.set("ballast_disagreements", report["counts"].get(key, 0), cluster, kind)


def _show_balance(store: MetricStore, cluster: str, balance: Mapping[str, float | None]) -> None:
    stats = {
        ("max_ema", UNLOADING, "avg"): balance["score_mean"],
        ("max_ema", UNLOADING, "std"): balance["score_std"],
    }
    for name, shown in (
        ("ballast_imbalance", {(): balance["imbalance"]}),
        ("ballast_floor_adjusted_imbalance", {(): balance["floor_adjusted"]}),
        ("pulsar_lb_resource_usage_stats", stats),
    ):
        known = {labels: value for labels, value in shown.items() if value is not None}
        store.replace(name, known, cluster)
