"""The table of what shadows would have done: a row a shadow and cycle.

Decides nothing; `tables` lists it with the others. Source: ours.
"""

from lbcore.model.table import Table, column

SHADOW_DECISIONS = Table(
    name="shadow_decisions",
    doc="What each strategy of `cluster.shadow` would have done in a cycle, and how even it is.",
    columns=(
        column("cluster", "string", "cluster"),
        column("cycle", "long", "number of the decision cycle"),
        column("strategy", "string", "the shadow's strategy"),
        column("reason", "string", "why it would have moved nothing; '' = it would have moved"),
        column("moves", "int", "bundles that it would have moved"),
        column("moved_msg_rate", "double", "what they carry, msg/s in and out"),
        column("splits", "int", "bundles that it would have split; those are not followed"),
        column("elsewhere", "int", "bundles that are elsewhere than under the acting strategy"),
        column("imbalance", "double", "of the cluster as reported when it planned; NaN = no load"),
        column("floor_adjusted", "double", "and what of it moves could mend"),
        column("shadow_imbalance", "double", "of the cluster as its own earlier moves left it"),
        column("shadow_floor_adjusted", "double", "and what of that moves could mend"),
        column("steps", "string", "JSON list of bundle, source, destination, reason; 50 at most"),
        column("at_ms", "long", "time of the batch that wrote it"),
        column("batch_id", "long", "micro-batch that wrote it"),
    ),
)
