"""The short way of a lookup says and counts what the long one does, whatever comes after what."""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn.config import Config as ServerConfig
from uvicorn.server import ServerState

from jobs.adapters.following.delta_follower import DeltaFollower
from jobs.adapters.following.view import View
from jobs.adapters.http.protocol import Account, Bounds
from jobs.adapters.processes.clocks import boot_ms
from jobs.service.csrf import Origins
from jobs.service.exchange import HttpError
from jobs.service.fast_lookup import QuickLookups, quick_protocol
from jobs.service.lookup_http import Hooks, LookupApp
from jobs.service.lookup_metrics import LookupMetrics
from lbcore.model.bundles import NamespaceBundles, even_boundaries
from lbcore.model.hashing import HashFunction
from lbcore.ownership.records import State
from lbcore.route.addresses import BrokerAddress
from lbcore.route.bundles import BundleRoute
from lbcore.route.snapshot import LookupSnapshot
from tests.support.processes.agent_talk import Transport, bounded_protocol

HEAD_MAX = 400
BOUNDS = Bounds(head_bytes=HEAD_MAX, request_bytes=1_000)
HOST = b"Host: localhost\r\n"
REQUEST = b"GET /lookup/v2/topic/persistent/t/owned/%b HTTP/1.1\r\n%b\r\n"
_VARIES = re.compile(rb"(x-ballast-age-ms|date): [^\r]*\r\n")
CLOSED_TENANT = "closed"


class Guard:
    """Keeps one tenant to itself, and lets so many ask at all."""

    def __init__(self, left: int = 1_000) -> None:
        self.left = left

    def check_lookup(self, scope: Any, tenant: str) -> None:
        """Refuse by name, and by number."""
        assert scope["client"][0] == "10.0.0.1"
        self.left -= 1
        if self.left < 0:
            raise HttpError(429, "too many", (b"retry-after", b"1"))
        if tenant == CLOSED_TENANT:
            raise HttpError(403, "not yours")

    def check_metrics(self, scope: Any) -> None:
        """Nobody asks."""


def snapshot() -> LookupSnapshot:
    """Eight bundles with an owner, one without, one whose broker nobody knows."""
    cuts = NamespaceBundles("t/owned", even_boundaries(8)).ranges()
    owned = [("t/owned", each.lower, each.upper, f"b{at % 2}") for at, each in enumerate(cuts)]
    others = [("t/free", 0, 0xFFFFFFFF, ""), ("t/lost", 0, 0xFFFFFFFF, "gone")]
    others += [("closed/ns", 0, 0xFFFFFFFF, "b1")]
    routes = [
        BundleRoute(
            bundle=f"{space}/0x{lower:08x}_0x{upper:08x}",
            namespace=space,
            lower=lower,
            upper=upper,
            state=State.OWNED if broker else State.FREE,
            version_id=3 + lower % 7,
            destination=broker,
        )
        for space, lower, upper, broker in owned + others
    ]
    return (
        LookupSnapshot(cluster="c")
        .with_namespaces(
            {
                "t/owned": HashFunction.MURMUR3_32,
                "t/free": HashFunction.CRC32,
                "t/lost": HashFunction.CRC32,
                "closed/ns": HashFunction.CRC32,
            }
        )
        .with_routes(routes)
        .with_brokers(
            [BrokerAddress(broker=f"b{at}", web_service_url=f"http://b{at}:8080") for at in (0, 1)]
        )
    )


def application(hooks: Hooks) -> LookupApp:
    follower = DeltaFollower(Path("nowhere"), "c")
    follower.view = View(snapshot=snapshot(), confirmed_ms=boot_ms(), writer=None)
    return LookupApp(follower, wait_ms=0, hooks=hooks)


