"""Compatibility check of settings: errors stop a start, warnings do not.

Run by `ballast config check`, at the start of every process, and by the command that changes
settings; `config.values` checks single values. Source: Pulsar 4.0.8 where a class is named, and the
documented pathologies of its shedders.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from lbcore.config.cluster import EXTERNAL
from lbcore.config.load import checked_dynamic
from lbcore.config.ownership import FENCING_LEASE
from lbcore.config.placement import EXTENSIBLE
from lbcore.config.splitting import ALGORITHMS
from lbcore.config.tree import BY_COMMAND, CLUSTERS, Config, changed
from lbcore.config.values import ConfigError, ConfigFinding, UsageGaps, error, warning
from lbcore.model.resources import RESOURCES
from lbcore.plan.registry import (
    PLACEMENT_STRATEGIES,
    SHEDDING_STRATEGIES,
    find_shedding,
    placement_name,
    shedding_name,
    shedding_names,
)
from lbcore.plan.strategy import Strategy

PULSAR_UNLOAD_MS = 60_000
"""Pulsar's own longest unload: behind the bridge nothing may be called stuck before it is over."""

HEARTBEATS_PER_TIMEOUT = 3
_HALF = 0.5


def check_config(config: Config, gaps: UsageGaps | None = None) -> tuple[ConfigFinding, ...]:
    """Return all problems, for all clusters and for each with its own settings.

    Errors first, then in the order of the checks; what holds for all is said once.
    """
    found = [
        warning(
            f"{CLUSTERS}.{name}", "is not in pipeline.clusters, so this job reads nothing of it"
        )
        for name in sorted(config.per_cluster.keys() - set(config.pipeline.clusters))
    ]
    found += _check_tree(config.for_cluster(""), gaps)
    for cluster in sorted(config.per_cluster):
        own = _check_tree(config.for_cluster(cluster), gaps)
        found += [
            ConfigFinding(problem=item.problem, is_error=item.is_error, cluster=cluster)
            for item in own
            if item not in found
        ]
    return tuple(sorted(found, key=lambda item: not item.is_error))


def require_suitable(config: Config) -> Config:
    """Return the configuration.

    Raises ConfigError with what `check_config` calls errors.
    """
    errors = [item for item in check_config(config) if item.is_error]
    if errors:
        raise ConfigError(tuple(item.problem for item in errors))
    return config


def _check_tree(config: Config, gaps: UsageGaps | None) -> Iterator[ConfigFinding]:
    yield from _check_strategies(config)
    for rows in (_tls_rows, _pipeline_rows, _liveness_rows, _ownership_rows, _load_rows):
        yield from (finding for is_broken, finding in rows(config) if is_broken)
    yield from _check_weights(config)
    seen = gaps or UsageGaps()
    for strategy in filter(None, _halves(config)):
        for check_strategy in strategy.checks:
            yield from check_strategy(config, seen)
    yield from _check_min_moves(config, seen)


def _check_strategies(config: Config) -> Iterator[ConfigFinding]:
    shedding = shedding_name(config.shedding.strategy)
    placement = placement_name(config.placement.strategy)
    sheds, places = _halves(config)
    if sheds is None:
        yield error(
            "shedding.strategy", f"{shedding!r} is none: take {', '.join(shedding_names(config))}"
        )
    if places is None:
        yield error(
            "placement.strategy", f"{placement!r} is none: take {', '.join(PLACEMENT_STRATEGIES)}"
        )
    if shedding == placement:
        return
    if shedding in config.own and config.own[shedding].problem:
        yield warning("shedding.strategy", config.own[shedding].problem)
    # Pulsar: ModularLoadManagerImpl shares one AvgShedder and refuses to start with half of it.
    for half, key in ((sheds, "placement.strategy"), (places, "shedding.strategy")):
        if half is not None and half.plans_destinations:
            yield error(
                key,
                f"{half.name} plans where bundles go while it sheds, so both strategies must be"
                f" {half.name} or neither; now shedding is {shedding} and placement {placement}:"
                " change both at once",
            )


_Row = tuple[Any, ConfigFinding]
"""A condition, and the finding when it holds."""


