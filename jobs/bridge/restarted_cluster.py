"""The cluster that is restarted: observations, commands to balancer and shell.

A broker with the modular manager is asked what it owns only when drained, and only now and then:
the request itself may stop a broker (docs/pulsar.md).
"""

import argparse
import json
import os
import shlex
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import TimeoutError as NotYetError
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs.adapters.kafka.command_client import CommandClient, new_command
from jobs.adapters.processes.clocks import wall_ms
from jobs.adapters.processes.processes import last_lines
from jobs.bridge.admin_address import PulsarAdminError
from jobs.bridge.pulsar_admin import PulsarAdmin, ask_concurrently
from jobs.bridge.rolling_progress import Progress, RestartStage
from jobs.console import CommandError, note
from jobs.operating.connection_options import ConnectionOptions
from jobs.operating.status import read_status_rows
from lbcore.balancer.book import FAILED, REFUSED, TIMED_OUT
from lbcore.balancer.rules import PROPOSAL, PlanProposal
from lbcore.bridge.guardian import ADVISORY, Trouble
from lbcore.bridge.reports import LatencySums, load_ms, parse_client_latency, publish_ms, worst_ms
from lbcore.explain.explanation import Row
from lbcore.explain.job_state import JobStatus, job_alarms
from lbcore.explain.mirrored import NEVER_MS, finding_message
from lbcore.explain.status import ClusterStatus, make_status
from lbcore.ownership.states import IN_FLIGHT
from lbcore.packing import from_plain
from lbcore.wire.arguments import VERB_TIMEOUT_MS, CommandArguments

_ANSWER_S = 60.0
_OWNED_S, _LATENCY_S = 5.0, 10.0
"""Intervals of two costly requests to brokers."""
_UNREAD_MS, _OBSERVES_MS, _FOUND_MS, _JOB_MS = 30_000, 120_000, 30_000, 60_000
_OTHERS_MS = 5_000
"""Times for which a complaint may last before it stops the restart."""
ALLOW_MORE = "see what hurts them, or allow more with --publish-latency-ms"
_BRIDGE_SILENT_MS = 120_000
"""Two intervals of the bridge's sign of life."""
_IN_FLIGHT = frozenset(state.value for state in IN_FLIGHT)
_NO_FAULT = [one.value for one in ADVISORY]


