"""Requests that change something, from HTTP to the tables and back, on the real stack.

One stack, one story: each test goes on with what the one before left.
"""

import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jobs.adapters.following.watch_follower import WatchAddress
from jobs.adapters.kafka.clients import KafkaAddress
from jobs.lookup_client import LookupClient
from lbcore.route.snapshot import LookupOutcome
from tests.integration.stack import PATIENCE_S, Cluster, Stack, running_stack
from tests.support.values.tokens import SECRET, token

TIMEOUT_MS = 10_000  # a crowded machine may stop a process for some seconds
CLUSTER = Cluster(
    brokers=3,
    namespaces={"demo/one": ("crc32", 3)},
    settings=(f"ownership.broker_timeout_ms={TIMEOUT_MS}",),
)
PATIENCE_MS = PATIENCE_S * 1_000
WAITING = 20
ASKED = 3


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("commands"), CLUSTER) as running:
        start_lookup(running)
        yield running


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
    port = int((stack.folder / "lookup-port").read_text())
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        body = None if value is None else json.dumps(value)
        role, _, sub = role.partition("@")  # who it is, where it is not as the role is called
        proof = token(SECRET, "HS256", roles=[role], sub=sub or role.partition(":")[0])
        connection.request(method, path, body, {"Authorization": f"Bearer {proof}"})
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"null")
    finally:
        connection.close()


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
    stack.wait("three entries of the audit", lambda: len(stack.rows("audit")) >= 3)
    entries = {(row["principal"], row["action"]): row for row in stack.rows("audit")}
    allowed = entries["admin", "POST /v1/commands/pause"]
    assert (allowed["is_allowed"], allowed["address"]) == (True, "127.0.0.1")
    assert allowed["command_id"] == done["command_id"]
    rows = [row for row in stack.rows("commands") if row["command_id"] == done["command_id"]]
    assert {row["principal"] for row in rows} == {"admin"}
    refused = (("viewer", "POST /v1/commands/pause"), ("operator", "POST /v1/commands/resume"))
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
