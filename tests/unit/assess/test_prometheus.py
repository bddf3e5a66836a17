"""Load out of Prometheus: series folded to rows, and answers that are none."""

import argparse
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest

from jobs.adapters.delta.recordings import read_history
from jobs.console import CommandError, MisuseError, add_json_option
from jobs.operating.prometheus import add_prometheus_arguments, write_trace
from jobs.verbs import assess
from lbcore.assess.prometheus import PrometheusFold, broker_of, increase
from lbcore.model.bundles import even_boundaries

NAMES = {"namespace": "acme/orders", "topic": "persistent://acme/orders/t1", "instance": "b1:8080"}
HOUR_MS = 3_600_000


class Answers(BaseHTTPRequestHandler):
    """Answers as a test tells; of which series, by name."""

    status, kind, body = 200, "application/json", b""
    series: ClassVar[dict[str, list[Any]]] = {}
    seen: ClassVar[list[Any]] = []

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)["query"][0]
        self.seen.append((self.path, self.headers.get("Authorization")))
        found = {"data": {"result": self.series.get(query.partition("{")[0], [])}}
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
    add_prometheus_arguments(parser)
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
    parser = argparse.ArgumentParser()
    add_json_option(parser)
    assess.add_arguments(parser)
    page, trace = tmp_path / "page.html", tmp_path / "trace.parquet"
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
    args = parser.parse_args([*words, "--html", str(page), "--trace", str(trace), "--workers", "1"])
    assert assess.run(args) == 0
    content = page.read_text()
    assert "unloaded 3 bundles" in content
    for word in ("recorded", "none", "extensible", "ballast", "above 1.2", "b3:8080"):
        assert word in content
    assert "http://" not in content.replace(url, "")
