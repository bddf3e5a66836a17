"""Validation of the load that a service reports, before an agent uses it.

An answer is reported whole, without some bundles, or not at all. The rules are those of the parser
that will read the report (`lbcore.wire`): a number that it refuses would cost the whole message,
and a wrong shape the agent's own thread.
"""

from collections.abc import Sequence, Sized
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from lbcore.agent.agent import AgentMachine
from lbcore.agent.reporting import Identity, LoadRead, TopicsRead
from lbcore.agent.state import Send
from lbcore.config.ownership import AgentConfig
from lbcore.config.signals import SignalsConfig
from lbcore.model.names import Wire
from lbcore.model.resources import LEAST_COUNT, WIRE_NAMES
from lbcore.wire.fields import (
    MAX_COUNT,
    MAX_NUMBER,
    MIN_POSITIVE_LIMIT,
    FieldRefusal,
    ParseRules,
    check_bundle,
    shown,
)
from lbcore.wire.fields import names as read_names
from lbcore.wire.format import busiest_topics, format_message
from lbcore.wire.messages import BUNDLE_COLUMNS, TRAFFIC, Floats, Rejected
from lbcore.wire.parse import parse

NAME_CHARS_MAX = 512

Read = TypeVar("Read")

_COUNTS = tuple(BUNDLE_COLUMNS.index(name) for name in BUNDLE_COLUMNS if name not in TRAFFIC)
_NUMBERS = "biufO"  # numpy's kinds of arrays; objects may be numbers, complex ones are none
_NO_NUMBER = "numbers must be finite and within [0, 1e18]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked(Generic[Read]):
    """Reportable part of an answer, and its fault.

    read: None = nothing can be reported. fault: "" = none; beside something to report: bundles or
    topics were left out.
    """

    read: Read | None
    fault: str = ""


class _UnusableError(Exception):
    """An answer that can't be reported; its text is the reason."""


def check_load(answer: object) -> Checked[LoadRead]:
    """Check the answer of `load`: unusable bundles are left out, else all or nothing."""
    try:
        return _load(answer)
    except _UnusableError as error:
        return Checked(read=None, fault=f"load() {error}")


def check_topics(answer: object) -> Checked[TopicsRead]:
    """Check one answer of `topics`: unusable topics are left out."""
    try:
        return _topics(answer)
    except _UnusableError as error:
        return Checked(read=None, fault=f"topics() {error}")


def identity_fault(identity: Identity) -> str:
    """Return the fault of an identity in reports, found by the parser; "" = none."""
    nothing = LoadRead(
        usage=np.zeros(len(WIRE_NAMES)),
        limit=np.full(len(WIRE_NAMES), -1.0),
        traffic=np.zeros(len(TRAFFIC)),
        bundles=(),
        stats=np.zeros((0, len(BUNDLE_COLUMNS))),
    )
    rules = ParseRules(clusters=frozenset({identity.cluster}), limits=Wire())
    try:
        step = AgentMachine(identity, AgentConfig(), SignalsConfig()).step(None, [nothing], 0)
        first = next(effect for effect in step.effects if isinstance(effect, Send))
        parsed = parse(*format_message(first.message), rules)
        if isinstance(parsed, Rejected):
            return parsed.detail
    except (ValueError, TypeError) as error:  # a lone surrogate, NaN, no number, no text
        return str(error)
    return ""


def _load(answer: object) -> Checked[LoadRead]:
    if not isinstance(answer, LoadRead):
        raise _UnusableError(f"must return a LoadRead, got {shown_type(answer)}")
    limit = _of_resources("limit", answer.limit, -1.0)
    usage = _of_resources("usage", answer.usage, 0.0)
    traffic = _numbers("traffic", answer.traffic, (len(TRAFFIC),))
    names = _listed("bundles", answer.bundles)
    stats = _numbers("stats", answer.stats, (len(names), len(BUNDLE_COLUMNS)))
    is_small = np.greater(limit, 0.0) & (limit < MIN_POSITIVE_LIMIT)
    if not (np.abs(limit) <= MAX_NUMBER).all() or is_small.any():
        detail = f"must give limits that are not positive, or within [{MIN_POSITIVE_LIMIT}, 1e18]"
        raise _UnusableError(detail)
    is_negative = np.greater(limit, 0.0) & (usage < 0.0)
    if not (np.abs(usage) <= MAX_NUMBER).all() or is_negative.any():
        raise _UnusableError("must give usages that are finite and, where limits are known, from 0")
    if not _are_usable(traffic).all():
        raise _UnusableError("must give a traffic that is finite and within [0, 1e18]")
    whole = stats.copy()
    whole[:, _COUNTS] = np.floor(whole[:, _COUNTS])
    kept, fault = _kept(names, whole, "bundle")
    offered, fault_of_offered = _offered(answer.offered_msg_rate, float(traffic[:2].sum()))
    read = LoadRead(
        usage=usage,
        limit=limit,
        traffic=traffic,
        bundles=tuple(names[row] for row in kept),
        stats=whole[kept],
        topic_count=_count("topic_count", answer.topic_count),
        consumer_count=_count("consumer_count", answer.consumer_count),
        producer_count=_count("producer_count", answer.producer_count),
        offered_msg_rate=offered,
    )
    fault = "; ".join(filter(None, (fault, fault_of_offered)))
    return Checked(read=read, fault=fault and f"load() {fault}")


