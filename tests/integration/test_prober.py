"""The prober against a real HTTP service and a real table: what it counts as right and wrong."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.adapters.delta.tables import ensure_table
from jobs.adapters.processes.clocks import wall_ms
from jobs.local.prober import EventsHistory, Prober
from lbcore.model.bundles import HashFunction
from lbcore.model.tables import OWNERSHIP_EVENTS
from tests.support.processes.programs import until
from tests.support.tables.lookup_tables import arrow_rows

NS = "public/default"
BUNDLE = f"{NS}/0x00000000_0xffffffff"


def commit(root: Path, *rows: dict[str, Any]) -> None:
    """One commit of ownership_events; what a row doesn't say is empty."""
    table = arrow_rows(OWNERSHIP_EVENTS, rows, cluster="c", namespace=NS, bundle=BUNDLE)
    write_deltalake(str(root / OWNERSHIP_EVENTS.name), table, mode="append")


def owned(version: int, broker: str) -> dict[str, Any]:
    return {"version_id": version, "state": "Owned", "destination": broker, "at_ms": wall_ms()}


@dataclass
class Service:
    """A lookup service that says what the test wants."""

    status: int = 200
    broker: str = "broker-1"
    headers: dict[str, str] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)

    def handler(self) -> type[BaseHTTPRequestHandler]:
        """The class that http.server wants, bound to this object."""
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                service.paths.append(self.path)
                body = b'{"httpUrl": "http://%s:8080"}' % service.broker.encode()
                self.send_response(404 if self.path == "/health" else service.status)
                for name, value in {"X-Ballast-Bundle": BUNDLE, **service.headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler


@pytest.fixture
def service() -> Iterator[tuple[Service, str]]:
    made = Service()
    server = ThreadingHTTPServer(("127.0.0.1", 0), made.handler())
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield made, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    ensure_table(tmp_path, OWNERSHIP_EVENTS)
    commit(tmp_path, owned(1, "broker-1"))
    return tmp_path


def prober(root: Path, url: str) -> Prober:
    functions = {NS: HashFunction.CRC32}
    made = Prober(url, root / OWNERSHIP_EVENTS.name, functions, lookups_per_s=100.0)
    made.start()
    return made


def test_prober_with_the_owner_answered_counts_right_only(
    root: Path, service: tuple[Service, str]
) -> None:
    probing = prober(root, service[1])
    until(lambda: probing.counts().right >= 20)
    report = probing.stop()
    assert report["lookups"]["right"] == report["lookups"]["sent"]
    assert (
        report["lookups"]["wrong"],
        report["lookups"]["pending"],
        report["lookups"]["failures"],
    ) == (0, 0, {})
    asked = [path for path in service[0].paths if path != "/health"]
    assert len(set(asked)) > 10
    assert all(path.startswith("/lookup/v2/topic/persistent/public/default/") for path in asked)


def test_prober_with_another_broker_answered_counts_wrong_and_keeps_examples(
    root: Path, service: tuple[Service, str]
) -> None:
    service[0].broker = "broker-9"
    probing = prober(root, service[1])
    until(lambda: probing.counts().wrong >= 5)
    report = probing.stop()
    assert report["lookups"]["right"] == 0
    assert report["lookups"]["wrong_answers"][0]["broker"] == "broker-9"


def test_prober_with_an_old_answer_goes_by_the_declared_age(
    root: Path, service: tuple[Service, str]
) -> None:
    service[0].headers = {"X-Ballast-Age-Ms": "3600000"}
    probing = prober(root, service[1])
    until(lambda: probing.counts().right >= 5)
    commit(root, owned(2, "broker-2"))
    before = probing.counts()
    until(lambda: probing.counts().right > before.right + 20)
    assert probing.counts().wrong == 0
    service[0].headers = {"X-Ballast-Age-Ms": "0"}
    until(lambda: probing.counts().wrong > 5)
    probing.stop()


def test_prober_tells_unavailable_from_failed(root: Path, service: tuple[Service, str]) -> None:
    service[0].status, service[0].headers = 503, {"Retry-After": "1"}
    probing = prober(root, service[1])
    until(lambda: probing.counts().failed >= 3)  # the bundle has an owner: no reason to wait
    commit(root, {"version_id": 2, "state": "Free", "source": "broker-1", "at_ms": wall_ms()})
    until(lambda: probing.counts().unavailable >= 3)
    service[0].status = 500
    until(lambda: "status 500" in probing.report()["lookups"]["failures"])
    report = probing.stop()
    assert (report["lookups"]["right"], report["lookups"]["wrong"]) == (0, 0)


def test_prober_without_a_service_counts_failed_and_goes_on(root: Path) -> None:
    probing = prober(root, "http://127.0.0.1:9")
    until(lambda: probing.counts().failed >= 3)
    assert probing.stop()["lookups"]["failures"].keys() == {"ConnectionRefusedError"}


def test_prober_measures_from_the_decision_to_the_first_version_that_shows_it(
    root: Path, service: tuple[Service, str]
) -> None:
    version = DeltaTable(str(root / OWNERSHIP_EVENTS.name)).version()
    service[0].headers = {"X-Ballast-Table-Version": str(version), "X-Ballast-Age-Ms": "3600000"}
    probing = prober(root, service[1])
    decided_ms = wall_ms()
    commit(root, {**owned(2, "broker-2"), "at_ms": decided_ms})
    until(lambda: probing.report()["decision_to_lookup_ms"]["unseen"] == 1)
    service[0].headers["X-Ballast-Table-Version"] = str(version + 1)
    until(lambda: probing.report()["decision_to_lookup_ms"]["count"] == 1)
    report = probing.stop()
    assert report["decision_to_lookup_ms"]["unseen"] == 0
    assert 0 < report["decision_to_lookup_ms"]["p50"] < wall_ms() - decided_ms
    assert [(move.bundle, move.broker) for move in probing.owned()] == [
        (BUNDLE, "broker-1"),
        (BUNDLE, "broker-2"),
    ]


def test_events_history_skips_what_only_rewrites_files(root: Path) -> None:
    history = EventsHistory(root / OWNERSHIP_EVENTS.name)
    assert [step.version_id for step in history.poll()[0]] == [1]
    commit(root, owned(2, "broker-2"))
    DeltaTable(str(root / OWNERSHIP_EVENTS.name)).optimize.compact()
    commit(root, owned(3, "broker-3"), owned(4, "broker-4"))
    found, complete_to_ms = history.poll()
    assert [step.version_id for step in found] == [2, 3, 4]
    assert all(step.committed_from_ms <= step.committed_to_ms <= complete_to_ms for step in found)
    assert history.poll()[0] == []
