"""Declaration of a kind of command, in one place, beside its arguments.

The parser, the verbs, the HTTP paths, the rights, docs/commands.md and the tests read it. A kind is
a frozen dataclass of its arguments (its docstring is the help) that has this record as `about`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

VERB_TIMEOUT_MS = 60_000


def _fits(_: Any) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandVerb:
    """Command line by which users send the command with `ballast`.

    words: the verb, followed by the action if the verb has several. example: arguments that may
    follow them. optional: positions that may be left out. timeout_ms: maximum wait for the command,
    unless specified otherwise.
    """

    words: str
    example: str
    optional: tuple[str, ...] = ()
    timeout_ms: int = VERB_TIMEOUT_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAbout:
    """All that is declared of a kind beside its arguments and its handler.

    kind: its name in messages. is_operating: an operator may ask for it; the others take an admin.
    is_of_authority: refused where another authority owns the cluster. verb: None = no person sends
    it. sample: arguments as JSON that suit a cluster of broker-0:8080 to broker-8:8080 whose
    namespace acme/orders has 16 bundles. after: kinds whose samples, carried out before it, make it
    possible. afterwards: what may be done next, told with its outcome; {names} are arguments and
    values of its result. when_refused: what helps then. check: raises FieldRefusal for arguments
    that don't suit each other.
    """

    kind: str
    sample: Mapping[str, Any]
    is_operating: bool = False
    is_of_authority: bool = False
    verb: CommandVerb | None = None
    after: tuple[str, ...] = ()
    afterwards: str = ""
    when_refused: str = (
        "put right what it says and ask again; --dry-run says beforehand what would come"
    )
    check: Callable[[Any], None] = _fits


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandArguments:
    """The arguments of some command; each kind is a class of its own."""

    about: ClassVar[CommandAbout]
