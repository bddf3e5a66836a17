"""Callers: roles on clusters and tenants, and the bearer tokens that prove them.

Pulsar's superuser is an admin of the whole cluster. Sources: RFC 7515, 7519, 8725; PyJWT.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any

import jwt

from jobs.service.token_keys import TokenKeys, TrustedKey

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
    """A grant written as "role:cluster/tenant", "role:cluster" or "role".

    Raises ValueError for what is none.
    """
    role, _, place = text.partition(":")
    cluster, _, tenant = place.partition("/")
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


ANONYMOUS = "anonymous"


def anonymous(address: str) -> Caller:
    """Return the caller of a service without authentication, who may do everything."""
    return Caller(name=ANONYMOUS, address=address, grants=(Grant(role=Role.ADMIN),))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Bearer:
    """Claims of an accepted token. expires_at_s: seconds since 1970, None = never."""

    name: str
    grants: tuple[Grant, ...]
    expires_at_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """Required claims of a token. audience, issuer: "" = none."""

    audience: str = ""
    issuer: str = ""
    leeway_s: float = 5.0
    needs_expiry: bool = True


class TokenChecker:
    """Checks tokens against the trusted keys of the moment.

    keys: watched, so that keys can be added and withdrawn while running.
    """

    def __init__(self, keys: TokenKeys, rules: TokenRules) -> None:
        self.keys = keys
        self._rules = rules

    def check(self, token: str) -> Bearer:
        """Return the claims of a valid token; raises TokenError for any other text."""
        if len(token) > TOKEN_MAX_BYTES:
            raise TokenError(TokenFault.MALFORMED)
        claims = self._claims(token)
        _check_times(claims)
        return Bearer(
            name=_name(claims),
            grants=_grants(claims),
            expires_at_s=claims.get("exp"),
        )

    def _claims(self, token: str) -> Mapping[str, Any]:
        """Of the first key that has signed it, in the order of the file."""
        fault = TokenFault.UNKNOWN_KEY
        for key in self._candidates(token):
            found = self._decode(token, key)
            if not isinstance(found, TokenFault):
                return found
            fault = found
            if fault is not TokenFault.BAD_SIGNATURE:
                break
        raise TokenError(fault)

    def _candidates(self, token: str) -> Sequence[TrustedKey]:
        """Return the keys that may have signed it: by key id if named, by algorithm."""
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            raise TokenError(TokenFault.MALFORMED) from None
        algorithm, key_id = header.get("alg"), header.get("kid")
        keys = [key for key in self.keys.value if key_id is None or key.key_id in ("", key_id)]
        fitting = [key for key in keys if key.algorithm == algorithm]
        if keys and not fitting:
            raise TokenError(TokenFault.WRONG_ALGORITHM)
        return fitting

    def _decode(self, token: str, key: TrustedKey) -> Mapping[str, Any] | TokenFault:
        rules = self._rules
        required = ["sub", "exp"] if rules.needs_expiry else ["sub"]
        if rules.audience:
            required.append("aud")
        try:
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key.material,
                algorithms=[key.algorithm],
                audience=rules.audience or None,
                issuer=rules.issuer or None,
                leeway=rules.leeway_s,
                options={"require": required},
            )
        except jwt.PyJWTError as error:
            return _fault_of(error)
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


def _fault_of(error: jwt.PyJWTError) -> TokenFault:
    return next((fault for kind, fault in _FAULTS if isinstance(error, kind)), TokenFault.MALFORMED)


def _check_times(claims: Mapping[str, Any]) -> None:
    """Raise TokenError where a time is no NumericDate (RFC 7519).

    As "1893456000" is none.
    """
    for name in _TIMES:
        value = claims.get(name, 0)
        if type(value) not in (int, float) or not abs(value) <= _TIME_MAX_S:
            raise TokenError(TokenFault.BAD_CLAIM)


def _name(claims: Mapping[str, Any]) -> str:
    name = claims["sub"]
    if not isinstance(name, str) or not 1 <= len(name) <= _NAME_MAX_CHARS or not name.isprintable():
        raise TokenError(TokenFault.BAD_CLAIM)
    return name


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
