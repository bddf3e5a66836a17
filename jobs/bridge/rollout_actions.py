"""Deeds and looks of a rolling restart: commands to the balancer and the shell, and what is seen.

What is to be done is `lbcore.bridge.rolling`'s. A command to the balancer has the id of its turn,
so that it is carried out once however often it is sent. What a modular manager owns is asked only
of a broker that is drained and only now and then, for the question itself may stop a broker
(docs/pulsar.md).
"""

import os
import shlex
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import TimeoutError as NotYetError
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from jobs.adapters.kafka.command_client import CommandClient, new_command
from jobs.adapters.processes.clocks import wall_ms
from jobs.adapters.processes.processes import last_lines
from jobs.bridge.admin_address import PulsarAdminError, UnverifiedBrokerError
from jobs.bridge.pulsar_admin import PulsarAdmin
from jobs.console import CommandError
from jobs.operating.connection_options import ConnectionOptions
from jobs.operating.status_rows import RECORD, read_status_rows
from lbcore.balancer.state.book import FAILED, REFUSED
from lbcore.bridge.answers import Unreadable, parse_metrics, parse_topics
from lbcore.bridge.client_latency import (
    LatencySums,
    load_ms,
    parse_client_latency,
    publish_ms,
    worst_ms,
)
from lbcore.bridge.rollout import (
    GO_ON,
    Announce,
    ApproveIt,
    CommandResult,
    Complaint,
    Deed,
    DrainIt,
    DropIt,
    FillIt,
    GiveUp,
    ReopenIt,
    RestartIt,
    RestartStage,
    Rollout,
    RolloutObservation,
)
from lbcore.config.tree import Config
from lbcore.explain.rollout_observation import (
    from_records,
    from_status,
    open_plans,
    settings_of,
    usage_without,
)
from lbcore.explain.status import ClusterStatus, make_status
from lbcore.model.tables import SETTINGS_IN_FORCE
from lbcore.wire.kinds.balancing_commands import ApprovePlan, ProposePlan, RejectPlan
from lbcore.wire.kinds.broker_commands import CancelDrain, DrainBroker
from lbcore.wire.kinds.command_about import CommandArguments

_ANSWER_S = 60.0
_TIMEOUT_MS = 60_000
_DRAIN_MS = 3_600_000


class RolloutActions:
    """For one rolling restart; used by one thread."""

    def __init__(self, client: CommandClient, cluster: str, log: Path) -> None:
        """log: where the commands of the shell write to."""
        self._client, self._cluster, self._log = client, cluster, log
        self._child: subprocess.Popen[bytes] | None = None
        self._answered: dict[str, str] = {}

    def refused(self, rollout: Rollout) -> str:
        """Return why a command of this turn was refused, "" when none was.

        "" also when none was sent.
        """
        prefix = rollout.command_id("")
        found = (why for one, why in self._answered.items() if one.startswith(prefix))
        return next(filter(None, found), "")

    def command(self, rollout: Rollout) -> CommandResult | None:
        """The shell's command for the broker in hand, also one that outlived who began it."""
        if self._child is None:
            return CommandResult(code=None) if is_running(rollout.pid) else None
        code = self._child.poll()
        return CommandResult(code=code, said="" if code is None else last_lines(self._log, count=2))

    def forget_command(self) -> None:
        """The next broker has a command of its own."""
        self._child = None

    def do(self, rollout: Rollout, rollout_action: Deed, tell: Callable[[str], None]) -> int:
        """Carry one out; the id of the shell that it has begun, 0 without.

        Raises CommandError when Kafka does not take a command.
        """
        if isinstance(rollout_action, Announce):
            tell(rollout_action.text)
        elif isinstance(rollout_action, RestartIt):
            return self._restart(rollout, tell)
        elif not isinstance(rollout_action, GiveUp):
            self._ask(rollout, rollout_action)
        return 0

    def _ask(self, rollout: Rollout, rollout_action: Deed) -> None:
        if isinstance(rollout_action, DrainIt):
            drain = DrainBroker(broker=rollout.broker, max_in_flight=rollout_action.at_once)
            self._send(rollout.command_id("drain"), drain, _DRAIN_MS)
        elif isinstance(rollout_action, ReopenIt):
            self._send(rollout.command_id("open"), CancelDrain(broker=rollout.broker))
        elif isinstance(rollout_action, FillIt):
            why = f"rolling restart: back to {rollout.broker}"
            proposed = ProposePlan(moves=rollout_action.moves, why=why, plan=rollout.plan)
            if self._send(rollout.command_id("fill"), proposed):
                self._send(rollout.command_id("approve"), ApprovePlan(plan=rollout.plan))
        elif isinstance(rollout_action, ApproveIt):
            self._send(
                f"{rollout_action.plan}-approve-{rollout.turn}",
                ApprovePlan(plan=rollout_action.plan),
            )
        elif isinstance(rollout_action, DropIt):
            why = "the rolling restart does not go on with it"
            self._send(
                f"{rollout_action.plan}-drop", RejectPlan(plan=rollout_action.plan, reason=why)
            )

    def _send(
        self, command_id: str, arguments: CommandArguments, timeout_ms: int = _TIMEOUT_MS
    ) -> bool:
        """Send it once and wait for the balancer's first word; whether it was taken."""
        if command_id in self._answered:
            return not self._answered[command_id]
        command = new_command(
            self._cluster, arguments, command_id=command_id, timeout_ms=timeout_ms
        )
        ticket = self._client.send(command)
        try:
            found = ticket.first.result(timeout=_ANSWER_S)
        except NotYetError:
            return False  # asked for again: it has its id
        finally:
            self._client.forget(ticket)
        is_taken = found.status not in (REFUSED, FAILED)
        self._answered[command_id] = "" if is_taken else found.reason or found.status
        return is_taken

    def _restart(self, rollout: Rollout, tell: Callable[[str], None]) -> int:
        broker = rollout.broker
        if not rollout.command:
            tell(f"restart {broker} now; this goes on when it is back")
            return 0
        line = command_line(rollout.command, broker)
        tell(f"{broker}: {line}")
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(  # noqa: S603 (the person's own command)
                ["/bin/sh", "-c", line],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "BALLAST_BROKER": broker},
                start_new_session=True,
            )
        return self._child.pid


