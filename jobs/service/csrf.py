"""Protection against cross-site requests that a web page has made a browser send.

Judged by what a page can't forge. A browser says in Host which name it was given, in Origin and
Sec-Fetch-Site where the page is from, and sends a body of another type than a form's, or a method
of ours, only to where its page is from. So a name that is not ours is a name that somebody has made
to point here (DNS rebinding), and a form's type on a write is a form's (CSRF). Where callers prove
who they are with each request, a page has nothing to prove it with, and any name will do. Sources:
RFC 9110, 7.4 and 15.5.20; Fetch, 2.2.2 (safelisted requests); OWASP, CSRF prevention.
"""

import ipaddress
import socket
from collections import Counter
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from jobs.service.exchange import HttpError, Message

ALL_INTERFACES: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 (compared, not listened on)
FOREIGN_HOST, FOREIGN_ORIGIN, FOREIGN_TYPE = "foreign_host", "foreign_origin", "foreign_type"
FOREIGN = (FOREIGN_HOST, FOREIGN_ORIGIN, FOREIGN_TYPE)
"""Why a request is refused as somebody else's; labels of a metric."""

_KNOWN_MAX = 1_000
_BEARER = b"bearer "
_FROM_ELSEWHERE = frozenset({b"cross-site", b"same-site"})
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


class Origins:
    """Knows the names of this service.

    listen: the address that it listens on. names: more that it is known by, host or host:port.
    checks_hosts: whether a request must come under one of them. refused: counts, by FOREIGN.
    """

    def __init__(self, listen: str, names: Iterable[str] = (), *, checks_hosts: bool) -> None:
        self.checks_hosts = checks_hosts
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
        if not self.checks_hosts:
            return
        for name, value in scope["headers"]:
            if name == b"host":
                self._check_name(value, scope)  # HTTP/1.0 may have none, and no browser speaks it

    def _check_name(self, value: bytes, scope: Message) -> None:
        local = str((scope.get("server") or ("",))[0]) if self._is_everywhere else ""
        if (value, local) in self._known:
            return
        if not self._is_ours(value.decode("latin-1").lower(), local):
            raise self._refusal(
                421,
                FOREIGN_HOST,
                "This service has not the name that it was asked under: if it should, add it to "
                "lookup.allowed_hosts",
            )
        if len(self._known) < _KNOWN_MAX:
            self._known.add((value, local))

    def check_write(self, scope: Message) -> None:
        """Raise HttpError 403 or 415 for a change from a foreign page.

        Nothing that only a page's own service is sent can be asked for: a body of JSON, or PUT and
        DELETE without one.
        """
        self._check_origin(scope)
        if _has_bearer(scope):
            return
        kinds = _headers(scope, b"content-type")
        if kinds and all(map(_is_json, kinds)):
            return
        if kinds or scope["method"] == "POST" or _has_body(scope):
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
        host = _header(scope, b"host") or b""
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
        if authority in self._named or (name and name in self._named):
            return True
        if name in self._own:
            return True
        address = _address(name)
        if address is None:
            # nobody owns a name without a dot, so nobody can make it point here
            return self._is_everywhere and bool(name) and "." not in name
        return address.is_loopback or address == _address(local)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the written address without its zone.

    As IPv4 where it stands for one.
    """
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _name_of(authority: str) -> str:
    """Return the host of "host:port"; "" for none.

    Without the brackets of IPv6 and the final dot.
    """
    if authority.startswith("[") and authority.rpartition("]")[2][:1] not in ("", ":"):
        return ""  # urlsplit leaves out what stands behind the brackets
    try:
        parts = urlsplit(f"//{authority}")
        name, _ = parts.hostname or "", parts.port
    except ValueError:
        return ""
    return "" if "@" in authority or "/" in authority else name.removesuffix(".")


def _header(scope: Message, wanted: bytes) -> bytes | None:
    return next(iter(_headers(scope, wanted)), None)


def _headers(scope: Message, wanted: bytes) -> list[bytes]:
    return [value for name, value in scope["headers"] if name == wanted]


def _is_json(kind: bytes) -> bool:
    media = kind.partition(b";")[0].strip().lower()
    return media == b"application/json" or (
        media.startswith(b"application/") and media.endswith(b"+json")
    )


def _has_bearer(scope: Message) -> bool:
    """True if a header is present that no page can make a browser send cross-site."""
    value = _header(scope, b"authorization")
    return value is not None and value[: len(_BEARER)].lower() == _BEARER


def _has_body(scope: Message) -> bool:
    length = _header(scope, b"content-length")
    return _header(scope, b"transfer-encoding") is not None or length not in (None, b"0")
