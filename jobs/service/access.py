"""Callers: roles on clusters and tenants, bearer tokens, keys of tokens.

Pulsar's superuser is an admin of the whole cluster. A key has one algorithm, which follows from the
key and never from the token: RSA is RS256, P-256 is ES256, a shared secret is HS256. So neither
"none" nor a public key used as a secret gets through. A JWKS URL is asked every five minutes,
and at once when a token names an unknown key, but not within ten seconds of the last time. After a
failed or cut answer the last keys stay. Sources: RFC 7515 to 7519, 8725; PyJWT.
"""

import asyncio
import json
import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from http.client import HTTPException
from ipaddress import ip_address
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from jobs.adapters.http.client import HttpRequest, connection_to, exchange
from jobs.adapters.http.tls import WatchedFile
from jobs.atomic_file import read_text_file
from lbcore.config.lookup import LookupConfig

logger = logging.getLogger(__name__)

SECRET_MIN_BYTES = 32
_RSA_MIN_BITS = 2_048
_KEYS_MAX = 100
_ANSWER_MAX_BYTES = 262_144
_TIMEOUT_S = 5.0
_RENEW_S = 300.0
BETWEEN_S = 10.0
"""Least time between two requests, also if tokens name made-up key ids."""
_OK = 200
_SHARED = "HS256"
_ALGORITHMS = {"RSA": "RS256", "EC": "ES256", "oct": _SHARED}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedKey:
    """A key that tokens may be signed with, and the only algorithm that it is for."""

    algorithm: str
    material: Any
    key_id: str = ""

    def __repr__(self) -> str:
        """Return algorithm and key id, never the key."""
        return f"TrustedKey(algorithm={self.algorithm!r}, key_id={self.key_id!r})"


def secret_key(secret: str) -> TrustedKey:
    """A shared secret as a key; raises ValueError when it is too short to be one."""
    material = secret.encode()
    if len(material) < SECRET_MIN_BYTES:
        raise ValueError(f"a token secret must have at least {SECRET_MIN_BYTES} bytes")
    return TrustedKey(algorithm=_SHARED, material=material)


def read_keys(path: str) -> tuple[TrustedKey, ...]:
    """Return the keys of a file: a JWKS, or one PEM key. Raises OSError, ValueError."""
    text = read_text_file(Path(path))
    if text.lstrip().startswith("-----"):
        try:
            material = load_pem_public_key(text.encode())
        except UnsupportedAlgorithm as error:
            raise ValueError(f"the PEM key can't be used: {error}") from None
        _check_strength(material, "the PEM key")
        algorithm = "RS256" if isinstance(material, rsa.RSAPublicKey) else "ES256"
        return (TrustedKey(algorithm=algorithm, material=material),)
    entries = _entries(path, text, f"{path} is neither a JWKS nor a PEM public key")
    return tuple(_key_of(path, entry) for entry in entries)


