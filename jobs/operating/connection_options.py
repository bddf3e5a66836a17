"""Location of a cluster for a verb: a lookup service, or its tables and Kafka.

Precedence: the options --url, --tables, --state-dir and --context, then the variables $BALLAST_URL,
$BALLAST_TABLES, $BALLAST_CONTEXT and $BALLAST_STATE_DIR, then the context that contexts.toml calls
current, then the state folder of `make run`. The state folder names the configuration of its run.
The job's settings are those in its tables, except those that --conf names.

A service is asked with a token, whose file is read at each request, so that it can be renewed while
a verb runs. No redirect is followed. A read that the service is too busy for is repeated; a command
never is.
"""

import argparse
import base64
import json
import os
import ssl
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from jobs.adapters.delta.table_location import TablePlace, table_place
from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.http.client import HttpAnswer, HttpRequest, connection_to, exchange
from jobs.adapters.kafka.clients import KafkaAddress
from jobs.adapters.kafka.connection import kafka_address, kafka_trouble
from jobs.adapters.processes.clocks import wall_ms
from jobs.adapters.processes.settings import (
    describe_differences,
    load_settings,
    named_keys,
    overlay_names,
    read_toml,
)
from jobs.atomic_file import read_text_file
from jobs.console import CommandError, MisuseError, cause_message, first_line, note
from jobs.local.layout import CLUSTER, Layout
from jobs.parser import argument, group
from lbcore.config.load import as_started
from lbcore.config.tree import Config, CustomStrategy
from lbcore.explain.job_state import JobContext
from lbcore.model.names import did_you_mean
from lbcore.model.tables import SETTINGS_IN_FORCE
from lbcore.model.times import instant
from lbcore.plan.registry import SHEDDING_STRATEGIES, shedding_name

TIMEOUT_S = 60.0
_ANSWER_MAX_BYTES = 1 << 28
_ATTEMPTS = 3
_RETRY_S = 1.0
_OK, _BAD, _UNKNOWN_CALLER, _FORBIDDEN, _NOT_FOUND = 200, 400, 401, 403, 404
_REDIRECTS, _BUSY = range(300, 400), (429, 503)
_JSON = "application/json"
_NO_ROUTE = "HTTP 404 Not Found"
_SHOWN_CHARS = 200


class RefusedByServiceError(CommandError):
    """An error that the service answers. status: of HTTP; value: its JSON, or {}."""

    def __init__(self, status: int, value: Mapping[str, Any], **parts: str) -> None:
        super().__init__(parts.pop("what"), **parts)
        self.status = status
        self.value = value


