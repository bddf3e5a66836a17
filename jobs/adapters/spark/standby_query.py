"""What a standby does until it is needed: a query like the job's own, whose effects go nowhere.

Decides that it reads the same topics from now on, little at a time, so that Spark's plans are
compiled, Kafka's consumers known and the Python workers up when the job's own query begins: of the
seconds between two jobs most went into these. Beginning a query is rehearsed itself, some times in
a row from the same checkpoint. That one is its own, and is thrown away. A rehearsal that fails is
begun again, and ends nothing else. Source: ours.
"""

import contextlib
import math
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession

from jobs.adapters.processes.own_folder import own_folder
from jobs.adapters.spark.fatal_errors import java_line
from jobs.adapters.spark.kafka_source import LATEST
from jobs.adapters.spark.stream import Beginning, start_query
from lbcore.config.tree import Config

NAME = "rehearsal"
TRIGGER_MS = 10_000
"""Spark ends a Python worker that has had no work for a minute."""

DRILLS, DRILL_BATCHES, DRILL_TRIGGER_MS = 3, 3, 1_000
"""How often the query is begun beforehand, for how many batches, and how soon these follow: Java
compiles what has run some hundred times, so the fourth beginning is half a second quicker."""

MESSAGES_MAX = 100
"""Of a batch; what it leaves behind nobody needs."""

_POLL_S = 0.1
_AGAIN_S = 10.0
_GAP_S = 10.0
"""For so long a moment between two batches of a drill is waited for: where each takes longer than
the trigger there is none."""


class StandbyQuery:
    """A rehearsal that begins by itself, in a thread; `stop` before the session ends."""

    drills: ClassVar[int] = DRILLS

    def __init__(
        self,
        session: SparkSession,
        config: Config,
        connection: str,
        *,
        folder: Path,
        log: Callable[[Mapping[str, Any]], None],
    ) -> None:
        """connection: from `connection_text`. folder: for what can be lost; log: for failures."""
        self._session, self._config = session, config
        self._connection, self._folder, self._log = connection, folder, log
        self._own: Path | None = None
        self._batches = 0
        self._ending = threading.Event()
        self._tried = threading.Event()
        self._is_warm = False
        self._thread = threading.Thread(target=self._run, name=NAME, daemon=True)
        self._thread.start()

    def wait(self, until: threading.Event) -> bool:
        """Wait for a batch after the drills, a failure or `until`; whether there was a batch."""
        while not self._tried.wait(_POLL_S) and not until.is_set():
            pass
        return self._is_warm

    def stop(self, *, wait_s: float = 0.0) -> None:
        """Let it end after the batch that it is at, whose workers then serve the job's own query.

        wait_s: for at most how long this waits until it has ended.
        """
        self._ending.set()
        self._thread.join(wait_s)

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                self._rehearse()
            except Exception as error:  # noqa: BLE001 (whatever it is, the standby still stands by)
                if self._ending.is_set():
                    return
                self._log({"event": NAME, "failed": java_line(error)})
            finally:
                self._tried.set()
            self._ending.wait(_AGAIN_S)

    def _rehearse(self) -> None:
        """Drills, then one query, until it ends by a failure, which this raises, or is told to."""
        self._own = self._own or own_folder(NAME, self._folder)
        checkpoint = Path(tempfile.mkdtemp(dir=self._own))
        try:
            for _ in range(self.drills):
                with self._query(checkpoint, DRILL_TRIGGER_MS, gap_s=_GAP_S) as query:
                    self._watch(query, lambda: self._batches >= DRILL_BATCHES)
                if self._ending.is_set():
                    return
            with self._query(checkpoint, TRIGGER_MS, gap_s=math.inf) as query:
                self._watch(query, self._note_warm)
        finally:
            # what Spark writes there yet, for up to a minute, goes with this process
            shutil.rmtree(checkpoint, ignore_errors=True)

    @contextlib.contextmanager
    def _query(self, checkpoint: Path, trigger_ms: int, gap_s: float) -> Iterator[Any]:
        """The query with this trigger; it ends between two batches, if such a moment comes soon."""
        pipeline = replace(
            self._config.pipeline, trigger_ms=trigger_ms, max_offsets_per_trigger=MESSAGES_MAX
        )
        beginning = Beginning(
            connection=self._connection, checkpoint=checkpoint, starting_offsets=LATEST, states=()
        )
        self._batches = 0
        config = replace(self._config, pipeline=pipeline)
        query = start_query(self._session, config, beginning, self._take, name=NAME)
        yield query
        # a batch that is cut off takes its Python workers with it
        latest_s = time.monotonic() + gap_s
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < latest_s:
            time.sleep(_POLL_S)
        query.stop()

    def _watch(self, query: Any, is_enough: Callable[[], bool]) -> None:
        """Until it is enough, told to end, or the query's failure, which this raises."""
        while not self._ending.wait(_POLL_S) and query.isActive and not is_enough():
            pass
        if not self._ending.is_set() and (failure := query.exception()) is not None:
            raise failure

    def _note_warm(self) -> bool:
        if self._batches:
            self._is_warm = True
            self._tried.set()
        return False

    def _take(self, frame: DataFrame, batch_id: int) -> None:
        del batch_id
        frame.toArrow()  # an operator's state is kept only where its rows are read
        self._batches += 1
