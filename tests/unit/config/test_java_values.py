"""Texts are read as a JVM reads them, by a table that tests/broker_conf/JavaParsing.java prints."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lbcore.config.java_values import (
    INT,
    LONG,
    is_blank,
    parse_boolean,
    parse_double,
    parse_integer,
    parse_properties,
)
from lbcore.config.pulsar_keys import java_kind
from lbcore.config.tree import SETTINGS

FOLDER = Path(__file__).parents[2] / "broker_conf"
TABLE: dict[str, dict[str, Any]] = json.loads((FOLDER / "java_parsing.json").read_text())
TYPES = dict(line.split() for line in (FOLDER / "types-4.2.4.txt").read_text().splitlines())


def texts(kind: str) -> list[Any]:
    return [pytest.param(text, read, id=repr(text)) for text, read in TABLE[kind].items()]


@pytest.mark.parametrize(
    ("kind", "parse"),
    [("int", lambda text: parse_integer(text, INT)), ("long", lambda t: parse_integer(t, LONG))],
)
def test_integers_are_those_that_java_takes(kind: str, parse: Callable[[str], int | None]) -> None:
    found = {text: parse(text) for text in TABLE[kind]}
    assert found == {text: None if one is None else int(one) for text, one in TABLE[kind].items()}


@pytest.mark.parametrize(("text", "read"), texts("double"))
def test_double_is_what_java_reads(text: str, read: str | None) -> None:
    found = parse_double(text)
    assert repr(found) == repr(None if read is None else float(read))


@pytest.mark.parametrize(("text", "read"), texts("boolean"))
def test_boolean_is_true_for_true_alone(text: str, read: str) -> None:
    assert parse_boolean(text) is (read == "true")


@pytest.mark.parametrize(("text", "read"), texts("properties"))
def test_properties_are_what_java_reads(text: str, read: dict[str, str] | None) -> None:
    if read is None:
        with pytest.raises(ValueError, match="Java refuses"):
            parse_properties(text)
    else:
        assert parse_properties(text) == read


@pytest.mark.parametrize("text", ["0" * 5_000 + "7", "9" * 5_000, "-" + "0" * 9_000])
def test_integer_of_thousands_of_digits_ends_nothing(text: str) -> None:
    assert parse_integer(text) == {"7": 7, "9": None, "0": 0}[text[-1]]


def test_blank_is_what_leaves_a_key_at_its_default() -> None:
    assert is_blank(" \t\f")
    assert not is_blank("\xa0")


def test_kind_of_each_key_is_its_type_in_pulsars_configuration() -> None:
    kinds = {
        key: java_kind(entry, key) for entry in SETTINGS.values() for key in entry.about.pulsar
    }
    known = {key: kind for key, kind in kinds.items() if key in TYPES}
    assert len(known) >= 60
    simple = {"boolean", "double", "int", "long"}
    assert known == {key: TYPES[key] if TYPES[key] in simple else "" for key in known}
