"""Jobs that claim the tables at once, in threads, and how each of them fares."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jobs.adapters.delta.table_writer import FencedError, TableWriter
from tests.support.tables.small_batches import batch, record, sink_on

WON, LOST = "won", "lost"


def race(*starts: Callable[[], TableWriter]) -> list[TableWriter | None]:
    """Let all begin at once; the writers that have claimed, None for who was refused."""
    together = threading.Barrier(len(starts))

    def begin(start: Callable[[], TableWriter]) -> TableWriter | None:
        together.wait()
        try:
            return start()
        except FencedError as error:
            assert_says_so(error)
            return None

    with ThreadPoolExecutor(len(starts)) as pool:
        return list(pool.map(begin, starts))


def started(root: str | Path, after_s: float = 0.0) -> Callable[[], TableWriter]:
    """A job's start on the tables; after_s: that much later than the others."""

    def start() -> TableWriter:
        time.sleep(after_s)
        writer = TableWriter(root)
        writer.claim()
        return writer

    return start


def assert_says_so(error: FencedError) -> None:
    lines = str(error).splitlines()
    assert [line.split(":")[0].strip() for line in lines] == ["error", "why", "next"]
    assert "another balance_cluster job" in lines[1]


def ends(writers: Sequence[TableWriter | None], number: int) -> Counter[str]:
    """How each fares with its first batch; who was refused has none."""
    found = Counter({LOST: sum(writer is None for writer in writers)})
    for writer in [one for one in writers if one is not None]:
        sink = sink_on(writer)
        sink.use_query(f"query-{number}-{writer.epoch}")
        try:
            sink(batch(record("t/n/a", number)), 0)
        except FencedError as error:
            assert_says_so(error)
            found[LOST] += 1
        else:
            found[WON] += 1
    return found
