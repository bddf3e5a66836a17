"""The whole pipeline on one machine: where a batch's time goes, and how long what matters takes.

Kafka, the load, the real job and a lookup service that follows it share the machine; the CPU of
each is printed. Wall times hold for a machine with nothing else to do, CPU times nearly always.
Usage: python -m tests.bench pipeline --scale small|full [--burst] [--steps steady,crash,...]
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tests.bench.calibration import finish, machine
from tests.bench.pipeline_figures import (
    cpu_shares,
    cycles,
    cycles_read,
    parts,
    percentiles,
    reassigned,
    since_read,
    visible,
)
from tests.bench.pipeline_stack import SIZES, BurstTimer, FollowerWatch, PipelineStack
from tests.bench.replay import compare_digests
from tests.replay import KEEP_BATCHES

REASSIGNED_MS = "bundles of dead brokers reassigned in one batch, since it was read (ms)"
TARGETS = {
    "decision cycle p95, reports spread, since they were read (ms)": 1_000,
    "decision cycle p95, in a batch with all reports, since they were read (ms)": 2_000,
    "decision → lookup visible p99 (ms)": 5_000,
    "report → score visible p95 (ms)": 5_000,
    "crash of one broker → all served elsewhere (s)": 30,
    REASSIGNED_MS: 2_000,
    "cold rebuild → first decision (s)": 60,
}
DRAINED_PER_S = "bundle reports drained/s, of a job that stood still"
DRAINED_PER_S_MIN = 100_000
_WARM_UP_S = 15.0
_REFUSED = b"command:create_namespace:refused"
_REPLAY, _AT_ONCE = "replay", "crash-at-once"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, write JSON where asked; 1 when a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", choices=SIZES, default="small")
    parser.add_argument("--seconds", type=float, default=60.0, help="of steady load")
    parser.add_argument(
        "--backlog-seconds", type=float, default=60.0, help="the job is away, each time"
    )
    parser.add_argument("--burst", action="store_true", help="all brokers report at once")
    usual = ",".join(name for name in _MEASURES if name not in (_REPLAY, _AT_ONCE))
    parser.add_argument("--steps", default=usual, help=f"of {','.join(_MEASURES)}")
    parser.add_argument("--set", action="append", default=[], help="the job's setting, key=value")
    parser.add_argument("--spark", action="append", default=[], help="Spark setting, key=value")
    parser.add_argument("--folder", type=Path, help="keep everything here (else it is removed)")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args(argv)
    with _folder(args.folder) as folder:
        figures, detail = measure(args, folder)
    missed = [name for name, most in TARGETS.items() if figures.get(name, 0) > most]
    if figures.get(DRAINED_PER_S, DRAINED_PER_S_MIN) < DRAINED_PER_S_MIN:
        missed.append(DRAINED_PER_S)
    if detail.get("replayed", {}).get("different"):
        missed.append("a batch replayed came to other effects")
    if "ended early" in detail:
        missed.append("a step that ended early")
    result = {"machine": machine(), "scale": args.scale, "figures": figures, "missed": missed}
    return finish({**result, **detail}, args.output)


@contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def measure(args: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    size = replace(SIZES[args.scale], is_burst=args.burst)
    wanted = args.steps.split(",")
    kept = [KEEP_BATCHES] if _REPLAY in wanted else []
    stack = PipelineStack(folder, size, settings=args.set, spark=[*kept, *args.spark])
    figures: dict[str, Any] = {}
    detail: dict[str, Any] = {}
    try:
        stack.start_kafka()
        stack.start_job()
        started_s = time.monotonic()
        stack.start_load("--create")
        stack.start_lookup()
        port = stack.port(stack.folder / "lookup-port")
        figures["every bundle made, assigned and open (s)"] = _settle(stack, started_s)
        for name, step in _MEASURES.items():
            if name in wanted:
                measured, more = step(stack, args, port)
                figures |= measured
                detail |= more
    except AssertionError as error:  # what was measured before it is worth having
        detail["ended early"] = str(error)
    finally:
        stack.stop_all()
    return figures, detail


def _settle(stack: PipelineStack, started_s: float) -> float:
    """Wait until all is open and the job keeps up; how long since its start, in s."""

    def is_made() -> bool:
        if stack.job_log.exists() and _REFUSED in stack.job_log.read_bytes():
            raise AssertionError("namespaces were refused: the table `commands` says why")
        return stack.open_bundles() >= stack.size.bundles

    stack.wait("every bundle to be open", is_made)
    took_s = round(time.monotonic() - started_s, 1)
    _keep_up(stack)
    return took_s


def _keep_up(stack: PipelineStack, since_s: float = 0.0) -> None:
    """Wait until the newest batch is small, and everything Owned; then for caches and compilers.

    since_s: batches begun before, by a job that has ended or stood still, don't count.
    """

    def is_steady() -> bool:
        batches = [b for b in stack.batches(since_s) if b["now_ms"] >= since_s * 1e3]
        newest: Mapping[str, Any] = batches[-1] if batches else {"bundles": {}, "counts": {}}
        read = newest["counts"].get("accepted", 0)
        owned = newest["bundles"].get("Owned", 0)
        return bool(owned >= 0.99 * stack.size.bundles and read <= 1.5 * stack.size.brokers + 100)

    stack.wait("the job to keep up", is_steady)
    time.sleep(_WARM_UP_S)


Measure = Callable[[PipelineStack, argparse.Namespace, int], tuple[dict[str, Any], dict[str, Any]]]


def measure_steady(
    stack: PipelineStack, args: argparse.Namespace, port: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Everybody reports and the lookup service follows."""
    watch = FollowerWatch(port)
    timers = [BurstTimer(stack)] if stack.size.is_burst else []
    for thread in (watch, *timers):
        thread.start()
    began_s, before = time.time(), stack.cpu_s()
    time.sleep(args.seconds)
    took_s, after = time.time() - began_s, stack.cpu_s()
    watch.end()
    for timer in timers:
        timer.end()
    batches, steps = stack.batches(began_s), stack.step_lines(began_s)
    kind = "all reports at once" if stack.size.is_burst else "reports spread"
    figures = {
        **percentiles(f"decision cycle {{}}, {kind} (ms)", cycles(batches)),
        **percentiles(
            f"decision cycle {{}}, {kind}, since they were read (ms)", cycles_read(batches, steps)
        ),
        **_all_at_once(stack, batches, steps),
        **percentiles("batch {} (ms)", [b["logged_at_ms"] - b["now_ms"] for b in batches]),
        **visible(batches, watch.seen_ms),
    }
    detail = {
        "cpu": cpu_shares(before, after, took_s, len(batches)),
        "parts": parts(batches, stack.lines("job", "progress"), began_s),
        "memory_mib": stack.memory_mib(),
        "batches": len(batches),
    }
    return figures, detail