def _tls_rows(config: Config) -> Iterator[_Row]:
    """Yield the rows of files for TLS that nothing would read."""
    lookup, kafka = config.lookup, config.kafka
    for name in ("key_file", "client_ca_file"):
        detail = "is set without lookup.certificate_file, so the service would speak no TLS: set it"
        yield (
            getattr(lookup, name) and not lookup.certificate_file,
            error(f"lookup.{name}", detail),
        )
    for name in ("ca_file", "certificate_file", "key_file"):
        yield (
            getattr(kafka, name) and not kafka.security_protocol.endswith("SSL"),
            warning(
                f"kafka.{name}",
                f"has no effect: kafka.security_protocol is {kafka.security_protocol}, which has no"
                " TLS; SSL and SASL_SSL have",
            ),
        )


def _pipeline_rows(config: Config) -> Iterator[_Row]:
    """Yield the rows of clusters and of intervals."""
    pipeline, cycle_ms = config.pipeline, config.pipeline.decision_interval_ms
    clusters = pipeline.clusters
    yield from (
        (
            not clusters,
            error("pipeline.clusters", "names none, so nothing would be balanced: name one"),
        ),
        (
            len(set(clusters)) < len(clusters),
            error("pipeline.clusters", f"names one twice: {', '.join(clusters)}; once is enough"),
        ),
        *(
            (
                interval_ms % cycle_ms,
                error(
                    f"pipeline.{name}",
                    f"must be a multiple of decision_interval_ms = {cycle_ms}, got {interval_ms}",
                ),
            )
            for name in ("shed_interval_ms", "split_interval_ms")
            for interval_ms in [getattr(pipeline, name)]
        ),
        (
            pipeline.trigger_ms > cycle_ms,
            warning(
                "pipeline.trigger_ms",
                f"{pipeline.trigger_ms} is above decision_interval_ms = {cycle_ms}: cycles are"
                " late",
            ),
        ),
    )


def _liveness_rows(config: Config) -> Iterator[_Row]:
    """Yield the rows of timeouts and leases of brokers."""
    ownership, pipeline, agent = config.ownership, config.pipeline, config.agent
    timeout_ms, heartbeat_ms = ownership.broker_timeout_ms, agent.heartbeat_interval_ms
    is_lethal = heartbeat_ms + pipeline.trigger_ms >= timeout_ms
    lease_ms, is_leased = agent.agent_lease_ms, ownership.fencing == FENCING_LEASE
    is_short = heartbeat_ms * 2 > lease_ms
    yield from (
        (
            is_lethal,
            error(
                "ownership.broker_timeout_ms",
                f"{timeout_ms} is not above heartbeat_interval_ms + trigger_ms ="
                f" {heartbeat_ms + pipeline.trigger_ms}: live brokers would be taken for dead",
            ),
        ),
        (
            not is_lethal and heartbeat_ms * HEARTBEATS_PER_TIMEOUT > timeout_ms,
            warning(
                "ownership.broker_timeout_ms",
                f"{timeout_ms} is less than {HEARTBEATS_PER_TIMEOUT} heartbeats of {heartbeat_ms}:"
                " one lost heartbeat is nearly a death",
            ),
        ),
        (
            is_leased and is_short,
            error(
                "agent.heartbeat_interval_ms",
                f"two of it are above the lease of {lease_ms}: brokers would stop serving in"
                " normal operation",
            ),
        ),
        (
            is_leased and not is_short and pipeline.plan_lag_max_ms > lease_ms,
            warning(
                "ownership.broker_timeout_ms",
                f"its lease of {lease_ms} is below the largest lag of a plan,"
                f" {pipeline.plan_lag_max_ms}: a broker that returns may serve again while a late"
                " batch still gives its bundles away",
            ),
        ),
    )


