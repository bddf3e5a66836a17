"""A log that nobody can fill from outside: of equal warnings only so many a time, the rest counted.

Decides which warnings and errors are written: of each kind, and of each logger together, a burst
and then a steady few. A line that comes after others were left out says how many; when none comes,
another line does so after ten seconds. What is below a warning always passes. CWE-779 (logging of
excessive data).
"""

import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import TypeAlias

KIND_BURST, KIND_PER_S = 20, 0.1
LOGGER_BURST, LOGGER_PER_S = 100, 1.0
LEFT_OUT = "left_out"
"""The attribute of a record, and the field of its line: how many like it were not written."""

_KINDS_MAX = 1_000
_TELL_AFTER_S = 10.0

Kind: TypeAlias = tuple[str, int, str]
"""Logger, level, and the message before its arguments are put in; "" for all of a logger."""


@dataclass(slots=True)
class _Bucket:
    permits: float
    filled_s: float
    left_out: int = 0

    def take(self, now_s: float, burst: int, per_s: float) -> bool:
        """Take one permit, if there is one."""
        self.permits = min(burst, self.permits + max(0.0, now_s - self.filled_s) * per_s)
        self.filled_s = now_s
        if self.permits < 1:
            return False
        self.permits -= 1
        return True


class SparingHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes records to a stream, of equal warnings only some. One lock, the handler's own."""

    def __init__(self, stream: object = None) -> None:
        super().__init__(stream)
        self._buckets: OrderedDict[Kind, _Bucket] = OrderedDict()
        self._owing: set[Kind] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, unless there were too many like it; called with the lock held."""
        if record.levelno >= logging.WARNING and not self._is_written(record):
            return
        super().emit(record)
        for kind in [kind for kind in self._owing if self._is_overdue(kind, record.created)]:
            super().emit(self._told(kind))

    def close(self) -> None:
        """Say what was left out, and end."""
        self.acquire()
        try:
            for kind in list(self._owing):
                super().emit(self._told(kind))
        finally:
            self.release()
        super().close()

    def _is_written(self, record: logging.LogRecord) -> bool:
        now_s = record.created
        kind: Kind = (record.name, record.levelno, str(record.msg))
        own = self._bucket(kind, now_s, KIND_BURST)
        common = self._bucket((record.name, record.levelno, ""), now_s, LOGGER_BURST)
        if own.take(now_s, KIND_BURST, KIND_PER_S) and common.take(
            now_s, LOGGER_BURST, LOGGER_PER_S
        ):
            if own.left_out:
                record.left_out = own.left_out
                own.left_out = 0
                self._owing.discard(kind)
            return True
        own.left_out += 1
        self._owing.add(kind)
        return False

    def _bucket(self, kind: Kind, now_s: float, burst: int) -> _Bucket:
        bucket = self._buckets.setdefault(kind, _Bucket(burst, now_s))
        self._buckets.move_to_end(kind)
        if len(self._buckets) > _KINDS_MAX:
            self._forget(*self._buckets.popitem(last=False))
        return bucket

    def _forget(self, kind: Kind, bucket: _Bucket) -> None:
        """Add the records that a kind has left out to its logger's count."""
        self._owing.discard(kind)
        common: Kind = (kind[0], kind[1], "")
        if bucket.left_out and common in self._buckets:
            self._buckets[common].left_out += bucket.left_out
            self._owing.add(common)

    def _is_overdue(self, kind: Kind, now_s: float) -> bool:
        return now_s - self._buckets[kind].filled_s > _TELL_AFTER_S

    def _told(self, kind: Kind) -> logging.LogRecord:
        """A record that says how many of a kind were not written."""
        name, level, message = kind
        record = logging.LogRecord(name, level, "", 0, "left_out", None, None)
        record.fields = {"left_out_event": message, LEFT_OUT: self._buckets[kind].left_out}
        self._buckets[kind].left_out = 0
        self._owing.discard(kind)
        return record
