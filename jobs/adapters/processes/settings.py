"""The configuration of a process: conf/base.toml, overlays, and secrets.

Read in order: base, each overlay by name (conf/NAME.toml) or path, assignments of the command line.
The environment says only which overlays (BALLAST_CONF=name,name) and holds secrets. `lbcore.config`
says what the keys mean.
"""

import importlib
import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jobs.adapters.processes.paths import CONF, code_digest, python_files, shipped
from jobs.atomic_file import read_text_file
from jobs.console import CAUSE_BREAK, CommandError, MisuseError, cause_message
from lbcore.config.load import differences, parse_assignments, parse_config
from lbcore.config.render import render_value
from lbcore.config.tree import SETTINGS, Config, CustomStrategy
from lbcore.config.values import ConfigError
from lbcore.plan.registry import SHEDDING_STRATEGIES, shedding_name
from lbcore.validation.check import require_suitable

ENTRY_POINT_GROUP = "ballast.strategies"


def with_custom_strategies(
    config: Config, names: Collection[str] = (), known: Collection[str] = ()
) -> Config:
    """Load every custom strategy that is installed, set or named.

    names: besides those that the configuration sets. known: names that once existed; one that no
    longer does is kept with its problem, while other unknown names are refused later.
    """
    installed = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    wanted = {*_strategies_in_force(config), *names, *installed} - SHEDDING_STRATEGIES.keys()
    own = dict(config.own)
    for name in sorted(wanted):
        if name in installed:
            own[name] = _load_strategy(name, installed[name].value)
        elif ":" in name:
            own[name] = _load_strategy(name, name)
        elif name in known:
            there = ", ".join(sorted(installed)) or "none"
            problem = (
                f"{name} is no entry point of {ENTRY_POINT_GROUP} any more (there are: {there}):"
                " install the package that has it and start again, or set another shedding.strategy"
            )
            own[name] = CustomStrategy(name=name, problem=problem)
    return replace(config, own=own) if own else config


def require_loaded(config: Config) -> Config:
    """Return the configuration. Raises MisuseError if its strategy is missing."""
    for name in _strategies_in_force(config):
        if name in config.own and config.own[name].problem:
            raise MisuseError(
                f"the strategy {name} can't be used",
                why=config.own[name].problem,
                next_step='see "A strategy of your own" in docs/strategies.md',
            )
    return config


def _strategies_in_force(config: Config) -> Iterator[str]:
    for cluster in ("", *sorted(config.per_cluster)):
        yield shedding_name(config.for_cluster(cluster).shedding.strategy)


def _load_strategy(name: str, origin: str) -> CustomStrategy:
    """Return the strategy; `problem` says why it can't be used."""
    try:
        point = EntryPoint(name=name, value=origin, group=ENTRY_POINT_GROUP)
        _use_working_directory(point.module)
        decide, digest = point.load(), _digest(point.module)
    except Exception as error:  # noqa: BLE001 importing somebody's code may raise anything: told
        why = (
            f"{origin} can't be loaded ({type(error).__name__}: {error}): correct the name or the"
            " code, and install its package or start in its folder"
        )
        return CustomStrategy(name=name, origin=origin, problem=why)
    if not callable(decide):
        why = f"{origin} is a {type(decide).__name__}: name a function of four arguments"
        return CustomStrategy(name=name, origin=origin, problem=why)
    return CustomStrategy(name=name, origin=origin, digest=digest, decide=decide)


def _use_working_directory(module: str) -> None:
    """Import from the working directory too, also in the workers that Spark starts."""
    here, top = str(Path.cwd()), module.partition(".")[0]
    if here in sys.path or not (Path(here, top).exists() or Path(here, f"{top}.py").exists()):
        return
    sys.path.append(here)
    importlib.invalidate_caches()
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (os.environ.get("PYTHONPATH", ""), here))
    )


def _digest(module: str) -> str:
    """Return the digest of the outermost package's Python files, or of the module's."""
    top = find_spec(module.partition(".")[0])
    folders = list(top.submodule_search_locations or ()) if top else []
    files = [file for folder in folders for file in python_files(Path(folder))]
    if not files and top and top.origin:
        files = [(Path(top.origin).name, Path(top.origin))]
    return code_digest(files)


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found]

_NUMBER = re.compile(r"[0-9_]+")
_OPENING, _CLOSING = re.compile(r"[\[{]"), re.compile(r"[\]}]")

BASE = "base"
OVERLAYS_VARIABLE = "BALLAST_CONF"


def load_settings(
    overlays: Sequence[str] | None = None,
    assignments: Sequence[str] = (),
    *,
    conf: Path = CONF,
    environment: Mapping[str, str] | None = None,
    known: Collection[str] = (),
) -> Config:
    """Return the configuration in force, checked key by key and as a whole.

    overlays: names or paths; None takes those of BALLAST_CONF. assignments: "section.name=value".
    known: see `with_custom_strategies`.
    Raises MisuseError, which names the file, the key and what to do.
    """
    config = read_layers(overlays, assignments, conf=conf, environment=environment)
    config = with_custom_strategies(config, known=known)
    try:
        return require_suitable(config)
    except ConfigError as error:
        raise _misuse("the settings don't suit each other", error) from None


