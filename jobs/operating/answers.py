"""Source of answers for the verbs: the tables and Kafka, or a lookup service.

A verb asks its source (`answers_of`) and does not know which one it has. Both give the same
records, from which the verb makes its text and its JSON. The service reads by the functions here.
Of a service the same questions are asked below /v1: a field that this version does not know is left
out, and a lacking one is an error that names the other version.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, fields
from functools import cached_property, partial
from operator import itemgetter
from types import MappingProxyType
from typing import Any, TypeVar

from jobs.adapters.delta.rows import literal
from jobs.adapters.delta.table_reader import AsOf, TableReader
from jobs.adapters.delta.table_scan import rows_in
from jobs.adapters.kafka.command_client import CommandClient, CommandOutcome, NoOutcome
from jobs.adapters.processes.clocks import wall_ms
from jobs.adapters.processes.settings import with_custom_strategies
from jobs.console import CommandError, MisuseError, UnknownError, first_line, note
from jobs.lookup_client import Freshness, LookupClient, LookupResult
from jobs.operating.connection_options import (
    FROM_FILES,
    TIMEOUT_S,
    ConnectionOptions,
    RefusedByServiceError,
    ServiceAddress,
    check_known,
    names_in,
    path_of,
    started_with,
    with_query,
)
from jobs.operating.plans import (
    Outlook,
    RehearsedCommand,
    look_ahead,
    proposals_in,
    rehearse_command,
    undo_moves,
)
from jobs.operating.status import ExplainQuestion, changed_settings, explain, read_status_rows
from jobs.sql.engine import SqlEngine, plain_rows
from lbcore.balancer.rules import PlanProposal
from lbcore.config.load import as_started
from lbcore.config.tree import Config
from lbcore.explain.explanation import Explanation, Row
from lbcore.explain.status import ClusterStatus, make_status
from lbcore.foresight.forecast import Foresight, WhatIf
from lbcore.model.names import InvalidNameError
from lbcore.ownership.changes import OwnershipDifference, find_differences
from lbcore.packing import from_plain
from lbcore.route.snapshot import LookupOutcome
from lbcore.validation.check import in_force
from lbcore.wire.messages import Command

_Record = TypeVar("_Record")

BUNDLE_ORDERS = {
    "topics": "b.topics",
    "sessions": "b.sessions",
    "rate": "b.msg_rate",
    "bandwidth": "b.msg_throughput_in + b.msg_throughput_out",
}
BUNDLES_MAX = 100_000
_RECORD = ("bundle", "version_id", "state", "source", "destination", "cause", "at_ms")

_NOTE_EVERY_S = 10.0
GRACE_MS = 5_000
"""For how long a command's end is waited for beyond its time."""

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


class Answers:
    """Answers about one cluster from its tables; commands go through Kafka.

    `_ServiceAnswers` has the same methods. All raise CommandError. A moment is text:
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
        return _moment_of(found), [record_of(row) for row in rows_in(found.table)]

    def changes(
        self, before: str, after: str, namespace: str
    ) -> tuple[OwnershipMoment, OwnershipMoment, Sequence[OwnershipDifference]]:
        """Differences between two moments."""
        reader = self._reader
        first, last = (records_at(reader, one, namespace) for one in (before, after))
        records = (map(record_of, rows_in(one.table)) for one in (first, last))
        return _moment_of(first), _moment_of(last), list(find_differences(*records))

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
                if not futures.wait([ticket.final], timeout=_NOTE_EVERY_S).done:
                    progress(time.monotonic() - began_s, ticket.first.done())
            return client.wait(ticket, max(0, round((end_s - time.monotonic()) * 1_000)))


def require_known(answers: Answers, **asked: str) -> None:
    """Raise CommandError for an unknown broker or namespace; "" is none."""
    for column, name in asked.items():
        if name:
            check_known(answers.cluster, column, name, answers.names(column))


def records_at(reader: TableReader, moment: str, namespace: str) -> AsOf:
    """Read the records of a moment, as `Answers` writes it; namespace "" = all."""
    condition = f"namespace = {literal(namespace)}" if namespace else ""
    if not moment:
        return reader.newest(condition)
    if moment.startswith("v"):
        return reader.at_version(int(moment[1:]), condition)
    return reader.at_time(int(moment), condition)


def _moment_of(found: AsOf) -> OwnershipMoment:
    return OwnershipMoment(
        version=found.version, at_ms=found.at_ms, known_from_ms=found.known_from_ms
    )


def record_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is said of a bundle's record."""
    return {name: row[name] for name in _RECORD}


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
        raise _no_topic(topic, str(error)) from error


