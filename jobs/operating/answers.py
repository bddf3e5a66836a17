"""Source of answers for the verbs: the tables and Kafka, or a lookup service.

A verb asks its source (`answers_of`) and does not know which one it has. Both give the same
records, from which the verb makes its text and its JSON. The service reads by the functions here.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jobs.adapters.delta.rows import literal
from jobs.adapters.delta.table_reader import AsOf, TableReader
from jobs.adapters.delta.table_scan import rows_in
from jobs.adapters.kafka.command_client import CommandClient, CommandOutcome, NoOutcome
from jobs.adapters.processes.clocks import wall_ms
from jobs.adapters.processes.settings import with_custom_strategies
from jobs.console import CommandError, MisuseError, note
from jobs.lookup_client import LookupClient, LookupResult
from jobs.operating.connection_options import (
    FROM_FILES,
    ConnectionOptions,
    check_known,
    names_in,
    started_with,
)
from jobs.operating.explaining import ExplainQuestion, changed_settings, explain
from jobs.operating.plans import (
    Outlook,
    RehearsedCommand,
    look_ahead,
    proposals_in,
    rehearse_command,
    undo_moves,
)
from jobs.operating.status import read_status_rows
from jobs.sql.engine import SqlEngine, plain_rows
from lbcore.balancer.rules import PlanProposal
from lbcore.config.tree import Config
from lbcore.explain.explanation import Explanation, Row
from lbcore.explain.status import ClusterStatus, make_status
from lbcore.foresight.forecast import WhatIf
from lbcore.model.names import InvalidNameError
from lbcore.ownership.changes import OwnershipDifference, find_differences
from lbcore.wire.messages import Command

BUNDLE_ORDERS = {
    "topics": "b.topics",
    "sessions": "b.sessions",
    "rate": "b.msg_rate",
    "bandwidth": "b.msg_throughput_in + b.msg_throughput_out",
}
BUNDLES_MAX = 100_000
RECORD = ("bundle", "version_id", "state", "source", "destination", "cause", "at_ms")
"""What is said of a bundle's record."""

_NOTE_EVERY_S = 10.0

Progress = Callable[[float, bool], None]
"""Called while a command goes on: seconds waited, and True if the balancer has accepted it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipMoment:
    """A moment that ownership is asked about.

    version: of ownership_events, -1 when its log has none so old any more. known_from_ms: from when
    on events tell.
    """

    version: int
    at_ms: int
    known_from_ms: int

    @property
    def is_known(self) -> bool:
        """True if events reach back to it."""
        return self.at_ms >= self.known_from_ms


class Answers:
    """Answers about one cluster from its tables; commands go through Kafka.

    `service_answers.ServiceAnswers` has the same methods. All raise CommandError. A moment is text:
    "" for now, "v120" for a version of ownership_events, or ms since 1970.
    """

    def __init__(self, where: ConnectionOptions) -> None:
        self._where = where

    @property
    def cluster(self) -> str:
        """Name of the cluster."""
        return self._where.cluster

    @property
    def _reader(self) -> TableReader:
        return self._where.reader()

    @cached_property
    def _started(self) -> Config:
        return self._where.started()

    def status(self) -> ClusterStatus:
        """Status of the cluster; Kafka is asked, too, where its address is known."""
        now_ms = wall_ms()
        rows = read_status_rows(self._reader, now_ms, self._started.lookup, self._where.around())
        return make_status(self.cluster, rows, self._started, now_ms)

    def explain(self, question: ExplainQuestion) -> Explanation | None:
        """Explanation of a thing; None when there is no such thing."""
        return explain(self._reader, self._where.started(question.at_ms), question)

    def look_ahead(self, strategy: str, what_if: WhatIf) -> Outlook:
        """Forecast of the next cycles, under the assumptions of what_if."""
        return look_ahead(
            self._reader, with_custom_strategies(self._started, [strategy]), strategy, what_if
        )

    def rehearse(self, command: Command) -> RehearsedCommand:
        """Predicted outcome of a command."""
        return rehearse_command(self._reader, self._started, command)

    def plans(self) -> Mapping[str, PlanProposal]:
        """Name → plan, of those that wait and of the last day; the oldest first."""
        return proposals_in(self.policies())

    def undo_moves(
        self, plan: str, since_ms: int, drain: str
    ) -> tuple[Mapping[str, str], Sequence[str]]:
        """Moves that undo a plan, balancing for the last since_ms or a drain; what stays."""
        begin_ms = wall_ms() - since_ms if since_ms else 0
        return undo_moves(self._reader, plan=plan, since_ms=begin_ms, drain=drain)

    def ownership(self, moment: str, namespace: str) -> tuple[OwnershipMoment, Sequence[Row]]:
        """The records of a moment, in name order; namespace "" = all."""
        found = records_at(self._reader, moment, namespace)
        return moment_of(found), [_record(row) for row in rows_in(found.table)]

    def changes(
        self, before: str, after: str, namespace: str
    ) -> tuple[OwnershipMoment, OwnershipMoment, Sequence[OwnershipDifference]]:
        """Differences between two moments."""
        reader = self._reader
        first, last = (records_at(reader, one, namespace) for one in (before, after))
        records = (map(_record, rows_in(one.table)) for one in (first, last))
        found = find_differences(*records)
        return moment_of(first), moment_of(last), list(found)

    def bundles(self, by: str, broker: str, limit: int) -> Sequence[Row]:
        """The bundles with the most load, by one of BUNDLE_ORDERS."""
        return read_bundles(self._reader, by, broker, limit)

    def policies(self) -> Sequence[Row]:
        """Rows of the table of policies that are set."""
        return self._reader.rows("policies", condition="is_set")

    def names(self, column: str) -> Sequence[str]:
        """The names of all brokers ("broker") or namespaces ("namespace")."""
        return names_in(self._reader, column)

    def settings_in_force(
        self, config: Config, kept: Iterable[str] = ()
    ) -> tuple[Config, Mapping[str, str]]:
        """Return the configuration in force, and the settings that are set aside → why.

        config: of the cluster, as files here say. kept: keys whose values stay.
        """
        reader = self._reader
        started = started_with(reader, config, kept=frozenset(kept))
        if started is config:
            note(FROM_FILES)
        return changed_settings(started, reader.rows("config_versions", ("number", "settings")))

    def lookup(
        self, topics: Sequence[str], listener: str, timeout_ms: int
    ) -> Mapping[str, LookupResult]:
        """Topic → who serves it; the tables are followed until they are loaded."""
        place = self._reader.root  # without tables there is nothing to wait for
        with LookupClient(place, self.cluster) as client:
            if not client.wait_ready(timeout_ms):
                raise CommandError(
                    f"the tables in {place} could not be loaded within {timeout_ms} ms",
                    why=client.last_error or "they are not all there",
                    next_step="name the folder that balance_cluster writes to with --tables",
                )
            return {topic: _looked_up(client, topic, listener) for topic in topics}

    def query(self, text: str) -> tuple[Sequence[str], Sequence[Mapping[str, Any]]]:
        """Names of columns, and rows, of one SELECT."""
        found = SqlEngine(self._where.place()).query(text)
        return found.column_names, plain_rows(found)

    def carry_out(
        self, command: Command, *, wait: bool, progress: Progress
    ) -> CommandOutcome | NoOutcome | None:
        """Send a command and wait for its end; None: it is sent, and not waited for."""
        where = self._where
        with CommandClient(where.address(), where.tables, where.cluster) as client:
            ticket = client.send(command)
            if not wait:
                return None
            began_s = time.monotonic()
            end_s = began_s + (command.timeout_ms + GRACE_MS) / 1_000
            while not ticket.final.done() and end_s - time.monotonic() > _NOTE_EVERY_S:
                if not client.is_ended(ticket, round(_NOTE_EVERY_S * 1_000)):
                    progress(time.monotonic() - began_s, ticket.first.done())
            return client.wait(ticket, max(0, round((end_s - time.monotonic()) * 1_000)))


def require_known(answers: Answers, **asked: str) -> None:
    """Raise CommandError for an unknown broker or namespace; "" is none."""
    for column, name in asked.items():
        if name:
            check_known(answers.cluster, column, name, answers.names(column))


GRACE_MS = 5_000
"""For how long a command's end is waited for beyond its time."""


