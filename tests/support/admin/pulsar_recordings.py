"""What was recorded from a real Pulsar, and how an answer of ours is held against it.

Hosts, times and load are compared by type, everything else by value: statuses, content types,
names of fields, texts of errors.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "recordings"
STACK_TRACE = "Stacktrace:\n\n"
_URL = re.compile(r"(pulsar|http)(\+ssl|s)?://[\w.-]+(:\d+)?/?")
_CUT = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request and Pulsar's answer to it. body: decoded when it was JSON."""

    name: str
    mode: str
    method: str
    path: str
    query: str
    request_body: str
    status: int
    content_type: str
    body: Any

    @property
    def target(self) -> str:
        """Path and query as they were sent."""
        return f"{self.path}?{self.query}" if self.query else self.path


def read_recording(name: str) -> Exchange:
    """The last exchange of a recording: those before it are redirects between brokers."""
    recorded = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    exchange = recorded["exchanges"][-1]
    body = exchange["responseJson"] if "responseJson" in exchange else exchange["responseBody"]
    return Exchange(
        name=name,
        mode=recorded["mode"],
        method=exchange["method"],
        path=exchange["path"],
        query=exchange["query"].replace("authoritative=true&", ""),
        request_body=exchange["requestBody"],
        status=exchange["status"],
        content_type=exchange["responseHeaders"].get("Content-Type", ""),
        body=body,
    )


NOT_REPLAYED = {
    "65-namespaces-split-bundle-positions-hex-rejected": "the tool refuses it and sends nothing",
}
"""The recordings that can't be sent to the stack, each with the reason."""


def recorded_names() -> list[str]:
    """The recordings that are replayed."""
    return sorted({path.stem for path in FOLDER.glob("*.json")} - NOT_REPLAYED.keys())


def differences(recorded: Any, answered: Any, where: str = "") -> Iterator[str]:
    """Where an answer's form is another than the recorded one's."""
    if isinstance(recorded, Mapping) and isinstance(answered, Mapping):
        for name in sorted(recorded.keys() ^ answered.keys()):
            side = "missing" if name in recorded else "surplus"
            yield f"{where}/{name} is {side}"
        for name in sorted(recorded.keys() & answered.keys()):
            yield from differences(recorded[name], answered[name], f"{where}/{name}")
    elif isinstance(recorded, list) and isinstance(answered, list):
        if recorded and answered:
            yield from differences(recorded[0], answered[0], f"{where}/0")
    elif _kind(recorded) != _kind(answered):
        yield f"{where} is {answered!r}, was {recorded!r}"


def _kind(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return repr(type(value))
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str) and _URL.fullmatch(value):
        return value.partition(":")[0]
    return type(value).__name__


def same_reason(recorded: str, answered: str) -> bool:
    """Whether two error texts are the same; of a stack trace only its first line counts."""
    head, mark, trace = recorded.partition(STACK_TRACE)
    if not mark:
        return recorded == answered
    return answered.startswith(head + mark + trace.splitlines()[0])


def decode(body: Any) -> Any:
    """A recorded body that is JSON text; None for one that was cut."""
    if not isinstance(body, str) or not body.startswith(("{", "[")):
        return body
    return None if len(body) >= _CUT - 20 else json.loads(body)
