"""Columns: whatever a record declares comes back; what can't be packed is refused by its type."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Annotated, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lbcore import columns
from lbcore.model.resources import COUNT
from lbcore.plain import LEFT_OUT
from lbcore.scorer.group_update import (
    Arrivals,
    BrokerReport,
    BundleReport,
    GroupUpdate,
    Placed,
    RejectedMessage,
    pack_update,
    unpack_update,
)
from lbcore.wire.messages import (
    Ack,
    AckOutcome,
    Acks,
    AuditEntry,
    BrokerLoad,
    Command,
    Envelope,
    Position,
    Rejected,
    RejectReason,
    TopicLoad,
)

Floats = NDArray[np.float64]


class Colour(Enum):
    """An enum."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """A row and a number."""

    size: float
    marks: Annotated[Floats, columns.RowOf(3)]


@dataclass(frozen=True, kw_only=True)
class Sail:
    """Bytes and an enum."""

    colour: Colour
    raw: bytes


@dataclass(frozen=True, kw_only=True)
class Cart:
    """A field of each type."""

    number: int
    name: str
    is_old: bool
    wheels: tuple[Wheel, ...]
    drive: Wheel | Sail
    road: Annotated[Floats, columns.RowsOf(2)]
    stops: NDArray[np.int64]
    riders: Annotated[Sequence[str], columns.LINES]
    tags: tuple[str, ...] = ()
    prices: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    colour: Colour | None = None
    noise: Annotated[tuple[str, ...], LEFT_OUT] = ()
    spare: Wheel | None = None
    load: Wheel | Sail | None = None
    letter: bytes | None = None
    doors: Mapping[int, Sail] = field(default_factory=dict)
    crews: Mapping[str, Wheel | Sail] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Records in a record."""

    carts: tuple[Cart, ...]


def same(one: Any, other: Any) -> bool:
    """Equal in every field, arrays element by element and of one type."""
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and bool((one == other).all())
    if is_dataclass(one):
        return type(one) is type(other) and all(
            same(getattr(one, each.name), getattr(other, each.name)) for each in fields(one)
        )
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def wheel(size: float) -> Wheel:
    return Wheel(size=size, marks=np.array([size, 0.1, -2.0]))


CART = Cart(
    number=2**60,
    name="é\n",
    is_old=True,
    wheels=(wheel(0.1), wheel(1e300)),
    drive=wheel(2.0),
    road=np.arange(4.0).reshape(2, 2),
    stops=np.array([1, 2**60]),
    riders=["a", "", "b"],
    tags=("x",),
    prices={"bread": {3: 4}, "milk": {}},
    colour=Colour.BLUE,
    spare=wheel(3.0),
    load=Sail(colour=Colour.BLUE, raw=b"x"),
    letter=b"",
    doors={11: Sail(colour=Colour.RED, raw=b"\0"), 2: Sail(colour=Colour.BLUE, raw=b"")},
    crews={"b": wheel(1.0), "a": Sail(colour=Colour.RED, raw=b"y")},
)
EMPTY = Cart(
    number=0,
    name="",
    is_old=False,
    wheels=(),
    drive=Sail(colour=Colour.RED, raw=b"\0\xff"),
    road=np.empty((0, 2)),
    stops=np.zeros(0, dtype=np.int64),
    riders=[],
)


@pytest.mark.parametrize("carts", [(), (CART,), (EMPTY,), (EMPTY, CART, EMPTY, CART)])
def test_records_of_all_types_come_back(carts: tuple[Cart, ...]) -> None:
    blob = columns.pack_record(Fleet(carts=carts))
    found = columns.unpack_record(Fleet, blob)
    assert same(found, Fleet(carts=carts))
    assert columns.pack_record(found) == blob


def test_field_that_is_left_out_comes_back_as_its_default() -> None:
    loud = Cart(**{**vars(CART), "noise": ("bang",)})
    found = columns.unpack_record(Fleet, columns.pack_record(Fleet(carts=(loud,))))
    assert same(found.carts[0], CART)


