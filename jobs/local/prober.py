"""Continuous lookups at the service, each answer judged against the history.

`lbcore.sim.judge.judge` gives the verdicts. Each thread has one kept connection, so a lookup that
waits for an owner holds up nobody else.
"""

import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pyarrow as pa

from jobs.adapters.delta.table_location import TablePlace
from jobs.adapters.delta.table_log import Commit, LostError, written_ms
from jobs.adapters.delta.table_scan import TableTail, open_delta, read_added, scan
from jobs.adapters.http.client import LookupConnection
from jobs.adapters.processes.clocks import wall_ms
from lbcore.model.bundles import HashFunction
from lbcore.model.names import format_topic
from lbcore.ownership.records import State
from lbcore.sim.judge.judge import (
    LONG_AGO,
    JudgedEvent,
    LookupVerdict,
    OwnershipHistory,
    ProbedAnswer,
    Visibility,
)
from lbcore.sim.load.load import uniforms
from lbcore.sim.summary import BundleOpened, percentile

_COLUMNS = ("bundle", "version_id", "state", "source", "destination", "at_ms")


class EventsHistory:
    """The transitions in the table, by commit, and within one by version.

    Independent of the follower on purpose: it interprets rows itself and shares only the reading of
    log and files. The time of a commit is that of its log file, in an object store to the second. A
    commit found by a reload counts as made at any time since the last poll.
    """

    def __init__(self, table_path: TablePlace) -> None:
        """Read the table; its present commits count as long ago."""
        self._path = table_path
        self._known: dict[str, int] = {}
        self._table_id = ""
        self._looked_at_ms = 0
        self._rest = self._load(is_first=True)

    def poll(self) -> tuple[list[JudgedEvent], int]:
        """Return new transitions, and a wall time up to which they are complete.

        Costs one look at the file system when nothing is new.
        """
        found, self._rest = self._rest, []
        looked_at_ms = wall_ms()
        try:
            for commit in self._tail.new_commits():
                found += self._commit(commit)
        except (LostError, FileNotFoundError):
            found += self._load(is_first=False)
        for one in found:
            self._known[one.bundle] = max(one.version_id, self._known.get(one.bundle, 0))
        self._looked_at_ms = looked_at_ms
        return found, looked_at_ms

    def _load(self, *, is_first: bool) -> list[JudgedEvent]:
        """Load the whole table and return the transitions not yet known.

        is_first: they count as long ago, else as of the newest version.
        """
        table = open_delta(self._path)
        self._tail = TableTail(self._path, table)
        table_id = str(table.metadata().id)
        known = self._known if table_id == self._table_id else {}
        self._table_id = table_id
        rows = _transitions(
            scan(table, _COLUMNS),
            version=LONG_AGO if is_first else table.version(),
            from_ms=0 if is_first else self._looked_at_ms,
            to_ms=0 if is_first else wall_ms(),
        )
        return [row for row in rows if row.version_id > known.get(row.bundle, 0)]

    def _commit(self, commit: Commit) -> Sequence[JudgedEvent]:
        files = read_added(self._path, commit, _COLUMNS)
        if not files:
            return []
        to_ms = written_ms(self._path, commit.version)
        # The log file is written under another name and then linked, so it may have become
        # readable a moment after its time stamp: the judge's allowance covers that moment.
        return _transitions(
            pa.concat_tables(files),
            version=commit.version,
            from_ms=min(commit.info.get("timestamp") or to_ms, to_ms),
            to_ms=to_ms,
        )


def _transitions(rows: pa.Table, *, version: int, from_ms: int, to_ms: int) -> list[JudgedEvent]:
    ordered = rows.sort_by([("version_id", "ascending"), ("at_ms", "ascending")])
    return [
        JudgedEvent(
            bundle=row["bundle"],
            version_id=row["version_id"],
            state=State(row["state"]),
            source=row["source"],
            destination=row["destination"],
            decided_at_ms=row["at_ms"],
            table_version=version,
            committed_from_ms=from_ms,
            committed_to_ms=to_ms,
        )
        for row in ordered.to_pylist()
    ]


_EXAMPLES_MAX = 20
_TOPICS_PER_NAMESPACE = 1_000_000
_THREADS = 8
_JUDGE_EVERY_S = 0.1
_SAMPLE_EVERY_S = 0.05
_LATE_MAX_S = 1.0
_CLOCK_ALLOWANCE_MS = 100  # see `OwnershipHistory.judge`; all clocks are this machine's


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeCounts:
    """Lookups so far. pending: answered, and waiting for the history to catch up."""

    sent: int
    right: int
    wrong: int
    unavailable: int
    failed: int
    pending: int


