"""Topics under Pulsar's paths: made, listed, deleted; partitions, statistics, schemas.

Decides which requests are refused, in Pulsar's words. A topic that nobody has made yet is made by
its first producer, so asking for one is no error. Source: Pulsar 4.0.8, PersistentTopicsBase,
NonPersistentTopics, SchemasResource.
"""

from jobs.admin.context import AdminContext
from jobs.admin.exchange import Reply, Request, json_reply, no_content
from jobs.admin.pulsar.asking import carry_out
from jobs.admin.pulsar.known import existing, namespace_name, topic_name, topics_of
from lbcore.model.names import TopicName
from lbcore.route.known_topics import KnownTopics, in_bundle, is_of, positions
from lbcore.route.pulsar_errors import (
    BAD_REQUEST,
    CONFLICT,
    NOT_ACCEPTABLE,
    NOT_FOUND,
    PRECONDITION_FAILED,
    UNPROCESSABLE,
    PulsarError,
    namespace_not_found,
)
from lbcore.route.pulsar_names import domain_of
from lbcore.route.pulsar_namespaces import find_bundle
from lbcore.route.pulsar_stats import topic_stats
from lbcore.wire.catalogue_commands import MAX_PARTITIONS, CreateTopic, DeleteTopic, UpdateTopic

_PARTITIONS_FIELD = "partitions"


def _known(request: Request, context: AdminContext) -> tuple[TopicName, KnownTopics]:
    """The topic of the path, and what its namespace has."""
    topic = topic_name(request)
    existing(request, context, namespace_not_found())
    return topic, topics_of(namespace_name(request), context)


async def list_topics(request: Request, context: AdminContext) -> Reply:
    """The topics of a namespace in one domain, of one bundle when it is named."""
    domain = domain_of(request.params["domain"])
    found = existing(request, context, namespace_not_found())
    names = topics_of(found.name, context).names(domain)
    text = request.first("bundle") or request.params.get("bundle", "")
    if text:
        route = find_bundle(found.name, text, found.live)
        names = sorted(in_bundle(positions(names, found.hash_function), route))
    return json_reply(names)


async def list_partitioned(request: Request, context: AdminContext) -> Reply:
    """The partitioned topics of a namespace in one domain."""
    domain = domain_of(request.params["domain"])
    found = existing(request, context, namespace_not_found())
    names = topics_of(found.name, context).partitioned
    return json_reply(sorted(name for name in names if is_of(name, domain)))


async def get_partitions(request: Request, context: AdminContext) -> Reply:
    """The number of partitions; 0 for a topic that has none, or that isn't made yet."""
    topic, known = _known(request, context)
    return json_reply({_PARTITIONS_FIELD: known.partitions_of(topic.full), "deleted": False})


async def create_topic(request: Request, context: AdminContext) -> Reply:
    """Make a topic without partitions."""
    topic, known = _known(request, context)
    if known.exists(topic.full):
        raise _exists()
    await carry_out(request, context, CreateTopic(topic=topic.full), lambda _: _exists())
    return no_content()


async def create_partitioned(request: Request, context: AdminContext) -> Reply:
    """Make a topic with partitions."""
    topic, known = _known(request, context)
    count = _read_partitions(request)
    if topic.partition is not None:
        reason = "Partitioned Topic Name should not contain '-partition-'"
        raise PulsarError(PRECONDITION_FAILED, reason)
    if known.exists(topic.full):
        raise _exists()
    arguments = CreateTopic(topic=topic.full, partitions=count)
    await carry_out(request, context, arguments, lambda _: _exists())
    return no_content()


async def update_partitions(request: Request, context: AdminContext) -> Reply:
    """Give a partitioned topic more partitions."""
    topic, known = _known(request, context)
    count, now = _read_partitions(request), known.partitions_of(topic.full)
    if not now:
        raise PulsarError(NOT_FOUND, f"Topic {topic.full} is not the partitioned topic.")
    if count < now:
        reason = f"Desired partitions {count} can't be less than the current partitions {now}."
        raise PulsarError(UNPROCESSABLE, reason)
    await carry_out(request, context, UpdateTopic(topic=topic.full, partitions=count))
    return no_content()


async def delete_partitioned(request: Request, context: AdminContext) -> Reply:
    """Forget a partitioned topic and its partitions."""
    topic, known = _known(request, context)
    if not known.partitions_of(topic.full):
        reason = f"Partitioned Topic not found: {topic.full} has zero partitions"
        raise PulsarError(NOT_FOUND, reason)
    await carry_out(request, context, DeleteTopic(topic=topic.full))
    return no_content()


async def delete_topic(request: Request, context: AdminContext) -> Reply:
    """Forget a topic without partitions."""
    topic, known = _known(request, context)
    if known.partitions_of(topic.full):
        reason = (
            f"{topic.full} is a partitioned topic, instead of calling delete topic, please call "
            "delete partitioned topic."
        )
        raise PulsarError(CONFLICT, reason)
    if not known.exists(topic.full):
        raise _not_found(topic)
    await carry_out(request, context, DeleteTopic(topic=topic.full))
    return no_content()


async def get_stats(request: Request, context: AdminContext) -> Reply:
    """The statistics of a topic: who owns it; Ballast does not count messages of single topics."""
    topic, known = _known(request, context)
    if topic.full not in known.names(topic.domain):
        raise _not_found(topic)
    route = context.snapshot.lookup(topic.full)
    return json_reply(topic_stats(route.broker if route else ""))


async def get_partitioned_stats(request: Request, context: AdminContext) -> Reply:
    """The statistics of a partitioned topic, all partitions together."""
    topic, known = _known(request, context)
    count = known.partitions_of(topic.full)
    if not count:
        reason = f"Partitioned Topic not found: {topic.full} has zero partitions"
        raise PulsarError(NOT_FOUND, reason)
    metadata = {_PARTITIONS_FIELD: count, "deleted": False}
    return json_reply({**topic_stats(""), "metadata": metadata, _PARTITIONS_FIELD: {}})


async def get_schema(request: Request, context: AdminContext) -> Reply:
    """There are no schemas here; clients read 404 as none."""
    topic_name(request)
    existing(request, context, namespace_not_found())
    raise PulsarError(NOT_FOUND, "Schema not found")


def _read_partitions(request: Request) -> int:
    """A number, or (with properties, which nobody here reads) PartitionedTopicMetadata."""
    body = request.json()
    value = body.get(_PARTITIONS_FIELD) if isinstance(body, dict) else body
    if type(value) is not int:
        raise PulsarError(BAD_REQUEST, "the body must be the number of partitions")
    if value <= 0:
        raise PulsarError(NOT_ACCEPTABLE, "Number of partitions should be more than 0")
    if value > MAX_PARTITIONS:
        reason = f"Number of partitions should be less than or equal to {MAX_PARTITIONS}"
        raise PulsarError(NOT_ACCEPTABLE, reason)
    return value


def _exists() -> PulsarError:
    return PulsarError(CONFLICT, "This topic already exists")


def _not_found(topic: TopicName) -> PulsarError:
    return PulsarError(NOT_FOUND, f"Topic {topic.full} not found")