@dataclass(frozen=True, slots=True)
class Complaint:
    """Problem of a rolling restart.

    key: names the problem while it lasts. patience_ms: for how long it may last.
    """

    key: str
    why: str
    next_step: str
    patience_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The cluster at one moment; None = not known.

    owners: bundle → broker, of bundles at rest. drains: broker → bundles left, 0 = done. plans: our
    open ones, True = waits for approval. incarnation: of the current broker, "" = it does not
    answer. still_owned: bundles with topics that it says it owns once drained. others_usage: usage
    of the others without it. publish_ms, load_ms: time to publish and to load a topic, the worst.
    """

    now_ms: int
    listed: frozenset[str]
    owners: Mapping[str, str] = field(default_factory=dict)
    moving: frozenset[str] = frozenset()
    drains: Mapping[str, int] = field(default_factory=dict)
    plans: Mapping[str, bool] = field(default_factory=dict)
    incarnation: str = ""
    still_owned: frozenset[str] | None = None
    complaints: tuple[Complaint, ...] = ()
    others_usage: float | None = None
    publish_ms: float | None = None
    load_ms: float | None = None
    status: ClusterStatus | None = None


class PulsarCluster:
    """A cluster behind a bridge that acts; used by one thread.

    kafka_error: why Kafka did not take the command of the last `send`; "" = it did.
    """

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
        self.kafka_error = ""
        self._expired: Counter[str] = Counter()
        self._due_s: dict[str, float] = {}
        self._pages: dict[str, LatencySums] = {}
        self._readings: dict[str, Any] = {}
        self._listed: frozenset[str] = frozenset()

    def observe(self, p: Progress) -> Observation:
        """Return the present observation; failed requests are among its complaints."""
        wrong: list[Complaint] = []
        found: dict[str, Any] = {"drains": {}}
        try:
            self._listed = frozenset(self._admin.brokers(self._name))
        except PulsarAdminError as error:
            fix = "check --admin-url and the cluster's name"
            wrong.append(Complaint("pulsar", f"Pulsar can't be asked: {error}", fix, _UNREAD_MS))
        try:
            found = self._read_tables(p)
            wrong += status_complaints(found["status"])
        except CommandError as error:
            why = f"{error.what}: {error.why}"
            wrong.append(Complaint("tables", why, error.next_step, _UNREAD_MS))
        listed = self._listed or frozenset(p.brokers)
        if p.stage is not RestartStage.DRAINING or found["drains"].get(p.broker) != 0:
            self._readings.pop("still_owned", None)
        elif self._is_due("still_owned", _OWNED_S):
            self._readings["still_owned"] = None
            with suppress(PulsarAdminError):
                owned = self._admin.owned(self._name, p.broker)
                loaded = self._admin.topic_table(self._name, p.broker).bundles
                self._readings["still_owned"] = owned.intersection(loaded)
        if p.stage in (RestartStage.RESTARTING, RestartStage.RETURNING):
            self._readings |= {"publish_ms": None, "load_ms": None}
        elif self._is_due("latency", _LATENCY_S):
            self._read_latency(listed)
        return Observation(
            now_ms=wall_ms(),
            listed=listed,
            incarnation=self.incarnation(p.broker),
            complaints=tuple(wrong),
            **found,
            **self._readings,
        )

    def incarnation(self, broker: str) -> str:
        """Return the incarnation of a broker's process; "" when none answers."""
        try:
            found = self._admin.load_report(self._name, broker).load.envelope.incarnation
        except PulsarAdminError as error:
            found = ""
            if not error.status:  # no answer, or another broker's
                self._admin.forget_address(broker)
            if not error.is_unsupported:  # a modular manager's page has another number
                return ""
        with suppress(PulsarAdminError):  # an extensible manager has no load report
            if not found:
                self._admin.verify(self._name, broker)
                found = str(self._admin.gauges(self._name, broker).started_ms)
        return found

    def _read_tables(self, p: Progress) -> dict[str, Any]:
        now_ms, reader = wall_ms(), self._where.reader()
        rows = read_status_rows(reader, now_ms)
        records = reader.rows("bundle_ownership", ("bundle", "state", "destination"))
        status = make_status(p.cluster, rows, self._config, now_ms)
        return {
            "status": status,
            "owners": {
                row["bundle"]: row["destination"] for row in records if row["state"] == "Owned"
            },
            "moving": frozenset(row["bundle"] for row in records if row["state"] in _IN_FLIGHT),
            "drains": {one.broker: 0 if one.is_done else one.left or 1 for one in status.drains},
            "plans": open_plans(rows.policies, f"rolling-{p.run}-"),
            "others_usage": usage_without(p.broker, status),
        }

    def _read_latency(self, brokers: Iterable[str]) -> None:
        """Read the recent publish and topic load latency over all brokers that have it."""
        pages, _ = ask_concurrently(
            sorted(brokers), lambda one: parse_client_latency(self._admin.metrics(self._name, one))
        )
        known = [one for one in pages if one in self._pages]
        published = worst_ms(publish_ms(self._pages[one], pages[one]) for one in known)
        loaded = worst_ms(load_ms(one) for one in pages.values())
        self._readings |= {"publish_ms": published, "load_ms": loaded}
        self._pages = pages

    def _is_due(self, what: str, every_s: float) -> bool:
        is_due = time.monotonic() >= self._due_s.get(what, 0.0)
        if is_due:
            self._due_s[what] = time.monotonic() + every_s
        return is_due

    def send(self, name: str, arguments: CommandArguments) -> str | None:
        """Send a command once, by its id; return why the balancer refused it.

        "" = accepted. None = not answered yet: call again with the same arguments.
        """
        self.kafka_error = ""
        if name not in self._answered:
            verb = arguments.spec.verb
            expired = self._expired[name]
            command = new_command(
                self._where.cluster,
                arguments,
                command_id=f"{name}-{expired}" if expired else name,
                timeout_ms=verb.timeout_ms if verb else VERB_TIMEOUT_MS,
            )
            try:
                ticket = self._client.send(command)
            except CommandError as error:  # Kafka is away: sent again, under its id
                self.kafka_error = f"{error.what}: {error.why}"
                return None
            try:
                found = ticket.first.result(timeout=_ANSWER_S)
            except NotYetError:
                return None  # sent again under its id
            finally:
                self._client.forget(ticket)
            if found.status == TIMED_OUT:  # read too late, not begun: it needs another id
                self._expired[name] += 1
                return None
            is_taken = found.status not in (REFUSED, FAILED)
            self._answered[name] = "" if is_taken else found.reason or found.status
        return self._answered[name]

    def restart(self, p: Progress) -> None:
        """Start the command for the current broker."""
        line = command_line(p.command, p.broker)
        note(f"{p.broker}: {line}")
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(  # noqa: S603 (the person's own command)
                ["/bin/sh", "-c", line],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "BALLAST_BROKER": p.broker},
                start_new_session=True,
            )

    def command_end(self) -> tuple[int, str] | None:
        """Return exit code and last output of the command; None while it runs."""
        code = self._child.poll() if self._child is not None else None
        return None if code is None else (code, last_lines(self._log, count=2))


