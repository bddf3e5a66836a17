"""Commands and audit entries of the admin service, sent to the balancer by Kafka.

Decides how many may wait at once, and what a caller is told when Kafka doesn't take a command; the
sending and the following of outcomes are `command_client`'s.
"""

import asyncio
import logging
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from jobs.adapters.delta.table_location import TablePlace
from jobs.adapters.kafka.clients import Delivery, KafkaAddress, NotDelivered, Sender
from jobs.adapters.kafka.command_client import CommandClient
from jobs.adapters.kafka.command_client import CommandOutcome as Row
from jobs.adapters.kafka.connection import KafkaWatch
from jobs.console import CommandError, MisuseError
from jobs.service.access_control import ServiceCounts
from jobs.service.context import CommandEnd
from jobs.service.exchange import RETRY, HttpError
from lbcore.wire.format import format_message
from lbcore.wire.messages import AuditEntry, Command

logger = logging.getLogger(__name__)

_SENDERS = 8
_ENTRIES_MAX = 10_000
_RETRY_S = 5.0
_GRACE_S = 1.0
_END_S = 2.0


class KafkaPort:
    """Sender of commands that awaits outcomes; it records the audit in the background.

    tables: folder of the tables. waiting_max: commands that may wait at a time. counts: takes the
    entries of the audit that Kafka did not get.
    """

    def __init__(
        self,
        address: KafkaAddress,
        tables: TablePlace,
        cluster: str,
        *,
        waiting_max: int,
        counts: ServiceCounts,
    ) -> None:
        self.counts = counts
        self._has_failed, self._ended = threading.Event(), threading.Event()
        self._address = address
        self._client = CommandClient(address, tables, cluster, client_id="ballast-admin")
        self._threads = ThreadPoolExecutor(_SENDERS, thread_name_prefix="ballast-commands")
        self._waiting = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._finals: set[asyncio.Future[Row]] = set()
        self._waiting_max = waiting_max
        self._entries: queue.Queue[AuditEntry | None] = queue.Queue(_ENTRIES_MAX)
        self._recorder = threading.Thread(target=self._record_all, daemon=True)
        self._recorder.start()
        self.watch = KafkaWatch(address, "lookup service").start()

    async def ask(self, command: Command, wait_ms: int | None = None) -> CommandEnd | None:
        """Send and wait; see CommandPort."""
        if self._waiting >= self._waiting_max:
            raise HttpError(503, "Too many commands are waiting for their outcome", RETRY)
        self._waiting += 1
        try:
            return await self._ask(command, command.timeout_ms if wait_ms is None else wait_ms)
        finally:
            self._waiting -= 1

    async def _ask(self, command: Command, wait_ms: int) -> CommandEnd | None:
        loop = self._loop = asyncio.get_running_loop()
        try:
            ticket = await loop.run_in_executor(self._threads, self._client.send, command)
        except MisuseError as error:
            raise HttpError(413, f"{error.what}: {error.why}") from None
        except CommandError as error:
            fields = {"command_id": command.command_id, "error": error.what, "why": error.why}
            logger.warning("command_not_sent", extra={"fields": fields})
            raise HttpError(
                503,
                f"{self.watch.trouble or 'Kafka did not take the command'}: sending command"
                f" {command.command_id} again with the same "
                "id is safe",
                RETRY,
            ) from None
        final = asyncio.wrap_future(ticket.final)
        self._finals.add(final)
        try:
            await asyncio.wait({final}, timeout=wait_ms / 1000 + _GRACE_S * bool(wait_ms))
            if final.done() and not final.cancelled():
                return _outcome(final.result())
            return _outcome(ticket.first.result()) if ticket.first.done() else None  # under way
        finally:
            self._finals.discard(final)
            self._client.forget(ticket)

    def end_waits(self) -> None:
        """Answer waiting callers with what is known by now.

        From any thread. Commands go on.
        """
        if self._loop is not None:
            # cancelled ones leave the set later, in their own turn
            self._loop.call_soon_threadsafe(lambda: [one.cancel() for one in tuple(self._finals)])

    def record(self, entry: AuditEntry) -> None:
        """Queue an entry; what no longer fits is counted and stands in the log only."""
        try:
            self._entries.put_nowait(entry)
        except queue.Full:
            self.counts.dropped += 1

    def close(self) -> None:
        """Send what is queued, within 2 s, and disconnect."""
        self._ended.set()
        self.watch.close()
        try:
            self._entries.put_nowait(None)
        except queue.Full:
            self.counts.dropped += 1
        self._recorder.join(_END_S)
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def _record_all(self) -> None:
        sender: Sender | None = None
        while (entry := self._entries.get()) is not None:
            while (sender := sender or self._connected()) is None:
                self._ended.wait(_RETRY_S)
            if self._has_failed.is_set():
                self._has_failed.clear()
                self._ended.wait(_RETRY_S)
            try:
                topic, key, value = format_message(entry)
            except ValueError:  # a text that no UTF-8 holds: this entry alone is lost
                self.counts.dropped += 1
                continue
            sender.send(topic, key.decode(), value, on_delivery=partial(self._send_again, entry))
        if sender is not None:
            sender.close(int(_END_S * 1000))

    def _send_again(self, entry: AuditEntry, delivery: Delivery) -> None:
        """Queue an entry again that Kafka did not take; called in the producer's thread."""
        if isinstance(delivery, NotDelivered):
            self._has_failed.set()
            self.record(entry)

    def _connected(self) -> Sender | None:
        try:
            return Sender(self._address, "ballast-audit")
        except CommandError as error:
            logger.warning("audit_waits", extra={"fields": {"why": error.why}})
            return None


def _outcome(row: Row) -> CommandEnd:
    return CommandEnd(
        command_id=row.command_id, status=row.status, reason=row.reason, result=dict(row.result)
    )
