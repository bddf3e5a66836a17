"""Location of the tables and Kafka for a verb: from options or a local run.

Precedence: the options, then $BALLAST_TABLES and $BALLAST_CLUSTER, then the configuration, then the
state folder of `make run` (`--state-dir`, or $BALLAST_STATE_DIR). The state folder names the
configuration of its run. The job's settings are what it has told the tables, except those that
--conf names.
"""

import argparse
import json
import os
from collections.abc import Callable, Collection
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
)
from jobs.console import CommandError, note
from jobs.local.layout import CLUSTER, Layout
from jobs.operating.text_format import did_you_mean
from lbcore.config.load import as_started
from lbcore.config.tree import Config, CustomStrategy
from lbcore.explain.job_state import JobSurroundings
from lbcore.model.tables import SETTINGS_IN_FORCE
from lbcore.plan.registry import SHEDDING_STRATEGIES, shedding_name

FROM_FILES = "the tables have no settings of the job yet: the files here are used"
"""Said where a job of an older version wrote the tables."""


def started_with(
    reader: TableReader, config: Config, at_ms: int = 0, kept: Collection[str] = ()
) -> Config:
    """Return the settings that the job was started with; the given ones if unknown.

    config: of the reader's cluster, as the asker has it. at_ms: as of then, 0 = now. kept: keys
    that the asker names explicitly.
    """
    condition = f"at_ms <= {at_ms}" if at_ms else ""
    found = as_started(config, reader.rows(SETTINGS_IN_FORCE.name, condition=condition), kept)
    name = shedding_name(found.shedding.strategy)
    if found is config or name in SHEDDING_STRATEGIES or name in found.own:
        return found
    why = (
        f"the job has {name}, which is not loaded here, and no name that a table has is imported:"
        " install its package, or name it with --conf"
    )
    return replace(found, own={**found.own, name: CustomStrategy(name=name, problem=why)})


_COLUMNS = {"broker": "brokers", "namespace": "namespaces"}


def require_known(reader: TableReader, **asked: str) -> None:
    """Raise CommandError for an unknown broker or namespace ("" = none given)."""
    for column, name in asked.items():
        if not name:
            continue
        rows = reader.rows(_COLUMNS[column], (column,))
        known = sorted(str(row[column]) for row in rows)
        if name in known:
            continue
        raise CommandError(
            f"there is no {column} {name}",
            why=f"cluster {reader.cluster} has {len(known)} {column}s, none of this name",
            next_step=did_you_mean(name, known) + _LISTS[column],
        )


_LISTS = {
    "broker": "`ballast status` lists the brokers",
    "namespace": "`ballast ownership` lists the bundles of all namespaces",
}


STATE_DIR_VARIABLE = "BALLAST_STATE_DIR"
TABLES_VARIABLE, CLUSTER_VARIABLE = "BALLAST_TABLES", "BALLAST_CLUSTER"
_STATE_DIR = Path("var") / "local"
STATE_DIR = Path(os.environ.get(STATE_DIR_VARIABLE) or _STATE_DIR)
STATE_DIR_HELP = f"folder of a local run (${STATE_DIR_VARIABLE}, or {_STATE_DIR})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """Location of a cluster's tables and Kafka.

    bootstrap: "" = as the state folder says. config: as files and the state folder say. named: the
    settings of those that --conf names, which take precedence over those the job was started with.
    """

    layout: Layout
    tables: TablePlace
    cluster: str
    config: Config
    bootstrap: str
    named: frozenset[str] = frozenset()

    def reader(self) -> TableReader:
        """The tables; raises CommandError when they aren't there."""
        return TableReader(self.tables, self.cluster)

    def started(self, at_ms: int = 0, *, tell: Callable[[str], None] = note) -> Config:
        """Return the config the job was started with, for this cluster.

        at_ms: as of then, 0 = now. tell: takes a line where the tables don't say, and where --conf
        differs. Raises CommandError when there are no tables.
        """
        own, reader = self.config.for_cluster(self.cluster), self.reader()
        job = started_with(reader, own, at_ms)
        if job is own:
            tell(FROM_FILES)
            return own
        if not self.named:
            return job
        asked = started_with(reader, own, at_ms, self.named)
        for line in describe_differences(asked, job):
            tell(f"answered by --conf, not by what the job has: {line}")
        return asked

    def around(self, *, asks_kafka: bool = True) -> JobSurroundings:
        """Return the job's state from outside the tables: Kafka, its log, its supervisor.

        Takes a second where Kafka hangs; Kafka is not asked where its address is not known.
        """
        log = self.layout.logs / "balance_cluster.log"
        try:
            trouble = kafka_trouble(self.address()) if asks_kafka else ""
        except CommandError:
            trouble = ""
        return JobSurroundings(
            kafka=trouble,
            log=str(log) if log.exists() else "",
            is_supervised=self.layout.is_held(),
        )

    def address(self) -> KafkaAddress:
        """Kafka; raises CommandError when it is not known where."""
        configured = bool(self.config.kafka.bootstrap_servers)
        bootstrap = self.bootstrap or ("" if configured else _local_bootstrap(self.layout))
        return kafka_address(self.config, bootstrap)


