"""Answers of Pulsar's admin interface, as values.

Decides which bundles are mirrored, and the required form of an answer. Not mirrored are bundles
that brokers keep for themselves, and those of the tenant `pulsar`, as Pulsar's load manager itself
needs that tenant's topics. A proxy's error page or half an answer is Unreadable, no exception.
Source: Pulsar 4.0.8, BrokersBase, NamespacesBase, BrokerStatsBase and its Prometheus page; the
exchanges in tests/recordings.

Lookups of a bundle's owner: the topic and the path. For a bundle of which no topic is known, the
topic is a name that nobody uses and whose hash lies in the bundle's range: looking it up makes
Pulsar's modular manager give the bundle an owner, and makes no topic. The path is Pulsar 4.0.8's
and 5.0.0-M1's, TopicLookup.

Policies for placing namespaces: how Pulsar's three kinds become rules of Ballast. Isolation
policies and anti-affinity groups stay as they are; a failure domain becomes the domain of each of
its brokers. The balancer decides which regular expressions can be used, and names the policies that
it left out. Source: Pulsar 4.0.8, ClustersBase; NamespaceIsolationData,
AutoFailoverPolicyData, FailureDomain.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeAlias, TypeVar

import numpy as np

from lbcore.bridge.guardian import Looked
from lbcore.model.bundles import InvalidRangeError, crc32, decode_boundary, explicit_boundaries
from lbcore.model.names import (
    InvalidNameError,
    is_monitoring_namespace,
    is_namespace,
    parse_bundle,
    tenant_of,
)
from lbcore.model.resources import RESOURCES
from lbcore.wire import fields
from lbcore.wire.fields import MAX_NUMBER, FieldRefusal, shown
from lbcore.wire.kinds.mirror_commands import read_isolation
from lbcore.wire.messages import BUNDLE_COLUMNS, TRAFFIC, Floats, RejectReason

Value = TypeVar("Value")

MAX_BYTES = 256 * 1_048_576
MAX_CHARS = 4_096
_MAX_ITEMS = 1_000_000
_PAGE_START = 200
_LATEST_S = 1e11
_OK = 200
_OWN_TENANTS = ("pulsar", "sla-monitor")
_SAMPLE = re.compile(r"^(\w+)(?:\{([^}\n]*)\})? (\S+)", re.MULTILINE)
_LABEL = re.compile(r'\b(\w+)="([^"]*)"')
_STARTED = "process_start_time_seconds"
_VERSION = "pulsar_version_info"
_PLAIN_VERSION = re.compile(r"[\w.+-]{1,60}")
_TOPICS, _CONSUMERS, _PRODUCERS = (
    BUNDLE_COLUMNS.index(name) for name in ("topics", "consumerCount", "producerCount")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """An answer that can't be used, and why."""

    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """Values about the process on a broker's Prometheus page.

    percent: float64[resources] in their order, NaN where it is not reported. started_ms: start of
    the process, in ms since 1970. host: the broker's own, "" = not reported. unreported: field →
    why it has no value.
    """

    percent: Floats
    started_ms: int
    version: str
    host: str = ""
    unreported: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRates:
    """The topics of one bundle. traffic: float64[topics, 4] in the order of TRAFFIC."""

    topics: tuple[str, ...]
    traffic: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTable:
    """A broker's loaded topics, by bundle.

    stats: float64[bundles, 8] in the order of BUNDLE_COLUMNS; cacheSize is not reported and is 0.
    unreported: field → why it can't be used; it counts as 0 then.
    """

    bundles: tuple[str, ...]
    stats: Floats
    rates: Mapping[str, TopicRates]
    unreported: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """Bundles that a broker says it owns, and those of them it has closed already."""

    owned: frozenset[str]
    closing: frozenset[str] = frozenset()


Settings: TypeAlias = Mapping[str, str]


def is_html(kind: str, content: bytes) -> bool:
    """Return True for a web page, which the admin interface never answers.

    kind: Content-Type.
    """
    start = content[:_PAGE_START].lstrip().lower()
    return kind.lower().startswith("text/html") or start.startswith((b"<!doctype", b"<html"))


