"""Sends commands to the balancer and waits for their outcomes.

A command counts as sent when all in-sync replicas of Kafka have it. Used by the verbs and by the
admin service.

with CommandClient(address, "var/tables", "local") as client:
    ticket = client.send(new_command("local", PinBundle(bundle=..., broker="broker-1")))
    client.wait(ticket, timeout_ms=30_000)      # CommandOutcome | NoOutcome

From asyncio: `await asyncio.to_thread(client.send, command)`, then `await
asyncio.wait_for(asyncio.wrap_future(ticket.final), seconds)`, and `client.forget(ticket)`.
"""

import getpass
import json
import logging
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYetError
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias
from uuid import uuid4

from jobs.adapters.delta.rows import is_one_of, of_cluster
from jobs.adapters.delta.table_location import TablePlace, table_place
from jobs.adapters.delta.table_log import LostError, last_writer_commit, newest_version
from jobs.adapters.delta.table_scan import TableTail, scan
from jobs.adapters.delta.tables import open_table, table_path
from jobs.adapters.kafka.clients import Delivered, Delivery, KafkaAddress, NotDelivered, Sender
from jobs.adapters.processes.clocks import boot_ms, wall_ms
from jobs.console import MisuseError, UnknownError, in_one_line
from lbcore.balancer.book import ACCEPTED, REFUSED
from lbcore.balancer.waiting import identity, identity_of
from lbcore.model.names import Wire
from lbcore.model.tables import COMMANDS, OWNERSHIP_EVENTS
from lbcore.wire.arguments import CommandArguments
from lbcore.wire.commands import RefusedArguments, format_arguments, parse_arguments
from lbcore.wire.format import format_message
from lbcore.wire.messages import Command

logger = logging.getLogger(__name__)

_COLUMNS = (
    "command_id",
    "kind",
    "arguments",
    "principal",
    "status",
    "reason",
    "result",
    "at_ms",
)
_RETRY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutcome:
    """A row of `commands`.

    status: accepted (not ended yet), done, refused, failed, ... digest: of the command that the row
    belongs to, "" = unknown.
    """

    command_id: str
    kind: str
    status: str
    reason: str
    result: Mapping[str, Any]
    at_ms: int
    digest: str = ""

    @property
    def is_final(self) -> bool:
        """True if no further row will come."""
        return self.status != ACCEPTED


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeWatch:
    """Futures of a command's rows, of one waiter. first: any row; final: its end.

    digest: of the command that was sent, "" = only the id is known. If the id belongs to another
    command, the waiter gets a refusal that says so, and nothing of the other. asyncio waits with
    `asyncio.wrap_future`.
    """

    command_id: str
    digest: str = ""
    first: "Future[CommandOutcome]" = field(default_factory=Future)
    final: "Future[CommandOutcome]" = field(default_factory=Future)

    def notify(self, outcome: CommandOutcome) -> None:
        """Resolve the futures with a row; a repeated row changes nothing."""
        if self.digest and outcome.digest != self.digest:
            reason = (
                f"the command id {outcome.command_id} was used before, for another command or by "
                "somebody else: nothing was done, send it under an id of its own"
            )
            outcome = replace(outcome, kind="", status=REFUSED, reason=reason, result={})
        for future, is_meant in ((self.first, True), (self.final, outcome.is_final)):
            if is_meant and not future.done() and future.set_running_or_notify_cancel():
                future.set_result(outcome)


