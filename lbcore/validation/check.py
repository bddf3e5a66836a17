"""Whether settings suit each other: errors stop a start, warnings say what can't work as meant.

Decides nothing about single values (`config.values`). `ballast config check`, the start of every
process and the command that changes settings run it. Source: Pulsar 4.0.8 where a class is named,
the pathologies of its shedders' documentation, and ours.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lbcore.config.cluster import EXTERNAL
from lbcore.config.ownership import FENCING_LEASE
from lbcore.config.placement import AVG
from lbcore.config.strategies import (
    PLACEMENT,
    SHEDDING,
    WITH_THEIR_OWN_PLACEMENT,
    short_name,
)
from lbcore.config.tree import Config
from lbcore.config.values import ConfigError, Problem

PULSAR_UNLOAD_MS = 60_000
"""Pulsar's own longest unload: behind the bridge nothing may be called stuck before it is over."""

HEARTBEATS_PER_TIMEOUT = 3
USAGE_DIFFERENCE_USUAL_MAX = 50.0
PERCENT = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What doesn't suit. is_error: nothing starts with it. cluster: "" = all."""

    problem: Problem
    is_error: bool
    cluster: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The largest differences between two brokers of the real cluster, as far as known.

    message_rate_per_s: in + out. throughput_bytes_per_s: in + out. score_points: 100 = 100 %.
    """

    message_rate_per_s: float | None = None
    throughput_bytes_per_s: float | None = None
    score_points: float | None = None


Check = Callable[[Config], Iterator[Finding]]


def check_config(config: Config, observed: Observed | None = None) -> tuple[Finding, ...]:
    """Everything that doesn't suit, for all clusters and for each that has settings of its own.

    Errors first, then in the order of the checks; what holds for all is said once.
    """
    found = list(_check_tree(config.for_cluster(""), observed))
    for cluster in sorted(config.per_cluster):
        own = _check_tree(config.for_cluster(cluster), observed)
        found += [
            Finding(problem=item.problem, is_error=item.is_error, cluster=cluster)
            for item in own
            if item not in found
        ]
    return tuple(sorted(found, key=lambda item: not item.is_error))


def require_suitable(config: Config) -> Config:
    """The configuration itself; raises ConfigError with what `check_config` calls errors."""
    errors = [item for item in check_config(config) if item.is_error]
    if errors:
        raise ConfigError(tuple(item.problem for item in errors))
    return config


def _check_tree(config: Config, observed: Observed | None) -> Iterator[Finding]:
    for check in _CHECKS:
        yield from check(config)
    yield from _check_observed(config, observed or Observed())


def _error(key: str, detail: str) -> Finding:
    return Finding(problem=Problem(key=key, detail=detail), is_error=True)


def _warning(key: str, detail: str) -> Finding:
    return Finding(problem=Problem(key=key, detail=detail), is_error=False)


def _shedding(config: Config) -> str:
    return short_name(config.shedding.strategy, SHEDDING)


def _placement(config: Config) -> str:
    return short_name(config.placement.strategy, PLACEMENT)


def _check_strategies(config: Config) -> Iterator[Finding]:
    shedding, placement = _shedding(config), _placement(config)
    if shedding not in SHEDDING:
        yield _error("shedding.strategy", f"{shedding!r} is none: take {', '.join(SHEDDING)}")
    if placement not in PLACEMENT:
        yield _error("placement.strategy", f"{placement!r} is none: take {', '.join(PLACEMENT)}")
    # Pulsar: ModularLoadManagerImpl shares one AvgShedder and refuses to start with half of it.
    for name in WITH_THEIR_OWN_PLACEMENT:
        if (shedding == name) == (placement == name):
            continue
        key = "placement.strategy" if shedding == name else "shedding.strategy"
        detail = (
            f"{name} plans where bundles go while it sheds, so both strategies must be {name} or "
            f"neither; now shedding is {shedding} and placement {placement}: change both at once"
        )
        yield _error(key, detail)


def _check_intervals(config: Config) -> Iterator[Finding]:
    pipeline = config.pipeline
    cycle = pipeline.decision_interval_ms
    for name in ("shed_interval_ms", "split_interval_ms"):
        interval = getattr(pipeline, name)
        if interval % cycle:
            detail = f"must be a multiple of decision_interval_ms = {cycle}, got {interval}"
            yield _error(f"pipeline.{name}", detail)
    if pipeline.trigger_ms > cycle:
        detail = f"{pipeline.trigger_ms} is above decision_interval_ms = {cycle}: cycles are late"
        yield _warning("pipeline.trigger_ms", detail)


def _check_liveness(config: Config) -> Iterator[Finding]:
    ownership, agent, pipeline = config.ownership, config.agent, config.pipeline
    timeout, heartbeat = ownership.broker_timeout_ms, agent.heartbeat_interval_ms
    if heartbeat + pipeline.trigger_ms >= timeout:
        detail = (
            f"{timeout} is not above heartbeat_interval_ms + trigger_ms ="
            f" {heartbeat + pipeline.trigger_ms}: live brokers would be taken for dead"
        )
        yield _error("ownership.broker_timeout_ms", detail)
    elif heartbeat * HEARTBEATS_PER_TIMEOUT > timeout:
        detail = (
            f"{timeout} is less than {HEARTBEATS_PER_TIMEOUT} heartbeats of {heartbeat}:"
            " one lost heartbeat is nearly a death"
        )
        yield _warning("ownership.broker_timeout_ms", detail)
    if pipeline.tick_interval_ms * 2 > ownership.clock_step_max_ms:
        detail = (
            f"{ownership.clock_step_max_ms} is less than two ticks of"
            f" {pipeline.tick_interval_ms}: Kafka's clock falls behind when one tick is late"
        )
        yield _warning("ownership.clock_step_max_ms", detail)
    if pipeline.tick_interval_ms >= ownership.tick_alarm_ms:
        detail = f"{ownership.tick_alarm_ms} is not above tick_interval_ms: the alarm never ends"
        yield _warning("ownership.tick_alarm_ms", detail)


def _check_fencing(config: Config) -> Iterator[Finding]:
    ownership = config.ownership
    if ownership.fencing != FENCING_LEASE:
        return
    longest = config.agent.agent_lease_ms + ownership.clock_step_max_ms + config.pipeline.trigger_ms
    if longest >= ownership.broker_timeout_ms:
        detail = (
            f"lease + clock step + a batch = {longest} must be below broker_timeout_ms ="
            f" {ownership.broker_timeout_ms}, else two brokers may serve a bundle at once"
        )
        yield _error("agent.agent_lease_ms", detail)
    if config.agent.heartbeat_interval_ms * 2 > config.agent.agent_lease_ms:
        detail = "is less than two heartbeats: brokers would stop serving in normal operation"
        yield _error("agent.agent_lease_ms", detail)
    elif config.pipeline.plan_lag_max_ms > config.agent.agent_lease_ms:
        detail = (
            f"{config.agent.agent_lease_ms} is below plan_lag_max_ms ="
            f" {config.pipeline.plan_lag_max_ms}: a broker that returns may serve again while a"
            " late batch still gives its bundles away"
        )
        yield _warning("agent.agent_lease_ms", detail)


def _check_transitions(config: Config) -> Iterator[Finding]:
    ownership = config.ownership
    # Pulsar: ServiceUnitStateChannelImpl refuses to start with it.
    if ownership.tombstone_delay_ms < ownership.in_flight_timeout_ms:
        detail = f"must be at least in_flight_timeout_ms = {ownership.in_flight_timeout_ms}"
        yield _error("ownership.tombstone_delay_ms", detail)
    if ownership.unload_timeout_ms < ownership.in_flight_timeout_ms:
        detail = (
            f"{ownership.unload_timeout_ms} is below in_flight_timeout_ms ="
            f" {ownership.in_flight_timeout_ms}: closing has less time than opening"
        )
        yield _warning("ownership.unload_timeout_ms", detail)
    if config.topics.report_retention_ms < ownership.broker_timeout_ms * 10:
        detail = "is less than ten broker timeouts: a short stop of the job loses reports"
        yield _warning("topics.report_retention_ms", detail)


def _check_authority(config: Config) -> Iterator[Finding]:
    if config.cluster.authority != EXTERNAL:
        return
    if config.ownership.in_flight_timeout_ms <= PULSAR_UNLOAD_MS:
        detail = (
            f"with authority external it must be above Pulsar's own unload of {PULSAR_UNLOAD_MS},"
            f" got {config.ownership.in_flight_timeout_ms}: running unloads would be called stuck"
        )
        yield _error("ownership.in_flight_timeout_ms", detail)
    if config.ownership.fencing == FENCING_LEASE:
        detail = "lease needs agents; with authority external there are none: take token"
        yield _error("ownership.fencing", detail)


def _check_reports(config: Config) -> Iterator[Finding]:
    agent, wire = config.agent, config.wire
    if agent.bundles_per_part > wire.max_bundles_per_message:
        detail = (
            f"{agent.bundles_per_part} is above wire.max_bundles_per_message ="
            f" {wire.max_bundles_per_message}: such reports would be rejected"
        )
        yield _error("agent.bundles_per_part", detail)
    signals = config.signals
    if signals.report_check_ms > signals.report_max_interval_ms:
        detail = f"must be at most report_max_interval_ms = {signals.report_max_interval_ms}"
        yield _error("signals.report_check_ms", detail)
    if config.topics.min_insync_replicas > config.topics.replication_factor:
        detail = (
            f"{config.topics.min_insync_replicas} copies can't be in sync when there are only"
            f" {config.topics.replication_factor}: nothing could be sent"
        )
        yield _error("topics.min_insync_replicas", detail)


def _check_avg(config: Config) -> Iterator[Finding]:
    shedding = config.shedding
    if _shedding(config) != AVG:
        return
    low, high = shedding.avg_low_threshold, shedding.avg_high_threshold
    if low >= high:
        detail = f"{low:g} must be below avg_high_threshold = {high:g}: every hit is a high one"
        yield _warning("shedding.avg_low_threshold", detail)
    if high > PERCENT:
        detail = f"{high:g} points are hardly reached: scores are percentages of a broker"
        yield _warning("shedding.avg_high_threshold", detail)
    if shedding.avg_low_hits <= shedding.avg_high_hits:
        detail = (
            f"{shedding.avg_low_hits} is not above avg_high_hits = {shedding.avg_high_hits}:"
            " a small difference acts as soon as a large one"
        )
        yield _warning("shedding.avg_low_hits", detail)


def _check_multi_hit(config: Config) -> Iterator[Finding]:
    shedding = config.shedding
    if not shedding.multi_hit:
        return
    if _shedding(config) not in ("threshold", "overload", "uniform"):
        detail = "is for threshold, overload and uniform; the present strategy counts by itself"
        yield _warning("shedding.multi_hit", detail)
    if shedding.multi_hit_low_percent >= shedding.multi_hit_high_percent:
        detail = f"must be below multi_hit_high_percent = {shedding.multi_hit_high_percent:g}"
        yield _warning("shedding.multi_hit_low_percent", detail)
    if shedding.multi_hit_low_hits <= shedding.multi_hit_high_hits:
        detail = f"is not above multi_hit_high_hits = {shedding.multi_hit_high_hits}"
        yield _warning("shedding.multi_hit_low_hits", detail)


def _check_thresholds(config: Config) -> Iterator[Finding]:
    shedding, strategy = config.shedding, _shedding(config)
    if strategy == "threshold" and shedding.threshold_percent <= 0:
        detail = "is not positive: brokers below the average shed, bundles move for ever"
        yield _warning("shedding.threshold_percent", detail)
    if strategy == "overload" and shedding.overloaded_threshold_percent > PERCENT:
        detail = f"{shedding.overloaded_threshold_percent:g} % is hardly reached: nothing is shed"
        yield _warning("shedding.overloaded_threshold_percent", detail)
    if strategy == "uniform":
        yield from _check_uniform(config)
    if strategy in (AVG, "uniform") and not 0 < shedding.max_unload_fraction <= 0.5:  # noqa: PLR2004 half
        detail = (
            f"{shedding.max_unload_fraction:g}: above one half the brokers change places,"
            " at 0 nothing moves"
        )
        yield _warning("shedding.max_unload_fraction", detail)


def _check_uniform(config: Config) -> Iterator[Finding]:
    shedding = config.shedding
    if shedding.rate_difference_percent <= 0 and shedding.throughput_ratio <= 0:
        detail = "and throughput_ratio are both off: uniform never sheds"
        yield _warning("shedding.rate_difference_percent", detail)
    if 0 < shedding.throughput_ratio <= 1:
        detail = f"{shedding.throughput_ratio:g} is always exceeded: equal brokers shed"
        yield _warning("shedding.throughput_ratio", detail)


def _check_placement(config: Config) -> Iterator[Finding]:
    difference = config.placement.usage_difference_percent
    if _placement(config) != "least_resource_usage_with_weight":
        return
    if difference < 0:
        detail = f"{difference:g} is negative: brokers above the average count as the best"
        yield _warning("placement.usage_difference_percent", detail)
    if difference > USAGE_DIFFERENCE_USUAL_MAX:
        detail = f"{difference:g} is hardly reached: then all brokers are equal, placed at random"
        yield _warning("placement.usage_difference_percent", detail)


def _check_observed(config: Config, observed: Observed) -> Iterator[Finding]:
    shedding, strategy = config.shedding, _shedding(config)
    score = observed.score_points
    if strategy == AVG and score is not None and score < shedding.avg_low_threshold:
        detail = (
            f"{shedding.avg_low_threshold:g} is above the largest difference seen, {score:g}:"
            " nothing is shed"
        )
        yield _warning("shedding.avg_low_threshold", detail)
    rate, throughput = observed.message_rate_per_s, observed.throughput_bytes_per_s
    if strategy not in (AVG, "uniform") or rate is None:
        return
    fraction = shedding.max_unload_fraction
    moves_by_rate = rate * fraction > shedding.min_unload_rate_msg_per_s
    moves_by_throughput = (
        throughput is None or throughput * fraction > shedding.min_unload_throughput_bytes_per_s
    )
    if moves_by_rate or (throughput is not None and moves_by_throughput):
        return
    detail = (
        f"{shedding.min_unload_rate_msg_per_s:g} msg/s is not below {rate:g} (the largest"
        f" difference seen) × max_unload_fraction = {rate * fraction:g}: nothing is ever shed;"
        f" take less than {rate * fraction:g}"
    )
    yield _warning("shedding.min_unload_rate_msg_per_s", detail)


_CHECKS: tuple[Check, ...] = (
    _check_strategies,
    _check_intervals,
    _check_liveness,
    _check_fencing,
    _check_transitions,
    _check_authority,
    _check_reports,
    _check_avg,
    _check_multi_hit,
    _check_thresholds,
    _check_placement,
)
