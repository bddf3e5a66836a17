"""Addresses of a broker, the body of a lookup answer, and requests for owners.

Keys, their order and the absence of unset ones are those of Pulsar 4.0.8's LookupData and
BrokerLookupData.toLookupResult.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from lbcore.ownership.records import State
from lbcore.route.bundles import BundleRoute
from lbcore.route.slices import dumps


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerUrls:
    """Binary protocol addresses of an advertised listener; "" where it has none."""

    service_url: str = ""
    service_url_tls: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAddress:
    """Broker address as given to clients; a URL is "" where the broker has none.

    `body` is the JSON of a lookup's answer without a listener name, made once per change of the
    broker instead of once per request.
    """

    broker: str
    incarnation: str = ""
    state: str = ""
    web_service_url: str = ""
    web_service_url_tls: str = ""
    pulsar_service_url: str = ""
    pulsar_service_url_tls: str = ""
    listeners: Mapping[str, ListenerUrls] = field(default_factory=dict)
    body: bytes = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "body", dumps(lookup_data(self)).encode())


def lookup_data(address: BrokerAddress, listener: ListenerUrls | None = None) -> dict[str, str]:
    """The fields of Pulsar's lookup answer, in its order.

    A listener replaces the binary protocol's addresses only. `nativeUrl` repeats `brokerUrl`;
    `brokerUrlSsl` is always there and empty, because old C++ clients fail without it.
    """
    native = listener.service_url if listener else address.pulsar_service_url
    native_tls = listener.service_url_tls if listener else address.pulsar_service_url_tls
    fields = (
        ("brokerUrl", native),
        ("brokerUrlTls", native_tls),
        ("httpUrl", address.web_service_url),
        ("httpUrlTls", address.web_service_url_tls),
        ("nativeUrl", native),
    )
    return {name: url for name, url in fields if url} | {"brokerUrlSsl": ""}


def lookup_body(address: BrokerAddress, listener: ListenerUrls | None = None) -> bytes:
    """The JSON of `lookup_data`, without blanks, as Pulsar writes it."""
    return address.body if listener is None else dumps(lookup_data(address, listener)).encode()


ASKED_BY = "lookup"
"""Principal of a command that asks for an assignment."""

TIMEOUT_MS = 5_000
"""Time in which the balancer must begin such an assignment."""

_AGAIN_S = 5.0
_ASKED_MAX = 10_000


class OwnerRequests:
    """Recent requests to assign bundles, at most ten thousand; for one thread.

    Each process asks for a bundle's record once in five seconds at most. All that ask within the
    same five seconds send a command of one id, and the balancer carries out one of them. Pulsar's
    brokers assign at the first lookup too (ExtensibleLoadManagerImpl).
    """

    def __init__(self) -> None:
        self._asked_s: OrderedDict[tuple[str, int], float] = OrderedDict()

    def record_if_due(self, route: BundleRoute, now_s: float) -> bool:
        """Record a request for an owner if one is due; return True if it is. O(1).

        now_s: seconds of a monotonic clock.
        """
        key = (route.bundle, route.version_id)
        if route.state is not State.FREE or now_s - self._asked_s.get(key, -_AGAIN_S) < _AGAIN_S:
            return False
        self._asked_s[key] = now_s
        self._asked_s.move_to_end(key)
        if len(self._asked_s) > _ASKED_MAX:
            self._asked_s.popitem(last=False)
        return True


def request_id(cluster: str, route: BundleRoute, wall_s: float) -> str:
    """Return the command id shared by requests for this record within five seconds."""
    name = f"{cluster}/{route.bundle}/{route.version_id}/{int(wall_s // _AGAIN_S)}"
    return f"lookup-{blake2b(name.encode(), digest_size=16).hexdigest()}"
