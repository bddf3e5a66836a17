"""A store of lines by topic: a whole service, balanced by Ballast (docs/agent.md)."""

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

from ballast import Bundle, Callbacks, LoadRead, Permits, TopicsRead, crc32


class NotServedError(Exception):
    """Another broker serves the topic, or nobody at the moment: look it up again."""


class StaleTokenError(NotServedError):
    """The bundle has had a newer owner since the token was given."""


class Store:
    """Lines of all topics, shared by all brokers.

    A file here, a database in production. It remembers the newest token that each range was claimed
    with, and refuses older ones. Look and change are one transaction: a broker may be frozen
    between any two lines of its code.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        with self._transaction() as database:
            database.execute("create table if not exists claims (namespace, lower, ends, token)")
            database.execute("create table if not exists lines (namespace, hash, topic, line)")

    def claim(self, bundle: Bundle, token: int) -> None:
        """Refuse older tokens for any part of the range from now on."""
        with self._fenced(bundle, token) as database:
            inside = "namespace = ? and lower >= ? and ends <= ?"
            database.execute(f"delete from claims where {inside}", _span(bundle))
            database.execute("insert into claims values (?, ?, ?, ?)", (*_span(bundle), token))

    def append(self, bundle: Bundle, token: int, topic: str, line: str) -> None:
        with self._fenced(bundle, token) as database:
            row = (bundle.namespace, crc32(topic), topic, line)
            database.execute("insert into lines values (?, ?, ?, ?)", row)

    def lines(self, bundle: Bundle, token: int, topic: str) -> list[str]:
        with self._fenced(bundle, token) as database:
            found = database.execute(
                "select line from lines where topic = ? order by rowid", (topic,)
            )
            return [line for (line,) in found]

    def topics(self, bundle: Bundle) -> list[str]:
        where = "namespace = ? and hash >= ? and hash < ?"
        query = f"select distinct topic from lines where {where} order by topic"
        with self._transaction() as database:
            return [topic for (topic,) in database.execute(query, _span(bundle))]

    @contextmanager
    def _fenced(self, bundle: Bundle, token: int) -> Iterator[sqlite3.Connection]:
        with self._transaction() as database:
            namespace, lower, ends = _span(bundle)
            overlap = "namespace = ? and lower < ? and ends > ?"
            query = f"select max(token) from claims where {overlap}"
            (newest,) = database.execute(query, (namespace, ends, lower)).fetchone()
            if newest is not None and newest > token:
                raise StaleTokenError(f"{bundle.name} was claimed with {newest}, this is {token}")
            yield database

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as database:
            database.execute("begin immediate")
            yield database
            database.execute("commit")


class WordStore:
    """One broker: what is open here, and the callbacks of its agent.

    The lock makes callbacks wait for the requests that are being served: nothing of a bundle is in
    use when `close` returns. (A service with long requests would count those of each bundle.)
    """

    permits: Permits

    def __init__(self, store: Store) -> None:
        self.store = store
        self.bundles: dict[str, Bundle] = {}
        self.counted: dict[str, np.ndarray] = {}
        self.rates: dict[str, np.ndarray] = {}
        self.since_s, self.cpu_s = time.monotonic(), time.process_time()
        self.lock = threading.RLock()

    def attach(self, permits: Permits) -> None:
        self.permits = permits

    def append(self, topic: str, line: str) -> str:
        """A client's request: first the permit; its token goes along into the store."""
        with self.lock:
            bundle, token = self._permitted(topic)
            self.store.append(bundle, token, topic, line)
            self._count(topic, [1, 0, len(line), 0])
            return ""

    def lines(self, topic: str) -> str:
        with self.lock:
            bundle, token = self._permitted(topic)
            text = "\n".join(self.store.lines(bundle, token, topic))
            self._count(topic, [0, 1, 0, len(text)])
            return text

    def open(self, name: str, token: int) -> None:
        bundle = Bundle.parse(name)
        with self.lock:
            self._drop(bundle)  # children of a cancelled split may still be open
            self.store.claim(bundle, token)
            self.bundles[name] = bundle

    def close(self, name: str, token: int) -> None:
        with self.lock:
            self._drop(Bundle.parse(name))

    def split(self, name: str, children: Sequence[str], token: int) -> None:
        with self.lock:  # the store goes by hash; with a file for each bundle it would be cut here
            self._drop(Bundle.parse(name))
            self.bundles |= {child: Bundle.parse(child) for child in children}

    def load(self) -> LoadRead:
        busy_percent = self._measure()
        with self.lock:
            bundles = dict(sorted(self.bundles.items()))
        stats = np.zeros((len(bundles), 8))  # columns: docs/agent.md
        for row, bundle in zip(stats, bundles.values(), strict=True):
            topics = self.store.topics(bundle)
            row[:4] = sum(
                (self.rates[topic] for topic in topics if topic in self.rates), np.zeros(4)
            )
            row[4] = len(topics)
        return LoadRead(
            usage=np.array([busy_percent, 0.0, 0.0, 0.0, 0.0]),
            limit=np.array([100.0, -1.0, -1.0, -1.0, -1.0]),  # -1: unknown
            traffic=stats[:, :4].sum(axis=0),
            bundles=tuple(bundles),
            stats=stats,
        )

    def topics(self) -> list[TopicsRead]:
        """Return all topics of each bundle; the agent sends changes."""
        with self.lock:
            bundles = dict(self.bundles)
        found = {name: self.store.topics(bundle) for name, bundle in bundles.items()}
        return [
            TopicsRead(
                bundle=name,
                topics=tuple(topics),
                traffic=np.array([self.rates.get(topic, np.zeros(4)) for topic in topics]),
            )
            for name, topics in found.items()
            if topics
        ]

    def _permitted(self, topic: str) -> tuple[Bundle, int]:
        for name, bundle in self.bundles.items():
            token = self.permits.token(name) if bundle.includes_topic(topic) else None
            if token is not None:
                return bundle, token
        raise NotServedError(f"{topic} is not served here now: look it up again")

    def _drop(self, bundle: Bundle) -> None:
        """Close every open bundle that overlaps the range."""
        self.bundles = {
            name: other
            for name, other in self.bundles.items()
            if other.namespace != bundle.namespace or not other.range.overlaps(bundle.range)
        }

    def _count(self, topic: str, traffic: list[int]) -> None:
        self.counted[topic] = self.counted.get(topic, np.zeros(4)) + traffic

    def _measure(self) -> float:
        """Measure each topic's rates since the last call.

        Returns the process's share of a core, in %.
        """
        with self.lock:
            counted, self.counted = self.counted, {}
        now_s, cpu_s = time.monotonic(), time.process_time()
        elapsed_s = max(now_s - self.since_s, 0.001)
        self.rates = {topic: counts / elapsed_s for topic, counts in counted.items()}
        busy_percent = 100.0 * (cpu_s - self.cpu_s) / elapsed_s
        self.since_s, self.cpu_s = now_s, cpu_s
        return busy_percent


