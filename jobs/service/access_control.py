"""Access control: a request's caller by token or certificate, rights and rate.

Lookups are judged in one step, because they are many. Nothing that was refused is repeated in an
answer or a log. Sources: RFC 6750 for the answers, RFC 2697 for the token bucket of the rates.
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from jobs.adapters.http.protocol import PEER
from jobs.service.access import (
    Bearer,
    Caller,
    Grant,
    Role,
    TokenChecker,
    TokenError,
    TokenFault,
    TrustedKey,
    anonymous,
)
from jobs.service.exchange import RETRY, HttpError, Message

FORBIDDEN, UNAUTHENTICATED, TOO_MANY = "forbidden", "unauthenticated", "too_many_requests"
OTHER_REFUSALS = (FORBIDDEN, UNAUTHENTICATED, TOO_MANY)
"""Why a request is refused beside the faults of a token; labels of a metric."""

_BEARER = b"bearer "
_CACHE_MAX = 10_000
_CHALLENGE = (b"www-authenticate", b'Bearer realm="ballast"')
# Said of tokens with a good signature alone, so to nobody but who was given it: the bearer, or the
# operator of a machine whose clock is wrong, knows what to do.
_BY_THE_CLOCK = {
    TokenFault.EXPIRED: "the token's time is over by the clock of this service; get a new one, or"
    " set the clock right",
    TokenFault.NOT_YET_VALID: "the token's time has not begun by the clock of this service; wait,"
    " or set the clock right",
}


_NAMES_MAX = 10_000


class RateLimiter:
    """Limit of per_s requests a second for each name, a second's worth at once.

    0 = any. Remembers the 10,000 names that asked last: one that comes back later begins with a
    full bucket, which it would have by then at any rate of use that is worth limiting.
    """

    def __init__(self, per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_s = per_s
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, name: str) -> bool:
        """Take one permit, if there is one."""
        if not self.per_s:
            return True
        now_s = self._clock()
        size = max(1.0, self.per_s)
        permits, since_s = self._buckets.pop(name, (size, now_s))
        permits = min(size, permits + (now_s - since_s) * self.per_s)
        is_allowed = permits >= 1
        self._buckets[name] = (permits - is_allowed, now_s)
        if len(self._buckets) > _NAMES_MAX:
            self._buckets.popitem(last=False)
        return is_allowed


@dataclass(slots=True, kw_only=True)
class GateCounts:
    """Requests that were not let in, by reason: a closed set."""

    refused: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True, kw_only=True)
class AdminCounts:
    """Answers by status, open streams, and refusals that were too many to be recorded."""

    statuses: Counter[int] = field(default_factory=Counter)
    unrecorded: int = 0
    streams: int = 0


@dataclass(slots=True, kw_only=True)
class AuditCounts:
    """Number of entries in the service's log only, while Kafka was away."""

    dropped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRules:
    """Rules of admission. needs_proof: False lets everybody do everything.

    certificates: a verified client certificate counts as a proof. grants: by name, in addition to
    those that a token carries.
    """

    cluster: str
    needs_proof: bool = False
    certificates: bool = False
    open_lookups: bool = False
    open_metrics: bool = False
    grants: Mapping[str, tuple[Grant, ...]] = field(default_factory=dict)