class OutcomeFollower:
    """Resolves watches from the table `commands`, without Spark; thread-safe.

    One thread serves all waiters, and rests without any. At each new commit (`TableTail`) it scans
    the table for all of them.

    tables: the folder of the tables, which may not exist yet. unread: why the table could not be
    read at the last look, "" = it was.
    """

    def __init__(self, tables: str | TablePlace, cluster: str, *, poll_ms: int = 100) -> None:
        self._root = table_place(tables)
        self._cluster = cluster
        self._poll_s = poll_ms / 1000
        self._lock = threading.Condition()
        self._watches: dict[str, list[OutcomeWatch]] = {}
        self._new: set[str] = set()
        self._tail: TableTail | None = None
        self.unread = ""
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def watch(self, command_id: str, digest: str = "") -> OutcomeWatch:
        """Watch a command; rows that the table has already count.

        Call `forget` when nobody waits any more.
        """
        watch = OutcomeWatch(command_id=command_id, digest=digest)
        with self._lock:
            self._watches.setdefault(command_id, []).append(watch)
            self._new.add(command_id)
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(
                    target=self._run, name="ballast-outcomes", daemon=True
                )
                self._thread.start()
            self._lock.notify_all()
        return watch

    def forget(self, watch: OutcomeWatch) -> None:
        """Stop waiting; its futures are cancelled unless they are done."""
        with self._lock:
            left = [one for one in self._watches.get(watch.command_id, []) if one is not watch]
            if left:
                self._watches[watch.command_id] = left
            else:
                self._watches.pop(watch.command_id, None)
        watch.first.cancel()
        watch.final.cancel()

    def close(self) -> None:
        """End the thread; open watches stay unresolved."""
        with self._lock:
            self._is_closed = True
            self._lock.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._watches:
                    self._tail = None  # what passes meanwhile is found by the next scan
                    self._lock.wait_for(lambda: self._is_closed or bool(self._watches))
                if self._is_closed:
                    return
            pause_s = self._poll_s
            try:
                self._poll()
                self.unread = ""
            except Exception as error:  # noqa: BLE001 the outermost loop: look again
                self._tail, self.unread, pause_s = None, in_one_line(error), _RETRY_S
            with self._lock:
                self._lock.wait_for(lambda: self._is_closed or bool(self._new), pause_s)

    def _poll(self) -> None:
        """Scan the table if it, or the set of watches, has changed."""
        with self._lock:
            wanted = sorted(self._watches)
            is_due = not self._new.isdisjoint(wanted) or self._tail is None
            self._new.clear()
        with suppress(LostError):
            if not is_due and self._tail is not None and not self._tail.new_commits():
                return
        table = open_table(self._root, COMMANDS.name)
        named = is_one_of("command_id", wanted)
        rows = scan(table, _COLUMNS, f"{of_cluster(self._cluster)} AND {named}")
        found = [outcome for row in rows.to_pylist() if (outcome := _outcome_of(row)) is not None]
        for outcome in sorted(found, key=lambda one: (one.at_ms, one.status)):
            with self._lock:
                watches = list(self._watches.get(outcome.command_id, ()))
            for watch in watches:
                watch.notify(outcome)
        self._tail = TableTail(table_path(self._root, COMMANDS.name), table)


