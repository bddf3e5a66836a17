"""The table of command kinds, and how their arguments are read and written.

Checks that arguments suit their kind. The balancer checks whether the command is possible now, and
answers in the table `commands`. Verbs and the admin service make a kind's dataclass and write it
with `format_arguments`. The kinds follow Pulsar's admin interface (4.0.8).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lbcore.model.names import nearest
from lbcore.wire.arguments import CommandArguments, read_arguments, written_arguments
from lbcore.wire.fields import FieldRefusal, shown
from lbcore.wire.kinds.balancing_commands import BALANCING_COMMANDS, BROKER_COMMANDS
from lbcore.wire.kinds.bundle_commands import BUNDLE_COMMANDS
from lbcore.wire.kinds.mirror_commands import MIRROR_COMMANDS
from lbcore.wire.kinds.namespace_commands import NAMESPACE_COMMANDS, RECORD_COMMANDS
from lbcore.wire.messages import RejectReason

_DECLARED = (
    *NAMESPACE_COMMANDS,
    *BUNDLE_COMMANDS,
    *BROKER_COMMANDS,
    *BALANCING_COMMANDS,
    *RECORD_COMMANDS,
    *MIRROR_COMMANDS,
)
KINDS: Mapping[str, type[CommandArguments]] = {one.spec.kind: one for one in _DECLARED}


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedArguments:
    """Refused arguments: a reason, and a sentence for the caller."""

    reason: RejectReason
    detail: str


def parse_arguments(kind: str, given: Mapping[str, Any]) -> CommandArguments | RefusedArguments:
    """Return the kind's dataclass, or the refusal; never raises on JSON values.

    An argument that isn't known is refused: a misspelt destination must not be ignored.
    """
    declaring = KINDS.get(kind)
    if declaring is None:
        near = nearest(kind, tuple(KINDS))
        advice = f"did you mean {near}?" if near else f"there are {', '.join(KINDS)}"
        detail = f"there is no command {shown(kind)}; {advice}"
        return RefusedArguments(reason=RejectReason.UNKNOWN_KIND, detail=detail)
    try:
        arguments = read_arguments(declaring, given)
        if declaring.spec.check is not None:
            declaring.spec.check(arguments)
    except FieldRefusal as refusal:
        return RefusedArguments(reason=refusal.reason, detail=refusal.detail)
    return arguments


def format_arguments(arguments: CommandArguments) -> tuple[str, dict[str, Any]]:
    """Kind and arguments of the command, as `Command` carries them."""
    return arguments.spec.kind, written_arguments(arguments)
