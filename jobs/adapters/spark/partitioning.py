"""The number of state partitions, and keys that spread over them by construction.

Spark gives a key to the partition `pmod(hash(columns), partitions)`, so a few keys may all fall on
one, and only its executor works. So blanks are appended to a cluster's name, and multiples of the
number of groups added to a group's number, until the keys fall on partitions in turn. With one
partition the keys stay plain.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import mmh3
from py4j.protocol import Py4JError

from jobs.console import note
from lbcore.config.tree import Config

PARTITIONS = "spark.sql.shuffle.partitions"
PARTITIONS_MAX = 64
"""Default bound: each partition costs both operators a task in every batch."""

_SMALL_CORES = 2
_SEED = 42  # of Spark's hash expression
_MASK = 0xFFFFFFFF
_WORD_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterKeys:
    """The keys of a cluster: its own, and those of its groups in their order."""

    cluster: str
    groups: Sequence[int]


def default_partitions(config: Config, master: str) -> int:
    """Return the number of scorer groups or of clusters, the greater one, 64 at most.

    In one process at most its cores, and 1 on two or fewer: there Kafka and the operators' fixed
    costs take what a second partition would gain.
    """
    pipeline = config.pipeline
    wanted = min(PARTITIONS_MAX, max(pipeline.scorer_groups, len(pipeline.clusters)))
    cores = local_cores(master)
    if cores is None:
        return wanted
    return 1 if cores <= _SMALL_CORES else min(wanted, cores)


def local_cores(master: str) -> int | None:
    """Return a local master's cores; None for a cluster's, a large number for all."""
    kind, _, threads = master.partition("[")
    if kind != "local":
        return None
    cores = threads.rstrip("]").partition(",")[0] or "1"
    return int(cores) if cores.isdigit() else PARTITIONS_MAX


def spread_keys(clusters: Sequence[str], groups: int, partitions: int) -> Mapping[str, ClusterKeys]:
    """Return keys by cluster: clusters and all their groups to partitions in turn.

    With one partition, the clusters' names and the groups' numbers.
    """
    if partitions == 1:
        return {name: ClusterKeys(cluster=name, groups=list(range(groups))) for name in clusters}
    found: dict[str, ClusterKeys] = {}
    for number, name in enumerate(clusters):
        aligned = name + " " * (-len(name.encode()) % _WORD_BYTES)
        padded = next(
            key
            for key in (aligned + " " * blanks for blanks in count(0, _WORD_BYTES))
            if hash_of_key(key) % partitions == number % partitions
        )
        found[name] = ClusterKeys(
            cluster=padded,
            groups=[
                next(
                    key
                    for key in count(group, groups)
                    if hash_of_key(padded, key) % partitions
                    == (number * groups + group) % partitions
                )
                for group in range(groups)
            ],
        )
    return found


def plain_cluster(key: str) -> str:
    """Return the cluster's name from its key."""
    return key.rstrip(" ")


def hash_of_key(cluster: str, group: int | None = None) -> int:
    """Return Spark's hash of a key's columns.

    cluster: a multiple of four bytes, because Spark hashes remaining bytes differently from Murmur3
    (`Murmur3_x86_32.hashUnsafeBytes`).
    """
    found = mmh3.hash(cluster.encode(), _SEED)
    if group is None:
        return found
    return mmh3.hash(group.to_bytes(_WORD_BYTES, "little"), found & _MASK)


_CHECK_S = 10.0
_IDLE_CHECKS = 3
_DRIVER = "driver"


def read_progress(query: Any) -> dict[str, Any] | None:
    """Read Spark's last progress, None before the first. Costs some 10 ms."""
    last = query.lastProgress
    return None if last is None else json.loads(last.json)


def progress_line(progress: Mapping[str, Any]) -> dict[str, Any]:
    """Return a log line with the times of a batch, in ms."""
    return {
        "event": "progress",
        "spark_batch": progress["batchId"],
        "messages": progress["numInputRows"],
        "spark_ms": progress["durationMs"],
        "operators": [
            {"updates_ms": state["allUpdatesTimeMs"], "commit_ms": state["commitTimeMs"]}
            for state in progress["stateOperators"]
        ],
    }


class ExecutorWatch:
    """Count of the tasks that each executor has ended; notes idle executors once."""

    def __init__(self, session: Any, config: Config) -> None:
        self._session = session
        self._checked_s, self._is_noted = time.monotonic() - _CHECK_S, False
        self._counts: dict[str, int] = {}
        self._idle: dict[str, int] = {}
        partitions = int(session.conf.get(PARTITIONS) or 1)
        groups = config.pipeline.scorer_groups
        self._is_cluster = local_cores(session.sparkContext.master) is None
        if self._is_cluster and groups > partitions:
            note(
                f"{groups} scorer groups (pipeline.scorer_groups) share {partitions} state"
                f" partitions ({PARTITIONS}): at most {partitions} executors work at once. Leave"
                f" {PARTITIONS} out, and as many are chosen as there are groups"
            )

    def poll(self) -> Mapping[str, int]:
        """Return executor → tasks ended since Spark began.

        Empty within 10 s of the last check.
        """
        if time.monotonic() - self._checked_s < _CHECK_S:
            return {}
        self._checked_s = time.monotonic()
        try:
            found = self._session.sparkContext._jsc.sc().statusStore().executorList(True)  # noqa: SLF001, FBT003 (Spark has no other way)
            executors = [found.apply(number) for number in range(found.size())]
            counts = {  # of live executors, with failed tasks
                str(one.id()): int(one.completedTasks()) + int(one.failedTasks())
                for one in executors
            }
        except Py4JError:  # a missing count ends no job; a lost JVM shows elsewhere
            return {}
        for name, tasks in counts.items():
            is_idle = name != _DRIVER and tasks == self._counts.get(name, 0)
            self._idle[name] = self._idle.get(name, 0) + 1 if is_idle else 0
        self._counts = counts
        idle = sorted(name for name in counts if self._idle[name] >= _IDLE_CHECKS)
        if idle and self._is_cluster and not self._is_noted:
            self._is_noted = True
            note(
                f"executors with nothing to do for {_IDLE_CHECKS * _CHECK_S:.0f} s: "
                f"{', '.join(idle[:20])} of {len(counts) - (_DRIVER in counts)}. There are more"
                " executors than keys to spread: raise pipeline.scorer_groups, or start fewer"
            )
        return counts