async def converse(pieces: Sequence[bytes], hooks: Hooks, *, is_quick: bool) -> "Talk":
    app = application(hooks)
    config = ServerConfig(app, log_config=None, access_log=False, lifespan="off")
    config.load()
    state, account, asked = ServerState(), Account(), QuickLookups(app)
    made = quick_protocol(BOUNDS, account, asked) if is_quick else bounded_protocol(BOUNDS, account)
    protocol: Any = made(config, state, {})  # type: ignore[call-arg]
    transport = Transport(protocol)
    protocol.connection_made(transport)
    at_once = 0
    for piece in pieces:
        if transport.is_closed:
            break
        before = len(transport.written)
        protocol.data_received(piece)
        at_once += len(transport.written) > before and not transport.is_closed
        for _ in range(30):
            await asyncio.sleep(0)
    was_closed = transport.is_closed
    transport.close()
    await asyncio.gather(*state.tasks)
    await asyncio.sleep(0)
    assert account.unanswered_bytes == account.unread_bytes == 0
    return Talk(transport.written, at_once, app.metrics, (state.total_requests, was_closed))


class Talk:
    """What came of a connection. at_once: requests that were answered as they arrived.

    ended: how many requests were served, and whether the server had closed the connection.
    """

    def __init__(
        self, written: bytes, at_once: int, metrics: LookupMetrics, ended: tuple[int, bool]
    ) -> None:
        self.written = _VARIES.sub(b"", written)
        self.at_once = at_once
        self.ended = ended
        lines = metrics.text().decode().splitlines()
        kept = (
            "ballast_lookup_requests_total",
            "pulsar_lb",
            "ballast_lookup_duration_seconds_count",
        )
        self.counts = [line for line in lines if line.startswith(kept)]


def both(pieces: Sequence[bytes], make_hooks: Any = Hooks) -> tuple[Talk, Talk]:
    """The same pieces the long way, and with the short one."""
    long = asyncio.run(converse(pieces, make_hooks(), is_quick=False))
    short = asyncio.run(converse(pieces, make_hooks(), is_quick=True))
    assert short.written == long.written
    assert short.counts == long.counts
    assert short.ended == long.ended
    assert long.at_once == 0
    return long, short


HEADERS = st.sampled_from(
    [
        HOST,
        HOST,
        HOST + b"Accept: application/json\r\nUser-Agent: Pulsar-Java-v4.0.8\r\n",
        HOST + b"Connection: close\r\n",
        HOST + b"Content-Length: 3\r\n",
        HOST + b"Content-Length: 0\r\n",
        HOST + b"Transfer-Encoding: chunked\r\n",
        HOST + b"Expect: 100-continue\r\n",
        HOST + b"X-Pulsar-ListenerName: inner\r\n",
        HOST + b"Upgrade: h2c\r\nConnection: upgrade\r\n",
        HOST + HOST,
        b"",
        b"Host: evil.example\r\n",
        HOST + b"X: " + b"a" * HEAD_MAX + b"\r\n",
    ]
)
TARGET = st.sampled_from(
    [
        b"/lookup/v2/topic/persistent/t/owned/a",
        b"/lookup/v2/topic/persistent/t/owned/b",
        b"/lookup/v2/topic/non-persistent/t/owned/c-partition-3",
        b"/lookup/v2/topic/persistent/t/owned/a/bundle",
        b"/lookup/v2/topic/persistent/t/owned/a?max_age_ms=100000000",
        b"/lookup/v2/topic/persistent/t/owned/a%20b+c",
        b"/lookup/v2/topic/persistent/t/owned/",
        b"/lookup/v2/topic/persistent/t/free/a",
        b"/lookup/v2/topic/persistent/t/lost/a",
        b"/lookup/v2/topic/persistent/t/unknown/a",
        b"/lookup/v2/topic/persistent/closed/ns/a",
        b"/lookup/v2/topic/persistent/t/c/owned/a",
        b"/lookup/v2/topic/persistent/t/owned/" + b"a" * HEAD_MAX,
        b"/lookup/v2/destination/persistent/t/c/owned/a",
        b"/health-",
        b"http://evil.example/lookup/v2/topic/persistent/t/owned/a",
    ]
)
METHOD = st.sampled_from([b"GET", b"GET", b"GET", b"HEAD", b"POST", b"OPTIONS"])
VERSION = st.sampled_from([b"1.1", b"1.1", b"1.1", b"1.0"])


@st.composite
def requests(draw: Any) -> bytes:
    """One lookup, or nearly one."""
    return b"%b %b HTTP/%b\r\n%b\r\n" % (draw(METHOD), draw(TARGET), draw(VERSION), draw(HEADERS))


PIECE = requests() | st.builds(bytes.__add__, requests(), requests()) | st.just(b"\r\n")


