"""`ballast assess` on recorded answers over real HTTP and on Prometheus data."""

import argparse
import json
import re
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest

from jobs.adapters.delta.recordings import read_history
from jobs.adapters.processes.settings import load_settings
from jobs.assess.page import lines, page
from jobs.bridge.admin_address import AdminAddress
from jobs.bridge.collector import Collector, PollOptions
from jobs.bridge.pulsar_admin import PulsarAdmin
from jobs.cli import main
from jobs.console import CommandError, MisuseError
from jobs.operating.backtesting import PROMETHEUS_OPTIONS, write_trace
from lbcore.assess.loads import Loads, hottest_bundles, loads_of
from lbcore.assess.owner_changes import (
    EITHER,
    PERSON,
    SHEDDER,
    Observer,
    sheds_of,
    who_moved,
)
from lbcore.assess.prometheus import UNLOADS, PrometheusFold, broker_of, increase
from lbcore.assess.report import Report
from lbcore.assess.risks import broker_risks, few_bundles, unrelievable
from lbcore.bridge.mirror import Look
from lbcore.model.bundles import even_boundaries
from lbcore.wire.messages import Message
from tests.support import Capsys
from tests.support.admin.fake_pulsar import (
    BUNDLES,
    CLUSTER,
    HOT_COUNT,
    REPORT_PATH,
    RUNTIME_PATH,
    FakePulsar,
    broker_list,
    fronted_brokers,
    recorded_cluster,
    set_loads,
)
from tests.support.worlds.world import CLUSTER as WORLD
from tests.support.worlds.world import World

QUICK = ("--for", "2s", "--look-ms", "100", "--load-ms", "100", "--timeout-s", "1")
MINUTES = 8


@pytest.fixture
def fake() -> Iterator[FakePulsar]:
    with recorded_cluster() as running:
        yield running


def assess(fake: FakePulsar, tmp_path: Path, capsys: Capsys, *more: str) -> tuple[int, Any, str]:
    words = ["assess", fake.url, *QUICK, "--html", str(tmp_path / "page.html"), "--json", *more]
    code = main(words)
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else None, err


def looked(fake: FakePulsar) -> list[tuple[Look, list[Message]]]:
    """What the bridge's collector read of the recorded cluster, look after look."""
    admin = PulsarAdmin(AdminAddress(url=fake.url, timeout_s=2.0))
    sent: list[Message] = []
    polling = PollOptions(look_ms=2_000, load_ms=1)
    found = []
    collector = Collector(admin, (WORLD, CLUSTER), load_settings(("pulsar",)), polling, sent.append)
    for number in range(MINUTES):
        set_loads(fake, number)
        look = collector.look()
        while len(sent) < 2 * 2:  # a report and its bundles of each of two brokers
            time.sleep(0.01)
        found.append((look, sent[:]))
        sent.clear()
    collector.close()
    return found


def test_process_without_kafka_and_spark_decides_as_the_job_does(fake: FakePulsar) -> None:
    config = load_settings(("pulsar",))
    world, observer = World(config, brokers=0), Observer(config, WORLD)
    start_ms = 1_800_000_000_000
    step_ms = config.pipeline.shed_interval_ms
    for number, (look, messages) in enumerate(looked(fake)):
        for at_ms in range(0, step_ms, 10_000):
            world.now_ms = start_ms + number * step_ms + at_ms
            heard = messages if at_ms == 0 else []
            commands = observer.take(world.now_ms, heard, look)
            for message in (*heard, *commands):
                world.append(message)
            world.step_job()
    moved = [row for row in observer.rows["decisions"] if row["bundle"]]
    assert moved
    assert observer.rows["decisions"] == world.decisions
    assert observer.rows["load_history"] == world.other_rows["load_history"]


