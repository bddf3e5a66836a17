"""Log lines as JSON objects: `ts_ms`, `level`, `event`, and the event's fields.

Equal warnings are limited, so that no client can fill the log (CWE-779): a burst of each kind and
logger, then a steady few, and a count of the rest. A line with fields is logged as
`logger.info("event", extra={"fields": {...}})`.
"""

import json
import logging
import sys
from collections.abc import Mapping
from typing import Any, TypeAlias

from jobs.console import json_line

KIND_BURST, KIND_PER_S = 20, 0.1
LOGGER_BURST, LOGGER_PER_S = 100, 1.0
LEFT_OUT = "left_out"
"""The attribute of a record, and the field of its line: how many like it were not written."""

_KINDS_MAX = 1_000
_REPORT_AFTER_S = 10.0

Kind: TypeAlias = tuple[str, int, str]
"""Logger, level, and the message before its arguments are put in; "" for all of a logger."""


class RateLimitedHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writer of records to a stream; token buckets limit equal warnings.

    One lock, the handler's own.
    """

    def __init__(self, stream: object = None) -> None:
        super().__init__(stream)
        self._buckets: dict[Kind, tuple[float, float]] = {}  # permits, and their time in s
        self._left_out: dict[Kind, int] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, unless there were too many like it; called with the lock held."""
        kind: Kind = (record.name, record.levelno, str(record.msg))
        any_message: Kind = (record.name, record.levelno, "")
        now_s = record.created
        if record.levelno >= logging.WARNING:
            if not (
                self._take(kind, now_s, KIND_BURST, KIND_PER_S)
                and self._take(any_message, now_s, LOGGER_BURST, LOGGER_PER_S)
            ):
                counted = kind if len(self._left_out) < _KINDS_MAX else any_message
                self._left_out[counted] = self._left_out.get(counted, 0) + 1
                return
            if count := self._left_out.pop(kind, 0):
                record.left_out = count
        super().emit(record)
        for one in list(self._left_out):
            if now_s - self._buckets.get(one, (0, 0))[1] > _REPORT_AFTER_S:
                self._write_count(one)

    def close(self) -> None:
        """Write the counts of what was left out, and close."""
        self.acquire()
        try:
            for kind in list(self._left_out):
                self._write_count(kind)
        finally:
            self.release()
        super().close()

    def _take(self, kind: Kind, now_s: float, burst: int, per_s: float) -> bool:
        """Take one permit; False without one. The kind unused for longest is dropped."""
        permits, filled_s = self._buckets.pop(kind, (burst, now_s))
        permits = min(burst, permits + max(0.0, now_s - filled_s) * per_s)
        self._buckets[kind] = (permits - (permits >= 1), now_s)
        if len(self._buckets) > _KINDS_MAX:
            del self._buckets[next(iter(self._buckets))]
        return permits >= 1

    def _write_count(self, kind: Kind) -> None:
        """Write how many of a kind were not written."""
        record = logging.LogRecord(kind[0], kind[1], "", 0, "left_out", None, None)
        record.fields = {"left_out_event": kind[2], LEFT_OUT: self._left_out.pop(kind)}
        super().emit(record)


_TEXT_MAX_CHARS = 4_096
_STACK_MAX_CHARS = 32_768


_SEVERITIES: Mapping[int, int] = {
    logging.DEBUG: 5,
    logging.INFO: 9,
    logging.WARNING: 13,
    logging.ERROR: 17,
    logging.CRITICAL: 21,
}
"""OpenTelemetry's SeverityNumber of each level."""


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON; an exception's stack is one field."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without a line end."""
        line = self._fields_of(record)
        text = json.dumps(line, ensure_ascii=False, default=str)
        return text if text.isprintable() else json_line(line, sort_keys=False, default=str)

    def _fields_of(self, record: logging.LogRecord) -> dict[str, Any]:
        line: dict[str, Any] = {
            "ts_ms": int(record.created * 1000),
            "level": record.levelname.lower(),
            "event": record.getMessage()[:_TEXT_MAX_CHARS],
        }
        fields = getattr(record, "fields", None)
        if isinstance(fields, Mapping):
            line |= {
                name: value[:_TEXT_MAX_CHARS] if isinstance(value, str) else value
                for name, value in fields.items()
            }
        if record.exc_info:
            line["stack"] = self.formatException(record.exc_info)[-_STACK_MAX_CHARS:]
        if hasattr(record, LEFT_OUT):
            line[LEFT_OUT] = getattr(record, LEFT_OUT)
        return line


class OtelFormatter(JsonFormatter):
    """The same fields under the names of OpenTelemetry's log data model."""

    def _fields_of(self, record: logging.LogRecord) -> dict[str, Any]:
        line = super()._fields_of(record)
        ts_ms, level, event = (line.pop(name) for name in ("ts_ms", "level", "event"))
        if "stack" in line:
            line["exception.stacktrace"] = line.pop("stack")
        return {
            "Timestamp": ts_ms * 1_000_000,
            "SeverityText": level.upper(),
            "SeverityNumber": _SEVERITIES.get(record.levelno, _SEVERITIES[logging.INFO]),
            "Body": event,
            "Attributes": line,
            "InstrumentationScope": {"Name": record.name},
        }


def log_json_lines(*, is_otel: bool = False) -> None:
    """Log to standard error as JSON: ours from INFO, warnings of others.

    Some equal warnings are written, the rest are counted. is_otel: with OpenTelemetry's field
    names.
    """
    handler = RateLimitedHandler(sys.stderr)
    handler.setFormatter(OtelFormatter() if is_otel else JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("jobs").setLevel(logging.INFO)
    logging.getLogger("__main__").setLevel(logging.INFO)
