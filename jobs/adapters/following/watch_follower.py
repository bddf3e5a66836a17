"""Follower of a lookup service's watch stream, where no tables can be read.

The stream (server-sent events) sends each change of ownership. Its `alive`, every second, has the
age, and whether namespaces or brokers have changed. After this process was suspended the buffered
events are old: the follower closes the stream and opens another. It has the interface of
`delta_follower`, for the Python client.
"""

import http.client
import json
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from jobs.adapters.delta.rows import BadRow, Row, broker_of, hash_of, readable, route_of
from jobs.adapters.delta.table_log import ReloadReason, WriterCommit
from jobs.adapters.following.view import Follower, UnreadRows, View
from jobs.adapters.http.client import connection_to, read_at_most
from jobs.adapters.processes.clocks import boot_ms, wall_ms
from lbcore.route.bundles import BundleRoute
from lbcore.route.snapshot import LookupSnapshot, TablePosition

_ALIVE_MS = 1_000
_TIMEOUT_S = 15.0
_PAGE = 2_000
_ANSWER_MAX_BYTES = 1 << 28
_LINE_MAX_BYTES = 1 << 20
_FIELDS_MAX = 16
_OK, _BAD_PLACE = 200, 400
_END_OF_PART = "end"
_RETRY_S = 1.0
_SUSPENDED_MS = 3 * _ALIVE_MS


