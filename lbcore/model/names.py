"""Names of topics, namespaces and bundles, and topics on too few brokers.

Names are parsed and formatted here, and their longest sizes are settings.

Source: Pulsar 4.0.8, TopicName, NamespaceName, NamedEntity, NamespaceBundle; 5.0.0-M1, PIP-460,
SegmentTopicName.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

FULL_LOWER = 0
FULL_UPPER = 0xFFFFFFFF
"""The last hash value: the only upper boundary that belongs to its bundle."""

PARTITION_INFIX = "-partition-"

_ENTITY = r"[-=:.A-Za-z0-9_]+"
_CLUSTER = re.compile(_ENTITY)
_NAMESPACE = re.compile(rf"{_ENTITY}/{_ENTITY}(?:/{_ENTITY})?")
_PARTITION = re.compile(r"-partition-(0|[1-9][0-9]{0,9})\Z")
_SEGMENT = re.compile(r"segment://(.+)/[0-9a-f]{4}-[0-9a-f]{4}-(?:0|[1-9][0-9]*)\Z")
_SCALABLE = re.compile(rf"(?:topic|segment)://({_ENTITY}/{_ENTITY})/(?=.*\S)")
_RANGE = re.compile(r"0x([0-9a-f]{8})_0x([0-9a-f]{8})")
_SCALABLE_DOMAINS = ("topic", "segment")
_V2_PARTS = 3  # tenant, namespace, topic; a v1 name has the cluster, too
_PARTITION_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """The largest sizes of one message; a larger one is rejected as too_large."""

    max_message_bytes: int = 1_048_576  # of a message's value: Kafka's own default for a batch
    max_bundles_per_message: int = 5_000  # of one part of a bundle-load, and acks of one message
    max_topics_per_message: int = 10_000  # of one topic-load; max_message_bytes bounds it, too
    max_parts: int = 1_000  # of one bundle-load; our agent puts 2,000 bundles into a part
    max_name_chars: int = 512  # of a cluster, broker, bundle, topic or command
    max_text_chars: int = 4_096  # of other texts: URLs, reasons of failure, principals


class InvalidNameError(ValueError):
    """A name of a cluster, topic, namespace or bundle that is not well formed."""


class Domain(Enum):
    """Persistence of a topic's messages; the first part of a full name."""

    PERSISTENT = "persistent"
    NON_PERSISTENT = "non-persistent"


_DOMAINS = {domain.value: domain for domain in Domain}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicName:
    """A topic's name in its parts; `cluster` is None except in v1 names.

    v2: persistent://tenant/namespace/local; v1: persistent://tenant/cluster/namespace/local.
    """

    domain: Domain
    tenant: str
    cluster: str | None
    namespace_portion: str
    local: str

    @property
    def namespace(self) -> str:
        """tenant/namespace, in v1 tenant/cluster/namespace."""
        parts = (self.tenant, self.cluster, self.namespace_portion)
        return "/".join(part for part in parts if part is not None)

    @property
    def full(self) -> str:
        """The complete name, which is what is hashed."""
        return f"{self.domain.value}://{self.namespace}/{self.local}"

    @property
    def partition(self) -> int | None:
        """The partition's number, None for a topic that is no partition."""
        return partition_of(self.local)


def parse_topic(name: str) -> TopicName:
    """The parts of a topic's name.

    Short names are completed as Pulsar does: "t" and "tenant/ns/t" are persistent, "t" is in
    public/default. Raises InvalidNameError for an unknown domain, a wrong number of parts, an
    empty local name, or a tenant or namespace with characters other than letters, digits and -=:._
    """
    full = name
    if "://" not in name:
        if name.count("/") not in (0, 2):
            raise InvalidNameError(
                f"short topic name must be topic or tenant/namespace/topic, got {name!r}"
            )
        full = f"persistent://{'' if '/' in name else 'public/default/'}{name}"
    domain_text, separator, rest = full.partition("://")
    domain = _DOMAINS.get(domain_text.lower())
    if not separator or domain is None:
        raise InvalidNameError(
            f"topic name must start with persistent:// or non-persistent://, got {name!r}"
        )
    parts = rest.split("/", 3)
    if len(parts) not in (3, 4) or not parts[-1].strip():
        raise InvalidNameError(f"topic name must be domain://tenant/namespace/topic, got {name!r}")
    check_namespace("/".join(parts[:-1]))
    return TopicName(
        domain=domain,
        tenant=parts[0],
        cluster=parts[1] if len(parts) == 4 else None,  # noqa: PLR2004 four parts make a v1 name
        namespace_portion=parts[-2],
        local=parts[-1],
    )


def locate_topic(name: str) -> tuple[str, str]:
    """The namespace of a topic, and its full name, which is what is hashed.

    As `parse_topic`; of a scalable topic (topic://) and of its segments (segment://), too: those
    are served as topics of their own names. Raises InvalidNameError.
    """
    scalable = _SCALABLE.match(name)
    if scalable is not None:
        return scalable[1], name
    topic = parse_topic(name)
    return topic.namespace, topic.full