def records_at(reader: TableReader, moment: str, namespace: str) -> AsOf:
    """Read the records of a moment, as `Answers` writes it; namespace "" = all."""
    condition = f"namespace = {literal(namespace)}" if namespace else ""
    if not moment:
        return reader.newest(condition)
    if moment.startswith("v"):
        return reader.at_version(int(moment[1:]), condition)
    return reader.at_time(int(moment), condition)


def moment_of(found: AsOf) -> OwnershipMoment:
    """Return when the records are of."""
    return OwnershipMoment(
        version=found.version, at_ms=found.at_ms, known_from_ms=found.known_from_ms
    )


def _record(row: Row) -> Row:
    return {name: row[name] for name in RECORD}


def read_bundles(reader: TableReader, by: str, broker: str, limit: int) -> list[dict[str, Any]]:
    """Read the largest bundles first.

    share: of the broker that reported them, None without load. Load is that of the newest minute
    of load_history; bundles of brokers without a row in it are left out.
    """
    cluster = literal(reader.cluster)
    of_broker = f"AND o.broker = {literal(broker)}" if broker else ""
    text = f"""
SELECT b.bundle, o.broker, o.state, b.topics, b.sessions, b.msg_rate,
  b.msg_throughput_in + b.msg_throughput_out AS bytes_per_s,
  CASE WHEN l.msg_rate > 0 THEN b.msg_rate / l.msg_rate END AS share, b.minute_ms
FROM bundle_loads b
JOIN newest_loads l ON l.cluster = b.cluster AND l.broker = b.broker AND l.minute_ms = b.minute_ms
JOIN owners o ON o.cluster = b.cluster AND o.bundle = b.bundle
WHERE b.cluster = {cluster} {of_broker}
  AND b.minute_ms = (SELECT MAX(minute_ms) FROM load_history WHERE cluster = {cluster})
ORDER BY {BUNDLE_ORDERS[by]} DESC, b.bundle LIMIT {limit}"""  # noqa: S608 (a choice, a number, quoted names)
    return plain_rows(SqlEngine(reader.root, ("load_history", "bundle_ownership")).query(text))


def _looked_up(client: LookupClient, topic: str, listener: str) -> LookupResult:
    try:
        return client.lookup(topic, listener)
    except InvalidNameError as error:
        raise no_topic(topic, str(error)) from error


def no_topic(topic: str, why: str) -> MisuseError:
    """Return the error for a text that is no topic's name."""
    return MisuseError(
        f"{topic} is no topic's name",
        why=why,
        next_step="write it as persistent://tenant/namespace/topic",
    )