def _topics(answer: object) -> Checked[TopicsRead]:
    if not isinstance(answer, TopicsRead):
        raise _UnusableError(f"must return TopicsRead for each bundle, got {shown_type(answer)}")
    if _name_fault(answer.bundle, is_bundle=True):
        raise _UnusableError(f"must name a bundle, got {shown(answer.bundle)}")
    names = _listed("topics", answer.topics)
    traffic = _numbers("traffic", answer.traffic, (len(names), len(TRAFFIC)))
    kept, fault = _kept(names, traffic, "topic")
    topics, shown_traffic = busiest_topics([names[row] for row in kept], traffic[kept])
    left_out = len(kept) - len(topics)
    if left_out:
        too_many = f"leaves out the {left_out} least busy topics, as a report has no room for them"
        fault = "; ".join(filter(None, (fault, too_many)))
    read = TopicsRead(bundle=answer.bundle, topics=topics, traffic=shown_traffic)
    return Checked(read=read, fault=fault and f"topics() of {answer.bundle} {fault}")


def _offered(value: Any, served: float) -> tuple[float | None, str]:
    """Return the offered load that can be reported, and the fault of the given one."""
    if value is None:
        return None, ""
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(
        value, bool
    )
    if is_number and served <= value <= MAX_NUMBER:
        return float(value), ""
    return None, (
        "reports no offered_msg_rate; it must be a finite number from what is served"
        f" ({served:g} msg/s), got {shown(value)}"
    )


def shown_type(value: object) -> str:
    """Return the name of a value's type, for a message: its text may hold anything."""
    return type(value).__name__


def _numbers(field: str, values: Any, shape: tuple[int, ...]) -> Floats:
    """Return float64 of this shape from a sequence; no rows may have any width."""
    try:
        found = np.array(values)
        made = found.astype(np.float64) if found.dtype.kind in _NUMBERS else None
    except (TypeError, ValueError, OverflowError):
        made = None
    if made is None:
        raise _UnusableError(f"must give numbers as {field}, got {shown_type(values)}")
    if made.size == 0 and shape[0] == 0:
        return np.zeros(shape)
    if made.shape != shape:
        raise _UnusableError(f"must give {field} of shape {shape}, got {made.shape}")
    return made


def _of_resources(field: str, values: Any, unknown: float) -> Floats:
    """Return float64 of each resource; an older service may leave out the newest one."""
    count = len(WIRE_NAMES)
    given = len(values) if isinstance(values, Sized) else count
    kept = given if LEAST_COUNT <= given < count else count
    return np.append(_numbers(field, values, (kept,)), np.full(count - kept, unknown))


def _listed(field: str, values: Any) -> Sequence[Any]:
    if not isinstance(values, (list, tuple)):
        raise _UnusableError(f"must give {field} as a tuple, got {shown_type(values)}")
    return values


def _count(field: str, value: Any) -> int:
    is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_whole or not 0 <= value <= MAX_COUNT:
        raise _UnusableError(f"must give {field} as a whole number from 0, got {shown(value)}")
    return int(value)


def _are_usable(values: Floats) -> NDArray[np.bool_]:
    return np.greater_equal(values, 0.0) & np.less_equal(values, MAX_NUMBER)  # never NaN


def _kept(names: Sequence[Any], numbers: Floats, what: str) -> tuple[list[int], str]:
    """Return the usable rows, and a sentence about the others. O(names)."""
    are_numbers: list[bool] = np.asarray(_are_usable(numbers).all(axis=1)).tolist()
    kept: list[int] = []
    seen: set[str] = set()
    wrong: list[tuple[Any, str]] = []
    for row, name in enumerate(names):
        fault = _name_fault(name, is_bundle=what == "bundle")
        fault = fault or ("it comes twice" if name in seen else "")
        fault = fault or ("" if are_numbers[row] else _NO_NUMBER)
        if fault:
            wrong.append((name, fault))
        else:
            kept.append(row)
            seen.add(name)
    if not wrong:
        return kept, ""
    name, fault = wrong[0]
    return kept, f"leaves {len(wrong)} {what}s out of the report; {shown(name)}: {fault}"


def _name_fault(name: Any, *, is_bundle: bool) -> str:
    try:
        if not (type(name) is str and name.isascii() and 0 < len(name) <= NAME_CHARS_MAX):
            (read,) = read_names([name], "names", NAME_CHARS_MAX)
            read.encode()
        if is_bundle:
            check_bundle(name)
    except FieldRefusal as refusal:
        return refusal.detail
    except UnicodeEncodeError:
        return "it must not have lone surrogates"
    return ""
