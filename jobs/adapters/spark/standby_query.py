"""What a standby does until it is needed: a query like the job's own, whose effects go nowhere.

Decides that it reads the same topics from now on, little at a time, so that Spark's plans are
compiled, Kafka's consumers known and the Python workers up when the job's own query begins: of the
seconds between two jobs most went into these. It has a checkpoint of its own, which is thrown
away. A rehearsal that fails is begun again, and ends nothing else. Source: ours.
"""

import contextlib
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from jobs.adapters.spark.stream import Beginning, start_query
from jobs.console import first_line
from lbcore.config.tree import Config

NAME = "rehearsal"
TRIGGER_MS = 10_000
"""Spark ends a Python worker that has had no work for a minute."""

MESSAGES_MAX = 100
"""Of a batch; what it leaves behind nobody needs."""

_POLL_S = 0.1
_AGAIN_S = 10.0


class StandbyQuery:
    """A rehearsal that begins by itself, in a thread; `stop` before the session ends."""

    def __init__(
        self,
        session: SparkSession,
        config: Config,
        kafka: Mapping[str, str],
        *,
        folder: Path,
        log: Callable[[Mapping[str, Any]], None],
    ) -> None:
        """kafka: options of Spark's source. folder: for what can be lost; log: for failures."""
        pipeline = replace(
            config.pipeline, trigger_ms=TRIGGER_MS, max_offsets_per_trigger=MESSAGES_MAX
        )
        self._session, self._config = session, replace(config, pipeline=pipeline)
        self._kafka, self._folder, self._log = kafka, folder, log
        self._ending = threading.Event()
        self._tried = threading.Event()
        self._is_warm = False
        self._thread = threading.Thread(target=self._run, name=NAME, daemon=True)
        self._thread.start()

    def wait(self, until: threading.Event) -> bool:
        """Wait for the first batch, a failure or `until`; whether there was a batch."""
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
                self._log({"event": NAME, "failed": first_line(error)})
            finally:
                self._tried.set()
            self._ending.wait(_AGAIN_S)

    def _rehearse(self) -> None:
        """One query, until it ends by a failure, which this raises, or is told to."""
        self._folder.mkdir(parents=True, exist_ok=True)
        checkpoint = Path(tempfile.mkdtemp(prefix=f"{NAME}-", dir=self._folder))
        beginning = Beginning(
            kafka=self._kafka, checkpoint=checkpoint, starting_offsets="latest", states=()
        )
        try:
            query = start_query(self._session, self._config, beginning, self._take, name=NAME)
            while not self._ending.wait(_POLL_S) and query.isActive:
                pass
            # a batch that is cut off takes its Python workers with it
            while query.isActive and query.status["isTriggerActive"]:
                time.sleep(_POLL_S)
            if not self._ending.is_set() and (failure := query.exception()) is not None:
                raise failure
            query.stop()
        finally:
            with contextlib.suppress(OSError):
                shutil.rmtree(checkpoint)

    def _take(self, frame: DataFrame, batch_id: int) -> None:
        del batch_id
        frame.toArrow()  # an operator's state is kept only where its rows are read
        self._is_warm = True
        self._tried.set()
