"""What Spark calls with each batch: the sink, a turn of upkeep after it, and a rest.

Decides until when a batch is held back; by how much it may be is the balancer's (`balancer.rest`).
Source: ours.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jobs.adapters.delta.table_upkeep import TableUpkeep
from jobs.adapters.kafka.rest import Rest
from jobs.adapters.processes.clocks import wall_ms
from jobs.adapters.spark.batch_sink import EVENTS, BatchSink
from jobs.adapters.spark.checkpoint import Resumption, SeenVersion, query_id


@dataclass(slots=True)
class EachBatch:
    """Called with one batch after another, as `foreachBatch` does; trigger_ms: Spark's.

    ended: the last batch that it was called with; rested: and for how many ms it was held back.
    The sink is told the query's id with its first batch: only then the checkpoint has it.
    """

    sink: BatchSink
    resumption: Resumption
    upkeep: TableUpkeep
    rest: Rest
    seen: SeenVersion
    trigger_ms: int
    ended: int = -1
    rested: Mapping[int, int] = field(default_factory=dict)

    def __call__(self, frame: Any, batch_id: int) -> None:
        """Make the batch durable, and hold it back for as long as all clusters allow."""
        began_s = time.monotonic()
        if not self.sink.identity.query_id:
            self.sink.use_query(query_id(self.resumption.checkpoint))
        self.sink(frame, batch_id)
        self.seen.note(self.sink.writer.version(EVENTS))
        done = self.upkeep(wall_ms())
        if done is not None:
            self.sink.log(done)
        rested_s = self.rest.wait(self._until_s(began_s), self.sink.ends)
        self.rested = {batch_id: round(rested_s * 1000)}
        self.ended = batch_id

    def _until_s(self, began_s: float) -> float:
        """Until when this batch may be held back, by `time.monotonic`.

        Spark begins the next one at once where the trigger has passed: so what the batch may wait
        beyond it is counted from the batch's own time. began_s: when the sink was called.
        """
        allowed_ms = min(self.sink.rests_ms.values(), default=0)
        if not allowed_ms:
            return began_s
        now_s, trigger_s = time.monotonic(), self.trigger_ms / 1000
        told_s = (wall_ms() - self.sink.batch_ms) / 1000
        since_s = min(max(told_s, now_s - began_s), now_s - began_s + trigger_s)  # clocks may turn
        return now_s - since_s + trigger_s + allowed_ms / 1000
