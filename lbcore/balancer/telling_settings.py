"""Tells the tables what the job decides by, whenever that is not what they were told last.

Decides when: with the first batch after a start that was configured otherwise, and with each change
by a command or by what is set aside. Part of `balancer`. Source: ours.
"""

from lbcore.balancer.state.memo import remembered
from lbcore.balancer.state.work import Work
from lbcore.config.told import told_digest, told_rows
from lbcore.model.settings_tables import SETTINGS_IN_FORCE


def write_settings(work: Work) -> None:
    """A row for each setting, if any is not as it was told. O(settings), once for each change."""
    started, present = work.base_config, work.config

    def made() -> tuple[list[dict[str, str]], str]:
        rows = told_rows(started, present, work.config_version)
        return rows, told_digest(rows)

    of = (started, present, started.origins, present.origins)
    rows, digest = remembered(work.packed, "told", of, made)
    if digest != work.told:
        work.told = digest
        for row in rows:
            work.add_row(SETTINGS_IN_FORCE.name, dict(row))
