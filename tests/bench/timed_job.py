"""The streaming job, with a clock on every part of its operators' steps.

Runs `jobs.balance_cluster` as it is; only the handler that Spark calls is one that writes, a step,
one JSON line of wall and CPU milliseconds into BALLAST_STEP_LOG (a folder; a file a process). With
BALLAST_STEP_PROFILE (a folder) cProfile looks on, and its sums are written now and then. For
benches only.
"""

from __future__ import annotations

import cProfile
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from jobs.adapters.spark.spark_machine import Key, MachineProcessor

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
STEP_LOG = "BALLAST_STEP_LOG"
STEP_PROFILE = "BALLAST_STEP_PROFILE"
_PROFILE_EVERY = 20
_parts: dict[str, list[float]] = {}


def timed(name: str, call: Callable[..., T]) -> Callable[..., T]:
    """The same call, its time added to the part of that name."""

    def measured(*args: Any, **kwargs: Any) -> T:
        started, started_cpu = time.perf_counter(), time.process_time()
        try:
            return call(*args, **kwargs)
        finally:
            part = _parts.setdefault(name, [0.0, 0.0])
            part[0] += (time.perf_counter() - started) * 1e3
            part[1] += (time.process_time() - started_cpu) * 1e3

    return measured


class TimedProcessor(MachineProcessor):
    """Spark's handler, measured. It is made anew for each batch and partition."""

    def handleInputRows(  # noqa: N802 Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: ARG002, N803 Spark's name
    ) -> Iterator[pd.DataFrame]:
        """One step, its parts written down."""
        _time_phases()
        _parts.clear()
        began_ms = int(time.time() * 1e3)
        events, now_ms = timed("decode", self._decode)(rows)
        result = timed("step and state", lambda: self._step(tuple(key), events, now_ms))()
        _write_line(self._operator.name, key, now_ms, began_ms)
        yield result

    def _step(self, key: Key, events: list[Any], now_ms: int) -> pd.DataFrame:
        profile = _profile(self._operator.name)
        if profile is None:
            return super()._step(key, events, now_ms)
        return profile.runcall(super()._step, key, events, now_ms)

    def _read(self, key: Key, machine: Any) -> tuple[Mapping[str, str], Any]:
        machine.step = timed("step", machine.step)
        machine.pack = timed("pack state", machine.pack)
        return timed("read state", super()._read)(key, machine)

    def _write(self, *args: Any) -> None:
        timed("write state", super()._write)(*args)


_profiles: dict[str, cProfile.Profile] = {}
_steps: dict[str, int] = {}


def _profile(operator: str) -> cProfile.Profile | None:
    folder = os.environ.get(STEP_PROFILE)
    if folder is None:
        return None
    profile = _profiles.setdefault(operator, cProfile.Profile())
    _steps[operator] = _steps.get(operator, 0) + 1
    if _steps[operator] % _PROFILE_EVERY == 0:
        profile.dump_stats(str(Path(folder) / f"{operator}-{os.getpid()}.pstats"))
    return profile


def _time_phases() -> None:
    phases = importlib.import_module("lbcore.balancer.balancer")
    if not hasattr(phases, "is_timed"):
        phases.is_timed = True  # type: ignore[attr-defined]
        for name, phase in phases.PHASES.items():
            phases.PHASES[name] = replace(phase, do=timed(f"phase: {name}", phase.do))


def _write_line(operator: str, key: Any, now_ms: int, began_ms: int) -> None:
    parts = {name: [round(ms, 2) for ms in pair] for name, pair in _parts.items()}
    batch = {"now_ms": now_ms, "began_ms": began_ms}
    line = {"operator": operator, "key": list(map(str, key)), **batch, "parts": parts}
    folder = Path(os.environ[STEP_LOG])
    with (folder / f"{os.getpid()}.jsonl").open("a") as log:
        log.write(json.dumps(line) + "\n")


def main() -> int:
    """The job, timed."""
    # loaded here, so that a process that only declares the state loads no more than in production
    stream = importlib.import_module("jobs.adapters.spark.stream")
    stream.MachineProcessor = TimedProcessor  # type: ignore[attr-defined]
    return int(importlib.import_module("jobs.balance_cluster").main())


if __name__ == "__main__":
    # workers must find the class under a name that they can import
    sys.exit(importlib.import_module("tests.bench.timed_job").main())