class Handler(BaseHTTPRequestHandler):
    """POST /persistent/public/default/greetings adds a line, GET reads the topic's."""

    service: WordStore

    def do_POST(self) -> None:
        line = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        self._answer(lambda topic: self.service.append(topic, line))

    def do_GET(self) -> None:
        self._answer(self.service.lines)

    def _answer(self, serve: Callable[[str], str]) -> None:
        try:
            status, text = 200, serve(self.path[1:].replace("/", "://", 1))
        except NotServedError as error:
            status, text = 503, str(error)
        self.send_response(status)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        return None


def _span(bundle: Bundle) -> tuple[str, int, int]:
    """Namespace and hashes of a bundle: lower <= hash < ends."""
    lower, upper = bundle.range.lower, bundle.range.upper
    return bundle.namespace, lower, upper + (upper == 0xFFFFFFFF)


def callbacks_of(service: WordStore) -> Callbacks:
    return Callbacks(
        load=service.load,
        open=service.open,
        close=service.close,
        split=service.split,
        topics=service.topics,
        attach=service.attach,
    )


def make() -> Callbacks:
    """Start the service with nothing open, as `--service word_store:make` asks."""
    service = WordStore(Store(os.environ["WORD_STORE"]))
    Handler.service = service
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ["WORD_PORT"])), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return callbacks_of(service)
