"""Commands that change the dynamic configuration.

Decides whether the values suit; they take effect in the same batch. Part of `commands`. Source:
ours; names follow Pulsar's admin interface.
"""

from collections.abc import Callable, Mapping
from typing import Any

from lbcore.balancer.state.effects import to_json
from lbcore.balancer.state.outcome import DONE, Outcome, refuse
from lbcore.balancer.state.work import Work
from lbcore.config.pulsar_keys import named_by, resolve_changes
from lbcore.config.values import ConfigError
from lbcore.model.tables import CONFIG_VERSIONS
from lbcore.wire.kinds.balancing_commands import ResetConfig, SetConfig
from lbcore.wire.messages import Command


def _change_config(work: Work, command: Command, arguments: SetConfig | ResetConfig) -> Outcome:
    try:
        work.use_settings(settings_after(work.settings, arguments))
    except ConfigError as error:
        return refuse(str(error))
    number = work.rules.config_changes + 1
    work.change_rules(command, config_changes=number)
    work.add_row(
        CONFIG_VERSIONS.name,
        {
            "number": number,
            "config_version": work.config_version,
            "settings": to_json(work.settings),
            "principal": command.principal,
            "command_id": command.command_id,
        },
    )
    result = {"config_version": work.config_version, "number": number}
    return Outcome(status=DONE, result=result)


def settings_after(
    settings: Mapping[str, Any], arguments: SetConfig | ResetConfig
) -> Mapping[str, Any]:
    """The settings that commands have changed, by "section.name", after one command more.

    Raises ConfigError for values that can't be read.
    """
    if isinstance(arguments, SetConfig):
        return {**settings, **resolve_changes(arguments.values)}
    if not arguments.keys:
        return {}
    # a key that this version doesn't know may have been changed by one that did
    gone = {name for key in arguments.keys for name in named_by(key) or (key,)}
    return {name: value for name, value in settings.items() if name not in gone}


SETTINGS_HANDLERS: Mapping[str, Callable[[Work, Command, Any], Outcome]] = {
    "set_config": _change_config,
    "reset_config": _change_config,
}
