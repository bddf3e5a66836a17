"""Requests of operators and clients, from a verb or HTTP to the tables and back, on a real stack.

One stack, one story. Kafka lets nobody in unasked, by TLS, passwords and ACLs: each process has
what its role needs, and no more. First an operator says verbs and answers plans. Then Pulsar's
recorded requests are sent: each recording is a test. Then a service asks for tokens.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from kafka import KafkaProducer
from kafka.errors import TopicAuthorizationFailedError

from jobs.adapters.following.watch_follower import WatchAddress
from jobs.adapters.kafka.clients import PASSWORD, Sender
from jobs.cli import main
from jobs.console import CommandError
from jobs.lookup_client import LookupClient
from lbcore.route.snapshot import LookupOutcome
from lbcore.wire.messages import Topic
from tests.integration.pulsar_script import CLUSTER, Service, answered, request
from tests.integration.secure_stack import SecureStack, running_secure_stack, secret_of
from tests.integration.stack import PATIENCE_S, Cluster, Stack
from tests.support.admin.fake_pulsar import (
    Exchange,
    decode,
    differences,
    read_recording,
    recorded_names,
    same_reason,
)
from tests.support.values.tokens import SECRET, token

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
READING: tuple[str | tuple[str, str], ...] = (
    "status", "ownership", ("plan", "list"), ("plan", "show"),
)  # fmt: skip
"""Verbs that need no Kafka."""

Verb = Callable[..., tuple[int, str]]
Say = Callable[..., tuple[int, Any]]
WAITING = 20
ASKED = 3
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


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureStack]:
    with running_secure_stack(tmp_path_factory.mktemp("requests"), STACK) as running:
        yield running


@pytest.fixture
def verb(
    cluster: SecureStack, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Says words to `ballast`, logged in as an operator; exit code, output and errors."""
    overlay = cluster.folder / "operator.toml"
    overlay.write_text(overlay_of(cluster.words("operator")))
    monkeypatch.setenv(PASSWORD, secret_of("operator"))

    def run(*words: str) -> tuple[int, str, str]:
        where = ["--conf", "test", "--conf", str(overlay), "--tables", str(cluster.tables)]
        if words[0] not in READING and words[:2] not in READING:
            where += ["--bootstrap", cluster.kafka.bootstrap]
            where += [] if "--timeout" in words else ["--timeout", f"{PATIENCE_S}s"]
        capsys.readouterr()
        code = main([*words, *where])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def ballast(verb: Callable[..., tuple[int, str, str]]) -> Verb:
    """Says words to `ballast`; exit code and what is written."""

    def run(*words: str) -> tuple[int, str]:
        code, out, err = verb(*words)
        return code, out + err

    return run


@pytest.fixture
def say(verb: Callable[..., tuple[int, str, str]]) -> Say:
    """Says a line to `ballast`; exit code and answer."""

    def run(line: str) -> tuple[int, Any]:
        code, out, err = verb(*line.split(), "--json")
        return code, json.loads((out or err).splitlines()[-1])

    return run


def overlay_of(words: list[str]) -> str:
    settings = (word.removeprefix("kafka.").partition("=") for word in words if word != "--set")
    return "[kafka]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, _, value in settings)


def done(answer: tuple[int, Any]) -> Any:
    code, value = answer
    assert code == 0, value
    return value


def status(say: Say) -> Any:
    """What `status` shows; its exit code tells of alarms, and a busy machine may well raise one."""
    code, found = say("status")
    assert code in (0, 1), found
    return found


def test_pause_is_seen(say: Say) -> None:
    done(say("pause --reason thinking"))
    found = status(say)
    assert found["phase"] == "off"
    assert found["pauses"][""]["reason"] == "thinking"


