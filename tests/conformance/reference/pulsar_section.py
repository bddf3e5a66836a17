"""One section of the settings under Pulsar's own keys, with Pulsar's defaults for all the others.

A cluster imports a whole broker.conf (`lbcore.validation.pulsar_import`), to which
`test_broker_conf` holds the same cases. Source: Pulsar 4.0.8, ServiceConfiguration.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from lbcore.config.pulsar_keys import from_pulsar_keys
from lbcore.config.setting import UNSET, pulsar_value
from lbcore.config.tree import SECTIONS

Section = TypeVar("Section")


def section_from_pulsar(section: type[Section], keys: Mapping[str, Any]) -> Section:
    """A section with Pulsar 4.0.8's defaults, changed by values under Pulsar's own key names.

    Values are typed, see `pulsar_value`. Keys of other sections are ignored.
    """
    values: dict[str, Any] = {}
    for one in fields(section):  # type: ignore[arg-type]
        if "setting" in one.metadata:
            values[one.name] = pulsar_value(one.metadata["setting"], keys)
        elif "correction" in one.metadata:
            values[one.name] = one.metadata["correction"]
    name = next(name for name, declaring in SECTIONS.items() if declaring is section)
    whole = getattr(from_pulsar_keys(keys)[0], name)
    values |= {
        one.name: getattr(whole, one.name)
        for one in fields(section)  # type: ignore[arg-type]
        if "derived" in one.metadata
    }
    return section(**{name: value for name, value in values.items() if value is not UNSET})
