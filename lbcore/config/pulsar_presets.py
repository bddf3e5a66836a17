"""Releases of Pulsar as overlays, each with one of its load managers.

Decides which overlays conf/pulsar-*.toml are written, and what each is; a test holds the files
equal. Source: the defaults of ServiceConfiguration, which are those of 4.0.8 in 4.2.4 and 5.0.0-M1.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from lbcore.config.pulsar_keys import from_pulsar_keys
from lbcore.config.shedding import RULES_4_0, RULES_4_2
from lbcore.config.strategies import LOAD_MANAGERS
from lbcore.config.tree import Config, changed

_HEAD = "Written from the settings' declarations by `ballast config show --pulsar"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One overlay: its comment, whose rules, and the class of load manager."""

    head: str
    rules: str
    manager: str

    def config(self) -> Config:
        """Return the config of this release under a broker.conf without other settings."""
        config, _ = from_pulsar_keys({"loadManagerClassName": self.manager})
        return changed(config, {"shedding.rules": self.rules})


def _preset(rules: str, pipeline: str) -> tuple[str, Preset]:
    name = f"pulsar-{rules}-{pipeline}"
    manager = LOAD_MANAGERS[pipeline]
    head = f"Pulsar {rules} as shipped, under {manager}. {_HEAD} {name}`."
    return name, Preset(head=head, rules=rules, manager=manager)


PRESETS: Mapping[str, Preset] = {
    "pulsar-4.0.8": Preset(
        head="Pulsar 4.0.8's rules and defaults, which the conformance cases are run with."
        f" {_HEAD}`.",
        rules=RULES_4_0,
        manager="",
    ),
    **dict(
        _preset(rules, pipeline) for rules in (RULES_4_0, RULES_4_2) for pipeline in LOAD_MANAGERS
    ),
}
"""The name of an overlay in conf/ → what is in it."""
