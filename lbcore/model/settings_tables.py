"""The table of what the job decides by: a row a setting, all of them whenever one changes.

`tables` lists it with the others.
"""

from lbcore.model.table import Table, column

SETTINGS_IN_FORCE = Table(
    name="settings_in_force",
    doc="What the job decides by: every setting, all anew when one changes; the newest count.",
    columns=(
        column("cluster", "string", "cluster"),
        column("setting", "string", "section.name"),
        column("value", "string", "JSON: what holds"),
        column(
            "origin", "string", "default, --set, command (config_versions), or an overlay's file"
        ),
        column("started", "string", "JSON: what would hold if no command had changed it"),
        column("config_version", "string", "configuration in force, as in `decisions`"),
        column("at_ms", "long", "time of the batch that wrote it: since when it is so"),
        column("batch_id", "long", "micro-batch that wrote it"),
    ),
)
