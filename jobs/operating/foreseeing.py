"""Asks `lbcore.foresight.forecast` what the next cycles would do.

Decides what a strategy's name stands for; `outlook` words the answer. Nothing is sent. Used by the
verb and by the service.
"""

from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.processes.clocks import wall_ms
from jobs.adapters.processes.settings import require_loaded
from jobs.console import CommandError, MisuseError
from jobs.operating.outlook import Outlook
from jobs.operating.simulations import STRATEGIES, settings_with
from jobs.operating.status_rows import read_rehearsal_rows
from jobs.operating.text_format import did_you_mean
from lbcore.config.tree import Config, changed
from lbcore.config.values import ConfigError
from lbcore.foresight.forecast import Impossible, WhatIf, foresee
from lbcore.plan.shed.custom import custom_shedding


def look_ahead(reader: TableReader, config: Config, strategy: str, what_if: WhatIf) -> Outlook:
    """Forecast the next cycles. config: the one the job was started with.

    strategy: "" = as it is set. Raises MisuseError for a question that can't be asked, CommandError
    for one without an answer.
    """
    asked = WhatIf(
        settings=(*settings_of(strategy, config), *what_if.settings),
        add_brokers=what_if.add_brokers,
        remove_brokers=what_if.remove_brokers,
    )
    writer, now_ms = reader.writer(), wall_ms()
    try:
        found = foresee(config, reader.cluster, read_rehearsal_rows(reader), now_ms, asked)
    except ConfigError as error:
        raise MisuseError(
            "these settings can't be used",
            why="; ".join(map(str, error.problems)),
            next_step="correct them; `ballast config show` lists every setting with its range",
        ) from None
    if isinstance(found, Impossible):
        raise CommandError(
            "this can't be foreseen",
            why=found.reason,
            next_step="`ballast status` lists the brokers as they are",
        )
    age_ms = -1 if writer is None else max(0, now_ms - writer.now_ms)
    return Outlook(found=found, tables_age_ms=age_ms)


def settings_of(strategy: str, config: Config) -> tuple[str, ...]:
    """Return the settings of a strategy: its shedding rule and a suitable placement."""
    if not strategy:
        return ()
    if strategy in config.own:
        own = require_loaded(changed(config, {"shedding.strategy": strategy})).own[strategy]
        return settings_with(custom_shedding(own))
    if strategy not in STRATEGIES:
        raise MisuseError(
            f"there is no strategy {strategy!r} to plan with",
            why=f"there are {', '.join([*STRATEGIES, *sorted(config.own)])}",
            next_step=did_you_mean(strategy, [*STRATEGIES, *config.own])
            + "take one of them, or set settings with --set",
        )
    return STRATEGIES[strategy]