def test_report_has_load_moves_settings_and_what_would_be_done(
    fake: FakePulsar, tmp_path: Path, capsys: Capsys
) -> None:
    fake.put("/admin/v2/tenants", ["acme", "gone", "pulsar"])  # it vanishes between two questions
    fake.put("/admin/v2/namespaces/gone", {"reason": "Tenant does not exist"}, 404)
    code, report, noted = assess(fake, tmp_path, capsys, "--set", "pipeline.trigger_ms=1000")
    assert (code, report["unread"]) == (0, {})
    assert {method for method, _ in fake.requests} == {"GET"}
    assert not [path for _, path in fake.requests if path.startswith("/lookup")]
    assert report["loads"]["bundles"] == {
        fake.broker(0): HOT_COUNT,
        fake.broker(1): len(BUNDLES) - HOT_COUNT,
    }
    assert report["loads"]["imbalance"][-1] == pytest.approx(1.5, abs=0.01)
    assert report["loads"]["floor"][-1] == 1.0
    assert report["bundles"][0]["broker"] == fake.broker(0)
    keys = {harm["key"] for harm in report["harms"]}
    assert {"loadBalancerSheddingEnabled", "loadBalancerHistoryResourcePercentage"} <= keys
    decided = report["foresight"]["decisions"]
    first = (decided[0]["source"], decided[0]["destination"])
    assert first == (fake.broker(0), fake.broker(1))
    assert "first picture after" in noted


