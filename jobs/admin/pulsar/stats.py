"""Statistics of brokers under Pulsar's paths, and resource quotas.

Decides which broker a report is of: a service speaks for all of them, so one must be named. Source:
Pulsar 4.0.8, BrokerStatsBase, ResourceQuotas with the extensible load manager.
"""

from bisect import bisect_right

from jobs.admin.context import AdminContext
from jobs.admin.exchange import Reply, Request, json_reply
from jobs.admin.pulsar.known import brokers, find_broker, find_namespace, namespace_names, topics_of
from lbcore.route.known_topics import positions
from lbcore.route.pulsar_errors import NOT_FOUND, NOT_IMPLEMENTED, PulsarError
from lbcore.route.pulsar_stats import (
    DEFAULT_QUOTA,
    allocator_stats,
    load_report,
    metrics,
    no_availability,
    no_load_report,
    topics_by_bundle,
)


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
    by_bundle: dict[str, list[str]] = {}
    for name in namespace_names(context):
        found = find_namespace(name, context)
        if found is None:
            continue
        lowers = [route.lower for route in found.live]
        hashes = positions(topics_of(name, context).names(), found.hash_function)
        for topic, at in hashes.items():
            route = found.live[bisect_right(lowers, at) - 1]
            if route.broker:
                by_bundle.setdefault(route.bundle, []).append(topic)
    return json_reply(topics_by_bundle(by_bundle))


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
