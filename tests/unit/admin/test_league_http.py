"""The newest kept backtest, over HTTP, from real tables."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.delta.appending import append_rows
from jobs.service.all_routes import ROUTES
from jobs.service.app import AdminApp
from lbcore.model.backtest_tables import BACKTESTS
from tests.support.admin.admin_world import make_context, write_tables
from tests.support.admin.asgi_calls import ask
from tests.support.values.kept_runs import kept_rows, kept_run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_tables(tmp_path)
    return tmp_path


def league(root: Path, cluster: str) -> Any:
    app = AdminApp(replace(make_context(root), cluster=cluster), ROUTES)
    found = asyncio.run(ask(app, "/v1/league"))
    assert found.status == 200
    return found.json


def test_answer_is_the_clusters_newest_run(root: Path) -> None:
    for cluster, number in (("c1", 1), ("c1", 3), ("c1", 2), ("other", 9)):
        append_rows(root, BACKTESTS, kept_rows(cluster, kept_run(number)))
    told = league(root, "c1")
    assert (told["run"]["run_id"], told["runs"]) == ("run-03", 3)
    figures = [(one["strategy"], one["cost"], one["balanced_ms"]) for one in told["strategies"]]
    assert figures == [
        ("ballast", 15.0, 1.0),
        ("as-set", 40.0, 1.0),
        ("avg", 40.0, 1.0),
        ("recorded", 60.0, None),
    ]


def test_cluster_without_a_backtest_is_told_so(root: Path) -> None:
    append_rows(root, BACKTESTS, kept_rows("other", kept_run()))
    assert league(root, "c1") == {"run": None, "runs": 0, "strategies": []}
