"""Verbs over tables full of hostile text: no terminal obeys any of it, and JSON stays valid."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.delta.tables import table_path
from jobs.cli import main
from lbcore.model.tables import TABLES, Table
from tests.support.worlds.explained_world import eventful, write_tables
from tests.support.worlds.world import World

HOSTILE = "\x1b[2J\x9b1m\nerror: forged\u202e\x07"
FREE = {
    *("address", "admin_roles", "broker", "destination", "destination_before", "detail", "owner"),
    *("failure_domain", "load_manager_class", "principal", "pulsar_service_url", "reason"),
    *("source", "source_before", "version", "web_service_url", "strategy", "subject", "verdict"),
}
"""Columns whose text somebody else writes; names of brokers are the same one everywhere."""
BROKER = f"broker-0:8080{HOSTILE}"

QUESTIONS = (
    ["status"],
    ["explain", "cluster"],
    ["explain", "broker", BROKER],
    ["explain", "broker", f"nobody{HOSTILE}"],
    ["explain", "bundle", f"nothing{HOSTILE}"],
    ["explain", "decision", f"nothing{HOSTILE}"],
    ["ownership"],
    ["bundle", "list"],
    ["plan", "list"],
    ["plan", "show", f"nothing{HOSTILE}"],
    ["plan", "--dry-run"],
    ["plan", "--dry-run", "--strategy", f"nothing{HOSTILE}"],
    ["policy", "list"],
    ["doctor", "--no-kafka"],
    ["config", "show", "--changed"],
    ["broker", "drain", BROKER, "--dry-run"],
    ["bundle", "unload", f"nothing{HOSTILE}", "--dry-run"],
    ["lookup", f"persistent://t/n/x{HOSTILE}"],
    ["sql", "commands"],
    ["sql", "rejected"],
    ["sql", "who-has-what"],
    ["sql", "near-limits"],
    ["sql", "SELECT * FROM commands"],
    ["sql", "SELECT * FROM brokers"],
    ["sql", f"SELECT '{HOSTILE}' AS \"{HOSTILE}\""],
    ["sql", f"SELECT {HOSTILE}"],
    ["sql", HOSTILE],
    ["status", "--tables", f"/nowhere/{HOSTILE}"],
    ["status", "--set", f"{HOSTILE}={HOSTILE}"],
    ["status", "--conf", HOSTILE],
    [f"status{HOSTILE}"],
    ["status", HOSTILE],
    ["status", f"--no{HOSTILE}"],
)


def _hostile(table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
    texts = {column.name for column in table.columns if column.type == "string"}
    return {
        name: f"{value}{HOSTILE}" if name in FREE & texts and value else value
        for name, value in row.items()
    }


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of an eventful cluster, with hostile text wherever others write it."""
    world: World = eventful()
    found = tmp_path_factory.mktemp("hostile")
    for table in TABLES:
        rows = world.other_rows[table.name]
        world.other_rows[table.name] = [_hostile(table, row) for row in rows]
    world.events[:] = [_hostile(_table("ownership_events"), row) for row in world.events]
    world.decisions[:] = [_hostile(_table("decisions"), row) for row in world.decisions]
    write_tables(world, found)
    assert (table_path(found, "commands") / "_delta_log").is_dir()
    return found


def _table(name: str) -> Table:
    return next(table for table in TABLES if table.name == name)


@pytest.mark.parametrize("words", QUESTIONS, ids=lambda words: " ".join(words)[:40])
def test_nothing_that_a_terminal_obeys_is_written(
    root: Path, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    where = [] if "--tables" in words or "config" in words else ["--tables", str(root)]
    assert main([*words, *where]) in (0, 1, 2)
    for text in capfd.readouterr():
        assert all(line.isprintable() for line in text.split("\n"))
        assert not any(line.startswith("error: forged") for line in text.split("\n"))
    assert main([*words, *where, "--json"]) in (0, 1, 2)
    written = capfd.readouterr()
    for text in written:
        assert all(line.isprintable() for line in text.split("\n"))
    for line in written.out.split("\n")[:-1]:
        json.loads(line)
