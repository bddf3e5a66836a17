"""The lookup application called directly: any path is answered, and waiting is bounded."""

import asyncio
import json
import re
import socket
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from jobs.adapters.following.delta_follower import DeltaFollower
from jobs.adapters.following.view import View
from jobs.adapters.kafka.clients import KafkaAddress
from jobs.adapters.kafka.connection import KafkaWatch
from jobs.adapters.processes.clocks import boot_ms
from jobs.service.access_control import OriginGuard
from jobs.service.lookup_http import Hooks, LookupApp
from lbcore.model.bundles import HashFunction, NamespaceBundles, even_boundaries
from lbcore.model.names import FULL_LOWER, FULL_UPPER, format_bundle, locate_topic, lookup_path
from lbcore.ownership.records import State
from lbcore.route.addresses import BrokerAddress
from lbcore.route.bundles import BundleRoute
from lbcore.route.snapshot import LookupSnapshot

LONG_WAIT_MS = 3_600_000


def snapshot() -> LookupSnapshot:
    """t/owned has an owner, t/free none."""
    routes = [
        BundleRoute(
            bundle=format_bundle(name, FULL_LOWER, FULL_UPPER),
            namespace=name,
            lower=FULL_LOWER,
            upper=FULL_UPPER,
            state=state,
            version_id=1,
            destination=broker,
        )
        for name, state, broker in (("t/owned", State.OWNED, "b1"), ("t/free", State.FREE, ""))
    ]
    return (
        LookupSnapshot(cluster="c")
        .with_namespaces({"t/owned": HashFunction.CRC32, "t/free": HashFunction.MURMUR3_32})
        .with_routes(routes)
        .with_brokers([BrokerAddress(broker="b1", web_service_url="http://b1:8080")])
    )


def application(**options: Any) -> LookupApp:
    """An application over a snapshot that nobody follows."""
    follower = DeltaFollower(Path("nowhere"), "c")
    follower.view = View(snapshot=snapshot(), confirmed_ms=boot_ms(), writer=None)
    return LookupApp(follower, **options)


