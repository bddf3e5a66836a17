"""Access control: a request's caller by token or certificate, rights and rate.

Lookups are judged in one step, because they are many. Nothing that was refused is repeated in an
answer or a log. Requests that a browser sends for another site's page (CSRF) are refused.

Three checks, by headers that a page can't forge:

- Host: an unknown name is one that somebody has made to point here (DNS rebinding). Off where each
  request carries a proof of its caller, which a page does not have.
- Origin and Sec-Fetch-Site of a write: the page must be this service's own.
- Content-Type of a write: JSON, which a form of another site can't send (CSRF). Off with a bearer
  token.

Sources: RFC 6750, RFC 2697 (token bucket), RFC 9110, 7.4 and 15.5.20; Fetch, 2.2.2; OWASP, CSRF
prevention.
"""

import ipaddress
import socket
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import urlsplit

from jobs.adapters.http.protocol import PEER
from jobs.service.access import (
    Caller,
    Grant,
    Role,
    TokenChecker,
    TokenError,
    TokenFault,
    TrustedKey,
    parse_grants,
)
from jobs.service.exchange import RETRY, HttpError, Message
from lbcore.config.lookup import LookupConfig

FORBIDDEN, UNAUTHENTICATED, TOO_MANY = "forbidden", "unauthenticated", "too_many_requests"
OTHER_REFUSALS = (FORBIDDEN, UNAUTHENTICATED, TOO_MANY)
"""Why a request is refused beside the faults of a token; labels of a metric."""

_BEARER = b"bearer "
_CACHE_MAX = 10_000
_EVERYTHING = (Grant(role=Role.ADMIN),)
"""Grants of all callers of a service without authentication."""
_CHALLENGE = (b"www-authenticate", b'Bearer realm="ballast"')
# Shown only where the signature is valid, so only the token's holder learns it.
_BY_THE_CLOCK = {
    TokenFault.EXPIRED: "the token's time is over by the clock of this service; get a new one, or"
    " set the clock right",
    TokenFault.NOT_YET_VALID: "the token's time has not begun by the clock of this service; wait,"
    " or set the clock right",
}


_NAMES_MAX = 10_000


