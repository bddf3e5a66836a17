"""Values of an agent's reports: identity, answers of the service, what was sent.

`lbcore.agent.agent` makes each message when it is due by `signals.usage`; the service provides the
load. Source: Pulsar 4.0.8's BrokerLoadDataReporter and TopBundleLoadDataReporter; heartbeats
replace the session of Pulsar's metadata store.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lbcore.signals.usage import ReportedLoad
from lbcore.wire.format import REASON_CHARS_MAX
from lbcore.wire.messages import Ack, Floats

NEVER_MS = -(2**62)
PART_CHARS_MAX = 131_072
"""Maximum characters of a message of acks: half of wire.max_message_bytes, in any encoding (four
bytes in UTF-8, or escaped in JSON)."""

_ACK_CHARS = 64  # the names of an ack's fields, its version and outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One start of a broker, with its addresses and labels."""

    cluster: str
    broker: str
    incarnation: str
    web_service_url: str = ""
    web_service_url_tls: str = ""
    pulsar_service_url: str = ""
    pulsar_service_url_tls: str = ""
    advertised_listeners: Mapping[str, object] = field(default_factory=dict)
    broker_version: str = ""
    load_manager_class: str = ""
    failure_domain: str = ""
    capacity: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRead:
    """The service's answer to ReadLoad.

    usage, limit: float64[resources] in their order; traffic: float64[4] in the order of TRAFFIC;
    bundles: names of what is served, stats: float64[bundles, 8] in the order of BUNDLE_COLUMNS.
    offered_msg_rate: msg/s in and out that clients ask for (served, rejected and queued); None =
    unknown.
    """

    usage: Floats
    limit: Floats
    traffic: Floats
    bundles: tuple[str, ...]
    stats: Floats
    topic_count: int = 0
    consumer_count: int = 0
    producer_count: int = 0
    offered_msg_rate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsRead:
    """The topics of one bundle. traffic: float64[topics, 4] in the order of TRAFFIC."""

    bundle: str
    topics: tuple[str, ...]
    traffic: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsReported:
    """Last report of a bundle's topics."""

    topics: tuple[str, ...]
    load: ReportedLoad
    reported_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporting:
    """Reports that an agent has sent so far.

    seqs: the last seq of each topic. Times are of the last one of their kind: sent_at_ms of a
    message of broker-load, asked_at_ms of ReadLoad, reported_at_ms of load, bundles_reported_at_ms
    of the bundles' load. topics: last reports of served bundles' topics. is_draining: the broker
    asks to be drained.
    """

    seqs: Mapping[str, int] = field(default_factory=dict)
    sent_at_ms: int = NEVER_MS
    asked_at_ms: int = NEVER_MS
    reported_at_ms: int = NEVER_MS
    bundles_reported_at_ms: int = NEVER_MS
    load: ReportedLoad | None = None
    topics: Mapping[str, TopicsReported] = field(default_factory=dict)
    is_draining: bool = False


def in_parts(acks: Sequence[Ack], acks_per_part: int) -> list[list[Ack]]:
    """Return the acks in order, in parts within the limits of a message."""
    parts: list[list[Ack]] = []
    size = PART_CHARS_MAX
    for ack in acks:
        chars = len(ack.bundle) + min(len(ack.reason), REASON_CHARS_MAX) + _ACK_CHARS
        if not parts or len(parts[-1]) == acks_per_part or size + chars > PART_CHARS_MAX:
            parts.append([])
            size = 0
        parts[-1].append(ack)
        size += chars
    return parts