def with_query(path: str, query: Mapping[str, Any]) -> str:
    """Return a path with its query; empty values are left out."""
    given = {k: value for k, value in query.items() if value not in (None, "", ())}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAddress:
    """A lookup service. url: http(s)://host:port, with a path where a proxy adds one.

    token_file: with a bearer token, None = without. ca_file: PEM of whom to trust, None = the
    system's.
    """

    url: str
    token_file: Path | None = None
    ca_file: Path | None = None

    def ask(
        self,
        path: str,
        body: Any = None,
        *,
        timeout_s: float = TIMEOUT_S,
        taken: Sequence[int] = (),
    ) -> Any:
        """Return the JSON of an answer. body: None for a read. taken: statuses beside 200.

        Raises CommandError: RefusedByServiceError where the service answers with another status,
        MisuseError where it does not understand the question.
        """
        authorization = {"Authorization": f"Bearer {self._token()}"} if self.token_file else {}
        asked = HttpRequest(
            target=urlsplit(self.url).path.rstrip("/") + path,
            method="GET" if body is None else "POST",
            body=b"" if body is None else json.dumps(body).encode(),
            headers={**authorization, "Accept": _JSON, "Content-Type": _JSON},
        )
        path = path.partition("?")[0]
        for tried in range(1, _ATTEMPTS + 1):
            answered = self._exchange(asked, timeout_s)
            is_busy = answered.status in _BUSY and "retry-after" in answered.headers
            if not is_busy or body is not None or tried == _ATTEMPTS:
                break
            time.sleep(_RETRY_S)
        value = self._value(answered, path)
        if answered.status == _OK or answered.status in taken:
            return value
        raise self._refused(answered, value if isinstance(value, Mapping) else {}, path)

    def _token(self) -> str:
        assert self.token_file is not None  # noqa: S101 (asked only where there is one)
        try:
            token = read_text_file(self.token_file).strip()
            token.encode("ascii")
        except (OSError, ValueError) as cause:
            raise MisuseError(
                f"the token in {self.token_file} can't be read",
                why=cause_message(cause),
                next_step="correct --token-file, or let this user read the file",
            ) from None
        return token

    def _exchange(self, asked: HttpRequest, timeout_s: float) -> HttpAnswer:
        try:
            context = None
            if urlsplit(self.url).scheme == "https" and self.ca_file is not None:
                context = ssl.create_default_context(cafile=str(self.ca_file))
            return exchange(connection_to(self.url, timeout_s, context), asked, _ANSWER_MAX_BYTES)
        except ssl.SSLCertVerificationError as cause:
            raise CommandError(
                f"the service at {self.url} is not trusted",
                why=cause.verify_message or first_line(cause),
                next_step="name the authority that signed its certificate: ca_file in the context, "
                "or $SSL_CERT_FILE",
            ) from None
        except (OSError, HTTPException, ValueError) as cause:
            raise CommandError(
                f"the service at {self.url} does not answer",
                why=f"{type(cause).__name__}: {cause_message(cause)}",
                next_step="check the address and that `ballast serve` runs there; --tables reads "
                "the tables instead",
            ) from None

    def _value(self, answered: HttpAnswer, path: str) -> Any:
        """Return the JSON of an answer; raises CommandError for a page of somebody else."""
        why = f"HTTP {answered.status} with {answered.kind or 'no content type'} and no JSON"
        if answered.status in _REDIRECTS:
            why = f"it sends GET {path} on to {answered.location or 'nowhere'}"
        elif "json" in answered.kind.lower():
            with suppress(ValueError, RecursionError):
                return json.loads(answered.content)
        raise RefusedByServiceError(
            answered.status,
            {},
            what=f"{self.url} does not answer as a Ballast service",
            why=f"{why}: a proxy or its login page stands before it, or it is another server",
            next_step="give the service's own address with --url, or have the proxy let /v1 pass",
        )

    def _refused(self, answered: HttpAnswer, value: Mapping[str, Any], path: str) -> CommandError:
        reason = str(value.get("detail") or value.get("reason") or value.get("title") or "")
        reason = reason or f"HTTP {answered.status}"
        what, next_step = f"the service at {self.url} refuses it", "correct it, and ask again"
        if answered.status == _UNKNOWN_CALLER:
            what = f"the service at {self.url} does not accept who asks"
            reason, next_step = self._about_token(reason)
        elif answered.status == _FORBIDDEN:
            next_step = "ask with a token that has this role: --token-file"
        elif answered.status == _NOT_FOUND and reason == _NO_ROUTE:
            what = f"the service at {self.url} has no {path}"
            reason = "it is of an older version, or the address has a path too much"
            next_step = "upgrade the service, or read the tables with --tables"
        elif answered.status in _BUSY:
            what = f"the service at {self.url} can't answer now"
            next_step = "ask again in a moment; `ballast status` says how the cluster is"
        if answered.status == _BAD and value:
            return MisuseError(what, why=reason, next_step=next_step)
        return RefusedByServiceError(
            answered.status, value, what=what, why=reason, next_step=next_step
        )

    def _about_token(self, reason: str) -> tuple[str, str]:
        if self.token_file is None:
            return f"no token was given ({reason})", "give one with --token-file"
        try:  # a JSON Web Token, if it says when it ends
            part = self._token().split(".")[1]
            claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
            ends_ms = round(float(claims["exp"]) * 1_000)
        except (IndexError, KeyError, TypeError, ValueError, OverflowError):
            ends_ms = 0
        if ends_ms and ends_ms < wall_ms():
            why = f"the token in {self.token_file} expired at {instant(ends_ms)}"
            return why, "put a new token into the file; it is read again at each request"
        return (
            f"the token in {self.token_file} is refused ({reason})",
            "put a token into the file that this service's keys have signed",
        )


