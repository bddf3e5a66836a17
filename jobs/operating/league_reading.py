"""The league of a cluster's own load, as the tables keep it: what the newest backtest found.

Decides nothing; apart from `kept_backtests` so that whoever only reads needs no simulator. Source:
ours.
"""

from typing import Any

from jobs.adapters.delta.table_reader import TableReader
from lbcore.explain.kept_backtests import newest_run
from lbcore.model.backtest_tables import BACKTESTS


def read_league(reader: TableReader) -> dict[str, Any]:
    """The newest run, its strategies the best first. O(rows of the table)."""
    return newest_run(reader.rows(BACKTESTS.name))
