"""Which tokens are accepted: the good ones of each kind, and none of the known attacks."""

import base64
import hashlib
import hmac
import json
import os
import time
from pathlib import Path

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.adapters.http.tls import WatchedFile
from jobs.service.access import (
    Grant,
    Role,
    TokenChecker,
    TokenError,
    TokenFault,
    TokenKeys,
    read_keys,
    secret_key,
)
from lbcore.config.lookup import LookupConfig
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

ISSUER = "us"
RULES = LookupConfig(token_audience=AUDIENCE, token_leeway_ms=1_000)


def checker(
    path: Path | None = None, rules: LookupConfig = RULES, secret: str = ""
) -> TokenChecker:
    def read() -> tuple:
        own = (secret_key(secret),) if secret else ()
        return own + (read_keys(str(path)) if path else ())

    return TokenChecker(TokenKeys(WatchedFile((str(path or ""),), read, look_s=0)), rules)


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


def test_token_of_the_shared_secret_is_accepted() -> None:
    assert checker(secret=SECRET).check(token(SECRET, "HS256")).name == "ada"


def test_token_of_one_pem_key_is_accepted(tmp_path: Path) -> None:
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
    signed = f"{encoded(header)}.{encoded(claims())}"
    for material in (public_pem(RSA_KEY), public_pem(RSA_KEY).strip(), keys.read_text()):
        digest = hmac.new(material.encode(), signed.encode(), hashlib.sha256).digest()
        signature = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        text = f"{signed}.{signature}"
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


def test_secret_that_is_too_short_is_refused_without_showing_it() -> None:
    with pytest.raises(ValueError, match="32 bytes") as caught:
        secret_key("tiger")
    assert "tiger" not in str(caught.value)
    assert SECRET not in repr(secret_key(SECRET))


_CHECKER = checker(secret=SECRET)


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda raw: raw.decode("latin-1")))
def test_text_of_any_kind_is_refused_as_no_token(text: str) -> None:
    fault_of(_CHECKER, text)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(["sub", "exp", "aud", "roles", "nbf", "iat", "iss"]), JSON))
def test_claims_of_any_kind_are_accepted_or_refused_with_a_fault(said: dict[str, object]) -> None:
    head = encoded({"alg": "HS256", "typ": "JWT"})
    signed = f"{head}.{encoded(said)}"
    digest = hmac.new(SECRET.encode(), signed.encode(), hashlib.sha256).digest()
    text = f"{signed}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"
    try:
        bearer = _CHECKER.check(text)
    except TokenError:
        return
    assert bearer.name == said["sub"]
