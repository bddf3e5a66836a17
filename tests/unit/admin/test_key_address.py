"""Keys of tokens from an address: rotation, its bounds, login pages, the end of a watch."""

import asyncio
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from jobs.adapters.http.tls import WatchedFile
from jobs.console import CommandError
from jobs.service import access
from jobs.service.access import BETWEEN_S, KeyAddress, TokenChecker
from jobs.service.access_control import Gatekeeper
from jobs.service.all_routes import ROUTES
from jobs.service.app import AdminApp, make_gate
from jobs.service.lookup_http import Hooks, LookupApp
from lbcore.config.lookup import LookupConfig
from tests.support.admin.admin_world import make_context, write_tables
from tests.support.admin.asgi_calls import Answer, ask
from tests.support.values.tokens import AUDIENCE, EC_KEY, OTHER_RSA_KEY, RSA_KEY, jwks, token

SHARED = (
    b'{"keys": [{"kty": "oct", "k": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY", "kid": "1"}]}'
)
LOOKUP = "/lookup/v2/topic/persistent/acme/ns1/t1"


class Issuer(BaseHTTPRequestHandler):
    """An identity provider: answers with what it is set to, and counts."""

    answer: ClassVar[tuple[int, str, bytes]] = (200, "application/json", b"{}")
    asked: ClassVar[int] = 0
    pause_s: ClassVar[float] = 0.0

    def do_GET(self) -> None:
        kind = type(self)
        kind.asked += 1
        time.sleep(kind.pause_s)
        status, media, body = kind.answer
        self.send_response(status)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Location", "https://login.example/")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def issuer() -> Iterator[tuple[type[Issuer], str]]:
    kind = type("OneIssuer", (Issuer,), {"answer": published(k1=RSA_KEY)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield kind, f"http://127.0.0.1:{server.server_port}/keys?x=1"
    server.shutdown()


def published(**keys: Any) -> tuple[int, str, bytes]:
    return 200, "application/json", jwks(**keys).encode()


def signed(key: Any, key_id: str, **more: Any) -> str:
    algorithm = "ES256" if key is EC_KEY else "RS256"
    return token(key, algorithm, kid=key_id, **more)


def service(tmp_path: Path, url: str) -> LookupApp:
    write_tables(tmp_path / "tables")
    context = make_context(tmp_path / "tables")
    lookup = LookupConfig(authentication="token", token_audience=AUDIENCE)
    checker = TokenChecker(WatchedFile((), tuple), lookup, KeyAddress(url))
    gate = Gatekeeper(context.cluster, lookup, checker)
    others = AdminApp(context, ROUTES, gate=gate)
    return LookupApp(context.follower, wait_ms=0, hooks=Hooks(others=others, guard=gate))


async def get(app: Any, path: str, text: str) -> Answer:
    return await ask(app, path, headers={"Authorization": f"Bearer {text}"})


@pytest.mark.parametrize("path", [LOOKUP, "/v1/settings", "/metrics"])
def test_token_of_a_key_that_came_by_rotation_is_let_in_at_once(
    issuer: tuple[type[Issuer], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    kind, url = issuer
    app = service(tmp_path, url)
    assert asyncio.run(get(app, path, signed(RSA_KEY, "k1"))).status == 200
    kind.answer, asked = published(k2=EC_KEY), kind.asked
    monkeypatch.setattr(access, "monotonic", lambda: time.monotonic() + BETWEEN_S)
    assert asyncio.run(get(app, path, signed(EC_KEY, "k2"))).status == 200
    assert kind.asked == asked + 1
    assert asyncio.run(get(app, path, signed(RSA_KEY, "k1"))).status == 401


def test_tokens_of_made_up_keys_bring_one_question_and_are_refused(
    issuer: tuple[type[Issuer], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, url = issuer
    app = service(tmp_path, url)
    asked = kind.asked
    monkeypatch.setattr(access, "monotonic", lambda: time.monotonic() + 60)
    kind.pause_s = 0.2

    async def flood() -> list[int]:
        texts = [signed(OTHER_RSA_KEY, f"no{at}") for at in range(20)]
        found = await asyncio.gather(*(get(app, LOOKUP, text) for text in (*texts, *texts)))
        return [one.status for one in found]

    assert set(asyncio.run(flood())) == {401}
    assert kind.asked == asked + 1


def test_token_of_a_made_up_key_is_refused_also_after_a_slow_answer(
    issuer: tuple[type[Issuer], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, fetch = [60.0], KeyAddress._fetch  # noqa: SLF001 (what takes the time)

    def slowly(address: KeyAddress) -> Any:
        now_s[0] += BETWEEN_S
        return fetch(address)

    monkeypatch.setattr(access, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(KeyAddress, "_fetch", slowly)
    app = service(tmp_path, issuer[1])
    assert asyncio.run(get(app, LOOKUP, signed(OTHER_RSA_KEY, "no"))).status == 401


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((200, "text/html", b"<html>Sign in</html>"), "it may be a login page"),
        ((302, "text/html", b""), "HTTP 302 and sends to https://login.example/"),
        ((200, "application/json", b" " * 300_000), "longer than 262144 bytes"),
        ((200, "application/json", b'{"keys": []}'), "must hold 1 to 100 keys"),
        ((200, "application/json", SHARED), "no key of it is public"),
    ],
)
def test_answer_without_keys_ends_the_start_and_changes_nothing_later(
    issuer: tuple[type[Issuer], str], answer: tuple[int, str, bytes], why: str
) -> None:
    kind, url = issuer
    address = KeyAddress(url)
    known, kind.answer = address.keys, answer
    asyncio.run(address.renew())
    assert address.keys is known
    lookup = LookupConfig(authentication="token", token_keys_url=url)
    with pytest.raises(CommandError) as found:
        make_gate(lookup, "c1")
    assert why in found.value.why
    assert "lookup.token_keys_url" in found.value.next_step


@pytest.mark.parametrize("url", ["http://id.example/keys", "file:///etc/passwd", "keys.json", ""])
def test_address_that_others_could_answer_for_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="must be https://"):
        KeyAddress(url)


def test_address_that_is_silent_is_named_within_its_time(
    issuer: tuple[type[Issuer], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, url = issuer
    kind.pause_s = 5.0
    monkeypatch.setattr(access, "_TIMEOUT_S", 0.3)
    begun_s = time.monotonic()
    with pytest.raises(ValueError, match="gives no answer"):
        KeyAddress(url)
    assert time.monotonic() - begun_s < 3.0


def test_watch_ends_with_its_token_and_the_next_one_is_told_why(
    issuer: tuple[type[Issuer], str], tmp_path: Path
) -> None:
    app = service(tmp_path, issuer[1])
    text = signed(RSA_KEY, "k1", exp=int(time.time()) + 2)
    begun_s = time.monotonic()
    stream = asyncio.run(get(app, "/v1/watch?alive_ms=500", text))
    assert (stream.status, time.monotonic() - begun_s < 10) == (200, True)
    assert stream.body.count(b"event: alive") >= 1
    time.sleep(max(0.0, 8 - (time.monotonic() - begun_s)))  # its leeway is 5 s
    later = asyncio.run(get(app, "/v1/watch", text))
    assert (later.status, later.headers["content-type"]) == (401, "application/problem+json")
    assert "the token's time is over" in later.json["detail"]
