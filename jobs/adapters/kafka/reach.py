"""Kafka's reachability: one question that every broker answers, asked now or again and again.

A client library tries for a long time before it says that Kafka is away. This asks on a connection
of its own, so that status, the doctor, the service and agents can name the address within seconds.
"""

import contextlib
import logging
import socket
import ssl
import struct
import threading
from collections.abc import Callable

from jobs.adapters.kafka.clients import KafkaAddress

logger = logging.getLogger(__name__)

_API_VERSIONS_REQUEST = struct.pack(">ihhih", 10, 18, 0, 1, -1)
_TIMEOUT_S = 1.0
_LOOK_S = 2.0
_PORT = 9092


def ask_kafka(host: str, port: int, *, is_encrypted: bool = False) -> str:
    """Send an ApiVersions request, the first of every client; why there is no answer, "" = one."""
    try:
        with _connected(host, port, is_encrypted=is_encrypted) as connection:
            connection.sendall(_API_VERSIONS_REQUEST)
            return "" if connection.recv(8) else "the connection was closed"
    except TimeoutError:
        return f"no answer within {_TIMEOUT_S:.0f} s"
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)


def _connected(host: str, port: int, *, is_encrypted: bool) -> socket.socket:
    connection = socket.create_connection((host, port), timeout=_TIMEOUT_S)
    if not is_encrypted:
        return connection
    context = ssl.create_default_context()  # asks whether it lives, trusts it with nothing
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.ExitStack() as stack:
        stack.enter_context(connection)
        wrapped = context.wrap_socket(connection)
        stack.pop_all()
    return wrapped


def kafka_trouble(address: KafkaAddress) -> str:
    """`Kafka does not answer at HOST:PORT (why)`; "" when one of its brokers answers.

    Takes a second for each broker that is named and hangs.
    """
    is_encrypted = "SSL" in str(address.security.get("security_protocol", ""))
    reasons = []
    for server in address.bootstrap.split(","):
        host, _, port = server.strip().rpartition(":")
        reason = ask_kafka(
            host.strip("[]") or server, int(port) if host else _PORT, is_encrypted=is_encrypted
        )
        if not reason:
            return ""
        reasons.append(reason)
    return f"Kafka does not answer at {address.bootstrap} ({reasons[0]})"


class KafkaWatch:
    """Asks every two seconds in a thread of its own; logs when answers end and when they are back.

    trouble: `kafka_trouble` of the last look. whose: who asks, for the log.
    """

    def __init__(
        self, address: KafkaAddress, whose: str, tell: Callable[[str], None] = logger.warning
    ) -> None:
        """tell: takes a line when it changes."""
        self.address, self.trouble = address, ""
        self._whose, self._tell = whose, tell
        self._is_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="kafka-watch")

    def start(self) -> "KafkaWatch":
        """Begin to ask."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Ask no more."""
        self._is_ended.set()

    def _run(self) -> None:
        while not self._is_ended.is_set():
            self.look()
            self._is_ended.wait(_LOOK_S)

    def look(self) -> None:
        """Ask now."""
        before, self.trouble = self.trouble, kafka_trouble(self.address)
        if self.trouble and not before:
            self._tell(f"{self._whose}: {self.trouble}; nothing is sent or read until it does")
        elif before and not self.trouble:
            self._tell(f"{self._whose}: Kafka answers again at {self.address.bootstrap}")
