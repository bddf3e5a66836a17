"""Single bundles under Pulsar's paths: unloaded, split, and where topics lie in them.

Decides the order of the checks, which is Pulsar's; each check is `lbcore.route`'s. Source: Pulsar
4.0.8, admin.v2.Namespaces with the extensible load manager.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from jobs.service.context import AdminContext
from jobs.service.exchange import Reply, Request, json_reply, no_content
from jobs.service.pulsar.asking import at_rest, carry_out
from jobs.service.pulsar.known import Namespace, existing, find_broker, namespace_name, topics_of
from lbcore.model.names import Domain, namespace_of_bundle
from lbcore.pulsar.errors import (
    CONFLICT,
    SERVER_ERROR,
    PulsarError,
    namespace_not_found,
    unexpected,
)
from lbcore.pulsar.namespaces import find_bundle
from lbcore.pulsar.split import (
    check_algorithm,
    check_positions,
    hottest_bundle,
    largest_bundle,
    no_boundary,
    read_positions,
)
from lbcore.pulsar.stats import throughput, topic_counts
from lbcore.route.bundles import BundleRoute
from lbcore.route.known_topics import asked_for, is_in, is_meant, position
from lbcore.route.slices import LEFT_OUT, Fields, LeftOut, Maybe
from lbcore.wire.kinds.bundle_commands import HOT, LARGEST, SplitBundle, UnloadBundle

Value = TypeVar("Value")


async def unload_bundle(request: Request, context: AdminContext) -> Reply:
    """Take a bundle from its owner, for a broker that is named or for any.

    One that nobody owns is unloaded already.
    """
    namespace_name(request)
    destination = _destination(request, context)
    route = await _at_rest(request.params["bundle"], request, context)
    if not route.broker:
        return no_content()
    if destination == route.broker:
        raise _same_broker(route)
    arguments = UnloadBundle(bundle=route.bundle, destination=destination)
    await carry_out(request, context, arguments)
    return no_content()


async def _at_rest(text: str, request: Request, context: AdminContext) -> BundleRoute:
    def find() -> tuple[BundleRoute]:
        found = existing(request, context, namespace_not_found())
        return (find_bundle(found.name, text, found.live),)

    return (await at_rest(context, find))[0]


def _destination(request: Request, context: AdminContext) -> str:
    asked = request.first("destinationBroker").strip()
    if not asked:
        return ""
    broker = find_broker(asked, context)
    if broker is None:
        reason = "Not allowed unload namespace bundle to inactive destination broker"
        raise PulsarError(CONFLICT, reason)
    return broker


def _same_broker(route: BundleRoute) -> PulsarError:
    message = (
        f"Namespace bundle: {route.bundle} own by {route.broker}, cannot be transfer to same "
        "broker."
    )
    reason = unexpected(message, "java.lang.IllegalArgumentException")
    return PulsarError(SERVER_ERROR, reason)


async def split_bundle(request: Request, context: AdminContext) -> Reply:
    """Split a bundle, or the LARGEST or HOT one, where the algorithm or the positions say."""
    namespace_name(request)
    algorithm = request.first("splitAlgorithmName").strip()
    positions_asked = read_positions(request.json())
    check_algorithm(algorithm, context.started.splitting.supported_algorithms, positions_asked)
    found = existing(request, context, namespace_not_found())
    route = await _chosen_bundle(request.params["bundle"], found, context)
    route = await _at_rest(route.range_text, request, context)
    at = check_positions(route, algorithm, positions_asked)
    arguments = SplitBundle(
        bundle=route.bundle,
        algorithm=algorithm,
        positions=(at,) if at else (),
        unload=request.flag("unload"),
        force=True,
    )
    await carry_out(request, context, arguments, lambda why: no_boundary(route.bundle, why))
    return no_content()


async def _chosen_bundle(text: str, found: Namespace, context: AdminContext) -> BundleRoute:
    if text not in (LARGEST, HOT):
        return find_bundle(found.name, text, found.live)
    loads = context.views.newest_load
    rates: Mapping[str, float] = {}
    if text == HOT:
        rates = await _of_namespace(found, throughput(loads.values()), context)
        if any(rates.get(route.bundle, 0.0) > 0 for route in found.live):
            return hottest_bundle(found.live, rates, {})
    topics = await _topic_counts(found, context)
    return (
        largest_bundle(found.live, topics)
        if text == LARGEST
        else hottest_bundle(found.live, rates, topics)
    )


async def _topic_counts(found: Namespace, context: AdminContext) -> Mapping[str, int]:
    """Persistent topics a bundle, by name; or the number that its broker reports when higher."""
    names = topics_of(found.name, context).names(Domain.PERSISTENT)
    known: Counter[str] = Counter()

    def count() -> Iterator[LeftOut]:
        for name in names:
            known[found.bundle_at(position(name, found.hash_function)).bundle] += 1
            yield LEFT_OUT

    await context.turns.gather(count())
    reported = await _of_namespace(found, topic_counts(context.views.newest_load.values()), context)
    return {**known, **{bundle: max(known[bundle], count) for bundle, count in reported.items()}}


async def _of_namespace(
    found: Namespace, values: Iterable[tuple[str, Value]], context: AdminContext
) -> dict[str, Value]:
    """The values of a namespace's bundles."""
    pairs = (pair if namespace_of_bundle(pair[0]) == found.name else LEFT_OUT for pair in values)
    return dict(await context.turns.gather(pairs))


async def get_positions(request: Request, context: AdminContext) -> Reply:
    """The hashes of a bundle's topics."""
    found = existing(request, context)
    text = request.params["bundle"]
    route = find_bundle(found.name, text, found.live)
    asked = [one for value in request.query.get("topics", []) for one in value.split(",") if one]
    wanted = asked_for(asked)

    def here() -> Iterator[Maybe[tuple[str, int]]]:
        for name in topics_of(found.name, context).names():
            at = position(name, found.hash_function)
            is_here = is_in(at, route) and (not asked or is_meant(name, wanted))
            yield (name, at) if is_here else LEFT_OUT

    shown = {"namespace": found.name, "bundle": text, "topicHashPositions": Fields(here())}
    return json_reply(shown)