def command_line(command: str, broker: str) -> str:
    """Return the shell's line: {broker} is host:port, {host} the host, both quoted."""
    host = broker.rpartition(":")[0] or broker
    return command.replace("{broker}", shlex.quote(broker)).replace("{host}", shlex.quote(host))


def open_plans(policies: Iterable[Row], prefix: str) -> dict[str, bool]:
    """Return open plans whose names begin with `prefix`; True = waits for approval."""
    found = {
        str(one["name"]): from_plain(PlanProposal, json.loads(one["value"])).station
        for one in policies
        if one["kind"] == PROPOSAL and one["is_set"] and str(one["name"]).startswith(prefix)
    }
    return {name: how.value == "waits" for name, how in sorted(found.items()) if how.is_open}


def usage_without(broker: str, status: ClusterStatus) -> float | None:
    """Return the mean usage of the others if they had its load; None = not known."""
    usages = {row.broker: row.usage for row in status.broker_rows if row.state != "silent"}
    known = [one for one in usages.values() if one is not None]
    others = len(known) - 1
    return sum(known) / others if broker in usages and others == len(usages) - 1 > 0 else None


def complaints(p: Progress, seen: Observation, bounds: argparse.Namespace) -> Iterator[Complaint]:
    """Yield all present problems of a restart, in a fixed order. bounds: its options."""
    is_away = p.stage in (RestartStage.RESTARTING, RestartStage.RETURNING)
    for broker in p.brokers:
        if broker not in seen.listed and not (is_away and broker == p.broker):
            more = ", and it was not being restarted" if broker == p.broker else ""
            yield Complaint(
                f"gone {broker}",
                f"{broker} is gone from Pulsar's list of active brokers{more}",
                "see why it ended and start it",
                _OTHERS_MS,
            )
    for broker in sorted(seen.drains.keys() - {p.broker}):
        yield Complaint(
            f"drain {broker}",
            f"{broker} is being drained, too, or was and is still closed",
            f"`ballast broker cancel-drain {broker}` opens it",
            _OTHERS_MS,
        )
    if p.stage is RestartStage.WAITING:
        publish_ms, usage = seen.publish_ms or 0.0, seen.others_usage or 0.0
        if not seen.incarnation:
            yield Complaint("silent", f"{p.broker} does not answer", "see its log")
        if publish_ms > bounds.publish_latency_ms:
            yield Complaint(
                "latency",
                f"clients wait {publish_ms:.0f} ms though nothing is moved yet",
                ALLOW_MORE,
            )
        if usage > bounds.room:
            yield Complaint(
                "room",
                f"without {p.broker} the others would be at {usage:.0%}, more than"
                f" {bounds.room:.0%}",
                "wait for a quieter hour, add a broker, or allow more with --room",
            )
    yield from (
        one for one in seen.complaints if not (is_away and one.key.endswith(f" {p.broker}"))
    )


def status_complaints(status: ClusterStatus) -> Iterator[Complaint]:
    """Yield what in a status forbids a restart."""
    job, mirror = status.job, status.mirror
    is_away = job.word in (JobStatus.AWAY, JobStatus.NEVER_STARTED)
    if is_away or job.is_stalled:
        yield Complaint("job", next(iter(job_alarms(job)), job.why()), "start the job", _JOB_MS)
    if mirror is not None and not is_away:
        silent_ms = mirror.heard_ago_ms - max(0, job.wrote_ago_ms)
        if mirror.heard_ago_ms == NEVER_MS or silent_ms > _BRIDGE_SILENT_MS:
            yield Complaint("bridge", "the bridge tells nothing", "start it with --act")
        elif mirror.observe_only:
            yield Complaint(
                "observes",
                "the bridge only observes: nothing is carried out",
                "its log says why (`observing`); start it with --act",
                _OBSERVES_MS,
            )
        for one in mirror.findings:
            if one["trouble"] not in _NO_FAULT:
                yield Complaint(
                    f"{one['trouble']} {one['subject']}",
                    f"the guardian has found that {finding_message(one)}",
                    "see docs/runbook.md",
                    0 if one["trouble"] == Trouble.POISON.value else _FOUND_MS,
                )
    for name, value in sorted(status.pauses.items()):
        who = f"{name or 'the whole cluster'} is paused by {value.get('by') or 'somebody'}"
        yield Complaint(f"pause {name}", who, "`ballast resume`")
    if status.brake is not None:
        yield Complaint(
            "brake",
            "the brake is on: many brokers had vanished at once",
            "`ballast resume --release-brake`",
        )
