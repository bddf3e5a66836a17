"""Declaration of a setting: default, unit, range, reason and Pulsar key.

A section of the configuration is a frozen dataclass whose fields are made by `setting`. The loader,
`ballast config`, the documentation and the reader of Pulsar's own keys all read this declaration.
So nothing about a setting is written twice.
"""

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field
from typing import Any

UNSET: Any = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Declaration of one setting beside its name, type and default."""

    doc: str
    unit: str = ""
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    pulsar: tuple[str, ...] = ()
    pulsar_default: Any = UNSET
    pulsar_factor: float | None = None
    pulsar_neutral: Any = UNSET
    dynamic: bool = False
    reads: Callable[[str], object] | None = None


def setting(default: Any, *, pulsar: str | tuple[str, ...] = (), **declared: Any) -> Any:
    """A dataclass field for one setting.

    pulsar: the Pulsar key(s) it mirrors, the preferred spelling first; pulsar_default: Pulsar
    4.0.8's default where ours differs, in our unit; pulsar_factor: ours = factor × Pulsar's value;
    pulsar_neutral: a value under one spelling that gives way to the next spelling (Pulsar's
    bandwidth weights); dynamic: may be changed while running; reads: what
    a text, or each of a list, must be read by; it raises ValueError with how it is written.
    """
    aliases = (pulsar,) if isinstance(pulsar, str) else pulsar
    return field(default=default, metadata={"setting": Setting(pulsar=aliases, **declared)})


def correction(default: Any, *, pulsar: Any) -> Any:
    """Constant that corrects one of Pulsar's algorithms. pulsar: 4.0.8's value."""
    about = Setting(doc="", pulsar_default=pulsar, dynamic=True)  # by shedding.is_pulsar_exact
    return field(default=default, metadata={"correction": about})


def derived(default: int, *, source: str, part: float = 1, least: int = 0) -> Any:
    """Constant that a shorter time shortens.

    It is `part` of the source, from least to the default. source: the setting, "section.name",
    whose default gives ours.
    """
    return field(default=default, metadata={"derived": (source, part, least)})


def declared(section_field: "Field[Any]") -> Setting:
    """The declaration of a section's field; an empty one for a constant."""
    about = section_field.metadata
    found: Setting = about.get("setting") or about.get("correction") or Setting(doc="")
    return found


def pulsar_value(about: Setting, keys: Mapping[str, Any]) -> Any:
    """Return the value under Pulsar 4.0.8 in our unit; UNSET if Pulsar has none.

    Of several spellings of a key the first present wins, unless it has the neutral value and
    another one says otherwise. A value that is no number is left as it is by the factor.
    """
    given = [keys[key] for key in about.pulsar if key in keys]
    decided = [value for value in given if value != about.pulsar_neutral] or given
    if not decided:
        return about.pulsar_default
    factor, value = about.pulsar_factor, decided[0]
    if factor is None or type(value) not in (int, float):
        return value
    return value * factor