def _outcome_of(row: Mapping[str, Any]) -> CommandOutcome | None:
    """Return the row's outcome; None, with a log line, for an unreadable one."""
    try:
        arguments = json.loads(row["arguments"] or "{}")
        return CommandOutcome(
            command_id=row["command_id"],
            kind=row["kind"],
            status=row["status"],
            reason=row["reason"],
            result=json.loads(row["result"] or "{}"),
            at_ms=row["at_ms"],
            digest=identity_of(row["kind"], arguments, row["principal"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        fields = {"command_id": str(row.get("command_id")), "error": f"{type(error).__name__}"}
        logger.warning("outcome_put_aside", extra={"fields": fields})
        return None


NEVER = -1
DEFAULT_TIMEOUT_MS = 30_000
_DELIVERY_TIMEOUT_MS = 15_000
_BYTES_MAX = Wire().max_message_bytes

Ticket: TypeAlias = OutcomeWatch
"""A sent command: its id, and futures of its first and of its final row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOutcome:
    """The command has not ended in time; it may still be carried out.

    accepted: the balancer's first answer, None without any. writer_silent_ms: since the job's last
    heartbeat, NEVER without one. unread: why a table can't be read, so that no outcome or no
    heartbeat is known; "" = they can.
    """

    command_id: str
    waited_ms: int
    accepted: CommandOutcome | None
    writer_silent_ms: int
    unread: str = ""

    def is_job_away(self, heartbeat_ms: int) -> bool:
        """Return True if the job has missed two heartbeats, each heartbeat_ms long."""
        is_silent = self.writer_silent_ms == NEVER or self.writer_silent_ms > 2 * heartbeat_ms
        return is_silent and not self.unread


def new_command(
    cluster: str,
    arguments: CommandArguments,
    *,
    principal: str = "",
    command_id: str = "",
    timeout_ms: int = DEFAULT_TIMEOUT_MS,
) -> Command:
    """Return a command for Kafka, with a new id, and the user's name unless given.

    timeout_ms: from Kafka's receipt on; the balancer refuses to begin later; 0 = no limit. Raises
    MisuseError for arguments that the balancer would refuse in any state.
    """
    kind, given = format_arguments(arguments)
    checked = parse_arguments(kind, given)
    if isinstance(checked, RefusedArguments):
        raise MisuseError(
            f"the command {kind} can't be sent",
            why=checked.detail,
            next_step="correct the argument and try again",
        )
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())  # ids sort by time, to the second
    return Command(
        cluster=cluster,
        command_id=command_id or f"{now}-{uuid4().hex[:12]}",
        kind=kind,
        arguments=given,
        principal=principal or local_principal(),
        timeout_ms=timeout_ms,
    )


def local_principal() -> str:
    """The user of this process at this host, such as `ada@build-7`."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a user id without a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def writer_silent_ms(
    tables: str | TablePlace, clocks_ms: Sequence[int], *, known_version: int, known_age_ms: int
) -> int:
    """Milliseconds since the batch of the job's last commit, NEVER without one.

    clocks_ms: present time of each clock. known_version, known_age_ms: the version that a watcher
    saw last, and for how long it has been the newest. The commit is at least that old: a clock that
    says less is wrong. Of the others the smallest age counts, so that one wrong clock decides
    nothing.
    """
    events = table_path(tables, OWNERSHIP_EVENTS.name)
    version = newest_version(events)
    commit = last_writer_commit(events, version)
    if commit is None:
        return NEVER
    youngest_ms = known_age_ms if version == known_version else 0
    ages_ms = (now_ms - commit.now_ms for now_ms in clocks_ms)
    return min((age_ms for age_ms in ages_ms if age_ms >= youngest_ms), default=youngest_ms)


class CommandClient(AbstractContextManager["CommandClient"]):
    """Sends commands and follows their outcomes; thread-safe.

    address: Kafka, with its security. tables: the folder of the tables. Connects at the first
    command, and again when that failed.
    """

    def __init__(
        self,
        address: KafkaAddress,
        tables: str | TablePlace,
        cluster: str,
        *,
        client_id: str = "ballast-commands",
    ) -> None:
        self._address = address
        self._tables = table_place(tables)
        self._client_id = client_id
        self._follower = OutcomeFollower(tables, cluster)
        self._sender: Sender | None = None
        self._kafka_booted_ms: int | None = None
        self._newest = (-1, boot_ms())
        self._lock = threading.Lock()

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, command: Command) -> Ticket:
        """Send a command; returns once Kafka has stored it.

        A command whose id was sent before is not carried out twice: its ticket shows the first
        outcome, or a refusal if that was another command or somebody else's. Raises MisuseError
        when it is longer than the job takes. Raises CommandError when Kafka can't be reached.
        Raises UnknownError when Kafka does not confirm within 15 s: it may have been sent, and
        sending it again with the same id is safe.
        """
        topic, key, value = format_message(command)
        if len(value) > _BYTES_MAX:
            raise MisuseError(
                f"the command {command.kind} is too long",
                why=f"its message has {len(value)} bytes, and the job takes at most {_BYTES_MAX}",
                next_step="name less in one command, and send several",
            )
        with self._lock:
            if self._sender is None:
                self._sender = Sender(
                    self._address, self._client_id, delivery_timeout_ms=_DELIVERY_TIMEOUT_MS
                )
            sender = self._sender
        self._watch_writer()  # first: if the store is away, nobody would forget the watch
        ticket = self._follower.watch(command.command_id, identity(command))
        delivery: Future[Delivery] = Future()
        sender.send(topic, key.decode(), value, on_delivery=delivery.set_result)
        try:
            found = delivery.result(timeout=2 * _DELIVERY_TIMEOUT_MS / 1000)
        except NotYetError:
            found = NotDelivered(topic=topic.value, reason="Kafka doesn't answer")
        if isinstance(found, Delivered):
            self._kafka_booted_ms = found.timestamp_ms - boot_ms()
            return ticket
        self._follower.forget(ticket)
        raise UnknownError(
            f"Kafka has not confirmed the command {command.command_id}",
            why=f"{self._address.bootstrap}, topic {found.topic}: {found.reason}",
            next_step="check that Kafka is up and that `ballast topics ensure` finds nothing to "
            "repair, then send it again with the same id",
        )

    def wait(self, ticket: Ticket, timeout_ms: int) -> CommandOutcome | NoOutcome:
        """Wait for the end of the command; the ticket can't be used again."""
        try:
            return ticket.final.result(timeout=timeout_ms / 1000)
        except NotYetError:
            silent_ms, unread = NEVER, ""
            try:
                silent_ms = self.writer_silent_ms()
                unread = "" if silent_ms == NEVER else self._follower.unread
            except OSError as error:  # the command has been sent anyway
                unread = in_one_line(error)
            return NoOutcome(
                command_id=ticket.command_id,
                waited_ms=timeout_ms,
                accepted=ticket.first.result() if ticket.first.done() else None,
                writer_silent_ms=silent_ms,
                unread=unread,
            )
        finally:
            self._follower.forget(ticket)

    def writer_silent_ms(self) -> int:
        """Time since the job's last heartbeat, ms; NEVER without one.

        Several clocks are compared, and the time for which no commit was seen.
        """
        version, age_ms = self._watch_writer()
        clocks_ms = [wall_ms()]
        if self._kafka_booted_ms is not None:  # Kafka's clock, from its last timestamp on
            clocks_ms.append(self._kafka_booted_ms + boot_ms())
        return writer_silent_ms(self._tables, clocks_ms, known_version=version, known_age_ms=age_ms)

    def forget(self, ticket: Ticket) -> None:
        """Stop following a command; it is still carried out."""
        self._follower.forget(ticket)

    def close(self) -> None:
        """Disconnect; open tickets stay unresolved."""
        self._follower.close()
        with self._lock:
            if self._sender is not None:
                self._sender.close()
                self._sender = None

    def _watch_writer(self) -> tuple[int, int]:
        """Return the newest version of the events, and for how long, ms."""
        version = newest_version(table_path(self._tables, OWNERSHIP_EVENTS.name))
        with self._lock:
            known, _ = self._newest
            if version != known:
                self._newest = (version, boot_ms())
            return version, boot_ms() - self._newest[1]
