"""View of the tables in a follower: its age, changes and past errors.

Made by `delta_follower`, read by the lookup service and the Python client.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from jobs.adapters.delta.commits import WriterCommit
from jobs.adapters.delta.table_tail import ReloadReason
from jobs.adapters.processes.clocks import boot_ms
from lbcore.route.bundles import BundleRoute, Unsound
from lbcore.route.snapshot import LookupSnapshot

NOT_HEARD = -1
_APART_MS = 2_000  # clocks that are further apart than this are wrong
_UNFOUND_MS_MAX = 60_000  # a batch's time at its beginning is found so late at the most
_COMMIT_MS_MAX = 2_000  # so long may a commit take


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A snapshot and how old it is. `confirmed_ms`: boot clock; `writer`: the job's last commit.

    heard_ms: boot clock when that commit was found; NOT_HEARD = nobody looked. is_heard_live: it
    was found when it came, and not with tables that were loaded: at sought_ms it was not there.
    """

    snapshot: LookupSnapshot
    confirmed_ms: int
    writer: WriterCommit | None
    heard_ms: int = NOT_HEARD
    is_heard_live: bool = False
    sought_ms: int = NOT_HEARD

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
        is_too_long = self.is_heard_live and said_ms > found_ms + self._unfound_ms()
        return found_ms if is_too_short or is_too_long else said_ms

    def _unfound_ms(self) -> int:
        """Return the longest time from the batch's start until the commit was found."""
        if self.writer is None or not self.writer.committed_ms or self.sought_ms == NOT_HEARD:
            return _UNFOUND_MS_MAX
        took_ms = min(max(0, self.writer.committed_ms - self.writer.now_ms), _UNFOUND_MS_MAX)
        return took_ms + self._found_after_ms()

    def _found_after_ms(self) -> int:
        """Return the longest time from the commit until it was found.

        At sought_ms the commit was not there yet.
        """
        return self.heard_ms - self.sought_ms + _COMMIT_MS_MAX + _APART_MS

    def clock_ahead_ms(self, now_ms: int) -> int:
        """By how much now_ms, this machine's wall clock, is ahead of the job's; 0 = by no doubt.

        The commit was made before it was found, and after it was sought in vain: by when the job
        says that it was made, and by the time of its batch, which no wrong clock of the job's
        machine changes. Ahead is told by less than 5 s only of a reader that looks often.
        """
        writer = self.writer
        if writer is None or not writer.committed_ms or self.heard_ms == NOT_HEARD:
            return 0
        found_at_ms = now_ms - max(0, boot_ms() - self.heard_ms)
        ages_ms = (found_at_ms - writer.committed_ms, found_at_ms - writer.now_ms)
        if max(ages_ms) < -_APART_MS:
            return max(ages_ms)
        if not self.is_heard_live or self.sought_ms == NOT_HEARD:
            return 0
        return min(ages_ms) if min(ages_ms) > self._found_after_ms() else 0


@dataclass(slots=True, kw_only=True)
class FollowCounts:
    """Counts of events so far, and the present error ("" = none)."""

    reloads: Counter[ReloadReason] = field(default_factory=Counter)
    refused: Counter[Unsound] = field(default_factory=Counter)
    errors: int = 0
    commits: int = 0
    rows: int = 0
    last_error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Changes in a new view.

    commits: version of ownership_events → its records in their order. version: the last that was
    read; table_id: of that table. is_whole: everything was reloaded, and what happened in between
    is not in commits. is_other_table: in addition, earlier versions are those of another table,
    which this one replaced.
    """

    version: int
    commits: Sequence[tuple[int, Sequence[BundleRoute]]] = ()
    is_whole: bool = False
    is_other_table: bool = False
    table_id: str = ""
