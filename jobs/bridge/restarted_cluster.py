"""The cluster that is restarted: observations, commands to balancer and shell.

What a modular manager owns is asked only of a broker that is drained, and only now and then: the
question itself may stop a broker (docs/pulsar.md).
"""

import json
import os
import shlex
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as NotYetError
from contextlib import suppress
from pathlib import Path
from typing import Any

from jobs.adapters.kafka.command_client import CommandClient, new_command
from jobs.adapters.processes.clocks import wall_ms
from jobs.adapters.processes.processes import last_lines
from jobs.bridge.admin_address import PulsarAdminError, UnverifiedBrokerError
from jobs.bridge.pulsar_admin import PulsarAdmin
from jobs.bridge.rolling_progress import Complaint, Observation, Progress, RestartStage
from jobs.console import CommandError, note
from jobs.operating.connection_options import ConnectionOptions
from jobs.operating.status import RECORD, read_status_rows
from lbcore.balancer.book import FAILED, REFUSED
from lbcore.balancer.rules import PROPOSAL, PlanProposal
from lbcore.bridge.anomalies import Trouble
from lbcore.bridge.answers import Unreadable, parse_metrics, parse_topics
from lbcore.bridge.reports import (
    LatencySums,
    load_ms,
    parse_client_latency,
    publish_ms,
    worst_ms,
)
from lbcore.explain.explanation import Row
from lbcore.explain.job_state import JobWord, job_alarms
from lbcore.explain.mirrored import NEVER_MS, finding_message
from lbcore.explain.status import ClusterStatus, make_status
from lbcore.packing import from_plain
from lbcore.wire.arguments import CommandArguments
from lbcore.wire.kinds.balancing_commands import (
    ApprovePlan,
    CancelDrain,
    DrainBroker,
    ProposePlan,
    RejectPlan,
)

_ANSWER_S, _TIMEOUT_MS, _DRAIN_MS = 60.0, 60_000, 3_600_000
_HELD_S, _LATENCY_S = 5.0, 10.0
_UNREAD_MS, _OBSERVES_MS, _FOUND_MS, _JOB_MS = 30_000, 120_000, 30_000, 60_000
_BRIDGE_SILENT_MS = 120_000
"""It tells something once a minute, if only that it looks."""
_NO_FAULT = (Trouble.NARROW.value, Trouble.EXPIRING.value, Trouble.EXPIRING_SOON.value)
_IN_FLIGHT = ("Assigning", "Releasing", "Splitting")
_MOVING = (RestartStage.WAITING, RestartStage.DRAINING, RestartStage.FILLING)


