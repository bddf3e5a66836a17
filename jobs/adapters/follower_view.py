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

NOT_HEARD = -1
_APART_MS = 2_000  # clocks that are further apart than this are wrong
_UNFOUND_MS_MAX = 60_000  # a batch's time at its beginning is found so late at the most
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
    """A snapshot and how old it is. `confirmed_ms`: boot clock; `writer`: the job's last commit.

    heard_ms: boot clock when that commit was found; NOT_HEARD = nobody looked. is_heard_live: it
    was found when it came, and not with tables that were loaded.
    """

    snapshot: Snapshot
    confirmed_ms: int
    writer: WriterCommit | None
    heard_ms: int = NOT_HEARD
    is_heard_live: bool = False

    def age_ms(self, boot_ms: int) -> int:
        """Milliseconds since this was last known to be the newest there is."""
        return max(0, boot_ms - self.confirmed_ms)

    def writer_silent_ms(self, now_ms: int) -> int:
        """Milliseconds since the batch of the job's last commit, -1 when no commit is known.

        now_ms: this machine's wall clock. By the job's clock and this one, unless they can't both
        be right: then by how long ago the commit was found here, which no wrong clock changes.
        """
        if self.writer is None:
            return -1
        said_ms = max(0, now_ms - self.writer.now_ms)
        if self.heard_ms == NOT_HEARD:
            return said_ms
        found_ms = max(0, boot_ms() - self.heard_ms)
        is_too_short = said_ms < found_ms - _APART_MS
        is_too_long = self.is_heard_live and said_ms > found_ms + _UNFOUND_MS_MAX
        return found_ms if is_too_short or is_too_long else said_ms


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
    read; table_id: of that table. is_whole: everything was loaded anew, and what happened in
    between is not in commits. is_other_table: and versions before are those of another table, which
    this one took the place of.
    """

    version: int
    commits: Sequence[tuple[int, Sequence[BundleRoute]]] = ()
    is_whole: bool = False
    is_other_table: bool = False
    table_id: str = ""


def boot_ms() -> int:
    """Milliseconds since boot, suspension counted: what ages are measured with."""
    return time.clock_gettime_ns(_BOOT_CLOCK) // 1_000_000