def service_url(text: str) -> str:
    """Return the address of a service without a slash at its end; raises MisuseError."""
    parts = urlsplit(text)
    try:
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port
        is_usable = False
    if is_usable and not parts.query and not parts.fragment and "@" not in parts.netloc:
        return text.rstrip("/")
    raise MisuseError(
        f"{text[:_SHOWN_CHARS]!r} is no address of a service",
        why="it is written as http://HOST:PORT or https://HOST:PORT, without a password",
        next_step="correct --url, $BALLAST_URL or the context",
    )


def path_of(*parts: str) -> str:
    """Return a path whose parts are quoted: a slash within a part ends it."""
    return "/" + "/".join(quote(one, safe=":") for part in parts for one in part.split("/"))


FROM_FILES = "the tables have no settings of the job yet: the files here are used"
"""Note for tables that a job of an older version wrote."""


def started_with(
    reader: TableReader, config: Config, at_ms: int = 0, kept: Collection[str] = ()
) -> Config:
    """Return the settings that the job was started with; the given ones if unknown.

    config: of the reader's cluster, as this process has it. at_ms: as of then, 0 = now. kept: keys
    that keep the value of `config`.
    """
    condition = f"at_ms <= {at_ms}" if at_ms else ""
    found = as_started(config, reader.rows(SETTINGS_IN_FORCE.name, condition=condition), kept)
    name = shedding_name(found.shedding.strategy)
    if found is config or name in SHEDDING_STRATEGIES or name in found.own:
        return found
    unloaded = CustomStrategy(
        name=name,
        problem=f"the job has {name}, which is not loaded here, and no name that a table has is "
        "imported: install its package, or name it with --conf",
    )
    return replace(found, own={**found.own, name: unloaded})


def names_in(reader: TableReader, column: str) -> list[str]:
    """Return the names of all brokers (column "broker") or namespaces ("namespace")."""
    table = f"{column}s"
    return [str(row[column]) for row in reader.rows(table, (column,))]


def check_known(cluster: str, column: str, name: str, known: Iterable[str]) -> None:
    """Raise CommandError where a broker or namespace is none of those that are known."""
    names = sorted(known)
    if name not in names:
        raise CommandError(
            f"there is no {column} {name}",
            why=f"cluster {cluster} has {len(names)} {column}s, none of this name",
            next_step=did_you_mean(name, names) + _LISTS[column],
        )


_LISTS = {
    "broker": "`ballast status` lists the brokers",
    "namespace": "`ballast ownership` lists the bundles of all namespaces",
}


