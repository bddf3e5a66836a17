"""Namespaces in Pulsar's admin interface: creation, bundles, policies, splits.

Refuses in Pulsar's words and order. Source: Pulsar 4.0.8, NamespacesBase with the extensible load
manager, Policies, BundlesData; the exchanges in tests/recordings.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

from lbcore.config.splitting import SPECIFIED_POSITIONS
from lbcore.model.bundles import (
    HashFunction,
    InvalidRangeError,
    explicit_boundaries,
    parse_range_leniently,
)
from lbcore.model.names import FULL_LOWER, FULL_UPPER, format_bundle
from lbcore.pulsar.names import (
    BAD_REQUEST,
    PRECONDITION_FAILED,
    SERVER_ERROR,
    PulsarError,
    unexpected,
)
from lbcore.route.bundles import BundleRoute
from lbcore.wire.kinds.namespace_commands import MAX_BUNDLES, CreateNamespace

_HASH_PROPERTY = "ballast.hash"
_NO_NUMBER = "Invalid number of bundles. Number of numBundles has to be in the range of (0, 2^32]."


def read_creation(namespace: str, body: Any) -> tuple[CreateNamespace, tuple[str, ...]]:
    """Return the creation requested by a PUT of a namespace, and its clusters.

    body: Policies or BundlesData as decoded JSON, None for neither. The hash function is chosen by
    the property "ballast.hash", which is ours. Raises PulsarError.
    """
    policies = {} if body is None else body
    if not isinstance(policies, Mapping):
        raise PulsarError(BAD_REQUEST, "the body must be a JSON object of policies")
    bundles = policies.get("bundles") if "boundaries" not in policies else policies
    count, boundaries = _read_bundles({} if bundles is None else bundles)
    clusters = policies.get("replication_clusters") or []
    if not isinstance(clusters, list):
        raise PulsarError(BAD_REQUEST, "replication_clusters must be a JSON list")
    arguments = CreateNamespace(
        namespace=namespace,
        bundles=count,
        boundaries=boundaries,
        hash=_read_hash(policies.get("properties") or {}),
    )
    return arguments, tuple(str(cluster) for cluster in clusters)


def _read_bundles(bundles: Any) -> tuple[int, tuple[int, ...]]:
    """Number of bundles (0 = as configured) or the boundaries."""
    if not isinstance(bundles, Mapping):
        raise PulsarError(BAD_REQUEST, _NO_NUMBER)
    texts = bundles.get("boundaries") or []
    if texts:
        return 0, _read_boundaries(texts)
    count = bundles.get("numBundles", 0)
    if type(count) is not int or count > 1 << 32:
        raise PulsarError(BAD_REQUEST, _NO_NUMBER)
    if count > MAX_BUNDLES:
        reason = f"Ballast makes at most {MAX_BUNDLES} bundles at once: split them later"
        raise PulsarError(BAD_REQUEST, reason)
    return max(count, 0), ()


def _read_boundaries(texts: Any) -> tuple[int, ...]:
    try:
        return explicit_boundaries([str(text) for text in texts])
    except (InvalidRangeError, ValueError, TypeError):
        pass
    ends = sorted(str(text) for text in texts) if isinstance(texts, Sequence) else [""]
    reason = f"Input bundles do not cover the whole hash range. first:{ends[0]}, last:{ends[-1]}"
    raise PulsarError(BAD_REQUEST, reason)


def _read_hash(properties: Any) -> HashFunction:
    name = properties.get(_HASH_PROPERTY) if isinstance(properties, Mapping) else None
    try:
        return HashFunction.CRC32 if name is None else HashFunction(name)
    except ValueError:
        known = ", ".join(function.value for function in HashFunction)
        raise PulsarError(BAD_REQUEST, f"{_HASH_PROPERTY} must be one of {known}") from None


def bundles_data(live: Sequence[BundleRoute]) -> dict[str, Any]:
    """BundlesData of a namespace's bundles, ascending and covering the hash space.

    Its boundaries are a lazy iterator.
    """
    lowers = chain((route.lower for route in live) if live else (FULL_LOWER,), (FULL_UPPER,))
    return {"boundaries": (f"0x{value:08x}" for value in lowers), "numBundles": len(live) or 1}


def policies_data(
    live: Sequence[BundleRoute], cluster: str, hash_function: HashFunction
) -> dict[str, Any]:
    """Return a namespace's policies.

    Its bundles, and Pulsar's defaults for what Ballast has not.
    """
    empty: tuple[str, ...] = (
        "backlog_quota_map",
        "clusterDispatchRate",
        "topicDispatchRate",
        "subscriptionDispatchRate",
        "replicatorDispatchRate",
        "clusterSubscribeRate",
        "publishMaxMessageRate",
        "latency_stats_sample_rate",
    )
    is_default = hash_function is HashFunction.CRC32
    return {
        "auth_policies": {
            "namespace_auth": {},
            "destination_auth": {},
            "subscription_auth_roles": {},
        },
        "replication_clusters": [cluster],
        "allowed_clusters": [],
        "bundles": bundles_data(live),
        **{name: {} for name in empty},
        "deleted": False,
        "encryption_required": False,
        "subscription_auth_mode": "None",
        "offload_threshold": -1,
        "offload_threshold_in_seconds": -1,
        "schema_compatibility_strategy": "UNDEFINED",
        "is_allow_auto_update_schema": True,
        "schema_validation_enforced": False,
        "subscription_types_enabled": [],
        "properties": {} if is_default else {_HASH_PROPERTY: hash_function.value},
        "migrated": False,
        "clusterThatCanDeleteNamespace": cluster,
    }


def find_bundle(namespace: str, text: str, live: Sequence[BundleRoute]) -> BundleRoute:
    """The bundle of a namespace that a range names; raises PulsarError 412.

    text: as people write ranges: decimal or hexadecimal, in any case.
    """
    try:
        asked = parse_range_leniently(text)
    except (InvalidRangeError, ValueError):
        raise PulsarError(PRECONDITION_FAILED, f"Invalid bundle range: {text}") from None
    named = format_bundle(namespace, asked.lower, asked.upper)
    at = bisect_left(live, asked.lower, key=attrgetter("lower"))
    found = live[at] if at < len(live) else None
    if found is None or found.lower != asked.lower:
        reason = f"Cannot find bundle {named} in the bundles list"
        raise PulsarError(PRECONDITION_FAILED, reason)
    if found.upper != asked.upper:
        reason = (
            f"Invalid upper boundary for bundle {named}. Expected upper boundary of {found.bundle}"
        )
        raise PulsarError(PRECONDITION_FAILED, reason)
    return found


MAX_POSITION = (1 << 63) - 1


def read_positions(body: Any) -> tuple[int, ...]:
    """Return the positions of a split. Raises PulsarError 400.

    body: decoded JSON or None.
    """
    if body is None:
        return ()
    is_list = isinstance(body, list)
    if not is_list or any(type(item) is not int or abs(item) > MAX_POSITION for item in body):
        raise PulsarError(BAD_REQUEST, "the body must be a JSON list of whole numbers")
    return tuple(body)


def check_algorithm(name: str, supported: Sequence[str], positions: Sequence[int]) -> None:
    """Raise PulsarError 412 for an unsupported algorithm, or one without positions."""
    if not name.strip():
        return
    if name not in supported:
        reason = (
            "Unsupported namespace bundle split algorithm, supported algorithms are "
            f"[{', '.join(supported)}]"
        )
        raise PulsarError(PRECONDITION_FAILED, reason)
    if name == SPECIFIED_POSITIONS and not positions:
        reason = (
            "With specified_positions_divide split algorithm, splitBoundaries must not be empty"
        )
        raise PulsarError(PRECONDITION_FAILED, reason)


def check_positions(bundle: BundleRoute, algorithm: str, positions: Sequence[int]) -> int:
    """Return the position of a split, 0 = the algorithm chooses it.

    Raises PulsarError 412 and 500.
    """
    if algorithm != SPECIFIED_POSITIONS:
        return 0
    inside = sorted({at for at in positions if bundle.lower < at < bundle.upper})
    if len(inside) > 1:
        raise PulsarError(PRECONDITION_FAILED, "Split bundle failed due to invalid request")
    if not inside:
        raise no_boundary(bundle.bundle, "no position lies inside the bundle")
    return inside[0]


def no_boundary(bundle: str, why: str) -> PulsarError:
    """Return the 500 for a bundle that can't be divided as asked."""
    message = f"Bundle {bundle} not found under namespace"
    reason = unexpected(message, "java.lang.IllegalStateException", why)
    return PulsarError(SERVER_ERROR, reason)


def highest_bundle(
    live: Sequence[BundleRoute], value_of: Mapping[str, float]
) -> BundleRoute | None:
    """Return the first bundle with the highest value; None if all are 0."""
    found = max(live, key=lambda route: value_of.get(route.bundle, 0), default=None)
    return found if found is not None and value_of.get(found.bundle, 0) > 0 else None
