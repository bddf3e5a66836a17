"""A standby's rehearsal that fails: it is told, tried again, and never waited for in vain."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from jobs.adapters.processes.settings import load_settings
from jobs.adapters.spark import standby_query
from jobs.adapters.spark.standby_query import NAME, StandbyQuery

AGAIN_S = 0.01


@pytest.mark.parametrize(
    ("failure", "said"),
    [(RuntimeError("no worker\nat ..."), "no worker"), (RuntimeError(), "RuntimeError")],
)
def test_rehearsal_that_fails_is_told_and_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception, said: str
) -> None:
    told: list[Mapping[str, Any]] = []
    twice = threading.Event()

    def log(line: Mapping[str, Any]) -> None:
        told.append(line)
        if len(told) == 2:
            twice.set()

    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(standby_query, "start_query", fail)
    monkeypatch.setattr(standby_query, "_AGAIN_S", AGAIN_S)
    session: Any = None
    query = StandbyQuery(session, load_settings(), {}, folder=tmp_path / "spark", log=log)
    assert not query.wait(threading.Event())
    assert twice.wait(60)
    query.stop(wait_s=60)
    assert told[:2] == [{"event": NAME, "failed": said}] * 2
    assert not list((tmp_path / "spark").glob("*/*"))


class IdleQuery:
    """A query between two batches."""

    isActive = True  # noqa: N815 Spark's name
    status: ClassVar[Mapping[str, bool]] = {"isTriggerActive": False}

    def stop(self) -> None:
        """Nothing is under way."""


def test_standby_that_is_needed_during_its_drills_begins_no_query_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[IdleQuery] = []
    first = threading.Event()

    def begin(*_: object, **__: object) -> IdleQuery:
        begun.append(IdleQuery())
        first.set()
        return begun[-1]

    monkeypatch.setattr(standby_query, "start_query", begin)
    session: Any = None
    query = StandbyQuery(session, load_settings(), {}, folder=tmp_path / "spark", log=dict)
    assert first.wait(60)
    query.stop(wait_s=60)
    assert len(begun) == 1
    assert not list((tmp_path / "spark").glob("*/*"))
