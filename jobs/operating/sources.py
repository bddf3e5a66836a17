"""Where a live view gets a cluster from: the tables, or a lookup service.

Decides nothing; both say the same in the same form, that of `/v1/overview`. Source: ours.
"""

import json
from collections.abc import Mapping
from concurrent.futures import TimeoutError as NotYetError
from http import HTTPStatus
from http.client import HTTPException
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

from jobs.adapters.http.exchange import HttpQuestion, connection_to, exchange
from jobs.adapters.kafka.command_client import CommandClient, new_command
from jobs.adapters.processes.clocks import wall_ms
from jobs.adapters.processes.settings import read_secret
from jobs.console import CommandError, MisuseError
from jobs.operating.explaining import ExplainQuestion, explain
from jobs.operating.heat import HeatQuestion, read_heat
from jobs.operating.overview import read_overview
from jobs.operating.stack_words import Whereabouts
from lbcore.config.tree import Config
from lbcore.explain.explanation import SECTIONS
from lbcore.wire.kinds.broker_commands import DrainBroker

TOKEN = "BALLAST_TOKEN"  # noqa: S105 a variable's name, not a secret
_TIMEOUT_S = 10.0
_ANSWER_MS = 3_000
_BUNDLES_WINDOW_MS = 600_000
_DRAIN_MS = DrainBroker.about.verb.timeout_ms if DrainBroker.about.verb else 0
_GOOD = (HTTPStatus.OK, HTTPStatus.ACCEPTED)
_ANSWER_MAX_BYTES = 1 << 26


class Source(Protocol):
    """A cluster to look at; raises CommandError when it can't be seen."""

    def overview(self) -> Mapping[str, Any]:
        """What `/v1/overview` says."""

    def explain(self, broker: str) -> Mapping[str, Any]:
        """What `/v1/explain/broker/...` says."""

    def bundles(self, broker: str) -> Mapping[str, Any]:
        """What `/v1/heat` says of a broker's bundles in the last minutes."""

    def drain(self, broker: str) -> Mapping[str, Any]:
        """Have a broker emptied: `status` and `reason` of what became of the command so far."""


class TablesSource:
    """The tables alone."""

    def __init__(self, where: Whereabouts) -> None:
        self._where = where

    def overview(self) -> Mapping[str, Any]:
        """The cluster as the tables have it now."""
        return read_overview(
            self._where.reader(), self._started(), wall_ms(), self._where.around()
        ).to_json()

    def explain(self, broker: str) -> Mapping[str, Any]:
        """Sentences about a broker."""
        question = ExplainQuestion(kind="broker", name=broker, now_ms=wall_ms())
        found = explain(self._where.reader(), self._started(), question)
        return {"headline": f"there is no broker {broker}"} if found is None else found.to_json()

    def bundles(self, broker: str) -> Mapping[str, Any]:
        """Message rates by bundle and minute."""
        question = HeatQuestion(
            by="msg_rate", broker=broker, until_ms=wall_ms(), window_ms=_BUNDLES_WINDOW_MS
        )
        return read_heat(self._where.reader(), question)

    def drain(self, broker: str) -> Mapping[str, Any]:
        """Send the command through Kafka, and wait for its first answer."""
        where = self._where
        command = new_command(where.cluster, DrainBroker(broker=broker), timeout_ms=_DRAIN_MS)
        with CommandClient(where.address(), where.tables, where.cluster) as client:
            ticket = client.send(command)
            try:
                first = ticket.first.result(_TIMEOUT_S)
            except NotYetError:
                return {"status": "sent", "reason": "the job has not answered yet"}
        return {"status": first.status, "reason": first.reason}

    def _started(self) -> Config:
        """Asked at each look, without a word: the view fills the screen."""
        return self._where.started(tell=lambda _: None)


class ServiceSource:
    """A lookup service. The token of BALLAST_TOKEN, or of the file of BALLAST_TOKEN_FILE."""

    def __init__(self, url: str) -> None:
        """Raises MisuseError for an address that is none."""
        if urlsplit(url).scheme not in ("http", "https"):
            raise MisuseError(
                f"{url!r} is no address of a lookup service",
                why="it begins with http:// or https://",
                next_step="for example: ballast top --url http://127.0.0.1:8080",
            )
        self._url = url.rstrip("/")
        self._token = read_secret(TOKEN)

    def overview(self) -> Mapping[str, Any]:
        """The cluster as the service has it now."""
        return self._ask("/v1/overview")

    def explain(self, broker: str) -> Mapping[str, Any]:
        """Sentences about a broker."""
        return self._ask(f"/v1/explain/broker/{quote(broker, safe='')}")

    def bundles(self, broker: str) -> Mapping[str, Any]:
        """Message rates by bundle and minute."""
        window = f"by=msg_rate&window_ms={_BUNDLES_WINDOW_MS}"
        return self._ask(f"/v1/heat?broker={quote(broker, safe='')}&{window}")

    def drain(self, broker: str) -> Mapping[str, Any]:
        """Ask the service to; it takes an operator's token."""
        path = f"/v1/brokers/{quote(broker, safe='')}/drain?timeout_ms={_ANSWER_MS}"
        return self._ask(path, method="PUT")

    def _ask(self, path: str, method: str = "GET") -> Mapping[str, Any]:
        headers = {"authorization": f"Bearer {self._token}"} if self._token else {}
        target = f"{urlsplit(self._url).path}{path}"
        try:
            answer = exchange(
                connection_to(self._url, _TIMEOUT_S),
                HttpQuestion(target=target, method=method, headers=headers),
                _ANSWER_MAX_BYTES,
            )
            if answer.status in _GOOD:
                found: Mapping[str, Any] = json.loads(answer.content)
                return found
        except (OSError, HTTPException, ValueError, RecursionError) as error:
            raise CommandError(
                f"{self._url} can't be asked",
                why=str(error),
                next_step="check the address, or leave --url out to read the tables",
            ) from None
        moved = f"it points to {answer.location[:500]}; " if answer.location else ""
        raise CommandError(
            f"{self._url} answered {answer.status}",
            why=moved + answer.content[:500].decode("utf-8", "replace"),
            next_step=f"if it asks who you are, put a viewer's token into {TOKEN}; if it points "
            "elsewhere, give that address: the token goes nowhere by itself",
        )


def bundle_lines(found: Mapping[str, Any]) -> list[str]:
    """A broker's bundles with their newest message rates, the busiest first."""
    newest = {
        name: next((value for value in reversed(values) if value is not None), 0.0)
        for name, values in zip(found["names"], found["values"], strict=True)
    }
    if not newest:
        return [f"no load is known of any bundle of {found['broker']} in the last ten minutes"]
    order = sorted(newest, key=lambda name: (-newest[name], name))
    lines = [f"{newest[name]:>12,.0f} msg/s  {name}" for name in order]
    return lines + ([f"and {found['left_out']:,} more"] if found["left_out"] else [])


def explanation_lines(found: Mapping[str, Any]) -> list[str]:
    """The sentences of an explanation, under their titles."""
    lines = [str(found["headline"])]
    for name, title in SECTIONS:
        sentences = found.get(name) or ()
        if sentences:
            lines += ["", f"{title}:", *(f"  - {sentence}" for sentence in sentences)]
    return lines
