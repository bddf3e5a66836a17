"""Log lines as JSON, one object a line: `ts_ms`, `level`, `event`, and the fields of the event.

What is written is `sparing_log`'s. A line with fields is logged as `logger.info("event",
extra={"fields": {...}})`.
"""

import json
import logging
import sys
from collections.abc import Mapping
from typing import Any

from jobs.adapters.processes.sparing_log import LEFT_OUT, SparingHandler
from jobs.console import json_line

_LEVEL_OF_OTHERS = logging.WARNING
_TEXT_MAX_CHARS = 4_096
_STACK_MAX_CHARS = 32_768


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON; an exception's stack is one field."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        line: dict[str, Any] = {
            "ts_ms": int(record.created * 1000),
            "level": record.levelname.lower(),
            "event": record.getMessage()[:_TEXT_MAX_CHARS],
        }
        fields = getattr(record, "fields", None)
        if isinstance(fields, Mapping):
            line.update({name: _bounded(value) for name, value in fields.items()})
        if record.exc_info:
            line["stack"] = self.formatException(record.exc_info)[-_STACK_MAX_CHARS:]
        if hasattr(record, LEFT_OUT):
            line[LEFT_OUT] = getattr(record, LEFT_OUT)
        text = json.dumps(line, ensure_ascii=False, default=str)
        return text if text.isprintable() else json_line(line, sort_keys=False, default=str)


def _bounded(value: Any) -> Any:
    return value[:_TEXT_MAX_CHARS] if isinstance(value, str) else value


def log_json_lines() -> None:
    """Send this process's log to standard error as JSON lines: ours from INFO, others' warnings.

    Of warnings that are alike only some are written, the others counted: see `sparing_log`.
    """
    handler = SparingHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=_LEVEL_OF_OTHERS, handlers=[handler], force=True)
    logging.getLogger("jobs").setLevel(logging.INFO)
    logging.getLogger("__main__").setLevel(logging.INFO)
