"""The service's side of TLS: its certificate, whose clients' certificates it believes, reloading.

Decides the versions (1.2 and later) and that a new certificate holds for new connections, without
a restart. Source: ours; RFC 9325 for the versions.
"""

import math
import ssl
import threading

from jobs.adapters.http.watched_file import WatchedFile
from jobs.console import CommandError
from lbcore.config.lookup import LookupConfig

_LOOK_S = 2.0


class ServerTls:
    """A TLS context whose connections use the newest usable files.

    A context that serves is never changed: OpenSSL doesn't guard one against a handshake in
    another thread. Each handshake is handed the newest context instead.
    """

    def __init__(self, config: LookupConfig) -> None:
        """Raises CommandError when the files can't be used."""
        self._config = config
        files = (config.certificate_file, config.key_file, config.client_ca_file)
        try:
            self._files = WatchedFile(files, self._load, look_s=math.inf)
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
        while not stop.wait(_LOOK_S):
            self._files.look()

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