class PulsarCluster:
    """A cluster behind a bridge that acts; used by one thread."""

    def __init__(
        self,
        where: ConnectionOptions,
        admin: PulsarAdmin,
        name: str,
        client: CommandClient,
        log: Path,
    ) -> None:
        """name: of the cluster in Pulsar. log: where the shell's commands write to."""
        self._where, self._config, self._admin, self._name = where, where.started(), admin, name
        self._client, self._log = client, log
        self._child: subprocess.Popen[bytes] | None = None
        self._answered: dict[str, str] = {}
        self._due_s: dict[str, float] = {}
        self._pages: dict[str, LatencySums] = {}
        self._latency: tuple[float | None, float | None] = (None, None)
        self._held: frozenset[str] | None = None
        self._listed: frozenset[str] = frozenset()
        self.status: ClusterStatus | None = None

    def look(self, progress: Progress) -> Observation:
        """Return all that is seen now; what can't be asked is among the complaints."""
        unread: list[Complaint] = []
        try:
            self._listed = frozenset(self._admin.brokers(self._name))
        except PulsarAdminError as error:
            fix = "check --admin-url and the cluster's name"
            why = f"Pulsar can't be asked: {error}"
            unread.append(Complaint("pulsar", why, fix, _UNREAD_MS))
        tables: dict[str, Any] = {}
        try:
            tables = self._read_tables(progress)
        except CommandError as error:
            why = f"{error.what}: {error.why}"
            unread.append(Complaint("tables", why, error.next_step, _UNREAD_MS))
        is_drained = progress.stage is RestartStage.DRAINING and (
            tables.get("drains", {}).get(progress.broker) == 0
        )
        listed = self._listed or frozenset(progress.brokers)
        self._read_latency(listed if progress.stage in _MOVING else ())
        return Observation(
            now_ms=wall_ms(),
            listed=listed,
            incarnation=self.incarnation(progress.broker),
            held=self._read_held(progress.broker, is_drained=is_drained),
            publish_ms=self._latency[0],
            load_ms=self._latency[1],
            **{**tables, "complaints": (*unread, *tables.get("complaints", ()))},
        )

    def incarnation(self, broker: str) -> str:
        """Return the start of the process that answers for a broker; "" when none does."""
        try:
            found = self._admin.load_report(self._name, broker)
        except UnverifiedBrokerError:
            return ""
        except PulsarAdminError as error:
            if not error.status:
                self._admin.forget_address(broker)
                return ""
        else:
            if found.load.envelope.incarnation:
                return found.load.envelope.incarnation
        with suppress(PulsarAdminError):  # an extensible manager has no load report
            self._admin.verify(self._name, broker)
            page = parse_metrics(self._admin.metrics(self._name, broker))
            return "" if isinstance(page, Unreadable) else str(page.started_ms)
        return ""

    def _read_tables(self, progress: Progress) -> dict[str, Any]:
        now_ms = wall_ms()
        reader = self._where.reader()
        rows = read_status_rows(reader, now_ms)
        records = reader.rows("bundle_ownership", RECORD)
        self.status = status = make_status(progress.cluster, rows, self._config, now_ms)
        return {
            **read_records(records, now_ms),
            "drains": {one.broker: 0 if one.is_done else one.left or 1 for one in status.drains},
            "complaints": tuple(status_complaints(status)),
            "plans": open_plans(rows.policies, f"rolling-{progress.run}-"),
            "others_usage": usage_without(progress.broker, status),
        }

    def _read_held(self, broker: str, *, is_drained: bool) -> frozenset[str] | None:
        """The bundles with topics that a drained broker says it owns."""
        is_due = is_drained and self._is_due("held", _HELD_S)
        if is_due or not is_drained:
            self._held = None
        if is_due:
            with suppress(PulsarAdminError):
                owned = self._admin.owned(self._name, broker)
                table = parse_topics(self._admin.topics(self._name, broker))
                if not isinstance(table, Unreadable):
                    self._held = owned.intersection(table.bundles)
        return self._held

    def _read_latency(self, brokers: Iterable[str]) -> None:
        """The clients' recent publish and load latency over all brokers that tell it."""
        if not brokers:
            self._latency = (None, None)
        elif self._is_due("latency", _LATENCY_S):
            pages: dict[str, LatencySums] = {}
            for broker in sorted(brokers):
                with suppress(PulsarAdminError):
                    pages[broker] = parse_client_latency(self._admin.metrics(self._name, broker))
            both = [(self._pages[one], page) for one, page in pages.items() if one in self._pages]
            published = worst_ms(publish_ms(before, now) for before, now in both)
            self._latency = (published, worst_ms(load_ms(one) for one in pages.values()))
            self._pages = pages

    def _is_due(self, what: str, every_s: float) -> bool:
        now_s = time.monotonic()
        if now_s < self._due_s.get(what, 0.0):
            return False
        self._due_s[what] = now_s + every_s
        return True

    def drain(self, progress: Progress) -> str:
        """Drain the broker in hand; return why it was refused."""
        drain = DrainBroker(broker=progress.broker, max_in_flight=progress.at_once)
        return self._send(f"{progress.plan}-drain", drain, _DRAIN_MS)

    def reopen(self, progress: Progress) -> str:
        """Cancel the drain of the broker in hand."""
        return self._send(f"{progress.plan}-open", CancelDrain(broker=progress.broker))

    def fill(self, progress: Progress, bundles: Iterable[str]) -> str:
        """Propose moves to the broker in hand as the plan of this turn, and approve them."""
        moves = dict.fromkeys(bundles, progress.broker)
        why = f"rolling restart: back to {progress.broker}"
        proposed = ProposePlan(moves=moves, why=why, plan=progress.plan)
        return self._send(f"{progress.plan}-fill", proposed) or self.approve(
            progress, progress.plan
        )

    def approve(self, progress: Progress, plan: str) -> str:
        """Approve a plan of ours."""
        return self._send(f"{plan}-approve-{progress.turn}", ApprovePlan(plan=plan))

    def drop(self, plan: str) -> str:
        """Let the rest of a plan of ours be."""
        why = "the rolling restart does not go on with it"
        return self._send(f"{plan}-drop", RejectPlan(plan=plan, reason=why))

    def _send(self, name: str, arguments: CommandArguments, timeout_ms: int = _TIMEOUT_MS) -> str:
        """Send a command once and wait for the balancer's first word; why it was refused."""
        if name not in self._answered:
            command = new_command(
                self._where.cluster, arguments, command_id=name, timeout_ms=timeout_ms
            )
            ticket = self._client.send(command)
            try:
                found = ticket.first.result(timeout=_ANSWER_S)
            except NotYetError:
                return ""  # asked for again: it has its id
            finally:
                self._client.forget(ticket)
            is_taken = found.status not in (REFUSED, FAILED)
            self._answered[name] = "" if is_taken else found.reason or found.status
        return self._answered[name]

    def restart(self, progress: Progress) -> int:
        """Begin the command for the broker in hand; return the id of its shell."""
        line = command_line(progress.command, progress.broker)
        note(f"{progress.broker}: {line}")
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(  # noqa: S603 (the person's own command)
                ["/bin/sh", "-c", line],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "BALLAST_BROKER": progress.broker},
                start_new_session=True,
            )
        return self._child.pid

    def command_end(self, progress: Progress) -> tuple[int | None, str] | None:
        """Return the end of the command in hand, also of one that outlived who began it."""
        if self._child is None:
            return (None, "") if is_running(progress.pid) else None
        code = self._child.poll()
        if code is None:
            return None, ""
        self._child = None
        return code, last_lines(self._log, count=2)