class RateLimiter:
    """Limit of per_s requests a second for each name, a second's worth at once.

    0 = no limit. Remembers the 10,000 names that asked last: a forgotten name begins with a
    full bucket, which it would have by then anyway.
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
class ServiceCounts:
    """Requests beside lookups, by what became of them.

    refused: by reason, a closed set. statuses: of answers. streams: open ones. unrecorded: refusals
    that were too many for the audit. dropped: entries of the audit that are in the log only,
    because Kafka was away.
    """

    refused: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    streams: int = 0
    unrecorded: int = 0
    dropped: int = 0


class KeysOutdatedError(Exception):
    """The token names an unknown key, and the address of keys may know it by now."""


class Gatekeeper:
    """Lets callers in, as the settings say.

    checker: of tokens, None = tokens are no proof here. Raises ValueError for a grant that is none.
    """

    def __init__(
        self, cluster: str, lookup: LookupConfig, checker: TokenChecker | None = None
    ) -> None:
        self.counts = ServiceCounts()
        self._cluster, self._lookup = cluster, lookup
        self._needs_proof = lookup.authentication != "none"
        self._has_open_lookups = lookup.open_lookups or not self._needs_proof
        self._takes_certificates = "certificate" in lookup.authentication
        self._grants = parse_grants(lookup.grants)
        self._checker = checker
        self.key_address = checker.address if checker is not None else None
        self._limiter = RateLimiter(lookup.max_requests_per_s)
        self._bearers: OrderedDict[bytes, tuple[tuple[TrustedKey, ...], Caller]] = OrderedDict()

    def caller(self, scope: Message) -> Caller:
        """The caller of a request; raises HttpError 401 or 429, KeysOutdatedError."""
        address = address_of(scope)
        if not self._needs_proof:
            self._limit(address)
            return Caller(name="anonymous", address=address, grants=_EVERYTHING)
        caller = self._proven(scope, address)
        self._limit(caller.name, principal=caller.name)
        return replace(caller, address=address)

    def check_lookup(self, scope: Message, tenant: str) -> None:
        """Raises HttpError 401, 403 or 429 for a lookup that is not to be answered."""
        address = address_of(scope)
        if self._has_open_lookups:
            self._limit(address)
            return
        caller = self._proven(scope, address)
        self._limit(caller.name)
        if not caller.may(Role.VIEWER, self._cluster, tenant):
            self.counts.refused[FORBIDDEN] += 1
            raise HttpError(403, f"{caller.name} is not viewer of tenant {tenant}")

    def check_metrics(self, scope: Message) -> None:
        """Raises HttpError 401 or 403 when the metrics are not for this caller."""
        if self._lookup.open_metrics or not self._needs_proof:
            return
        caller = self.caller(scope)
        if not any(grant.cluster in ("*", self._cluster) for grant in caller.grants):
            self.counts.refused[FORBIDDEN] += 1
            raise HttpError(403, f"{caller.name} has no role on this cluster")

    def _limit(self, name: str, principal: str = "") -> None:
        if not self._limiter.allows(name):
            self.counts.refused[TOO_MANY] += 1
            text = "Too many requests: come again a little later"
            raise HttpError(429, text, RETRY, principal=principal)

    # -- proofs

    def _proven(self, scope: Message, address: str) -> Caller:
        """The caller by token or certificate, without an address; raises HttpError 401."""
        if self._checker is not None and (token := _token(scope)) is not None:
            return self._bearer(self._checker, token, address)
        peer = scope.get(PEER, "") if self._takes_certificates else ""
        if peer:
            return Caller(name=peer, address="", grants=self._grants.get(peer, ()))
        self._limit(address)
        self.counts.refused[UNAUTHENTICATED] += 1
        raise HttpError(401, "Authentication required", _CHALLENGE)

    def _bearer(self, checker: TokenChecker, token: bytes, address: str) -> Caller:
        """The holder of a token, kept without an address while the keys are the same."""
        keys = checker.keys
        known = self._bearers.get(token)
        if known is not None and known[0] == keys:
            expires_at_s = known[1].expires_at_s
            if expires_at_s is None or time.time() < expires_at_s:
                return known[1]
        self._bearers.pop(token, None)
        try:
            bearer = checker.check(token.decode("latin-1"))
        except TokenError as error:
            is_unknown = error.fault is TokenFault.UNKNOWN_KEY
            if is_unknown and self.key_address is not None and self.key_address.may_know_more:
                raise KeysOutdatedError from None
            self._limit(address)
            self.counts.refused[error.fault.value] += 1
            challenge = _CHALLENGE[1] + b', error="invalid_token"'
            reason = _BY_THE_CLOCK.get(error.fault, "the token is not accepted")
            raise HttpError(
                401, f"Authentication required: {reason}", (_CHALLENGE[0], challenge)
            ) from None
        bearer = replace(bearer, grants=bearer.grants + self._grants.get(bearer.name, ()))
        self._bearers[token] = (keys, bearer)
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


ALL_INTERFACES: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 (compared, not listened on)
FOREIGN_HOST, FOREIGN_ORIGIN, FOREIGN_TYPE = "foreign_host", "foreign_origin", "foreign_type"
FOREIGN = (FOREIGN_HOST, FOREIGN_ORIGIN, FOREIGN_TYPE)
"""Why a request is refused as somebody else's; labels of a metric."""

_HOSTS_MAX = 1_000
_FROM_ELSEWHERE = frozenset({b"cross-site", b"same-site"})
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


