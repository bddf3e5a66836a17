"""Long reads of the tables, in a pool of two processes beside the service.

At most 32 are under way at once, from the question to the last byte of the answer. Nothing that a
process does can hold up the event loop, which has another interpreter and another heap. An answer
is whole before anybody sees its first byte: it waits in a file, so a client that reads slowly holds
no process. The pool is replaced after 500 answers, to free the memory that they used.
"""

import asyncio
import atexit
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any, TypeAlias

from jobs.adapters.delta.table_location import TablePlace
from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.delta.table_scan import block_pandas
from jobs.adapters.processes.clocks import boot_ms, wall_ms
from jobs.adapters.processes.json_log import log_json_lines
from jobs.console import CommandError, in_one_line
from jobs.service.context import AdminContext
from jobs.service.exchange import JSON, RETRY, HttpError, Reply, Request, encode
from jobs.service.routes import Query, Route, reading
from lbcore.config.tree import Config
from lbcore.model import names
from lbcore.route.slices import write_slices

logger = logging.getLogger(__name__)

READERS = 2
ANSWERS_MAX = 500
_WAITING_MAX = 32
_PIECE_BYTES = 1 << 16
_NICE = 5

Read: TypeAlias = Callable[[TableReader], Any]
"""Makes a value for JSON, as `write_slices` takes it, of the tables; can be pickled."""

_Task: TypeAlias = "asyncio.Task[tuple[int, tuple[bytes, ...]]]"
"""Result: when it was made, by the boot clock, and the answer's parts."""


class Readers:
    """The pool, made when first needed or by `stand_ready`, remade when it breaks.

    failures: times that a process ended while it was wanted.
    """

    def __init__(self) -> None:
        self.under_way = 0
        self.failures = 0
        self._answers = 0
        self._pool: ProcessPoolExecutor | None = None

    def stand_ready(self) -> None:
        """Start a process before anybody asks: its start takes longer than most answers."""
        self._running().submit(os.getpid)

    def close(self) -> None:
        """End the processes at once: Python would wait at its exit for reads under way."""
        for process in multiprocessing.active_children():
            process.kill()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    async def ask(self, read: Read, root: TablePlace, cluster: str) -> tuple[IO[bytes], str]:
        """Return what `read` makes of a cluster's tables: JSON in a file, and its digest.

        Repeated once if the pool breaks. The file is temporary.

        Raises HttpError, BrokenProcessPool, OSError where no file can be made.
        """
        try:
            return await self._ask(read, root, cluster)
        except BrokenProcessPool:
            return await self._ask(read, root, cluster)

    async def _ask(self, read: Read, root: TablePlace, cluster: str) -> tuple[IO[bytes], str]:
        answer: IO[bytes] = NamedTemporaryFile(prefix="ballast-answer-")  # noqa: SIM115 (the caller closes it)
        pool = self._running()
        self._answers += 1
        if self._answers % ANSWERS_MAX == 0:
            self._pool = None  # Python 3.10 has no max_tasks_per_child
        try:
            made = pool.submit(_answer, read, root, cluster, Path(answer.name))
            digest = await asyncio.wrap_future(made)
        except BaseException as error:
            answer.close()
            if isinstance(error, BrokenProcessPool) and pool is self._pool:
                self.failures += 1
                self._pool = None
            raise
        finally:
            if pool is not self._pool:
                pool.shutdown(wait=False)
        return answer, digest

    def _running(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                READERS,
                multiprocessing.get_context("spawn"),
                initializer=_begin,
            )
        return self._pool


readers = Readers()
atexit.register(readers.close)


