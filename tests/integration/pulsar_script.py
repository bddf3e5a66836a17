"""Pulsar's recorded requests in the order of the recording, with what it left out in between."""

import http.client
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from tests.integration.stack import PATIENCE_S, Stack, wait_for
from tests.support.admin.fake_pulsar import read_recording, recorded_names

CLUSTER = "local"
NS1, NS2 = "/admin/v2/namespaces/acme/ns1", "/admin/v2/namespaces/acme/ns2"
TOPICS = "/admin/v2/persistent/acme/ns1"
BY_POSITION = "split?splitAlgorithmName=specified_positions_divide"
POLICY_PATH = f"/admin/v2/clusters/{CLUSTER}/namespaceIsolationPolicies"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back."""

    status: int
    content_type: str
    body: bytes

    @property
    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError:
            return self.body.decode()


def request(stack: Stack, method: str, target: str, body: Any = "", **headers: str) -> Answer:
    """One request to the stack's service; body: text, or a value to be sent as JSON."""
    port = int((stack.folder / "lookup-port").read_text())
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2 * PATIENCE_S)
    text = body if isinstance(body, str) else json.dumps(body)
    given = {"Content-Type": "application/json", "Accept": "application/json", **headers}
    try:
        connection.request(method, target, text.encode(), given)
        response = connection.getresponse()
        return Answer(
            status=response.status,
            content_type=response.headers.get("Content-Type", ""),
            body=response.read(),
        )
    finally:
        connection.close()


@dataclass(slots=True)
class Service:
    """The lookup and admin service of a running stack, and what it has answered so far."""

    stack: Stack
    answers: dict[str, Answer] = field(default_factory=dict)

    def send(self, method: str, target: str, body: Any = "") -> Answer:
        """One request; body: text, or a value to be sent as JSON."""
        return request(self.stack, method, target, body)

    def must(self, method: str, target: str, body: Any = "", status: int = 204) -> Answer:
        """One request that the recordings left out, and that has to succeed."""
        answer = self.send(method, target, body)
        assert answer.status == status, (method, target, answer)
        return answer

    def replay(self, *names: str) -> None:
        """Send recorded requests and keep their answers."""
        for name in names:
            recorded = read_recording(name)
            target = recorded.target
            if recorded.mode == "modular":
                target = f"{target}?broker=broker-1"
            self.answers[name] = self.send(recorded.method, target, recorded.request_body)

    def owner(self, topic: str) -> str:
        answer = self.must("GET", f"/lookup/v2/topic/persistent/{topic}", status=200)
        return str(answer.json["httpUrl"].removeprefix("http://").partition(":")[0])


def answered(stack: Stack) -> Service:
    """The whole script sent to the stack's service."""
    service = Service(stack)
    wait_for("the tables to be followed", lambda: _is_ready(service), 60)
    service.replay("01-tenants-create")
    _at_once(service, _first_namespace, _second_namespace, _settings, _policies, _tenant)
    _statistics(service)
    return service


def _at_once(service: Service, *stories: Callable[[Service], None]) -> None:
    """Stories that don't touch each other share the balancer's batches."""
    with ThreadPoolExecutor(len(stories)) as threads:
        for told in [threads.submit(story, service) for story in stories]:
            told.result()


def _is_ready(service: Service) -> bool:
    health = service.send("GET", "/admin/v2/brokers/health").status
    return health == 200 and len(_brokers(service)) == 3


def _brokers(service: Service) -> Sequence[str]:
    found: Sequence[str] = service.send("GET", "/admin/v2/brokers").json
    return found if isinstance(found, list) else ()


def _first_namespace(service: Service) -> None:
    service.must("PUT", NS1, {"bundles": {"numBundles": 4}})
    _at_once(
        service,
        lambda s: s.must("PUT", f"{TOPICS}/t1"),
        lambda s: s.must("PUT", f"{TOPICS}/pt/partitions?createLocalTopicOnly=false", "4"),
        lambda s: s.replay("53-namespaces-set-anti-affinity-group"),
    )
    service.replay(*(name for name in recorded_names() if _is_lookup(name)))
    service.replay("23-namespaces-bundles", "24-namespaces-policies", "28-topics-stats")
    service.replay("54-namespaces-get-anti-affinity-group")
    _at_once(
        service,
        lambda s: s.must("DELETE", f"{NS1}/antiAffinity"),
        lambda s: s.replay("56-namespaces-unload-bundle", "57-lookup-raw-after-unload"),
    )
    service.replay("61-namespaces-unload-bundle-unknown-bundle")
    service.must("PUT", f"{NS1}/unload")
    service.replay("63-lookup-raw-after-unload-namespace", "66-namespaces-bundles-after-positions")
    service.replay("72-namespaces-split-bundle-no-positions")
    _splits(service)


