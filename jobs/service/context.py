"""Context of all handlers: ownership, the tables, and commands to the balancer.

Handlers read tables and send commands through it. Commands and audit entries go to Kafka, commands
under the caller's name; the answer is the row of table `commands`, for which the wait is bounded.
Decides how many may wait at once, and what a caller is told when Kafka doesn't take a command; the
sending and the following of outcomes are `command_client`'s.
"""

import asyncio
import logging
import queue
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from jobs.adapters.delta.table_location import TablePlace
from jobs.adapters.following.delta_follower import DeltaFollower
from jobs.adapters.following.view import View
from jobs.adapters.http.fair_scheduling import FairScheduler
from jobs.adapters.kafka.clients import Delivery, KafkaAddress, NotDelivered, Sender
from jobs.adapters.kafka.command_client import CommandClient, CommandOutcome
from jobs.adapters.kafka.connection import KafkaWatch
from jobs.adapters.processes.clocks import boot_ms, wall_ms
from jobs.console import CommandError, MisuseError
from jobs.service.access import Caller
from jobs.service.access_control import ServiceCounts
from jobs.service.changes import ChangeFeed
from jobs.service.exchange import RETRY, HttpError, Request
from jobs.service.views import TableViews
from lbcore.balancer.book import DONE
from lbcore.config.tree import Config
from lbcore.explain.job_state import JobContext
from lbcore.validation.check import in_force
from lbcore.wire.arguments import CommandArguments
from lbcore.wire.commands import format_arguments
from lbcore.wire.format import format_message
from lbcore.wire.messages import AuditEntry, Command

COMMAND_TIMEOUT_MS = 30_000
SENT = "sent"
"""Status of a command that nobody has taken up by the end of the wait."""
_POLL_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminContext:
    """Collaborators and settings of all handlers, of one cluster.

    config: this service's settings for the cluster. commands, kafka: None when the service was
    started without Kafka's address. catch_up_ms: how long an answer waits for the tables to show
    its outcome. changes: None where nobody can watch. turns: of the event loop, taken by all that
    is more than a lookup.
    """

    cluster: str
    follower: DeltaFollower
    views: TableViews
    config: Config
    commands: "KafkaPort | None" = None
    catch_up_ms: int = 3_000
    changes: ChangeFeed | None = None
    kafka: KafkaWatch | None = None
    turns: FairScheduler = field(default_factory=FairScheduler)

    @property
    def view(self) -> View:
        """The newest snapshot with its ages; raises HttpError 503 before the first load."""
        view = self.follower.view
        if view is None:
            raise HttpError(503, "The tables are not loaded yet: try again", RETRY)
        return view

    @property
    def around(self) -> JobContext:
        """State of the job that this service knows from outside the tables."""
        return JobContext(kafka_trouble=self.kafka.trouble if self.kafka else "")

    @property
    def started(self) -> Config:
        """Configuration that the job reports to have been started with.

        The rest is this service's own.
        """
        return self.views.started(self.config)

    @property
    def in_force(self) -> Config:
        """Configuration in force: `started` with what commands have changed."""
        return in_force(self.started, self.views.settings)[0]

    @property
    def age_ms(self) -> int:
        """Milliseconds since all tables were last known to be the newest.

        Raises HttpError 503 before the first load.
        """
        now_ms = boot_ms()
        return max(self.view.age_ms(now_ms), now_ms - self.views.confirmed_ms)

    async def command(
        self,
        arguments: CommandArguments,
        request: Request,
        *,
        timeout_ms: int = COMMAND_TIMEOUT_MS,
        wait_ms: int | None = None,
        command_id: str = "",
    ) -> CommandOutcome:
        """Ask the balancer in the caller's name and wait for the outcome.

        A command that is done is answered once this service's tables show it, so that the caller's
        next request sees it. If they can't be read, the answer waits for catch_up_ms at most.
        timeout_ms: until when the command may be begun. wait_ms: bound of the wait, None = the
        same; a shorter one can end with the status `sent`. command_id: given again it is the same
        command, which is carried out once. Raises HttpError 503 when it can't be asked, or when
        nobody takes it up: then nothing has happened yet, but may still happen.
        """
        command_id = command_id or str(uuid.uuid4())
        if self.commands is not None:
            request.notes["command_id"] = command_id
        outcome = await self.command_as(
            arguments,
            request.caller,
            timeout_ms=timeout_ms,
            wait_ms=wait_ms,
            command_id=command_id,
        )
        if outcome.status == DONE:
            await self._catch_up()
        return outcome

    async def command_as(
        self,
        arguments: CommandArguments,
        caller: Caller,
        *,
        timeout_ms: int,
        command_id: str,
        wait_ms: int | None = None,
    ) -> CommandOutcome:
        """As `command`, where there is no request of a caller's."""
        if self.commands is None:
            reason = "This service can't ask the balancer: it was started without Kafka's address"
            raise HttpError(503, reason)
        kind, given = format_arguments(arguments)
        command = Command(
            cluster=self.cluster,
            command_id=command_id,
            kind=kind,
            arguments=given,
            principal=caller.name,
            address=caller.address,
            timeout_ms=timeout_ms,
        )
        wait_ms = timeout_ms if wait_ms is None else wait_ms
        outcome = await self.commands.ask(command, wait_ms)
        if outcome is None and wait_ms < timeout_ms:
            return CommandOutcome(
                command_id=command_id, kind=kind, status=SENT, reason="", result={}, at_ms=0
            )
        if outcome is None:
            silent_ms = self.view.writer_silent_ms(wall_ms())
            raise HttpError(
                503,
                f"The balancer has not taken up command {command.command_id} within {timeout_ms} "
                f"ms (its last commit is {silent_ms} ms old): it may still do so, ask for its "
                "outcome by the same command id",
                RETRY,
            )
        return outcome

    async def _catch_up(self) -> None:
        """Wait until a reading of the tables has ended that began after now."""
        since_ms = boot_ms()
        while boot_ms() < since_ms + self.catch_up_ms:
            view = self.follower.view
            if min(view.confirmed_ms if view else 0, self.views.confirmed_ms) >= since_ms:
                return
            await asyncio.sleep(_POLL_S)


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
        self._finals: set[asyncio.Future[CommandOutcome]] = set()
        self._waiting_max = waiting_max
        self._entries: queue.Queue[AuditEntry | None] = queue.Queue(_ENTRIES_MAX)
        self._recorder = threading.Thread(target=self._record_all, daemon=True)
        self._recorder.start()
        self.watch = KafkaWatch(address, "lookup service").start()

    async def ask(self, command: Command, wait_ms: int) -> CommandOutcome | None:
        """Send, and wait for `wait_ms` at most.

        None: not taken up yet. Raises HttpError 503 when it could not be sent.
        """
        if self._waiting >= self._waiting_max:
            raise HttpError(503, "Too many commands are waiting for their outcome", RETRY)
        self._waiting += 1
        try:
            return await self._ask(command, wait_ms)
        finally:
            self._waiting -= 1

    async def _ask(self, command: Command, wait_ms: int) -> CommandOutcome | None:
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
                return final.result()
            return ticket.first.result() if ticket.first.done() else None  # under way
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
        """Queue an entry of the audit; never waits, never raises.

        What no longer fits is counted and stands in the log only.
        """
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
