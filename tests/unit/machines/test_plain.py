"""Values as what JSON has: each declared type comes back; others are refused."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

import pytest

from lbcore.plain import LEFT_OUT, applied, plain_of


class Colour(Enum):
    """Colours."""

    RED = "red"


@dataclass(frozen=True)
class Sail:
    """A record with a field of each kind."""

    colour: Colour
    raw: bytes
    doors: Mapping[int, frozenset[str]]
    name: str | None = None
    noise: Annotated[tuple[str, ...], LEFT_OUT] = ()


@pytest.mark.parametrize(
    "sail",
    [
        Sail(Colour.RED, b"", {}),
        Sail(Colour.RED, b"\0\xff", {3: frozenset("ab"), -1: frozenset()}, name="x"),
    ],
)
def test_record_comes_back_without_what_is_left_out(sail: Sail) -> None:
    way = plain_of(Sail)
    loud = Sail(sail.colour, sail.raw, sail.doors, sail.name, noise=("bang",))
    assert applied(way.back, json.loads(json.dumps(applied(way.to, loud)))) == sail


@pytest.mark.parametrize("hint", [set[int], Mapping[float, int], complex, str | int])
def test_type_that_json_has_nothing_for_is_refused(hint: Any) -> None:
    with pytest.raises(TypeError, match="packed"):
        plain_of(hint)
