"""Tables in a real S3-compatible store: written, followed, raced for, and asked when it is away."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from jobs.adapters.delta.table_location import (
    StoreError,
    StorePath,
    delta_options,
    table_place,
)
from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.delta.table_scan import open_delta
from jobs.adapters.delta.table_tail import ReloadReason, is_delta, newest_version
from jobs.adapters.delta.table_upkeep import TableUpkeep
from jobs.adapters.delta.table_writer import FencedError, TableWriter
from jobs.adapters.delta.tables import arrow_schema, ensure_table
from jobs.adapters.following.delta_follower import DeltaFollower
from jobs.adapters.following.events_history import EventsHistory
from jobs.adapters.processes.clocks import wall_ms
from jobs.adapters.processes.preflight import free_ports
from jobs.cli import main
from jobs.console import Exit
from jobs.sql.engine import SqlEngine
from lbcore.model.tables import NAMESPACES, OWNERSHIP_EVENTS, PINS
from tests.support.tables.commands_table import LOST, WON, ends, race, started
from tests.support.tables.lookup_tables import (
    BROKER_NAMES,
    BUNDLES,
    CLUSTER,
    NAMESPACE,
    TablesWriter,
    content,
    move,
    owned,
    poll_until,
    served,
)
from tests.support.tables.object_store import (
    SECRET,
    aws_environment,
    gathering_store,
    object_store,
    refusing_store,
)

EVENTS = OWNERSHIP_EVENTS.name
RACES = 3


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    with object_store() as made:
        yield made.uri


@pytest.fixture(scope="module")
def tables(store: str) -> TablesWriter:
    made = TablesWriter(table_place(store))
    made.namespaces({NAMESPACE: "crc32"})
    made.brokers(*BROKER_NAMES)
    made.batch(owned(NAMESPACE, 4, BROKER_NAMES))
    return made


def test_a_follower_reads_on_commit_by_commit(store: str, tables: TablesWriter) -> None:
    follower = DeltaFollower(store, CLUSTER)
    follower.poll()
    assert len(content(follower)) == 4
    tables.batch([move(BUNDLES[0], 9, "b3")])
    poll_until(follower, lambda: (BUNDLES[0], 9, "b3") in content(follower))
    assert (follower.counts.reloads[ReloadReason.START], follower.counts.commits) == (1, 1)
    assert follower.counts.errors == 0
    tables.brokers(*BROKER_NAMES, "b4")
    poll_until(follower, lambda: "b4" in served(follower).brokers)


def test_judge_of_lookups_reads_a_store(store: str, tables: TablesWriter) -> None:
    history = EventsHistory(table_place(store) / EVENTS)
    known, _ = history.poll()
    assert {one.bundle for one in known} == set(BUNDLES)
    begun_ms = wall_ms()
    tables.batch([move(BUNDLES[1], 9, "b2")])
    (found,), _ = history.poll()
    assert (found.bundle, found.version_id, found.destination) == (BUNDLES[1], 9, "b2")
    assert found.committed_to_ms >= max(begun_ms, found.committed_from_ms)


def test_verbs_read_a_store(
    store: str, tables: TablesWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(TableReader(table_place(store), CLUSTER).newest().rows) == len(BUNDLES)
    assert newest_version(table_place(store) / EVENTS) == tables.tables[EVENTS].version()
    owners = SqlEngine(table_place(store), (EVENTS,)).query(
        "select count(*) as n from ownership_events"
    )
    assert owners.to_pylist()[0]["n"] >= len(BUNDLES)
    where = ["--tables", store, "--cluster", CLUSTER]
    assert main(["ownership", *where]) == 0
    assert main(["lookup", f"persistent://{NAMESPACE}/t1", *where]) == 0
    assert "b" in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.parametrize(("kind", "winners"), [("gather", 1), ("careless", 2)])
def test_of_two_who_commit_the_same_version_one_wins(
    store: str, monkeypatch: pytest.MonkeyPatch, kind: str, winners: int
) -> None:
    if kind == "careless" and os.environ.get("BALLAST_TEST_S3"):
        pytest.skip("a store that checks signatures misses the header: it is signed")
    place = table_place(store) / f"raced-{winners}"
    write_deltalake(str(place), pa.table({"n": [0]}), storage_options=delta_options(place))
    with gathering_store(kind, os.environ["AWS_ENDPOINT_URL"]) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        for number in range(RACES):
            handles = [open_delta(place) for _ in range(2)]
            assert commit_together(handles).count(True) == winners
            raced = open_delta(place)
            assert raced.version() == number + 1
            # a commit that was overwritten takes its row with it: why the condition is needed
            assert len(pa.table(raced.scan().read_all())) == number + 2


def commit_together(handles: list[DeltaTable]) -> list[bool]:
    """Let each append a row to the version that it knows, all at once; which of them could."""
    together = threading.Barrier(len(handles))

    def commit(mine: DeltaTable) -> bool:
        together.wait()
        try:
            write_deltalake(
                mine,
                pa.table({"n": [1]}),
                mode="append",
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except CommitFailedError:
            return False
        return True

    with ThreadPoolExecutor(len(handles)) as pool:
        return list(pool.map(commit, handles))


@pytest.mark.long
def test_an_older_job_is_fenced(store: str) -> None:
    root = f"{store}/fenced"
    older = TableWriter(root)
    older.claim()
    rows = arrow_schema(NAMESPACES).empty_table()
    assert older.write(NAMESPACES.name, rows, 0, {"batch_id": 0}) is not None
    newer = TableWriter(root)
    assert newer.claim() == older.epoch + 1
    with pytest.raises(FencedError, match="took over"):
        older.write(NAMESPACES.name, rows, 1, {"batch_id": 1})
    newer.use_query("q")
    assert newer.write(NAMESPACES.name, rows, 1, {"batch_id": 1}) is not None
    assert newer.write(NAMESPACES.name, rows, 1, {"batch_id": 1}) is None
    done = TableUpkeep(newer, 1, 1).look_after(NAMESPACES.name, 0)
    assert "given_up" not in done


@pytest.mark.usefixtures("tables")
def test_what_is_said_when_the_store_refuses_or_is_away(
    store: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(StoreError, match="there is no such bucket"):
        is_delta(StorePath("s3://no-such-bucket-of-ours/x"))
    with pytest.raises(StoreError, match="there is no such bucket"):
        ensure_table("s3://no-such-bucket-of-ours/x", PINS)
    follower = DeltaFollower(store, CLUSTER)
    follower.poll()
    known = content(follower)
    assert len(known) == len(BUNDLES)
    with refusing_store() as port:
        for name, value in aws_environment(port).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(StoreError, match="refused access"):
            is_delta(table_place(store))
        with pytest.raises(StoreError, match="refused access"):
            (table_place(store) / "x").read_bytes()
        follower.poll()
        assert (content(follower), follower.counts.errors) == (known, 1)
    (port,) = free_ports(1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    assert main(["ownership", "--tables", store, "--cluster", CLUSTER]) == 1
    said = capsys.readouterr().err
    assert "the store can't be reached" in said
    assert "AWS_ENDPOINT_URL" in said
    assert SECRET not in said + follower.counts.last_error


def test_other_schemes_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ownership", "--tables", "gs://bucket/tables"]) == Exit.MISUSE
    assert "s3://bucket/prefix" in capsys.readouterr().err
    assert table_place("file:///a/b%20c") == Path("/a/b c")
    assert table_place("s3a://b/c/") == StorePath("s3://b/c")


@pytest.mark.long
def test_of_jobs_that_claim_tables_in_a_store_at_once_one_has_them(store: str) -> None:
    root = f"{store}/claimed"
    TableWriter(root)
    for number, after_s in enumerate((0.0, 0.0, 0.2, 0.5), start=1):
        writers = race(started(root), started(root, after_s))
        assert ends(writers, number) == {WON: 1, LOST: 1}