@settings(max_examples=200, deadline=None)
@given(pieces=st.lists(PIECE, min_size=1, max_size=8))
def test_short_way_says_and_counts_the_same_as_the_long_one(pieces: list[bytes]) -> None:
    both(pieces, lambda: Hooks(guard=Guard(), hosts=Origins("127.0.0.1", checks_hosts=True)))


def test_second_lookup_of_a_connection_is_answered_at_once() -> None:
    pieces = [REQUEST % (name, HOST) for name in (b"a", b"b", b"c", b"d")]
    _, short = both(pieces)
    assert short.at_once == len(pieces) - 1
    assert short.written.count(b"HTTP/1.1 200 OK") == len(pieces)


@pytest.mark.parametrize(
    "other",
    [
        REQUEST % (b"b", HOST + b"X: 1\r\n"),
        REQUEST % (b"b", HOST) + REQUEST % (b"c", HOST),
        REQUEST % (b"b?max_age_ms=100000000", HOST),
        (REQUEST % (b"b", HOST))[:-1],
        (REQUEST % (b"b" * HEAD_MAX, HOST)),
    ],
    ids=["other headers", "two at once", "a query", "a part", "too long"],
)
def test_other_request_goes_the_long_way(other: bytes) -> None:
    _, short = both([REQUEST % (b"a", HOST), other])
    assert short.at_once == 0


def test_lookup_of_another_tenant_is_judged_although_the_headers_are_known() -> None:
    closed = b"GET /lookup/v2/topic/persistent/closed/ns/a HTTP/1.1\r\n%b\r\n" % HOST
    _, short = both([REQUEST % (b"a", HOST), closed], lambda: Hooks(guard=Guard()))
    assert short.at_once == 1
    assert b"HTTP/1.1 403" in short.written


def test_lookup_beyond_the_rate_is_refused_the_short_way_too() -> None:
    pieces = [REQUEST % (b"a", HOST)] * 4
    _, short = both(pieces, lambda: Hooks(guard=Guard(left=2)))
    assert short.written.count(b"HTTP/1.1 429") == 2


def test_answers_that_nobody_takes_stop_the_short_way() -> None:
    async def talk() -> tuple[int, int]:
        app = application(Hooks())
        config = ServerConfig(app, log_config=None, access_log=False, lifespan="off")
        config.load()
        made = quick_protocol(BOUNDS, Account(), QuickLookups(app))
        protocol: Any = made(config, ServerState(), {})  # type: ignore[call-arg]
        transport = Transport(protocol)
        protocol.connection_made(transport)
        protocol.data_received(REQUEST % (b"a", HOST))
        for _ in range(30):
            await asyncio.sleep(0)
        protocol.pause_writing()
        before = len(transport.written)
        protocol.data_received(REQUEST % (b"a", HOST))
        for _ in range(30):
            await asyncio.sleep(0)
        held = len(transport.written) - before
        protocol.resume_writing()
        for _ in range(30):
            await asyncio.sleep(0)
        sent = len(transport.written) - before
        transport.close()
        await asyncio.sleep(0)
        return held, sent

    held, sent = asyncio.run(talk())
    assert held == 0
    assert sent > 0


def test_connection_in_use_outlives_the_pause_that_ends_an_idle_one() -> None:
    async def talk() -> tuple[bool, bool]:
        app = application(Hooks())
        config = ServerConfig(app, log_config=None, lifespan="off", timeout_keep_alive=60)
        config.load()
        made = quick_protocol(BOUNDS, Account(), QuickLookups(app))
        protocol: Any = made(config, ServerState(), {})  # type: ignore[call-arg]
        transport = Transport(protocol)
        protocol.connection_made(transport)
        protocol.data_received(REQUEST % (b"a", HOST))
        for _ in range(30):
            await asyncio.sleep(0)
        protocol.data_received(REQUEST % (b"a", HOST))
        protocol.timeout_keep_alive_handler()
        is_kept = not transport.is_closed
        protocol.timeout_keep_alive = 0
        protocol.timeout_keep_alive_handler()
        is_ended = transport.is_closed
        await asyncio.sleep(0)
        return is_kept, is_ended

    assert asyncio.run(talk()) == (True, True)