def _ownership_rows(config: Config) -> Iterator[_Row]:
    """Yield the rows of transitions and of another authority."""
    ownership, in_flight_ms = config.ownership, config.ownership.in_flight_timeout_ms
    is_external = config.cluster.authority == EXTERNAL
    yield from (
        (  # Pulsar: ServiceUnitStateChannelImpl refuses to start with it
            ownership.tombstone_delay_ms < in_flight_ms,
            error(
                "ownership.tombstone_delay_ms",
                f"must be at least in_flight_timeout_ms = {in_flight_ms}",
            ),
        ),
        (
            ownership.unload_timeout_ms < in_flight_ms,
            warning(
                "ownership.unload_timeout_ms",
                f"{ownership.unload_timeout_ms} is below in_flight_timeout_ms = {in_flight_ms}:"
                " closing has less time than opening",
            ),
        ),
        (
            config.topics.report_retention_ms < ownership.broker_timeout_ms * 10,
            warning(
                "topics.report_retention_ms",
                "is less than ten broker timeouts: a short stop of the job loses reports",
            ),
        ),
        (
            is_external and in_flight_ms <= PULSAR_UNLOAD_MS,
            error(
                "ownership.in_flight_timeout_ms",
                "with authority external it must be above Pulsar's own unload of"
                f" {PULSAR_UNLOAD_MS}, got {in_flight_ms}: running unloads would be called stuck",
            ),
        ),
        (
            is_external and ownership.fencing == FENCING_LEASE,
            error(
                "ownership.fencing",
                "lease needs agents; with authority external there are none: take token",
            ),
        ),
    )


def _load_rows(config: Config) -> Iterator[_Row]:
    """Yield the rows of reports, splits and shedding."""
    shedding, signals, splitting = config.shedding, config.signals, config.splitting
    strange = ", ".join(one for one in splitting.supported_algorithms if one not in ALGORITHMS)
    *some, last = _readers("shedding.multi_hit")
    fraction = shedding.max_unload_fraction
    yield from (
        (
            signals.report_check_ms > signals.report_max_interval_ms,
            error(
                "signals.report_check_ms",
                f"must be at most report_max_interval_ms = {signals.report_max_interval_ms}",
            ),
        ),
        (
            signals.usage_lag_ms >= shedding.adjust_max_ms,
            error(
                "signals.usage_window_ms",
                f"a change shows after twice it = {signals.usage_lag_ms}, which must be below"
                f" {shedding.adjust_max_ms}: a move would be forgotten before usages can show it",
            ),
        ),
        (  # Pulsar: PulsarBrokerStarter refuses to start with this or the next
            strange,
            error(
                "splitting.supported_algorithms",
                f"there is no {strange}: take of {', '.join(ALGORITHMS)}",
            ),
        ),
        (
            splitting.algorithm not in splitting.supported_algorithms,
            error(
                "splitting.algorithm",
                f"{splitting.algorithm} is none of splitting.supported_algorithms",
            ),
        ),
        (
            shedding.multi_hit and not _has_setting(config, "shedding.multi_hit"),
            warning(
                "shedding.multi_hit",
                f"is for {', '.join(some)} and {last}; the present strategy counts by itself",
            ),
        ),
        (
            _has_setting(config, "shedding.max_unload_fraction") and not 0 < fraction <= _HALF,
            warning(
                "shedding.max_unload_fraction",
                f"{fraction:g}: above one half the brokers change places, at 0 nothing moves",
            ),
        ),
    )


def _readers(key: str) -> list[str]:
    """The shedding strategies that read a setting."""
    return [one.name for one in SHEDDING_STRATEGIES.values() if key in one.settings]


def _check_min_moves(config: Config, gaps: UsageGaps) -> Iterator[ConfigFinding]:
    shedding = config.shedding
    rate, throughput = gaps.message_rate_per_s, gaps.throughput_bytes_per_s
    key, fraction = "shedding.min_unload_rate_msg_per_s", shedding.max_unload_fraction
    if not _has_setting(config, key) or rate is None:
        return
    moves_by_rate = rate * fraction > shedding.min_unload_rate_msg_per_s
    moves_by_throughput = (
        throughput is not None
        and throughput * fraction > shedding.min_unload_throughput_bytes_per_s
    )
    if moves_by_rate or moves_by_throughput:
        return
    yield warning(
        key,
        f"{shedding.min_unload_rate_msg_per_s:g} msg/s is not below {rate:g} (the largest"
        f" difference seen) × max_unload_fraction = {rate * fraction:g}: nothing is ever shed;"
        f" take less than {rate * fraction:g}",
    )