STATE_DIR_VARIABLE = "BALLAST_STATE_DIR"
TABLES_VARIABLE, CLUSTER_VARIABLE = "BALLAST_TABLES", "BALLAST_CLUSTER"
URL_VARIABLE, TOKEN_VARIABLE = "BALLAST_URL", "BALLAST_TOKEN_FILE"
CONTEXT_VARIABLE = "BALLAST_CONTEXT"
CONTEXTS = Path("ballast") / "contexts.toml"
_CONTEXT_KEYS = ("url", "tables", "token_file", "ca_file", "cluster")
_STATE_DIR = Path("var") / "local"
STATE_DIR = Path(os.environ.get(STATE_DIR_VARIABLE) or _STATE_DIR)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """Location of a cluster: its service, or its tables and Kafka.

    bootstrap: "" = as the state folder says. config: as files and the state folder say. named: the
    settings of those that --conf names, which take precedence over those the job was started with.
    service: answers and takes commands; None = the tables and Kafka do. is_cluster_named:
    False where the name is the default.
    """

    layout: Layout
    tables: TablePlace
    cluster: str
    config: Config
    bootstrap: str
    named: frozenset[str] = frozenset()
    service: ServiceAddress | None = None
    is_cluster_named: bool = False

    def reader(self) -> TableReader:
        """The tables. Raises CommandError without tables, MisuseError with a service."""
        return TableReader(self.place(), self.cluster)

    def place(self) -> TablePlace:
        """The folder of the tables; raises MisuseError where a service is asked instead."""
        if self.service is not None:
            raise MisuseError(
                "this needs the tables",
                why=f"{self.service.url} is asked for everything, and does not give them away",
                next_step="name their folder with --tables, where it can be read",
            )
        return self.tables

    def started(self, at_ms: int = 0) -> Config:
        """Return the config the job was started with, for this cluster.

        at_ms: as of then, 0 = now. Notes where the tables don't say, and where --conf differs.
        Raises CommandError when there are no tables.
        """
        own, reader = self.config.for_cluster(self.cluster), self.reader()
        job = started_with(reader, own, at_ms)
        if job is own:
            note(FROM_FILES)
            return own
        if not self.named:
            return job
        asked = started_with(reader, own, at_ms, self.named)
        for line in describe_differences(asked, job):
            note(f"answered by --conf, not by what the job has: {line}")
        return asked

    def around(self, *, asks_kafka: bool = True) -> JobContext:
        """Return what the tables don't say of the job: Kafka, its log, its supervisor.

        Takes a second where Kafka hangs. kafka is "" when it is not asked, or not known where.
        """
        log = self.layout.logs / "balance_cluster.log"
        try:
            trouble = kafka_trouble(self.address()) if asks_kafka else ""
        except CommandError:
            trouble = ""
        return JobContext(
            kafka_trouble=trouble,
            log=str(log) if log.exists() else "",
            is_supervised=self.layout.is_held(),
        )

    def address(self) -> KafkaAddress:
        """Kafka; raises CommandError when it is not known where."""
        if self.bootstrap or self.config.kafka.bootstrap_servers:
            return kafka_address(self.config, self.bootstrap)
        try:
            port = int(json.loads((self.layout.kafka / "ports.json").read_text())["client"])
        except (OSError, ValueError, KeyError, TypeError):
            raise CommandError(
                "it is not known where Kafka is",
                why=f"{self.layout.root} is not the state folder of a local run, and neither "
                "--bootstrap nor kafka.bootstrap_servers names a broker",
                next_step="start a run with `ballast run-local`, name its folder with --state-dir, "
                "or give --bootstrap and --tables",
            ) from None
        return kafka_address(self.config, f"127.0.0.1:{port}")


SERVICE_OPTIONS = (
    argument("--cluster", metavar="NAME", help=f"default ${CLUSTER_VARIABLE}, or {CLUSTER}"),
    argument("--url", metavar="URL", help=f"of a lookup service to ask (${URL_VARIABLE})"),
    argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help=f"with a bearer token for the service (${TOKEN_VARIABLE})",
    ),
    argument("--context", metavar="NAME", help=f"of ~/.config/{CONTEXTS} (${CONTEXT_VARIABLE})"),
    argument(
        "--tables",
        type=table_place,
        metavar="DIR",
        help="folder of the Delta tables, or a URI: s3://, abfss://, gs:// or hdfs://"
        f" (${TABLES_VARIABLE})",
    ),
)
"""A service or the tables, and the cluster's name."""

STATE_DIR_OPTION = argument(
    "--state-dir",
    type=Path,
    default=STATE_DIR,
    metavar="DIR",
    help=f"folder of a local run (${STATE_DIR_VARIABLE}, or {_STATE_DIR})",
)
CONF_OPTION = argument(
    "--conf", action="append", metavar="NAME", help="overlay, by name or path; may be repeated"
)
KAFKA_OPTION = argument("--bootstrap", default="", metavar="HOST:PORT", help="Kafka's address")
_WHERE = "where (without options: the run of `make run`)"
TABLES_OPTIONS = group(_WHERE, *SERVICE_OPTIONS, STATE_DIR_OPTION, CONF_OPTION)
"""Where the cluster is, for verbs that need no Kafka."""
STACK_OPTIONS = group(_WHERE, *SERVICE_OPTIONS, STATE_DIR_OPTION, KAFKA_OPTION, CONF_OPTION)
"""Where the cluster is, and its Kafka."""


