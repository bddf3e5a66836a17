"""Answers of a lookup service over HTTP, as the same records that the tables give.

The other source beside `answers`: the same questions, asked below /v1. A field that this version
does not know is left out; a lacking one is an error that names the other version.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cached_property, partial
from operator import itemgetter
from types import MappingProxyType
from typing import Any, TypeVar

from jobs.adapters.kafka.command_client import CommandOutcome, NoOutcome
from jobs.console import CommandError, MisuseError, UnknownError, first_line, note
from jobs.lookup_client import Freshness, LookupResult
from jobs.operating.answers import (
    GRACE_MS,
    Answers,
    OwnershipMoment,
    Progress,
    no_topic,
)
from jobs.operating.connection_options import FROM_FILES, ConnectionOptions
from jobs.operating.explaining import ExplainQuestion
from jobs.operating.plans import Outlook, RehearsedCommand
from jobs.operating.service_client import (
    TIMEOUT_S,
    RefusedByServiceError,
    ServiceAddress,
    path_of,
    with_query,
)
from lbcore.config.load import as_started
from lbcore.config.tree import Config
from lbcore.explain.explanation import Explanation, Row
from lbcore.explain.status import ClusterStatus
from lbcore.foresight.forecast import Foresight, WhatIf
from lbcore.ownership.changes import OwnershipDifference
from lbcore.packing import from_plain
from lbcore.route.snapshot import LookupOutcome
from lbcore.validation.check import in_force
from lbcore.wire.messages import Command

_Record = TypeVar("_Record")

_ACCEPTED, _NOT_FOUND, _CONFLICT, _LATE = 202, 404, 409, 504
_FIRST_WAIT_MS = 20_000
_POLL_S, _NOTE_EVERY_S = 2.0, 10.0
_SQL_TIMEOUT_S = 600.0
NO_QUERY: Mapping[str, Any] = MappingProxyType({})
_OUTCOME_STATUSES = (_ACCEPTED, _CONFLICT, _LATE)
INVALID_NAME = "invalid_name"


def answers_of(where: ConnectionOptions) -> Answers:
    """Return the source of answers that the options name."""
    if where.service is None:
        return Answers(where)
    return ServiceAnswers(where.service, where.cluster if where.is_cluster_named else "")


class ServiceAnswers(Answers):
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
        """Status of the cluster, as the service sees it."""
        return self._ask("/v1/status", _record_of(ClusterStatus))

    def explain(self, question: ExplainQuestion) -> Explanation | None:
        """Explanation of a thing."""
        path = path_of("v1/explain", question.kind, *filter(None, [question.name]))
        query = {"at": question.at_ms or None, "window_ms": question.window_ms}
        return self._ask_if_known(path, _record_of(Explanation), query)

    def look_ahead(self, strategy: str, what_if: WhatIf) -> Outlook:
        """The next cycles."""
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
        """Predicted outcome of a command."""
        return self._post("v1/rehearsals", command, _record_of(RehearsedCommand))

    def undo_moves(
        self, plan: str, since_ms: int, drain: str
    ) -> tuple[Mapping[str, str], Sequence[str]]:
        """Moves that take something back."""
        query = {"plan": plan, "since_ms": since_ms or None, "drain": drain}
        return self._ask("/v1/undo", lambda value: (value["moves"], value["left"]), query)

    def ownership(self, moment: str, namespace: str) -> tuple[OwnershipMoment, Sequence[Row]]:
        """The records of a moment, all of its pages."""
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
        """Differences between two moments."""
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
        """Return the bundles with most of a measure, the largest first."""
        query = {"by": by, "broker": broker, "limit": limit}
        return self._ask("/v1/bundles", itemgetter("bundles"), query)

    def policies(self) -> Sequence[Row]:
        """Return the rows of the policies that are set."""
        return self._ask("/v1/policies", itemgetter("policies"))

    def names(self, column: str) -> Sequence[str]:
        """Return the names of brokers or namespaces."""
        kind = f"{column}s"
        return self._ask(f"/v1/{kind}", lambda value: [row[column] for row in value[kind]])

    def settings_in_force(
        self, config: Config, kept: Iterable[str] = ()
    ) -> tuple[Config, Mapping[str, str]]:
        """The job's settings over a configuration."""
        return self._parsed(lambda value: _in_force(config, value, frozenset(kept)), self._settings)

    def lookup(
        self, topics: Sequence[str], listener: str, timeout_ms: int
    ) -> Mapping[str, LookupResult]:
        """Return each topic's lookup, from the service's snapshot."""
        body = {"topics": list(topics), "listener": listener}
        timeout_s = max(1.0, timeout_ms / 1_000)
        return self._ask("/v1/lookups", _lookups, body=body, timeout_s=timeout_s)

    def query(self, text: str) -> tuple[Sequence[str], Sequence[Mapping[str, Any]]]:
        """Return columns and rows of a query that the service runs."""
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
        query: Mapping[str, Any] = NO_QUERY,
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
        query: Mapping[str, Any] = NO_QUERY,
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
    return {one["topic"]: _lookup(one, Freshness(**ages)) for one in value["answers"]}


def _lookup(one: Mapping[str, Any], freshness: Freshness) -> LookupResult:
    if one["outcome"] == INVALID_NAME:
        raise no_topic(one["topic"], one["reason"])
    return LookupResult(
        outcome=LookupOutcome(one["outcome"]),
        freshness=freshness,
        broker=one.get("broker", ""),
        bundle=one.get("bundle", ""),
        version_id=one.get("version_id", 0),
        broker_url=one.get("brokerUrl", ""),
        broker_url_tls=one.get("brokerUrlTls", ""),
        http_url=one.get("httpUrl", ""),
        http_url_tls=one.get("httpUrlTls", ""),
    )


def _perhaps_sent(command: Command, error: CommandError) -> UnknownError:
    """Return the error of a command that may have been sent."""
    return UnknownError(
        error.what,
        why=f"{error.why}; command {command.command_id} may have been sent",
        next_step=f"{error.next_step}. Or repeat the verb with --command-id "
        f"{command.command_id}: it is carried out at most once",
    )


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
