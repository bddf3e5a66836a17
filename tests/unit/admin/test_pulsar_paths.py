"""Pulsar's admin paths over real tables: answers, refusals in Pulsar's words, commands."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from time import time_ns
from typing import Any

import pytest

from jobs.adapters.kafka.command_client import CommandOutcome
from jobs.service.all_routes import PULSAR_ROUTES
from jobs.service.app import AdminApp
from jobs.service.context import AdminContext
from jobs.service.views import Rows, TableViews
from lbcore.balancer.commands import NOT_EMPTY
from lbcore.model.tables import POLICIES, RECORDS
from lbcore.plan.filter.policies import IsolationPolicy
from lbcore.wire.messages import Command
from tests.support.admin.admin_world import (
    BROKERS,
    Balancer,
    make_app,
    make_context,
    outcome,
    write_tables,
)
from tests.support.admin.asgi_calls import Answer, ask
from tests.support.tables.lookup_tables import CLUSTER, Row

NS = "/admin/v2/namespaces/acme/ns1"
FIRST, SECOND = "0x00000000_0x40000000", "0x40000000_0x80000000"
TOPIC = "/admin/v2/persistent/acme/ns1"
POLICY = {
    "namespaces": ["acme/iso.*"],
    "primary": ["broker-1:8080"],
    "secondary": ["broker-2:8080"],
    "auto_failover_policy": {
        "policy_type": "min_available",
        "parameters": {"min_limit": "1", "usage_threshold": "80"},
    },
}
POLICIES_PATH = "/admin/v2/clusters/c1/namespaceIsolationPolicies"
SPLIT = f"{NS}/{FIRST}/split?splitAlgorithmName="
UNEXPECTED = "\n --- An unexpected error occurred in the server ---\n\nMessage: "


def _cases(name: str) -> list[Any]:
    lines = Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()
    cases = [tuple(json.loads(line)) for line in lines]
    return [
        (method, path, body.encode() if isinstance(body, str) else body, *rest)
        for method, path, body, *rest in cases
    ]


ASKED: list[tuple[str, str, Any, int, str, Mapping[str, Any]]] = _cases("pulsar_asked.jsonl")
REFUSED: list[tuple[str, str, Any, int, str]] = _cases("pulsar_refused.jsonl")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of two brokers, three namespaces, topics, a tenant and policies."""
    made = tmp_path_factory.mktemp("pulsar") / "tables"
    writer = write_tables(made)
    writer.now_ms = time_ns() // 1_000_000 + 3_600_000  # not silent, however slow the machine
    writer.events([])
    topics = {"pt": 4, "t1": 0}
    rows: list[dict[str, Any]] = [
        {
            "record_type": "topic",
            "name": f"persistent://acme/ns1/{name}",
            "value": str(count),
            "is_deleted": False,
        }
        for name, count in topics.items()
    ]
    value = '{"admin_roles": ["ops"], "allowed_clusters": ["c1"]}'
    rows.append({"record_type": "tenant", "name": "empty", "value": value, "is_deleted": False})
    writer.upsert(RECORDS, "name", rows)
    return made


class Views(TableViews):
    """The tables, and policies that no job has written."""

    def rows(self, table: str) -> Rows:
        """An isolation policy and an anti-affinity group, as the balancer keeps them."""
        if table != "policies":
            return super().rows(table)
        value = json.dumps(IsolationPolicy.from_json("pol1", POLICY).to_json())
        of = ("kind", "name", "value", "is_set")
        return (
            dict(zip(of, ("isolation", "pol1", value, True), strict=True)),
            dict(zip(of, ("isolation", "gone", value, False), strict=True)),
            dict(zip(of, ("anti_affinity", "acme/ns1", '{"group":"grp"}', True), strict=True)),
        )


def refusing(reason: str) -> Callable[[Command], CommandOutcome]:
    return lambda command: outcome(command, status="refused", reason=reason)


@cache
def context_of(root: Path) -> AdminContext:
    """Tables that no test of this file changes, read once."""
    views = Views(root, CLUSTER)
    views.refresh()
    return replace(make_context(root), views=views)


def send(root: Path, method: str, path: str, body: Any = b"", **options: Any) -> Answer:
    """One request to a service over the tables; options: balancer."""
    context = replace(context_of(root), commands=options.get("balancer") or Balancer())
    app: AdminApp = make_app(context, PULSAR_ROUTES)
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return asyncio.run(ask(app, path, method=method, body=raw, headers={"Host": "lb:8080"}))


