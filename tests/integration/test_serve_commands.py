"""Requests that change something, Pulsar's own and ours, from HTTP to the tables and back.

One stack, one story. Plans wait for a person, are carried out and undone. Then one script sends
Pulsar's recorded requests in the order of the recording, with what it left out in between: each
recording is a test. Then a service that asks for tokens has commands sent to it.
"""

import http.client
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.following.watch_follower import WatchAddress
from jobs.adapters.kafka.clients import KafkaAddress
from jobs.cli import main
from jobs.lookup_client import LookupClient
from lbcore.route.snapshot import LookupOutcome
from tests.integration.stack import PATIENCE_S, Cluster, Stack, running_stack, wait_for
from tests.support.admin.fake_pulsar import (
    Exchange,
    decode,
    differences,
    read_recording,
    recorded_names,
    same_reason,
)
from tests.support.values.tokens import SECRET, token

CLUSTER = "local"
STACK = Cluster(
    brokers=3,
    namespaces={"demo/one": ("crc32", 3)},
    # no bundle goes anywhere in this story but by a request
    settings=(
        "cluster.approval=ask",
        "shedding.is_shedding=false",
        "ownership.broker_timeout_ms=30000",
    ),
)
PATIENCE_MS = PATIENCE_S * 1_000
WAITING = 20
ASKED = 3
NS1, NS2 = "/admin/v2/namespaces/acme/ns1", "/admin/v2/namespaces/acme/ns2"
TOPICS = "/admin/v2/persistent/acme/ns1"
BY_POSITION = "split?splitAlgorithmName=specified_positions_divide"
POLICY_PATH = f"/admin/v2/clusters/{CLUSTER}/namespaceIsolationPolicies"

EXACT = frozenset(
    {
        "07-topics-bundle-range",
        "21-lookup-raw-partitions",
        "22-lookup-raw-partitions-none",
        "23-namespaces-bundles",
        "24-namespaces-policies",
        "54-namespaces-get-anti-affinity-group",
        "66-namespaces-bundles-after-positions",
        "75-namespaces-bundles-after",
        "76-topics-bundle-range-after",
        "79-resource-quotas-get",
        "100-x-bundles-after-positions",
    }
)
"""Recordings whose bodies are the same to the letter, but for the cluster's name."""

NAMED = frozenset({"42-broker-stats-topics", "106-x-broker-stats-topics-broker1"})
"""Recordings whose bodies are maps of maps with names as keys."""


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


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("requests"), STACK) as running:
        yield running


@pytest.fixture
def ballast(cluster: Stack, capsys: pytest.CaptureFixture[str]) -> Any:
    """Exit code and what is written of a verb of `ballast plan`."""

    def run(action: str, *words: str) -> tuple[int, str]:
        where = ["--tables", str(cluster.tables)]
        if action not in ("list", "show"):
            where += ["--bootstrap", cluster.kafka.bootstrap]
        capsys.readouterr()
        code = main(["plan", action, *words, *where])
        found = capsys.readouterr()
        return code, found.out + found.err

    return run


def test_plan_is_shown_approved_done_and_taken_back(cluster: Stack, ballast: Any) -> None:
    assert ballast("list")[1].startswith("no plan waits")
    bundle, owner = min(cluster.owners().items())
    other = next(name for name in sorted(set(cluster.owners().values())) if name != owner)
    code, text = ballast("propose", f"{bundle}={other}", "--why", "its own disk", "--plan", "p-1")
    assert (code, "p-1" in text) == (0, True), text
    assert cluster.owners()[bundle] == owner
    listed, shown = ballast("list")[1], ballast("show", "p-1")[1]
    assert "waits, lapses in" in listed
    assert "its own disk" in listed
    assert f"{bundle}  {owner} -> {other}" in shown
    assert "ballast plan approve p-1" in shown
    assert ballast("approve", "p-1")[0] == 0
    cluster.wait("the move", lambda: cluster.owners().get(bundle) == other)
    code, text = ballast("approve", "p-1")
    assert code == 1
    assert "already" in text
    cluster.wait("its end", lambda: "1 of 1 done" in ballast("show", "p-1")[1])
    cluster.wait_settled()
    code, text = ballast("undo", "p-1", "--json")
    assert code == 0, text
    name = json.loads(text)["result"]["plan"]
    assert "undo of plan p-1" in ballast("show", name)[1]
    assert ballast("approve", name)[0] == 0
    cluster.wait("the way back", lambda: cluster.owners().get(bundle) == owner)
    cluster.wait_settled()
    code, text = ballast("undo", "p-1")
    assert code == 1
    assert "there is nothing to undo" in text


