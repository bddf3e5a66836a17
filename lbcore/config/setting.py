"""Declaration of a setting: default, unit, range, reason and Pulsar key.

A section of the configuration is a frozen dataclass whose fields are made by `setting`. The loader,
`ballast config`, the documentation and the reader of Pulsar's keys all read this declaration.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, get_type_hints

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
    """Return a dataclass field that declares one setting.

    pulsar: its Pulsar key(s), the preferred spelling first; pulsar_default: Pulsar 4.0.8's default
    if it differs, in the setting's unit; pulsar_factor: setting = factor × Pulsar's value;
    pulsar_neutral: a value of one spelling that gives way to the next spelling (Pulsar's bandwidth
    weights); dynamic: may be changed while running; reads: a function that checks a text, or each
    text of a list, and raises ValueError with the right form.
    """
    aliases = (pulsar,) if isinstance(pulsar, str) else pulsar
    return field(default=default, metadata={"setting": Setting(pulsar=aliases, **declared)})


def correction(default: Any, *, pulsar: Any) -> Any:
    """Return a field for a constant that corrects one of Pulsar's algorithms.

    pulsar: Pulsar 4.0.8's value, which replaces it under shedding.is_pulsar_exact.
    """
    return field(default=default, metadata={"correction": pulsar})


def derived(default: Any, *, sources: tuple[str, ...], by: Callable[[Any], Any]) -> Any:
    """Return a field for a value that is computed from settings.

    by: computes it from the whole configuration, again whenever one of the sources is set.
    """
    return field(default=default, metadata={"derived": (sources, by)})


def pulsar_value(setting: Setting, keys: Mapping[str, Any]) -> Any:
    """Return the value under Pulsar 4.0.8 in our unit; UNSET if Pulsar has none.

    Of several spellings of a key the first present wins; one that has the neutral value gives way
    to another. The factor applies to numbers only.
    """
    given = [keys[key] for key in setting.pulsar if key in keys]
    decided = [value for value in given if value != setting.pulsar_neutral] or given
    if not decided:
        return setting.pulsar_default
    factor, value = setting.pulsar_factor, decided[0]
    if factor is None or type(value) not in (int, float):
        return value
    return value * factor


TYPES: Mapping[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    tuple[str, ...]: "a list of texts",
}
"""The types a setting may have, and how an error message names them."""


GROUPED_FROM = 10_000
"""Whole numbers from here on are written in groups of three digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One setting with its place in the tree."""

    section: str
    name: str
    type: Any
    default: Any
    setting: Setting

    @property
    def key(self) -> str:
        """The name that an operator uses: section.name."""
        return f"{self.section}.{self.name}"

    @property
    def range(self) -> str:
        """The allowed values as text; "" = all of the type."""
        if self.setting.choices:
            return ", ".join(self.setting.choices)
        least, most = self.setting.minimum, self.setting.maximum
        if least is not None and most is not None:
            return f"{_number(least)} .. {_number(most)}"
        if least is not None:
            return f"at least {_number(least)}"
        return "" if most is None else f"at most {_number(most)}"


def entries(sections: Mapping[str, type]) -> Iterator[Entry]:
    """Yield the settings of the sections in order; other fields are constants.

    Raises TypeError for a setting of a type that isn't in TYPES: a bug of its section.
    """
    for section, declaring in sections.items():
        types = get_type_hints(declaring)
        for one in fields(declaring):
            if "setting" not in one.metadata:
                continue  # a constant, with its reason beside it
            if types[one.name] not in TYPES:
                raise TypeError(
                    f"{section}.{one.name} must be of a type in TYPES, got {one.type!r}"
                )
            yield Entry(
                section=section,
                name=one.name,
                type=types[one.name],
                default=one.default,
                setting=one.metadata["setting"],
            )


def _number(value: float) -> str:
    if not float(value).is_integer():
        return str(value)
    return f"{int(value):_}" if abs(value) >= GROUPED_FROM else str(int(value))