def command_line(command: str, broker: str) -> str:
    """The shell's line for a broker: {broker} is host:port, {host} the host, both quoted."""
    host = broker.rpartition(":")[0] or broker
    return command.replace("{broker}", shlex.quote(broker)).replace("{host}", shlex.quote(host))


def is_running(pid: int) -> bool:
    """Return True if the shell of that id still runs.

    It must have a session of its own, as we began it.
    """
    try:
        if pid <= 0 or os.getsid(pid) != pid:
            return False
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except OSError:  # no Linux
        return True
    return state != "Z"


_HELD_S, _FELT_S, _SETTINGS_S = 5.0, 10.0, 10.0
_PATIENCE_MS = 30_000
_LATENCY_AT = (
    RestartStage.WAITING,
    RestartStage.DRAINING,
    RestartStage.EASING,
    RestartStage.FILLING,
)


class RolloutProbe:
    """Called by one thread."""

    def __init__(
        self, where: ConnectionOptions, config: Config, admin: PulsarAdmin, name: str
    ) -> None:
        """config: as the job decides; name: of the cluster in Pulsar."""
        self._where, self._config = where, config
        self._admin, self._name = admin, name
        self._due_s: dict[str, float] = {}
        self._settings: dict[str, str] = {}
        self._pages: dict[str, LatencySums] = {}
        self._felt: tuple[float | None, float | None] = (None, None)
        self._held: tuple[str, tuple[str, ...] | None] = ("", None)
        self._last_listed: frozenset[str] = frozenset()
        self.status: ClusterStatus | None = None

    def look(self, rollout: Rollout) -> RolloutObservation:
        """All of it now; what can't be asked is among the complaints."""
        complaints: list[Complaint] = []
        listed = self._listed(complaints) or frozenset(rollout.brokers)
        told = self._state_of(rollout, complaints)
        felt, loads = self._current_latency(rollout, listed)
        found = RolloutObservation(
            now_ms=wall_ms(),
            listed=listed,
            incarnation=self.incarnation(rollout.broker),
            held=self._held_by(rollout),
            loaded=self._loaded_before(rollout),
            publish_latency_ms=felt,
            load_ms=loads,
            **told,
        )
        return replace(found, complaints=(*complaints, *found.complaints))

    def incarnation(self, broker: str) -> str:
        """The start of the process that answers for a broker; "" when none does."""
        try:
            found = self._admin.load_report(self._name, broker)
        except PulsarAdminError as error:
            if isinstance(error, UnverifiedBrokerError):
                return ""
            if not error.status:
                self._admin.forget_address(broker)
                return ""
            return self._started(broker)
        return found.load.envelope.incarnation or self._started(broker)

    def _started(self, broker: str) -> str:
        """The same of an extensible manager, which has no load report."""
        try:
            self._admin.verify(self._name, broker)
            page = parse_metrics(self._admin.metrics(self._name, broker))
        except PulsarAdminError:
            return ""
        return "" if isinstance(page, Unreadable) else str(page.started_ms)

    def _listed(self, complaints: list[Complaint]) -> frozenset[str]:
        try:
            self._last_listed = frozenset(self._admin.brokers(self._name))
        except PulsarAdminError as error:
            what = f"Pulsar can't be asked: {error}"
            complaints.append(_unread("pulsar", what, "check --admin-url and the cluster's name"))
        return self._last_listed

    def _state_of(self, rollout: Rollout, complaints: list[Complaint]) -> dict[str, Any]:
        now_ms = wall_ms()
        try:
            reader = self._where.reader()
            rows = read_status_rows(reader, now_ms)
            records = reader.rows("bundle_ownership", RECORD)
            if self._is_due("settings", _SETTINGS_S):
                self._settings = settings_of(reader.rows(SETTINGS_IN_FORCE.name))
        except CommandError as error:
            what = f"{error.what}: {error.why}"
            complaints.append(_unread("tables", what, error.next_step))
            return {"owners": {}}
        self.status = make_status(rollout.cluster, rows, self._config, now_ms)
        return {
            **from_status(self.status),
            **from_records(records, rollout.began_ms, now_ms),
            "plans": open_plans(rows.policies, rollout.plan_prefix),
            "settings": self._settings,
            "others_usage": usage_without(rollout.broker, self.status),
        }

    def _held_by(self, rollout: Rollout) -> tuple[str, ...] | None:
        """The bundles with topics that the drained broker says it owns."""
        if rollout.stage is not RestartStage.EMPTIED:
            self._held = ("", None)
            return None
        if self._is_due("held", _HELD_S):
            with suppress(PulsarAdminError):
                owned = self._admin.owned(self._name, rollout.broker)
                self._held = (rollout.broker, tuple(sorted(owned & self._loaded(rollout.broker))))
        return self._held[1]

    def _loaded_before(self, rollout: Rollout) -> frozenset[str] | None:
        if rollout.stage is not RestartStage.WAITING:
            return None
        with suppress(PulsarAdminError):
            return self._loaded(rollout.broker)
        return None

    def _loaded(self, broker: str) -> frozenset[str]:
        """The bundles with topics there; raises PulsarAdminError."""
        table = parse_topics(self._admin.topics(self._name, broker))
        if isinstance(table, Unreadable):
            raise PulsarAdminError(table.detail)
        return frozenset(table.bundles)

    def _current_latency(
        self, rollout: Rollout, listed: frozenset[str]
    ) -> tuple[float | None, float | None]:
        """Return the clients' recent publish and load latency.

        Over all brokers that tell them.
        """
        if rollout.stage not in _LATENCY_AT:
            self._felt = (None, None)
        elif self._is_due("felt", _FELT_S):
            pages: dict[str, LatencySums] = {}
            for broker in sorted(listed):
                with suppress(PulsarAdminError):
                    pages[broker] = parse_client_latency(self._admin.metrics(self._name, broker))
            both = [(self._pages[one], page) for one, page in pages.items() if one in self._pages]
            published = worst_ms(publish_ms(before, now) for before, now in both)
            self._felt = (published, worst_ms(load_ms(one) for one in pages.values()))
            self._pages = pages
        return self._felt

    def reports_latency(self) -> bool:
        """Return True if some broker tells the clients' latency, as far as asked."""
        return not self._pages or any(one.published for one in self._pages.values())

    def _is_due(self, what: str, every_s: float) -> bool:
        now_s = time.monotonic()
        if now_s < self._due_s.get(what, 0.0):
            return False
        self._due_s[what] = now_s + every_s
        return True


def _unread(key: str, why: str, next_step: str) -> Complaint:
    """Return a complaint about a failed request, which may recover by itself."""
    next_step = f"{next_step}, {GO_ON}"
    return Complaint(key=key, why=why, next_step=next_step, patience_ms=_PATIENCE_MS)
