"""The tables as verbs read them: now, at a version, at a time; and what the verbs say of them."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.delta.tables import arrow_schema
from jobs.cli import main
from jobs.console import CommandError
from lbcore.model.tables import REJECTED_REPORTS
from tests.support import Capsys
from tests.support.tables.lookup_tables import CLUSTER, Row, TablesWriter

A, B, C = (f"acme/a/0x{n}0000000_0x{n + 4}0000000" for n in (0, 4, 8))


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Three batches: made and owned, one moved, one gone and one new."""
    writer = TablesWriter(tmp_path)
    writer.namespaces({"acme/a": "crc32"})
    writer.brokers("b1", "b2")
    writer.batch(
        [Row(bundle=A, version=1, destination="b1"), Row(bundle=B, version=1, destination="b1")]
    )
    writer.batch([Row(bundle=A, version=2, destination="b2")])
    writer.batch(
        [Row(bundle=B, version=2, state="Deleted"), Row(bundle=C, version=1, destination="b2")]
    )
    return tmp_path


def asked(tables: Path, capsys: Capsys, *words: str) -> Any:
    where = ["--tables", str(tables), "--cluster", CLUSTER, "--json"]
    assert main([*words, *where]) == 0
    return json.loads(capsys.readouterr().out)


def owners(value: Any) -> dict[str, str]:
    return {row["bundle"]: row["destination"] for row in value["bundles"]}


def test_reader_folds_events_to_a_version_and_to_a_time(tables: Path) -> None:
    reader = TableReader(tables, CLUSTER)
    newest = reader.newest()
    assert {row["bundle"]: row["destination"] for row in newest.rows} == {A: "b2", C: "b2"}
    first = reader.at_version(newest.version - 2)
    assert {row["bundle"]: row["destination"] for row in first.rows} == {A: "b1", B: "b1"}
    by_time = reader.at_time(first.at_ms)
    assert [row["version_id"] for row in by_time.rows] == [1, 1]
    assert by_time.version == first.version
    assert reader.at_time(first.at_ms - 1).rows == []


def test_reader_refuses_what_is_not_there(tables: Path, tmp_path: Path) -> None:
    reader = TableReader(tables, CLUSTER)
    with pytest.raises(CommandError, match="no version 99"):
        reader.at_version(99)
    with pytest.raises(CommandError, match="no tables"):
        TableReader(tmp_path / "nowhere", CLUSTER)
    assert TableReader(tables, "other").newest().rows == []


def test_reader_gives_rejected_messages_that_name_no_cluster_to_every_cluster(
    tables: Path,
) -> None:
    reasons = {CLUSTER: "not_json", "": "unknown_cluster", "other": "too_big"}
    zeros = {key: [0, 0, 0] for key in ("partition", "offset", "timestamp_ms", "batch_id")}
    texts = {"topic": ["acks"] * 3, "detail": [""] * 3, "raw": [b""] * 3}
    names = {"cluster": list(reasons), "reason": list(reasons.values()), "at_ms": [1_000] * 3}
    rows = pa.table({**zeros, **texts, **names}, schema=arrow_schema(REJECTED_REPORTS))
    write_deltalake(str(tables / REJECTED_REPORTS.name), rows, mode="append")
    reader = TableReader(tables, CLUSTER)
    found = sorted(row["reason"] for row in reader.rejected(since_ms=1_000))
    assert found == ["not_json", "unknown_cluster"]
    assert reader.rejected(since_ms=1_001) == []


def test_ownership_verb_says_who_owns_what(tables: Path, capsys: Capsys) -> None:
    assert owners(asked(tables, capsys, "ownership")) == {A: "b2", C: "b2"}
    newest = asked(tables, capsys, "ownership")["version"]
    as_of = asked(tables, capsys, "ownership", "--as-of", str(newest - 2))
    assert owners(as_of) == {A: "b1", B: "b1"}
    assert owners(asked(tables, capsys, "ownership", "--broker", "b1")) == {}
    where = ["--tables", str(tables), "--cluster", CLUSTER]
    assert main(["ownership", "--namespace", "acme/none", *where]) == 1
    assert "acme/none" in capsys.readouterr().err
    assert owners(asked(tables, capsys, "ownership", "--as-of", "0s")) == {A: "b2", C: "b2"}


def test_ownership_verb_says_what_changed(tables: Path, capsys: Capsys) -> None:
    newest = asked(tables, capsys, "ownership")["version"]
    words = ["ownership", "--diff", str(newest - 2), str(newest)]
    changes = asked(tables, capsys, *words)["changes"]
    assert [(one["bundle"], bool(one["before"]), bool(one["after"])) for one in changes] == [
        (A, True, True),
        (B, True, False),
        (C, False, True),
    ]
    assert main([*words, "--tables", str(tables), "--cluster", CLUSTER]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"3 bundles changed from version {newest - 2}")
    assert lines[1] == f"  {A}  Owned b1  =>  Owned b2  (assign)"
    assert [line[0] for line in lines[2:]] == ["-", "+"]


def test_status_verb_reads_the_tables(tables: Path, capsys: Capsys) -> None:
    words = ["status", "--tables", str(tables), "--cluster", CLUSTER]
    assert main([*words, "--json"]) == 1, "it is stalled"
    found = json.loads(capsys.readouterr().out)
    assert found["bundles"] == {"Owned": 2}
    assert [(row["broker"], row["bundles"]) for row in found["broker_rows"]] == [
        ("b1", 0),
        ("b2", 2),
    ]
    assert found["phase"] == "stalled", "the job of these tables wrote long ago"
    assert main(words) == 1
    said = capsys.readouterr().out
    assert "ALARM  no heartbeat" in said
    assert f"job     {found['job_message']}" in said
    assert found["job"]["word"] == "away"


def test_verb_without_a_moment_or_tables_says_what_to_do(tables: Path, capsys: Capsys) -> None:
    assert main(["ownership", "--as-of", "yesterday", "--tables", str(tables)]) == 2
    assert "no moment" in capsys.readouterr().err
    assert main(["status", "--state-dir", str(tables / "none")]) == 1
    said = capsys.readouterr().err
    assert "there are no tables" in said
    assert "ballast run-local" in said
