"""A split as Pulsar's admin interface asks for it.

Refuses in Pulsar's words and order, and finds the bundle that LARGEST and HOT mean. Source: Pulsar
4.0.8, NamespacesBase.internalSplitNamespaceBundleAsync with the extensible load manager; the
exchanges in tests/recordings.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lbcore.config.splitting import SPECIFIED_POSITIONS
from lbcore.pulsar.names import (
    BAD_REQUEST,
    NOT_FOUND,
    PRECONDITION_FAILED,
    SERVER_ERROR,
    PulsarError,
    unexpected,
)
from lbcore.route.bundles import BundleRoute
from lbcore.wire.kinds.bundle_commands import HOT, LARGEST

MAX_POSITION = (1 << 63) - 1
_TOO_MANY = "Split bundle failed due to invalid request"


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
    """Return the position at which the extensible manager splits.

    Raises PulsarError 412 and 500.
    """
    inside = sorted({at for at in positions if bundle.lower < at < bundle.upper})
    if algorithm != SPECIFIED_POSITIONS:
        return 0
    if len(inside) > 1:
        raise PulsarError(PRECONDITION_FAILED, _TOO_MANY)
    if not inside:
        raise no_boundary(bundle.bundle, "no position lies inside the bundle")
    return inside[0]


def no_boundary(bundle: str, why: str) -> PulsarError:
    """The bundle can't be divided as asked."""
    message = f"Bundle {bundle} not found under namespace"
    reason = unexpected(message, "java.lang.IllegalStateException", why)
    return PulsarError(SERVER_ERROR, reason)


def largest_bundle(live: Sequence[BundleRoute], topics_of: Mapping[str, int]) -> BundleRoute:
    """Return the bundle with most topics, the first of equals.

    Raises PulsarError 404 without any.
    """
    return _highest(LARGEST, live, topics_of)


def hottest_bundle(
    live: Sequence[BundleRoute],
    throughput: Mapping[str, float],
    topics_of: Mapping[str, int],
) -> BundleRoute:
    """The bundle with the highest throughput, or (none has any) with the most topics."""
    if any(throughput.get(route.bundle, 0.0) > 0 for route in live):
        return _highest(HOT, live, throughput)
    return _highest(HOT, live, topics_of)


def _highest(name: str, live: Iterable[BundleRoute], value_of: Mapping[str, float]) -> BundleRoute:
    rated = [(route, value_of.get(route.bundle, 0)) for route in live]
    highest = max((value for _, value in rated), default=0)
    if highest <= 0:
        raise PulsarError(NOT_FOUND, f"Bundle range {name} not found")
    return next(route for route, value in rated if value == highest)
