"""What Spark hands to the sink: a batch's effects, as far as the sink uses a data frame."""

from collections.abc import Iterable

import pyarrow as pa

from jobs.adapters.spark.operators import EFFECT_SCHEMA
from lbcore.balancer.state.effects import REPORT, Effect, pack_effect


class EffectsFrame:
    """The effects of one cluster's batch; those without rows are left out, as the operator does."""

    def __init__(self, effects: Iterable[Effect], cluster: str) -> None:
        self.effects = wanted = [one for one in effects if one.rows or one.kind == REPORT]
        self._table = pa.table(
            {
                "cluster": [cluster] * len(wanted),
                "kind": [one.kind for one in wanted],
                "blob": [pack_effect(one) for one in wanted],
            }
        )
        assert [name for name in self._table.column_names if name not in EFFECT_SCHEMA] == []

    def toArrow(self) -> pa.Table:  # noqa: N802 (Spark's name)
        return self._table
