"""A world that judges itself after each batch, and whose job can die at any point of one.

What must hold: every batch is computed without an exception, also into the tables' columns; its
records keep the invariants and their versions have no gaps; whoever follows the events knows what
the current table says; what the tables say, a rebuild brings back; a repeated batch comes to the
same effects. A crash before the commit of the events leaves nothing of a batch, one after it all of
it: that the real tables keep this promise at each commit is tested on them.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from jobs.adapters.delta_tables import arrow_schema
from lbcore.config.tree import Config
from lbcore.machine import Step
from lbcore.machines.effects import (
    REPORT,
    RESEND,
    TOMBSTONE,
    Effect,
    pack_effect,
    table_of,
    unpack_columns,
    unpack_report,
)
from lbcore.machines.group_update import GroupUpdate
from lbcore.machines.tracks import RawMessage
from lbcore.machines.work import BalancerState
from lbcore.model.bundles import Bundle
from lbcore.model.hashing import HashFunction
from lbcore.ownership.records import State
from lbcore.route.bundles import BundleRoute
from lbcore.route.snapshot import Snapshot
from lbcore.wire.messages import Position
from tests.rebuilt import RebuiltWorld
from tests.world import CLUSTER, PARTITIONS

CRASHES = ("before, repeated", "before, rebuilt", "after, repeated", "after, rebuilt")
KEPT_MESSAGES = 2_000


class FuzzedWorld(RebuiltWorld):
    """A RebuiltWorld with a reader. crash: how the job dies in its next batch, of CRASHES or ""."""

    def __init__(self, config: Config, brokers: int, *, seed: int) -> None:
        self.reader = Snapshot(cluster=CLUSTER)
        self.hashes: dict[str, HashFunction] = {}
        self.crash = ""
        super().__init__(config, brokers, seed=seed, again_one_in=7)

    def step_job(self) -> None:
        """One micro-batch, in which the job may die."""
        crash, self.crash = self.crash, ""
        before = (self.state, dict(self.scored), dict(self.read))
        is_lost = crash.startswith("before")
        self._is_lost, self._answered = is_lost, None
        super().step_job()
        if is_lost:
            self.state, self.scored = before[:2]
            self.read.clear()
            self.read.update(before[2])
        if crash.endswith("rebuilt"):
            self.rebuild_job()
        elif crash:
            self.restart_job()
        if not is_lost and self.state is not None:
            self._judge()

    def append_raw(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        """Put any bytes into the log, as anybody may."""
        place = (topic, self.random.randrange(PARTITIONS) if topic != "commands" else 0)
        position = Position(
            topic=topic,
            partition=place[1],
            offset=len(self.log[place]),
            timestamp_ms=self.now_ms + self.log_ahead_ms,
        )
        self.log[place].append(RawMessage(position=position, key=key, value=value))

    def step_balancer(self, updates: Sequence[GroupUpdate]) -> Step[BalancerState, Effect]:
        """The second operator's part of a batch, and its rows as columns of the tables."""
        step = super().step_balancer(updates)
        for effect in step.effects:
            check_columns(effect)
        return step

    def _take_effects(self, effects: Iterable[Effect]) -> None:
        if self._is_lost:
            return
        effects = list(effects)
        super()._take_effects(effects)
        for effect in effects:
            if effect.kind == "namespaces":
                for row in effect.rows:
                    self._follow_namespace(row)
            elif effect.kind == "ownership_events":
                self.reader = self.reader.with_routes(map(route_of, effect.rows))
        self.reader = self.reader.with_namespaces(self.hashes)

    def _follow_namespace(self, row: Mapping[str, Any]) -> None:
        if row["is_deleted"]:
            self.hashes.pop(row["namespace"], None)
        else:
            self.hashes[row["namespace"]] = HashFunction(row["hash"])

    def _judge(self) -> None:
        """Who follows the events knows what the current table says, and that is sound."""
        assert not self.reader.unsound, self.reader.unsound
        followed = {
            route.bundle: (route.version_id, route.state)
            for found in self.reader.namespaces.values()
            for route in found.live
        }
        current = {
            name: (row["version_id"], State(row["state"]))
            for name, row in self.current.items()
            if row["state"] not in (State.DELETED.value, State.INIT.value)
            and Bundle.parse(name).namespace in self.hashes
        }
        assert followed == current, set(followed.items()) ^ set(current.items())


def check_columns(effect: Effect) -> None:
    """The effect's rows, packed as they travel, fit the columns of their table."""
    blob = pack_effect(effect)
    if effect.kind == REPORT:
        for report in unpack_report(blob):
            json.dumps(report, allow_nan=False).encode()
        return
    columns = unpack_columns(effect.kind, blob)
    if effect.kind in (RESEND, TOMBSTONE):
        return
    for column in arrow_schema(table_of(effect.kind)):
        if column.name in columns:
            made = pa.array(columns[column.name], type=column.type)
            assert column.nullable or not made.null_count, (effect.kind, column.name)


def route_of(row: Mapping[str, Any]) -> BundleRoute:
    """A row of events as a follower reads it."""
    bundle = Bundle.parse(row["bundle"])
    return BundleRoute(
        bundle=row["bundle"],
        namespace=row["namespace"],
        lower=bundle.range.lower,
        upper=bundle.range.upper,
        state=State(row["state"]),
        version_id=row["version_id"],
        source=row["source"],
        destination=row["destination"],
    )
