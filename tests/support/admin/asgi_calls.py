"""Calls an ASGI application in this process, as a server would."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back; header names in lower case. sent_headers: as they came, in order."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    sent_headers: Sequence[tuple[str, str]] = ()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def ask(  # noqa: PLR0913 (a request has as many parts)
    app: Any,
    path: str,
    *,
    method: str = "GET",
    body: bytes | Sequence[bytes] = b"",
    headers: Mapping[str, str] | None = None,
    client: str = "127.0.0.1",
    leaves_after_s: float = 3_600.0,
) -> Answer:
    """One request; path with its query, percent-encoded where it has to be."""
    raw, _, query = path.partition("?")
    parts = [body] if isinstance(body, bytes) else list(body)
    given = [(k.lower().encode(), v.encode("latin-1")) for k, v in (headers or {}).items()]
    scope = {
        "type": "http",
        "method": method,
        "raw_path": quote(raw, safe="/%:+@,=").encode(),
        "path": raw,
        "query_string": query.encode(),
        "headers": given,
        "client": (client, 1234),
        "scheme": "http",
        "server": ("127.0.0.1", 8090),
    }
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if parts:
            part = parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(parts)}
        await asyncio.sleep(leaves_after_s)
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start = sent[0]
    found = [(name.decode().lower(), value.decode()) for name, value in start["headers"]]
    whole = b"".join(message.get("body", b"") for message in sent[1:])
    return Answer(status=start["status"], headers=dict(found), body=whole, sent_headers=found)