def _check_weights(config: Config) -> Iterator[ConfigFinding]:
    """Report weights that no score of the strategies uses.

    Such as the heap's under the modular ones.
    """
    by_scores = config.filters.pipeline == EXTENSIBLE  # then placement goes by scores, too
    read = {
        key
        for one, is_by_score in zip(_halves(config), (True, by_scores), strict=True)
        if one is not None and is_by_score
        for key in one.settings
    }
    for resource in RESOURCES:
        key = f"signals.{resource.weight}"
        is_judged = resource.weight and not resource.is_local and key not in read
        if is_judged and getattr(config.signals, resource.weight):
            yield warning(
                key,
                f"has no effect: {config.shedding.strategy} goes by usage without {resource.label},"
                f" as Pulsar 4.0.8's; {', '.join(_readers(key))} weighs it, and under"
                f" filters.pipeline = {EXTENSIBLE} placement by usage: set one of them, or the"
                " weight to 0",
            )


def _has_setting(config: Config, key: str) -> bool:
    """True if the configured shedding strategy reads the setting."""
    strategy = find_shedding(config)
    return strategy is not None and key in strategy.settings


def _halves(config: Config) -> tuple[Strategy | None, Strategy | None]:
    """The strategies that shed and place; None = there is none of this name."""
    places = PLACEMENT_STRATEGIES.get(placement_name(config.placement.strategy))
    return find_shedding(config), places


Values = Mapping[str, Any]


def with_dynamic(config: Config, values: Mapping[str, Any]) -> Config:
    """The configuration changed by a command, as "section.name" → value.

    config: of one cluster, see `Config.for_cluster`. Raises ConfigError for unknown keys, wrong
    values, settings that need a restart, and settings that don't suit each other afterwards.
    """
    checked, problems = checked_dynamic(values)
    if problems:
        raise ConfigError(tuple(problems))
    return require_suitable(changed(config, checked))


def in_force(
    config: Config, values: Values, known: Collection[str] = ()
) -> tuple[Config, Mapping[str, str]]:
    """Return the configuration with suitable values, and key → fault of the others.

    Files and code may change under settings that were valid when a command made them: a key that
    this version doesn't know, a value outside a narrower range, or two settings that no longer suit
    each other or the files. Those are set aside, the same on every call.

    config: of one cluster, as its files say. values: by "section.name". known: those that
    earlier calls set aside; they stay so rather than others. One check of the whole configuration
    when all suit, at most one more per value for each that is set aside.
    """
    if not values:
        return config, {}
    usable, problems = checked_dynamic(values)
    aside = {problem.key: problem.detail for problem in problems}
    error = _refusal(config, usable)
    kept = usable if error is None else _kept(config, usable, known)
    why = f"with the files and the other changed settings: {error}"
    aside |= dict.fromkeys(usable.keys() - kept.keys(), why)
    return changed(config, kept, BY_COMMAND), {key: aside[key] for key in sorted(aside)}


def _kept(config: Config, values: Values, known: Collection[str]) -> Values:
    """The values that suit each other and the files, without the known ones.

    After each refusal one goes, then they are checked again.
    """
    kept = {name: values[name] for name in sorted(values) if name not in known}
    while kept and (error := _refusal(config, kept)) is not None:
        del kept[_culprit(config, kept, error)]
    return kept


def _culprit(config: Config, values: Values, refused: ConfigError) -> str:
    """Return the first value that a refusal names, or else depends on.

    An unrelated one must stay: if it were observe_only or approval, bundles would move.
    """
    named = {problem.key for problem in refused.problems}
    if chosen := [name for name in values if name in named]:
        return chosen[0]
    for name in values:
        error = _refusal(config, {key: value for key, value in values.items() if key != name})
        if error is None or not set(refused.problems) <= set(error.problems):
            return name
    return min(values)


def _refusal(config: Config, values: Values) -> ConfigError | None:
    """Return the error of applying the values to the files' configuration, if any."""
    try:
        require_suitable(changed(config, values))
    except ConfigError as error:
        return error
    return None
