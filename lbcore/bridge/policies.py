"""Where Pulsar's policies let namespaces live: its answers, and the command that tells of them.

Decides how its three kinds become rules of ours: isolation policies and anti-affinity groups as
they are, a failure domain as the domain of each of its brokers. Whether a regular expression can
be used is for the balancer to say, which names the policies that it left out. Source: Pulsar 4.0.8,
ClustersBase and NamespacesBase; NamespaceIsolationData, AutoFailoverPolicyData, FailureDomain.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lbcore.bridge.answers import MAX_CHARS, Unreadable, as_object, parse_object
from lbcore.wire import fields
from lbcore.wire.fields import FieldRefusal
from lbcore.wire.kinds.mirror_commands import ObservePolicies
from lbcore.wire.messages import RejectReason

_MAX_BROKERS = 100_000
_MAX_DIGITS = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarPolicies:
    """All that were read at once.

    isolation: name → as `ObservePolicies` has it. domains: broker → failure domain. groups:
    namespace → anti-affinity group.
    """

    isolation: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    domains: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)

    def command(self) -> ObservePolicies:
        """What the balancer is told; the domains go with each broker's load."""
        return ObservePolicies(isolation=self.isolation, anti_affinity=self.groups)


def parse_isolation(raw: bytes) -> Mapping[str, Mapping[str, Any]] | Unreadable:
    """A cluster's isolation policies by name, as `ObservePolicies` has them."""
    found = parse_object(raw)
    if isinstance(found, Unreadable):
        return found
    try:
        return {name: _policy(as_object(found[name])) for name in sorted(found)}
    except FieldRefusal as refusal:
        return Unreadable(detail=refusal.detail)


def parse_domains(raw: bytes) -> Mapping[str, str] | Unreadable:
    """Broker → its failure domain; the first by name, where there are two."""
    found = parse_object(raw)
    if isinstance(found, Unreadable):
        return found
    try:
        return {
            broker: domain
            for domain in sorted(found, reverse=True)
            for broker in _names(as_object(found[domain]), "brokers")
        }
    except FieldRefusal as refusal:
        return Unreadable(detail=refusal.detail)


def parse_group(raw: bytes) -> str | Unreadable:
    """A namespace's anti-affinity group, which Pulsar writes bare; "" for none."""
    if len(raw) > MAX_CHARS:
        return Unreadable(detail=f"a group's name has at most {MAX_CHARS} bytes, got {len(raw)}")
    text = raw.decode("utf-8", "replace").strip().strip('"')
    if text.startswith(("<", "{", "[")):
        return Unreadable(detail=f"a group's name was expected, got {text[:40]!r}")
    return text


def _policy(found: Mapping[str, Any]) -> dict[str, Any]:
    failover = fields.mapping(found, "auto_failover_policy")
    given = fields.mapping(failover, "parameters")
    return {
        "namespaces": _names(found, "namespaces"),
        "primary": _names(found, "primary"),
        "secondary": _names(found, "secondary"),
        "min_limit": _whole(given, "min_limit"),
        "usage_threshold_percent": float(_whole(given, "usage_threshold")),
    }


def _names(found: Mapping[str, Any], name: str) -> list[str]:
    listed = fields.column(found, name, _MAX_BROKERS) if found.get(name) is not None else []
    return list(fields.names(listed, name, MAX_CHARS))


def _whole(given: Mapping[str, Any], name: str) -> int:
    text = str(given.get(name, ""))
    if not text.isdecimal() or len(text) > _MAX_DIGITS:
        raise FieldRefusal(
            RejectReason.WRONG_TYPE, f"{name} must be a whole number, got {text[:40]!r}"
        )
    return int(text)