READ: list[tuple[str, Any]] = [
    (
        f"{NS}/bundles",
        {
            "boundaries": ["0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"],
            "numBundles": 4,
        },
    ),
    ("/admin/v2/namespaces/acme", ["acme/free", "acme/ns1", "acme/ns2"]),
    ("/admin/v2/namespaces/empty", []),
    (f"{NS}/topics?mode=NON_PERSISTENT", []),
    (f"{NS}/replication", ["c1"]),
    (f"{TOPIC}/partitioned", ["persistent://acme/ns1/pt"]),
    ("/admin/v2/non-persistent/acme/ns1", []),
    (f"{TOPIC}/pt/partitions?checkAllowAutoCreation=true", {"partitions": 4, "deleted": False}),
    (f"{TOPIC}/t1/partitions", {"partitions": 0, "deleted": False}),
    (f"{TOPIC}/nobody/partitions?checkAllowAutoCreation=true", {"partitions": 0, "deleted": False}),
    ("/admin/persistent/acme/c1/none/t/partitions", None),
    ("/admin/v2/tenants", ["acme", "empty"]),
    ("/admin/v2/tenants/empty", {"adminRoles": ["ops"], "allowedClusters": ["c1"]}),
    ("/admin/v2/tenants/acme", {"adminRoles": [], "allowedClusters": ["c1"]}),
    ("/admin/v2/clusters", ["c1"]),
    ("/admin/v2/brokers", list(BROKERS)),
    ("/admin/v2/brokers/standalone", list(BROKERS)),
    (
        "/admin/v2/brokers/leaderBroker",
        {"serviceUrl": "http://127.0.0.1:8090", "brokerId": "127.0.0.1:8090"},
    ),
    ("/admin/v2/brokers/configuration/values", {}),
    (POLICIES_PATH, {"pol1": POLICY}),
    (f"{POLICIES_PATH}/pol1", POLICY),
    (
        f"{POLICIES_PATH}/brokers/broker-2:8080",
        {
            "brokerName": "broker-2:8080",
            "policyName": "pol1",
            "primary": False,
            "namespaceRegex": ["acme/iso.*"],
        },
    ),
    ("/admin/v2/namespaces/c1/antiAffinity/grp?tenant=acme", ["acme/ns1"]),
    ("/admin/namespaces/c1/antiAffinity/grp?property=acme", ["acme/ns1"]),
    ("/admin/v2/namespaces/c1/antiAffinity/grp?tenant=other", []),
    ("/admin/v2/clusters/c1/failureDomains/", {}),
    ("/admin/v2/broker-stats/mbeans", []),
    ("/admin/v2/broker-stats/bookieops", {}),
    ("/admin/v2/clusters/other/failureDomains", {}),
]


@pytest.mark.parametrize(("path", "wanted"), READ, ids=[path for path, _ in READ])
def test_path_that_reads_answers_with_what_the_tables_have(
    root: Path, path: str, wanted: Any
) -> None:
    answer = send(root, "GET", path)
    if wanted is None:
        assert (answer.status, answer.json) == (404, {"reason": "Namespace not found"})
        return
    assert (answer.status, answer.json) == (200, wanted)
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("primary", ["store-1:8080", "store-1", "store-[0-9]", "[a-z0-9-]+:80.*"])
def test_policy_names_a_broker_by_its_web_service_or_its_own_name(
    tmp_path: Path, primary: str
) -> None:
    writer = write_tables(tmp_path / "tables")
    writer.brokers("store-1")  # its web service is at store-1:8080
    policy = {**POLICY, "primary": [primary], "secondary": []}
    row = {"kind": "isolation", "name": "p", "value": json.dumps(policy), "is_set": True}
    writer.upsert(POLICIES, "name", [row])
    app = make_app(make_context(tmp_path / "tables"), PULSAR_ROUTES)

    def get(rest: str = "") -> Any:
        return asyncio.run(ask(app, f"{POLICIES_PATH}/brokers{rest}")).json

    listed = {one["brokerName"]: one for one in get()}
    assert (listed["store-1"]["policyName"], listed["store-1"]["primary"]) == ("p", True)
    for name in ("store-1", "store-1:8080"):
        assert get(f"/{name}") == {**listed["store-1"], "brokerName": name}


