"""Lookups in process that follow a service's watch stream, over real sockets."""

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobs.adapters.delta.table_log import ReloadReason
from jobs.adapters.following.delta_follower import DeltaFollower
from jobs.adapters.following.watch_follower import WatchAddress, WatchFollower
from jobs.lookup_client import LookupClient
from lbcore.route.snapshot import LookupOutcome, LookupSnapshot
from tests.support.processes.lookup_service import LookupService
from tests.support.processes.programs import until
from tests.support.tables.lookup_tables import (
    BROKER_NAMES,
    BUNDLES,
    CLUSTER,
    NAMESPACE,
    TOPIC,
    Row,
    TablesWriter,
    bundles_of,
    move,
    owned,
)
from tests.support.values.tokens import SECRET, token


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("watched") / "tables"


@pytest.fixture(scope="module")
def writer(tables: Path) -> TablesWriter:
    made = TablesWriter(tables)
    made.namespaces({NAMESPACE: "crc32", "acme/gone": "murmur3_32"})
    made.brokers(*BROKER_NAMES)
    made.batch([*owned(NAMESPACE, 4, BROKER_NAMES), *owned("acme/gone", 2_500, BROKER_NAMES)])
    return made


@pytest.fixture(scope="module")
def service(tables: Path, writer: TablesWriter) -> Iterator[LookupService]:
    assert writer.batch_id == 0
    running = start(tables)
    running.wait_ready()
    yield running
    running.stop(signal.SIGKILL)


def start(tables: Path, *words: str) -> LookupService:
    settings = ("lookup.authentication=token", "lookup.token_audience=ballast")
    given = [word for setting in settings for word in ("--set", setting)]
    secret = {"BALLAST_TOKEN_SECRET": SECRET}
    return LookupService(tables, "--poll-ms", "20", *given, *words, environment=secret)


def address(service: LookupService) -> WatchAddress:
    return WatchAddress(
        url=f"http://127.0.0.1:{service.port}",
        token=lambda: token(SECRET, "HS256", roles=["viewer"]),
    )


def wait(is_reached: Callable[[], bool], client: LookupClient) -> None:
    until(is_reached, 20, lambda: client.last_error)


def content(snapshot: LookupSnapshot) -> dict[str, object]:
    return {"brokers": snapshot.brokers, "hash_indexes": snapshot.hash_indexes}


def loaded(tables: Path) -> LookupSnapshot:
    follower = DeltaFollower(tables, CLUSTER)
    follower.poll()
    assert follower.view is not None
    return follower.view.snapshot


def test_client_that_is_not_let_in_says_why_without_the_token(service: LookupService) -> None:
    text = token(SECRET, "HS256", roles=["viewer:other"])
    source = WatchAddress(url=f"http://127.0.0.1:{service.port}", token=lambda: text)
    with LookupClient(source, CLUSTER) as client:
        wait(lambda: "403" in client.last_error, client)
        assert not client.wait_ready(1)
        assert text not in client.last_error
        assert text not in repr(source)
    assert TOPIC not in client.last_error


def test_client_that_watches_answers_as_one_that_reads_the_tables(
    tables: Path, writer: TablesWriter, service: LookupService
) -> None:
    with LookupClient(address(service), CLUSTER) as client:
        assert client.wait_ready(20_000), client.last_error
        assert content(client.snapshot) == content(loaded(tables))
        version = writer.batch([move(BUNDLES[0], 2, "b9")])
        wait(lambda: client.freshness.table_version >= version, client)
        wait(lambda: content(client.snapshot) == content(loaded(tables)), client)
        writer.namespaces({"acme/gone": "murmur3_32"}, deleted=["acme/gone"])
        writer.namespaces({"acme/new": "murmur3_32"})
        writer.brokers("b9")
        left, right = bundles_of(NAMESPACE, 8)[:2]
        writer.batch(
            [
                Row(bundle=BUNDLES[0], version=3, state="Deleted"),
                Row(bundle=left, version=1, destination="b9"),
                Row(bundle=right, version=1, destination="b9"),
                *owned("acme/new", 4, ["b9"]),
            ]
        )
        wait(lambda: content(client.snapshot) == content(loaded(tables)), client)
        assert client.lookup("persistent://acme/new/t").broker_url == "pulsar://b9:6650"
        gone = client.lookup("persistent://acme/gone/t")
        assert gone.outcome is LookupOutcome.NAMESPACE_NOT_FOUND
        assert 0 <= gone.freshness.age_ms < 20_000
        # the writer's clock says years ago, yet its commit was found a moment ago
        assert 0 <= gone.freshness.writer_silent_ms < 20_000


def test_client_goes_on_after_the_service_was_away_without_loading_again(
    tables: Path, writer: TablesWriter, service: LookupService
) -> None:
    source = address(service)
    follower = WatchFollower(source, CLUSTER)
    stop, ready = threading.Event(), threading.Event()
    follower.on_change(ready.set)
    thread = threading.Thread(target=follower.run, args=(stop,))
    thread.start()
    try:
        assert ready.wait(20)
        service.stop(signal.SIGKILL)
        for version in (2, 3):
            writer.batch([move(BUNDLES[1], version, "b2")])
        service.port_file.unlink()
        again = start(tables, "--port", str(service.port))
        try:
            expected = content(loaded(tables))

            def is_there() -> bool:
                return follower.view is not None and content(follower.view.snapshot) == expected

            until(is_there, 20, lambda: follower.counts)
            assert follower.counts.reloads == {ReloadReason.START: 1}
            assert follower.counts.last_error == ""
        finally:
            stop.set()
            again.stop(signal.SIGKILL)
    finally:
        stop.set()
        thread.join(20)
    assert not thread.is_alive()
