"""The body of a lookup's answer."""

import json

from lbcore.route.addresses import BrokerAddress, ListenerUrls, lookup_body, lookup_data

PLAIN = BrokerAddress(
    broker="127.0.0.1:28080",
    web_service_url="http://127.0.0.1:28080",
    pulsar_service_url="pulsar://127.0.0.1:26650",
)
WITH_TLS = BrokerAddress(
    broker="b1",
    web_service_url="http://b1:8080",
    web_service_url_tls="https://b1:8443",
    pulsar_service_url="pulsar://b1:6650",
    pulsar_service_url_tls="pulsar+ssl://b1:6651",
    listeners={"inside": ListenerUrls(service_url="pulsar://10.0.0.1:6650")},
)


def test_lookup_body_without_tls_is_what_pulsar_4_0_8_sent() -> None:
    expected = (
        b'{"brokerUrl":"pulsar://127.0.0.1:26650","httpUrl":"http://127.0.0.1:28080",'
        b'"nativeUrl":"pulsar://127.0.0.1:26650","brokerUrlSsl":""}'
    )
    assert lookup_body(PLAIN) == expected
    assert len(lookup_body(PLAIN)) == 132  # the recorded answer's Content-Length


def test_lookup_data_with_tls_has_pulsars_order_of_keys() -> None:
    keys = ["brokerUrl", "brokerUrlTls", "httpUrl", "httpUrlTls", "nativeUrl", "brokerUrlSsl"]
    assert list(lookup_data(WITH_TLS)) == keys
    assert lookup_data(WITH_TLS)["brokerUrlSsl"] == ""


def test_lookup_data_of_a_listener_replaces_the_binary_addresses_only() -> None:
    found = json.loads(lookup_body(WITH_TLS, WITH_TLS.listeners["inside"]))
    assert found == {
        "brokerUrl": "pulsar://10.0.0.1:6650",
        "httpUrl": "http://b1:8080",
        "httpUrlTls": "https://b1:8443",
        "nativeUrl": "pulsar://10.0.0.1:6650",
        "brokerUrlSsl": "",
    }


def test_lookup_data_of_a_broker_without_addresses_is_only_the_legacy_key() -> None:
    assert lookup_data(BrokerAddress(broker="b2")) == {"brokerUrlSsl": ""}