def test_plan_that_there_is_not_is_told_with_those_there_are(ballast: Any) -> None:
    for action in ("show", "approve", "reject", "undo"):
        code, text = ballast(action, "nosuch")
        assert code == 1
        assert "there is no plan nosuch" in text
        assert " next: `ballast plan list`" in text


def test_every_decision_about_a_plan_is_kept_with_who_answered(cluster: Stack) -> None:
    rows = [row for row in cluster.rows("decisions") if row["kind"] == "plan"]
    rows.sort(key=lambda row: row["at_ms"])
    told = [(row["reason"], json.loads(row["inputs"])["plan"]) for row in rows]
    assert [reason for reason, plan in told if plan == "p-1"] == ["Proposed", "Approved", "Done"]
    assert all(
        json.loads(row["inputs"])["answered_by"] for row in rows if row["reason"] == "Approved"
    )


def test_words_that_are_no_move_and_no_undo_are_refused(tmp_path: Path) -> None:
    where = ["--tables", str(tmp_path)]
    assert main(["plan", "propose", "acme/a", *where]) == 2
    assert main(["plan", "undo", *where]) == 2
    assert main(["plan", *where]) == 2


@pytest.fixture(scope="module")
def service(cluster: Stack) -> Service:
    """The answers of the whole script; the service itself is gone."""
    cluster.start_lookup("--set", f"ownership.unload_timeout_ms={PATIENCE_MS}")
    service = Service(cluster)
    wait_for("the tables to be followed", lambda: _is_ready(service), 60)
    service.replay("01-tenants-create")
    _at_once(service, _first_namespace, _second_namespace, _settings, _policies, _tenant)
    _statistics(service)
    assert cluster.stop("lookup") == 0
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


def _as_recorded(value: Any) -> Any:
    return json.loads(json.dumps(value).replace('"standalone"', f'"{CLUSTER}"'))


@pytest.mark.parametrize("name", recorded_names())
def test_recorded_request_is_answered_as_pulsar_answered_it(service: Service, name: str) -> None:
    recorded, answer = read_recording(name), service.answers[name]
    assert answer.status == recorded.status, answer.body
    assert answer.content_type == recorded.content_type
    wanted, found = decode(recorded.body), answer.json
    if isinstance(wanted, Mapping) and set(wanted) == {"reason"}:
        assert same_reason(wanted["reason"], found["reason"])
    elif name in EXACT:
        assert found == _as_recorded(wanted)
    elif name not in NAMED and wanted is not None:
        assert list(differences(_without_names(recorded), _plain(found))) == []


def _without_names(recorded: Exchange) -> Any:
    body = decode(recorded.body)
    return _plain(body)


def _plain(body: Any) -> Any:
    maps = {"lastStats": {}, "topicHashPositions": {}}
    return {**body, **{k: v for k, v in maps.items() if k in body}} if _is_map(body) else body


def _is_map(body: Any) -> bool:
    return isinstance(body, Mapping)


def test_positions_of_topics_are_pulsars_but_for_its_own_topic(service: Service) -> None:
    recorded = read_recording("98-x-topic-positions").body["topicHashPositions"]
    found = service.answers["98-x-topic-positions"].json["topicHashPositions"]
    system = "persistent://acme/ns2/__change_events"
    assert found == {topic: at for topic, at in recorded.items() if topic != system}


@pytest.mark.parametrize("name", sorted(NAMED))
def test_statistics_of_topics_have_pulsars_fields(service: Service, name: str) -> None:
    recorded = read_recording(name).body["pulsar/system"]["0x40000000_0x80000000"]
    (wanted,) = recorded["persistent"].values()
    found = service.answers[name].json["acme/ns1"]
    topics = {t: stats for bundle in found.values() for t, stats in bundle["persistent"].items()}
    assert "persistent://acme/ns1/t1" in topics
    assert all(stats.keys() == wanted.keys() for stats in topics.values())


