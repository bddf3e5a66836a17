"""Which command an id stands for: a digest of who asked for what, beside the command's status.

Decides whether a command that comes under a known id is the same again. Only the same is answered
with what became of the first; anything else under its id is not carried out. Source: ours; the
idea of a fingerprint is that of the Idempotency-Key header (draft-ietf-httpapi-idempotency-key).
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from lbcore.balancer.state.effects import to_json
from lbcore.wire.messages import Command

_DIGEST_BYTES = 8


def identity_of(kind: str, arguments: Mapping[str, Any], principal: str) -> str:
    """16 hexadecimal digits, equal for equal commands, whatever the order of their arguments."""
    text = to_json([kind, arguments, principal])
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).hexdigest()


def identity(command: Command) -> str:
    """Of a command as it was sent."""
    return identity_of(command.kind, command.arguments, command.principal)


def remember(status: str, asked: str) -> str:
    """What the state holds of a command that has an outcome. asked: its identity."""
    return f"{status} {asked}"


def status_of(remembered: str) -> str:
    """The outcome's status; states of before have nothing else."""
    return remembered.partition(" ")[0]


def is_same(remembered: str, command: Command) -> bool:
    """Whether a command may be the one that is remembered; of an older state any may."""
    asked = remembered.partition(" ")[2]
    return not asked or asked == identity(command)
