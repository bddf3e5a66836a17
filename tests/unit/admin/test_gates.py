"""Which tokens are accepted, who is let in, and who has asked too often."""

import asyncio
import base64
import hashlib
import hmac
import json
import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jwt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.adapters.delta.table_location import table_place
from jobs.adapters.http.protocol import PEER
from jobs.adapters.http.tls import WatchedFile
from jobs.service.access import (
    Grant,
    Role,
    TokenChecker,
    TokenError,
    TokenFault,
    parse_grant,
    parse_grants,
    read_keys,
    secret_key,
)
from jobs.service.access_control import Gatekeeper, RateLimiter
from jobs.service.all_routes import ROUTES
from jobs.service.app import AdminApp, start_service
from jobs.service.lookup_http import Hooks, LookupApp
from jobs.service.v1.reading import readers
from lbcore.config.load import parse_config
from lbcore.config.lookup import LookupConfig
from tests.support.admin.admin_world import Balancer, make_context
from tests.support.admin.asgi_calls import Answer, ask
from tests.support.values.tokens import (
    AUDIENCE,
    EC_KEY,
    OTHER_RSA_KEY,
    RSA_KEY,
    SECRET,
    claims,
    jwks,
    public_pem,
    token,
)

LOOKUP = "/lookup/v2/topic/persistent/acme/ns1/t1"


def service(
    tables: Path, balancer: Balancer | None = None, per_s: int = 0, **rules: Any
) -> LookupApp:
    keys = WatchedFile((), lambda: (secret_key(SECRET),))
    lookup = LookupConfig(
        token_audience=AUDIENCE,
        max_requests_per_s=per_s,
        **{"authentication": "token", **rules},
    )
    gate = Gatekeeper("c1", lookup, TokenChecker(keys, lookup))
    context = make_context(tables, balancer)
    app = LookupApp(
        context.follower,
        wait_ms=0,
        hooks=Hooks(others=AdminApp(context, ROUTES, gate=gate), guard=gate),
    )
    app.metrics.beside.counts = gate.counts
    return app


def call(app: LookupApp, path: str, text: str = "", **more: Any) -> Answer:
    headers = {"Authorization": f"Bearer {text}"} if text else {}
    return asyncio.run(ask(app, path, headers=headers, **more))


def signed(*roles: str, **changed: Any) -> str:
    return token(SECRET, "HS256", roles=list(roles), **changed)


@pytest.mark.parametrize(
    ("roles", "lookup", "status"),
    [
        (["viewer"], 200, 200),
        (["admin:c1"], 200, 200),
        (["viewer:c1/acme"], 200, 403),
        (["viewer:c1/other"], 403, 403),
        (["admin:c2"], 403, 403),
        (["admin:*/other"], 403, 403),
        ([], 403, 403),
    ],
)
def test_role_counts_on_its_own_cluster_and_tenant_only(
    tables: Path, roles: list[str], lookup: int, status: int
) -> None:
    app = service(tables)
    assert call(app, LOOKUP, signed(*roles)).status == lookup
    assert call(app, "/v1/status", signed(*roles)).status == status


@pytest.mark.parametrize("topic", ["topic://acme/ns1/t", "segment://acme/ns1/t"])
def test_lookup_tells_nothing_of_a_tenant_that_its_path_hides(tables: Path, topic: str) -> None:
    app, other = service(tables), signed("viewer:c1/other")
    path = f"/lookup/v2/topic/{quote(topic, safe='')}/other/ns/t"
    assert call(app, path, other).status == 404


@pytest.mark.parametrize("local", ["", " ", "\t"])
def test_batch_of_lookups_tells_nothing_of_a_tenant_by_a_blank_topic(
    tables: Path, local: str
) -> None:
    asked = json.dumps({"topics": [f"persistent://acme/ns1/{local}"]}).encode()
    reply = call(
        service(tables), "/v1/lookups", signed("viewer:c1/other"), method="POST", body=asked
    )
    assert [answer["outcome"] for answer in reply.json["answers"]] == ["invalid_name"]


