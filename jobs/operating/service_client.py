"""Client of the lookup service: requests with a token, messages for failures.

The token's file is read at each request, so a token can be renewed while a verb runs. No redirect
is followed. A read that the service is too busy for is repeated; a command never is.
"""

import base64
import json
import ssl
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from jobs.adapters.http.client import HttpAnswer, HttpRequest, connection_to, exchange
from jobs.adapters.processes.clocks import wall_ms
from jobs.atomic_file import read_text_file
from jobs.console import CommandError, MisuseError, cause_message, first_line
from lbcore.model.times import instant

TIMEOUT_S = 60.0
_ANSWER_MAX_BYTES = 1 << 28
_ATTEMPTS = 3
_RETRY_S = 1.0
_OK, _BAD, _UNKNOWN_CALLER, _FORBIDDEN, _NOT_FOUND = 200, 400, 401, 403, 404
_REDIRECTS, _BUSY = range(300, 400), (429, 503)
_JSON = "application/json"
_NO_ROUTE = "HTTP 404 Not Found"
_SHOWN_CHARS = 200


class RefusedByServiceError(CommandError):
    """An error that the service answers. status: of HTTP; value: its JSON, or {}."""

    def __init__(self, status: int, value: Mapping[str, Any], **parts: str) -> None:
        super().__init__(parts.pop("what"), **parts)
        self.status = status
        self.value = value


