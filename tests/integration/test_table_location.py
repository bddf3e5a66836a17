"""Tables in S3, Azure and Google stores: written, followed, raced for, asked when they are away."""

import os
import subprocess
import sys
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
    spark_uri,
    table_place,
)
from jobs.adapters.delta.table_log import ReloadReason, newest_version
from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.delta.table_scan import is_delta, open_delta
from jobs.adapters.delta.table_upkeep import TableUpkeep
from jobs.adapters.delta.table_writer import FencedError, TableWriter
from jobs.adapters.delta.tables import arrow_schema, ensure_table
from jobs.adapters.following.delta_follower import DeltaFollower
from jobs.adapters.processes.clocks import wall_ms
from jobs.adapters.processes.preflight import free_ports
from jobs.cli import main
from jobs.console import Exit
from jobs.local.prober import EventsHistory
from jobs.sql.engine import SqlEngine
from lbcore.model.tables import NAMESPACES, OWNERSHIP_EVENTS, PINS
from tests.support import Capsys, Patch
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
    ADDRESSES,
    BUCKET,
    KINDS,
    SECRETS,
    aws_environment,
    gathering_store,
    object_store,
    refusing_store,
)

EVENTS = OWNERSHIP_EVENTS.name
RACES = 3


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def store(kind: str) -> Iterator[str]:
    with object_store(kind) as made:
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


def test_verbs_read_a_store(store: str, tables: TablesWriter, capsys: Capsys) -> None:
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


@pytest.fixture
def address(kind: str) -> str:
    """The variable that names the store's address, to put something else in its place."""
    if kind not in ADDRESSES:
        pytest.skip("a cluster of HDFS is no server that a proxy can stand before")
    return ADDRESSES[kind]


@pytest.mark.long
@pytest.mark.parametrize(("proxy", "winners"), [("gather", 1), ("careless", 2)])
def test_of_two_who_commit_the_same_version_one_wins(
    store: str, address: str, monkeypatch: Patch, proxy: str, winners: int
) -> None:
    is_signed = address == ADDRESSES["azure"] or (
        address == ADDRESSES["s3"] and os.environ.get("BALLAST_TEST_S3")
    )
    if proxy == "careless" and is_signed:
        pytest.skip("a store that checks signatures misses the header: it is signed")
    place = table_place(store) / f"raced-{winners}"
    write_deltalake(str(place), pa.table({"n": [0]}), storage_options=delta_options(place))
    with gathering_store(proxy, os.environ[address]) as port:
        monkeypatch.setenv(address, f"http://127.0.0.1:{port}")
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


@pytest.mark.long
@pytest.mark.usefixtures("tables")
def test_store_that_is_away_or_without_the_bucket_is_named(
    store: str,
    address: str,
    monkeypatch: Patch,
    capsys: Capsys,
) -> None:
    absent = store.replace(BUCKET, "no-such-bucket-of-ours")
    with pytest.raises(StoreError, match="there is no such bucket"):
        is_delta(table_place(absent))
    with pytest.raises(StoreError, match="there is no such bucket"):
        ensure_table(absent, PINS)
    follower = DeltaFollower(store, CLUSTER)
    follower.poll()
    known = content(follower)
    (port,) = free_ports(1)
    monkeypatch.setenv(address, f"http://127.0.0.1:{port}")
    follower.poll()
    assert (content(follower), follower.counts.errors) == (known, 1)
    assert main(["ownership", "--tables", store, "--cluster", CLUSTER]) == 1
    printed = capsys.readouterr().err
    assert "the store can't be reached" in printed
    assert not [secret for secret in SECRETS if secret in printed + follower.counts.last_error]


@pytest.mark.usefixtures("tables")
def test_store_that_refuses_is_named(store: str, address: str, monkeypatch: Patch) -> None:
    with refusing_store() as port:
        monkeypatch.setenv(address, f"http://127.0.0.1:{port}")
        with pytest.raises(StoreError, match="refused access"):
            is_delta(table_place(store))
        with pytest.raises(StoreError, match="refused access"):
            (table_place(store) / "x").read_bytes()


def test_bucket_of_another_region_is_named(monkeypatch: Patch) -> None:
    with refusing_store("elsewhere") as port:
        for name, value in aws_environment(port).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(StoreError, match="another region") as raised:
            is_delta(table_place("s3://bucket/tables"))
        assert "AWS_REGION" in raised.value.next_step
        with pytest.raises(StoreError, match="another region"):
            ensure_table("s3://bucket/tables", PINS)


@pytest.mark.parametrize(
    ("place", "variable"),
    [
        ("abfss://box@account.dfs.core.windows.net/tables", "AZURE_STORAGE_ACCOUNT_KEY"),
        pytest.param(
            "gs://bucket/tables", "GOOGLE_APPLICATION_CREDENTIALS", marks=pytest.mark.long
        ),
    ],
)
def test_store_without_credentials_is_named(place: str, variable: str) -> None:
    """The process is one of its own: a client that ends it must not end the tests."""
    hidden = ("AWS_", "AZURE_", "AZURITE_", "GOOGLE_", "STORAGE_")
    kept = {name: word for name, word in os.environ.items() if not name.startswith(hidden)}
    command = [
        sys.executable,
        "-m",
        "jobs.cli",
        "ownership",
        "--tables",
        place,
        "--cluster",
        CLUSTER,
    ]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=120, env=kept
    )
    assert done.returncode == 1, done.stderr
    assert "no credentials were found" in done.stderr
    assert variable in done.stderr


def test_other_schemes_are_refused(capsys: Capsys) -> None:
    for odd in ("ftp://a/b", "abfss://box/tables", "s3:///tables", "gs://bucket/t?x=1"):
        assert main(["ownership", "--tables", odd]) == Exit.MISUSE
        assert "gs://BUCKET/PREFIX" in capsys.readouterr().err
    assert table_place("file:///a/b%20c") == Path("/a/b c")
    assert table_place("s3a://b/c/") == StorePath("s3://b/c")
    azure = "box@account.dfs.core.windows.net/c"
    assert table_place(f"abfs://{azure}") == StorePath(f"abfss://{azure}")


def test_statements_for_spark_name_the_store_as_spark_does() -> None:
    azure = "abfss://box@account.dfs.core.windows.net/c"
    for place, named in (("s3://b/c", "s3a://b/c"), (azure, azure), ("gs://b/c", "gs://b/c")):
        assert spark_uri(table_place(place)) == named


@pytest.mark.long
def test_of_jobs_that_claim_tables_in_a_store_at_once_one_has_them(store: str) -> None:
    root = f"{store}/claimed"
    TableWriter(root)
    for number, after_s in enumerate((0.0, 0.0, 0.2, 0.5), start=1):
        writers = race(started(root), started(root, after_s))
        assert ends(writers, number) == {WON: 1, LOST: 1}
