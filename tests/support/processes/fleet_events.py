"""What a fleet has noted of itself, read again."""

import json
from pathlib import Path
from typing import Any

from lbcore.sim.summary import BundleOpened


def read_events(path: Path) -> list[dict[str, Any]]:
    """All events of the log; a last line that is being written is left out."""
    text = path.read_text(encoding="utf-8")
    whole, _, _ = text.rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def read_opened(path: Path) -> list[BundleOpened]:
    """Each opening of a bundle, in order."""
    return [
        BundleOpened(bundle=event["bundle"], broker=event["broker"], at_ms=event["at_ms"])
        for event in read_events(path)
        if event["event"] == "opened"
    ]