class Gatekeeper:
    """Lets callers in. checker: of tokens, None = tokens are no proof here."""

    def __init__(
        self, rules: GateRules, checker: TokenChecker | None, limiter: RateLimiter
    ) -> None:
        self.counts = GateCounts()
        self._rules = rules
        self._checker = checker
        self._limiter = limiter
        self._bearers: OrderedDict[bytes, tuple[tuple[TrustedKey, ...], Bearer]] = OrderedDict()

    @property
    def is_idle(self) -> bool:
        """True if nothing is checked or limited, so lookups may skip the gatekeeper."""
        rules = self._rules
        return (rules.open_lookups or not rules.needs_proof) and not self._limiter.per_s

    def caller(self, scope: Message) -> Caller:
        """The caller of a request; raises HttpError 401, or 429 for one too many."""
        address = address_of(scope)
        if not self._rules.needs_proof:
            self._limit(address)
            return anonymous(address)
        name, grants = self._proven(scope, address)
        self._limit(name, principal=name)
        known = self._bearers.get(_token(scope) or b"")
        expires_at_s = None if known is None else known[1].expires_at_s
        return Caller(name=name, address=address, grants=grants, expires_at_s=expires_at_s)

    def check_lookup(self, scope: Message, tenant: str) -> None:
        """Raises HttpError 401, 403 or 429 when this lookup is not to be answered."""
        rules = self._rules
        address = address_of(scope)
        if rules.open_lookups or not rules.needs_proof:
            self._limit(address)
            return
        name, grants = self._proven(scope, address)
        self._limit(name)
        if not any(grant.covers(Role.VIEWER, rules.cluster, tenant) for grant in grants):
            self.counts.refused[FORBIDDEN] += 1
            raise HttpError(403, f"{name} is not viewer of tenant {tenant}")

    def check_metrics(self, scope: Message) -> None:
        """Raises HttpError 401 or 403 when the metrics are not for this caller."""
        if self._rules.open_metrics or not self._rules.needs_proof:
            return
        caller = self.caller(scope)
        if not any(grant.cluster in ("*", self._rules.cluster) for grant in caller.grants):
            self.counts.refused[FORBIDDEN] += 1
            raise HttpError(403, f"{caller.name} has no role on this cluster")

    def _limit(self, name: str, principal: str = "") -> None:
        if not self._limiter.allows(name):
            self.counts.refused[TOO_MANY] += 1
            text = "Too many requests: come again a little later"
            raise HttpError(429, text, RETRY, principal=principal)

    # -- proofs

    def _proven(self, scope: Message, address: str) -> tuple[str, tuple[Grant, ...]]:
        """Name and grants of who has proven to be somebody."""
        token = _token(scope) if self._checker is not None else None
        if token is not None:
            bearer = self._bearer(token, address)
            return bearer.name, (*bearer.grants, *self._rules.grants.get(bearer.name, ()))
        peer = scope.get(PEER, "") if self._rules.certificates else ""
        if peer:
            return peer, self._rules.grants.get(peer, ())
        self._limit(address)
        self.counts.refused[UNAUTHENTICATED] += 1
        raise HttpError(401, "Authentication required", _CHALLENGE)

    def _bearer(self, token: bytes, address: str) -> Bearer:
        checker = self._checker
        assert checker is not None  # noqa: S101 (asked by the only caller)
        known = self._bearers.get(token)
        if known is not None and known[0] is checker.keys and _is_in_time(known[1]):
            return known[1]
        self._bearers.pop(token, None)
        try:
            bearer = checker.check(token.decode("latin-1"))
        except TokenError as error:
            self._limit(address)
            self.counts.refused[error.fault.value] += 1
            challenge = _CHALLENGE[1] + b', error="invalid_token"'
            reason = _BY_THE_CLOCK.get(error.fault, "the token is not accepted")
            raise HttpError(
                401, f"Authentication required: {reason}", (_CHALLENGE[0], challenge)
            ) from None
        self._bearers[token] = (checker.keys, bearer)
        if len(self._bearers) > _CACHE_MAX:
            self._bearers.popitem(last=False)
        return bearer


def address_of(scope: Message) -> str:
    """The address that the connection comes from, "" when the server does not know."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def _token(scope: Message) -> bytes | None:
    """The token of the Authorization header, None without one of this kind."""
    for name, value in scope["headers"]:
        if name == b"authorization" and value[: len(_BEARER)].lower() == _BEARER:
            token: bytes = value[len(_BEARER) :].strip()
            return token
    return None


def _is_in_time(bearer: Bearer) -> bool:
    return bearer.expires_at_s is None or time.time() < bearer.expires_at_s