def add_stack_arguments(parser: argparse.ArgumentParser, *, with_kafka: bool = True) -> None:
    """Options that say where the cluster is."""
    group = parser.add_argument_group("where (without options: the run of `make run`)")
    add_cluster_option(group)
    group.add_argument(
        "--state-dir",
        type=Path,
        default=STATE_DIR,
        metavar="DIR",
        help=STATE_DIR_HELP,
    )
    add_tables_option(group)
    if with_kafka:
        group.add_argument("--bootstrap", default="", metavar="HOST:PORT", help="Kafka's address")
    group.add_argument(
        "--conf", action="append", metavar="NAME", help="overlay, by name or path; may be repeated"
    )


def add_cluster_option(to: argparse._ActionsContainer) -> None:
    """Add the option for the cluster's name."""
    known = os.environ.get(CLUSTER_VARIABLE) or CLUSTER
    about = f"default ${CLUSTER_VARIABLE}, or {CLUSTER}"
    to.add_argument("--cluster", default=known, metavar="NAME", help=about)


def add_tables_option(to: argparse._ActionsContainer) -> None:
    """Add the option for the place of the tables."""
    to.add_argument(
        "--tables",
        type=table_place,
        default=os.environ.get(TABLES_VARIABLE),
        metavar="DIR",
        help=f"folder of the Delta tables, or s3://bucket/prefix (${TABLES_VARIABLE})",
    )


def connection_options(args: argparse.Namespace) -> ConnectionOptions:
    """Read the options; raises MisuseError for settings that can't be used."""
    layout = Layout(root=args.state_dir.absolute())
    config = _config(args, layout)
    is_named = args.conf is not None
    return ConnectionOptions(
        layout=layout,
        tables=args.tables or layout.tables,
        cluster=args.cluster,
        config=config,
        bootstrap=getattr(args, "bootstrap", ""),
        named=named_keys(config.for_cluster(args.cluster)) if is_named else frozenset(),
    )


def _config(args: argparse.Namespace, layout: Layout) -> Config:
    """Return the config of options or environment, else that of the local run."""
    is_named = args.conf is not None or args.tables is not None or overlay_names()
    kept = None if is_named else layout.settings()
    return load_settings(args.conf) if kept is None else load_settings(*kept)


def _local_bootstrap(layout: Layout) -> str:
    try:
        return f"127.0.0.1:{int(json.loads((layout.kafka / 'ports.json').read_text())['client'])}"
    except (OSError, ValueError, KeyError, TypeError):
        raise CommandError(
            "it is not known where Kafka is",
            why=f"{layout.root} is not the state folder of a local run, and neither --bootstrap "
            "nor kafka.bootstrap_servers names a broker",
            next_step="start a run with `ballast run-local`, name its folder with --state-dir, or "
            "give --bootstrap and --tables",
        ) from None
