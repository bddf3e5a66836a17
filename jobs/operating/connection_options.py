"""Location of a cluster for a verb: a lookup service, or its tables and Kafka.

Precedence: the options --url, --tables, --state-dir and --context, then the variables $BALLAST_URL,
$BALLAST_TABLES, $BALLAST_CONTEXT and $BALLAST_STATE_DIR, then the context that contexts.toml calls
current, then the state folder of `make run`. The state folder names the configuration of its run.
The job's settings are those in its tables, except those that --conf names.
"""

import argparse
import json
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from jobs.adapters.delta.table_location import TablePlace, table_place
from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.kafka.clients import KafkaAddress
from jobs.adapters.kafka.connection import kafka_address, kafka_trouble
from jobs.adapters.processes.settings import (
    describe_differences,
    load_settings,
    named_keys,
    overlay_names,
    read_toml,
)
from jobs.console import CommandError, MisuseError, note
from jobs.local.layout import CLUSTER, Layout
from jobs.operating.service_client import ServiceAddress, service_url
from jobs.parser import argument, group
from lbcore.config.load import as_started
from lbcore.config.tree import Config, CustomStrategy
from lbcore.explain.job_state import JobContext
from lbcore.model.names import did_you_mean
from lbcore.model.tables import SETTINGS_IN_FORCE
from lbcore.plan.registry import SHEDDING_STRATEGIES, shedding_name

FROM_FILES = "the tables have no settings of the job yet: the files here are used"
"""Note for tables that a job of an older version wrote."""


def started_with(
    reader: TableReader, config: Config, at_ms: int = 0, kept: Collection[str] = ()
) -> Config:
    """Return the settings that the job was started with; the given ones if unknown.

    config: of the reader's cluster, as this process has it. at_ms: as of then, 0 = now. kept: keys
    that keep the value of `config`.
    """
    found = as_started(
        config,
        reader.rows(SETTINGS_IN_FORCE.name, condition=f"at_ms <= {at_ms}" if at_ms else ""),
        kept,
    )
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
    return [str(row[column]) for row in reader.rows(f"{column}s", (column,))]


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