@pytest.mark.parametrize("path", [LOOKUP, "/v1/status", "/metrics"])
def test_request_without_an_accepted_token_is_401_with_a_challenge(tables: Path, path: str) -> None:
    app = service(tables)
    for text in ("", "nonsense", signed("admin", exp=1), signed("admin", aud="other")):
        reply = call(app, path, text)
        assert reply.status == 401
        assert reply.headers["www-authenticate"].startswith("Bearer")
        told = reply.json["reason" if path == LOOKUP else "detail"]
        assert told.startswith("Authentication required")
        assert text not in reply.body.decode() or not text


def test_health_needs_no_token_and_metrics_only_a_role(tables: Path) -> None:
    app = service(tables)
    assert call(app, "/health").status == call(app, "/alive").status == 200
    assert call(app, "/metrics", signed("viewer:c1/acme")).status == 200
    assert call(app, "/metrics", signed("admin:c2")).status == 403
    assert call(service(tables, open_metrics=True), "/metrics").status == 200
    assert call(service(tables, open_lookups=True), LOOKUP).status == 200


def test_open_lookups_leave_the_metrics_of_a_started_service_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BALLAST_TOKEN_SECRET", SECRET)
    monkeypatch.setattr(readers, "stand_ready", lambda: None)
    rules = {"authentication": "token", "open_lookups": True}
    started = start_service(parse_config({"lookup": rules}), table_place(tmp_path), "c1")
    try:
        assert call(started.app, "/metrics").status == 401
        assert call(started.app, LOOKUP).status == 503
    finally:
        started.stop()