def test_topics_of_a_namespace_are_listed_with_their_partitions(root: Path) -> None:
    names = [f"persistent://acme/ns1/pt-partition-{number}" for number in range(4)]
    wanted = sorted([*names, "persistent://acme/ns1/t1"])
    assert send(root, "GET", f"{NS}/topics?mode=ALL").json == wanted
    assert send(root, "GET", TOPIC).json == wanted
    by_bundle = [
        send(root, "GET", f"{NS}/{bundle}/topicHashPositions").json
        for bundle in (FIRST, SECOND, "0x80000000_0xc0000000", "0xc0000000_0xffffffff")
    ]
    assert by_bundle[1] == {
        "namespace": "acme/ns1",
        "bundle": SECOND,
        "topicHashPositions": by_bundle[1]["topicHashPositions"],
    }
    found = {t: at for one in by_bundle for t, at in one["topicHashPositions"].items()}
    assert sorted(found) == wanted
    listed = [t for b in (FIRST, SECOND) for t in send(root, "GET", f"{TOPIC}/{b}").json]
    assert sorted(listed) == sorted(t for t, at in found.items() if at < 0x80000000)
    asked = f"{NS}/0x80000000_0xC0000000/topicHashPositions?topics=persistent://acme/ns1/pt"
    assert "persistent://acme/ns1/t1" not in send(root, "GET", asked).json["topicHashPositions"]


def test_broker_owns_the_bundles_that_its_status_names(root: Path) -> None:
    answer = send(root, "GET", "/admin/v2/brokers/c1/broker-1:8080/ownedNamespaces")
    assert sorted(answer.json) == [
        "acme/ns1/0x00000000_0x40000000",
        "acme/ns1/0x80000000_0xc0000000",
        "acme/ns2/0x00000000_0x40000000",
        "acme/ns2/0x80000000_0xc0000000",
    ]
    status = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
    assert all(one == status for one in answer.json.values())


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/admin/v2/brokers/health?topicVersion=V2", "ok"),
        ("/admin/v2/brokers/ready", "ok"),
        ("/admin/v2/brokers/version", "4.0.8"),
        (f"{NS}/antiAffinity", "grp"),
    ],
)
def test_text_is_answered_without_quotes(root: Path, path: str, text: str) -> None:
    answer = send(root, "GET", path)
    assert (answer.status, answer.body) == (200, text.encode())
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        (f"{NS}/bundles", "GET, HEAD, OPTIONS"),
        (f"{NS}/{FIRST}/unload", "OPTIONS, PUT"),
        (POLICIES_PATH, "GET, HEAD, OPTIONS"),
    ],
)
def test_path_tells_its_methods(root: Path, path: str, methods: str) -> None:
    told = send(root, "OPTIONS", path)
    assert (told.status, told.body, told.headers["allow"]) == (200, b"", methods)
    refused = send(root, "PATCH", path)
    assert (refused.status, refused.headers["allow"]) == (405, methods)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: f"{case[0]} {case[1]}")
def test_request_that_does_not_fit_is_refused_in_pulsars_words(
    root: Path, case: tuple[str, str, Any, int, str]
) -> None:
    method, path, body, status, reason = case
    balancer = Balancer()
    answer = send(root, method, path, body, balancer=balancer)
    assert (answer.status, answer.json) == (status, {"reason": reason})
    assert balancer.commands == []


@pytest.mark.parametrize("case", ASKED, ids=lambda case: f"{case[0]} {case[1]}")
def test_request_that_changes_something_asks_the_balancer_for_it(
    root: Path, case: tuple[str, str, Any, int, str, Mapping[str, Any]]
) -> None:
    method, path, body, status, kind, arguments = case
    balancer = Balancer()
    answer = send(root, method, path, body, balancer=balancer)
    assert (answer.status, answer.body) == (status, b"")
    assert [(one.kind, one.arguments) for one in balancer.commands] == [(kind, arguments)]


def test_request_goes_by_settings_that_commands_have_changed(root: Path) -> None:
    views = Views(root, CLUSTER)
    views.refresh()
    views.settings = {
        "ownership.unload_timeout_ms": 600_000,
        "splitting.default_bundles": 9,
        "splitting.supported_algorithms": ["range_equally_divide"],
    }
    balancer = Balancer()
    context = replace(make_context(root, balancer), views=views)
    app = make_app(context, PULSAR_ROUTES)
    headers = {"Host": "lb:8080"}
    made = asyncio.run(ask(app, "/admin/v2/namespaces/acme/new", method="PUT", headers=headers))
    (command,) = balancer.commands
    assert (made.status, command.arguments["bundles"]) == (204, 9)
    assert command.timeout_ms > 600_000
    refused = asyncio.run(
        ask(app, f"{SPLIT}topic_count_equally_divide", method="PUT", headers=headers)
    )
    assert refused.status == 412
    assert len(balancer.commands) == 1