def lookup_path(topic: str) -> str:
    """Return the path at which a broker answers a lookup of a topic's full name.

    A segment's local name contains a "/" (segment://t/ns/orders/0000-7fff-0) that must be quoted:
    unquoted, Pulsar answers 404. Topics with v1 names are looked up at `destination` (Pulsar's
    lookup.v1.TopicLookup).
    """
    domain, _, rest = topic.partition("://")
    parts = rest.split("/", 2 if domain in _SCALABLE_DOMAINS else 3)
    kind = "topic" if len(parts) == _V2_PARTS else "destination"
    quoted = (quote(part, safe="", errors="replace") for part in (domain, *parts))
    return f"/lookup/v2/{kind}/" + "/".join(quoted)


def format_topic(namespace: str, local: str) -> str:
    """The full name of a persistent topic of a namespace."""
    return f"{Domain.PERSISTENT.value}://{namespace}/{local}"


def namespace_of_topic(full_name: str) -> str:
    """The namespace of a *full* topic name, quickly: its characters are not checked.

    Raises InvalidNameError when the name has too few parts.
    """
    parts = full_name.split("/", 5)
    if len(parts) == 5 and not parts[1]:  # noqa: PLR2004 domain: "" tenant namespace topic
        return f"{parts[2]}/{parts[3]}"
    return locate_topic(full_name)[0]


def partition_of(topic: str) -> int | None:
    """The partition's number at the end of a topic's name, None without one.

    "t-partition-01" is no partition, as in Pulsar: numbers have no leading zeros.
    """
    found = _PARTITION.search(topic)
    if found is None or int(found[1]) > _PARTITION_MAX:
        return None
    return int(found[1])


def format_partition(topic: str, partition: int | str) -> str:
    """Return the name of one partition; for "" the common prefix of all."""
    return f"{topic}{PARTITION_INFIX}{partition}"


def strip_partition(topic: str) -> str:
    """Return the partitioned topic of a partition; other names are unchanged."""
    if partition_of(topic) is None:
        return topic
    return topic[: topic.rindex(PARTITION_INFIX)]


def whole_topic(topic: str) -> str:
    """Return the partitioned topic of a partition, or the scalable one of a segment.

    Other topics are returned unchanged. "segment://t/ns/a/0000-7fff-2" is of "topic://t/ns/a".
    """
    segment = _SEGMENT.match(topic)
    return strip_partition(topic) if segment is None else f"topic://{segment[1]}"


def parts_word(topic: str) -> str:
    """Return the word for the parts of a whole topic."""
    return "segments" if topic.startswith("topic://") else "partitions"


def are_on_too_few(used: Any, partitions: Any, brokers: Any) -> Any:
    """True if partitions are on less than half of the brokers they could be on.

    Used by the planner, the bridge's guardian and the assessment. Source: apache/pulsar 386, 10143.
    used: brokers that have some of them. All arguments: an int, or an array with an element per
    topic. Worked: eight partitions on one of three brokers could be on three. On two of four they
    could be on four, and two is half of that, which is enough.
    """
    return (2 * used < partitions) & (2 * used < brokers)


_SYSTEM_TOPICS = frozenset(
    {
        "__change_events",
        "__transaction_buffer_snapshot",
        "__transaction_buffer_snapshot_segments",
        "__transaction_buffer_snapshot_indexes",
    }
)
_SYSTEM_PARTITIONS = 64
"""Assumed most partitions of a system topic; Pulsar makes `defaultNumPartitions`."""

_PENDING_ACKS = "__transaction_pending_ack"


def is_system_topic(topic: str) -> bool:
    """Return True if the topic (full name) is a system topic of Pulsar.

    Source: Pulsar 4.0.8, SystemTopicNames.
    """
    local = strip_partition(topic).rpartition("/")[2]
    return local in _SYSTEM_TOPICS or local.endswith(_PENDING_ACKS)


def system_topics(namespace: str) -> list[str]:
    """Return the system topics that Pulsar may have made in a namespace.

    Their partitions too, but no topics of pending acks: each of these is named after a topic.
    """
    whole = [f"persistent://{namespace}/{name}" for name in sorted(_SYSTEM_TOPICS)]
    numbers = range(_SYSTEM_PARTITIONS)
    return whole + [format_partition(name, number) for name in whole for number in numbers]


def is_namespace(text: str) -> bool:
    """True if the text is tenant/namespace (or, in v1, tenant/cluster/namespace)."""
    return _NAMESPACE.fullmatch(text) is not None


def check_cluster(text: str) -> str:
    """Return the text if it is a cluster's name; else raise InvalidNameError."""
    if not _CLUSTER.fullmatch(text):
        raise InvalidNameError("a cluster's name is of letters, digits and -=:._ only")
    return text


def check_namespace(text: str) -> str:
    """Return the text if it is a namespace's name; else raise InvalidNameError."""
    if not is_namespace(text):
        raise InvalidNameError(
            "namespace must be tenant/namespace, of letters, digits and -=:._ only, "
            f"got {text!r}: correct the name"
        )
    return text


