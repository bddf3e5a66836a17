"""Strategies of the user's own: found by name, loaded, and handed on with the configuration.

Decides which code a name means: an entry point of the group `ballast.strategies`, or the text
"package.module:NAME" itself, looked for in the working directory too. What can't be loaded is
handed on with the reason: the job goes on without it, a command refuses.
"""

import importlib
import os
import sys
from collections.abc import Collection, Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jobs.adapters.processes.code_digest import code_digest, python_files
from jobs.console import MisuseError
from lbcore.config.own_strategy import OwnStrategy
from lbcore.config.tree import Config
from lbcore.plan.registry import SHEDDING_STRATEGIES, shedding_name

GROUP = "ballast.strategies"


def with_own(config: Config, names: Collection[str] = (), known: Collection[str] = ()) -> Config:
    """The configuration with every strategy that is installed, set or named.

    names: besides those that the configuration sets. known: names that were there once; one that is
    not there any more is handed on as missing, where another unknown name is left to be refused.
    """
    installed = {point.name: point for point in entry_points(group=GROUP)}
    wanted = {*_set_names(config), *names, *installed} - SHEDDING_STRATEGIES.keys()
    own = dict(config.own)
    for name in sorted(wanted):
        if name in installed:
            own[name] = _loaded(name, installed[name].value)
        elif ":" in name:
            own[name] = _loaded(name, name)
        elif name in known:
            own[name] = OwnStrategy(name=name, problem=_absent(name))
    return replace(config, own=own) if own else config


def require_loaded(config: Config) -> Config:
    """The configuration itself; raises MisuseError when the strategy that it sets is not there."""
    for name in _set_names(config):
        if name in config.own and config.own[name].problem:
            raise MisuseError(
                f"the strategy {name} can't be used",
                why=config.own[name].problem,
                next_step='see "A strategy of your own" in docs/strategies.md',
            )
    return config


def _set_names(config: Config) -> Iterator[str]:
    for cluster in ("", *sorted(config.per_cluster)):
        yield shedding_name(config.for_cluster(cluster).shedding.strategy)


def _absent(name: str) -> str:
    there = ", ".join(sorted(point.name for point in entry_points(group=GROUP))) or "none"
    return (
        f"{name} is no entry point of {GROUP} any more (there are: {there}): install the package"
        " that has it and start again, or set another shedding.strategy"
    )


def _loaded(name: str, origin: str) -> OwnStrategy:
    """The strategy, or why it isn't there."""
    try:
        decide, digest = _found(EntryPoint(name=name, value=origin, group=GROUP))
    except Exception as error:  # noqa: BLE001 importing somebody's code may raise anything: told
        why = (
            f"{origin} can't be loaded ({type(error).__name__}: {error}): correct the name or the"
            " code, and install its package or start in its folder"
        )
        return OwnStrategy(name=name, origin=origin, problem=why)
    if not callable(decide):
        why = f"{origin} is a {type(decide).__name__}: name a function of four arguments"
        return OwnStrategy(name=name, origin=origin, problem=why)
    return OwnStrategy(name=name, origin=origin, digest=digest, decide=decide)


def _found(point: EntryPoint) -> tuple[Any, str]:
    _use_working_directory(point.module)
    decide = point.load()
    return decide, _digest(point.module)


def _use_working_directory(module: str) -> None:
    """Look here, too, as `python -m` does; also in the workers that Spark starts."""
    here = str(Path.cwd())
    if here in sys.path or (
        not (Path(here) / module.split(".", maxsplit=1)[0]).exists()
        and not (Path(here) / f"{module.split('.', maxsplit=1)[0]}.py").exists()
    ):
        return
    sys.path.append(here)
    importlib.invalidate_caches()
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (os.environ.get("PYTHONPATH", ""), here))
    )


def _digest(module: str) -> str:
    """Of all Python files of the module's outermost package, or of the module's own."""
    top = find_spec(module.split(".", maxsplit=1)[0])
    folders = list(top.submodule_search_locations or ()) if top else []
    files = [file for folder in folders for file in python_files(Path(folder))]
    if not files and top and top.origin:
        files = [(Path(top.origin).name, Path(top.origin))]
    return code_digest(files)
