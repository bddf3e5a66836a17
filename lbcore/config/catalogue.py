"""All settings in one list: section, name, type, default and declaration.

The loader, the readers of Pulsar's keys, `ballast config` and the documentation iterate over it, so
a setting that is declared in a section is known to all of them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

from lbcore.config.setting import Setting, declared

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
    about: Setting

    @property
    def key(self) -> str:
        """The name that an operator uses: section.name."""
        return f"{self.section}.{self.name}"

    @property
    def range(self) -> str:
        """The allowed values as text, "" when all of the type are."""
        if self.about.choices:
            return ", ".join(self.about.choices)
        least, most = self.about.minimum, self.about.maximum
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
        for field in fields(declaring):
            if "setting" not in field.metadata:
                continue  # a constant, with its reason beside it
            if types[field.name] not in TYPES:
                message = f"{section}.{field.name} must be of a type in TYPES, got {field.type!r}"
                raise TypeError(message)
            yield Entry(
                section=section,
                name=field.name,
                type=types[field.name],
                default=field.default,
                about=declared(field),
            )


def _number(value: float) -> str:
    if not float(value).is_integer():
        return str(value)
    return f"{int(value):_}" if abs(value) >= GROUPED_FROM else str(int(value))
