"""Rows that can not be read: views keep them, watch streams skip them."""

import json
import logging
import queue
import shutil
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.following.watch_follower import WatchAddress, WatchFollower
from jobs.adapters.processes.clocks import boot_ms
from jobs.service.views import TableViews
from lbcore.model.tables import (
    CONFIG_VERSIONS,
    LOAD_HISTORY,
    NAMESPACES,
    POLICIES,
    RECORDS,
    Table,
)
from lbcore.route.snapshot import LookupSnapshot
from tests.support.tables.lookup_tables import BUNDLES, CLUSTER, NAMESPACE, TablesWriter

OTHER = "acme/other"
ALL = f"{OTHER}/0x00000000_0xffffffff"
_LOOKS_S = 20.0


def row(bundle: str, version: int, broker: str, state: str = "Owned") -> dict[str, Any]:
    return {
        "bundle": bundle,
        "state": state,
        "version_id": version,
        "source": "",
        "destination": broker,
    }


def namespace(name: str, hash_function: str = "crc32") -> dict[str, Any]:
    return {"namespace": name, "hash": hash_function, "is_deleted": False}


def broker(name: str, listeners: str = "{}") -> dict[str, Any]:
    texts = ("web_service_url", "web_service_url_tls", "pulsar_service_url")
    urls = dict.fromkeys((*texts, "pulsar_service_url_tls"), f"http://{name}")
    base = {"broker": name, "incarnation": "i", "state": "active"}
    return {**base, **urls, "advertised_listeners": listeners}


class Stub:
    """A service: what it says when asked, and the events that it sends while it is watched."""

    def __init__(self) -> None:
        self.version = 1
        self.bundles = [row(name, 1, "b1") for name in BUNDLES] + [row(ALL, 1, "b2")]
        self.namespaces = [namespace(NAMESPACE), namespace(OTHER)]
        self.brokers = [broker("b1"), broker("b2")]
        self.events: queue.Queue[str] = queue.Queue()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                self.send_response(200)
                self.end_headers()
                if path == "/v1/watch":
                    self.wfile.write(stub.event("start").encode())
                    while text := stub.events.get():
                        self.wfile.write(text.encode())
                else:
                    self.wfile.write(json.dumps(stub.answer(path)).encode())

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, path: str) -> Mapping[str, Any]:
        if path == "/v1/ownership":
            return {"table_version": self.version, "bundles": self.bundles, "next": ""}
        name = path.rpartition("/")[2]
        return {"version": self.version, name: getattr(self, name)}

    def event(self, kind: str) -> str:
        said = {"age_ms": 0, "writer_silent_ms": 0, "table_version": self.version}
        said |= {"namespaces_version": self.version, "brokers_version": self.version}
        return f"event: {kind}\nid: {self.version}\ndata: {json.dumps(said)}\n\n"

    def tell(self, *changes: Mapping[str, Any]) -> None:
        """A commit with these changes, and all is told; the lists are of now."""
        self.version += 1
        for change in changes:
            self.events.put(f"event: change\ndata: {json.dumps(change)}\n\n")
        self.events.put(self.event("alive"))


class Watched:
    """A follower of a stub, running."""

    def __init__(self, stub: Stub) -> None:
        url = f"http://127.0.0.1:{stub.server.server_port}"
        self.stub, self.follower = stub, WatchFollower(WatchAddress(url=url), "c")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.follower.run, args=(self._stop,))
        self._thread.start()
        self.wait()

    def wait(self) -> LookupSnapshot:
        """The snapshot, once the follower is as far as the stub."""
        pause, deadline_ms = threading.Event(), boot_ms() + int(_LOOKS_S * 1_000)
        while True:
            view = self.follower.view
            if view is not None and view.snapshot.position.table_version == self.stub.version:
                return view.snapshot
            assert boot_ms() < deadline_ms, self.follower.counts
            pause.wait(0.01)

    def brokers(self) -> dict[str, str]:
        """Bundle → its broker."""
        found = self.wait().namespaces
        return {route.bundle: route.broker for name in sorted(found) for route in found[name].live}

    def end(self) -> None:
        self._stop.set()
        self.stub.events.put(self.stub.event("alive"))
        self.stub.events.put("")
        self._thread.join(_LOOKS_S)
        assert not self._thread.is_alive()
        self.stub.server.shutdown()
        self.stub.server.server_close()


