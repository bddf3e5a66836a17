"""Calls an ASGI application in this process, as a server would."""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from jsonschema import Draft202012Validator

from jobs.service.routes import Route


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


def operation_of(document: Mapping[str, Any], route: Route) -> Mapping[str, Any]:
    """A route's page in the document, which may name the parts of its path otherwise."""
    shape = re.sub(r"{\w+}", "{}", route.path)
    paths = {re.sub(r"{\w+}", "{}", path): said for path, said in document["paths"].items()}
    found: Mapping[str, Any] = paths[shape][route.method.lower()]
    return found


def check_answer(document: Mapping[str, Any], route: Route, reply: Answer) -> None:
    """Fails for an answer that is not of the status, type and schema that the document says."""
    said = operation_of(document, route)["responses"][str(reply.status)]
    if "$ref" in said:
        said = document["components"]["responses"][said["$ref"].rpartition("/")[2]]
    if "content" not in said:
        return
    schema = said["content"][reply.headers["content-type"]]["schema"]
    validator = Draft202012Validator({**schema, "components": document["components"]})
    assert not [error.message for error in validator.iter_errors(reply.json)]
