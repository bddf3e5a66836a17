"""The service's side of TLS: its certificate, whose clients' certificates it believes, reloading.

Decides the versions (1.2 and later) and that a new certificate holds for new connections, without
a restart. Source: ours; RFC 9325 for the versions.
"""

import ssl
import threading

from jobs.adapters.watched_file import Watched
from jobs.console import CommandError
from lbcore.config.lookup import LookupConfig

_LOOK_S = 2.0


class ServerTls:
    """A TLS context that is kept up with its files by a thread of its own."""

    def __init__(self, config: LookupConfig) -> None:
        """Raises CommandError when the files can't be used."""
        self._config = config
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        if config.client_ca_file:
            needs_one = config.authentication == "certificate"
            self.context.verify_mode = ssl.CERT_REQUIRED if needs_one else ssl.CERT_OPTIONAL
        files = (config.certificate_file, config.key_file, config.client_ca_file)
        try:
            self._files = Watched(files, self._load, look_s=0)
        except (OSError, ValueError) as error:
            raise CommandError(
                "the service's certificate can't be used",
                why=f"{error}",
                next_step="correct lookup.certificate_file, lookup.key_file and "
                "lookup.client_ca_file, or let this user read them",
            ) from None

    def keep_up(self, stop: threading.Event) -> None:
        """Take over changed files until `stop` is set."""
        while not stop.wait(_LOOK_S):
            self._files.look()

    def _load(self) -> None:
        """Into a context of its own first, so that files that don't fit change nothing.

        An authority that was taken away is believed until the next start.
        """
        config = self._config
        for context in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self.context):
            # an empty password instead of a prompt on the terminal
            context.load_cert_chain(
                config.certificate_file, config.key_file or None, password=lambda: ""
            )
            if config.client_ca_file:
                context.load_verify_locations(config.client_ca_file)
