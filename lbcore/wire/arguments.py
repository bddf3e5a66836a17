"""Declaration of a command's kind and arguments: a dataclass per kind.

The parser, the verbs, the HTTP paths, the rights, docs/commands.md and the tests read it. A kind is
a frozen dataclass of its arguments, its docstring is the help, and it has a `CommandSpec` as
`spec`. An argument that is missing, malformed or unknown is refused with a sentence for the
sender. The kinds are in `wire.kinds`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from functools import partial
from typing import Any, ClassVar, TypeVar

from lbcore.model.bundles import (
    HashFunction,
    InvalidRangeError,
    decode_boundary,
    explicit_boundaries,
)
from lbcore.model.names import InvalidNameError, check_namespace, nearest
from lbcore.wire import fields as wire
from lbcore.wire.fields import MAX_INT64, FieldRefusal, check_bundle, shown
from lbcore.wire.messages import RejectReason

Arguments = TypeVar("Arguments")
Reader = Callable[[Mapping[str, Any], str], Any]

MAX_CHARS = 4_096
MAX_ITEMS = 100_000
MAX_MOVES = 1_000
MAX_SETTINGS = 1_000
_PLAN_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")
_MAX_FLOAT = 1.7976931348623157e308


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """Declaration of one argument, beside its name, type and default."""

    read: Reader
    doc: str


def argument(read: Reader, doc: str, default: Any = MISSING) -> Any:
    """A dataclass field for one argument; without a default it must be given."""
    return field(default=default, metadata={"argument": Argument(read=read, doc=doc)})


def read_arguments(declaring: type[Arguments], given: Mapping[str, Any]) -> Arguments:
    """Return the arguments in their types; raises FieldRefusal."""
    declared = fields(declaring)  # type: ignore[arg-type]
    names = [item.name for item in declared]
    unknown = sorted(set(given) - set(names))
    if unknown:
        near = nearest(unknown[0], tuple(names))
        advice = f"did you mean {near}?" if near else f"there are {', '.join(names) or 'none'}"
        raise FieldRefusal(
            RejectReason.UNKNOWN_ARGUMENT, f"there is no argument {shown(unknown[0])}; {advice}"
        )
    missing = [item.name for item in declared if item.name not in given and item.default is MISSING]
    if missing:
        raise FieldRefusal(RejectReason.MISSING_FIELD, f"the argument {missing[0]} is missing")
    return declaring(
        **{
            item.name: item.metadata["argument"].read(given, item.name)
            for item in declared
            if item.name in given
        }
    )


def written_arguments(arguments: Any) -> dict[str, Any]:
    """Inverse of `read_arguments`: JSON values without defaults."""
    return {
        item.name: _plain(value)
        for item in fields(arguments)
        if (value := getattr(arguments, item.name)) != item.default
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


text = partial(wire.text, max_chars=MAX_CHARS)
nonempty = partial(wire.nonempty, max_chars=MAX_CHARS)
broker = partial(wire.name, max_chars=MAX_CHARS)
flag = wire.flag
percent = partial(wire.number, maximum=100.0)


def bundle(given: Mapping[str, Any], name: str) -> str:
    """A bundle's full name."""
    found = nonempty(given, name)
    check_bundle(found)
    return found


def namespace(given: Mapping[str, Any], name: str) -> str:
    """A namespace's name."""
    found = text(given, name)
    try:
        return check_namespace(found)
    except InvalidNameError as error:
        raise FieldRefusal(RejectReason.MALFORMED_NAMESPACE, str(error)) from None


def whole(minimum: int, maximum: int) -> Reader:
    """A whole number within [minimum, maximum]."""
    return lambda given, name: wire.integer(given, name, minimum=minimum, maximum=maximum)


def one_of(*choices: str) -> Reader:
    """One of a closed set of texts."""
    return lambda given, name: wire.choice(given, name, choices)


def hash_function(given: Mapping[str, Any], name: str) -> HashFunction:
    """The name of a hash function."""
    return HashFunction(wire.choice(given, name, [function.value for function in HashFunction]))


