"""The whole configuration: one frozen tree, its sections as attributes.

`config.load` makes it from mappings; `for_cluster` gives the tree of one cluster, so code that
reads a section need not know about clusters.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, get_type_hints

from lbcore.config.cluster import ClusterConfig, LimitsConfig, TelemetryConfig
from lbcore.config.lookup import LookupConfig
from lbcore.config.ownership import AgentConfig, OwnershipConfig
from lbcore.config.pipeline import KafkaConfig, Pipeline, TopicsConfig
from lbcore.config.placement import FilterConfig, PlacementConfig
from lbcore.config.setting import Entry, entries
from lbcore.config.shedding import IdealLoadConfig, SheddingConfig, TransferConfig
from lbcore.config.signals import SignalsConfig
from lbcore.config.splitting import Splitting
from lbcore.model.names import Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomStrategy:
    """One strategy that is not Ballast's.

    name: what `shedding.strategy` says. origin: where its code is, "package.module:NAME". digest:
    sha256 of that code, hexadecimal. decide: see `lbcore.plan.snapshot`; None = it could not be
    loaded, and problem says why and what to do.
    """

    name: str
    origin: str = ""
    digest: str = ""
    decide: Callable[..., Any] | None = None
    problem: str = ""

    @property
    def code(self) -> str:
        """Identifier of the code, short enough for a row."""
        return f"{self.origin}@{self.digest[:12]}"


CLUSTERS = "clusters"
"""The section of files, and the first word of keys, for settings of single clusters."""

DEFAULT, ON_COMMAND_LINE, BY_COMMAND = "default", "--set", "command"
"""Where a value comes from, if not from a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Every setting.

    per_cluster: cluster → "section.name" → its own, checked value. own: name → a strategy that is
    not Ballast's, as the process has loaded it; it is no setting, but its digest is in the version.
    origins: "section.name", or "clusters.NAME.section.name" → who set it: an overlay's file,
    ON_COMMAND_LINE or BY_COMMAND; defaults have no entry. Comparisons ignore it.
    """

    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    pipeline: Pipeline = field(default_factory=Pipeline)
    signals: SignalsConfig = field(default_factory=SignalsConfig)
    shedding: SheddingConfig = field(default_factory=SheddingConfig)
    transfer: TransferConfig = field(default_factory=TransferConfig)
    ideal_load: IdealLoadConfig = field(default_factory=IdealLoadConfig)
    placement: PlacementConfig = field(default_factory=PlacementConfig)
    filters: FilterConfig = field(default_factory=FilterConfig)
    splitting: Splitting = field(default_factory=Splitting)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    ownership: OwnershipConfig = field(default_factory=OwnershipConfig)
    agent: AgentConfig = field(default_factory=AgentConfig)
    wire: Wire = field(default_factory=Wire)
    kafka: KafkaConfig = field(default_factory=KafkaConfig)
    topics: TopicsConfig = field(default_factory=TopicsConfig)
    lookup: LookupConfig = field(default_factory=LookupConfig)
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)
    per_cluster: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    own: Mapping[str, CustomStrategy] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)

    def for_cluster(self, cluster: str) -> "Config":
        """Return the settings of one cluster: the shared ones, changed by its own."""
        prefix = f"{CLUSTERS}.{cluster}."
        shared = {key: by for key, by in self.origins.items() if key in SETTINGS}
        own = {
            key.removeprefix(prefix): by
            for key, by in self.origins.items()
            if key.startswith(prefix)
        }
        config = replace(self, per_cluster={}, origins={**shared, **own})
        return changed(config, self.per_cluster.get(cluster, {}))


SECTIONS: Mapping[str, type] = {
    section.name: get_type_hints(Config)[section.name]
    for section in fields(Config)
    if section.name not in ("per_cluster", "own", "origins")
}
SETTINGS: Mapping[str, Entry] = {entry.key: entry for entry in entries(SECTIONS)}

SHARED_SECTIONS = frozenset({"wire", "kafka", "topics", "lookup"})
"""Sections that are the same for all clusters; of `pipeline` and `telemetry` only dynamic settings
may differ."""

UNDECIDING_SECTIONS = frozenset({"agent", "kafka", "topics", "lookup", "telemetry"})
"""Sections that don't affect decisions: they are not in the configuration's version."""


PULSAR_EXACT = "shedding.is_pulsar_exact"
_CORRECTIONS = tuple(
    (section, one.name, one.default, one.metadata["correction"])
    for section, declaring in SECTIONS.items()
    for one in fields(declaring)
    if "correction" in one.metadata
)
"""Section, name, own value and Pulsar's of each `correction`."""
_DERIVED = tuple(
    (section, one.name, *one.metadata["derived"])
    for section, declaring in SECTIONS.items()
    for one in fields(declaring)
    if "derived" in one.metadata
)
"""Section, name, sources and function of each `derived`."""


def changed(config: Config, values: Mapping[str, Any], origin: str = "") -> Config:
    """Return the configuration with checked values.

    Keys: "section.name". origin: who set them, if known.
    """
    changes: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        entry = SETTINGS[key]
        changes.setdefault(entry.section, {})[entry.name] = value
    if PULSAR_EXACT in values:
        is_exact = replace(config.shedding, **changes["shedding"]).is_pulsar_exact
        for section, name, own, exact in _CORRECTIONS:
            changes.setdefault(section, {})[name] = exact if is_exact else own
    sections = {name: replace(getattr(config, name), **new) for name, new in changes.items()}
    origins = {**config.origins, **dict.fromkeys(values, origin)} if origin else config.origins
    config = replace(config, **sections, origins=origins)
    for section, name, sources, by in _DERIVED:
        if not values.keys().isdisjoint(sources):
            followed = replace(getattr(config, section), **{name: by(config)})
            config = replace(config, **{section: followed})
    return config


def value_of(config: Config, entry: Entry) -> Any:
    """Return the value of one setting."""
    return getattr(getattr(config, entry.section), entry.name)


def is_per_cluster(entry: Entry) -> bool:
    """Return True if a setting may differ from cluster to cluster."""
    if entry.section in ("pipeline", "telemetry"):
        return entry.setting.dynamic
    return entry.section not in SHARED_SECTIONS