def read_layers(
    overlays: Sequence[str] | None = None,
    assignments: Sequence[str] = (),
    *,
    conf: Path = CONF,
    environment: Mapping[str, str] | None = None,
) -> Config:
    """As `load_settings`, without the check that settings suit each other."""
    config = read_base(conf)
    for overlay in overlay_names(environment) if overlays is None else overlays:
        config = _apply(_overlay_path(overlay, conf), config)
    try:
        return parse_assignments(config, assignments)
    except ConfigError as error:
        raise _misuse("the command line has settings that can't be used", error) from None


def read_base(conf: Path = CONF) -> Config:
    """Return the base of all overlays: conf/base.toml, or its defaults."""
    path = conf / f"{BASE}.toml"
    if not path.exists():
        return Config()
    config = _apply(path, Config())  # it names every setting: only changed ones have it as origin
    return replace(config, origins={item.place: path.name for item in differences(config)})


def overlay_names(environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The overlays that BALLAST_CONF names, in order; none when it is not set."""
    names = (os.environ if environment is None else environment).get(OVERLAYS_VARIABLE, "")
    return tuple(name.strip() for name in names.split(",") if name.strip())


def named_keys(config: Config) -> frozenset[str]:
    """The settings that overlays or the command line name."""
    return frozenset(key for key, origin in config.origins.items() if origin != f"{BASE}.toml")


def describe_differences(config: Config, base: Config) -> list[str]:
    """Return a line for each setting that differs from the base, with its origin."""
    return [
        f"{item.place} = {render_value(SETTINGS[item.key], item.value)}"
        f" (base: {render_value(SETTINGS[item.key], item.base)}"
        f"{f', from {config.origins[item.place]}' if item.place in config.origins else ''})"
        for item in differences(config, base)
    ]


def read_secret(name: str, environment: Mapping[str, str] | None = None) -> str:
    """Return a secret: variable NAME, the content of file NAME_FILE, or "".

    Raises CommandError when the file can't be read. A last line end is no part of a secret.
    """
    variables = os.environ if environment is None else environment
    path = variables.get(f"{name}_FILE", "")
    if not path:
        return variables.get(name, "")
    try:
        return read_text_file(Path(path)).rstrip("\r\n")
    except (OSError, ValueError) as cause:
        raise CommandError(
            f"the secret {name} can't be read",
            why=str(cause),
            next_step=f"correct {name}_FILE, or let this user read the file",
        ) from None


def read_toml(path: Path) -> Mapping[str, Any]:
    """The content of a TOML file; raises MisuseError that says where it is wrong."""
    try:
        text = read_text_file(path)
    except (OSError, ValueError) as cause:
        raise MisuseError(
            f"{path} can't be read",
            why=cause_message(cause),
            next_step="correct the path, its rights or its encoding",
        ) from None
    try:
        content: Mapping[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as cause:
        why = str(cause)
    except ValueError:  # Python's bound on the digits of a number
        longest = max(_NUMBER.finditer(text), key=lambda one: len(one[0]))
        line = text.count("\n", 0, longest.start()) + 1
        why = f"line {line} has a number of more digits than any setting takes"
    except RecursionError:
        why = f"line {_deepest_line(text)} has lists or tables that are nested too deeply"
    else:
        return content
    raise MisuseError(f"{path} is not TOML", why=why, next_step="correct the line that it names")


def _deepest_line(text: str) -> int:
    """Return the first line at whose end, or within which, the most brackets are open."""
    deepest, at, depth = 0, 1, 0
    for number, line in enumerate(text.split("\n"), start=1):
        opened = len(_OPENING.findall(line))
        if depth + opened > deepest:
            deepest, at = depth + opened, number
        depth += opened - len(_CLOSING.findall(line))
    return at


def _apply(path: Path, config: Config) -> Config:
    try:
        return parse_config(read_toml(path), config, path.name)
    except ConfigError as error:
        raise _misuse(f"{path} has settings that can't be used", error) from None


def _overlay_path(overlay: str, conf: Path) -> Path:
    is_path = overlay.endswith(".toml")
    path = shipped(Path(overlay)) if is_path else conf / f"{overlay}.toml"
    if path.exists():
        return path
    there = sorted(file.stem for file in conf.glob("*.toml") if file.stem != BASE)
    raise MisuseError(
        f"there is no overlay {overlay}",
        why=f"{path} does not exist",
        next_step=f"take one of {', '.join(there) or 'none, there are none'}, or a path to a .toml",
    )


def _misuse(what: str, error: ConfigError) -> MisuseError:
    return MisuseError(
        what,
        why=CAUSE_BREAK.join(map(str, error.problems)),
        next_step="correct them; `ballast config show` lists every setting with its range",
    )