def test_token_that_expires_after_it_was_accepted_is_refused(
    tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = service(tables)
    text = signed("viewer")
    assert call(app, LOOKUP, text).status == 200
    monkeypatch.setattr("jobs.service.access_control.time.time", lambda: 1e12)
    monkeypatch.setattr("jobs.service.access.TokenChecker.check", _refuse)
    assert call(app, LOOKUP, text).status == 401


@pytest.mark.parametrize(
    ("ahead_s", "refused"),
    [
        (-3_600, "has not begun"),
        (-40, "has not begun"),
        (-4, ""),
        (0, ""),
        (5, ""),
        (40, ""),
        (3_600, "is over"),
    ],
)
@pytest.mark.parametrize("begins", ["nbf", "iat"])
def test_token_beside_a_service_with_a_wrong_clock_is_let_in_or_told_of_the_clock(
    tables: Path, begins: str, ahead_s: int, refused: str
) -> None:
    issued_s = time.time() - ahead_s
    text = signed("viewer", exp=issued_s + 600, **{begins: issued_s})
    reply = call(service(tables), LOOKUP, text)
    assert reply.status == (401 if refused else 200)
    if refused:
        assert f"the token's time {refused} by the clock of this service" in reply.json["reason"]


def test_token_that_is_not_signed_is_told_nothing_of_its_time(tables: Path) -> None:
    forged = token("another secret of at least 32 bytes", "HS256", exp=1)
    reply = call(service(tables), LOOKUP, forged)
    assert reply.json["reason"] == "Authentication required: the token is not accepted"


def _refuse(_: object, __: str) -> None:
    raise TokenError(TokenFault.EXPIRED)


def test_refused_requests_are_in_the_audit_without_the_token(tables: Path) -> None:
    balancer = Balancer()
    app = service(tables, balancer)
    text = signed("viewer:c2")
    call(app, "/v1/status", text, client="10.0.0.9")
    call(app, "/v1/status", "nonsense")
    named, nameless = balancer.entries
    assert (named.principal, named.address, named.is_allowed) == ("ada", "10.0.0.9", False)
    assert named.action == "GET /v1/status"
    assert nameless.principal == ""
    assert text not in str(balancer.entries)
    assert "nonsense" not in str(balancer.entries)


def test_flood_of_refusals_does_not_flood_the_audit(tables: Path) -> None:
    balancer = Balancer()
    app = service(tables, balancer)

    async def flood() -> None:
        for _ in range(500):
            await ask(app, "/v1/status", headers={"authorization": "Bearer nonsense"})

    asyncio.run(flood())
    admin = app.hooks.others
    assert isinstance(admin, AdminApp)
    assert len(balancer.entries) + admin.counts.unrecorded == 500
    assert admin.counts.unrecorded > 0


def test_verified_certificate_is_a_proof_where_it_is_asked_for() -> None:
    scope = {PEER: "dash board", "headers": [], "client": ("10.0.0.1", 1)}
    for certificates in (True, False):
        lookup = LookupConfig(
            authentication="certificate" if certificates else "token",
            grants=("dash board viewer:c1",),
        )
        gate = Gatekeeper("c1", lookup)
        if certificates:
            assert gate.caller(scope).may(Role.VIEWER, "c1")
        else:
            with pytest.raises(Exception, match="Authentication required"):
                gate.caller(scope)


def test_one_principal_too_fast_is_429_and_others_are_served(tables: Path) -> None:
    app = service(tables, per_s=5)
    fast = [call(app, LOOKUP, signed("viewer")) for _ in range(12)]
    assert [reply.status for reply in fast[:5]] == [200] * 5
    late = [reply for reply in fast if reply.status == 429]
    assert late
    assert late[0].headers["retry-after"] == "1"
    assert call(app, LOOKUP, signed("viewer", sub="bob")).status == 200


def test_action_of_one_principal_too_fast_is_recorded_as_refused(tables: Path) -> None:
    balancer = Balancer()
    app = service(tables, balancer, per_s=2)
    pause = "/v1/commands/pause"
    replies = [call(app, pause, signed("admin:c1"), method="POST").status for _ in range(6)]
    assert 429 in replies
    refused = [entry for entry in balancer.entries if not entry.is_allowed]
    assert len(refused) == replies.count(429)
    assert {entry.principal for entry in refused} == {"ada"}


def test_limiter_refills_steadily_and_forgets_who_is_long_gone() -> None:
    now = [0.0]
    limiter = RateLimiter(2, lambda: now[0])
    assert [limiter.allows("a") for _ in range(3)] == [True, True, False]
    now[0] = 0.5
    assert [limiter.allows("a") for _ in range(2)] == [True, False]
    for number in range(20_000):
        limiter.allows(str(number))
    assert len(limiter._buckets) == 10_000  # noqa: SLF001 (its bound)


@pytest.mark.parametrize(
    "text", ["", "king", "admin viewer:", ":c1", "admin:", "viewer:c1/", "admin:/acme"]
)
def test_grant_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="grant"):
        parse_grant(text)
    with pytest.raises(ValueError, match="nobody"):
        parse_grants(["admin:c1"])


def test_lookup_older_than_asked_for_is_refused(tables: Path) -> None:
    app = service(tables, authentication="none")
    assert call(app, f"{LOOKUP}?max_age_ms=60000").status == 200
    view = app.follower.view
    assert view is not None
    app.follower.view = type(view)(
        snapshot=view.snapshot, confirmed_ms=view.confirmed_ms - 120_000, writer=view.writer
    )
    stale = call(app, f"{LOOKUP}?max_age_ms=60000")
    assert (stale.status, stale.headers["retry-after"]) == (503, "1")
    assert call(app, LOOKUP).status == 200
    assert call(app, f"{LOOKUP}?max%5Fage%5Fms=60000").status == 503
    assert call(app, f"{LOOKUP}?max_age_ms=soon").status == 400
    assert call(app, f"{LOOKUP}?max_age_ms=").status == 400
    assert call(app, f"{LOOKUP}?listenerName=max_age_ms&x_max_age_ms=5").status != 400


@pytest.mark.parametrize(
    ("path", "result"),
    [
        (f"{LOOKUP}?max_age_ms=soon", "invalid_max_age"),
        (LOOKUP.replace("persistent", "transient"), "invalid_name"),
    ],
)
def test_lookup_that_can_not_be_answered_is_counted_by_what_is_wrong_with_it(
    path: str, result: str, tables: Path
) -> None:
    app = service(tables, authentication="none")
    assert call(app, path).status in (400, 412)
    lines = app.metrics.text().decode().splitlines()
    assert f'ballast_lookup_requests_total{{result="{result}"}} 1.0' in lines


