"""What an explanation sees of a cluster in virtual time: its rows, as the tables have them."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from jobs.adapters.delta.tables import arrow_schema, ensure_tables, table_path
from lbcore.config.tree import Config
from lbcore.explain.explanation import ExplainRows
from lbcore.model.tables import OWNERSHIP_EVENTS, TABLES
from tests.support.worlds.checked_world import owners, running, skewed
from tests.support.worlds.world import CLUSTER, World, copied

WINDOW_MS = 3_600_000


def rows_of(world: World, config: Config | None = None) -> ExplainRows:
    return ExplainRows(
        cluster=CLUSTER,
        at_ms=world.now_ms,
        window_ms=WINDOW_MS,
        config=config or world.config,
        records=world.newest(),
        events=world.events,
        decisions=world.decisions,
        candidates=world.other_rows["decision_candidates"],
        effects=world.other_rows["decision_effects"],
        brokers=_newest(world, "brokers", "broker"),
        policies=_newest(world, "policies", "kind", "name"),
        pins=_newest(world, "pins", "bundle"),
        load=world.other_rows["load_history"],
    )


def about(world: World, bundle: str) -> ExplainRows:
    """The rows for a question about one bundle: its events alone."""
    events = [event for event in world.events if event["bundle"] == bundle]
    return replace(rows_of(world), events=events)


@copied
def eventful() -> World:
    """A hot spot that moves on, a pin, a crash, a split, a return, and what is refused or stuck."""
    world = running(5, 40)
    skewed(world)
    world.run(150_000)
    bundle, broker = min(owners(world).items())
    world.command("pin_bundle", bundle=bundle, broker=broker, reason="release day")
    world.command("unload_bundle", bundle=bundle, destination="nobody:8080")
    world.run(3_000)
    world.kill("broker-2:8080")
    world.run(40_000)
    world.command("split_bundle", bundle=sorted(owners(world))[7], force=True)
    world.run(5_000)
    bundle = max(name for name, broker in owners(world).items() if broker == "broker-0:8080")
    for destination in ("broker-3:8080", "broker-0:8080"):
        world.command("unload_bundle", bundle=bundle, destination=destination)
        world.run(5_000)
    deaf = "broker-1:8080"
    bundle = max(name for name, broker in owners(world).items() if broker not in ("", deaf))
    world.pause(deaf, is_paused=True)
    world.command("unload_bundle", bundle=bundle, destination=deaf)
    world.run(60_000)
    return world


@contextmanager
def asked_now(world: World, root: Path) -> Iterator[Path]:
    """The world's tables in that folder, and verbs to which it is the world's time."""
    write_tables(world, root)
    now = mock.Mock(return_value=world.now_ms)
    with (
        mock.patch("jobs.operating.plans.wall_ms", now),
        mock.patch("jobs.operating.answers.wall_ms", now),
        mock.patch("jobs.operating.status.wall_ms", now),
        mock.patch("jobs.verbs.reading.wall_ms", now),
    ):
        yield root


def write_tables(world: World, root: Path, until_ms: int | None = None) -> None:
    """The tables that the world's job would have written, had it ended at `until_ms`."""
    ensure_tables(root)
    later_ms = 0 if until_ms is None else until_ms - world.now_ms
    current = {
        "brokers": _newest(world, "brokers", "broker"),
        "pins": _newest(world, "pins", "bundle"),
        "policies": _newest(world, "policies", "kind", "name"),
        "bundle_ownership": world.newest(),
        "ownership_events": world.events,
        "decisions": world.decisions,
    }
    metadata = {
        "query_id": "q1",
        "batch_id": 1,
        "now_ms": world.now_ms + later_ms,
        "writer_epoch": 1,
    }
    for table in TABLES:
        rows = current.get(table.name, world.other_rows[table.name])
        full = [_shifted({"batch_id": 1, "writer_epoch": 1, **row}, later_ms) for row in rows]
        if full or table.name == OWNERSHIP_EVENTS.name:  # with which a batch becomes true
            columns = {c.name: [row[c.name] for row in full] for c in table.columns}
            shown = pa.table(columns, schema=arrow_schema(table))
            write_deltalake(
                str(table_path(root, table.name)),
                shown,
                mode="append",
                commit_properties=CommitProperties(
                    custom_metadata={"ballast": json.dumps(metadata)},
                    app_transactions=[Transaction(f"{table.name}:q1", 1)],
                ),
            )


def _shifted(row: dict[str, Any], later_ms: int) -> dict[str, Any]:
    """The row with its instants later; 0 stays: it stands for none."""
    return {k: v + later_ms if k.endswith("_ms") and v else v for k, v in row.items()}


def _newest(world: World, table: str, *key: str) -> list[Mapping[str, Any]]:
    found = {tuple(row[name] for name in key): row for row in world.other_rows[table]}
    return [dict(found[name]) for name in sorted(found)]