def with_query(path: str, query: Mapping[str, Any]) -> str:
    """Return a path with its query; empty values are left out."""
    given = {k: value for k, value in query.items() if value not in (None, "", ())}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAddress:
    """A lookup service. url: http(s)://host:port, with a path where a proxy adds one.

    token_file: with a bearer token, None = without. ca_file: PEM of whom to trust, None = the
    system's.
    """

    url: str
    token_file: Path | None = None
    ca_file: Path | None = None

    def ask(
        self,
        path: str,
        body: Any = None,
        *,
        timeout_s: float = TIMEOUT_S,
        taken: Sequence[int] = (),
    ) -> Any:
        """Return the JSON of an answer. body: None for a read. taken: statuses beside 200.

        Raises CommandError: RefusedByServiceError where the service answers with another status,
        MisuseError where it does not understand the question.
        """
        authorization = {"Authorization": f"Bearer {self._token()}"} if self.token_file else {}
        asked = HttpRequest(
            target=urlsplit(self.url).path.rstrip("/") + path,
            method="GET" if body is None else "POST",
            body=b"" if body is None else json.dumps(body).encode(),
            headers={**authorization, "Accept": _JSON, "Content-Type": _JSON},
        )
        path = path.partition("?")[0]
        for tried in range(1, _ATTEMPTS + 1):
            answered = self._exchange(asked, timeout_s)
            is_busy = answered.status in _BUSY and "retry-after" in answered.headers
            if not is_busy or body is not None or tried == _ATTEMPTS:
                break
            time.sleep(_RETRY_S)
        value = self._value(answered, path)
        if answered.status == _OK or answered.status in taken:
            return value
        raise self._refused(answered, value if isinstance(value, Mapping) else {}, path)

    def _token(self) -> str:
        assert self.token_file is not None  # noqa: S101 (asked only where there is one)
        try:
            token = read_text_file(self.token_file).strip()
            token.encode("ascii")
        except (OSError, ValueError) as cause:
            raise MisuseError(
                f"the token in {self.token_file} can't be read",
                why=cause_message(cause),
                next_step="correct --token-file, or let this user read the file",
            ) from None
        return token

    def _exchange(self, asked: HttpRequest, timeout_s: float) -> HttpAnswer:
        try:
            context = None
            if urlsplit(self.url).scheme == "https" and self.ca_file is not None:
                context = ssl.create_default_context(cafile=str(self.ca_file))
            return exchange(connection_to(self.url, timeout_s, context), asked, _ANSWER_MAX_BYTES)
        except ssl.SSLCertVerificationError as cause:
            raise CommandError(
                f"the service at {self.url} is not trusted",
                why=cause.verify_message or first_line(cause),
                next_step="name the authority that signed its certificate: ca_file in the context, "
                "or $SSL_CERT_FILE",
            ) from None
        except (OSError, HTTPException, ValueError) as cause:
            raise CommandError(
                f"the service at {self.url} does not answer",
                why=f"{type(cause).__name__}: {cause_message(cause)}",
                next_step="check the address and that `ballast serve` runs there; --tables reads "
                "the tables instead",
            ) from None

    def _value(self, answered: HttpAnswer, path: str) -> Any:
        """Return the JSON of an answer; raises CommandError for a page of somebody else."""
        why = f"HTTP {answered.status} with {answered.kind or 'no content type'} and no JSON"
        if answered.status in _REDIRECTS:
            why = f"it sends GET {path} on to {answered.location or 'nowhere'}"
        elif "json" in answered.kind.lower():
            with suppress(ValueError, RecursionError):
                return json.loads(answered.content)
        raise RefusedByServiceError(
            answered.status,
            {},
            what=f"{self.url} does not answer as a Ballast service",
            why=f"{why}: a proxy or its login page stands before it, or it is another server",
            next_step="give the service's own address with --url, or have the proxy let /v1 pass",
        )

    def _refused(self, answered: HttpAnswer, value: Mapping[str, Any], path: str) -> CommandError:
        reason = str(value.get("detail") or value.get("reason") or value.get("title") or "")
        reason = reason or f"HTTP {answered.status}"
        what, next_step = f"the service at {self.url} refuses it", "correct it, and ask again"
        if answered.status == _UNKNOWN_CALLER:
            what = f"the service at {self.url} does not accept who asks"
            reason, next_step = self._about_token(reason)
        elif answered.status == _FORBIDDEN:
            next_step = "ask with a token that has this role: --token-file"
        elif answered.status == _NOT_FOUND and reason == _NO_ROUTE:
            what = f"the service at {self.url} has no {path}"
            reason = "it is of an older version, or the address has a path too much"
            next_step = "upgrade the service, or read the tables with --tables"
        elif answered.status in _BUSY:
            what = f"the service at {self.url} can't answer now"
            next_step = "ask again in a moment; `ballast status` says how the cluster is"
        if answered.status == _BAD and value:
            return MisuseError(what, why=reason, next_step=next_step)
        return RefusedByServiceError(
            answered.status, value, what=what, why=reason, next_step=next_step
        )

    def _about_token(self, reason: str) -> tuple[str, str]:
        if self.token_file is None:
            return f"no token was given ({reason})", "give one with --token-file"
        try:  # a JSON Web Token, if it says when it ends
            part = self._token().split(".")[1]
            claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
            ends_ms = round(float(claims["exp"]) * 1_000)
        except (IndexError, KeyError, TypeError, ValueError, OverflowError):
            ends_ms = 0
        if ends_ms and ends_ms < wall_ms():
            why = f"the token in {self.token_file} expired at {instant(ends_ms)}"
            return why, "put a new token into the file; it is read again at each request"
        return (
            f"the token in {self.token_file} is refused ({reason})",
            "put a token into the file that this service's keys have signed",
        )


def service_url(text: str) -> str:
    """Return the address of a service without a slash at its end; raises MisuseError."""
    parts = urlsplit(text)
    try:
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port
        is_usable = False
    if is_usable and not parts.query and not parts.fragment and "@" not in parts.netloc:
        return text.rstrip("/")
    raise MisuseError(
        f"{text[:_SHOWN_CHARS]!r} is no address of a service",
        why="it is written as http://HOST:PORT or https://HOST:PORT, without a password",
        next_step="correct --url, $BALLAST_URL or the context",
    )


def path_of(*parts: str) -> str:
    """Return a path whose parts are quoted: a slash within a part ends it."""
    return "/" + "/".join(quote(one, safe=":") for part in parts for one in part.split("/"))
