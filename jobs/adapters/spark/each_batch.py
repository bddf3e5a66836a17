"""The callable that Spark runs with each batch: the sink, and a turn of upkeep after it."""

from dataclasses import dataclass
from typing import Any

from jobs.adapters.delta.table_upkeep import TableUpkeep
from jobs.adapters.processes.clocks import wall_ms
from jobs.adapters.spark.batch_sink import EVENTS, BatchSink
from jobs.adapters.spark.checkpoint import Resumption, SeenVersion, query_id


@dataclass(slots=True)
class EachBatch:
    """Called with one batch after another, as `foreachBatch` does.

    ended: the last batch that it was called with. The sink is told the query's id with its first
    batch: only then the checkpoint has it.
    """

    sink: BatchSink
    resumption: Resumption
    upkeep: TableUpkeep
    seen: SeenVersion
    ended: int = -1

    def __call__(self, frame: Any, batch_id: int) -> None:
        """Make the batch durable."""
        if not self.sink.identity.query_id:
            self.sink.use_query(query_id(self.resumption.checkpoint))
        self.sink(frame, batch_id)
        self.seen.note(self.sink.writer.version(EVENTS))
        done = self.upkeep(wall_ms())
        if done is not None:
            self.sink.log(done)
        self.ended = batch_id