LONG = st.text(max_size=2_000) | st.integers().map(lambda bits: 10 ** (abs(bits) % 500))
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30) | LONG,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
CLAIMS = st.sampled_from(["exp", "nbf", "iat", "sub", "aud", "iss", "roles", "jti", "other"])
HEADERS = st.sampled_from(["alg", "kid", "typ", "b64", "crit", "jwk", "jku", "x5c", "zip", "cty"])


def hand_signed(header: dict[str, Any], body: dict[str, Any], secret: str = SECRET) -> str:
    """Signed as it stands, whatever a library would say to it."""
    parts = [json.dumps(part).encode() for part in (header, body)]
    text = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    digest = hmac.new(secret.encode(), text, hashlib.sha256).digest()
    return (text + b"." + base64.urlsafe_b64encode(digest).rstrip(b"=")).decode()


@pytest.fixture(scope="module")
def gated(tables: Path) -> LookupApp:
    return service(tables, Balancer())


@settings(max_examples=200)
@given(
    headers=st.dictionaries(HEADERS, ANYTHING, max_size=2),
    changed=st.dictionaries(CLAIMS, ANYTHING, max_size=3),
    taken=st.sets(CLAIMS, max_size=2),
)
def test_signed_token_whatever_it_says_is_let_in_or_refused_each_time_alike(
    gated: LookupApp, headers: dict[str, Any], changed: dict[str, Any], taken: set[str]
) -> None:
    body = {name: value for name, value in claims().items() if name not in taken} | changed
    text = hand_signed({"alg": "HS256", "typ": "JWT"} | headers, body)
    for path in (LOOKUP, "/v1/status", "/metrics", "/v1/rehearsals/pause"):
        seen = {call(gated, path, text).status for _ in range(2)}
        assert len(seen) == 1
        assert seen <= {200, 401, 403, 405}


@settings(max_examples=100)
@given(
    text=st.text(st.characters(max_codepoint=255), max_size=200)
    | st.text("eyJ.-_=", max_size=20_000)
)
def test_token_of_any_bytes_is_refused(gated: LookupApp, text: str) -> None:
    assert {call(gated, path, text or "x").status for path in (LOOKUP, "/v1/status")} == {401}


def test_token_whose_expiry_is_text_is_refused_at_the_first_and_at_each_later_use(
    gated: LookupApp,
) -> None:
    text = hand_signed({"alg": "HS256"}, claims(exp=str(int(time.time()) + 600)))
    assert [call(gated, LOOKUP, text).status for _ in range(3)] == [401, 401, 401]


ISSUER = "us"
RULES = LookupConfig(token_audience=AUDIENCE, token_leeway_ms=1_000)


def checker(
    path: Path | None = None, rules: LookupConfig = RULES, secret: str = ""
) -> TokenChecker:
    def read() -> tuple:
        own = (secret_key(secret),) if secret else ()
        return own + (read_keys(str(path)) if path else ())

    return TokenChecker(WatchedFile((str(path or ""),), read, check_s=0), rules)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    path.write_text(jwks(r1=RSA_KEY, e1=EC_KEY))
    return path


def fault_of(found: TokenChecker, text: str) -> TokenFault:
    with pytest.raises(TokenError) as caught:
        found.check(text)
    return caught.value.fault


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [
        (RSA_KEY, "RS256", "r1"),
        (RSA_KEY, "RS256", ""),
        (EC_KEY, "ES256", "e1"),
        (EC_KEY, "ES256", ""),
    ],
)
def test_token_of_a_key_of_the_set_is_accepted(
    keys: Path, key: object, algorithm: str, kid: str
) -> None:
    bearer = checker(keys).check(token(key, algorithm, kid=kid, roles=["operator:c1/acme"]))
    assert bearer.name == "ada"
    assert bearer.grants == (Grant(role=Role.OPERATOR, cluster="c1", tenant="acme"),)