@pytest.mark.parametrize(
    ("which", "throughput", "chosen"),
    [("LARGEST", 9.0, 1), ("HOT", 9.0, 2), ("HOT", 0.0, 1)],
)
def test_split_without_a_range_is_of_the_bundle_with_most_topics_or_throughput(
    root: Path, which: str, throughput: float, chosen: int
) -> None:
    views = Views(root, CLUSTER)
    views.refresh()
    ranges = ("0x00000000_0x40000000", "0x40000000_0x80000000", "0x80000000_0xc0000000")
    load = {
        "bundles": [f"acme/ns2/{text}" for text in ranges],
        "topics": [1, 90, 5],
        "msg_throughput_in": [0.0, 0.0, throughput],
        "msg_throughput_out": [0.0, 0.0, 0.0],
    }
    views.newest_load = {BROKERS[0]: load}
    balancer = Balancer()
    app = make_app(replace(context_of(root), views=views, commands=balancer), PULSAR_ROUTES)
    asked = ask(app, f"/admin/v2/namespaces/acme/ns2/{which}/split", method="PUT")
    assert asyncio.run(asked).status == 204
    assert [one.arguments["bundle"] for one in balancer.commands] == [load["bundles"][chosen]]


@pytest.mark.parametrize("field", ["namespaces", "primary", "secondary"])
def test_policy_with_a_text_in_place_of_a_list_is_refused(root: Path, field: str) -> None:
    balancer = Balancer()
    body = {**POLICY, field: "abc"}
    answer = send(root, "POST", f"{POLICIES_PATH}/p", body, balancer=balancer)
    assert (answer.status, balancer.commands) == (400, [])


@pytest.mark.parametrize("clusters", [5, True, 1.5, "c1", {"c1": 1}])
def test_namespace_with_clusters_that_are_no_list_is_refused(root: Path, clusters: object) -> None:
    balancer = Balancer()
    path, body = "/admin/v2/namespaces/acme/new", {"replication_clusters": clusters}
    answer = send(root, "PUT", path, body, balancer=balancer)
    assert (answer.status, balancer.commands) == (400, [])


@pytest.mark.parametrize(
    "path",
    ["/admin/v2/namespaces/acme/free/unload", "/admin/v2/namespaces/acme/free/0_0xffffffff/unload"],
)
def test_unload_of_what_nobody_owns_is_done_already(root: Path, path: str) -> None:
    balancer = Balancer()
    assert send(root, "PUT", path, balancer=balancer).status == 204
    assert balancer.commands == []


def test_transfer_to_the_owner_is_pulsars_500(root: Path) -> None:
    path = f"{NS}/{FIRST}/unload?destinationBroker=broker-1:8080"
    answer = send(root, "PUT", path)
    assert answer.status == 500
    assert answer.json["reason"].startswith(
        f"{UNEXPECTED}Namespace bundle: acme/ns1/{FIRST} own by broker-1:8080, cannot be transfer "
        "to same broker.\n\nStacktrace:\n\njava.lang.IllegalArgumentException: "
    )


LATE = f"Bundle acme/ns1/{FIRST} not found under namespace"
UNDIVIDED = f"{UNEXPECTED}{LATE}\n\nStacktrace:\n\njava.lang.IllegalStateException: {LATE}\n"
TOO_LATE: list[tuple[str, str, int, str]] = [
    ("DELETE", "/admin/v2/tenants/empty", 409, "it can't be"),
    ("PUT", f"{NS}/{FIRST}/unload", 409, "it can't be"),
    (
        "POST",
        "/admin/v2/brokers/configuration/loadBalancerBrokerMaxTopics/many",
        412,
        " Invalid dynamic-config value: it can't be",
    ),
    ("PUT", f"{SPLIT}topic_count_equally_divide", 500, f"{UNDIVIDED}\tat it can't be\n"),
]


@pytest.mark.parametrize("case", TOO_LATE, ids=lambda case: f"{case[0]} {case[1]}")
def test_refusal_of_the_balancer_is_answered_as_pulsar_would(
    root: Path, case: tuple[str, str, int, str]
) -> None:
    method, path, status, reason = case
    answer = send(root, method, path, balancer=Balancer(answer=refusing("it can't be")))
    assert (answer.status, answer.json) == (status, {"reason": reason})


