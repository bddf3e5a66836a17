"""Verbs of another machine: a real service over sockets gives what the tables give."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.cli import main
from tests.support.admin.admin_world import BROKERS, write_tables
from tests.support.processes.lookup_service import LookupService
from tests.support.tables.lookup_tables import CLUSTER

LINES = [
    ["ownership", "--namespace", "acme/ns1"],
    ["ownership", "--broker", BROKERS[0]],
    ["explain", "bundle", "acme/free/0x00000000_0xffffffff"],
    ["policy", "list"],
    ["sql", "SELECT broker, count(*) AS bundles FROM owners GROUP BY broker ORDER BY broker"],
    ["bundle", "split", "acme/free/0x00000000_0xffffffff", "--dry-run"],
]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("remote") / "tables"
    write_tables(root)
    return root


@pytest.fixture(scope="module")
def service(tables: Path) -> Iterator[LookupService]:
    running = LookupService(tables)
    try:
        running.wait_ready()
        yield running
    finally:
        running.stop()


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_service_gives_what_the_tables_give(
    line: list[str], service: LookupService, tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main([*line, "--tables", str(tables), "--cluster", CLUSTER])
    local = capsys.readouterr().out
    assert main([*line, "--url", f"http://127.0.0.1:{service.port}", "--cluster", CLUSTER]) == code
    remote = capsys.readouterr().out
    assert remote.splitlines()[1:] == local.splitlines()[1:]  # the first has ages


def test_command_without_kafka_is_told_with_what_to_do(
    service: LookupService, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pause", "--url", f"http://127.0.0.1:{service.port}", "--json"]) == 1
    said = json.loads(capsys.readouterr().err)
    assert "without Kafka's address" in said["why"]
    assert said["next"]
