"""The tables of what the job has in mind: a row a part, written when it changes.

`tables` lists them with the others.
"""

from lbcore.model.table import Table, column

PLANNING_MEMORY = Table(
    name="planning_memory",
    doc="What planning remembers from cycle to cycle; what moved lately stands in `decisions`.",
    key=("part",),
    columns=(
        column("cluster", "string", "cluster"),
        column("part", "string", "shedding, placement, split, unseen or hot"),
        column("strategy", "string", "strategy that the hits and averages are of"),
        column("memory", "string", "JSON object, as the job keeps it"),
        column("at_ms", "long", "time of the batch that wrote it: since when it is so"),
        column("batch_id", "long", "micro-batch that wrote it"),
    ),
)
