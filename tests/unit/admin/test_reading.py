"""Reads in a process of their own, and how long what they made is kept."""

import asyncio
import gc
import json
import os
import signal
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.delta.table_place import table_place
from jobs.adapters.delta.table_reader import TableReader
from jobs.service.context import AdminContext
from jobs.service.exchange import HttpError
from jobs.service.reader_process import (
    Read,
    ReaderCounts,
    ReaderProcess,
    ReadQuestion,
    ReadRefusedError,
)
from jobs.service.v1 import reading
from jobs.service.v1.reading import Kept, Readers, in_background, readers
from tests.support.admin.admin_world import make_context, write_tables
from tests.support.processes.agent_talk import until

LARGE = 100_000
LARGE_BYTES = 300_000_000
KEPT_BYTES = 100_000_000
_kept: list[bytes] = []


def read_value(value: int, reader: TableReader) -> dict[str, Any]:
    return {"value": value, "cluster": reader.cluster}


def read_much(reader: TableReader) -> dict[str, Any]:
    return {"bundles": (reader.cluster for _ in range(LARGE))}


def refuse(reader: TableReader) -> None:
    raise ReadRefusedError(404, f"nothing in {reader.cluster}")


def read_values(reader: TableReader) -> dict[str, Any]:
    rows = reader.newest().rows
    return {"rows": len(rows), "has_pandas": "pandas" in sys.modules}


def fail(reader: TableReader) -> None:
    raise KeyError(reader.cluster)


def read_into_memory(_reader: TableReader) -> dict[str, int]:
    return {"bytes": len(b"1" * LARGE_BYTES)}


def keep_in_memory(_reader: TableReader) -> dict[str, int]:
    _kept.append(b"1" * KEPT_BYTES)
    return {"bytes": ReaderCounts(pids={os.getpid()}).memory_bytes()[0]}


def pid_that_answers(context: AdminContext) -> int:
    """Of the process that answers the next question."""
    asyncio.run(in_background(context, partial(read_value, 1)))
    process = readers.idle.get()
    readers.idle.put(process)
    assert process.pid is not None
    return process.pid


def one_that_has_answered(root: Path) -> tuple[ReaderProcess, ReadQuestion, ReaderCounts]:
    """A process, what it was asked, and its counts."""
    write_tables(root)
    counts = ReaderCounts()
    process = ReaderProcess(counts)
    question = ReadQuestion(partial(read_value, 1), table_place(str(root)), "c1")
    process.ask(question).close()
    return process, question, counts


@dataclass
class Asked:
    """A kept answer and who asks for it; each read gives how many there were before it."""

    kept: Kept
    context: AdminContext
    reads: int = 0

    def question(self, _now_ms: int) -> Read:
        self.reads += 1
        return partial(read_value, self.reads)

    async def ask(self, since_ms: int = 0) -> int:
        reply = await self.kept.reply(self.context, self.question, {"more": 1}, since_ms)
        found = json.loads(b"".join(reply.parts or ()))
        assert found == {"value": found["value"], "cluster": "c1", "more": 1}
        return int(found["value"])


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    write_tables(tmp_path)
    return Asked(Kept(3_600.0), make_context(tmp_path))


