"""Log lines as JSON, one object a line: `ts_ms`, `level`, `event`, and the fields of the event.

Decides nothing. A line with fields is logged as `logger.info("event", extra={"fields": {...}})`.
Source: ours.
"""

import json
import logging
import sys
from collections.abc import Mapping
from typing import Any

_LEVEL_OF_OTHERS = logging.WARNING


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON; an exception's stack is one field."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        line: dict[str, Any] = {
            "ts_ms": int(record.created * 1000),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        fields = getattr(record, "fields", None)
        if isinstance(fields, Mapping):
            line.update(fields)
        if record.exc_info:
            line["stack"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def log_json_lines() -> None:
    """Send this process's log to standard error as JSON lines: ours from INFO, others' warnings."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=_LEVEL_OF_OTHERS, handlers=[handler], force=True)
    logging.getLogger("jobs").setLevel(logging.INFO)
    logging.getLogger("__main__").setLevel(logging.INFO)