def is_mirrored(namespace: str) -> bool:
    """True if the bridge mirrors the namespace."""
    return tenant_of(namespace) not in _OWN_TENANTS and not is_monitoring_namespace(namespace)


def _json(read: Callable[[Any], Value]) -> Callable[[bytes], Value | Unreadable]:
    """Let a reader of JSON values take bytes; its refusal becomes `Unreadable`."""

    @wraps(read)
    def parse(raw: bytes) -> Value | Unreadable:
        if len(raw) > MAX_BYTES:
            detail = f"the answer has {len(raw)} bytes and the limit is {MAX_BYTES}"
            return Unreadable(detail=detail)
        try:
            return read(json.loads(raw.decode()))
        except FieldRefusal as refusal:
            return Unreadable(detail=refusal.detail)
        except (ValueError, RecursionError) as error:
            return Unreadable(detail=f"the answer is not JSON in UTF-8: {shown(str(error))}")

    return parse


def as_object(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a JSON object. Raises FieldRefusal for anything else."""
    if not isinstance(value, Mapping):
        raise FieldRefusal(
            RejectReason.NOT_AN_OBJECT, f"an object was expected, got {shown(value)}"
        )
    return value


@_json
def parse_object(value: Any) -> Mapping[str, Any]:
    """Parse any JSON object."""
    return as_object(value)


@_json
def parse_names(value: Any) -> tuple[str, ...]:
    """Parse and sort a JSON array of names (brokers, clusters, tenants, namespaces)."""
    if not isinstance(value, list):
        raise FieldRefusal(RejectReason.WRONG_TYPE, f"an array was expected, got {shown(value)}")
    return tuple(sorted(fields.names(value, "the answer", MAX_CHARS)))


def parse_version(raw: bytes) -> str | Unreadable:
    """Parse a broker's version, which is plain text."""
    text = raw.decode("utf-8", "replace").strip()
    is_one = _PLAIN_VERSION.fullmatch(text)
    return text if is_one else Unreadable(detail=f"it is no version: {shown(text)}")


@_json
def parse_claims(value: Any) -> Claims:
    """Parse an answer to ownedNamespaces; keep its mirrored bundles."""
    found = as_object(value)
    owned = frozenset(filter(_is_mirrored_bundle, found))
    states = {name: found[name] for name in owned if isinstance(found[name], Mapping)}
    closing = frozenset(name for name, state in states.items() if state.get("is_active") is False)
    return Claims(owned=owned, closing=closing)


def looked_up(status: int, raw: bytes) -> Looked:
    """Parse an answer to a lookup over HTTP that is no redirect."""
    found = parse_object(raw)
    if status != _OK:
        reason = "" if isinstance(found, Unreadable) else shown(found.get("reason", ""))
        return Looked(refused=f"HTTP {status} {reason}".strip())
    if isinstance(found, Unreadable):
        return Looked(refused=found.detail)
    urls = (found.get(name) for name in ("httpUrl", "httpUrlTls", "brokerUrl", "brokerUrlSsl"))
    named = next((url for url in urls if isinstance(url, str) and url), "")
    return Looked(named=named.rpartition("//")[2]) if named else Looked(refused=shown(found))


@_json
def parse_boundaries(value: Any) -> tuple[int, ...]:
    """Parse the boundaries of a namespace's bundles: ascending, both ends included."""
    texts = fields.column(as_object(value), "boundaries", _MAX_ITEMS)
    try:
        found = [decode_boundary(str(text)) for text in texts]
        boundaries = explicit_boundaries([str(one) for one in found])
    except InvalidRangeError as error:
        raise FieldRefusal(RejectReason.OUT_OF_RANGE, str(error)) from None
    if found != list(boundaries):
        raise FieldRefusal(RejectReason.OUT_OF_RANGE, f"boundaries must ascend, got {shown(texts)}")
    return boundaries


@_json
def parse_settings(value: Any) -> Settings:
    """Parse a broker's runtime configuration; keep the values that are texts."""
    return {key: text for key, text in as_object(value).items() if isinstance(text, str)}


@_json
def parse_topics(value: Any) -> TopicTable:
    """Parse an answer to broker-stats/topics. O(topics + consumers)."""
    answer = as_object(value)
    found: dict[str, tuple[tuple[str, ...], Floats]] = {}
    unreported: dict[str, str] = {}
    for namespace in sorted(one for one in answer if is_namespace(one) and is_mirrored(one)):
        ranges = _object_in(answer, namespace, "namespace", unreported)
        for key in sorted(ranges):
            name = f"{namespace}/{key}"
            if _is_mirrored_bundle(name):
                domains = _object_in(ranges, key, "bundle", unreported)
                found[name] = _topics_of_bundle(domains, unreported)
    stats = np.zeros((len(found), len(BUNDLE_COLUMNS)))
    for at, (topics, numbers) in enumerate(found.values()):
        stats[at, [*range(len(TRAFFIC)), _CONSUMERS, _PRODUCERS]] = numbers.sum(axis=0)
        stats[at, _TOPICS] = len(topics)
    rates = {
        name: TopicRates(topics=topics, traffic=numbers[:, : len(TRAFFIC)])
        for name, (topics, numbers) in found.items()
    }
    return TopicTable(bundles=tuple(found), stats=stats, rates=rates, unreported=unreported)


def samples(page: str, names: Collection[str]) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield name, labels and value of a page's samples that have one of the names.

    A value that is no number is NaN. O(characters) for any page: no sample is longer than its line.
    """
    for found in _SAMPLE.finditer(page):
        if found[1] in names:
            try:
                value = float(found[3])
            except ValueError:
                value = float("nan")
            yield found[1], dict(_LABEL.findall(found[2] or "")), value


def parse_metrics(raw: bytes) -> Gauges | Unreadable:
    """Parse a broker's Prometheus page; a usage that it doesn't have is NaN. O(bytes)."""
    if len(raw) > MAX_BYTES:
        return Unreadable(detail=f"the page has {len(raw)} bytes and the limit is {MAX_BYTES}")
    wanted = {f"pulsar_lb_{one.metric}_usage": at for at, one in enumerate(RESOURCES)}
    percent, started_s, version, host = np.full(len(RESOURCES), np.nan), 0.0, "", ""
    page = raw.decode("utf-8", "replace")
    for name, labels, value in samples(page, {*wanted, _VERSION, _STARTED}):
        if name == _VERSION:
            version = labels.get("version", "")
        elif name == _STARTED:
            started_s = value
        else:
            percent[wanted[name]] = value
            host = host or labels.get("broker", "")
    if not 0.0 < started_s < _LATEST_S:
        detail = f"it has no {_STARTED} that is a time; is this a Pulsar broker's page?"
        return Unreadable(detail=detail)
    is_usable = (percent >= 0.0) & (percent <= MAX_NUMBER)
    unreported = {
        name: f"{name} is missing, or no number that can be: {percent[at]}"
        for name, at in wanted.items()
        if not is_usable[at]
    }
    return Gauges(
        percent=np.where(is_usable, percent, np.nan),
        started_ms=round(started_s * 1_000),
        version=version,
        host=host,
        unreported=unreported,
    )


def _is_mirrored_bundle(name: str) -> bool:
    try:
        namespace, _, _ = parse_bundle(name)
    except InvalidNameError:  # one of a broker's own bundles, whose names have other forms
        return False
    return is_mirrored(namespace)


def _topics_of_bundle(
    domains: Mapping[str, Any], unreported: dict[str, str]
) -> tuple[tuple[str, ...], Floats]:
    """Return a bundle's topics in name order, and float64[topics, 6].

    The six columns: traffic, consumers, producers.
    """
    found: dict[str, list[float]] = {}
    for domain in sorted(domains):
        topics = _object_in(domains, domain, "domain", unreported)
        for topic in sorted(topics):
            found[topic] = _topic_row(_object_in(topics, topic, "topic", unreported), unreported)
    names = tuple(sorted(found))
    return names, np.array([found[name] for name in names]).reshape(len(names), len(TRAFFIC) + 2)


def _topic_row(stats: Mapping[str, Any], unreported: dict[str, str]) -> list[float]:
    subscriptions = _object_in(stats, "subscriptions", "subscriptions", unreported)
    listed = (one.get("consumers") for one in subscriptions.values() if isinstance(one, Mapping))
    consumers = sum(len(one) for one in listed if isinstance(one, list))
    traffic = [_number_in(stats, name, unreported) for name in TRAFFIC]
    return [*traffic, float(consumers), _number_in(stats, "producerCount", unreported)]


def _number_in(stats: Mapping[str, Any], name: str, unreported: dict[str, str]) -> float:
    """Return a number of a topic; 0 if it has none that can be used."""
    try:
        return fields.number(stats, name, default=0.0)
    except FieldRefusal as refusal:
        unreported.setdefault(f"topics.{name}", refusal.detail)
        return 0.0


def _object_in(
    parent: Mapping[str, Any], name: str, what: str, unreported: dict[str, str]
) -> Mapping[str, Any]:
    """Return an object within another one; an empty one if none can be used."""
    found = parent.get(name, {})
    if isinstance(found, Mapping):
        return found
    unreported.setdefault(f"topics.{what}", f"{shown(name)} must be an object, got {shown(found)}")
    return {}


_TRIES_MAX = 200_000


def topic_within(bundle: str) -> str:
    """Return an unused topic name whose hash is in the bundle's range.

    "" if the range is so narrow that none was found. O(full range / the bundle's width).
    """
    namespace, lower, upper = parse_bundle(bundle)
    for number in range(_TRIES_MAX):
        topic = f"persistent://{namespace}/ballast-asks-for-an-owner-{number}"
        if lower <= crc32(topic) < upper:
            return topic
    return ""


Readable: TypeAlias = tuple[Mapping[str, Value], Mapping[str, str]]
"""Name → value of what can be used, and name → reason of what can't."""

_MAX_BROKERS = 100_000
_DIGITS_MAX = 10


@_json
def parse_isolation(value: Any) -> Readable[Mapping[str, Any]]:
    """Parse a cluster's isolation policies, by name, in the form of `ObservePolicies`."""
    return _each(value, _policy)


@_json
def parse_domains(value: Any) -> Readable[str]:
    """Parse failure domains to broker → its domain; of several, the first by name."""
    domains, unreadable = _each(value, lambda domain: _listed(domain, "brokers"))
    return {
        broker: domain for domain in sorted(domains, reverse=True) for broker in domains[domain]
    }, unreadable


def _each(value: Any, read: Callable[[Mapping[str, Any]], Value]) -> Readable[Value]:
    """Read each member of an object by itself: one that can't be read hides no other."""
    found = as_object(value)
    values: dict[str, Value] = {}
    unreadable: dict[str, str] = {}
    for name in sorted(found):
        try:
            values[name] = read(as_object(found[name]))
        except FieldRefusal as refusal:  # noqa: PERF203 one that fails hides no other
            unreadable[name] = refusal.detail
    return values, unreadable


def parse_group(raw: bytes) -> str | Unreadable:
    """Parse a namespace's anti-affinity group, which is plain text; "" = none."""
    if len(raw) > MAX_CHARS:
        return Unreadable(detail=f"a group's name has at most {MAX_CHARS} bytes, got {len(raw)}")
    text = raw.decode("utf-8", "replace").strip().strip('"')
    if text.startswith(("<", "{", "[")):
        return Unreadable(detail=f"a group's name was expected, got {text[:40]!r}")
    return text


def _policy(found: Mapping[str, Any]) -> dict[str, Any]:
    parameters = fields.mapping(fields.mapping(found, "auto_failover_policy"), "parameters")
    read = {
        "namespaces": _listed(found, "namespaces"),
        "primary": _listed(found, "primary"),
        "secondary": _listed(found, "secondary"),
        "min_limit": _whole(parameters, "min_limit"),
        "usage_threshold_percent": float(_whole(parameters, "usage_threshold")),
    }
    return read_isolation(read)  # checked as the balancer does: one fault makes it refuse them all


def _listed(found: Mapping[str, Any], name: str) -> list[str]:
    listed = fields.column(found, name, _MAX_BROKERS) if found.get(name) is not None else []
    return list(fields.names(listed, name, MAX_CHARS))


def _whole(parameters: Mapping[str, Any], name: str) -> int:
    text = str(parameters.get(name, ""))
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX):
        raise FieldRefusal(
            RejectReason.WRONG_TYPE, f"{name} must be a whole number, got {text[:40]!r}"
        )
    return int(text)