def test_unload_is_waited_for_and_seen_in_the_ownership(cluster: SecureStack, say: Say) -> None:
    # nothing else moves in the pause that the test before began
    before = done(say("ownership"))
    bundle, owner = next((row["bundle"], row["destination"]) for row in before["bundles"])
    other = next(name for name in sorted(set(cluster.owners().values())) if name != owner)
    line = f"bundle unload {bundle} --destination {other}"
    dry = done(say(f"{line} --dry-run"))
    assert [one["bundle"] for one in dry["transitions"]] == [bundle]
    assert cluster.owners()[bundle] == owner
    assert done(say(line))["status"] == "done"
    assert cluster.owners()[bundle] == other
    changes = done(say(f"ownership --diff {before['version']} 0s"))["changes"]
    change = next(one for one in changes if one["bundle"] == bundle)
    assert (change["before"]["destination"], change["after"]["destination"]) == (owner, other)
    rows = done(say(f"ownership --as-of {before['version']}"))["bundles"]
    assert next(row for row in rows if row["bundle"] == bundle)["destination"] == owner


def test_resume_ends_the_pause(say: Say) -> None:
    done(say("resume"))
    assert status(say)["pauses"] == {}


def test_pin_brings_a_bundle_to_its_broker_and_status_shows_it(
    cluster: SecureStack, say: Say
) -> None:
    owners = cluster.owners()
    bundle = min(owners)
    other = next(name for name in sorted(set(owners.values())) if name != owners[bundle])
    done(say(f"bundle pin {bundle} {other} --ttl 10m --reason test"))
    cluster.wait("the pinned bundle to move", lambda: cluster.owners().get(bundle) == other)
    (pin,) = status(say)["pins"]
    assert (pin["bundle"], pin["broker"], pin["reason"]) == (bundle, other, "test")
    done(say(f"bundle unpin {bundle}"))
    assert status(say)["pins"] == []
    code, refused = say(f"bundle unpin {bundle}")
    assert (code, refused["status"]) == (1, "refused")


def test_setting_is_changed_and_taken_back_while_running(say: Say) -> None:
    done(say("config set shedding.max_moves_per_cycle=3"))
    done(say("config reset shedding.max_moves_per_cycle"))
    assert say("config set pipeline.trigger_ms=500")[0] == 1, "needs a restart"


def test_role_is_refused_what_it_has_no_right_to(cluster: SecureStack) -> None:
    producer = KafkaProducer(**cluster.address("agent").client_options("test-forger"))
    with pytest.raises(TopicAuthorizationFailedError):
        producer.send(Topic.OWNERSHIP.value, b"x").get(60)
    producer.close()


def test_wrong_password_is_named_and_not_shown(cluster: SecureStack) -> None:
    known = cluster.address("operator", "a-wrong-one")
    address = replace(known, security={**known.security, "bootstrap_timeout_ms": 5_000})
    with pytest.raises(CommandError) as raised:
        Sender(address, "test-wrong")
    assert re.search("Authentication failed|password may be wrong", raised.value.why)
    assert "a-wrong-one" not in str(raised.value)


@pytest.mark.long
def test_command_to_a_job_that_is_away_ends_with_nobody_knows(
    cluster: SecureStack, say: Say
) -> None:
    cluster.kill("job")
    assert done(say("resume --no-wait"))["status"] == "sent"
    code, error = say("pause --timeout 2s")
    assert code == 3
    assert "no outcome of pause" in error["error"]
    assert "last heartbeat" in error["why"]
    cluster.start_job()
    cluster.wait_for_batches(1)


def test_plan_is_shown_approved_done_and_taken_back(cluster: SecureStack, ballast: Verb) -> None:
    assert ballast("plan", "list")[1].startswith("no plan waits")
    bundle, owner = min(cluster.owners().items())
    other = next(name for name in sorted(set(cluster.owners().values())) if name != owner)
    code, text = ballast(
        "plan", "propose", f"{bundle}={other}", "--why", "its own disk", "--plan", "p-1"
    )
    assert (code, "p-1" in text) == (0, True), text
    assert cluster.owners()[bundle] == owner
    listed, shown = ballast("plan", "list")[1], ballast("plan", "show", "p-1")[1]
    assert "waits, lapses in" in listed
    assert "its own disk" in listed
    assert f"{bundle}  {owner} -> {other}" in shown
    assert "ballast plan approve p-1" in shown
    assert ballast("plan", "approve", "p-1")[0] == 0
    cluster.wait("the move", lambda: cluster.owners().get(bundle) == other)
    code, text = ballast("plan", "approve", "p-1")
    assert code == 1
    assert "already" in text
    cluster.wait("its end", lambda: "1 of 1 done" in ballast("plan", "show", "p-1")[1])
    cluster.wait_settled()
    code, text = ballast("plan", "undo", "p-1", "--json")
    assert code == 0, text
    name = json.loads(text)["result"]["plan"]
    assert "undo of plan p-1" in ballast("plan", "show", name)[1]
    assert ballast("plan", "approve", name)[0] == 0
    cluster.wait("the way back", lambda: cluster.owners().get(bundle) == owner)
    cluster.wait_settled()
    code, text = ballast("plan", "undo", "p-1")
    assert code == 1
    assert "there is nothing to undo" in text