def _no_topic(topic: str, why: str) -> MisuseError:
    return MisuseError(
        f"{topic} is no topic's name",
        why=why,
        next_step="write it as persistent://tenant/namespace/topic",
    )


_ACCEPTED, _NOT_FOUND, _CONFLICT, _LATE = 202, 404, 409, 504
_FIRST_WAIT_MS = 20_000
_POLL_S = 2.0
_SQL_TIMEOUT_S = 600.0
_NO_QUERY: Mapping[str, Any] = MappingProxyType({})
_OUTCOME_STATUSES = (_ACCEPTED, _CONFLICT, _LATE)
_INVALID_NAME = "invalid_name"


def answers_of(where: ConnectionOptions) -> Answers:
    """Return the source of answers that the options name."""
    if where.service is None:
        return Answers(where)
    return _ServiceAnswers(where.service, where.cluster if where.is_cluster_named else "")


class _ServiceAnswers(Answers):
    """Answers of a service. named: the cluster asked for, "" = the service's own."""

    def __init__(self, address: ServiceAddress, named: str = "") -> None:
        self._address = address
        self._named = named

    @property
    def cluster(self) -> str:
        """The service's cluster; raises CommandError where another one is meant."""
        found = str(self._settings.get("cluster", self._named))
        if self._named not in ("", found):
            raise CommandError(
                f"the service at {self._address.url} serves another cluster",
                why=f"its cluster is {found}, and --cluster, $BALLAST_CLUSTER or the context says "
                f"{self._named}",
                next_step=f"ask the service of {self._named}, or leave its name out",
            )
        return found

    @cached_property
    def _settings(self) -> Mapping[str, Any]:
        return self._parsed(dict, self._address.ask("/v1/settings"))

    def status(self) -> ClusterStatus:
        return self._ask("/v1/status", _record_of(ClusterStatus))

    def explain(self, question: ExplainQuestion) -> Explanation | None:
        path = path_of("v1/explain", question.kind, *filter(None, [question.name]))
        query = {"at": question.at_ms or None, "window_ms": question.window_ms}
        return self._ask_if_known(path, _record_of(Explanation), query)

    def look_ahead(self, strategy: str, what_if: WhatIf) -> Outlook:
        query = {
            "strategy": strategy,
            "set": what_if.settings,
            "add_brokers": what_if.add_brokers or None,
            "remove_broker": what_if.remove_brokers,
        }
        return self._ask(
            "/v1/plan",
            lambda value: Outlook(
                found=_record_of(Foresight)(value), tables_age_ms=value["tables_age_ms"]
            ),
            query,
        )

    def rehearse(self, command: Command) -> RehearsedCommand:
        return self._post("v1/rehearsals", command, _record_of(RehearsedCommand))

    def undo_moves(
        self, plan: str, since_ms: int, drain: str
    ) -> tuple[Mapping[str, str], Sequence[str]]:
        query = {"plan": plan, "since_ms": since_ms or None, "drain": drain}
        return self._ask("/v1/undo", lambda value: (value["moves"], value["left"]), query)

    def ownership(self, moment: str, namespace: str) -> tuple[OwnershipMoment, Sequence[Row]]:
        query: dict[str, Any] = {"as_of": moment or "now", "namespace": namespace}
        rows: list[Row] = []
        while True:
            page = self._ask("/v1/ownership", dict, query)
            found, after = self._parsed(_moment, page), page.get("next")
            rows += page.get("bundles", ())
            if not after:
                return found, rows
            if found.version >= 0:  # the same moment for all pages
                query["as_of"] = f"v{found.version}"
            query["after"] = after

    def changes(
        self, before: str, after: str, namespace: str
    ) -> tuple[OwnershipMoment, OwnershipMoment, Sequence[OwnershipDifference]]:
        query = {"from": before or "now", "to": after, "namespace": namespace}
        return self._ask(
            "/v1/ownership/diff",
            lambda value: (
                _moment(value["from"]),
                _moment(value["to"]),
                list(map(_record_of(OwnershipDifference), value["changes"])),
            ),
            query,
        )

    def bundles(self, by: str, broker: str, limit: int) -> Sequence[Row]:
        query = {"by": by, "broker": broker, "limit": limit}
        return self._ask("/v1/bundles", itemgetter("bundles"), query)

    def policies(self) -> Sequence[Row]:
        return self._ask("/v1/policies", itemgetter("policies"))

    def names(self, column: str) -> Sequence[str]:
        kind = f"{column}s"
        return self._ask(f"/v1/{kind}", lambda value: [row[column] for row in value[kind]])

    def settings_in_force(
        self, config: Config, kept: Iterable[str] = ()
    ) -> tuple[Config, Mapping[str, str]]:
        return self._parsed(lambda value: _in_force(config, value, frozenset(kept)), self._settings)

    def lookup(
        self, topics: Sequence[str], listener: str, timeout_ms: int
    ) -> Mapping[str, LookupResult]:
        body = {"topics": list(topics), "listener": listener}
        timeout_s = max(1.0, timeout_ms / 1_000)
        return self._ask("/v1/lookups", _lookups, body=body, timeout_s=timeout_s)

    def query(self, text: str) -> tuple[Sequence[str], Sequence[Mapping[str, Any]]]:
        return self._ask(
            "/v1/sql",
            lambda found: (found["columns"], found["rows"]),
            body={"query": text},
            timeout_s=_SQL_TIMEOUT_S,
        )

    def carry_out(
        self, command: Command, *, wait: bool, progress: Progress
    ) -> CommandOutcome | NoOutcome | None:
        """Send it in the name of the token's owner, and poll until it has ended.

        Raises UnknownError where the service can't be asked any more and the command may be sent.
        """
        self._check_cluster()
        began_s = time.monotonic()
        first_ms = min(command.timeout_ms, _FIRST_WAIT_MS) if wait else 0
        try:
            found = self._post("v1/commands", command, partial(_outcome, command), first_ms)
        except MisuseError:
            raise
        except CommandError as error:
            is_refusal = isinstance(error, RefusedByServiceError) and error.value
            if is_refusal and command.command_id not in error.why:
                raise
            raise _perhaps_sent(command, error) from None
        if not wait:
            return None if found is None or not found.is_final else found
        try:
            return self._await_end(command, found, began_s, progress)
        except CommandError as error:
            raise _perhaps_sent(command, error) from None

    def _await_end(
        self, command: Command, found: CommandOutcome | None, began_s: float, progress: Progress
    ) -> CommandOutcome | NoOutcome:
        noted_s, outcome = began_s, partial(_outcome, command)
        end_s = began_s + (command.timeout_ms + GRACE_MS) / 1_000
        path = path_of("v1/commands", command.command_id)
        while not (found and found.is_final) and time.monotonic() < end_s:
            time.sleep(_POLL_S)
            found = self._ask_if_known(path, outcome, is_awaited=True) or found
            if time.monotonic() - noted_s >= _NOTE_EVERY_S:
                noted_s = time.monotonic()
                progress(noted_s - began_s, found is not None)
        if found is not None and found.is_final:
            return found
        return NoOutcome(
            command_id=command.command_id,
            waited_ms=round((time.monotonic() - began_s) * 1_000),
            accepted=found,
            writer_silent_ms=self.status().writer_silent_ms,
        )

    def _post(
        self,
        path: str,
        command: Command,
        parse: Callable[[Any], _Record],
        wait_ms: int | None = None,
    ) -> _Record:
        """Send a command. wait_ms: None where nothing is carried out."""
        query = {"timeout_ms": command.timeout_ms, "command_id": command.command_id}
        return self._ask(
            path_of(path, command.kind),
            parse,
            query if wait_ms is None else {**query, "wait_ms": wait_ms},
            body=dict(command.arguments),
            timeout_s=((wait_ms or 0) + GRACE_MS) / 1_000 + TIMEOUT_S,
            taken=_OUTCOME_STATUSES,
        )

    def _ask_if_known(
        self,
        path: str,
        parse: Callable[[Any], _Record],
        query: Mapping[str, Any] = _NO_QUERY,
        *,
        is_awaited: bool = False,
    ) -> _Record | None:
        """Ask for one thing; None if the service answers 404.

        is_awaited: also if a proxy in front of it answers 404, which may be temporary.
        """
        try:
            return self._ask(path, parse, query)
        except RefusedByServiceError as error:
            if error.status == _NOT_FOUND and (is_awaited or error.value):
                return None
            raise

    def _ask(
        self,
        path: str,
        parse: Callable[[Any], _Record],
        query: Mapping[str, Any] = _NO_QUERY,
        **more: Any,
    ) -> _Record:
        """Ask the service of the cluster that is meant.

        more: as `ServiceAddress.ask` takes it.
        """
        self._check_cluster()
        return self._parsed(parse, self._address.ask(with_query(path, query), **more))

    def _check_cluster(self) -> None:
        if self._named:
            self.cluster  # noqa: B018 (nothing is asked of another cluster)

    def _parsed(self, parse: Callable[[Any], _Record], value: Any) -> _Record:
        try:
            return parse(value)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as cause:
            raise CommandError(
                f"the answer of the service at {self._address.url} can't be used",
                why=f"it is of another version ({type(cause).__name__}: {first_line(cause)})",
                next_step="use the command line and the service of one version, or --tables",
            ) from None


