"""Commands by which a bridge reports the decisions of another authority.

Operators don't send them. `balancer.policy_commands` carries them out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from lbcore.model.bundles import InvalidRangeError, explicit_boundaries
from lbcore.model.names import InvalidNameError, check_namespace
from lbcore.wire import arguments as read
from lbcore.wire import fields
from lbcore.wire.arguments import MAX_ITEMS, CommandArguments, CommandSpec, Reader, argument
from lbcore.wire.fields import FieldRefusal, check_bundle, shown
from lbcore.wire.messages import RejectReason

_OWNER_FIELDS = 3
_LIMIT_MAX = 1_000_000
FINDINGS_MAX = 100


def _each(read: Reader, given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return an object with each of its fields read, in name order."""
    found = fields.mapping(given, name)
    return {key: read(found, key) for key in sorted(found)}


def _boundaries(found: Mapping[str, Any], namespace: str) -> list[int]:
    try:
        check_namespace(namespace)
        texts = [str(item) for item in fields.column(found, namespace, MAX_ITEMS)]
        return list(explicit_boundaries(texts)) if texts else []
    except InvalidNameError as error:
        raise FieldRefusal(RejectReason.MALFORMED_NAMESPACE, str(error)) from None
    except InvalidRangeError as error:
        raise FieldRefusal(RejectReason.OUT_OF_RANGE, f"{namespace}: {error}") from None


def _owner(found: Mapping[str, Any], bundle: str) -> list[Any]:
    check_bundle(bundle)
    parts = fields.column(found, bundle, _OWNER_FIELDS)
    if list(map(type, parts)) != [int, str, str]:
        raise FieldRefusal(
            RejectReason.WRONG_TYPE,
            f"{bundle} must have [version, broker, incarnation], got {shown(parts)}",
        )
    return list(parts)


def _finding(item: Any) -> Mapping[str, Any]:
    if not isinstance(item, Mapping):
        raise FieldRefusal(
            RejectReason.WRONG_TYPE, f"a finding must be an object, got {shown(item)}"
        )
    texts = {name: read.nonempty(item, name) for name in ("trouble", "subject", "stage")}
    since_ms = read.whole(0, 1 << 62)(item, "since_ms")
    return {**texts, "evidence": read.text(item, "evidence"), "since_ms": since_ms}


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserveOwnership(CommandArguments):
    """Take over another authority's decisions; refused where Ballast decides."""

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="observe_ownership",
        sample={
            "brokers": ["b-1"],
            "namespaces": {"acme/orders": [0, 2147483648, 4294967295], "acme/gone": []},
            "owners": {"acme/orders/0x00000000_0x80000000": [7, "b-1", "i-1"]},
            "differences": 3,
        },
    )
    brokers: tuple[str, ...] = argument(
        read.texts, "all brokers that are active there; [] = as told last", ()
    )
    namespaces: Mapping[str, list[int]] = argument(
        partial(_each, _boundaries), "namespace -> its boundaries; [] = it is gone"
    )
    owners: Mapping[str, list[Any]] = argument(
        partial(_each, _owner), "bundle -> [version it was compared with, owner, its incarnation]"
    )
    differences: int = argument(
        read.whole(0, 1 << 40), "bundles and namespaces that differ in all", 0
    )
    findings: tuple[Mapping[str, Any], ...] = argument(
        lambda given, name: tuple(map(_finding, fields.column(given, name, FINDINGS_MAX))),
        "what the guardian found: trouble, subject, since_ms, evidence, stage",
        (),
    )


def read_isolation(found: Mapping[str, Any]) -> dict[str, Any]:
    """One isolation policy of the command; FieldRefusal for one that can't be used."""
    return {
        "namespaces": list(read.texts(found, "namespaces")),
        "primary": list(read.texts(found, "primary")),
        "secondary": list(read.texts(found, "secondary")),
        "min_limit": read.whole(0, _LIMIT_MAX)(found, "min_limit"),
        "usage_threshold_percent": read.percent(found, "usage_threshold_percent"),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservePolicies(CommandArguments):
    """Take over another authority's policies; refused where Ballast decides."""

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="observe_policies",
        sample={
            "isolation": {
                "p": {
                    "namespaces": ["acme/apart.*"],
                    "primary": ["broker-1.*"],
                    "secondary": [],
                    "min_limit": 2,
                    "usage_threshold_percent": 80.0,
                }
            },
            "anti_affinity": {"acme/orders": "g"},
        },
    )
    isolation: Mapping[str, Mapping[str, Any]] = argument(
        partial(_each, lambda found, policy: read_isolation(fields.mapping(found, policy))),
        "all isolation policies: name -> what set_isolation_policy has of one",
    )
    anti_affinity: Mapping[str, str] = argument(
        partial(
            _each,
            lambda found, namespace: read.nonempty(found, read.namespace({"": namespace}, "")),
        ),
        "all anti-affinity groups: namespace -> group",
    )


MIRROR_COMMANDS: tuple[type[CommandArguments], ...] = (
    ObserveOwnership,
    ObservePolicies,
)
