"""What operators have said about where namespaces may live.

Decides nothing. Commands make these values, the balancer keeps them, `isolation` and
`anti_affinity` interpret them. Source: Pulsar 4.0.8 NamespaceIsolationData, AutoFailoverPolicyData
(type min_available), LocalPolicies.namespaceAntiAffinityGroup.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MIN_AVAILABLE = "min_available"
MAX_USAGE_PERCENT = 100


class InvalidPolicyError(ValueError):
    """A policy that can't be used; the text says what is wrong and what would be right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationPolicy:
    """Namespaces that live on brokers of their own.

    namespaces, primary, secondary: regular expressions, each matched against the whole name of a
    namespace or host (without port). min_limit: fewer primaries than this and the secondaries are
    candidates too. usage_threshold_percent: a primary at or above it counts as not available;
    100 = never.
    """

    name: str
    namespaces: tuple[str, ...]
    primary: tuple[str, ...]
    secondary: tuple[str, ...] = ()
    min_limit: int = 1
    usage_threshold_percent: int = MAX_USAGE_PERCENT

    def __post_init__(self) -> None:
        if not self.namespaces or not self.primary:
            message = (
                f"isolation policy {self.name!r} must name namespaces and primary brokers, got "
                f"namespaces={self.namespaces!r}, primary={self.primary!r}"
            )
            raise InvalidPolicyError(message)
        for pattern in (*self.namespaces, *self.primary, *self.secondary):
            _check_pattern(self.name, pattern)

    def to_json(self) -> dict[str, Any]:
        """Pulsar's own form, as `pulsar-admin ns-isolation-policy` reads and writes it."""
        return {
            "namespaces": list(self.namespaces),
            "primary": list(self.primary),
            "secondary": list(self.secondary),
            "auto_failover_policy": {
                "policy_type": MIN_AVAILABLE,
                "parameters": {
                    "min_limit": str(self.min_limit),
                    "usage_threshold": str(self.usage_threshold_percent),
                },
            },
        }

    @staticmethod
    def from_json(name: str, plain: Mapping[str, Any]) -> "IsolationPolicy":
        """The inverse of `to_json`; raises InvalidPolicyError, as Pulsar's validate does."""
        failover = plain.get("auto_failover_policy") or {}
        if failover.get("policy_type") != MIN_AVAILABLE:
            message = (
                f"isolation policy {name!r} must have an auto_failover_policy of type "
                f"{MIN_AVAILABLE!r}, got {failover.get('policy_type')!r}"
            )
            raise InvalidPolicyError(message)
        return IsolationPolicy(
            name=name,
            namespaces=tuple(plain.get("namespaces") or ()),
            primary=tuple(plain.get("primary") or ()),
            secondary=tuple(plain.get("secondary") or ()),
            min_limit=_parameter(name, failover, "min_limit"),
            usage_threshold_percent=_parameter(name, failover, "usage_threshold"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """All policies of a cluster.

    isolation: in the order in which the first match wins, which is name order. anti_affinity:
    namespace → group, compared without case.
    """

    isolation: tuple[IsolationPolicy, ...] = ()
    anti_affinity: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data, with sorted keys."""
        return {
            "isolation": {policy.name: policy.to_json() for policy in self.isolation},
            "anti_affinity": dict(sorted(self.anti_affinity.items())),
        }

    @staticmethod
    def from_json(plain: Mapping[str, Any]) -> "Policies":
        """The inverse of `to_json`; raises InvalidPolicyError."""
        isolation = sorted(plain.get("isolation", {}).items())
        return Policies(
            isolation=tuple(IsolationPolicy.from_json(name, given) for name, given in isolation),
            anti_affinity=dict(plain.get("anti_affinity", {})),
        )


def group_of(policies: Policies, namespace: str) -> str:
    """The anti-affinity group of a namespace in lower case; "" without one or for a blank one."""
    group = policies.anti_affinity.get(namespace, "")
    return group.lower() if group.strip() else ""


def matches_any(patterns: Sequence[str], text: str) -> bool:
    """Whether one of the patterns matches the whole text, as Java's String.matches."""
    return any(re.fullmatch(pattern, text) is not None for pattern in patterns)


def host_of(broker: str) -> str:
    """A broker's name without its port: "b1:8080" → "b1", "[::1]:8080" → "[::1]"."""
    host, separator, port = broker.rpartition(":")
    return host if separator and port.isdigit() and host else broker


def _check_pattern(name: str, pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        message = (
            f"isolation policy {name!r} must have valid regular expressions, got {pattern!r}: "
            f"{error}"
        )
        raise InvalidPolicyError(message) from error


def _parameter(name: str, failover: Mapping[str, Any], key: str) -> int:
    given = (failover.get("parameters") or {}).get(key)
    try:
        return int(str(given))
    except ValueError as error:
        message = (
            f"isolation policy {name!r} must give {key} as a whole number in its "
            f"auto_failover_policy's parameters, got {given!r}"
        )
        raise InvalidPolicyError(message) from error
