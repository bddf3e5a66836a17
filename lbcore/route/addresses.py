"""The addresses of a broker, and the body that answers a lookup with them.

Decides nothing about who owns what. Keys, their order and the absence of unset ones are those of
Pulsar 4.0.8's LookupData and BrokerLookupData.toLookupResult.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field


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
        object.__setattr__(self, "body", _encode(lookup_data(self)))


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
    return address.body if listener is None else _encode(lookup_data(address, listener))


def _encode(fields: Mapping[str, str]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