def connection_options(args: argparse.Namespace) -> ConnectionOptions:
    """Read the options; raises MisuseError for settings that can't be used."""
    place = _place(args)
    layout = Layout(root=getattr(args, "state_dir", STATE_DIR).absolute())
    tables = table_place(place["tables"]) if "tables" in place else None
    of_context, of_variable = place.get("cluster", ""), os.environ.get(CLUSTER_VARIABLE)
    # --context beats the variable, a context chosen otherwise does not
    cluster = args.cluster or (args.context and of_context) or of_variable or of_context
    conf = getattr(args, "conf", None)
    is_named = conf is not None or place or overlay_names()
    of_run = None if is_named else layout.settings()
    config = load_settings(conf) if of_run is None else load_settings(*of_run)
    return ConnectionOptions(
        layout=layout,
        tables=tables or layout.tables,
        cluster=cluster or CLUSTER,
        config=config,
        bootstrap=getattr(args, "bootstrap", ""),
        named=named_keys(config.for_cluster(cluster or CLUSTER))
        if conf is not None
        else frozenset(),
        service=_service(args, place) if "url" in place else None,
        is_cluster_named=bool(cluster),
    )


def _place(args: argparse.Namespace) -> Mapping[str, str]:
    """Return the cluster's place in the form of a context; {} = the state folder."""
    options = {f"--{name}": getattr(args, name) for name in ("url", "tables", "context")}
    variables = {
        f"${name}": os.environ.get(name)
        for name in (URL_VARIABLE, TABLES_VARIABLE, CONTEXT_VARIABLE)
    }
    for given, is_folder_named in (
        (options, getattr(args, "state_dir", STATE_DIR) is not STATE_DIR),
        (variables, bool(os.environ.get(STATE_DIR_VARIABLE))),
    ):
        found = {name: str(value) for name, value in given.items() if value}
        if len(found) > 1:
            raise MisuseError(
                "it is not clear where the cluster is",
                why=f"{' and '.join(found)} name different places",
                next_step="give one of them",
            )
        for name, value in found.items():
            key = name.lstrip("-$").removeprefix("BALLAST_").lower()
            return _context(value) if key == "context" else {key: value}
        if is_folder_named:
            return {}
    return _context("")


def _context(name: str) -> Mapping[str, str]:
    """Return a context's entries; "": of the current one, {} where there is none."""
    path = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / CONTEXTS
    content = read_toml(path) if name or path.exists() else {}
    contexts = content.get("contexts")
    known = contexts if isinstance(contexts, Mapping) else {}
    wanted = name or str(content.get("current") or "")
    if not wanted:
        return {}
    found = known.get(wanted)
    if not isinstance(found, Mapping):
        raise MisuseError(
            f"there is no context {wanted!r}",
            why=f"{path} has {', '.join(sorted(known)) or 'none'}",
            next_step=f"{did_you_mean(wanted, known)}write [contexts.{wanted}] with url = ... "
            "into it",
        )
    wrong = [
        key
        for key, value in found.items()
        if not isinstance(value, str) or key not in _CONTEXT_KEYS
    ]
    if wrong or ("url" in found) == ("tables" in found):
        raise MisuseError(
            f"the context {wanted!r} in {path} can't be used",
            why=f"{wrong[0]!r} is no entry with a text" if wrong else "it takes url or tables",
            next_step=f"a context has url or tables, and any of {', '.join(_CONTEXT_KEYS[2:])}",
        )
    if "ca_file" in found and not str(found.get("url")).lower().startswith("https:"):
        raise MisuseError(
            f"ca_file has no effect in the context {wanted!r} in {path}",
            why=f"its {'url is not https' if 'url' in found else 'place is tables, not a url'}",
            next_step="write https:// in its url, or leave out ca_file",
        )
    return {**found, "origin": str(path)}


def _service(args: argparse.Namespace, place: Mapping[str, str]) -> ServiceAddress:
    """Return the service; a context's address never gets the token of a variable."""
    of_context = "origin" in place
    token = place.get("token_file", "") if of_context else os.environ.get(TOKEN_VARIABLE, "")
    token = str(args.token_file or token)
    return ServiceAddress(
        url=service_url(place["url"]),
        token_file=Path(token).expanduser() if token else None,
        ca_file=Path(place["ca_file"]).expanduser() if "ca_file" in place else None,
    )
