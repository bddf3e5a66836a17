"""A scenario as a value: cluster, load, events, expectations.

`parse` makes it from text, `lbcore.sim.engine.engine` runs it. Times count from the scenario's
start, in milliseconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lbcore.model.bundles import HashFunction, even_boundaries
from lbcore.sim.load.load import FULL_RATE_MSG_PER_S
from lbcore.sim.load.recording import Recording
from lbcore.sim.scenario.tokens import Rate

FOR_EVER_MS = 1 << 60
AS_RECORDED = "recorded"
"""The unit of a rate that is not changed: what a recording says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSpec:
    """A broker.

    foreign: percentage points of cpu that other processes on its machine take.
    """

    name: str
    capacity: float = 1.0
    domain: str = ""
    foreign: float = 0.0
    is_absent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceSpec:
    """A namespace, made at the start. topics: in each of its bundles.

    is_hashed: topics lie at random positions, otherwise evenly, as many in every bundle.
    boundaries, positions: of its bundles and topics, ascending, where they are as recorded.
    """

    name: str
    bundles: int
    topics: int = 5
    hash: HashFunction = HashFunction.CRC32
    is_hashed: bool = False
    boundaries: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()

    @property
    def edges(self) -> tuple[int, ...]:
        """The boundaries of the bundles that it begins with, ascending."""
        return self.boundaries or tuple(even_boundaries(self.bundles))


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerSpec:
    """Owners of bundles first to last at the start: these brokers in turn."""

    namespace: str
    first: int
    last: int
    brokers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSpec:
    """One part of the load; parts add up.

    spread: how it lies over topics (`parse.SPREADS`). first, last: only these of the bundles that
    the namespace began with. from_ms, to_ms: when; length_ms: duration; every_ms: period of its
    repetition, 0 = once. grow_ms: time to grow from 0. wave_ms, depth: period and amplitude of a
    wave around its amount. width, jump_ms: share of the hash range and interval of a hotspot.
    alpha: of pareto. file: path of a recording, as in the text; of, cluster: namespace and cluster
    of the recording that are replayed, "" = the same namespace, the only cluster.
    """

    namespace: str
    spread: str
    rate: Rate
    first: int = 0
    last: int = -1
    from_ms: int = 0
    to_ms: int = FOR_EVER_MS
    length_ms: int = FOR_EVER_MS
    every_ms: int = 0
    grow_ms: int = 0
    wave_ms: int = 0
    depth: float = 0.6
    width: float = 0.06
    jump_ms: int = 600_000
    alpha: float = 0.0
    seed: int = 0
    file: str = ""
    of: str = ""
    cluster: str = ""
    line: int = 0

    @property
    def recording(self) -> str:
        """Key of its recording in `Scenario.recordings`."""
        return f"{self.file}#{self.cluster}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Noise of measurements.

    cpu: percentage points either way. traffic: share of each topic's load either way. Both are
    drawn again every step_ms.
    """

    cpu: float = 0.5
    traffic: float = 0.0
    step_ms: int = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A topic's clients, and what reconnecting costs them, in milliseconds.

    publishers, consumers: of each topic. retry_ms: their first pause between two lookups, 0 = they
    are told at once. accept: connections a second that a broker takes, 0 = any number.
    """

    base_ms: int = 5
    lookup_ms: int = 10
    connect_ms: int = 20
    retry_ms: int = 0
    accept: int = 0
    publishers: int = 1
    consumers: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioEvent:
    """An event.

    brokers: as written, ("all",) = every one. options: by name.
    """

    at_ms: int
    verb: str
    brokers: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """Expected value of a metric.

    metric: one of `metrics.METRICS`, perhaps with a stat. argument: the text after its colon.
    """

    metric: str
    argument: str
    operator: str
    value: float
    from_ms: int = 0
    to_ms: int = FOR_EVER_MS
    text: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A whole scenario. expected_output: the text below ----, "" = none yet.

    compared: the table of several strategies below it, "" = none.

    settings: "section.name=value" upon the defaults, or upon Pulsar's where is_pulsar.
    callback_ms: shortest and longest time that opening, closing or splitting a bundle takes.
    commit_ms: from a batch's start until brokers read its records. full_rate: messages in + out a
    second that make 100 % of a broker of capacity 1. recordings: what `LoadSpec.file` names.
    reports_offered: brokers report the offered load, too.
    """

    title: str = ""
    seed: int = 1
    run_ms: int = 0
    sample_ms: int = 10_000
    brokers: tuple[BrokerSpec, ...] = ()
    namespaces: tuple[NamespaceSpec, ...] = ()
    owners: tuple[OwnerSpec, ...] = ()
    loads: tuple[LoadSpec, ...] = ()
    noise: Noise = Noise()
    client: Client = Client()
    callback_ms: tuple[int, int] = (50, 300)
    commit_ms: int = 300
    is_pulsar: bool = False
    settings: tuple[str, ...] = ()
    scenario_events: tuple[ScenarioEvent, ...] = ()
    expectations: tuple[Expectation, ...] = ()
    expected_output: str = ""
    compared: str = ""
    full_rate: float = FULL_RATE_MSG_PER_S
    reports_offered: bool = False
    recordings: Mapping[str, Recording] = field(default_factory=dict)
