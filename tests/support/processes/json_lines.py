"""What a process has written so far, a JSON object a line."""

import json
from pathlib import Path
from typing import Any


def json_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of all whole lines; others are left out, be they not JSON or only begun."""
    text = path.read_text() if path.exists() else ""
    whole = text.rpartition("\n")[0].splitlines()
    return [json.loads(line) for line in whole if line.startswith("{")]