def test_row_of_another_width_is_refused_with_its_field() -> None:
    bad = Cart(**{**vars(CART), "wheels": (Wheel(size=1.0, marks=np.zeros(4)),)})
    with pytest.raises(ValueError, match=r"wheels.marks must be 3 wide, got 4"):
        columns.pack_record(Fleet(carts=(bad,)))


def test_rows_that_only_fit_together_are_refused() -> None:
    wheels = tuple(Wheel(size=1.0, marks=np.zeros(width)) for width in (2, 4))
    bad = Cart(**{**vars(CART), "wheels": wheels})
    with pytest.raises(ValueError, match="inhomogeneous"):
        columns.pack_record(Fleet(carts=(bad,)))


def test_mapping_in_another_order_has_equal_bytes() -> None:
    turned = Cart(**{**vars(CART), "doors": dict(reversed(CART.doors.items()))})
    assert columns.pack_record(turned) == columns.pack_record(CART)


@pytest.mark.parametrize(
    "hint",
    [
        set[int],
        Mapping[float, int],
        Mapping[float, Sail],
        complex,
        str | int,
        Annotated[str, "odd"],
    ],
)
def test_type_that_cannot_be_packed_is_refused(hint: Any) -> None:
    with pytest.raises(TypeError, match="packed"):
        columns.column_of(hint)


ENVELOPE = Envelope(cluster="c", broker="b", incarnation="1", seq=2, reported_at_ms=3)
AT = Position(topic="acks", partition=1, offset=2**40, timestamp_ms=3)
ACKS = tuple(
    Ack(bundle="t/n/0x0_0x1", version_id=4, outcome=outcome, reason="é") for outcome in AckOutcome
)
MESSAGES: list[Acks | Command | AuditEntry | TopicLoad] = [
    Acks(envelope=ENVELOPE, acks=ACKS),
    Command(cluster="c", command_id="1", kind="drain", arguments={"broker": "b", "n": [1]}),
    Acks(envelope=ENVELOPE, acks=()),
    AuditEntry(cluster="c", principal="p", address="a", action="x", is_allowed=True),
    TopicLoad(envelope=ENVELOPE, bundle="t/n/a", topics=("x\ny",), traffic=np.ones((1, 4))),
    TopicLoad(envelope=ENVELOPE, bundle="t/n/b", topics=(), traffic=np.empty((0, 4))),
]
LOAD = BrokerLoad(
    envelope=ENVELOPE,
    usage=np.arange(float(COUNT)),
    limit=np.full(COUNT, -1.0),
    traffic=np.arange(4.0),
    topic_count=7,
    failure_domain="d",
    advertised_listeners={"in": {"brokerServiceUrl": "pulsar://b"}},
    is_draining=True,
)


def test_update_with_every_kind_of_message_comes_back() -> None:
    update = GroupUpdate(
        group=3,
        brokers=("b", "c"),
        incarnations=("1", "9"),
        arrivals=Arrivals(**{one.name: np.arange(3) for one in fields(Arrivals)}),
        loads=(
            BrokerReport(
                load=LOAD,
                percent=np.arange(float(COUNT)),
                weighted_max_ema=0.1,
                throughput_ema=1e9,
                reported_ms=3,
            ),
        ),
        bundles=(
            BundleReport(
                broker="b", incarnation="1", names=[], stats=np.empty((0, 8)), reported_ms=1
            ),
            BundleReport(
                broker="c",
                incarnation="9",
                names=["x", "y"],
                stats=np.arange(16.0).reshape(2, 8),
                reported_ms=2,
            ),
        ),
        placed=tuple(Placed(position=AT, message=message) for message in MESSAGES),
        rejected=(
            RejectedMessage(
                position=AT,
                rejected=Rejected(
                    reason=RejectReason.NOT_JSON, detail="d", raw=b"\0{", cluster="c"
                ),
            ),
        ),
        counts={"accepted": 2},
        ends={"acks": {0: 7, 11: 2**40}},
        faults=({"phase": "x", "count": 1},),
    )
    assert same(unpack_update(pack_update(update)), update)
