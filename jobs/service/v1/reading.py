"""Reads that take long, in processes of their own, a few at a time.

Decides how many may be under way at once, from the question to the last byte of the answer, so that
reading old tables never holds lookups up and what waits to be sent is bounded. One process is there
before anybody asks, so that a page's first view does not wait for its start, and the other one once
somebody has asked. Source: ours.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, PriorityQueue
from typing import IO, Any, TypeAlias

from jobs.adapters.processes.clocks import boot_ms, wall_ms
from jobs.service.access import Role
from jobs.service.context import AdminContext
from jobs.service.exchange import JSON, RETRY, HttpError, Reply, Request, encode
from jobs.service.reader_process import (
    IDLE_S,
    Read,
    ReaderCounts,
    ReaderGoneError,
    ReaderProcess,
    ReadQuestion,
    ReadRefusedError,
)
from lbcore.model import names

READERS = 2
_WAITING_MAX = 32
_PIECE_BYTES = 1 << 16
_UNAVAILABLE = 503

_Key: TypeAlias = tuple[str, str]
"""Where its tables are, and its name."""
_Task: TypeAlias = "asyncio.Task[tuple[bytes, ...]]"


class Readers:
    """A few processes, and a count of the answers that are being made or sent."""

    def __init__(self) -> None:
        self.under_way = 0
        self.counts = ReaderCounts()
        self._asked_ms = -round(IDLE_S * 1_000)
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="ballast-reads")
        self.idle: PriorityQueue[ReaderProcess] = PriorityQueue()
        for number in range(READERS):
            self.idle.put(ReaderProcess(self.counts, is_staying=number == 0))

    def stand_ready(self) -> None:
        """Start the process that stays."""
        self._start(self.idle.get())

    async def ask(self, question: ReadQuestion) -> IO[bytes]:
        """The answer of the next process that is free."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._ask, question)

    def _ask(self, question: ReadQuestion) -> IO[bytes]:
        process = self.idle.get()
        try:
            return process.ask(question)
        finally:
            self.idle.put(process)
            self._start_others()

    def _start_others(self) -> None:
        """Start whoever has ended, as somebody looks again who will ask for more than one thing."""
        asked_ms, self._asked_ms = self._asked_ms, boot_ms()
        if self._asked_ms - asked_ms < IDLE_S * 1_000:
            return
        found: list[ReaderProcess] = []
        with suppress(Empty):
            while True:
                found.append(self.idle.get_nowait())
        for process in found:
            self._start(process)

    def _start(self, process: ReaderProcess) -> None:
        with suppress(OSError):  # whoever asks is told
            process.start()
        self.idle.put(process)


readers = Readers()


class _Answer:
    """An answer in its file; under way until it has been read, or is dropped."""

    def __init__(self, file: IO[bytes]) -> None:
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
    """What `read` makes of the cluster's tables, as JSON; raises HttpError 503 when it can't be."""
    return Reply(headers=(JSON,), parts=await _made(context, read))


async def _made(context: AdminContext, read: Read) -> _Answer:
    if readers.under_way >= _WAITING_MAX:
        raise HttpError(503, "Too many reads of the tables are under way", RETRY)
    question = ReadQuestion(read, context.views.root, context.cluster)
    readers.under_way += 1
    try:
        return _Answer(await readers.ask(question))
    except BaseException as error:
        readers.under_way -= 1
        if isinstance(error, ReadRefusedError):
            headers = (RETRY,) if error.status == _UNAVAILABLE else ()
            raise HttpError(error.status, error.reason, *headers) from None
        if isinstance(error, ReaderGoneError | OSError):
            raise HttpError(503, "The tables can't be read at the moment", RETRY) from None
        raise


@dataclass(frozen=True, slots=True)
class _Reading:
    """A read that is under way, or was. of_ms: what it says is at least as new, by the wall."""

    of_ms: int
    parts: "_Task"


class Kept:
    """What was read last of each cluster, which is read anew only after `keep_s`, or when asked to.

    However many ask, one read is under way at a time: they all get what it gave, or why it failed.
    By the clock that counts suspension: what was read before is not of now.
    """

    def __init__(self, keep_s: float) -> None:
        self._keep_ms = round(keep_s * 1_000)
        self._made: dict[_Key, tuple[int, int, tuple[bytes, ...]]] = {}
        self._making: dict[tuple[asyncio.AbstractEventLoop, _Key], _Reading] = {}

    async def reply(
        self,
        context: AdminContext,
        read: Callable[[int], Read],
        more: Mapping[str, Any],
        since_ms: int = 0,
    ) -> Reply:
        """What the read makes of this cluster, `keep_s` old at most, and `more` fields.

        read: makes a question of the moment at which it is asked, ms since 1970. since_ms: an
        answer that was begun before, by the wall, will not do. Raises HttpError 503 if it can't be.
        """
        *begin, last = await self._parts(context, read, min(since_ms, wall_ms()))
        end = last.removesuffix(b"}") + b"," + encode(dict(more)).removeprefix(b"{")
        return Reply(headers=(JSON,), parts=(*begin, end))

    async def _parts(
        self, context: AdminContext, read: Callable[[int], Read], since_ms: int
    ) -> tuple[bytes, ...]:
        key = (str(context.views.root), context.cluster)
        here = (asyncio.get_running_loop(), key)
        while True:
            made_ms, of_ms, parts = self._made.get(key, (-self._keep_ms, 0, ()))
            if of_ms >= since_ms and boot_ms() - made_ms < self._keep_ms:
                return parts
            reading = self._making.get(here)
            if reading is None:
                now_ms = wall_ms()
                task = asyncio.create_task(self._read(key, context, read(now_ms), now_ms))
                reading = self._making[here] = _Reading(now_ms, task)
                task.add_done_callback(partial(self._ended, here))
            if reading.of_ms >= since_ms:
                return await asyncio.shield(reading.parts)  # others go on waiting when one leaves
            await asyncio.wait((reading.parts,))

    def _ended(self, where: tuple[asyncio.AbstractEventLoop, _Key], task: "_Task") -> None:
        del self._making[where]
        if not task.cancelled():
            task.exception()  # that nobody waits any more is no error

    async def _read(
        self, key: _Key, context: AdminContext, read: Read, now_ms: int
    ) -> tuple[bytes, ...]:
        parts = tuple(await _made(context, read))
        self._made[key] = (boot_ms(), now_ms, parts)
        return parts


def require(request: Request, context: AdminContext, role: Role, tenant: str = "*") -> None:
    """Raises HttpError 403 when the caller has not this role on the tenant ("*": the cluster)."""
    if not request.caller.may(role, context.cluster, tenant):
        where = "the cluster" if tenant == "*" else f"tenant {tenant}"
        raise HttpError(403, f"{request.caller.name} is not {role.name.lower()} of {where}")


def tenant_of(name: str) -> str:
    """The tenant in a namespace's or a bundle's name, "*" for none."""
    return names.tenant_of(name) or "*"
