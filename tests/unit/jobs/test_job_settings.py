"""Verbs and the service answer by what the job was started with, not by files alone."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.delta.tables import table_path
from jobs.cli import main
from jobs.operating.connection_options import started_with
from jobs.service.all_routes import ROUTES
from jobs.service.app import AdminApp
from jobs.service.views import TableViews
from lbcore.config.load import parse_assignments, reported_rows
from lbcore.config.tree import Config
from lbcore.model.tables import SETTINGS_IN_FORCE
from tests.support import Capsys
from tests.support.admin.admin_world import make_context
from tests.support.admin.asgi_calls import ask
from tests.support.worlds.explained_world import asked_now, write_tables
from tests.support.worlds.world import CLUSTER, World

HOT = "broker-0:8080"
STARTED = [
    "shedding.strategy=avg",
    "placement.strategy=avg",
    "shedding.cool_down_ms=3600000",
    "shedding.avg_low_hits=77",
    "shedding.avg_high_hits=77",
    "splitting.enabled=false",
]
MOVED = "acme/a/0x20000000_0x40000000"
CHANGED = {"shedding.max_unload_fraction": 0.3}


@pytest.fixture(scope="module")
def world() -> World:
    """Two brokers, one of them hot; the job was started with --set, and a command changed more."""
    made = World(parse_assignments(Config(), STARTED), brokers=2)
    made.command("create_namespace", namespace="acme/a", bundles=8)
    made.run(60_000)
    for row in made.newest():
        made.rates[str(row["bundle"])] = 1_500.0 if row["destination"] == HOT else 50.0
    made.run(120_000)
    made.command("unload_bundle", bundle=MOVED, destination=HOT)
    made.command("set_config", values=CHANGED)
    made.run(60_000)
    return made


@pytest.fixture(scope="module")
def tables(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with asked_now(world, tmp_path_factory.mktemp("told")) as root:
        yield root


def asked(capsys: Capsys, *words: object) -> Any:
    assert main([*map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_explain_holds_a_bundle_for_as_long_as_the_job_does(tables: Path, capsys: Capsys) -> None:
    found = asked(capsys, "explain", "bundle", MOVED, "--tables", tables)
    assert "(shedding.cool_down_ms, 3600000 ms)" in json.dumps(found), found


def test_dry_run_waits_for_the_hits_that_the_job_waits_for(tables: Path, capsys: Capsys) -> None:
    found = asked(capsys, "plan", "--dry-run", "--tables", tables)
    assert found["decisions"] == []
    levels = [level for one in found["waiting"] for level in one["levels"]]
    assert {level["needed"] for level in levels} == {77}, levels


def test_conf_that_is_named_counts_before_what_the_job_has_and_it_is_said(
    tables: Path, tmp_path: Path, capsys: Capsys
) -> None:
    overlay = tmp_path / "mine.toml"
    overlay.write_text("[shedding]\navg_low_hits = 55\navg_high_hits = 77\n")
    words = ["plan", "--dry-run", "--tables", str(tables), "--conf", str(overlay), "--json"]
    assert main(words) == 0
    out, err = capsys.readouterr()
    levels = [level for one in json.loads(out)["waiting"] for level in one["levels"]]
    assert {level["needed"] for level in levels} == {55, 77}
    (told,) = [line for line in err.splitlines() if "--conf" in line]
    assert "not by what the job has: shedding.avg_low_hits = 55 (base: 77, from mine.toml)" in told
    assert main([*words, "--set", "shedding.avg_low_hits=66"]) == 0
    levels = [
        level for one in json.loads(capsys.readouterr().out)["waiting"] for level in one["levels"]
    ]
    assert {level["needed"] for level in levels} == {66, 77}


def test_config_show_says_who_set_what(tables: Path, capsys: Capsys) -> None:
    found = asked(capsys, "config", "show", "--tables", tables, "--set", "lookup.port=9")
    assert found["shedding"]["avg_low_hits"] == 77
    assert found["origins"] == {
        **{word.partition("=")[0]: "--set" for word in STARTED},
        "shedding.max_unload_fraction": "command",
        "lookup.port": "--set",
    }
    assert main(["config", "show", "--tables", str(tables), "--changed"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "shedding.max_unload_fraction = 0.3 (base: 0.5, from command)" in lines
    assert "shedding.avg_low_hits = 77 (base: 8, from --set)" in lines


def test_tables_that_tell_nothing_are_answered_for_by_the_files_and_it_is_said(
    world: World, tables: Path, tmp_path: Path, capsys: Capsys
) -> None:
    del tables  # for its clocks
    write_tables(world, tmp_path)
    for path in sorted(table_path(tmp_path, SETTINGS_IN_FORCE.name).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    for words, of_files in (
        (["explain", "bundle", MOVED], "(shedding.cool_down_ms, 60000 ms)"),
        (["config", "show"], "avg_low_hits = 8\n"),
    ):
        assert main([*words, "--tables", str(tmp_path)]) == 0
        out, err = capsys.readouterr()
        assert "the tables have no settings of the job yet" in err
        assert of_files in out


def test_past_is_explained_by_what_the_job_had_then(world: World, tables: Path) -> None:
    reader = TableReader(tables, CLUSTER)
    first_ms = min(int(str(row["at_ms"])) for row in world.other_rows[SETTINGS_IN_FORCE.name])
    assert started_with(reader, Config(), first_ms - 1).shedding.avg_low_hits == 8
    assert started_with(reader, Config(), first_ms).shedding.avg_low_hits == 77


def served(tables: Path, path: str) -> Any:
    context = replace(make_context(tables), cluster=CLUSTER, views=TableViews(tables, CLUSTER))
    context.views.refresh()
    return asyncio.run(ask(AdminApp(context, ROUTES), path)).json


def test_service_answers_by_what_the_job_was_started_with(world: World, tables: Path) -> None:
    found = served(tables, "/v1/settings")
    assert found["settings"]["shedding.avg_low_hits"] == 77
    assert found["settings"]["shedding.max_unload_fraction"] == 0.3
    assert found["origins"]["shedding.avg_low_hits"] == "--set"
    assert found["origins"]["shedding.max_unload_fraction"] == "command"
    assert found["origins"]["shedding.rules"] == "default"
    runtime = served(tables, "/admin/v2/brokers/configuration/runtime")
    assert runtime["shedding.avg_low_hits"] == "77"
    found = served(tables, f"/v1/explain/bundle/{MOVED}?at={world.now_ms}")
    assert "(shedding.cool_down_ms, 3600000 ms)" in json.dumps(found)
    levels = [level for one in served(tables, "/v1/plan")["waiting"] for level in one["levels"]]
    assert {level["needed"] for level in levels} == {77}


def test_strategy_that_only_the_job_has_is_named_and_never_imported(tmp_path: Path) -> None:
    name = "nowhere.to_be_found:decide"
    job = parse_assignments(Config(), [f"shedding.strategy={name}"])
    rows = [{**row, "batch_id": 1} for row in reported_rows(job, job, "v")]
    world = World(Config(), brokers=1)
    world.run(1_000)
    told = [{**row, "cluster": CLUSTER, "at_ms": world.now_ms + 1} for row in rows]
    world.other_rows[SETTINGS_IN_FORCE.name] += told
    write_tables(world, tmp_path)
    found = started_with(TableReader(tmp_path, CLUSTER), Config())
    assert found.shedding.strategy == name
    assert "is not loaded here" in found.own[name].problem