def texts(given: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """A list of texts that aren't empty."""
    return wire.names(wire.column(given, name, MAX_ITEMS), name, MAX_CHARS)


def boundaries(given: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """Return a namespace's boundaries, sorted, each once.

    Numbers or texts as Java reads them.
    """
    return _decoded(given, name, explicit_boundaries)


def positions(given: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """Hash values, numbers or texts as Java reads them, sorted, each once."""
    return _decoded(given, name, lambda items: tuple(sorted({decode_boundary(t) for t in items})))


def _filled(given: Mapping[str, Any], name: str, most: int, what: str) -> Mapping[str, Any]:
    """An object of 1 to so many items; what: one of them."""
    found = wire.mapping(given, name)
    if not found:
        raise FieldRefusal(RejectReason.OUT_OF_RANGE, f"{name} must have at least one {what}")
    if len(found) > most:
        raise FieldRefusal(RejectReason.TOO_LARGE, f"{name} must have at most {most} {what}s")
    return found


def settings(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return at least one setting with its value.

    A text, a number, true or false, or a list of texts. The configuration checks whether it suits
    the setting; values that no JSON or table can hold are refused here (NaN, infinity, more than 64
    bits, lone surrogates, nested values).
    """
    found = _filled(given, name, MAX_SETTINGS, "setting")
    for key, value in found.items():
        nonempty({name: key}, name)
        if type(value) not in _SETTING_READERS:
            raise FieldRefusal(
                RejectReason.WRONG_TYPE,
                f"{key} must be a text, a number, true, false or a list of texts,"
                f" got {shown(value)}",
            )
        _SETTING_READERS[type(value)](found, key)
    return found


_SETTING_READERS: Mapping[type, Reader] = {
    bool: flag,
    str: text,
    int: partial(wire.integer, minimum=-MAX_INT64),
    float: partial(wire.number, minimum=-_MAX_FLOAT, maximum=_MAX_FLOAT),
    list: lambda given, name: [
        text({name: item}, name) for item in wire.column(given, name, MAX_ITEMS)
    ],
}


def moves(given: Mapping[str, Any], name: str) -> Mapping[str, str]:
    """At least one bundle with the broker that it is to be moved to."""
    found = _filled(given, name, MAX_MOVES, "bundle")
    for key in found:
        bundle({name: key}, name)
        nonempty(found, key)
        broker(found, key)
    return found


def plan_name(given: Mapping[str, Any], name: str) -> str:
    """The name of a plan that waits for a person."""
    found = nonempty(given, name)
    if _PLAN_NAME.fullmatch(found) is None:
        raise FieldRefusal(
            RejectReason.OUT_OF_RANGE,
            f"{name} must be 1 to 40 letters, digits, - and _, got {shown(found)}",
        )
    return found


def _decoded(
    given: Mapping[str, Any], name: str, decode: Callable[[list[str]], tuple[int, ...]]
) -> tuple[int, ...]:
    items = wire.column(given, name, MAX_ITEMS)
    if set(map(type, items)) - {int, str}:
        raise FieldRefusal(RejectReason.WRONG_TYPE, f"{name} must hold numbers or texts of numbers")
    try:
        return decode([item if isinstance(item, str) else str(item) for item in items])
    except (InvalidRangeError, ValueError) as error:
        raise FieldRefusal(RejectReason.OUT_OF_RANGE, f"{name}: {error}") from None


VERB_TIMEOUT_MS = 60_000


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
class CommandSpec:
    """All that is declared of a kind besides its arguments and its handler.

    kind: its name in messages. is_for_operators: operators may send it; others need an admin.
    is_refused_when_external: refused where another authority owns the cluster. verb: None = nobody
    sends it by hand. sample: valid JSON arguments in a cluster of broker-0:8080 to broker-8:8080
    whose namespace acme/orders has 16 bundles. after: kinds whose samples must be carried out
    before it. afterwards: next step, shown with its outcome; {names} are arguments and values of
    its result. when_refused: what helps then. check: raises FieldRefusal for arguments that don't
    suit each other.
    """

    kind: str
    sample: Mapping[str, Any]
    is_for_operators: bool = False
    is_refused_when_external: bool = False
    verb: CommandVerb | None = None
    after: tuple[str, ...] = ()
    afterwards: str = ""
    when_refused: str = (
        "put right what it says and ask again; --dry-run says beforehand what would come"
    )
    check: Callable[[Any], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandArguments:
    """The arguments of some command; each kind is a class of its own."""

    spec: ClassVar[CommandSpec]
