"""Batches of the production Machines through the production sink on real tables, cut off anywhere.

A place is a folder of tables and what Kafka's topic `ownership` was sent. A batch is cut off by
saying which of its steps are taken; whoever asks for another one gets a CrashedError.
"""

import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from jobs.adapters.delta import table_writer
from jobs.adapters.delta.table_repair import BEFORE_EVENTS
from jobs.adapters.delta.table_writer import TableWriter
from jobs.adapters.kafka.ownership_publisher import Keyed
from jobs.adapters.spark.batch_sink import EVENTS, ORDER, BatchSink
from jobs.adapters.spark.checkpoint import Manifest
from jobs.adapters.spark.recovery import (
    complete_last_batch,
    raise_versions,
    rebuilt_states,
    send_all_records,
)
from lbcore.balancer.balancer import ClusterBalancer
from lbcore.balancer.batch_context import BalancerState
from lbcore.balancer.effects import REPORT, TOMBSTONE, Effect
from lbcore.config.tree import Config
from lbcore.model.tables import TABLES
from lbcore.ownership.records import parse_record
from tests.support.tables.small_batches import EffectsFrame
from tests.support.worlds.world import CLUSTER

ASIDE_SUFFIX, HALF, SENT = "rows aside", "half of the rows aside", "sent to Kafka"
_DIFFERS = frozenset({"batch_id", "writer_epoch"})


class CrashedError(Exception):
    """The job is gone."""


@dataclass
class Kafka:
    """The topic `ownership`, as whoever reads all of it knows it."""

    newest: dict[bytes, Any] = field(default_factory=dict)
    is_away: bool = False

    def publish(self, messages: Sequence[Keyed]) -> None:
        if self.is_away:
            raise CrashedError
        for key, value in messages:
            if value is None:
                self.newest.pop(key, None)
            else:
                record = parse_record(key, value)
                assert record is not None
                self.newest[key] = _told(record)


class CutOffWriter(TableWriter):
    """Takes the steps that it may; steps: None = all."""

    steps: Collection[str] | None = None

    def write(self, name: str, *arguments: Any) -> DeltaTable | None:
        self._take(name)
        return super().write(name, *arguments)

    def write_ahead(self, owed: Mapping[str, pa.Table]) -> dict[str, Any]:
        if self.steps is not None and HALF in self.steps:
            rest = super().write_ahead(owed)
            file = self._events / table_writer.FOLDER / rest[table_writer.PENDING]["file"]
            assert isinstance(file, Path)
            file.write_bytes(file.read_bytes()[:-9])
        self._take(ASIDE_SUFFIX)
        return super().write_ahead(owed)

    def _take(self, step: str) -> None:
        if self.steps is not None and step not in self.steps:
            raise CrashedError


@dataclass
class Place:
    """Tables and topic; a copy is what a backup of the moment is."""

    root: Path
    kafka: Kafka = field(default_factory=Kafka)

    def copy(self, root: Path) -> "Place":
        shutil.copytree(self.root, root)
        return Place(root, Kafka(dict(self.kafka.newest)))

    def rows(self) -> dict[str, list[str]]:
        """Every table's rows but for what differs between attempts."""
        return {table.name: sorted(map(repr, self._rows(table.name))) for table in TABLES}

    def _rows(self, name: str) -> Iterator[dict[str, Any]]:
        found = pa.table(DeltaTable(str(self.root / name)).scan().read_all()).to_pylist()
        return ({k: v for k, v in row.items() if k not in _DIFFERS} for row in found)

    def write(
        self,
        effects: Sequence[Effect],
        number: int,
        *,
        steps: Collection[str] | None = None,
        query: str = "query",
    ) -> bool:
        """One batch through the sink, by a job that goes on or was started; whether it ended."""
        writer = CutOffWriter(self.root)
        if number == 0 or steps is None:
            writer.claim()
        writer.steps = steps
        self.kafka.is_away = steps is not None and SENT not in steps
        sink = BatchSink(
            writer=writer,
            publisher=self.kafka,
            claimed=Manifest(code_version="c", config_version="f", scorer_groups=1),
            heartbeat_ms=1,
            log=lambda _: None,
        )
        sink.use_query(query)
        try:
            sink(EffectsFrame(effects, CLUSTER), number)
        except CrashedError:
            return False
        finally:
            self.kafka.is_away = False
        return True

    def rebuilt(self, config: Config, restored_ms: int = 0) -> BalancerState | None:
        """What a job makes of the tables that lost its checkpoint; restored_ms: from a backup."""
        writer = TableWriter(self.root)
        writer.claim()
        complete_last_batch(writer)
        if restored_ms:
            raise_versions(writer, restored_ms, {"offsets": {}, "topics": {}})
        chunks = {name: blob for _, name, blob in rebuilt_states(config, writer)}
        send_all_records(writer, self.kafka)
        balancer = ClusterBalancer(cluster=CLUSTER, config=config)
        return balancer.unpack(chunks) if chunks else None


