"""Settings in force of the job, as told to the tables, for verbs and the service.

Decides the precedence: first what the asker names explicitly, then what the job was started with.
Last come the asker's own files, for what the job doesn't tell and for tables from before it told.
Changes made by commands come on top elsewhere (`in_force`).
"""

from collections.abc import Collection
from dataclasses import replace

from jobs.adapters.delta.table_reader import TableReader
from lbcore.config.own_strategy import OwnStrategy
from lbcore.config.told import as_started
from lbcore.config.tree import Config
from lbcore.model.settings_tables import SETTINGS_IN_FORCE
from lbcore.plan.registry import SHEDDING_STRATEGIES, shedding_name

FROM_FILES = "the tables don't tell what the job was started with: answered by the files here"
"""Said where a job of an older version wrote the tables."""


def started_with(
    reader: TableReader, config: Config, at_ms: int = 0, kept: Collection[str] = ()
) -> Config:
    """The settings that the job was started with; the given ones themselves where none are told.

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
    return replace(found, own={**found.own, name: OwnStrategy(name=name, problem=why)})
