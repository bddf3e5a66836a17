"""Pulsar's policies for placing namespaces, as the balancer takes them.

Decides how its three kinds become rules of ours. Isolation policies and anti-affinity groups stay
as they are; a failure domain becomes the domain of each of its brokers. The balancer decides
whether a regular expression can be used, and names the policies that it left out. Source: Pulsar
4.0.8, ClustersBase and NamespacesBase; NamespaceIsolationData, AutoFailoverPolicyData,
FailureDomain.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from lbcore.bridge.answers import MAX_CHARS, Unreadable, as_object, parse_object
from lbcore.wire import fields
from lbcore.wire.fields import FieldRefusal
from lbcore.wire.kinds.mirror_commands import read_isolation
from lbcore.wire.messages import RejectReason

Value = TypeVar("Value")
Readable: TypeAlias = tuple[Mapping[str, Value], Mapping[str, str]]
"""Name → value of what can be used, and name → reason of what can't."""

_MAX_BROKERS = 100_000
_DIGITS_MAX = 10


def parse_isolation(raw: bytes) -> Readable[Mapping[str, Any]] | Unreadable:
    """A cluster's isolation policies by name, as `ObservePolicies` has them."""
    return _each(raw, _policy)


def parse_domains(raw: bytes) -> Readable[str] | Unreadable:
    """Broker → its failure domain; the first by name, where there are two."""
    found = _each(raw, lambda domain: _names(domain, "brokers"))
    if isinstance(found, Unreadable):
        return found
    domains, unreadable = found
    return {
        broker: domain for domain in sorted(domains, reverse=True) for broker in domains[domain]
    }, unreadable


def _each(raw: bytes, read: Callable[[Mapping[str, Any]], Value]) -> Readable[Value] | Unreadable:
    """Each member of an object by itself: one that can't be read hides no other."""
    found = parse_object(raw)
    if isinstance(found, Unreadable):
        return found
    values: dict[str, Value] = {}
    unreadable: dict[str, str] = {}
    for name in sorted(found):
        try:
            values[name] = read(as_object(found[name]))
        except FieldRefusal as refusal:  # noqa: PERF203 one that fails hides no other
            unreadable[name] = refusal.detail
    return values, unreadable


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
    read = {
        "namespaces": _names(found, "namespaces"),
        "primary": _names(found, "primary"),
        "secondary": _names(found, "secondary"),
        "min_limit": _whole(given, "min_limit"),
        "usage_threshold_percent": float(_whole(given, "usage_threshold")),
    }
    return read_isolation(read)  # as the balancer reads the command, which refuses it as a whole


def _names(found: Mapping[str, Any], name: str) -> list[str]:
    listed = fields.column(found, name, _MAX_BROKERS) if found.get(name) is not None else []
    return list(fields.names(listed, name, MAX_CHARS))


def _whole(given: Mapping[str, Any], name: str) -> int:
    text = str(given.get(name, ""))
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX):
        raise FieldRefusal(
            RejectReason.WRONG_TYPE, f"{name} must be a whole number, got {text[:40]!r}"
        )
    return int(text)
