"""Address of Pulsar's admin interface, credentials and errors.

Used by `pulsar_admin`.
"""

import http.client
import ssl
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from jobs.adapters.http.tls import WatchedFile
from jobs.console import MisuseError


def redirect_leads_to_broker(url: str, target: str, listed: Collection[str]) -> bool:
    """Return True if a token for `url` may be sent to the redirect's target.

    listed: the brokers as Pulsar names them, host:port of their web services. Over http the target
    must be one of them. Over https the host's certificate proves it, and the port may differ from
    the listed one, which is the http port of a broker that has both. Never from https to http.
    """
    try:
        parts = urlsplit(target)
        port = parts.port
    except ValueError:
        return False
    host = (parts.hostname or "").lower()
    if not host or parts.username is not None or parts.scheme not in ("http", "https"):
        return False
    known = {_host_and_port(broker) for broker in listed}
    if parts.scheme == "https":
        return host in {name for name, _ in known}
    return urlsplit(url).scheme == "http" and (host, port or http.client.HTTP_PORT) in known


def _host_and_port(broker: str) -> tuple[str, int]:
    """Return host and port of a broker's name; ("", 0) if it is not one."""
    try:
        parts = urlsplit(f"//{broker}")
        return (parts.hostname or "").lower(), parts.port or http.client.HTTP_PORT
    except ValueError:
        return "", 0


class PulsarAdminError(Exception):
    """Pulsar refused, did not answer, or answered unreadably. status: 0 = no answer.

    is_page: an HTML page came, as gateways and login pages send it, and Pulsar never does.
    """

    def __init__(self, detail: str, status: int = 0, *, is_page: bool = False) -> None:
        super().__init__(detail)
        self.status, self.is_page = status, is_page

    @property
    def label(self) -> str:
        """Kind of failure, as metrics count it: one of `lbcore.bridge.guardian.FAILURES`."""
        if isinstance(self, UnverifiedBrokerError):
            return "other_broker"
        if self.status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
            return "not_allowed"
        if self.is_page:
            return "html_page"
        if self.status >= http.client.INTERNAL_SERVER_ERROR:
            return "server_error"
        if self.status >= http.client.BAD_REQUEST:
            return "refused"
        return "unreadable" if self.status else "no_answer"

    @property
    def is_refusal(self) -> bool:
        """True if Pulsar itself refused the request; False for a failure on the way."""
        return http.client.BAD_REQUEST <= self.status < http.client.INTERNAL_SERVER_ERROR

    @property
    def is_unsupported(self) -> bool:
        """True for the extensible manager's answer to a question for a load report."""
        return "java.lang.Unsupported" in str(self)


class UnverifiedBrokerError(PulsarAdminError):
    """The answer may be another broker's than the one that was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminAddress:
    """Address of the admin interface, with credentials.

    token_file: read at each request, so a token may be renewed. ca_file, cert_file, key_file: PEM,
    read again when they change: a renewed certificate counts within a second. broker_urls: broker
    as Pulsar lists it → where it answers, for brokers that can't be reached under their own names.
    """

    url: str
    token_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    timeout_s: float = 10.0
    broker_urls: Mapping[str, str] = field(default_factory=dict)

    def tls(self) -> WatchedFile[ssl.SSLContext] | None:
        """The context of an https address; MisuseError when files can't be used."""
        if self.key_file and not self.cert_file:
            raise MisuseError(
                "a key without its certificate has no effect",
                why=f"--tls-key names {self.key_file}, and --tls-cert is missing",
                next_step="name the certificate with --tls-cert, or leave out --tls-key",
            )
        if urlsplit(self.url).scheme != "https":
            return None
        paths = tuple(str(one or "") for one in (self.ca_file, self.cert_file, self.key_file))
        try:
            return WatchedFile(paths, self._context)
        except (OSError, ssl.SSLError) as error:
            raise MisuseError(
                "the TLS files of the admin interface can't be used",
                why=str(error),
                next_step="name PEM files with --tls-ca, --tls-cert and --tls-key",
            ) from None

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca_file)
        if self.cert_file is not None:
            context.load_cert_chain(self.cert_file, self.key_file)
        return context
