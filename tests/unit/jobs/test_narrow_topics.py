"""`ballast bundle list --by partitions`: topics on too few brokers, as the bridge told last."""

import json
import time
from pathlib import Path

import pytest

from jobs.adapters.delta.tables import ensure_table
from jobs.cli import main
from lbcore.model.tables import TABLES
from tests.support.tables.commands_table import CommandsTable

TOPIC = "persistent://acme/ns/t"
EVIDENCE = "8 partitions are on 1 of 3 brokers: 8 on a:8080"
FINDING = {"subject": TOPIC, "since_ms": 1, "evidence": EVIDENCE, "stage": "told"}


@pytest.fixture
def tables(tmp_path: Path) -> CommandsTable:
    for table in TABLES:
        ensure_table(tmp_path, table)
    return CommandsTable(tmp_path)


def asked(tables: CommandsTable, *words: str) -> int:
    where = ["--tables", str(tables.root), "--conf", "pulsar", "--json"]
    return main(["bundle", "list", "--by", "partitions", *where, *words])


def tell(tables: CommandsTable, *troubles: str) -> None:
    result = {"findings": [{**FINDING, "trouble": one} for one in troubles]}
    at_ms = time.time_ns() // 1_000_000
    tables.add("c1", "done", at_ms, kind="observe_ownership", result=result)


def test_topics_on_too_few_brokers_are_told_and_nothing_else_that_is_wrong(
    tables: CommandsTable, capsys: pytest.CaptureFixture[str]
) -> None:
    tell(tables, "doubled", "narrow")
    assert asked(tables) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["subject"], found["evidence"]) == (TOPIC, EVIDENCE)
    assert asked(tables, "--broker", "b:8080") == 0
    assert json.loads(capsys.readouterr().out) == []


def test_without_a_bridge_it_is_an_error_and_no_empty_list(
    tables: CommandsTable, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(tables) == 1
    assert "ballast bridge pulsar" in capsys.readouterr().err