def _entries(name: str, text: str | bytes, otherwise: str) -> list[Mapping[str, Any]]:
    """The entries of a JWKS that are for signatures; raises ValueError."""
    try:
        found = json.loads(text)["keys"]
        entries = [entry for entry in found if entry.get("use", "sig") == "sig"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(otherwise) from None
    if not 1 <= len(entries) <= _KEYS_MAX:
        raise ValueError(f"{name} must hold 1 to {_KEYS_MAX} keys for signatures")
    return entries


def _key_of(name: str, entry: Mapping[str, Any]) -> TrustedKey:
    """One key of a JWKS; messages never show it."""
    key_id = str(entry.get("kid", ""))
    algorithm = _ALGORITHMS.get(str(entry.get("kty")), "")
    if not algorithm or entry.get("alg", algorithm) != algorithm:
        raise ValueError(f"{name}: key {key_id!r} is for none of RS256, ES256, HS256")
    try:
        material = jwt.PyJWK(dict(entry), algorithm=algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        raise ValueError(f"{name}: key {key_id!r} can't be used") from None
    if isinstance(material, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        material = material.public_key()
    _check_strength(material, f"{name}: key {key_id!r}")
    return TrustedKey(algorithm=algorithm, material=material, key_id=key_id)


def _check_strength(material: Any, name: str) -> None:
    is_strong = (
        (isinstance(material, bytes) and len(material) >= SECRET_MIN_BYTES)
        or (isinstance(material, rsa.RSAPublicKey) and material.key_size >= _RSA_MIN_BITS)
        or (
            isinstance(material, ec.EllipticCurvePublicKey)
            and isinstance(material.curve, ec.SECP256R1)
        )
    )
    if not is_strong:
        raise ValueError(
            f"{name} must be RSA of at least {_RSA_MIN_BITS} bits, on the curve P-256, or a secret "
            f"of at least {SECRET_MIN_BYTES} bytes"
        )


def is_loopback(host: str) -> bool:
    """True for "localhost" and for addresses of this machine alone."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class KeyAddress:
    """A JWKS URL and the public keys that it named last."""

    def __init__(self, url: str) -> None:
        """Ask at once; raises ValueError with the reason why there are no keys."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        schemes = ("http", "https") if is_loopback(host) else ("https",)
        if not host or parts.scheme not in schemes:
            raise ValueError(f"{url!r} must be https://..., http only on this machine")
        self._url = url
        self._asked_s = monotonic()
        self._renewing: asyncio.Future[None] | None = None
        self._content, self.keys = self._fetch()

    @property
    def may_know_more(self) -> bool:
        """True if a request is under way, or the next one is already allowed."""
        is_under_way = self._renewing is not None and not self._renewing.done()
        return is_under_way or monotonic() - self._asked_s >= BETWEEN_S

    def keep_up(self, stop: threading.Event) -> None:
        """Ask every five minutes until `stop` is set, so that withdrawn keys go."""
        while not stop.wait(_RENEW_S):
            self._renew()

    async def renew(self) -> None:
        """Ask now, once for all who want it."""
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.ensure_future(asyncio.to_thread(self._renew_on_demand))
        await asyncio.shield(self._renewing)

    def _renew_on_demand(self) -> None:
        try:
            self._renew()
        finally:
            self._asked_s = monotonic()  # a slow answer, too, is one that has just come

    def _renew(self) -> None:
        self._asked_s = monotonic()
        try:
            content, keys = self._fetch()
        except ValueError as error:
            fields = {
                "what": "the keys of tokens were not renewed",
                "why": str(error),
                "next": "the last ones stay; correct lookup.token_keys_url or what serves it",
            }
            logger.warning("token_keys_not_renewed", extra={"fields": fields})
            return
        if content != self._content:
            self._content, self.keys = content, keys
            logger.info("token_keys_renewed", extra={"fields": {"keys": len(keys)}})

    def _fetch(self) -> tuple[bytes, tuple[TrustedKey, ...]]:
        parts = urlsplit(self._url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        asked = HttpRequest(target=target, headers={"Accept": "application/json"})
        try:
            answer = exchange(connection_to(self._url, _TIMEOUT_S), asked, _ANSWER_MAX_BYTES)
        except (OSError, HTTPException) as error:
            raise ValueError(f"{self._url} gives no answer: {error}") from None
        if answer.status != _OK:
            where = f" and sends to {answer.location}" if answer.location else ""
            raise ValueError(f"{self._url} answers with HTTP {answer.status}{where}")
        kind = answer.kind or "no content type"
        otherwise = f"{self._url} answers with no JWKS ({kind}): it may be a login page"
        return answer.content, self._usable(_entries(self._url, answer.content, otherwise))

    def _usable(self, entries: list[Mapping[str, Any]]) -> tuple[TrustedKey, ...]:
        """The keys that can be used here; others are for other services, and are left out."""
        found, faults = [], ["no key of it is public"]
        for entry in entries:
            try:
                key = _key_of(self._url, entry)
            except ValueError as error:  # noqa: PERF203 (a hundred at most)
                faults.append(str(error))
            else:
                found += [key] if key.algorithm != _SHARED else []  # a secret is not published
        if not found:
            raise ValueError(f"{self._url} names no usable key: {faults[-1]}")
        return tuple(found)


ANY = "*"


class Role(IntEnum):
    """Role of a caller; each includes the rights of those before it."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A role on one cluster and one tenant; "*" stands for all of them."""

    role: Role
    cluster: str = ANY
    tenant: str = ANY

    def covers(self, role: Role, cluster: str, tenant: str) -> bool:
        """True if the grant suffices; tenant "*" means the whole cluster."""
        return self.role >= role and self.cluster in (ANY, cluster) and self.tenant in (ANY, tenant)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Caller of the service: name, address of the connection, and grants.

    expires_at_s: end of the proof's validity (seconds since 1970), None = never.
    """

    name: str
    address: str
    grants: tuple[Grant, ...] = field(default=())
    expires_at_s: float | None = None

    def may(self, role: Role, cluster: str, tenant: str = ANY) -> bool:
        """True if one of the grants suffices."""
        return any(grant.covers(role, cluster, tenant) for grant in self.grants)


def parse_grant(text: str) -> Grant:
    """Parse a grant: "role:cluster/tenant", "role:cluster" or "role".

    Raises ValueError for any other text.
    """
    role, colon, place = text.partition(":")
    cluster, slash, tenant = place.partition("/")
    if (colon and not cluster) or (slash and not tenant):  # never all where one is missing
        raise ValueError(f"{text!r} is no grant: name the cluster or tenant, * for all of them")
    try:
        return Grant(role=Role[role.strip().upper()], cluster=cluster or ANY, tenant=tenant or ANY)
    except KeyError:
        known = ", ".join(one.name.lower() for one in Role)
        raise ValueError(f"{text!r} is no grant: it begins with one of {known}") from None


def parse_grants(lines: Iterable[str]) -> dict[str, tuple[Grant, ...]]:
    """Name → grants, from lines "NAME ROLE:CLUSTER/TENANT"; raises ValueError."""
    grants: dict[str, tuple[Grant, ...]] = {}
    for line in lines:
        name, _, text = line.strip().rpartition(" ")
        if not name.strip():
            raise ValueError(f"{line!r} names nobody: write 'NAME ROLE:CLUSTER/TENANT'")
        grants[name.strip()] = (*grants.get(name.strip(), ()), parse_grant(text))
    return grants


TOKEN_MAX_BYTES = 8_192
_NAME_MAX_CHARS = 256
_ROLES = "roles"
_TIMES = ("exp", "nbf", "iat")
_TIME_MAX_S = 1e12
_ROLES_MAX = 100


class TokenFault(str, Enum):
    """Reason for rejecting a token; also a metric label.

    It reveals nothing of the token's content.
    """

    MALFORMED = "malformed"
    UNKNOWN_KEY = "unknown_key"
    WRONG_ALGORITHM = "wrong_algorithm"
    BAD_SIGNATURE = "bad_signature"
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"
    WRONG_AUDIENCE = "wrong_audience"
    WRONG_ISSUER = "wrong_issuer"
    CLAIM_MISSING = "claim_missing"
    BAD_CLAIM = "bad_claim"


class TokenError(Exception):
    """A token that is not accepted."""

    def __init__(self, fault: TokenFault) -> None:
        super().__init__(fault.value)
        self.fault = fault


class TokenChecker:
    """Checks tokens against the trusted keys of the moment.

    The keys are those of files and of an address, which are both watched: keys can be added and
    withdrawn while running.
    """

    def __init__(
        self,
        files: WatchedFile[tuple[TrustedKey, ...]],
        lookup: LookupConfig,
        address: KeyAddress | None = None,
    ) -> None:
        self.address = address
        self._files = files
        self._lookup = lookup

    @property
    def keys(self) -> tuple[TrustedKey, ...]:
        """The keys trusted now."""
        return self._files.value + (self.address.keys if self.address else ())

    def check(self, token: str) -> Caller:
        """Return the holder of a valid token; raises TokenError for any other text.

        Its address is "": a token does not say from where it comes.
        """
        if len(token) > TOKEN_MAX_BYTES:
            raise TokenError(TokenFault.MALFORMED)
        claims = self._claims(token)
        for claim in _TIMES:
            value = claims.get(claim, 0)  # a text such as "1893456000" is no NumericDate (RFC 7519)
            if type(value) not in (int, float) or not abs(value) <= _TIME_MAX_S:
                raise TokenError(TokenFault.BAD_CLAIM)
        name = claims["sub"]
        is_name = isinstance(name, str) and 1 <= len(name) <= _NAME_MAX_CHARS
        if not is_name or not name.isprintable():
            raise TokenError(TokenFault.BAD_CLAIM)
        grants = _grants(claims)
        return Caller(name=name, address="", grants=grants, expires_at_s=claims.get("exp"))

    def _claims(self, token: str) -> Mapping[str, Any]:
        """Return the claims, verified by the first key that has signed the token.

        Tried are the keys that may have: by key id if one is named, and by algorithm.
        """
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            raise TokenError(TokenFault.MALFORMED) from None
        algorithm, key_id = header.get("alg"), header.get("kid")
        keys = [key for key in self.keys if key_id is None or key.key_id in ("", key_id)]
        fitting = [key for key in keys if key.algorithm == algorithm]
        if keys and not fitting:
            raise TokenError(TokenFault.WRONG_ALGORITHM)
        fault = TokenFault.UNKNOWN_KEY
        for key in fitting:
            found = self._decode(token, key)
            if not isinstance(found, TokenFault):
                return found
            fault = found
            if fault is not TokenFault.BAD_SIGNATURE:
                break
        raise TokenError(fault)

    def _decode(self, token: str, key: TrustedKey) -> Mapping[str, Any] | TokenFault:
        lookup = self._lookup
        required = ["sub", "exp"] if lookup.token_expiry_required else ["sub"]
        if lookup.token_audience:
            required.append("aud")
        try:
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key.material,
                algorithms=[key.algorithm],
                audience=lookup.token_audience or None,
                issuer=lookup.token_issuer or None,
                leeway=lookup.token_leeway_ms / 1000,
                options={"require": required},
            )
        except jwt.PyJWTError as error:
            faults = (fault for kind, fault in _FAULTS if isinstance(error, kind))
            return next(faults, TokenFault.MALFORMED)
        except (ValueError, TypeError, OverflowError, RecursionError):
            return TokenFault.BAD_CLAIM
        return claims


_FAULTS: tuple[tuple[type[jwt.PyJWTError], TokenFault], ...] = (
    (jwt.InvalidSignatureError, TokenFault.BAD_SIGNATURE),
    (jwt.ExpiredSignatureError, TokenFault.EXPIRED),
    (jwt.ImmatureSignatureError, TokenFault.NOT_YET_VALID),
    (jwt.InvalidIssuedAtError, TokenFault.BAD_CLAIM),
    (jwt.InvalidAudienceError, TokenFault.WRONG_AUDIENCE),
    (jwt.InvalidIssuerError, TokenFault.WRONG_ISSUER),
    (jwt.MissingRequiredClaimError, TokenFault.CLAIM_MISSING),
    (jwt.InvalidAlgorithmError, TokenFault.WRONG_ALGORITHM),
    (jwt.exceptions.InvalidSubjectError, TokenFault.BAD_CLAIM),
)


def _grants(claims: Mapping[str, Any]) -> tuple[Grant, ...]:
    """Return the token's roles.

    One that can't be read makes the token unusable.
    """
    roles = claims.get(_ROLES, [])
    if not isinstance(roles, list) or len(roles) > _ROLES_MAX:
        raise TokenError(TokenFault.BAD_CLAIM)
    try:
        return tuple(parse_grant(role) for role in roles)
    except (ValueError, AttributeError):
        raise TokenError(TokenFault.BAD_CLAIM) from None