class OriginGuard:
    """Rejects requests with a foreign Host or Origin.

    listen: the address that it listens on. names: more that it is known by, host or host:port.
    refused: counts, by FOREIGN.
    """

    def __init__(self, listen: str, names: Iterable[str] = ()) -> None:
        self._is_everywhere = listen in ALL_INTERFACES
        lower = {name.lower() for name in names}
        self._named = frozenset(lower | {name.strip("[]") for name in lower if name[-1:] == "]"})
        self._own = {listen.lower(), "localhost"} - ALL_INTERFACES
        if self._is_everywhere:
            self._own |= {socket.gethostname().lower()}
        self._known: set[tuple[bytes, str]] = set()
        self.refused: Counter[str] = Counter()

    def check_host(self, scope: Message) -> None:
        """Raise HttpError 421 for a foreign host name; a request without one may pass."""
        local = str((scope.get("server") or ("",))[0]) if self._is_everywhere else ""
        for value in _headers(scope, b"host"):  # HTTP/1.0 may have none, and no browser speaks it
            if (value, local) in self._known:
                continue
            if not self._is_ours(value.decode("latin-1").lower(), local):
                raise self._refusal(
                    421,
                    FOREIGN_HOST,
                    "The Host header names no known name of this service: add it to "
                    "lookup.allowed_hosts if it is one",
                )
            if len(self._known) < _HOSTS_MAX:
                self._known.add((value, local))

    def check_write(self, scope: Message) -> None:
        """Raise HttpError 403 or 415 for a change from a foreign page.

        Accepts only what a page of another site can't send: JSON, or PUT and DELETE without a body.
        """
        self._check_origin(scope)
        if _token(scope) is not None:
            return  # no page can make a browser send one cross-site
        kinds = _headers(scope, b"content-type")
        if kinds and all(map(_is_json, kinds)):
            return
        has_body = _headers(scope, b"content-length")[:1] not in ([], [b"0"])
        has_body = has_body or bool(_headers(scope, b"transfer-encoding"))
        if kinds or scope["method"] == "POST" or has_body:
            raise self._refusal(
                415,
                FOREIGN_TYPE,
                "A change must be asked for with Content-Type: application/json, which no page of "
                "another site can send",
            )

    def _refusal(self, status: int, kind: str, reason: str) -> HttpError:
        self.refused[kind] += 1
        return HttpError(status, reason)

    def _check_origin(self, scope: Message) -> None:
        sites = _headers(scope, b"sec-fetch-site")
        origins = _headers(scope, b"origin")
        is_from_elsewhere = any(site.strip().lower() in _FROM_ELSEWHERE for site in sites)
        if not origins and not is_from_elsewhere:
            return
        host = next(iter(_headers(scope, b"host")), b"")
        if origins and all(self._is_own_origin(origin, host) for origin in origins):
            return
        raise self._refusal(
            403,
            FOREIGN_ORIGIN,
            "A page of another site has asked for this change: if it is yours, add its host to "
            "lookup.allowed_hosts",
        )

    def _is_own_origin(self, origin: bytes, host: bytes) -> bool:
        """True if a page is of this origin.

        That is the host and port of the request, or one of the named hosts.
        """
        try:
            parts = urlsplit(origin.decode("latin-1").lower())
        except ValueError:
            return False
        default = _DEFAULT_PORTS.get(parts.scheme)
        if default is None or not parts.netloc or "@" in parts.netloc:
            return False
        asked = host.decode("latin-1").lower()
        netloc = parts.netloc.removesuffix(default)
        return netloc == asked.removesuffix(default) or netloc in self._named

    def _is_ours(self, authority: str, local: str) -> bool:
        """local: the address of this end of the connection."""
        name = _name_of(authority)
        if authority in self._named or name in self._own or (name and name in self._named):
            return True
        address = _address(name)
        if address is None:
            # nobody owns a name without a dot, so nobody can make it point here
            return self._is_everywhere and bool(name) and "." not in name
        return address.is_loopback or address == _address(local)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the written address without its zone, as IPv4 where it is mapped."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _name_of(authority: str) -> str:
    """Return the host of "host:port", without brackets and final dot; "" = none."""
    if authority.startswith("[") and authority.rpartition("]")[2][:1] not in ("", ":"):
        return ""  # urlsplit leaves out what stands behind the brackets
    try:
        parts = urlsplit(f"//{authority}")
        name, _ = parts.hostname or "", parts.port
    except ValueError:
        return ""
    return "" if "@" in authority or "/" in authority else name.removesuffix(".")


def _headers(scope: Message, wanted: bytes) -> list[bytes]:
    return [value for name, value in scope["headers"] if name == wanted]


def _is_json(kind: bytes) -> bool:
    media = kind.partition(b";")[0].strip().lower()
    return media == b"application/json" or (
        media.startswith(b"application/") and media.endswith(b"+json")
    )