def test_plan_that_there_is_not_is_told_with_those_there_are(ballast: Verb) -> None:
    for action in ("show", "approve", "reject", "undo"):
        code, text = ballast("plan", action, "nosuch")
        assert code == 1
        assert "there is no plan nosuch" in text
        assert " next: `ballast plan list`" in text


def test_every_decision_about_a_plan_is_kept_with_who_answered(cluster: SecureStack) -> None:
    rows = [row for row in cluster.rows("decisions") if row["kind"] == "plan"]
    rows.sort(key=lambda row: row["at_ms"])
    told = [(row["reason"], json.loads(row["inputs"])["plan"]) for row in rows]
    assert [reason for reason, plan in told if plan == "p-1"] == ["Proposed", "Approved", "Done"]
    assert all(
        json.loads(row["inputs"])["answered_by"] for row in rows if row["reason"] == "Approved"
    )


@pytest.mark.long
def test_drained_broker_is_empty_when_the_verb_ends(cluster: SecureStack, say: Say) -> None:
    owners = cluster.owners()
    broker = max(set(owners.values()))
    assert done(say(f"broker drain {broker}"))["status"] == "done"
    assert broker not in cluster.owners().values()
    found = status(say)
    (drain,) = found["drains"]
    assert (drain["broker"], drain["left"], drain["is_done"]) == (broker, 0, True)
    cancelled = done(say(f"broker cancel-drain {broker}"))
    assert status(say)["drains"] == []
    assert f"`ballast plan undo --drain {broker}`" in cancelled["next"]
    proposed = done(say(f"plan undo --drain {broker}"))
    plan = proposed["result"]["plan"]
    assert f"`ballast plan approve {plan}`" in proposed["next"]
    done(say(f"plan approve {plan}"))
    had = {bundle for bundle, owner in owners.items() if owner == broker}

    def is_filled_again() -> bool:
        now = cluster.owners()  # meanwhile balancing may have given it others, too
        return {now.get(bundle) for bundle in had} == {broker}  # none while it moves

    cluster.wait("the broker to be filled again", is_filled_again)


def test_words_that_are_no_move_and_no_undo_are_refused(tmp_path: Path) -> None:
    where = ["--tables", str(tmp_path)]
    assert main(["plan", "propose", "acme/a", *where]) == 2
    assert main(["plan", "undo", *where]) == 2
    assert main(["plan", *where]) == 2


@pytest.fixture(scope="module")
def service(cluster: SecureStack) -> Service:
    """The answers of the whole script; the service itself is gone."""
    cluster.start_lookup("--set", f"ownership.unload_timeout_ms={PATIENCE_MS}")
    service = answered(cluster)
    assert cluster.stop("lookup") == 0
    return service


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
def stack(cluster: SecureStack, service: Service) -> SecureStack:
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
        return LookupClient(str(stack.tables), "local", kafka=stack.address("service"))
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


def test_no_password_is_in_a_log_or_in_the_list_of_processes(stack: SecureStack) -> None:
    logs = [path for path in stack.folder.rglob("*.log") if path.is_file()]
    logs += list(stack.folder.rglob("*.jsonl"))
    shown = "".join(path.read_text(errors="replace") for path in logs) + command_lines()
    assert "-hush-hush" not in shown
    assert "PRIVATE KEY" not in shown


def command_lines() -> str:
    """The command lines of every process that may be seen."""
    processes = psutil.process_iter(["cmdline"])
    return "\n".join(" ".join(each.info["cmdline"] or ()) for each in processes)
