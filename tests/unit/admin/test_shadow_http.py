"""What shadows would have done, over HTTP and in the status."""

import asyncio
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from jobs.adapters.delta.table_reader import TableReader
from jobs.operating.status_rows import read_status_rows
from jobs.service.all_routes import ROUTES
from jobs.service.app import AdminApp
from jobs.service.views import SMALL_TABLES
from jobs.verbs.status import status_lines
from lbcore.explain.status import make_status
from lbcore.model.settings_tables import SETTINGS_IN_FORCE
from lbcore.model.shadow_tables import SHADOW_DECISIONS
from lbcore.model.tables import CONFIG_VERSIONS
from tests.support.admin.admin_world import make_context
from tests.support.admin.asgi_calls import ask
from tests.support.worlds.explained_world import write_tables
from tests.support.worlds.hot_world import hot_world
from tests.support.worlds.world import CLUSTER, World


@pytest.fixture(scope="module")
def world() -> World:
    made = hot_world("cluster.observe_only=true", "cluster.shadow=uniform,overload")
    made.run(120_000, step_ms=2_000)
    return made


@pytest.fixture(scope="module")
def root(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("shadow")
    write_tables(world, made)
    return made


@pytest.fixture(scope="module")
def get(world: World, root: Path) -> Iterator[Any]:
    with (
        mock.patch("tests.support.admin.admin_world.CLUSTER", CLUSTER),
        mock.patch("jobs.service.v1.window.wall_ms", return_value=world.now_ms),
    ):
        app = AdminApp(replace(make_context(root), cluster=CLUSTER), ROUTES)

        def answer(path: str) -> tuple[int, Any]:
            found = asyncio.run(ask(app, path))
            return found.status, found.json

        yield answer


def rows(world: World, strategy: str) -> list[Any]:
    return [r for r in world.other_rows[SHADOW_DECISIONS.name] if r["strategy"] == strategy]


def test_answer_has_each_shadow_with_its_moves_and_skips(world: World, get: Any) -> None:
    status, found = get("/v1/shadow?window_ms=3600000")
    assert status == 200
    overload, uniform = found["shadows"]
    told = rows(world, "uniform")
    assert (overload["strategy"], uniform["strategy"]) == ("overload", "uniform")
    assert uniform["moves"] == sum(row["moves"] for row in told) > 0
    assert overload["moves"] == 0
    assert uniform["cycles"] == len(told)
    assert sum(uniform["skips"].values()) == sum(bool(row["reason"]) for row in told)
    steps = [step for row in reversed(told) for step in json.loads(row["steps"])]
    assert [one["bundle"] for one in uniform["steps"]] == [one["bundle"] for one in steps]
    assert uniform["shadow_imbalance"] < 1.4 < uniform["imbalance"]
    known = [row["imbalance"] for row in told if not math.isnan(row["imbalance"])]
    shown = [real for _, real, _ in uniform["moments"] if real is not None]
    assert max(shown) == max(known)
    assert len(uniform["moments"]) <= 120


def test_window_bounds_what_is_told(world: World, get: Any) -> None:
    last = rows(world, "uniform")[-1]["at_ms"]
    _, found = get(f"/v1/shadow?window_ms=1&until={last}")
    assert [one["cycles"] for one in found["shadows"]] == [1, 1]
    assert get(f"/v1/shadow?until={last - 86_400_000}")[1]["shadows"] == []
    assert get("/v1/shadow?window_ms=x")[0] == 400


def test_status_has_a_line_for_each_shadow(world: World, root: Path) -> None:
    read = read_status_rows(TableReader(root, CLUSTER), world.now_ms)
    status = make_status(CLUSTER, read, world.config, world.now_ms)
    lines = [line for line in status_lines(status) if line.startswith("  shadow")]
    moves = sum(row["moves"] for row in rows(world, "uniform"))
    last = rows(world, "uniform")[-1]
    even = f"imbalance {last['shadow_imbalance']:.2f} (really {last['imbalance']:.2f})"
    assert lines[0].startswith("  shadow  overload: would have moved 0 bundles in 10 min")
    told = f"would have moved {moves} bundles in 10 min, {even}"
    assert lines[1].startswith(f"  shadow  uniform: {told}")


def test_no_table_that_only_grows_is_held_in_memory() -> None:
    """But for settings, of which the newest are held."""
    grows = {table.name for table in SMALL_TABLES if not table.key}
    assert grows == {CONFIG_VERSIONS.name, SETTINGS_IN_FORCE.name}
