"""The job's state, judged by its writes, cycles and ticks.

`ballast status`, `top`, `doctor`, the web page and the display of a local run all show this state
and the gaps between cycles.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Any

from lbcore.config.pipeline import Pipeline
from lbcore.model.times import duration, instant, time_ago

NEVER_MS = -1
SLACK_MS = 5_000
"""Time after the due time before a commit or a cycle is overdue: a batch may take so long."""
_HEARTBEATS_MISSED, _CYCLES_MISSED = 3, 3
_CYCLES_WRITTEN_PAST = 2
"""A job has no cycles if it commits more than so many intervals after its last cycle."""
_STANDS = "nothing is decided, lookups go on"
CYCLE_KINDS = frozenset({"skip", "transfer", "unload", "split", "drain"})


class JobStatus(str, Enum):
    """State of the job, the first that applies; the value is shown everywhere.

    *Never started*; *away* (no commit for three heartbeats); *late* (none for a heartbeat and the
    slack); *without cycles* (it writes, but has missed three cycles); *at work*. By the tables, a
    frozen job looks like a dead one: both are away.
    """

    NEVER_STARTED = "never started"
    AWAY = "away"
    LATE = "late"
    WITHOUT_CYCLES = "without cycles"
    AT_WORK = "at work"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """Facts about the job that are not in the tables.

    kafka_trouble: why Kafka does not answer this process, with Kafka's address; "" = it does, or
    was not asked. log: path of the job's log, "" = not known. is_supervised: a local run is
    running, which restarts the job by itself.
    """

    kafka_trouble: str = ""
    log: str = ""
    is_supervised: bool = False

    @property
    def read_log(self) -> str:
        """Advice to read the job's log: its path, or where logs usually are."""
        return f"read {self.log}" if self.log else "read the log of its process (journal, pod)"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """State of the job. Ages in ms, -1 = never.

    wrote_ago_ms: age of its newest commit; cycle_ago_ms: age of its newest cycle. heartbeat_ms:
    interval at which a commit is due; cycle_ms: interval of cycles. hears_ticks: whether the job
    reads the ticks that it sends to broker-load.
    """

    word: JobStatus
    wrote_ago_ms: int
    cycle_ago_ms: int
    heartbeat_ms: int
    cycle_ms: int
    hears_ticks: bool
    around: JobContext = field(default_factory=JobContext)

    @property
    def is_present(self) -> bool:
        """True if the job commits on time, so that its rows are current."""
        return self.word in (JobStatus.AT_WORK, JobStatus.WITHOUT_CYCLES)

    @property
    def is_stalled(self) -> bool:
        """True if the job was started once, but decides nothing now."""
        return self.word in (JobStatus.AWAY, JobStatus.WITHOUT_CYCLES)

    def why(self) -> str:
        """Return a sentence on what is wrong; "" = nothing."""
        due, trouble = duration(self.heartbeat_ms), self.around.kafka_trouble
        wrote = f"last commit {duration(self.wrote_ago_ms)} ago, one is due every {due}"
        if self.word is JobStatus.NEVER_STARTED:
            why = "the streaming job has never written anything"
            return f"{trouble}: {why}" if trouble else why
        if trouble:
            so = "asked from this machine" if self.is_present else _STANDS
            return f"{trouble}: {so} ({wrote})"
        by_word = {  # the first that applies
            JobStatus.AWAY: f"the streaming job is away: {_STANDS} ({wrote})",
            JobStatus.LATE: f"the streaming job is late: {wrote}",
            JobStatus.WITHOUT_CYCLES: (
                f"the job writes, but makes no cycles (last {duration(self.cycle_ago_ms)} ago, "
                f"one is due every {duration(self.cycle_ms)})"
            ),
        }
        return by_word.get(self.word, "")

    def message(self) -> str:
        """Return `at work: last commit 2 s ago, last cycle 3 s ago, ticks arrive`."""
        is_known = self.word not in (JobStatus.NEVER_STARTED, JobStatus.AWAY)
        ticks = "ticks arrive" if self.hears_ticks else "no ticks on broker-load"
        ticks = ticks if is_known else "ticks not known"
        return (
            f"{self.word.value}: last commit {time_ago(self.wrote_ago_ms)},"
            f" last cycle {time_ago(self.cycle_ago_ms)}, {ticks}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleGap:
    """A time without cycles, ms since 1970.

    from_ms: the cycle before it; until_ms: the cycle after it, 0 = it has not ended.
    """

    from_ms: int
    until_ms: int

    def message(self) -> str:
        """Return `no cycles from ... to ... (28 min 52 s)`."""
        if not self.until_ms:
            return f"no cycles since {instant(self.from_ms)}: nothing was decided"
        lasted = duration(self.until_ms - self.from_ms)
        until = instant(self.until_ms)
        return f"no cycles from {instant(self.from_ms)} to {until} ({lasted}): nothing was decided"


def judge_job(
    wrote_ago_ms: int,
    cycle_ago_ms: int,
    pipeline: Pipeline,
    *,
    hears_ticks: bool = True,
    around: JobContext | None = None,
) -> JobState:
    """Judge the job by the ages of its newest commit and cycle, ms, -1 = none."""
    heartbeat_ms = pipeline.heartbeat_commit_ms
    wrote_on = cycle_ago_ms - wrote_ago_ms > _CYCLES_WRITTEN_PAST * pipeline.decision_interval_ms
    by_word = {  # the first that applies
        JobStatus.NEVER_STARTED: wrote_ago_ms < 0,
        JobStatus.AWAY: wrote_ago_ms > _HEARTBEATS_MISSED * heartbeat_ms,
        JobStatus.LATE: wrote_ago_ms > heartbeat_ms + SLACK_MS,
        JobStatus.WITHOUT_CYCLES: wrote_on and cycle_ago_ms > _overdue_ms(pipeline),
    }
    return JobState(
        word=next((word for word, applies in by_word.items() if applies), JobStatus.AT_WORK),
        wrote_ago_ms=wrote_ago_ms,
        cycle_ago_ms=cycle_ago_ms,
        heartbeat_ms=heartbeat_ms,
        cycle_ms=pipeline.decision_interval_ms,
        hears_ticks=hears_ticks,
        around=around or JobContext(),
    )


def misses_ticks(decisions: Iterable[Mapping[str, Any]]) -> bool:
    """Return True if the newest decision about ticks says that none arrive.

    decisions: in any order.
    """
    ticks = [row for row in decisions if row["kind"] == "ticks"]
    newest = max(ticks, key=lambda row: int(row["at_ms"]), default=None)
    return newest is not None and newest["reason"] == "Missing"


def _overdue_ms(pipeline: Pipeline) -> int:
    return _CYCLES_MISSED * pipeline.decision_interval_ms + SLACK_MS


def gaps(
    decisions: Iterable[Mapping[str, Any]], pipeline: Pipeline, now_ms: int
) -> tuple[CycleGap, ...]:
    """Return the times without cycles, oldest first. O(n log n).

    decisions: in any order; every cycle writes at least one. The last gap may not have ended. No
    gap is reported before the first row, as older cycles may not have been read.
    """
    rows = (row for row in decisions if row["cycle"] and row["kind"] in CYCLE_KINDS)
    made_ms = sorted({int(row["at_ms"]) for row in rows})
    limit_ms = _overdue_ms(pipeline)
    found = [CycleGap(from_ms=a, until_ms=b) for a, b in pairwise(made_ms) if b - a > limit_ms]
    if made_ms and now_ms - made_ms[-1] > limit_ms:
        found.append(CycleGap(from_ms=made_ms[-1], until_ms=0))
    return tuple(found)


def job_alarms(job: JobState) -> Iterable[str]:
    """Yield alarms about the job: what is wrong, then what to do.

    While Kafka is unreachable, only that is reported.
    """
    around = job.around
    if around.kafka_trouble:
        wrote = f"the job wrote {time_ago(job.wrote_ago_ms)}"
        yield (
            f"{around.kafka_trouble}, asked from this machine; {wrote}: brokers can't report and"
            " nothing is decided without Kafka; start it, or mend the way to it"
        )
    elif job.word is JobStatus.AWAY:
        yield f"no heartbeat of the job for {duration(job.wrote_ago_ms)}: {_start_again(around)}"
    if job.word is JobStatus.WITHOUT_CYCLES and not around.kafka_trouble:
        yield f"{job.why()}: {_start_again(around)}"
    if not job.hears_ticks and job.is_present and not around.kafka_trouble:
        yield f"no ticks on broker-load: nobody is judged until they are back; {around.read_log}"


def _start_again(around: JobContext) -> str:
    if around.is_supervised:
        return f"the local run starts it again by itself when it has ended; {around.read_log}"
    return f"{around.read_log}, start it again"


def as_of(job: JobState, message: str) -> str:
    """Return the message, with the age of its rows while the job is not present."""
    if job.is_present or job.wrote_ago_ms < 0:
        return message
    return f"{message} (as of {duration(job.wrote_ago_ms)} ago)"