def command_line(command: str, broker: str) -> str:
    """Return the shell's line for a broker.

    {broker} is host:port, {host} the host, both quoted.
    """
    host = broker.rpartition(":")[0] or broker
    return command.replace("{broker}", shlex.quote(broker)).replace("{host}", shlex.quote(host))


def is_running(pid: int) -> bool:
    """Return True if the shell of that id still runs in its own session."""
    try:
        if pid <= 0 or os.getsid(pid) != pid:
            return False
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except OSError:  # no Linux
        return True


def read_records(rows: Iterable[Row], now_ms: int) -> dict[str, Any]:
    """Return the observation's bundles."""
    rows = list(rows)
    moving = {row["bundle"]: row["at_ms"] for row in rows if row["state"] in _IN_FLIGHT}
    return {
        "owners": {row["bundle"]: row["destination"] for row in rows if row["state"] == "Owned"},
        "moving": frozenset(moving),
        "oldest_move_ms": max((now_ms - at_ms for at_ms in moving.values()), default=0),
    }


def open_plans(policies: Iterable[Row], prefix: str) -> dict[str, bool]:
    """Return the plans named so that may still move something, True where one waits."""
    found = {
        str(one["name"]): from_plain(PlanProposal, json.loads(one["value"])).station
        for one in policies
        if one["kind"] == PROPOSAL and one["is_set"] and str(one["name"]).startswith(prefix)
    }
    return {name: how.value == "waits" for name, how in sorted(found.items()) if how.is_open}


def usage_without(broker: str, status: ClusterStatus) -> float | None:
    """Return the mean usage of the others if they had its load.

    None where one doesn't report.
    """
    usages = {row.broker: row.usage for row in status.broker_rows if row.state != "silent"}
    known: Sequence[float] = [one for one in usages.values() if one is not None]
    if broker not in usages or len(known) < len(usages) or len(known) < 2:  # noqa: PLR2004 (others)
        return None
    return sum(known) / (len(known) - 1)


def rates_of(status: ClusterStatus | None) -> Mapping[str, float]:
    """Broker → messages a second, of those that tell."""
    rows = status.broker_rows if status else ()
    return {row.broker: row.msg_rate for row in rows if row.msg_rate is not None}


def status_complaints(status: ClusterStatus) -> Iterator[Complaint]:
    """Yield what in a status speaks against a restart.

    Job, bridge, findings, pauses and brake are judged.
    """
    is_away = status.job.word in (JobWord.AWAY, JobWord.NEVER_STARTED)
    if is_away or status.job.is_stalled:
        why = next(iter(job_alarms(status.job)), status.job.why())
        yield Complaint("job", why, "start the job", _JOB_MS)
    if status.mirror is not None and not is_away:
        heard_ms = status.mirror.heard_ago_ms
        silent_ms = heard_ms - max(0, status.job.wrote_ago_ms)
        if heard_ms == NEVER_MS or silent_ms > _BRIDGE_SILENT_MS:
            yield Complaint("bridge", "the bridge tells nothing", "start it with --act")
        elif status.mirror.observe_only:
            why = "the bridge only observes: nothing is carried out"
            fix = "its log says why (`observing`); start it with --act"
            yield Complaint("observes", why, fix, _OBSERVES_MS)
        for one in status.mirror.findings:
            if one["trouble"] not in _NO_FAULT:
                why = f"the guardian has found that {finding_message(one)}"
                patience_ms = 0 if one["trouble"] == Trouble.POISON.value else _FOUND_MS
                name = f"{one['trouble']} {one['subject']}"
                yield Complaint(name, why, "see docs/runbook.md", patience_ms)
    for name, value in sorted(status.pauses.items()):
        who = f"{name or 'the whole cluster'} is paused by {value.get('by') or 'somebody'}"
        yield Complaint(f"pause {name}", who, "`ballast resume`")
    if status.brake is not None:
        why = "the brake is on: many brokers had vanished at once"
        yield Complaint("brake", why, "`ballast resume --release-brake`")