def ask(
    app: LookupApp,
    path: bytes,
    method: str = "GET",
    query: bytes = b"",
    header: tuple[bytes, bytes] = (b"x-other", b"\xff"),
) -> tuple[int, bytes]:
    """Status and body of one request."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    scope = {
        "type": "http",
        "raw_path": path,
        "method": method,
        "query_string": query,
        "headers": [header],
        "server": ("127.0.0.1", 8090),
    }
    asyncio.run(app(scope, receive, send))
    length = dict(sent[0]["headers"])[b"content-length"]
    assert length == str(len(sent[1]["body"])).encode()
    return sent[0]["status"], sent[1]["body"]


segments = st.one_of(
    st.sampled_from([b"persistent", b"non-persistent", b"t", b"owned", b"free", b"x", b"bundle"]),
    st.binary(max_size=8),
)
prefixes = st.sampled_from([b"/lookup/v2/topic/", b"/lookup/v2/destination/", b"/", b""])


@given(prefixes, st.lists(segments, max_size=8), st.sampled_from(["GET", "POST"]), st.binary())
def test_any_path_gets_a_listed_status_and_a_reason(
    prefix: bytes, parts: list[bytes], method: str, query: bytes
) -> None:
    app = application(wait_ms=0)
    path = prefix + b"/".join(parts)
    status, body = ask(app, path, method, query)
    assert status in {200, 404, 405, 412, 503}
    if status != 200:
        assert json.loads(body)["reason" if path.startswith(b"/lookup/") else "detail"]


@cache
def divided() -> LookupSnapshot:
    """t/n and t/c/n have 256 bundles each."""
    names = [NamespaceBundles(name, even_boundaries(256)) for name in ("t/n", "t/c/n")]
    routes = [
        BundleRoute(
            bundle=format_bundle(one.namespace, ends.lower, ends.upper),
            namespace=one.namespace,
            lower=ends.lower,
            upper=ends.upper,
            state=State.FREE,
            version_id=1,
        )
        for one in names
        for ends in one.ranges()
    ]
    functions = {one.namespace: HashFunction.CRC32 for one in names}
    return LookupSnapshot(cluster="c").with_namespaces(functions).with_routes(routes)


@given(
    st.sampled_from(["persistent://t/n", "topic://t/n", "segment://t/n", "persistent://t/c/n"]),
    st.text(min_size=1).filter(lambda text: text.strip() and "/" not in text),
)
@example("segment://t/n", "orders/0000-7fff-2")
@example("persistent://t/c/n", "a/b")
@example("persistent://t/n", "half \ud800 of a pair")
def test_path_of_a_topic_leads_to_the_bundle_that_has_it(begin: str, local: str) -> None:
    app = application()
    app.follower.view = View(snapshot=divided(), confirmed_ms=boot_ms(), writer=None)
    topic = f"{begin}/{local}"
    found = app.follower.view.snapshot.lookup(topic)
    status, body = ask(app, lookup_path(locate_topic(topic)[1]).encode() + b"/bundle")
    assert found is not None
    assert (status, body.decode()) == (200, found.range_text)


def test_lookup_beyond_the_number_that_may_wait_is_answered_at_once() -> None:
    app = application(wait_ms=LONG_WAIT_MS, waiting_max=0)
    assert ask(app, b"/lookup/v2/topic/persistent/t/free/x")[0] == 503


def test_lookup_of_an_owned_bundle_never_waits_for_anything() -> None:
    app = application(wait_ms=LONG_WAIT_MS)
    assert ask(app, b"/lookup/v2/topic/persistent/t/owned/x")[0] == 200
    assert ask(app, b"/lookup/v2/topic/persistent/t/free/x/bundle")[0] == 200


def test_other_paths_go_to_the_other_application() -> None:
    asked: list[bytes] = []

    async def others(scope: Any, _receive: Any, send: Any) -> None:
        asked.append(scope["raw_path"])
        head = {"type": "http.response.start", "status": 204}
        await send({**head, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    app = application(hooks=Hooks(others=others))
    assert ask(app, b"/admin/v2/clusters", "PUT") == (204, b"")
    assert ask(app, b"/health")[0] == 200
    assert asked == [b"/admin/v2/clusters"]


def test_refused_host_is_no_lookup_that_is_counted() -> None:
    app = application(hooks=Hooks(hosts=OriginGuard("127.0.0.1", [])))
    path, counted = (
        b"/lookup/v2/topic/persistent/t/owned/x",
        re.compile(rb"lookup_requests_total.* 1\.0\n"),
    )
    assert ask(app, path, header=(b"host", b"evil.example"))[0] == 421
    assert not counted.search(app.metrics.text())
    assert ask(app, path, header=(b"host", b"127.0.0.1:8090"))[0] == 200
    assert counted.search(app.metrics.text())


def test_health_says_whether_kafka_answers_and_where() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    watch = KafkaWatch(KafkaAddress(bootstrap=address), "lookup service", tell=lambda _: None)
    app = application(hooks=Hooks(kafka=watch))
    assert json.loads(ask(app, b"/health")[1])["kafka"] == f"answers at {address}"
    watch.check()
    status, body = ask(app, b"/health")
    trouble = f"Kafka does not answer at {address} (Connection refused)"
    assert (status, json.loads(body)["kafka"]) == (200, trouble)
    assert "kafka" not in json.loads(ask(application(), b"/health")[1])


def test_metrics_of_a_service_that_knows_no_commit_have_no_age_of_it() -> None:
    text = ask(application(), b"/metrics")[1].decode()
    assert "ballast_snapshot_ready 1.0" in text
    assert "ballast_writer_silent_seconds" not in text
    assert " -1.0\n" not in text