def test_runtime_configuration_has_pulsars_keys_in_pulsars_units(service: Service) -> None:
    found = service.answers["37-brokers-get-runtime-config"].json
    assert found["loadBalancerNamespaceBundleMaxBandwidthMbytes"] == "100"
    assert all(isinstance(value, str) for value in found.values())


def test_metrics_have_pulsars_form(service: Service) -> None:
    found = service.answers["43-broker-stats-monitoring-metrics"].json
    assert all(set(one) == {"metrics", "dimensions"} for one in found)


@pytest.fixture(scope="module")
def stack(cluster: Stack, service: Service) -> Stack:
    """The stack with a service that asks for tokens, after Pulsar's requests."""
    assert service.answers
    start_lookup(cluster)
    return cluster


def start_lookup(stack: Stack, *more: str) -> None:
    settings = ("lookup.authentication=token", "lookup.token_audience=ballast")
    words = [word for setting in settings for word in ("--set", setting)]
    stack.start_lookup(*words, *more, environment={"BALLAST_TOKEN_SECRET": SECRET})
    stack.wait("lookups", lambda: is_served(stack))


def is_served(stack: Stack) -> bool:
    """Whether it answers; a worker that is not there yet takes no connection."""
    try:
        return send(stack, "GET", "/health")[0] == 200
    except OSError:
        return False


def send(
    stack: Stack, method: str, path: str, value: Any = None, *, role: str = "admin:local"
) -> tuple[int, Any]:
    role, _, sub = role.partition("@")  # who it is, where it is not as the role is called
    proof = token(SECRET, "HS256", roles=[role], sub=sub or role.partition(":")[0])
    body = "" if value is None else value
    answer = request(stack, method, path, body, Authorization=f"Bearer {proof}")
    return answer.status, answer.json


def command(stack: Stack, kind: str, **arguments: Any) -> tuple[int, Any]:
    return send(stack, "POST", f"/v1/commands/{kind}?timeout_ms={PATIENCE_MS}", arguments)


def assignments(stack: Stack) -> set[tuple[str, str]]:
    """Id and principal of each assignment; a batch's commands are written after its owners."""
    rows = [row for row in stack.rows("commands") if row["kind"] == "assign_bundle"]
    return {(row["command_id"], row["principal"]) for row in rows}


def test_action_allowed_or_refused_is_in_the_audit_under_its_commands_id(stack: Stack) -> None:
    status, done = send(stack, "POST", "/v1/commands/pause", {"reason": "a test"})
    assert (status, done["status"]) == (200, "done")
    assert send(stack, "POST", "/v1/commands/pause", role="viewer:local")[0] == 403
    assert send(stack, "POST", "/v1/commands/resume", role="operator:elsewhere")[0] == 403
    refused = (("viewer", "POST /v1/commands/pause"), ("operator", "POST /v1/commands/resume"))

    def entries_of_the_audit() -> dict[tuple[str, str], dict[str, Any]]:
        return {(row["principal"], row["action"]): row for row in stack.rows("audit")}

    wanted = {("admin", "POST /v1/commands/pause"), *refused}
    stack.wait("three entries of the audit", lambda: wanted <= entries_of_the_audit().keys())
    entries = entries_of_the_audit()
    allowed = entries["admin", "POST /v1/commands/pause"]
    assert (allowed["is_allowed"], allowed["address"]) == (True, "127.0.0.1")
    assert allowed["command_id"] == done["command_id"]
    rows = [row for row in stack.rows("commands") if row["command_id"] == done["command_id"]]
    assert {row["principal"] for row in rows} == {"admin"}
    assert [entries[one]["is_allowed"] for one in refused] == [False, False]
    assert all("is not operator of the cluster" in entries[one]["reason"] for one in refused)


def test_many_lookups_of_a_free_bundle_wait_for_one_assignment(stack: Stack) -> None:
    assert command(stack, "set_config", values={"ownership.assign": "on_demand"})[0] == 200
    assert command(stack, "create_namespace", namespace="demo/free", bundles=1)[0] == 200
    path = "/lookup/v2/topic/persistent/demo/free/t"
    with ThreadPoolExecutor(WAITING) as threads:
        asked = [threads.submit(send, stack, "GET", path) for _ in range(WAITING)]
        answers = [future.result() for future in asked]
    assert {status for status, _ in answers} == {200}
    assert len({body["brokerUrl"] for _, body in answers}) == 1
    stack.wait("the assignment among the commands", lambda: assignments(stack))
    assert {principal for _, principal in assignments(stack)} == {"lookup"}
    assert len(assignments(stack)) == 1


