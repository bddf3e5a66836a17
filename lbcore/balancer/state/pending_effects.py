"""Pending effects: moves of balancing whose effect is still to be seen, as the balancer has them.

Decides nothing; `move_effects` follows them. Source: ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lbcore import packing


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingEffect:
    """A bundle that was decided to move. moved_tick_ms: Kafka's time when it was opened, 0 = not.

    destination: "" = placement's to choose; then whoever gets it.
    """

    decision_id: str
    source: str
    destination: str
    decided_ms: int
    source_before: float
    destination_before: float
    moved_ms: int = 0
    moved_tick_ms: int = 0


def effects_to_plain(pending_effects: Mapping[str, PendingEffect]) -> dict[str, Any]:
    """What a packed state keeps."""
    return {bundle: packing.fields_of(one) for bundle, one in pending_effects.items()}


def effects_from_plain(plain: Mapping[str, Any]) -> dict[str, PendingEffect]:
    """The inverse of `effects_to_plain`."""
    return {bundle: PendingEffect(**one) for bundle, one in plain.items()}
