"""Lookups in process, from real Delta tables."""

import json
import threading
from pathlib import Path

import pytest

from jobs import cli
from jobs.adapters.processes.clocks import boot_ms
from jobs.lookup_client import LookupClient, NotReadyError
from lbcore.route.snapshot import LookupOutcome
from tests.support.tables.lookup_tables import (
    CLUSTER,
    TOPIC,
    TablesWriter,
    move,
)


def test_client_answers_as_the_tables_say_and_follows_them(
    tmp_path: Path, writer: TablesWriter
) -> None:
    with LookupClient(tmp_path, CLUSTER, poll_ms=20) as client:
        assert client.wait_ready(60_000)
        found = client.lookup(TOPIC)
        route = client.find(TOPIC)
        assert route is not None
        assert found.outcome is LookupOutcome.FOUND
        assert found.broker_url == f"pulsar://{route.broker}:6650"
        assert client.find_brokers([TOPIC, "persistent://none/none/x"]).tolist() == [
            route.broker,
            "",
        ]
        version = writer.batch([move(route.bundle, 2, "b9")])
        pause = threading.Event()
        deadline_ms = boot_ms() + 60_000
        while client.freshness.table_version < version:
            assert boot_ms() < deadline_ms
            pause.wait(0.01)
        assert client.find_brokers([TOPIC]).tolist() == ["b9"]
        assert client.lookup(TOPIC).outcome is LookupOutcome.BROKER_UNKNOWN
        assert (
            client.lookup("persistent://none/none/x").outcome is LookupOutcome.NAMESPACE_NOT_FOUND
        )


def test_client_without_tables_says_that_it_is_not_ready(tmp_path: Path) -> None:
    with LookupClient(tmp_path, CLUSTER, poll_ms=20) as client:
        assert not client.wait_ready(50)
        with pytest.raises(NotReadyError, match="wait_ready"):
            client.lookup(TOPIC)


def test_verb_says_who_serves_each_topic(
    tmp_path: Path, writer: TablesWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    assert writer.batch_id == 0
    where = ["--tables", str(tmp_path), "--cluster", CLUSTER]
    assert cli.main(["lookup", TOPIC, *where]) == 0
    assert capsys.readouterr().out.startswith(f"{TOPIC} pulsar://b")
    unknown = "persistent://none/none/x"
    assert cli.main(["lookup", TOPIC, unknown, *where, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [line["outcome"] for line in found] == ["found", "namespace_not_found"]


@pytest.mark.parametrize(
    "case",
    [
        (["persistent://a"], 2, "is no topic's name"),
        ([TOPIC, "--tables", "nowhere", "--timeout-ms", "10"], 1, "there are no tables in nowhere"),
    ],
)
def test_verb_that_cant_look_up_says_why(
    writer: TablesWriter,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    case: tuple[list[str], int, str],
) -> None:
    assert writer.batch_id == 0
    words, code, said = case
    assert cli.main(["lookup", "--tables", str(tmp_path), "--cluster", CLUSTER, *words]) == code
    assert said in capsys.readouterr().err