class WatchError(ValueError):
    """The service does not answer as a watch stream should."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchAddress:
    """A lookup service. url: http(s)://host:port.

    token: called for the bearer token of each connection, so it may change while running; it needs
    the role viewer of the whole cluster. tls: trusted certificates, and a client's own.
    """

    url: str
    token: Callable[[], str] | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)


def connect(address: WatchAddress) -> http.client.HTTPConnection:
    """Return a connection to the service; it opens at its first request."""
    return connection_to(address.url, _TIMEOUT_S, address.tls)


def auth_header(address: WatchAddress) -> dict[str, str]:
    """Return the header that authenticates; empty without a token."""
    return {} if address.token is None else {"Authorization": f"Bearer {address.token()}"}


class WatchFollower(Follower):
    """Follower that keeps `view` current.

    One thread runs; any thread reads `view`, which is swapped whole.
    """

    _TROUBLE = "stream_not_followed"

    def __init__(self, address: WatchAddress, cluster: str) -> None:
        super().__init__(cluster)
        self._address = address
        self._candidate = LookupSnapshot(cluster=cluster)
        self._pending: list[BundleRoute] = []
        self._unread = UnreadRows()
        self._published = self._candidate
        self._place = ""
        self._list_versions = (-1, -1)
        self._confirmed_ms = 0
        self._writer: WriterCommit | None = None
        self._writer_found_ms = 0

    def run(self, stop: threading.Event, *, poll_ms: int = 200) -> None:
        """Follow until `stop` is set, which takes a second at most."""
        del poll_ms  # there is nothing to poll
        while not stop.is_set():
            try:
                self._follow(stop)
            except Exception as error:  # noqa: BLE001, PERF203 the outermost loop: answer on with what we have
                self.counts.errors += 1
                if self.view is None:
                    self._place = ""  # what was loaded in part is loaded again
                text = f"{self._address.url} can't be followed, answers get older: {error!r}"
                self._note(text)
                stop.wait(_RETRY_S)

    def _follow(self, stop: threading.Event) -> None:
        """Follow by one connection, from where the last one ended."""
        headers = {"Last-Event-ID": self._place} if self._place else {}
        with closing(connect(self._address)) as connection:
            response = self._ask(connection, f"/v1/watch?alive_ms={_ALIVE_MS}", headers)
            received_ms = boot_ms()
            for kind, identity, data in _events(response):
                if stop.is_set():
                    return
                if boot_ms() - received_ms > _SUSPENDED_MS:
                    raise WatchError("nothing was heard for too long to know how old it is")
                self._take(kind, identity, data)
                received_ms = boot_ms()
        raise WatchError("the service has ended the stream")

    # -- events

    def _take(self, kind: str, identity: str, data: Mapping[str, Any]) -> None:
        if kind in ("start", "reset"):
            self._load(data)
        elif kind == "change":
            self._pending += self._unread.of_bundles(*_routes([data]))
        if identity:
            self._place = identity
        if kind == "alive":
            self._confirm(data, boot_ms())
        if kind in (_END_OF_PART, "alive", "start", "reset"):
            self._publish()

    def _confirm(self, data: Mapping[str, Any], received_ms: int) -> None:
        """Confirm all up to a version: its age, and whether the lists are current."""
        self._confirmed_ms = received_ms - int(data["age_ms"])
        silent_ms = int(data["writer_silent_ms"])
        self._writer_found_ms = received_ms - max(0, silent_ms)
        self._writer = None
        if silent_ms >= 0:  # of the job's last commit only the time is known
            at_ms = wall_ms() - silent_ms
            self._writer = WriterCommit(query_id="", batch_id=-1, now_ms=at_ms, committed_ms=at_ms)
        if (data["namespaces_version"], data["brokers_version"]) != self._list_versions:
            self._candidate = self._with_lists(self._candidate)
        position = TablePosition(table_version=int(data["table_version"]))
        if position != self._candidate.position:
            self._candidate = self._candidate.at(position)

    def _publish(self) -> None:
        """Publish the snapshot if it is sound.

        Raises WatchError if it is complete and not sound: then everything is loaded again.
        """
        self._candidate = candidate = self._candidate.with_routes(self._pending)
        self.counts.rows += len(self._pending)
        self._pending.clear()
        shown = self._unread.shown(candidate)
        if shown.unsound:
            where, reason = min(shown.unsound.items())
            self.counts.refused.update(set(shown.unsound.values()))
            self._place = ""
            raise WatchError(f"the records are unsound: {reason.value} at {where}")
        is_changed = self.view is None or self._published is not candidate
        self._published, self._unread.known = candidate, shown
        self._note(self._unread.text)  # before the view, whose readers look for its error
        self.view = View(
            snapshot=shown,
            confirmed_ms=self._confirmed_ms,
            writer=self._writer,
            found_ms=self._writer_found_ms,
            is_found_live=True,
            absent_ms=self._writer_found_ms,
        )
        if is_changed:
            self._notify()

    # -- loading whole

    def _load(self, start: Mapping[str, Any]) -> None:
        """Load everything, at least as new as the beginning of the stream."""
        received_ms = boot_ms()
        self._unread = UnreadRows(self.view.snapshot if self.view is not None else None)
        fresh = self._with_lists(LookupSnapshot(cluster=self.cluster))
        found: list[BundleRoute] = []
        bad: list[BadRow] = []
        after, is_more = "", True
        with closing(connect(self._address)) as connection:
            while is_more:
                page = self._json(connection, f"/v1/ownership?limit={_PAGE}&after={quote(after)}")
                if page["table_version"] < int(start["table_version"]):
                    raise WatchError("another replica answers, which is not as far yet")
                readable_ones, refused = _routes(page["bundles"])
                found, bad = [*found, *readable_ones], [*bad, *refused]
                after = page["next"]
                is_more = bool(after)
        self._candidate = fresh.with_routes(self._unread.of_bundles(found, bad, is_whole=True))
        self._pending.clear()
        self.counts.reloads[ReloadReason.LOG_FILE_MISSING if self.view else ReloadReason.START] += 1
        self._confirm(start, received_ms)

    def _with_lists(self, snapshot: LookupSnapshot) -> LookupSnapshot:
        """Return the snapshot with the present namespaces and brokers."""
        with closing(connect(self._address)) as connection:
            namespaces = self._json(connection, "/v1/namespaces")
            brokers = self._json(connection, "/v1/brokers")
        self._list_versions = (int(namespaces["version"]), int(brokers["version"]))
        present = [row for row in namespaces["namespaces"] if not row["is_deleted"]]
        hashes, bad = readable(present, hash_of, "/v1/namespaces", "namespace")
        addresses = readable(brokers["brokers"], broker_of, "/v1/brokers", "broker")
        return snapshot.with_namespaces(self._unread.of_namespaces(dict(hashes), bad)).with_brokers(
            self._unread.of_brokers(*addresses)
        )

    # -- connections

    def _ask(
        self,
        connection: http.client.HTTPConnection,
        path: str,
        headers: Mapping[str, str] | None = None,
    ) -> http.client.HTTPResponse:
        connection.request("GET", path, headers={**(headers or {}), **auth_header(self._address)})
        response = connection.getresponse()
        if response.status == _BAD_PLACE:
            self._place = ""  # of a service of another version: start again
        if response.status != _OK:
            body = response.read(1_000).decode("utf-8", "replace")
            raise WatchError(f"{path.partition('?')[0]} is answered {response.status}: {body}")
        return response

    def _json(self, connection: http.client.HTTPConnection, path: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            read_at_most(self._ask(connection, path), _ANSWER_MAX_BYTES)
        )
        return found


def _events(
    response: http.client.HTTPResponse,
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield kind, identity and data of a stream's events until it ends.

    A comment is an event without data; its kind is its text. Raises WatchError beyond the bounds.
    """
    found: dict[str, str] = {}
    while line := response.readline(_LINE_MAX_BYTES):
        if len(line) == _LINE_MAX_BYTES or len(found) > _FIELDS_MAX:
            raise WatchError("an event of the stream is too long to be one")
        text = line.decode("utf-8").rstrip("\r\n")
        if text:
            name, _, value = text.partition(": ")
            found[name or "event"] = value.lstrip() if name else text[1:].strip()
        elif found:
            data = json.loads(found["data"]) if "data" in found else {}
            yield found.get("event", ""), found.get("id", ""), data
            found = {}


def _routes(rows: Iterable[Row]) -> tuple[list[BundleRoute], list[BadRow]]:
    return readable(rows, route_of, "/v1/ownership", "bundle")