def test_kept_value_is_given_for_its_time_and_not_after_a_suspension(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = [1_000_000]
    monkeypatch.setattr(reading, "boot_ms", lambda: now_ms[0])
    assert [asyncio.run(asked.ask()) for _ in range(2)] == [1, 1]
    now_ms[0] += 7_200_000
    assert [asyncio.run(asked.ask()) for _ in range(2)] == [2, 2]


def test_answer_that_is_older_than_wanted_is_made_anew(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = [1_000_000]
    monkeypatch.setattr(reading, "wall_ms", lambda: now_ms[0])
    assert asyncio.run(asked.ask(1_000_000)) == 1
    assert asyncio.run(asked.ask(1_000_000)) == 1
    now_ms[0] += 1
    assert asyncio.run(asked.ask(1_000_001)) == 2
    assert asyncio.run(asked.ask(9_000_000)) == 2  # nothing is of a time that has not come
    assert asyncio.run(asked.ask()) == 2


def test_one_read_answers_all_who_ask_meanwhile_and_another_those_who_want_a_newer_one(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = [1_000_000]
    monkeypatch.setattr(reading, "wall_ms", lambda: now_ms[0])

    async def many() -> list[int]:
        early = [asyncio.create_task(asked.ask(since)) for since in (0, 1_000_000, 1_000_000)]
        await asyncio.sleep(0)
        early[0].cancel()
        now_ms[0] += 10
        late = [asyncio.create_task(asked.ask(1_000_005)) for _ in range(3)]
        return list(await asyncio.gather(*early[1:], *late))

    assert asyncio.run(many()) == [1, 1, 2, 2, 2]


def test_all_who_wait_for_a_read_hear_that_it_failed(tmp_path: Path) -> None:
    write_tables(tmp_path)
    kept, context, reads = Kept(1.0), make_context(tmp_path), []

    def question(now_ms: int) -> Read:
        reads.append(now_ms)
        return refuse

    async def many() -> list[Any]:
        asks = (kept.reply(context, question, {}) for _ in range(3))
        return list(await asyncio.gather(*asks, return_exceptions=True))

    assert [error.status for error in asyncio.run(many())] == [404] * 3
    assert len(reads) == 1


def test_read_is_answered_in_short_parts_and_makes_room_when_it_is_dropped(tmp_path: Path) -> None:
    write_tables(tmp_path)
    reply = asyncio.run(in_background(make_context(tmp_path), read_much))
    parts = list(reply.parts or ())
    assert json.loads(b"".join(parts)) == {"bundles": ["c1"] * LARGE}
    assert max(map(len, parts)) <= 1 << 16
    assert readers.under_way == 1
    del reply
    gc.collect()
    assert readers.under_way == 0


@pytest.mark.parametrize(("read", "status"), [(refuse, 404), (fail, 500)])
def test_read_that_fails_is_answered_with_why_and_the_next_one_is_read(
    tmp_path: Path, read: Any, status: int
) -> None:
    write_tables(tmp_path)
    context = make_context(tmp_path)
    with pytest.raises(HttpError) as caught:
        asyncio.run(in_background(context, read))
    assert caught.value.status == status
    assert asyncio.run(in_background(context, partial(read_value, 1))).status == 200


def test_process_that_reads_tables_has_no_pandas(tmp_path: Path) -> None:
    write_tables(tmp_path)
    said = asyncio.run(in_background(make_context(tmp_path), read_values))
    found = json.loads(b"".join(said.parts or ()))
    assert found["rows"] > 0
    assert not found["has_pandas"]


def test_read_whose_process_is_killed_is_asked_again_of_another(tmp_path: Path) -> None:
    write_tables(tmp_path)
    context = make_context(tmp_path)
    os.kill(pid_that_answers(context), signal.SIGKILL)
    assert asyncio.run(in_background(context, partial(read_value, 1))).status == 200
    assert readers.under_way == 0


def test_questions_one_after_another_are_answered_by_one_process(tmp_path: Path) -> None:
    write_tables(tmp_path)
    context = make_context(tmp_path)
    assert pid_that_answers(context) == pid_that_answers(context)


def test_process_that_a_question_made_large_goes_and_the_next_is_there_before_it_is_asked(
    tmp_path: Path,
) -> None:
    process, question, counts = one_that_has_answered(tmp_path)
    first = process.pid
    large = process.ask(replace(question, read=read_into_memory))
    assert json.load(large) == {"bytes": LARGE_BYTES}
    assert (process.pid != first, counts.starts, len(counts.pids)) == (True, 2, 1)
    second = process.pid
    process.ask(question).close()
    assert (process.pid, counts.starts) == (second, 2)
    process.close()
    assert (counts.failures, counts.pids) == (1, set())  # `close` ends what would have stayed


def test_process_of_a_large_service_stays_as_it_is_small_itself(tmp_path: Path) -> None:
    held = b"1" * LARGE_BYTES
    process, question, counts = one_that_has_answered(tmp_path)
    first = process.pid
    process.ask(question).close()
    assert (process.pid, counts.starts) == (first, 1)
    process.close()
    assert len(held) == LARGE_BYTES


def test_process_that_stays_gives_back_what_it_held_and_answers_on(tmp_path: Path) -> None:
    write_tables(tmp_path)
    counts = ReaderCounts()
    process = ReaderProcess(counts, is_staying=True, idle_s=0.5)
    question = ReadQuestion(partial(read_value, 1), table_place(str(tmp_path)), "c1")
    with process.ask(replace(question, read=keep_in_memory)) as answer:
        large = json.load(answer)["bytes"]
    first = process.pid
    until(lambda: 0 < sum(counts.memory_bytes()) < large - KEPT_BYTES / 2)
    process.ask(question).close()
    assert (process.pid, counts.starts) == (first, 1)
    assert os.getpriority(os.PRIO_PROCESS, first) <= os.getpriority(os.PRIO_PROCESS, 0) + 5
    process.close()


def test_one_process_is_there_before_anybody_asks_and_the_other_once_somebody_has(
    tmp_path: Path,
) -> None:
    write_tables(tmp_path)
    found = Readers()
    assert found.counts.starts == 0
    found.stand_ready()
    assert found.counts.starts == 1
    question = ReadQuestion(partial(read_value, 1), table_place(str(tmp_path)), "c1")
    asyncio.run(found.ask(question)).close()
    assert found.counts.starts == 2
    first, second = found.idle.get(), found.idle.get()
    assert (first.is_staying, second.is_staying) == (True, False)
    for process in (first, second):
        process.close()


def test_processes_are_counted_with_what_they_hold_and_those_that_were_killed(
    tmp_path: Path,
) -> None:
    process, question, counts = one_that_has_answered(tmp_path)
    assert (counts.starts, counts.failures) == (1, 0)
    (size,) = counts.memory_bytes()
    assert 10_000_000 < size < 1_000_000_000
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    process.ask(question).close()
    assert (counts.starts, counts.failures, len(counts.memory_bytes())) == (2, 1, 1)
    process.close()
    assert counts.memory_bytes() == []
