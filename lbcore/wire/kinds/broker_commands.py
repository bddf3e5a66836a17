"""Commands about brokers, each with all that is declared of it.

Decides whether arguments suit their kind; what becomes of one is `balancer.commands.brokers`'s to
say.
"""

from dataclasses import dataclass
from typing import ClassVar

from lbcore.wire import arguments as read
from lbcore.wire.arguments import argument
from lbcore.wire.kinds.command_about import CommandAbout, CommandArguments, CommandVerb

_YEAR_MS = 365 * 86_400_000
_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainBroker(CommandArguments):
    """Move everything away from a broker."""

    about: ClassVar[CommandAbout] = CommandAbout(
        kind="drain_broker",
        is_operating=True,
        verb=CommandVerb(
            words="broker drain",
            example="broker-3 --max-in-flight 20 --deadline 30m",
            timeout_ms=_HOUR_MS,
        ),
        sample={"broker": "broker-7:8080", "max_in_flight": 1, "deadline_ms": 60000},
    )
    broker: str = argument(read.broker, "broker to empty")
    max_in_flight: int = argument(
        read.whole(0, 1_000_000), "bundles that move at once; 0 = as configured", 0
    )
    deadline_ms: int = argument(
        read.whole(0, _YEAR_MS), "time after which it is given up; 0 = never", 0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelDrain(CommandArguments):
    """Let a broker that is being drained take bundles again."""

    about: ClassVar[CommandAbout] = CommandAbout(
        kind="cancel_drain",
        is_operating=True,
        verb=CommandVerb(words="broker cancel-drain", example="broker-3"),
        sample={"broker": "broker-7:8080"},
        after=("drain_broker",),
        afterwards="what has left it stays where it is; `ballast plan undo --drain {broker}`"
        " proposes to move it back",
    )
    broker: str = argument(read.broker, "broker that is drained")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetBroker(CommandArguments):
    """Remove a broker that is gone for good from the list."""

    about: ClassVar[CommandAbout] = CommandAbout(
        kind="forget_broker",
        verb=CommandVerb(words="broker forget", example="broker-3"),
        sample={"broker": "broker-8:8080"},
    )
    broker: str = argument(read.broker, "broker that is silent")


BROKER_COMMANDS: tuple[type[CommandArguments], ...] = (
    DrainBroker,
    CancelDrain,
    ForgetBroker,
)