def _begin() -> None:
    """Prepare a process of the pool.

    It is less urgent than lookups, and ends with its parent.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its parent ends it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.nice(_NICE)
    block_pandas()
    log_json_lines()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    # a process of the pool holds both ends of its pipes, so it would wait for a killed parent
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)


def _answer(read: Read, root: TablePlace, cluster: str, file: Path) -> str:
    """Write an answer into a file and return its digest; runs in the pool."""
    digest = blake2b(digest_size=8)
    try:
        reader = TableReader(root, cluster)
        with file.open("wb") as answer:
            for part in write_slices(read(reader)):
                digest.update(part)
                answer.write(part)
    except HttpError:
        raise
    except CommandError as error:
        logger.warning("read_refused", extra={"fields": {"error": in_one_line(error)}})
        raise HttpError(503, error.what, RETRY) from None
    except Exception as error:
        logger.exception("read_failed")
        raise HttpError(500, f"{type(error).__name__}: see the log of the service") from None
    return digest.hexdigest()


class _AnswerParts:
    """An answer in its file; under way until it has been read, or is dropped."""

    def __init__(self, file: IO[bytes], digest: str) -> None:
        self.digest = digest
        self._file = file

    def __iter__(self) -> Iterator[bytes]:
        """Its parts, each short, once."""
        while part := self._file.read(_PIECE_BYTES):
            yield part

    def __del__(self) -> None:
        """Make room for another."""
        self._file.close()
        readers.under_way -= 1


async def in_background(context: AdminContext, read: Read) -> Reply:
    """Return the result of `read` on the cluster's tables, as JSON.

    Raises HttpError: what `read` raises, or 503 if it can't be read.
    """
    parts = await _made(context, read)
    return Reply(headers=(JSON,), parts=parts, tag=parts.digest)


async def _made(context: AdminContext, read: Read) -> _AnswerParts:
    if readers.under_way >= _WAITING_MAX:
        raise HttpError(503, "Too many reads of the tables are under way", RETRY)
    readers.under_way += 1
    try:
        return _AnswerParts(*await readers.ask(read, context.views.root, context.cluster))
    except BaseException as error:
        readers.under_way -= 1
        if isinstance(error, BrokenProcessPool | OSError):
            raise HttpError(503, "The tables can't be read at the moment", RETRY) from None
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQuestion:
    """A request to the tables, for a process of the pool.

    config: of the service. values: of the path's parts and of the route's queries, by their names.
    """

    config: Config
    values: Mapping[str, Any]
    now_ms: int

    def __getitem__(self, name: str) -> Any:
        """A part or a query."""
        return self.values[name]


def question_of(request: Request, context: AdminContext, queries: Iterable[Query]) -> TableQuestion:
    """Read the queries of a request; raises HttpError 400."""
    values = {**request.params, **{one.name: one.of(request) for one in queries}}
    return TableQuestion(config=context.config, values=values, now_ms=wall_ms())


def table_route(
    path: str,
    read: Callable[[TableQuestion, TableReader], Any],
    summary: str,
    answer: Any,
    check: Callable[[TableQuestion], object] = lambda _: None,
    **more: Any,
) -> Route:
    """A route whose answer is read of the tables.

    check: raises HttpError for a question that no table can answer, before one is read.
    """
    queries = more.get("queries", ())

    async def handle(request: Request, context: AdminContext) -> Reply:
        asked = question_of(request, context, queries)
        check(asked)
        return await in_background(context, partial(read, asked))

    return reading(path, handle, summary, answer, **more)


class ReadCache:
    """Cache of the last read of each cluster, renewed after `keep_s`.

    One read is under way at a time, whatever the number of callers: all get its result or its
    error. Ages include time in suspension.
    """

    def __init__(self, keep_s: float) -> None:
        self._keep_ms = round(keep_s * 1_000)
        self._newest: dict[tuple[str, str], _Task] = {}

    async def reply(
        self,
        context: AdminContext,
        read: Callable[[int], Read],
        more: Mapping[str, Any],
    ) -> Reply:
        """Return the read of this cluster, at most `keep_s` old, and the `more` fields.

        read: makes a query for the moment at which it is asked, ms since 1970. Raises HttpError
        503 if it can't be read.
        """
        key = (str(context.views.root), context.cluster)
        task = self._newest.get(key)
        if task is None or not self._is_usable(task):
            task = asyncio.create_task(_made_at(context, read(wall_ms())))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._newest[key] = task
        _, (*begin, last) = await asyncio.shield(task)  # others go on waiting when one leaves
        end = last.removesuffix(b"}") + b"," + encode(dict(more)).removeprefix(b"{")
        return Reply(headers=(JSON,), parts=(*begin, end))

    def _is_usable(self, task: _Task) -> bool:
        """True while a read of this event loop is under way, or for `keep_s` after it."""
        if not task.done():
            return task.get_loop() is asyncio.get_running_loop()
        is_made = not task.cancelled() and task.exception() is None
        return is_made and boot_ms() - task.result()[0] < self._keep_ms


async def _made_at(context: AdminContext, read: Read) -> tuple[int, tuple[bytes, ...]]:
    """Return when it was made (boot clock), and the parts of the answer."""
    parts = tuple(await _made(context, read))
    return boot_ms(), parts


def tenant_of(name: str) -> str:
    """The tenant in a namespace's or a bundle's name, "*" for none."""
    return names.tenant_of(name) or "*"
