"""What a follower shows of the tables: a view with its age, changes, and what went wrong so far.

Decides nothing. Made by `delta_follower`, read by the lookup service and the Python client. Source:
ours.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from jobs.adapters.delta_log import WriterCommit
from lbcore.route.bundles import BundleRoute, Unsound
from lbcore.route.snapshot import Snapshot

_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class ReloadReason(str, Enum):
    """Why the tables were loaded whole; also the label of the reloads metric."""

    START = "start"
    LOG_FILE_MISSING = "log_file_missing"
    REPLACED = "replaced"
    REWRITTEN = "rewritten"
    UNREADABLE = "unreadable"
    UNSOUND = "unsound"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A snapshot and how old it is. `confirmed_ms`: boot clock; `writer`: the job's last commit."""

    snapshot: Snapshot
    confirmed_ms: int
    writer: WriterCommit | None

    def age_ms(self, boot_ms: int) -> int:
        """Milliseconds since this was last known to be the newest there is."""
        return max(0, boot_ms - self.confirmed_ms)

    def writer_silent_ms(self, now_ms: int) -> int:
        """Milliseconds since the batch of the job's last commit, -1 when no commit is known."""
        return -1 if self.writer is None else max(0, now_ms - self.writer.now_ms)


@dataclass(slots=True, kw_only=True)
class FollowCounts:
    """What happened so far, and what is wrong at the moment ("" = nothing)."""

    reloads: Counter[ReloadReason] = field(default_factory=Counter)
    refused: Counter[Unsound] = field(default_factory=Counter)
    errors: int = 0
    commits: int = 0
    rows: int = 0
    last_error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What a new view has brought.

    commits: version of ownership_events → its records in their order; version: the last that was
    read. is_whole: everything was loaded anew, and what happened in between is not in commits.
    is_other_table: and versions before are those of another table, which this one took the place
    of.
    """

    version: int
    commits: Sequence[tuple[int, Sequence[BundleRoute]]] = ()
    is_whole: bool = False
    is_other_table: bool = False


def boot_ms() -> int:
    """Milliseconds since boot, suspension counted: what ages are measured with."""
    return time.clock_gettime_ns(_BOOT_CLOCK) // 1_000_000
