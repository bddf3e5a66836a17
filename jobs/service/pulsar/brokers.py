"""Brokers under Pulsar's paths: list, leader, what they own, health, dynamic configuration.

Decides who stands for what Ballast has not: the leader is the service that is asked. Source:
Pulsar 4.0.8, BrokersBase; health, ready and version answer unquoted text as JSON.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jobs.service.context import AdminContext
from jobs.service.exchange import JSON, HttpError, Reply, Request, json_reply
from jobs.service.pulsar.asking import carry_out
from jobs.service.pulsar.known import (
    brokers,
    cluster_names,
    find_broker,
    isolation,
    names_by_broker,
)
from lbcore.config.values import ConfigError
from lbcore.plan.filter.policies import IsolationPolicy
from lbcore.pulsar.clusters import internal_data, leader_data
from lbcore.pulsar.dynamic_config import (
    changes_of,
    check_dynamic,
    dynamic_names,
    invalid_value,
    overrides,
    resets_of,
    runtime,
)
from lbcore.pulsar.errors import NOT_FOUND, PulsarError
from lbcore.pulsar.isolation import ownership_status
from lbcore.pulsar.names import broker_id
from lbcore.route.slices import LEFT_OUT, Fields, Maybe
from lbcore.route.snapshot import LookupSnapshot
from lbcore.validation.dynamic import in_force
from lbcore.wire.kinds.balancing_commands import ResetConfig, SetConfig

PULSAR_VERSION = "4.0.8"
_OK = Reply(body=b"ok", headers=(JSON,))


async def list_brokers(request: Request, context: AdminContext) -> Reply:
    """The names of the active brokers."""
    cluster = request.params.get("cluster", context.cluster)
    if cluster not in cluster_names(context):
        raise _no_cluster(cluster)
    return json_reply(list(brokers(context)))


def _no_cluster(cluster: str) -> PulsarError:
    return PulsarError(NOT_FOUND, f"Cluster does not exist: cluster={cluster}")


async def get_leader(request: Request, context: AdminContext) -> Reply:
    """Whom to ask for decisions: this service, for the balancer decides for all brokers."""
    del context
    return json_reply(leader_data(request.reached_at))


async def get_owned(request: Request, context: AdminContext) -> Reply:
    """The bundles that a broker owns, and by which right."""
    broker = _active_broker(request.params["broker"], context)
    cluster = request.params["cluster"]
    if cluster not in cluster_names(context):
        raise _no_cluster(cluster)
    policies = await isolation(context)
    names = names_by_broker(context)[broker]
    return json_reply(Fields(_owned((broker, names), context.snapshot, policies)))


def _owned(
    broker: tuple[str, Sequence[str]],
    snapshot: LookupSnapshot,
    policies: Mapping[str, IsolationPolicy],
) -> Iterator[Maybe[tuple[str, Any]]]:
    """Each bundle of a snapshot with its status, LEFT_OUT for others' bundles.

    broker: its name, and all by which policies may mean it.
    """
    for name in snapshot.names:
        yield LEFT_OUT
        status = None
        for route in snapshot.namespaces[name].live:
            if route.broker != broker[0]:
                yield LEFT_OUT
                continue
            status = status or ownership_status(name, broker[1], policies)
            yield route.bundle, status


def _active_broker(text: str, context: AdminContext) -> str:
    broker = find_broker(text, context)
    if broker is None:
        raise PulsarError(NOT_FOUND, f"Broker id '{text}' not found in available brokers.")
    return broker


async def get_health(request: Request, context: AdminContext) -> Reply:
    """Whether lookups are answered, which is what a client needs; 503 before the first load.

    A broker that is named must be active.
    """
    view, asked = context.view, request.first("brokerId").strip()
    if asked and broker_id(asked) != request.reached_at:
        _active_broker(asked, context)
    if view.snapshot.brokers:
        return _OK
    raise HttpError(503, "No broker has reported yet: try again")


async def get_ready(request: Request, context: AdminContext) -> Reply:
    """Whether the tables are loaded."""
    del request
    return _OK if context.follower.view is not None else Reply(status=500)


async def get_version(request: Request, context: AdminContext) -> Reply:
    """The version of Pulsar whose interface this is."""
    del request, context
    return Reply(body=PULSAR_VERSION.encode(), headers=(JSON,))


# -- dynamic configuration


async def list_dynamic(request: Request, context: AdminContext) -> Reply:
    """The keys that may be changed while running."""
    del request, context
    return json_reply(dynamic_names())


async def get_values(request: Request, context: AdminContext) -> Reply:
    """What has been changed while running."""
    del request
    return json_reply(overrides(context.views.settings))


async def get_runtime(request: Request, context: AdminContext) -> Reply:
    """All settings in force."""
    del request
    config = context.started
    return json_reply(runtime(config, context.views.settings))


async def set_value(request: Request, context: AdminContext) -> Reply:
    """Change a setting while running, for good."""
    key, value = check_dynamic(request.params["key"]), request.params["value"]
    files = context.started
    config, _ = in_force(files, context.views.settings)
    try:
        values = changes_of(key, value, config)
    except ConfigError as error:
        raise invalid_value(str(error)) from None
    await carry_out(request, context, SetConfig(values=values), invalid_value)
    return Reply()


async def delete_value(request: Request, context: AdminContext) -> Reply:
    """Take a changed setting back to what the files say."""
    key = request.params["key"]
    if key not in context.views.settings:  # else it was changed, if by a version that knew more
        check_dynamic(key, "delete")
    files = context.started
    keys = resets_of(key, files, context.views.settings)
    await carry_out(request, context, ResetConfig(keys=keys))
    return Reply()


async def get_internal(request: Request, context: AdminContext) -> Reply:
    """InternalConfigurationData: there is no metadata store and no BookKeeper to name."""
    del request, context
    return json_reply(internal_data())