def _all_at_once(
    stack: PipelineStack, batches: Sequence[Mapping[str, Any]], steps: Sequence[Mapping[str, Any]]
) -> dict[str, float]:
    """The cycles of batches that read every broker's reports; none where reports are spread."""
    if not stack.size.is_burst:
        return {}
    of_all = 2 * stack.size.brokers  # a broker's own load, and its bundles'
    found = cycles_read(batches, steps, at_least=of_all)
    name = "decision cycle {}, in a batch with all reports, since they were read (ms)"
    return {**percentiles(name, found), "cycles in a batch with all reports": len(found)}


def measure_crash(
    stack: PipelineStack, args: argparse.Namespace, port: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The broker with the most bundles falls silent, then a tenth of the others."""
    del args, port
    figures = {}
    for name, count in (("one broker", 1), ("a tenth of the brokers", stack.size.brokers // 10)):
        found = stack.crash(count)
        figures[f"crash of {name} → all served elsewhere (s)"] = found["served_again_s"]
        figures[f"crash of {name}: bundles"] = found["bundles"]
        _keep_up(stack)
    return figures, {}


def measure_crash_at_once(
    stack: PipelineStack, args: argparse.Namespace, port: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A tenth of the brokers, all heard at the same moment last: one batch finds all dead."""
    del args, port
    began_s = time.time()
    stack.crash(stack.size.brokers // 10, is_heard_last=True)
    batches, steps = stack.batches(began_s), stack.step_lines(began_s)
    most = max(batches, key=reassigned)
    figures = {
        "bundles of dead brokers reassigned in one batch": reassigned(most),
        REASSIGNED_MS: since_read(most, steps),
    }
    _keep_up(stack)
    return figures, {}


def _first_decision(stack: PipelineStack) -> float:
    """From the start until a batch with a cycle is durable, in s."""
    started_s = time.time()
    stack.start_job()
    stack.wait("a batch with a cycle", lambda: cycles(stack.batches(started_s)))
    return round(time.time() - started_s, 1)


def measure_backlog(
    stack: PipelineStack, args: argparse.Namespace, port: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The job stands still for a while (SIGSTOP); how fast it reads what has come meanwhile."""
    del port
    stack.pause("job")
    time.sleep(args.backlog_seconds)
    stack.resume("job")
    drained_per_s, detail = _drained(stack, time.time())
    return {DRAINED_PER_S: drained_per_s}, {"backlog": detail}


def measure_cold_backlog(
    stack: PipelineStack, args: argparse.Namespace, port: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same of a job that was stopped and starts: its compilers are at work meanwhile."""
    del port
    stack.stop("job")
    time.sleep(args.backlog_seconds)
    started_s = time.time()
    stack.start_job()
    drained_per_s, detail = _drained(stack, started_s)
    name = "bundle reports drained/s, right after a start"
    return {name: drained_per_s}, {"backlog after a start": detail}


def _drained(stack: PipelineStack, since_s: float) -> tuple[int, dict[str, Any]]:
    """Bundle reports a second, over the batches that are more than half as full as the fullest."""
    _keep_up(stack, since_s)
    batches = [b for b in stack.batches(since_s) if b["now_ms"] >= since_s * 1e3]
    most = max(batch["counts"].get("accepted", 0) for batch in batches)
    full = [b for b in batches if b["counts"].get("accepted", 0) > most / 2]
    # of everything a broker sends in an interval, one message carries all its bundles
    messages = sum(batch["counts"].get("accepted", 0) for batch in full)
    a_broker = stack.size.interval_s / 3.0 + 2
    reports = messages / a_broker * stack.size.bundles / stack.size.brokers
    took_ms = sum(batch["logged_at_ms"] - batch["now_ms"] for batch in full)
    caught_up_s = round(full[-1]["logged_at_ms"] / 1e3 - since_s, 1)
    detail = {"batches": len(full), "messages": messages, "took_ms": took_ms}
    return round(reports / took_ms * 1e3), {**detail, "caught_up_s": caught_up_s}


def measure_replay(
    stack: PipelineStack, args: argparse.Namespace, port: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The job's batches so far are worked out once more, and compared with what it committed."""
    del args, port
    stack.stop("job")
    (checkpoint,) = (stack.folder / "job" / "checkpoints").iterdir()
    found = compare_digests(stack.kafka.bootstrap, checkpoint, stack.tables, stack.config)
    _first_decision(stack)
    return {}, {"replayed": asdict(found)}


def measure_rebuild(
    stack: PipelineStack, args: argparse.Namespace, port: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The checkpoint is lost: the state comes from the tables."""
    del args, port
    stack.stop("job")
    shutil.rmtree(stack.folder / "job")
    return {"cold rebuild → first decision (s)": _first_decision(stack)}, {}


_MEASURES: Mapping[str, Measure] = {
    "steady": measure_steady,
    "crash": measure_crash,
    _AT_ONCE: measure_crash_at_once,
    "backlog": measure_backlog,
    "cold-backlog": measure_cold_backlog,
    _REPLAY: measure_replay,
    "rebuild": measure_rebuild,
}


if __name__ == "__main__":
    sys.exit(main())