@pytest.mark.parametrize(
    ("path", "body", "exists"),
    [
        ("/admin/v2/namespaces/acme/new", b"", "Namespace already exists"),
        (f"{TOPIC}/new", b"", "This topic already exists"),
        (f"{TOPIC}/new/partitions", b"4", "This topic already exists"),
        ("/admin/v2/tenants/new", b'{"allowedClusters": ["c1"]}', "Tenant already exist"),
    ],
)
def test_creation_is_refused_as_existing_only_for_what_exists(
    root: Path, path: str, body: bytes, exists: str
) -> None:
    there = Balancer(answer=refusing("it exists already; choose another name"))
    answer = send(root, "PUT", path, body, balancer=there)
    assert (answer.status, answer.json) == (409, {"reason": exists})
    limit = "tenant acme has 9 topics and may have 9; delete some, or ask for fewer"
    answer = send(root, "PUT", path, body, balancer=Balancer(answer=refusing(limit)))
    assert (answer.status, answer.json) == (412, {"reason": limit})


def unfinished(status: str) -> Callable[[Command], CommandOutcome]:
    return lambda command: outcome(command, status=status, reason="too late")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (unfinished("accepted"), "still under way"),
        (unfinished("timed_out"), "too late"),
        (lambda _: None, "has not taken up"),
    ],
)
def test_command_without_an_end_is_never_called_done(
    root: Path, answer: Callable[[Command], CommandOutcome | None], words: str
) -> None:
    found = send(root, "PUT", f"{NS}/{FIRST}/unload", balancer=Balancer(answer=answer))
    assert found.status == 503
    assert words in found.json["reason"]
    assert found.headers["retry-after"]


def test_balancer_that_is_silent_is_not_asked(tmp_path: Path) -> None:
    write_tables(tmp_path)
    balancer = Balancer()
    found = send(tmp_path, "PUT", f"{NS}/{FIRST}/unload", balancer=balancer)
    assert found.status == 503
    assert "has been silent for" in found.json["reason"]
    assert balancer.commands == []


def test_load_report_needs_a_broker_named(root: Path) -> None:
    path = "/admin/v2/broker-stats/load-report"
    answer = send(root, "GET", path)
    assert answer.status == 500
    assert answer.json["reason"].startswith(
        f"{UNEXPECTED}null\n\nStacktrace:\n\njava.lang.UnsupportedOperationException\n"
    )
    report = send(root, "GET", f"{path}?broker=broker-1:8080").json
    assert report["webServiceUrl"] == "http://broker-1:8080:8080"
    assert report["loadReportType"] == "LocalBrokerData"


def test_statistics_show_the_topics_that_a_broker_serves(root: Path) -> None:
    found = send(root, "GET", "/admin/v2/broker-stats/topics").json
    topics = [t for b in found["acme/ns1"].values() for t in b["persistent"]]
    assert len(topics) == 5
    stats = send(root, "GET", f"{TOPIC}/t1/stats").json
    assert stats["ownerBroker"] in BROKERS


def test_namespace_that_brokers_report_topics_of_is_not_deleted(tmp_path: Path) -> None:
    """The balancer knows of them, the tables do not."""
    writer = write_tables(tmp_path)
    writer.now_ms = time_ns() // 1_000_000 + 3_600_000
    writer.events([])

    def refuse(command: Command) -> CommandOutcome:
        reason = f"namespace acme/ns2 {NOT_EMPTY}: it has 3 topics"
        return outcome(command, status="refused", reason=reason)

    app = make_app(make_context(tmp_path, Balancer(answer=refuse)), PULSAR_ROUTES)
    found = asyncio.run(ask(app, "/admin/v2/namespaces/acme/ns2", method="DELETE"))
    assert (found.status, found.json["reason"]) == (409, "Cannot delete non empty namespace")


@pytest.mark.parametrize("path", ["unload", "0x00000000_0xffffffff/unload"])
def test_unload_of_a_bundle_on_its_way_waits_for_its_owner(tmp_path: Path, path: str) -> None:
    writer = write_tables(tmp_path)
    writer.now_ms = time_ns() // 1_000_000
    bundle, balancer = "acme/free/0x00000000_0xffffffff", Balancer()
    writer.batch([Row(bundle=bundle, version=2, state="Assigning", destination=BROKERS[0])])
    context = make_context(tmp_path, balancer)
    app = make_app(context, PULSAR_ROUTES)

    async def unload() -> int:
        target = f"/admin/v2/namespaces/acme/free/{path}"
        asking = asyncio.create_task(ask(app, target, method="PUT"))
        await asyncio.sleep(0.05)
        assert balancer.commands == []
        writer.batch([Row(bundle=bundle, version=3, destination=BROKERS[0])])
        context.follower.poll()
        return (await asking).status

    assert asyncio.run(unload()) == 204
    assert len(balancer.commands) == 1
