"""One HTTP lookup as a client makes it, and what came back as a value.

Decides nothing: whatever goes wrong becomes an `ProbedAnswer` with its error. Used by the prober.
Source: ours; the path and the JSON are Pulsar's (LookupData).
"""

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from typing import Any
from urllib.parse import quote, urlsplit

from jobs.adapters.http.exchange import read_at_most
from jobs.adapters.processes.clocks import wall_ms
from lbcore.model.names import parse_topic
from lbcore.sim.judge.judge import ProbedAnswer

AGE_HEADER = "X-Ballast-Age-Ms"
TABLE_VERSION_HEADER = "X-Ballast-Table-Version"
BUNDLE_HEADER = "X-Ballast-Bundle"
UNKNOWN_VERSION = -1

_ANSWER_MAX_BYTES = 65_536
_OK, _UNAVAILABLE = 200, 503


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reply:
    """What came back; headers are found in whatever case they are written."""

    status: int
    headers: Message
    body: bytes


def lookup_path(topic: str) -> str:
    """Where a service answers a lookup of this topic; raises InvalidNameError."""
    name = parse_topic(topic)
    parts = (name.domain.value, *name.namespace.split("/"), name.local)
    return "/lookup/v2/topic/" + "/".join(quote(part, safe="") for part in parts)


class LookupConnection:
    """One kept connection to the lookup service, made anew whenever it breaks."""

    def __init__(self, base_url: str, timeout_ms: int) -> None:
        """base_url: http://host:port; connects at the first request."""
        parts = urlsplit(base_url)
        self._connection = http.client.HTTPConnection(
            parts.hostname or "127.0.0.1", parts.port, timeout=timeout_ms / 1000.0
        )

    def look_up(self, topic: str) -> ProbedAnswer:
        """Ask who owns the topic; never raises for what the network or the service does."""
        path, asked_at_ms = lookup_path(topic), wall_ms()
        try:
            reply = self._get(path)
        except (OSError, http.client.HTTPException) as error:
            return _failed(topic, asked_at_ms, type(error).__name__)
        return _answer(topic, asked_at_ms, reply)

    def table_version(self) -> int:
        """The version of the table that the service answers from, UNKNOWN_VERSION if it doesn't."""
        try:
            reply = self._get("/health")
        except (OSError, http.client.HTTPException):
            return UNKNOWN_VERSION
        return _number(reply.headers, TABLE_VERSION_HEADER, UNKNOWN_VERSION)

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()

    def _get(self, path: str) -> _Reply:
        """One request, repeated once where a kept connection turns out to have been closed."""
        is_kept = self._connection.sock is not None
        try:
            return self._exchange(path)
        except (ConnectionError, http.client.HTTPException):
            self._connection.close()
            if not is_kept:
                raise
        except OSError:
            self._connection.close()
            raise
        try:
            return self._exchange(path)
        except (OSError, http.client.HTTPException):
            self._connection.close()
            raise

    def _exchange(self, path: str) -> _Reply:
        self._connection.request("GET", path)
        response = self._connection.getresponse()
        return _Reply(
            status=response.status,
            headers=response.headers,
            body=read_at_most(response, _ANSWER_MAX_BYTES),
        )


def _answer(topic: str, asked_at_ms: int, reply: _Reply) -> ProbedAnswer:
    if reply.status == _UNAVAILABLE and reply.headers.get("Retry-After"):
        return ProbedAnswer(
            topic=topic,
            asked_at_ms=asked_at_ms,
            answered_at_ms=wall_ms(),
            age_ms=_number(reply.headers, AGE_HEADER, 0),
            table_version=_number(reply.headers, TABLE_VERSION_HEADER, UNKNOWN_VERSION),
            asked_later=True,
        )
    if reply.status != _OK:
        return _failed(topic, asked_at_ms, f"status {reply.status}")
    broker = _broker(reply.body)
    if not broker:
        return _failed(topic, asked_at_ms, "no owner in the answer")
    return ProbedAnswer(
        topic=topic,
        asked_at_ms=asked_at_ms,
        answered_at_ms=wall_ms(),
        broker=broker,
        bundle=reply.headers.get(BUNDLE_HEADER, ""),
        age_ms=_number(reply.headers, AGE_HEADER, 0),
        table_version=_number(reply.headers, TABLE_VERSION_HEADER, UNKNOWN_VERSION),
    )


def _failed(topic: str, asked_at_ms: int, error: str) -> ProbedAnswer:
    return ProbedAnswer(topic=topic, asked_at_ms=asked_at_ms, answered_at_ms=wall_ms(), error=error)


def _number(headers: Message, name: str, default: int) -> int:
    try:
        return int(headers.get(name, default))
    except ValueError:
        return default


def _broker(body: bytes) -> str:
    """The broker's name: the simulated fleet's brokers are called as the host in their URLs."""
    try:
        found: Any = json.loads(body)
    except ValueError:
        return ""
    if not isinstance(found, Mapping):
        return ""
    url = str(found.get("httpUrl") or found.get("brokerUrl") or "")
    return urlsplit(url).hostname or ""
