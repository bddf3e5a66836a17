"""Reads in a process of their own, and how long what they made is kept."""

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.delta.table_reader import TableReader
from jobs.service.context import AdminContext
from jobs.service.exchange import HttpError
from jobs.service.v1 import reading
from jobs.service.v1.reading import Read, ReadCache, in_background, readers
from tests.support.admin.admin_world import make_context, write_tables
from tests.support.processes.programs import until

LARGE = 100_000


def read_value(value: int, reader: TableReader) -> dict[str, Any]:
    return {"value": value, "cluster": reader.cluster}


def read_much(reader: TableReader) -> dict[str, Any]:
    return {"bundles": (reader.cluster for _ in range(LARGE))}


def refuse(reader: TableReader) -> None:
    raise HttpError(404, f"nothing in {reader.cluster}")


def read_values(reader: TableReader) -> dict[str, Any]:
    rows = reader.newest().rows
    return {"rows": len(rows), "has_pandas": "pandas" in sys.modules}


def fail(reader: TableReader) -> None:
    raise KeyError(reader.cluster)


def read_pid(_reader: TableReader) -> dict[str, int]:
    return {"pid": os.getpid(), "nice": os.getpriority(os.PRIO_PROCESS, 0)}


def ask_of(context: AdminContext, read: Read) -> dict[str, Any]:
    reply = asyncio.run(in_background(context, read))
    found: dict[str, Any] = json.loads(b"".join(reply.parts or ()))
    return found


@dataclass
class Asked:
    """A kept answer and who asks for it; each read gives how many there were before it."""

    kept: ReadCache
    context: AdminContext
    reads: int = 0

    def question(self, _now_ms: int) -> Read:
        self.reads += 1
        return partial(read_value, self.reads)

    async def ask(self) -> int:
        reply = await self.kept.reply(self.context, self.question, {"more": 1})
        found = json.loads(b"".join(reply.parts or ()))
        assert found == {"value": found["value"], "cluster": "c1", "more": 1}
        return int(found["value"])


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    write_tables(tmp_path)
    return Asked(ReadCache(3_600.0), make_context(tmp_path))


def test_kept_value_is_given_for_its_time_and_not_after_a_suspension(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = [1_000_000]
    monkeypatch.setattr(reading, "boot_ms", lambda: now_ms[0])
    assert [asyncio.run(asked.ask()) for _ in range(2)] == [1, 1]
    now_ms[0] += 7_200_000
    assert [asyncio.run(asked.ask()) for _ in range(2)] == [2, 2]


def test_one_read_answers_all_who_ask_meanwhile_also_when_one_leaves(asked: Asked) -> None:
    async def many() -> list[int]:
        early = [asyncio.create_task(asked.ask()) for _ in range(3)]
        await asyncio.sleep(0)
        early[0].cancel()
        return list(await asyncio.gather(*early[1:], asked.ask()))

    assert asyncio.run(many()) == [1, 1, 1]


def test_all_who_wait_for_a_read_hear_that_it_failed(tmp_path: Path) -> None:
    write_tables(tmp_path)
    kept, context, reads = ReadCache(1.0), make_context(tmp_path), []

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
    failures = readers.failures
    first = ask_of(context, read_pid)["pid"]
    os.kill(first, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{first}/cmdline").exists() or is_zombie(first))
    assert ask_of(context, read_pid)["pid"] != first
    assert readers.failures in (failures, failures + 1)
    gc.collect()
    assert readers.under_way == 0


def is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_process_is_less_urgent_than_the_service(tmp_path: Path) -> None:
    write_tables(tmp_path)
    found = ask_of(make_context(tmp_path), read_pid)
    assert found["nice"] > os.getpriority(os.PRIO_PROCESS, 0)


_PARENT = """
import asyncio, os, sys
from jobs.service.v1.reading import readers
if __name__ == "__main__":
    readers.stand_ready()
    pid = readers._running().submit(os.getpid).result()
    print(pid, flush=True)
    sys.stdin.read()
"""


def test_process_ends_with_a_service_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(_PARENT)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    parent = subprocess.Popen([sys.executable, str(script)], env=environment, **pipes)
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    until(lambda: not Path(f"/proc/{pid}").exists() or is_zombie(pid))