def test_page_needs_nothing_from_elsewhere_and_escapes_what_it_shows(
    fake: FakePulsar, tmp_path: Path, capsys: Capsys
) -> None:
    settings = {"loadBalancerLoadSheddingStrategy": "<script>alert(1)</script>.OverloadShedder"}
    fake.put(RUNTIME_PATH, settings)
    assess(fake, tmp_path, capsys)
    page = (tmp_path / "page.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert not re.search(r"(src|href)=|@import|url\(", page)
    assert page.count("<svg") >= 2


def test_bundle_that_goes_elsewhere_is_told_with_who_moved_it(
    fake: FakePulsar, tmp_path: Path, capsys: Capsys
) -> None:
    asked = {"count": 0}
    first = fake.answers.get

    def later(path: str, default: Any = None) -> Any:
        asked["count"] += "ownedNamespaces" in path
        if asked["count"] == 14:
            fake.own({0: BUNDLES[1:HOT_COUNT], 1: [*BUNDLES[HOT_COUNT:], BUNDLES[0]]})
        return first(path, default)

    fake.answers = _Watched(fake.answers, later)
    _, report, _ = assess(fake, tmp_path, capsys)
    moved = {move["bundle"]: move for move in report["moves"]}
    assert moved[BUNDLES[0]]["destination"] == fake.broker(1)
    assert moved[BUNDLES[0]]["who"] == "a person or a tool"


class _Watched(dict[str, Any]):
    """Answers that may change while they are asked for."""

    def __init__(self, answers: dict[str, Any], get: Any) -> None:
        super().__init__(answers)
        self._later = get
        self._first = answers

    def get(self, path: str, default: Any = None) -> Any:
        return self._later(path, default)

    def __setitem__(self, path: str, value: Any) -> None:
        self._first[path] = value


def test_broker_that_answers_rubbish_is_a_risk_and_the_rest_is_reported(
    fake: FakePulsar, tmp_path: Path, capsys: Capsys
) -> None:
    fake.put(f"{fake.ports[1]}{REPORT_PATH}", b"<html>bad gateway</html>")
    code, report, noted = assess(fake, tmp_path, capsys)
    assert code == 1
    assert "risks may be missing" in noted
    assert f"load of {fake.broker(1)}" in report["unread"]
    silent = [risk for risk in report["risks"] if risk["kind"] == "silent_broker"]
    assert [risk["subject"] for risk in silent] == [fake.broker(1)]
    assert list(report["loads"]["bundles"]) == [fake.broker(0)]


def test_settings_that_may_not_be_read_are_said_to_be_unknown(
    fake: FakePulsar, tmp_path: Path, capsys: Capsys
) -> None:
    fake.put(RUNTIME_PATH, {"reason": "This operation requires super-user access"}, 401)
    code, report, _ = assess(fake, tmp_path, capsys)
    assert (code, report["harms"]) == (1, [])
    assert {f"settings of {fake.broker(number)}" for number in (0, 1)} == set(report["unread"])
    assert any("super user" in one for one in report["notes"])


def test_cluster_of_no_broker_is_an_error(fake: FakePulsar, tmp_path: Path, capsys: Capsys) -> None:
    broker_list(fake, [])
    code, _, noted = assess(fake, tmp_path, capsys)
    assert code == 1
    assert "has no active broker" in noted
    assert not (tmp_path / "page.html").exists()


def test_plain_server_behind_https_is_told_as_a_failed_connection(
    fake: FakePulsar, tmp_path: Path, capsys: Capsys
) -> None:
    page: Sequence[str] = ("--html", str(tmp_path / "page.html"))
    assert main(["assess", fake.url.replace("http:", "https:"), *QUICK, *page]) == 1
    assert "no protected connection" in capsys.readouterr().err


def test_floor_is_what_whole_bundles_allow() -> None:
    rows = [row_of("a", [25.0, 5.0]), row_of("b", [10.0]), row_of("c", [20.0])]
    found = loads_of(rows)
    assert found.imbalance == (1.5,)
    assert found.floor[0] == pytest.approx(1.25)


def test_imbalance_floor_and_hot_bundles_are_judged_by_isolation_group() -> None:
    """Two idle brokers beside a busy group hide no hot bundle and make nobody uneven."""
    even = {"a": [20.0, 20.0], "b": [40.0], "c": [2.0], "d": [1.0, 1.0]}
    rows = [row_of(name, rates, "a" if name < "c" else "c") for name, rates in even.items()]
    found = loads_of([*rows, row_of("draining", [90.0])])
    assert (found.imbalance, found.floor) == ((1.0,), (1.0,))
    assert found.group_of("b") == ("a", "b")
    assert unrelievable(found, hottest_bundles(rows), ()) == []
    even["d"] = [1.5, 1.0]
    rows = [row_of(name, rates, "a" if name < "c" else "c") for name, rates in even.items()]
    hot = row_of("a", [70.0, 1.0], "a"), *rows[1:]
    assert loads_of(hot).imbalance[0] == pytest.approx(71.0 / 55.5)
    (risk,) = unrelievable(loads_of(hot), hottest_bundles(hot), ())
    assert (risk.subject, risk.text[:35]) == ("acme/ns/a0", "70 msg/s is 1.3 times the mean brok")


def test_brokers_that_are_gone_count_no_bundles_and_lower_no_mean() -> None:
    """Of a recording of weeks most are: each start of a pod has an address of its own."""
    taken_over = {"bundles": ["acme/ns/x0", "acme/ns/x1"]}
    gone = [row_of(f"gone-{number}", [5.0, 4.0]) | taken_over for number in range(8)]
    there = [row_of("a", [5.0]), row_of("b", [4.0])]
    now = [
        row | {"minute_ms": 60_000, "bundles": [f"acme/ns/x{at}"]} for at, row in enumerate(there)
    ]
    found, hot = loads_of([*gone, *now]), hottest_bundles([*gone, *now])
    assert {name: count for name, count in found.bundles.items() if count} == {"a": 1, "b": 1}
    assert [(one.bundle, one.broker) for one in hot] == [("acme/ns/x0", "a"), ("acme/ns/x1", "b")]
    assert [risk.text[:33] for risk in unrelievable(found, hot, ())] == [
        "5 msg/s is 1.1 times the mean bro"
    ]


@pytest.mark.parametrize("rates", [[0.0, 0.0], []], ids=["idle", "empty"])
def test_group_without_load_divides_by_no_zero(rates: list[float]) -> None:
    rows = [row_of("a", [9.0], "a"), row_of("b", [3.0], "a"), row_of("c", rates, "c")]
    found = loads_of([*rows, row_of("d", rates, "c")])
    assert found.imbalance == (1.5,)
    assert [risk.subject for risk in unrelievable(found, hottest_bundles(rows), ())] == [
        "acme/ns/a0"
    ]
    idle = loads_of(rows[2:])
    assert (idle.imbalance, idle.floor) == ((None,), (None,))


def row_of(broker: str, rates: Sequence[float], group: str = "") -> dict[str, Any]:
    return {
        "broker_group": group,
        "broker": broker,
        "minute_ms": 0,
        "percent": [1.0] * 5,
        "bundles": [f"acme/ns/{broker}{at}" for at in range(len(rates))],
        "msg_rate_in": list(rates),
        "msg_rate_out": [0.0] * len(rates),
        "msg_throughput_in": list(rates),
        "msg_throughput_out": [0.0] * len(rates),
        "topics": [2.0] * len(rates),
    }


def test_bundles_are_too_few_for_the_brokers_that_may_take_them_alone() -> None:
    edges = (0, 1 << 30, 1 << 31, 1 << 32)
    namespaces = {"acme/reserved": edges, "acme/shared": edges, "acme/new": edges}
    found = few_bundles(namespaces, {"acme/reserved": 2, "acme/shared": 6})
    assert [(risk.subject, risk.text) for risk in found] == [
        ("acme/shared", "it has 3 bundles for 6 brokers: some get none of it")
    ]


BAD = "acme/bad"


def test_one_namespace_that_can_not_be_read_is_named_and_blinds_to_no_other(
    fake: FakePulsar, tmp_path: Path, capsys: Capsys
) -> None:
    fake.put("/admin/v2/namespaces/acme", ["acme/ns", BAD])
    fake.put(f"/admin/v2/namespaces/{BAD}/bundles", {"reason": "no"}, 500)
    code, report, noted = assess(fake, tmp_path, capsys)
    assert code == 1
    assert list(report["unread"]) == [f"namespace {BAD}"]
    assert f"namespace {BAD}" in noted
    assert report["loads"]["imbalance"][-1] == pytest.approx(1.5, abs=0.01)
    assert f"namespace {BAD}" in {one["subject"] for one in report["risks"]}
    assert f"namespace {BAD}" in (tmp_path / "page.html").read_text()


def test_part_that_can_not_be_read_is_named_and_ends_with_1(
    fake: FakePulsar, tmp_path: Path, capsys: Capsys
) -> None:
    unread = {
        "/admin/v2/namespaces/other": "tenant other",
        f"/admin/v2/clusters/{CLUSTER}/namespaceIsolationPolicies": "isolation policies",
        f"/admin/v2/clusters/{CLUSTER}/failureDomains": "failure domains",
        "/admin/v2/namespaces/acme/ns/antiAffinity": "anti-affinity group of acme/ns",
    }
    fake.put("/admin/v2/tenants", ["acme", "other", "pulsar"])
    for path in unread:
        fake.put(path, {"reason": "no"}, 500)
    code, report, noted = assess(fake, tmp_path, capsys)
    assert code == 1
    assert report["unread"].keys() >= set(unread.values())
    assert "not all could be read" in noted
    fake.put("/admin/v2/tenants", {"reason": "no"}, 500)
    code, report, _ = assess(fake, tmp_path, capsys)
    assert (code, "tenants" in report["unread"]) == (1, True)


def test_odd_field_of_a_load_report_is_named_and_the_load_is_known(
    fake: FakePulsar, tmp_path: Path, capsys: Capsys
) -> None:
    path = f"{fake.ports[1]}{REPORT_PATH}"
    report = json.loads(fake.answers[path][1])
    odd = {**report, "memory": {"usage": "NaN", "limit": 100.0}, "msgRateOut": -0.0016}
    fake.put(path, odd)
    code, found, _ = assess(fake, tmp_path, capsys)
    assert code == 0
    assert found["unreported"].keys() == {fake.broker(1)}
    assert found["unreported"][fake.broker(1)].keys() == {"memory", "msgRateOut"}
    assert any("memory.usage must be a number" in one for one in found["notes"])
    assert found["loads"]["imbalance"][-1] == pytest.approx(1.5, abs=0.01)


def test_manager_that_measures_nothing_is_named_and_no_risk_is_not_said(
    fake: FakePulsar, tmp_path: Path, capsys: Capsys
) -> None:
    for port in fake.ports:
        fake.put(f"{port}{REPORT_PATH}", b"", 204)
    code, report, _ = assess(fake, tmp_path, capsys)
    assert code == 1
    reasons = [risk["text"] for risk in report["risks"] if risk["kind"] == "silent_broker"]
    assert len(reasons) == 2
    assert all("NoopLoadManager" in one for one in reasons)


def test_proxy_before_brokers_that_can_not_be_reached_is_refused_with_what_to_give(
    tmp_path: Path, capsys: Capsys
) -> None:
    with fronted_brokers(is_reachable=False) as front:
        words = ["assess", front.url, *QUICK, "--html", str(tmp_path / "page.html"), "--json"]
        assert main(words) == 1
        told = json.loads(capsys.readouterr().err)
        assert "can't be told from each other" in told["error"]
        assert "--broker-url BROKER=URL" in told["next"]
        for number, url in enumerate(front.addresses):
            words += ["--broker-url", f"{front.names[number]}={url}"]
        assert main(words) == 0
        report = json.loads(capsys.readouterr().out)
        assert set(report["loads"]["brokers"]) == set(front.names)


NAMES = {"namespace": "acme/orders", "topic": "persistent://acme/orders/t1", "instance": "b1:8080"}
HOUR_MS = 3_600_000


class Answers(BaseHTTPRequestHandler):
    """Answers as a test tells; of which series, by name.

    is_on_grid: only the samples at the instants that are asked for.
    """

    status, kind, body = 200, "application/json", b""
    is_on_grid = False
    series: ClassVar[dict[str, list[Any]]] = {}
    seen: ClassVar[list[Any]] = []

    def do_GET(self) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        query = asked["query"][0]
        self.seen.append((self.path, self.headers.get("Authorization")))
        result = self.series.get(query.partition("{")[0], [])
        if self.is_on_grid:
            first, last, step = (int(float(asked[name][0])) for name in ("start", "end", "step"))
            instants = range(first, last + 1, step)
            result = [
                {**one, "values": [pair for pair in one["values"] if pair[0] in instants]}
                for one in result
            ]
        found = {"data": {"result": result}}
        self.send_response(self.status)
        self.send_header("Content-Type", self.kind)
        self.end_headers()
        self.wfile.write(self.body or json.dumps(found).encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[str, type[Answers]]]:
    handler = type("Handler", (Answers,), {"seen": [], "series": {}})
    running = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=running.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{running.server_address[1]}/prometheus", handler
    running.shutdown()


def options(url: str, folder: Path, *more: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    PROMETHEUS_OPTIONS(parser)
    trace = str(folder / "trace.parquet")
    return parser.parse_args(["--prometheus", url, "--trace", trace, *more])


def test_topics_of_a_bundle_add_up_and_brokers_come_and_go() -> None:
    fold = PrometheusFold(edges_of=lambda _: even_boundaries(1))
    other = NAMES | {"topic": "persistent://acme/orders/t2"}
    for name in ("pulsar_rate_in", "pulsar_rate_out"):
        fold.take({"__name__": name, **NAMES}, [(0, 10.0), (60, 20.0)])
        fold.take({"__name__": name, **other}, [(0, 1.0), (60, float("nan"))])
    late = NAMES | {"instance": "b2:8080"}
    fold.take({"__name__": "pulsar_rate_in", **late}, [(120, 5.0)])
    rows = [(row["minute_ms"], row["broker"], row["msg_rate_in"]) for row in fold.history_rows("c")]
    assert rows == [(0, "b1:8080", [11.0]), (60, "b1:8080", [20.0]), (120, "b2:8080", [5.0])]


def test_labels_of_bundles_and_of_pods_are_used() -> None:
    fold = PrometheusFold(edges_of=lambda _: even_boundaries(4))
    labels = {"namespace": "acme/orders", "bundle": "0x00000000_0x80000000", "pod": "broker-1"}
    fold.take({"__name__": "pulsar_rate_in", **labels}, [(0, 1.0)])
    fold.take({"__name__": "pulsar_rate_in", **NAMES, "namespace": "pulsar/system"}, [(0, 1.0)])
    (row,) = fold.history_rows("c")
    assert (row["broker"], row["bundles"]) == ("broker-1", ["acme/orders/0x00000000_0x80000000"])
    assert (fold.skipped, broker_of({})) == (1, "")


def test_counter_that_was_reset_begins_at_zero() -> None:
    assert increase([(0, 5.0), (1, 7.0), (2, 1.0), (3, 4.0)]) == 6.0


def test_counters_of_one_broker_are_counted_apart() -> None:
    fold = PrometheusFold(edges_of=lambda _: even_boundaries(1))
    for job, first in (("one", 0.0), ("two", 100.0)):
        labels = {"__name__": UNLOADS, "job": job, **NAMES}
        fold.take(labels, [(at, first + at) for at in range(3)])
    assert fold.unloads() == 4.0
    assert sorted(last for ((_, last),) in fold.last_counted().values()) == [2.0, 102.0]


def test_sample_of_a_counter_that_is_no_number_is_left_out() -> None:
    fold = PrometheusFold(edges_of=lambda _: even_boundaries(1))
    samples = [(0, 5.0), (1, float("nan")), (2, 7.0)]
    fold.take({"__name__": UNLOADS, **NAMES}, samples)
    assert fold.unloads() == 2.0


def test_trace_is_read_a_day_at_a_time_and_can_be_replayed(
    server: tuple[str, type[Answers]], tmp_path: Path
) -> None:
    url, handler = server
    handler.series = {"pulsar_rate_in": [{"metric": NAMES, "values": [[3_600, "4"]]}]}
    secret = tmp_path / "auth"
    secret.write_text("me:word\n")
    args = options(url, tmp_path, "--since", "3d", "--prometheus-auth-file", str(secret))
    found = write_trace(args, now_ms=72 * HOUR_MS)
    assert len({path for path, _ in handler.seen}) == 3 * 10
    assert {word for _, word in handler.seen} == {"Basic bWU6d29yZA=="}
    assert found.rows == len(read_history(found.path)) == 3


def test_days_of_a_trace_keep_one_grid_and_count_unloads_between_them(
    server: tuple[str, type[Answers]], tmp_path: Path
) -> None:
    url, handler = server
    at_s = [minute * 60 for minute in range(0, 7 * 1_440, 28)]
    counter = [[at, str(number)] for number, at in enumerate(at_s)]
    handler.series = {
        "pulsar_rate_in": [{"metric": NAMES, "values": [[at, "4"] for at in at_s]}],
        UNLOADS: [{"metric": NAMES, "values": counter}],
    }
    handler.is_on_grid = True
    found = write_trace(options(url, tmp_path, "--since", "7d"), now_ms=7 * 24 * HOUR_MS)
    assert found.rows == len(at_s)
    assert found.unloads == len(at_s) - 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((200, "text/html", b"<html>Sign in</html>"), "does not answer as Prometheus"),
        ((302, "text/html", b""), "does not answer as Prometheus"),
        ((401, "text/plain", b""), "does not let us in"),
        ((200, "application/json", b"{}"), "does not answer as Prometheus"),
        ((200, "application/json", b'{"data": {"result": []}}'), "has no load"),
    ],
)
def test_answers_that_are_none_are_named(
    answer: tuple[int, str, bytes], said: str, server: tuple[str, type[Answers]], tmp_path: Path
) -> None:
    url, handler = server
    handler.status, handler.kind, handler.body = answer
    with pytest.raises(CommandError, match=said):
        write_trace(options(url, tmp_path, "--since", "1h"), now_ms=HOUR_MS)
    assert list(tmp_path.iterdir()) == []


def test_several_clusters_must_be_told_apart(
    server: tuple[str, type[Answers]], tmp_path: Path
) -> None:
    url, handler = server
    handler.series = {
        "pulsar_rate_in": [
            {"metric": {**NAMES, "cluster": name}, "values": [[0, "1"]]} for name in ("a", "b")
        ]
    }
    with pytest.raises(MisuseError, match="several clusters"):
        write_trace(options(url, tmp_path, "--since", "1h"), now_ms=HOUR_MS)


def load_of(namespace: str, broker: str, values: list[tuple[int, float]]) -> dict[str, Any]:
    """A series of a topic's rate, as Prometheus answers."""
    labels = {
        "namespace": namespace,
        "topic": f"persistent://{namespace}/{broker}",
        "instance": broker,
    }
    return {"metric": labels, "values": [[at_s, str(value)] for at_s, value in values]}


def test_boundaries_that_are_known_are_used_and_asked_for_once(
    server: tuple[str, type[Answers]], tmp_path: Path
) -> None:
    url, handler = server
    handler.series = {"pulsar_rate_in": [load_of("acme/orders", "b1:8080", [(3_600, 4.0)])]}
    asked: list[str] = []

    def edges_of(namespace: str) -> tuple[int, ...]:
        asked.append(namespace)
        return (0, 0xFFFFFFFE, 0xFFFFFFFF)

    write_trace(options(url, tmp_path, "--since", "3d"), now_ms=72 * HOUR_MS, edges_of=edges_of)
    (row, *_) = read_history(tmp_path / "trace.parquet")
    assert row["bundles"] == ["acme/orders/0x00000000_0xfffffffe"]
    assert asked == ["acme/orders"]


def test_month_of_prometheus_is_assessed_with_a_page(
    server: tuple[str, type[Answers]], tmp_path: Path
) -> None:
    url, handler = server
    times = range(2 * 3_600, 24 * 3_600, 2 * 3_600)
    handler.series = {
        "pulsar_rate_in": [
            load_of("acme/orders", f"b{number}:8080", [(at_s, 900.0 / number) for at_s in times])
            for number in (1, 2, 3)
        ],
        "pulsar_lb_unload_bundle_total": [
            {"metric": {"instance": "b1:8080"}, "values": [[0, "5"], [7_200, "7"], [14_400, "1"]]}
        ],
    }
    drawn, trace = tmp_path / "page.html", tmp_path / "trace.parquet"
    words = [
        "--prometheus",
        url,
        "--since",
        "1d",
        "--step",
        "2h",
        "--strategy",
        "none,extensible,ballast",
    ]
    files = ["--html", str(drawn), "--trace", str(trace)]
    assert main(["assess", *words, *files, "--workers", "1"]) == 0
    content = drawn.read_text()
    assert "unloaded 3 bundles" in content
    for word in ("recorded", "none", "extensible", "ballast", "above 1.2", "b3:8080"):
        assert word in content
    assert "http://" not in content.replace(url, "")


def report(*strategies: str) -> Report:
    """Of two brokers, one of which has all load, and what strategies would have made of it."""
    loads = Loads(
        times_ms=(1_000,),
        brokers=("a:8080", "b:8080"),
        percent={"a:8080": (90.0,), "b:8080": (80.0,)},
        msg_rates={"a:8080": (100.0,), "b:8080": (0.0,)},
        bundles={"a:8080": 2, "b:8080": 0},
        imbalance=(2.0,),
        floor=(1.0,),
    )
    return Report(
        cluster="c", url="http://a:8080", from_ms=0, to_ms=60_000, loads=loads, bundles=(),
        topics=(), moves=(), harms=(), risks=(), decisions=0, foresight=None, versions={},
        bundle_count=2,
        strategies=[{"strategy": name, "imbalance.p50": 1.1} for name in strategies],
    )  # fmt: skip


def test_imbalance_of_strategies_is_told_from_that_of_message_rates() -> None:
    told = report("recorded", "ballast")
    for text in ("\n".join(lines(told)), page(told)):
        assert "of msg/s" in text
        assert "imbalance here is of usage, with what brokers use without load" in text
    for text in ("\n".join(lines(report())), page(report())):
        assert "of usage" not in text


def test_unloads_by_admins_are_no_sheds() -> None:
    page = """
pulsar_lb_unload_bundle_total{metric="bundleUnloading"} 5
pulsar_lb_unload_broker_breakdown_total{reason="Admin"} 2
pulsar_lb_unload_broker_breakdown_total{reason="Overloaded"} 3
pulsar_lb_unload_bundle_total{metric="bundleUnloading"} -7
"""
    assert sheds_of(page) == 3.0
    assert sheds_of("") == 0.0


@pytest.mark.parametrize(
    ("before", "after", "who"),
    [
        ({"a": 7, "b": 0}, {"a": 7, "b": 0}, PERSON),
        ({"a": 7, "b": 0}, {"a": 9, "b": 0}, SHEDDER),
        ({"a": 7, "b": 0}, {"a": 8, "b": 0}, EITHER),
        ({"a": 7, "b": 0}, {"a": 0, "b": 2}, SHEDDER),  # a has restarted, b leads and sheds
        ({"a": 7, "b": 0}, {"a": 0, "b": 0}, EITHER),
        ({"b": 0}, {"a": 7, "b": 0}, EITHER),  # a was read the second time only
        ({"a": 7, "b": 0}, {"b": 0}, EITHER),
        ({}, {}, EITHER),
    ],
)
def test_mover_is_named_only_where_the_counters_tell(
    before: dict[str, int], after: dict[str, int], who: str
) -> None:
    assert who_moved(2, before, after, is_shedding=True) == who


def test_brokers_of_several_versions_and_a_lone_broker_are_risks() -> None:
    kinds = [
        {one.kind for one in broker_risks(brokers, {}, versions)}
        for brokers, versions in (
            (["a", "b"], {"a": "4.0.8", "b": "4.0.8"}),
            (["a", "b"], {"a": "4.0.8", "b": "4.2.4"}),
            (["a"], {"a": "4.0.8"}),
        )
    ]
    assert kinds == [set(), {"mixed_versions"}, {"one_broker"}]
