"""What is written as TOML reads back, and the files in conf/ are what the declarations say."""

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.adapters.processes.settings import read_toml
from lbcore.config.load import differences, parse_config
from lbcore.config.pulsar_keys import PRESETS, from_pulsar_keys
from lbcore.config.render import render_differences, render_value
from lbcore.config.tree import SETTINGS, Config
from lbcore.config.values import as_written
from lbcore.validation.check import check_config

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found]

CONF = Path(__file__).parents[3] / "conf"
OVERLAYS = sorted(path.stem for path in CONF.glob("*.toml") if path.stem != "base")


def test_files_are_the_defaults_pulsars_and_those_of_the_documentation() -> None:
    assert parse_config(read_toml(CONF / "base.toml")) == Config()
    assert PRESETS["pulsar-4.0.8"].config() == from_pulsar_keys({})[0]
    assert sorted({"container", "demo", "production", "pulsar", "test", *PRESETS}) == OVERLAYS
    readme = (CONF / "README.md").read_text()
    assert all(f"`{name}`" in readme for name in OVERLAYS)


@pytest.mark.parametrize("name", PRESETS)
def test_pulsar_preset_file_reads_back_as_what_the_release_does(name: str) -> None:
    preset = PRESETS[name]
    assert parse_config(read_toml(CONF / f"{name}.toml")) == preset.config()


@pytest.mark.parametrize("name", OVERLAYS)
def test_overlay_is_valid_suits_and_changes_something(name: str) -> None:
    config = parse_config(read_toml(CONF / f"{name}.toml"))
    assert check_config(config) == ()
    assert differences(config)


def test_test_overlay_divides_every_time_of_the_protocol_by_five_and_changes_nothing_else() -> None:
    changed = {item.key: item for item in differences(parse_config(read_toml(CONF / "test.toml")))}
    assert all(item.value * 5 == item.base for item in changed.values())
    times = {
        entry.key
        for entry in SETTINGS.values()
        if entry.section in ("ownership", "agent") and entry.setting.unit == "ms"
    }
    assert times
    assert times <= changed.keys()


def test_differences_are_written_as_an_overlay_that_makes_them() -> None:
    config = parse_config(
        {
            "pipeline": {"trigger_ms": 12_345},
            "lookup": {"allowed_hosts": ["a b", 'ü"']},
            "shedding": {"multi_hit": True, "threshold_percent": 12},
            "clusters": {"p-1": {"ownership": {"in_flight_timeout_ms": 99_000}}},
        }
    )
    text = render_differences(differences(config), "Why.")
    assert text.startswith("# Why.\n")
    assert "trigger_ms = 12_345" in text
    assert parse_config(tomllib.loads(text)) == config


VALUES = {
    bool: st.booleans(),
    int: st.integers(-(2**62), 2**62),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(),
    tuple[str, ...]: st.lists(st.text(), max_size=3).map(tuple),
}


@given(entry=st.sampled_from(list(SETTINGS.values())), data=st.data())
def test_value_is_written_as_toml_that_reads_back_from_files_and_command_line(
    entry: Any, data: st.DataObject
) -> None:
    value = data.draw(VALUES[entry.type])
    shown = render_value(entry, value)
    for read in (tomllib.loads(f"x = {shown}")["x"], as_written(entry.type, shown)):
        assert (tuple(read) if isinstance(value, tuple) else read) == value