def steps_of(effects: Sequence[Effect]) -> list[str]:
    """Each commit that a batch makes, in order, and what else it leaves behind."""
    kinds = {one.kind for one in effects if one.rows}
    after = [name for name in ORDER if name in kinds and name not in (*BEFORE_EVENTS, EVENTS)]
    aside = [ASIDE_SUFFIX] if after or TOMBSTONE in kinds else []
    return [*(name for name in BEFORE_EVENTS if name in kinds), *aside, EVENTS, *after, SENT]


def crashes_of(effects: Sequence[Effect]) -> list[list[str]]:
    """The steps that were taken, for each crash: before and after every step, and all but one.

    What follows the events is done side by side, so brokers may have been told before or not.
    """
    steps = steps_of(effects)
    at = steps.index(EVENTS) + 1
    one_after_another = [steps[:number] for number in range(len(steps))]
    all_but_one = [[*steps[:at], *(s for s in steps[at:-1] if s != left)] for left in steps[at:-2]]
    told = [[*some, SENT] for some in (*one_after_another, *all_but_one) if EVENTS in some]
    halves = [[*steps[: steps.index(ASIDE_SUFFIX)], HALF]] if ASIDE_SUFFIX in steps else []
    return [*one_after_another, *all_but_one, *told, *halves]


def squashed(batches: Sequence[Sequence[Effect]]) -> list[Effect]:
    """Many batches as one that leaves the same tables behind."""
    keys = {table.name: ("cluster", *table.key) for table in TABLES if table.key}
    rows: dict[str, list[Any]] = {}
    for effect in (one for batch in batches for one in batch):
        rows.setdefault(effect.kind, []).extend(effect.rows)
    for name in rows.keys() & keys.keys():
        newest = {tuple(row.get(key, CLUSTER) for key in keys[name]): row for row in rows[name]}
        rows[name] = list(newest.values())
    rows[REPORT] = rows[REPORT][-1:]
    return [Effect(kind=kind, rows=found) for kind, found in rows.items()]


def with_every_table(effects: Sequence[Effect], needed: Collection[str]) -> list[Effect]:
    """The batch with a row of its own for each table that it had none for; needed: not these."""
    there = {one.kind for one in effects if one.rows}
    more = [table for table in TABLES if table.name not in there and table.name not in needed]
    blank = {"long": 1, "int": 1, "double": 0.5, "boolean": True, "string": "x", "binary": b"x"}
    rows = [
        {c.name: blank.get(c.type, []) for c in table.columns} | {"cluster": CLUSTER}
        for table in more
    ]
    added = [Effect(kind=table.name, rows=[row]) for table, row in zip(more, rows, strict=True)]
    return [*effects, *added]


def _told(record: Any) -> tuple[Any, ...]:
    values = {name: getattr(record, name) for name in record.__slots__}
    return tuple(sorted((k, repr(v)) for k, v in values.items() if k not in _DIFFERS))
