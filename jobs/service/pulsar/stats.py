"""Statistics of brokers under Pulsar's paths, and resource quotas.

Decides which broker a report is of: a service speaks for all of them, so one must be named. Source:
Pulsar 4.0.8, BrokerStatsBase, ResourceQuotas with the extensible load manager.
"""

from collections.abc import Iterator

from jobs.service.context import AdminContext
from jobs.service.exchange import Reply, Request, json_reply
from jobs.service.pulsar.known import Namespace, brokers, find_broker, find_namespace, topics_of
from lbcore.pulsar.errors import (
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    PulsarError,
)
from lbcore.pulsar.stats import (
    DEFAULT_QUOTA,
    allocator_stats,
    load_report,
    metrics,
    no_availability,
    no_load_report,
    stats_of,
)
from lbcore.route.known_topics import KnownTopics, position
from lbcore.route.slices import LEFT_OUT, Fields, Maybe

_TOPICS_MAX = 20_000


async def get_load_report(request: Request, context: AdminContext) -> Reply:
    """The load of the broker that ?broker= names; without one, the extensible manager's answer."""
    asked = request.first("broker")
    if not asked:
        raise no_load_report()
    broker = find_broker(asked, context)
    if broker is None:
        raise PulsarError(NOT_FOUND, f"Broker {asked} is not active")
    return json_reply(load_report(brokers(context)[broker], context.views.newest_load.get(broker)))


async def get_topics(request: Request, context: AdminContext) -> Reply:
    """The known topics by namespace, bundle and domain, as far as a broker serves them."""
    del request
    if context.views.topic_count > _TOPICS_MAX:
        reason = f"There are more than {_TOPICS_MAX} topics: list them by namespace"
        raise PulsarError(PRECONDITION_FAILED, reason)
    by_namespace: dict[str, dict[str, list[str]]] = {}
    for name in sorted(context.views.topics):
        found = find_namespace(name, context)
        if found is not None:
            places = await context.turns.gather(_places(found, topics_of(name, context)))
            if places:
                by_bundle = by_namespace.setdefault(name, {})
                for text, topic in sorted(places):
                    by_bundle.setdefault(text, []).append(topic)
    return json_reply(
        Fields(
            (name, Fields((text, stats_of(topics)) for text, topics in by_bundle.items()))
            for name, by_bundle in by_namespace.items()
        )
    )


def _places(found: Namespace, topics: KnownTopics) -> Iterator[Maybe[tuple[str, str]]]:
    """Each topic that a broker serves, after the range of its bundle."""
    for topic in topics.names():
        route = found.bundle_at(position(topic, found.hash_function))
        yield (route.range_text, topic) if route.broker else LEFT_OUT


async def get_metrics(request: Request, context: AdminContext) -> Reply:
    """The newest load of every broker as metrics."""
    del request
    loads = context.views.newest_load
    return json_reply(metrics(loads[name] for name in sorted(loads)))


async def get_allocator(request: Request, context: AdminContext) -> Reply:
    """The statistics of Netty's allocators, of which there are none here."""
    del context
    return json_reply(allocator_stats(request.params["allocator"]))


async def get_beans(request: Request, context: AdminContext) -> Reply:
    """Java's beans: none."""
    del request, context
    return json_reply([])


async def get_pending(request: Request, context: AdminContext) -> Reply:
    """BookKeeper's pending operations: none."""
    del request, context
    return json_reply({})


async def get_availability(request: Request, context: AdminContext) -> Reply:
    """Only Pulsar's oldest load manager has an answer."""
    del request, context
    raise no_availability()


async def get_quota(request: Request, context: AdminContext) -> Reply:
    """Pulsar's default: nothing is ever measured against it."""
    del request, context
    return json_reply(DEFAULT_QUOTA)


async def set_quota(request: Request, context: AdminContext) -> Reply:
    """Quotas can't be set: nothing would obey them."""
    del request, context
    reason = "Ballast has no resource quotas: it measures load, and obeys limits and policies"
    raise PulsarError(NOT_IMPLEMENTED, reason)