def _is_lookup(name: str) -> bool:
    number = int(name.partition("-")[0]) if name[0].isdigit() else 0
    return 5 <= number <= 22


def _splits(service: Service) -> None:
    def split(bundle: str, position: int) -> Callable[[Service], None]:
        target = f"{NS1}/{bundle}/{BY_POSITION}"
        return lambda s: s.must("PUT", target, [position])

    _at_once(
        service,
        lambda s: s.replay("67-namespaces-split-bundle-range"),
        split("0x40000000_0x80000000", 0x60000000),
        split("0xc0000000_0xffffffff", 0xDFFFFFFF),
        split("0x00000000_0x40000000", 0x09011A5E),
    )
    split("0x60000000_0x80000000", 0x70000000)(service)
    service.replay("75-namespaces-bundles-after", "76-topics-bundle-range-after")


def _second_namespace(service: Service) -> None:
    service.replay("90-x-namespaces-create", "91-x-topics-lookup")
    owner = service.owner("acme/ns2/a1")
    bundle = service.must("GET", "/lookup/v2/topic/persistent/acme/ns2/a1/bundle", status=200)
    other = next(name for name in _brokers(service) if name != owner)
    target = f"{NS2}/{bundle.body.decode()}/unload?destinationBroker={other}"
    service.must("PUT", target)
    assert service.owner("acme/ns2/a1") == other
    assert service.send("PUT", target).status == 500
    inactive = service.must("PUT", target.replace(other, "nobody:8080"), status=409)
    assert "inactive destination broker" in inactive.json["reason"]
    service.replay("93-x-lookup-after-transfer-broker1", "94-x-lookup-after-transfer-broker2")
    service.replay("96-x-topics-create", "98-x-topic-positions", "99-x-split-positions")
    service.replay("100-x-bundles-after-positions")


def _settings(service: Service) -> None:
    service.replay("34-brokers-list-dynamic-config", "35-brokers-update-dynamic-config")
    values = service.must("GET", "/admin/v2/brokers/configuration/values", status=200).json
    assert values == {"loadBalancerDebugModeEnabled": "true"}
    service.replay("37-brokers-get-runtime-config", "38-brokers-delete-dynamic-config")
    assert service.must("GET", "/admin/v2/brokers/configuration/values", status=200).json == {}
    service.replay("39-brokers-update-dynamic-config-not-dynamic")


def _policies(service: Service) -> None:
    service.replay("49-ns-isolation-policy-set")
    policies = service.must("GET", POLICY_PATH, status=200).json
    assert policies["pol1"]["namespaces"] == ["acme/iso.*"]
    service.replay("52-ns-isolation-policy-delete")
    assert service.must("GET", POLICY_PATH, status=200).json == {}


def _tenant(service: Service) -> None:
    service.must("PUT", "/admin/v2/tenants/gone", {"allowedClusters": [CLUSTER]})
    service.must("PUT", "/admin/v2/namespaces/gone/ns", {"bundles": {"numBundles": 2}})
    assert service.send("DELETE", "/admin/v2/tenants/gone").status == 409
    service.must("PUT", "/admin/v2/persistent/gone/ns/t")
    assert service.send("DELETE", "/admin/v2/namespaces/gone/ns").status == 409
    service.must("DELETE", "/admin/v2/persistent/gone/ns/t")
    service.must("DELETE", "/admin/v2/namespaces/gone/ns")
    lookup = service.send("GET", "/lookup/v2/topic/persistent/gone/ns/t")
    assert (lookup.status, lookup.json) == (404, {"reason": "Namespace not found"})
    service.must("DELETE", "/admin/v2/tenants/gone")
    assert "gone" not in service.must("GET", "/admin/v2/tenants", status=200).json


def _statistics(service: Service) -> None:
    service.replay("29-brokers-list", "31-brokers-leader-broker", "42-broker-stats-topics")
    service.replay("43-broker-stats-monitoring-metrics", "44-broker-resource-availability")
    service.replay("78-clusters-get", "79-resource-quotas-get", "106-x-broker-stats-topics-broker1")
    reports = [name for name in recorded_names() if "load-report" in name or "metrics-lb" in name]
    service.replay(*reports)