def format_range(lower: int, upper: int) -> str:
    """The text of a range, e.g. "0x00000000_0x40000000"."""
    return f"0x{lower:08x}_0x{upper:08x}"


def format_bundle(namespace: str, lower: int, upper: int) -> str:
    """The full name of a bundle, e.g. "tenant/ns/0x00000000_0x40000000"."""
    return f"{namespace}/0x{lower:08x}_0x{upper:08x}"


def range_end(upper: int) -> int:
    """Return the hash after the last one of a range with this upper boundary."""
    return upper + 1 if upper == FULL_UPPER else upper


def parse_range(text: str) -> tuple[int, int]:
    """Lower and upper boundary of a range in its one written form, 0x%08x_0x%08x.

    Lower is below upper, or both are 0xffffffff. Raises InvalidNameError otherwise; what operators
    type (decimal, upper case) is read by `bundles.parse_range_leniently`.
    """
    found = _RANGE.fullmatch(text)
    if found is None:
        raise InvalidNameError(
            f"bundle range must be written 0xLLLLLLLL_0xUUUUUUUU in lower case, got {text!r}"
        )
    lower, upper = int(found[1], 16), int(found[2], 16)
    if lower > upper or lower == upper != FULL_UPPER:
        raise InvalidNameError(f"bundle range must not be empty or reversed, got {text!r}")
    return lower, upper


def split_bundle_name(name: str) -> tuple[str, str]:
    """Namespace and range text of a bundle's full name, neither checked.

    Raises InvalidNameError without a "/".
    """
    namespace, separator, text = name.rpartition("/")
    if not separator:
        raise InvalidNameError(
            f"bundle name must be tenant/namespace/0xLLLLLLLL_0xUUUUUUUU, got {name!r}"
        )
    return namespace, text


def parse_bundle(name: str) -> tuple[str, int, int]:
    """Namespace, lower and upper boundary of a bundle's full name, all checked.

    Raises InvalidNameError as `check_namespace` and `parse_range` do.
    """
    namespace, text = split_bundle_name(name)
    lower, upper = parse_range(text)
    return check_namespace(namespace), lower, upper


def tenant_of(namespace: str) -> str:
    """The tenant of a namespace, v1 or v2."""
    return namespace.partition("/")[0]


def namespace_of_bundle(name: str) -> str:
    """The namespace in a bundle's full name, which is not checked."""
    return name.rpartition("/")[0]


def bundle_order(name: str) -> str:
    """Return the sort key of a bundle's name: by namespace, then lower boundary.

    The names themselves won't do: the namespace "a/b/0x4" (of Pulsar's V1, with a cluster) begins
    as bundles of "a/b" do, and its bundles would stand between those. A range's text has a fixed
    width, and no name contains the separator that is used here.
    """
    namespace, _, text = name.rpartition("/")
    return f"{namespace}/\0{text}"


def index_namespaces(names: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Return the namespaces, each once, and each bundle's index into them. O(m).

    names: of bundles, in the order of `bundle_order`, which the namespaces keep.
    """
    found: list[str] = []
    index = np.empty(len(names), dtype=np.int64)
    for row, name in enumerate(names):
        namespace = name.rpartition("/")[0]
        if not found or found[-1] != namespace:
            found.append(namespace)
        index[row] = len(found) - 1
    return found, index


_MONITORING = re.compile(r"(?:pulsar|pulsar/[^/]+|sla-monitor/[^/]+)/[^:/]+:[0-9]+")


def is_monitoring_namespace(namespace: str) -> bool:
    """Return True if a broker keeps the namespace for itself.

    pulsar/HOST:PORT, pulsar/CLUSTER/HOST:PORT and sla-monitor/CLUSTER/HOST:PORT are; pulsar/system
    is not. Such a namespace has one fixed owner and is never balanced. Source: Pulsar 4.0.8,
    NamespaceService (HEARTBEAT_NAMESPACE_PATTERN, _V2, SLA_NAMESPACE_PATTERN).
    """
    return _MONITORING.fullmatch(namespace) is not None


_LONGEST = 64
_SIMILAR_FROM = 0.5


def nearest(word: str, known: tuple[str, ...]) -> str:
    """Return the most similar known word, the first of equals; "" when none is.

    Similarity is the Dice coefficient of letter pairs, at least 0.5: "bundel" and "bundle" share 4
    of 7 pairs each. O(known words).
    """
    if len(word) > _LONGEST:
        return ""
    pairs = _pairs(word)
    shares = [2 * len(pairs & other) / (len(pairs) + len(other)) for other in map(_pairs, known)]
    best = max(shares, default=0.0)
    return known[shares.index(best)] if best >= _SIMILAR_FROM else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a question with the most similar known word and a blank, or ""."""
    near = nearest(word, tuple(known))
    return f"did you mean {near}? " if near else ""


@lru_cache(maxsize=1_024)
def _pairs(word: str) -> frozenset[str]:
    framed = f" {word.lower()} "
    return frozenset(framed[at : at + 2] for at in range(len(framed) - 1))