@pytest.mark.parametrize("way", ["tables", "service"])
def test_lookup_in_a_process_has_a_free_bundle_assigned(stack: Stack, way: str) -> None:
    assert command(stack, "set_config", values={"ownership.assign": "on_demand"})[0] == 200
    assert command(stack, "create_namespace", namespace=f"demo/by-{way}", bundles=1)[0] == 200
    topic, before = f"persistent://demo/by-{way}/t", assignments(stack)
    with client_of(stack, way) as client:
        stack.wait("the namespace", lambda: client.wait_ready(1_000) and client.find(topic))
        stack.wait("an owner", lambda: client.lookup(topic).outcome is LookupOutcome.FOUND)
    stack.wait("the assignment among the commands", lambda: assignments(stack) - before)
    assert [principal for _, principal in assignments(stack) - before] == ["lookup"]


def client_of(stack: Stack, way: str) -> LookupClient:
    if way == "tables":
        kafka = KafkaAddress(bootstrap=stack.kafka.bootstrap)
        return LookupClient(str(stack.tables), "local", kafka=kafka)
    port = int((stack.folder / "lookup-port").read_text())
    proof = token(SECRET, "HS256", roles=["viewer"])
    return LookupClient(WatchAddress(url=f"http://127.0.0.1:{port}", token=lambda: proof), "local")


@pytest.mark.long
def test_command_outlives_the_balancer_and_nothing_is_pretended_meanwhile(stack: Stack) -> None:
    stack.kill("job")
    status, said = send(stack, "POST", "/v1/commands/resume?timeout_ms=500")
    assert status == 503
    assert "has not taken up command" in said["detail"]
    assert "ms old" in said["detail"]
    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(command, stack, "unload_namespace", namespace="demo/one")
        assert stack.lookup("persistent://demo/one/t")[0] == 401  # it serves on, tokens and all
        stack.start_job()
        status, done = asking.result()
    assert (status, done["status"]) == (200, "done")
    again = f"/v1/commands/unload_namespace?command_id={done['command_id']}"
    assert send(stack, "POST", again, {"namespace": "demo/one"})[1] == done
    known = send(stack, "GET", f"/v1/commands/{done['command_id']}", role="viewer:local")
    assert (known[0], known[1]["status"]) == (200, "done")


def test_used_command_id_is_of_who_used_it_for_what(stack: Stack) -> None:
    assert _ends_of(stack, _set(stack)) == ENDS


@pytest.mark.long
def test_used_command_id_is_known_to_every_worker_however_it_started(stack: Stack) -> None:
    used, port_file = _set(stack), stack.folder / "lookup-port"
    older = port_file.read_text()
    stack.children["older"] = stack.children.pop("lookup")
    port_file.unlink()
    start_lookup(stack, "--workers", "2")
    for _ in range(ASKED):  # whichever worker takes it
        assert _ends_of(stack, used) == ENDS
    used = _set(stack)
    port_file.write_text(older)
    assert _ends_of(stack, used) == ENDS
    stack.kill("lookup")
    port_file.unlink()
    start_lookup(stack, "--workers", "2")
    assert _ends_of(stack, used) == ENDS


SAID = {"values": {"shedding.max_moves_per_cycle": 3}}
ENDS = {"same": (200, True), "kind": 409, "arguments": 409, "principal": 409}


def _set(stack: Stack) -> Any:
    status, done = command(stack, "set_config", **SAID)
    assert (status, done["status"]) == (200, "done")
    return done


def _ends_of(stack: Stack, first: Any) -> dict[str, Any]:
    """What is answered under the id of a command that is done."""
    query = f"?command_id={first['command_id']}&timeout_ms={PATIENCE_MS}"
    path, other = f"/v1/commands/set_config{query}", f"/v1/commands/unload_namespace{query}"
    status, again = send(stack, "POST", path, SAID)
    changed = {"values": {"shedding.max_moves_per_cycle": 4}}
    return {
        "same": (status, again == first),
        "kind": send(stack, "POST", other, {"namespace": "demo/one"})[0],
        "arguments": send(stack, "POST", path, changed)[0],
        "principal": send(stack, "POST", path, SAID, role="admin:local@another")[0],
    }
