"""TLS of the service: certificate, reloading, client certificates, expiry.

Versions are 1.2 and later (RFC 9325). Files are checked once a second at most; a new certificate
holds for new connections, without a restart. A change that can't be used, such as a half-written
file, is logged once, and the last good value stays.
"""

import logging
import math
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from cryptography import x509

from jobs.console import CommandError
from lbcore.config.lookup import LookupConfig
from lbcore.model.times import instant

logger = logging.getLogger(__name__)

Value = TypeVar("Value")
_CHECK_S = 1.0


class WatchedFile(Generic[Value]):
    """A value made from files, and made again when they change.

    make: called at the start, where its errors are raised, and after each change, where OSError and
    ValueError keep the last value. check_s: seconds between two checks of the files.
    """

    def __init__(
        self, paths: tuple[str, ...], make: Callable[[], Value], *, check_s: float = _CHECK_S
    ) -> None:
        self._paths = tuple(Path(path) for path in paths if path)
        self._make = make
        self._check_s = check_s
        self._marks = [*map(_mark_of, self._paths)]
        self._value = make()
        self._checked_s = time.monotonic()

    @property
    def value(self) -> Value:
        """The newest usable value."""
        now_s = time.monotonic()
        if now_s - self._checked_s >= self._check_s:
            self._checked_s = now_s
            self.check()
        return self._value

    def check(self) -> None:
        """Check the files now, and use changed ones."""
        marks = [*map(_mark_of, self._paths)]
        if marks == self._marks:
            return
        self._marks = marks
        names = [str(path) for path in self._paths]
        try:
            self._value = self._make()
        except (OSError, ValueError) as error:
            fields = {"files": names, "error": f"{type(error).__name__}: {error}"}
            logger.warning("changed_files_not_used", extra={"fields": fields})
        else:
            logger.info("changed_files_used", extra={"fields": {"files": names}})


def _mark_of(path: Path) -> tuple[int, int, int]:
    """Return a stamp that changes with a file's content, or with the target of a link."""
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def certificate_ends_ms(path: Path | str | None) -> int:
    """Return when a PEM file's first certificate ends, ms since 1970; 0 = none.

    0 also if the file can't be read.
    """
    if not path:
        return 0
    try:
        ends = x509.load_pem_x509_certificate(Path(path).read_bytes()).not_valid_after_utc
    except (OSError, ValueError):
        return 0
    return round(ends.timestamp()) * 1_000


def expired_message(path: Path | None, now_ms: int) -> str:
    """Return a sentence about a file's expired certificate; "" = it has not expired."""
    ends_ms = certificate_ends_ms(path)
    if not ends_ms or now_ms < ends_ms:
        return ""
    return f"our certificate {path} expired at {instant(ends_ms)}: put its successor there"


_TLS_CHECK_S = 2.0


class ServerTls:
    """A TLS context whose connections use the newest usable files.

    A context that serves is never changed: OpenSSL doesn't guard one against a handshake in
    another thread. Each handshake gets the newest context instead.
    """

    def __init__(self, config: LookupConfig) -> None:
        """Raises CommandError when the files can't be used."""
        self._config = config
        files = (config.certificate_file, config.key_file, config.client_ca_file)
        try:
            self._files = WatchedFile(files, self._load, check_s=math.inf)
        except (OSError, ValueError) as error:
            raise CommandError(
                "the service's certificate can't be used",
                why=f"{error}",
                next_step="correct lookup.certificate_file, lookup.key_file and "
                "lookup.client_ca_file, or let this user read them",
            ) from None
        self.context = self._load()
        self.context.sni_callback = self._hand_newest

    def keep_up(self, stop: threading.Event) -> None:
        """Take over changed files until `stop` is set."""
        while not stop.wait(_TLS_CHECK_S):
            self._files.check()

    def _hand_newest(
        self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _own: ssl.SSLContext
    ) -> None:
        # called by each handshake, also of a client that names no server
        connection.context = self._files.value

    def _load(self) -> ssl.SSLContext:
        config = self._config
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        # an empty password instead of a prompt on the terminal
        context.load_cert_chain(
            config.certificate_file, config.key_file or None, password=lambda: ""
        )
        if config.client_ca_file:
            needs_one = config.authentication == "certificate"
            context.verify_mode = ssl.CERT_REQUIRED if needs_one else ssl.CERT_OPTIONAL
            context.load_verify_locations(config.client_ca_file)
        return context