def test_token_of_the_shared_secret_or_of_one_pem_key_is_accepted(tmp_path: Path) -> None:
    assert checker(secret=SECRET).check(token(SECRET, "HS256")).name == "ada"
    path = tmp_path / "key.pem"
    for key, algorithm in ((RSA_KEY, "RS256"), (EC_KEY, "ES256")):
        path.write_text(public_pem(key))
        assert checker(path).check(token(key, algorithm)).name == "ada"


def encoded(part: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE", ""])
def test_token_without_a_signature_is_refused(keys: Path, name: str) -> None:
    for header in ({"alg": name}, {"alg": name, "kid": "r1"}):
        for signature in ("", "AAAA"):
            text = f"{encoded(header)}.{encoded(claims())}.{signature}"
            assert fault_of(checker(keys), text) is TokenFault.WRONG_ALGORITHM
            assert fault_of(checker(secret=SECRET), text) in (
                TokenFault.WRONG_ALGORITHM,
                TokenFault.UNKNOWN_KEY,
            )


@pytest.mark.parametrize("kid", ["", "r1"])
def test_public_key_used_as_a_secret_is_refused(keys: Path, kid: str) -> None:
    header = {"alg": "HS256", "typ": "JWT", **({"kid": kid} if kid else {})}
    for material in (public_pem(RSA_KEY), public_pem(RSA_KEY).strip(), keys.read_text()):
        text = hand_signed(header, claims(), material)
        assert fault_of(checker(keys), text) is TokenFault.WRONG_ALGORITHM
        assert fault_of(checker(keys, secret=SECRET), text) in (
            TokenFault.BAD_SIGNATURE,
            TokenFault.WRONG_ALGORITHM,
        )


def test_key_that_the_token_brings_along_is_not_believed(keys: Path) -> None:
    headers = {"jwk": json.loads(jwks(x=OTHER_RSA_KEY))["keys"][0], "jku": "http://evil/keys"}
    text = jwt.encode(claims(), OTHER_RSA_KEY, algorithm="RS256", headers=headers)
    assert fault_of(checker(keys), text) is TokenFault.BAD_SIGNATURE


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"exp": time.time() - 60}, TokenFault.EXPIRED),
        ({"exp": None}, TokenFault.CLAIM_MISSING),
        ({"exp": "never"}, TokenFault.MALFORMED),
        ({"nbf": time.time() + 86_400}, TokenFault.NOT_YET_VALID),
        ({"aud": "elsewhere"}, TokenFault.WRONG_AUDIENCE),
        ({"aud": ["a", "b"]}, TokenFault.WRONG_AUDIENCE),
        ({"aud": None}, TokenFault.CLAIM_MISSING),
        ({"sub": None}, TokenFault.CLAIM_MISSING),
        ({"sub": ""}, TokenFault.BAD_CLAIM),
        ({"sub": "a\nb"}, TokenFault.BAD_CLAIM),
        ({"sub": "x" * 300}, TokenFault.BAD_CLAIM),
        ({"exp": str(time.time() + 86_400)[:10]}, TokenFault.BAD_CLAIM),
        ({"exp": True}, TokenFault.EXPIRED),
        ({"exp": 10**400}, TokenFault.BAD_CLAIM),
        ({"nbf": "1"}, TokenFault.BAD_CLAIM),
        ({"nbf": False}, TokenFault.BAD_CLAIM),
        ({"iat": "1"}, TokenFault.BAD_CLAIM),
        ({"iat": True}, TokenFault.BAD_CLAIM),
        ({"roles": "admin"}, TokenFault.BAD_CLAIM),
        ({"roles": ["king"]}, TokenFault.BAD_CLAIM),
        ({"roles": [3]}, TokenFault.BAD_CLAIM),
    ],
)
def test_token_that_says_the_wrong_thing_is_refused(
    keys: Path, changed: dict[str, object], fault: TokenFault
) -> None:
    assert fault_of(checker(keys), token(RSA_KEY, "RS256", **changed)) is fault