def _record_of(kind: type[_Record]) -> Callable[[Any], _Record]:
    """Return the parser of a record from JSON, which ignores unknown fields."""
    known = {one.name for one in fields(kind)}  # type: ignore[arg-type]
    return lambda value: from_plain(kind, {k: one for k, one in value.items() if k in known})


def _moment(value: Any) -> OwnershipMoment:
    return OwnershipMoment(
        version=value["table_version"],
        at_ms=value["at_ms"],
        known_from_ms=value["known_from_ms"],
    )


def _in_force(
    config: Config, value: Mapping[str, Any], kept: frozenset[str]
) -> tuple[Config, Mapping[str, str]]:
    """Return the configuration with the job's settings, and what is set aside."""
    rows = [{**row, "at_ms": 0} for row in value["started"]]
    if not rows:
        note(FROM_FILES)
    return in_force(as_started(config, rows, kept), value["changed"])


def _lookups(value: Any) -> Mapping[str, LookupResult]:
    ages = {name: value[name] for name in ("table_version", "age_ms", "writer_silent_ms")}
    found = {}
    for one in value["answers"]:
        if one["outcome"] == _INVALID_NAME:
            raise _no_topic(one["topic"], one["reason"])
        found[one["topic"]] = LookupResult(
            outcome=LookupOutcome(one["outcome"]),
            freshness=Freshness(**ages),
            broker=one.get("broker", ""),
            bundle=one.get("bundle", ""),
            version_id=one.get("version_id", 0),
            broker_url=one.get("brokerUrl", ""),
            broker_url_tls=one.get("brokerUrlTls", ""),
            http_url=one.get("httpUrl", ""),
            http_url_tls=one.get("httpUrlTls", ""),
        )
    return found


def _outcome(command: Command, value: Any) -> CommandOutcome | None:
    """The outcome that JSON says; None where the command was only sent."""
    status = value.get("outcome", value["status"])  # a problem's status is that of HTTP
    if status == "sent":
        return None
    return CommandOutcome(
        command_id=value["command_id"],
        kind=command.kind,
        status=status,
        reason=value.get("reason") or value.get("detail", ""),
        result=value["result"],
        at_ms=value.get("at_ms", 0),
    )


def _perhaps_sent(command: Command, error: CommandError) -> UnknownError:
    return UnknownError(
        error.what,
        why=f"{error.why}; command {command.command_id} may have been sent",
        next_step=f"{error.next_step}. Or repeat the verb with --command-id "
        f"{command.command_id}: it is carried out at most once",
    )
