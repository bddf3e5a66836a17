"""A long life of a cluster, after which its readers hold what those of a fresh one do."""

import gc
import sys
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

from jobs.adapters.delta.table_writer import TableWriter
from jobs.adapters.following.delta_follower import DeltaFollower
from jobs.service.access_control import RateLimiter
from jobs.service.changes import ChangeFeed
from jobs.service.views import TableViews
from lbcore.model.tables import (
    BROKERS,
    BUNDLE_OWNERSHIP,
    CONFIG_VERSIONS,
    LOAD_HISTORY,
    NAMESPACES,
    OWNERSHIP_EVENTS,
    PINS,
    POLICIES,
    RECORDS,
    TABLES,
)
from tests.support.tables.lookup_tables import CLUSTER, arrow_rows, bundles_of

MINUTE_MS = 60_000
KEPT_CHANGES = 50


class World:
    """The job's writer, and the readers of one service beside it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.writer = TableWriter(root)
        self.writer.claim()
        self.writer.use_query("q")
        self.number = 0
        self.follower, self.views = DeltaFollower(root, CLUSTER), TableViews(root, CLUSTER)
        self.feed = ChangeFeed(root, CLUSTER, KEPT_CHANGES)
        self.follower.on_commits(self.feed.add)

    def look(self) -> None:
        self.follower.poll()
        self.views.refresh()
        assert self.follower.counts.last_error == ""
        assert self.views.last_error == ""

    def exist(self, names: list[str], *, is_there: bool) -> None:
        """One of everything a name: a namespace with a bundle, a broker, a rule of each kind."""
        gone = not is_there
        state = {"state": "active" if is_there else "forgotten"}
        self.write(NAMESPACES.name, [{"namespace": f"t/{n}", "is_deleted": gone} for n in names])
        self.write(BROKERS.name, [{"broker": n, **state} for n in names])
        of = {"record_type": "tenant", "value": "{}", "is_deleted": gone}
        self.write(RECORDS.name, [{"name": n, **of} for n in names])
        self.write(PINS.name, [{"bundle": n, "is_set": is_there} for n in names])
        kind = {"kind": "paused", "is_set": is_there}
        self.write(POLICIES.name, [{"name": n, **kind} for n in names])
        if is_there:
            minute = {"minute_ms": self.number * MINUTE_MS}
            self.write(LOAD_HISTORY.name, [{"broker": n, **minute} for n in names])
        for dead in ("Owned",) if is_there else ("Deleted", "Init"):
            self._records(names, dead)
        self.write(CONFIG_VERSIONS.name, [{"number": self.number, "settings": "{}"}])
        self.look()

    def _records(self, names: list[str], state: str) -> None:
        versions = {"Owned": 1, "Deleted": 2, "Init": 3}
        record = {"version_id": versions[state], "state": state, "destination": "b"}
        rows = [
            {"namespace": f"t/{name}", "bundle": bundles_of(f"t/{name}", 1)[0], **record}
            for name in names
        ]
        self.write(OWNERSHIP_EVENTS.name, rows)
        self.number -= 1  # the job writes both in one batch, or neither
        self.write(BUNDLE_OWNERSHIP.name, rows)

    def write(self, name: str, rows: list[dict[str, Any]]) -> None:
        self.number += 1
        table = next(table for table in TABLES if table.name == name)
        fixed = {"cluster": CLUSTER, "at_ms": 1_000 * self.number, "batch_id": self.number}
        fixed |= {"admin_roles": "[]", "allowed_clusters": "[]"}
        fixed |= {"hash": "crc32", "properties": "{}", "value": "{}", "children": "{}"}
        fixed |= {"advertised_listeners": "{}", "starts": "[]", "writer_epoch": self.writer.epoch}
        metadata = {"query_id": "q", "batch_id": self.number, "now_ms": 1_000 * self.number}
        metadata["writer_epoch"] = self.writer.epoch
        self.writer.write(name, arrow_rows(table, rows, **fixed), self.number, metadata)

    def held_bytes(self) -> int:
        """What the readers hold, without the kept changes, whose number is a setting."""
        self.feed = ChangeFeed(self.root, CLUSTER, KEPT_CHANGES)
        gc.collect()
        return deep_size([self.follower, self.views])


def deep_size(roots: list[object]) -> int:
    """Bytes of all that is reachable, each object once; not of code."""
    seen: set[int] = set()
    found, left = 0, [*roots]
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, type | ModuleType | FunctionType):
            continue
        seen.add(id(one))
        found += sys.getsizeof(one)
        left += gc.get_referents(one)
    return found


@pytest.mark.parametrize(
    ("rounds", "each"), [(2, 400), pytest.param(10, 1_000, marks=pytest.mark.long)]
)
def test_readers_hold_what_those_of_a_fresh_cluster_do(
    tmp_path: Path, rounds: int, each: int
) -> None:
    stay = [f"stay-{number}" for number in range(100)]
    old, new = World(tmp_path / "old"), World(tmp_path / "new")
    for life in range(rounds):
        names = [f"life-{life}-{number}" for number in range(each)]
        old.exist(names, is_there=True)
        old.exist(names, is_there=False)
        assert len(old.feed.after(old.feed.end, 1) or ()) == 0
    for world in (old, new):
        world.exist(stay, is_there=True)
    assert old.follower.view is not None
    assert len(old.follower.view.snapshot.names) == len(stay)
    lived, fresh = old.held_bytes(), new.held_bytes()
    assert lived <= 1.1 * fresh, f"{lived} bytes after a long life, {fresh} of a fresh one"
    again = World.__new__(World)
    again.root = tmp_path / "old"
    again.follower = DeltaFollower(again.root, CLUSTER)
    again.views = TableViews(again.root, CLUSTER)
    again.look()
    assert deep_size([again.follower, again.views]) <= 1.1 * fresh


def test_refused_snapshot_is_not_waited_for_with_ever_more_changes(tmp_path: Path) -> None:
    world = World(tmp_path)
    names = [f"n{number}" for number in range(5)]
    world.exist(names, is_there=True)
    half = {"namespace": "t/n0", "bundle": "t/n0/0x00000000_0x80000000", "destination": "b"}
    world.write(OWNERSHIP_EVENTS.name, [{**half, "version_id": 1, "state": "Owned"}])
    for version in range(2, 26):
        moved = {"namespace": "t/n1", "bundle": bundles_of("t/n1", 1)[0], "destination": "b"}
        row = {**moved, "version_id": version, "state": "Owned"}
        world.write(OWNERSHIP_EVENTS.name, [row])
        world.follower.poll()
        if version % 4 == 0:
            world.follower._reload_at_ms = 0  # noqa: SLF001 (the time that it waits is over)
    assert world.follower.counts.refused
    assert len(world.follower._unpublished) <= 5  # noqa: SLF001 (nothing else tells how much is kept)


def test_names_that_ask_are_remembered_up_to_a_bound() -> None:
    limiter = RateLimiter(5.0, clock=lambda: 0.0)
    for number in range(30_000):
        limiter.allows(f"token-{number}")
    assert len(limiter._buckets) <= 10_000  # noqa: SLF001 (nothing else tells how much is kept)