def test_token_of_another_issuer_is_refused(keys: Path) -> None:
    rules = LookupConfig(token_audience=AUDIENCE, token_issuer=ISSUER)
    assert fault_of(checker(keys, rules), token(RSA_KEY, "RS256", iss="them")) is (
        TokenFault.WRONG_ISSUER
    )
    assert checker(keys, rules).check(token(RSA_KEY, "RS256", iss="us")).name == "ada"


def test_token_with_an_audience_is_refused_where_none_is_expected(keys: Path) -> None:
    rules = LookupConfig()
    assert fault_of(checker(keys, rules), token(RSA_KEY, "RS256")) is TokenFault.WRONG_AUDIENCE
    assert checker(keys, rules).check(token(RSA_KEY, "RS256", aud=None)).name == "ada"


def test_token_of_a_key_that_is_not_there_is_refused(keys: Path) -> None:
    assert fault_of(checker(keys), token(RSA_KEY, "RS256", kid="r9")) is TokenFault.UNKNOWN_KEY
    other = token(OTHER_RSA_KEY, "RS256", kid="r1")
    assert fault_of(checker(keys), other) is TokenFault.BAD_SIGNATURE
    head, body, signature = token(RSA_KEY, "RS256").split(".")
    forged = f"{head}.{encoded(claims(roles=['admin']))}.{signature}"
    assert fault_of(checker(keys), forged) is TokenFault.BAD_SIGNATURE
    assert fault_of(checker(keys), f"{head}.{body}.") is TokenFault.BAD_SIGNATURE


def test_keys_are_exchanged_without_a_restart(keys: Path) -> None:
    found = checker(keys)
    old, new = token(RSA_KEY, "RS256", kid="r1"), token(OTHER_RSA_KEY, "RS256", kid="r2")
    assert fault_of(found, new) is TokenFault.UNKNOWN_KEY
    replace(keys, jwks(r1=RSA_KEY, r2=OTHER_RSA_KEY))
    assert found.check(old).name == found.check(new).name == "ada"
    replace(keys, jwks(r2=OTHER_RSA_KEY))
    assert fault_of(found, old) is TokenFault.UNKNOWN_KEY
    replace(keys, '{"keys": [half a file')
    assert found.check(new).name == "ada"


def replace(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(text)
    os.replace(part, path)  # noqa: PTH105 (as a deployment does it)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"keys": []}',
        '{"keys": [{"kty": "oct", "k": "c2hvcnQ"}]}',
        '{"keys": [{"kty": "RSA", "alg": "HS256"}]}',
        '{"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}]}',
        '{"keys": [7]}',
    ],
)
def test_file_that_holds_no_usable_keys_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"key|JWKS"):
        read_keys(str(path))


def test_pem_key_on_a_curve_that_the_library_lacks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    key = "MDIwEAYHKoZIzj0CAQYFK4EEAAYDHgAEaR8FS8yEpOD5r3ZjtBCmrCunHP95E7lry0c0BQ=="  # on secp112r1
    path.write_text(f"-----BEGIN PUBLIC KEY-----\n{key}\n-----END PUBLIC KEY-----\n")
    with pytest.raises(ValueError, match="the PEM key can't be used: Curve"):
        read_keys(str(path))


def test_secret_that_is_too_short_is_refused_without_showing_it() -> None:
    with pytest.raises(ValueError, match="32 bytes") as caught:
        secret_key("tiger")
    assert "tiger" not in str(caught.value)
    assert SECRET not in repr(secret_key(SECRET))


_CHECKER = checker(secret=SECRET)


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda raw: raw.decode("latin-1")))
def test_text_of_any_kind_is_refused_as_no_token(text: str) -> None:
    fault_of(_CHECKER, text)


@given(st.dictionaries(CLAIMS, ANYTHING))
def test_claims_of_any_kind_are_accepted_or_refused_with_a_fault(said: dict[str, object]) -> None:
    try:
        bearer = _CHECKER.check(hand_signed({"alg": "HS256", "typ": "JWT"}, said))
    except TokenError:
        return
    assert bearer.name == said["sub"]