class Prober:
    """Probes from `start` to `stop`."""

    def __init__(
        self,
        base_url: str,
        events_table: Path,
        functions: Mapping[str, HashFunction],
        *,
        lookups_per_s: float = 50.0,
        timeout_ms: int = 15_000,
    ) -> None:
        """Open the history; raises deltalake's errors without ownership_events.

        base_url: http://host:port of the lookup service. events_table: the folder of
        ownership_events. functions: namespace → its hash function, one at least.
        """
        self._base_url, self._timeout_ms = base_url, timeout_ms
        self._lookups_per_s = lookups_per_s
        self._events = EventsHistory(events_table)
        self._functions = functions
        self._history = OwnershipHistory(functions)
        self._visibility = Visibility()
        self._transitions: list[JudgedEvent] = []
        self._answers: deque[ProbedAnswer] = deque()
        self._sent = 0
        self._verdicts: Counter[LookupVerdict] = Counter()
        self._failures: Counter[str] = Counter()
        self._wrong: list[ProbedAnswer] = []
        self._latencies_ms: list[float] = []
        self._due_s = 0.0
        self._lock = threading.Lock()  # guards everything above; held for moments only
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._sampled_at_s = 0.0

    def start(self) -> None:
        """Begin; the service may not answer yet."""
        jobs = [self._keep_judging, self._keep_sampling, *[self._keep_asking] * _THREADS]
        self._threads = [threading.Thread(target=job, daemon=True) for job in jobs]
        for thread in self._threads:
            thread.start()

    def counts(self) -> ProbeCounts:
        """The counts at this moment."""
        with self._lock:
            return ProbeCounts(
                sent=self._sent,
                right=self._verdicts[LookupVerdict.RIGHT],
                wrong=self._verdicts[LookupVerdict.WRONG],
                unavailable=self._verdicts[LookupVerdict.UNAVAILABLE],
                failed=self._verdicts[LookupVerdict.FAILED],
                pending=self._sent - sum(self._verdicts.values()),
            )

    def stop(self) -> dict[str, Any]:
        """End, judge the remaining answers, and report."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(self._timeout_ms / 1000.0 + 5.0)
        deadline_s = monotonic() + 5.0
        while self._answers and monotonic() < deadline_s:
            sleep(_JUDGE_EVERY_S)
            self._judge_round()
        return self.report()

    def report(self) -> dict[str, Any]:
        """Return the figures of the summary; latencies in ms or None.

        decision_to_lookup_ms: from a decision (its batch's `now_ms`) to the first answer, of any
        worker, that showed the new broker; unseen: decisions that no answer showed.
        """
        counts = self.counts()
        with self._lock:
            visible, unseen = self._visibility.latencies_ms(self._transitions)
            return {
                "lookups": {
                    **asdict(counts),
                    "p50_ms": percentile(self._latencies_ms, 50),
                    "p99_ms": percentile(self._latencies_ms, 99),
                    "failures": dict(sorted(self._failures.items())),
                    "wrong_answers": [asdict(answer) for answer in self._wrong],
                },
                "decision_to_lookup_ms": {
                    "p50": percentile(visible, 50),
                    "p99": percentile(visible, 99),
                    "max": percentile(visible, 100),
                    "count": len(visible),
                    "unseen": unseen,
                },
            }

    def owned(self) -> list[BundleOpened]:
        """Return each change of a bundle to Owned, in record order: for `summary.moves`."""
        with self._lock:
            return [
                BundleOpened(bundle=step.bundle, broker=step.destination, at_ms=step.decided_at_ms)
                for step in self._transitions
                if step.state is State.OWNED
            ]

    def _keep_asking(self) -> None:
        connection = LookupConnection(self._base_url, self._timeout_ms)
        while not self._stopping.is_set():
            with self._lock:  # lookups late by more than a second are skipped
                now_s = monotonic()
                self._due_s = max(self._due_s + 1.0 / self._lookups_per_s, now_s - _LATE_MAX_S)
                wait_s = max(0.0, self._due_s - now_s)
            if self._stopping.wait(wait_s):
                break
            with self._lock:
                self._sent += 1
                topic = self._topic(self._sent)
            answer = connection.look_up(topic)
            with self._lock:
                self._answers.append(answer)
                self._latencies_ms.append(answer.answered_at_ms - answer.asked_at_ms)
                self._note_version(answer.table_version, answer.answered_at_ms)
        connection.close()

    def _topic(self, number: int) -> str:
        """Return the topic of a lookup; any name has a bundle."""
        space, place = uniforms(1, f"probe {number}", 2)
        namespace = sorted(self._functions)[int(space * len(self._functions))]
        return format_topic(namespace, f"topic-{int(place * _TOPICS_PER_NAMESPACE)}")

    def _note_version(self, table_version: int, at_ms: int) -> None:
        if table_version >= 0:
            self._visibility.see(table_version, at_ms)
            self._sampled_at_s = monotonic()

    def _keep_sampling(self) -> None:
        """Note table versions; ask /health when no lookup has shown one lately."""
        connection = LookupConnection(self._base_url, self._timeout_ms)
        while not self._stopping.wait(_SAMPLE_EVERY_S):
            if monotonic() - self._sampled_at_s >= _SAMPLE_EVERY_S:
                version, at_ms = connection.table_version(), wall_ms()
                with self._lock:
                    self._note_version(version, at_ms)
        connection.close()

    def _keep_judging(self) -> None:
        while not self._stopping.wait(_JUDGE_EVERY_S):
            self._judge_round()

    def _judge_round(self) -> None:
        """Judge the answers from the time for which the history is complete."""
        transitions, complete_to_ms = self._events.poll()
        with self._lock:
            self._history.add(transitions)
            self._transitions += transitions
            later: deque[ProbedAnswer] = deque()
            for answer in self._answers:
                if answer.answered_at_ms + _CLOCK_ALLOWANCE_MS >= complete_to_ms:
                    later.append(answer)
                    continue
                verdict = self._history.judge(answer, _CLOCK_ALLOWANCE_MS)
                self._verdicts[verdict] += 1
                if verdict is LookupVerdict.FAILED:
                    self._failures[answer.error or "later, though the bundle has an owner"] += 1
                if verdict is LookupVerdict.WRONG and len(self._wrong) < _EXAMPLES_MAX:
                    self._wrong.append(answer)
            self._answers = later
