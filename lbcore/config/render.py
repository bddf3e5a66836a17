"""A configuration as TOML, whole or by differences, and the reference.

Writes conf/*.toml and docs/configuration.md; tests hold conf/base.toml and the page equal to it.
`ballast config show` and `import` write through here.
"""

import json
from collections.abc import Iterable, Iterator
from inspect import getdoc
from itertools import groupby
from operator import attrgetter
from textwrap import wrap
from typing import Any

from lbcore.config.load import SettingDifference
from lbcore.config.setting import GROUPED_FROM, UNSET, Entry
from lbcore.config.tree import SECTIONS, SETTINGS, Config, value_of

_WIDTH = 97
_BASE_HEAD = """\
# Every setting of Ballast with its default, written by `ballast config show --base`.
# Change nothing here: an overlay names what differs (conf/README.md says how)."""

_PAGE_HEAD = """\
# Settings

Every setting, written by `ballast config show --markdown`. [conf/README.md](../conf/README.md) says
how overlays work. In brackets: the default, unit and range. At the end: Pulsar's key, and Pulsar
4.0.8's value (in our unit) where ours differs. *Live* settings may change while the job runs; the
others are read at its start.
`ballast config show --tables DIR` says what a job decides by, and who set each
([`settings_in_force`](tables.md#settings_in_force))."""


def render_config(config: Config, head: str = _BASE_HEAD) -> str:
    """Return all settings as TOML, with meaning, unit, range and Pulsar's key."""
    blocks = [head]
    for section, about, entries in _sections():
        blocks.append(f"[{section}]\n{_comment(about)}")
        blocks += [
            f"{_about(entry)}\n{entry.name} = {render_value(entry, value_of(config, entry))}"
            for entry in entries
        ]
    return "\n\n".join(blocks) + "\n"


def render_page() -> str:
    """Return the reference of all settings as Markdown, one list for each section."""
    blocks = [_PAGE_HEAD]
    for section, about, entries in _sections():
        blocks.append(f"## {section}\n\n{about}\n\n" + "\n".join(map(_item, entries)))
    return "\n\n".join(blocks) + "\n"


def _sections() -> Iterator[tuple[str, str, list[Entry]]]:
    """Yield each section that has settings: its name, what it is about, its settings."""
    for section, found in groupby(SETTINGS.values(), key=attrgetter("section")):
        yield section, (getdoc(SECTIONS[section]) or "").splitlines()[0], list(found)


def render_differences(found: Iterable[SettingDifference], head: str) -> str:
    """Render differences as an overlay. head: the comment at its start."""
    tables: dict[str, list[str]] = {}
    for item in found:
        entry = SETTINGS[item.key]
        table = f"clusters.{_text(item.cluster)}.{entry.section}" if item.cluster else entry.section
        tables.setdefault(table, []).append(f"{entry.name} = {render_value(entry, item.value)}")
    blocks = [_comment(head), *(f"[{table}]\n" + "\n".join(tables[table]) for table in tables)]
    return "\n\n".join(blocks) + "\n"


def render_value(entry: Entry, value: Any) -> str:
    """Return one value in TOML: 10_000, 0.5, true, "word", ["a", "b"]."""
    if isinstance(value, tuple):
        return "[" + ", ".join(_text(item) for item in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if entry.type is float:
        return repr(float(value))
    return f"{value:_}" if abs(value) >= GROUPED_FROM else str(value)


def _text(value: str) -> str:
    # TOML refuses JSON's escapes of characters beyond 0xffff (surrogates), and a raw 0x7f.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _about(entry: Entry) -> str:
    setting, (keys, value) = entry.setting, _pulsar(entry)
    facts = (
        setting.unit and f"unit: {setting.unit}",
        entry.range and f"range: {entry.range}",
        "may change while running" if setting.dynamic else "read at start",
    )
    lines = (
        _sentence(setting.doc),
        "; ".join(fact for fact in facts if fact),
        keys and f"Pulsar: {keys}",
        value and f"Pulsar 4.0.8's value: {value}",
    )
    return "\n".join(_comment(line) for line in lines if line)


def _item(entry: Entry) -> str:
    setting, (keys, pulsar_value) = entry.setting, _pulsar(entry, "`")
    value, is_live = f"`{render_value(entry, entry.default)}`", "live" if setting.dynamic else ""
    facts = "; ".join(fact for fact in (value, setting.unit, entry.range, is_live) if fact)
    pulsar = "; ".join(filter(None, (keys, pulsar_value and f"4.0.8: {pulsar_value}")))
    suffix = f" Pulsar: {pulsar}." if pulsar else ""
    return f"- **`{entry.name}`** ({facts}): {_sentence(setting.doc)}{suffix}"


def _pulsar(entry: Entry, mark: str = "") -> tuple[str, str]:
    """Return Pulsar's keys with their factor, and Pulsar's value; "" = none."""
    setting, factor = entry.setting, entry.setting.pulsar_factor
    keys = " or ".join(f"{mark}{key}{mark}" for key in setting.pulsar)
    if keys and factor is not None:
        keys += f" × {factor:g}"
    if setting.pulsar_default is UNSET:
        return keys, ""
    return keys, f"{mark}{render_value(entry, setting.pulsar_default)}{mark}"


def _sentence(text: str) -> str:
    """Return the text with a full stop; a capital unless it begins `name:` or `name,`."""
    first = text.split(maxsplit=1)[0]
    start = text[0] if first[-1] in ":," else text[0].upper()
    return start + text[1:] + ("" if text[-1] in ".?!" else ".")


def _comment(text: str) -> str:
    return "\n".join(f"# {line}" for line in wrap(text, _WIDTH))
