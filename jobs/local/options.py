"""Options of a local run."""

from dataclasses import dataclass

from lbcore.sim.load.load import LoadShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """Crash this broker so long after the streaming job's first batch."""

    broker: str
    after_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of one run. for_ms: None = until it is stopped; kills: in the order of time."""

    load: LoadShape
    speed: float
    kills: tuple[Kill, ...]
    for_ms: int | None
    is_headless: bool
    lookup_port: int | None
    overlays: tuple[str, ...]
    assignments: tuple[str, ...]
    lookups_per_s: float
