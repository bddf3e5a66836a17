"""An answer can be read when all that it speaks of can: its table is written after every other."""

import threading
from typing import Any

import pyarrow as pa
import pytest

from lbcore.config.tree import Config
from tests.support.worlds.measured_world import MeasuredWorld, Tables

LONG_ENOUGH_S = 0.5


def test_outcome_of_a_command_is_written_after_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    answered, early = threading.Event(), list[bool]()
    write = Tables.write

    def slowly(self: Tables, name: str, rows: pa.Table, batch_id: int, about: Any) -> None:
        if name == "policies":
            early.append(answered.wait(LONG_ENOUGH_S))
        elif name == "commands" and "done" in rows["status"].to_pylist():
            answered.set()
        write(self, name, rows, batch_id, about)

    world = MeasuredWorld(Config(), 3)
    world.run(3_000)
    monkeypatch.setattr(Tables, "write", slowly)
    world.command("pause", reason="holidays")
    world.run(3_000)
    assert answered.is_set()
    assert early[:1] == [False]