@pytest.fixture
def stub() -> Stub:
    return Stub()


@pytest.fixture
def watched(stub: Stub) -> Iterator[Watched]:
    running = Watched(stub)
    yield running
    running.end()


BEFORE = {**dict.fromkeys(BUNDLES, "b1"), ALL: "b2"}
UNREADABLE: Mapping[str, Mapping[str, Any]] = {
    "an unknown state": row(BUNDLES[1], 2, "b2", "Frozen"),
    "no version": {name: v for name, v in row(BUNDLES[1], 2, "b2").items() if name != "version_id"},
    "no range": row(f"{NAMESPACE}/0x4", 2, "b2"),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_change_that_cannot_be_read_is_told_and_its_neighbours_are_right(
    what: str, watched: Watched, stub: Stub
) -> None:
    assert watched.brokers() == BEFORE
    stub.tell(row(BUNDLES[0], 2, "b2"), UNREADABLE[what], row(ALL, 2, "b1"))
    assert watched.brokers() == {**BEFORE, BUNDLES[0]: "b2", ALL: "b1"}
    assert str(UNREADABLE[what]["bundle"]) in watched.follower.counts.last_error
    assert "1 rows" in watched.follower.counts.last_error
    stub.tell(row(BUNDLES[1], 3, "b2"))
    assert watched.brokers() == {**BEFORE, **dict.fromkeys(BUNDLES[:2], "b2"), ALL: "b1"}
    if what != "no range":  # of that one nothing newer can come
        assert watched.follower.counts.last_error == ""
    assert sum(watched.follower.counts.reloads.values()) == 1


def test_namespace_and_broker_that_cannot_be_read_stay_as_they_were(
    watched: Watched, stub: Stub
) -> None:
    known = watched.wait()
    stub.namespaces = [namespace(NAMESPACE, "xxh128"), namespace(OTHER, "murmur3_32")]
    stub.brokers = [broker("b1", listeners="{"), broker("b2"), broker("b3")]
    stub.tell(row(ALL, 2, "b3"))
    found = watched.wait()
    assert found.brokers["b1"] == known.brokers["b1"]
    assert {"b2", "b3"} <= found.brokers.keys()
    functions = {name: one.hash_function for name, one in found.namespaces.items()}
    assert functions[NAMESPACE] == known.namespaces[NAMESPACE].hash_function
    assert functions[OTHER] != known.namespaces[OTHER].hash_function
    assert watched.brokers() == {**BEFORE, ALL: "b3"}
    assert "2 rows" in watched.follower.counts.last_error
    stub.namespaces, stub.brokers = [namespace(NAMESPACE), namespace(OTHER)], [broker("b1")]
    stub.tell()
    assert watched.wait().brokers.keys() == {"b1"}
    assert watched.follower.counts.last_error == ""


def test_rows_that_cannot_be_read_at_the_start_leave_the_other_namespaces_served(
    stub: Stub,
) -> None:
    stub.bundles[1] = row(BUNDLES[1], 1, "b1", "Frozen")
    stub.brokers.append(broker("b4", listeners="["))
    watched = Watched(stub)
    try:
        assert watched.brokers() == {ALL: "b2"}
        assert watched.wait().brokers.keys() == {"b1", "b2"}
        assert "2 rows" in watched.follower.counts.last_error
        stub.tell(row(BUNDLES[1], 2, "b1"))
        assert watched.brokers() == BEFORE
    finally:
        watched.end()


def test_what_cannot_be_read_is_told_before_the_view_without_it_is_shown(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def noting(self: WatchFollower, name: str, value: object) -> None:
        if name == "view" and value is not None:
            told.append(self.counts.last_error)
        object.__setattr__(self, name, value)

    monkeypatch.setattr(WatchFollower, "__setattr__", noting, raising=False)
    stub.bundles[1] = row(BUNDLES[1], 1, "b1", "Frozen")
    Watched(stub).end()
    assert "1 rows" in told[0]


POLICY = {"kind": "isolation", "is_set": True, "value": '{"namespaces": []}'}
TENANT = {"record_type": "tenant", "is_deleted": False, "value": '{"admin_roles": ["a"]}'}
NAMED = {"hash": "crc32", "is_deleted": False, "properties": "{}"}
SMALL: dict[str, tuple[Table, str, str, dict[str, Any]]] = {
    "records": (RECORDS, "name", "value", TENANT),
    "policies": (POLICIES, "name", "value", POLICY),
    "namespaces": (NAMESPACES, "namespace", "properties", NAMED),
}


@pytest.mark.parametrize("broken", ["{", "3", "[[[", '"text"'])
@pytest.mark.parametrize("small", SMALL)
def test_a_row_that_cannot_be_read_stays_as_it_was_and_its_neighbours_go_on(
    tmp_path: Path, small: str, broken: str
) -> None:
    table, key, column, row = SMALL[small]
    writer, views = TablesWriter(tmp_path), TableViews(tmp_path, CLUSTER)
    writer.upsert(table, key, [{**row, key: "a"}])
    views.refresh()
    writer.upsert(table, key, [{**row, key: "a", column: broken}, {**row, key: "b"}])
    views.refresh()
    assert {found[key]: found[column] for found in views.rows(table.name)} == {
        "a": row[column],
        "b": row[column],
    }
    assert f"{column} is no JSON" in views.last_error
    confirmed_ms = views.confirmed_ms
    views.refresh()
    assert views.confirmed_ms > confirmed_ms
    started = TableViews(tmp_path, CLUSTER)
    started.refresh()
    assert [found[key] for found in started.rows(table.name)] == ["b"]
    writer.upsert(table, key, [{**row, key: "a"}])
    views.refresh()
    assert views.last_error == ""


def test_settings_that_cannot_be_read_stay_as_they_were(tmp_path: Path) -> None:
    writer, views = TablesWriter(tmp_path), TableViews(tmp_path, CLUSTER)
    for number, settings in enumerate(('{"shedding.enabled": false}', "{")):
        writer.upsert(CONFIG_VERSIONS, "number", [{"number": number, "settings": settings}])
        views.refresh()
        assert views.settings == {"shedding.enabled": False}
    assert "settings is no JSON" in views.last_error


def test_version_is_never_ahead_of_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client gets 304 for the version that it was told, so newer rows would never reach it."""
    table, key, _, row = SMALL["namespaces"]
    writer, views = TablesWriter(tmp_path), TableViews(tmp_path, CLUSTER)
    writer.upsert(table, key, [{**row, key: "a"}])
    views.refresh()
    before = views.version(table.name)
    writer.upsert(table, key, [{**row, key: "b"}])
    during: list[int] = []

    def fail(*_: object) -> None:
        during.append(views.version(table.name))
        raise OSError("away")

    with monkeypatch.context() as patched:
        patched.setattr("jobs.service.views.scan", fail)
        views.refresh()
    assert [*during, views.version(table.name)] == [before, before]
    assert len(views.rows(table.name)) == 1
    views.refresh()
    assert views.version(table.name) == before + 1
    assert len(views.rows(table.name)) == 2


def test_two_vanished_tables_stay_unread_and_are_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    TablesWriter(tmp_path)
    views = TableViews(tmp_path, CLUSTER)
    views.refresh()
    confirmed_ms = views.confirmed_ms
    for table in (NAMESPACES, LOAD_HISTORY):
        shutil.move(tmp_path / table.name, tmp_path / f"{table.name}-moved")
    with caplog.at_level(logging.WARNING, "jobs.service.views"):
        for _ in range(3):
            views.refresh()
            assert views.confirmed_ms == confirmed_ms
    assert [record.message for record in caplog.records] == ["views_not_refreshed"]
    assert NAMESPACES.name in views.last_error
    assert LOAD_HISTORY.name in views.last_error
    for table in (NAMESPACES, LOAD_HISTORY):
        shutil.move(tmp_path / f"{table.name}-moved", tmp_path / table.name)
    views.refresh()
    assert views.last_error == ""
    assert views.confirmed_ms > confirmed_ms
