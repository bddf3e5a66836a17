"""Check, show or import settings; change them while the job runs.

check    says what doesn't suit: errors, and warnings that something can't work as it is meant
show     writes every setting with its meaning (--base: the defaults, --changed: what differs,
         --markdown: the reference in docs/configuration.md, --tables or --url: those that the job
         decides by, who set each, and which changes by commands are ignored)
import   reads a Pulsar broker.conf and writes an overlay that behaves as it says; ends with 1 when
         something in it would not be obeyed, and says what
set      changes settings while the job runs, all of those named or none
reset    takes changed settings back to what the files say
"""

import argparse
import codecs
from collections.abc import Mapping
from pathlib import Path

from jobs.adapters.processes.settings import (
    describe_differences,
    named_keys,
    read_base,
    read_layers,
    with_custom_strategies,
)
from jobs.atomic_file import atomic_write
from jobs.console import (
    CommandError,
    Exit,
    MisuseError,
    answer,
    cause_message,
    note,
    printable,
)
from jobs.operating.answers import answers_of
from jobs.operating.commanding import command_actions
from jobs.operating.connection_options import CONF_OPTION, SERVICE_OPTIONS, connection_options
from jobs.parser import action, actions, argument, carry_out, decimal_number, group
from lbcore.config.load import canonical, differences, digest
from lbcore.config.pulsar_keys import ENCODING, PRESETS, parse_properties
from lbcore.config.render import render_config, render_differences, render_page
from lbcore.config.shedding import RULES_4_0, RULES_4_2
from lbcore.config.tree import Config
from lbcore.config.values import ConfigError, UsageGaps
from lbcore.validation.check import check_config
from lbcore.validation.pulsar_import import ImportedConfig, import_keys


def _check(args: argparse.Namespace) -> int:
    config = with_custom_strategies(read_layers(args.conf, args.set))
    gaps = UsageGaps(
        message_rate_per_s=args.seen_rate,
        throughput_bytes_per_s=args.seen_throughput,
        usage_points=args.seen_usage,
    )
    found = [
        (item, {"kind": "error" if item.is_error else "warning", "cluster": item.cluster})
        for item in check_config(config, gaps)
    ]
    lines = [
        f"{about['kind']}: {item.problem}" + (f" (cluster {item.cluster})" if item.cluster else "")
        for item, about in found
    ]
    rows = [
        {**about, "key": item.problem.key, "detail": item.problem.detail} for item, about in found
    ]
    lines = [*(lines or ["all settings suit each other"]), f"configuration {digest(config)}"]
    answer(args, {"config_version": digest(config), "findings": rows}, lines)
    return Exit.FAILED if any(item.is_error for item, _ in found) else Exit.DONE


def _show(args: argparse.Namespace) -> int:
    aside: Mapping[str, str] = {}
    if args.base:
        config = Config()
    else:
        config = PRESETS[args.pulsar].config() if args.pulsar else read_layers(args.conf, args.set)
    is_of_job = any((args.tables, args.url, args.context))
    if is_of_job:  # overridden by this command line
        answers = answers_of(connection_options(args))
        named = read_layers(args.conf or (), args.set).for_cluster(answers.cluster)
        own = config.for_cluster(answers.cluster)
        config, aside = answers.settings_in_force(own, named_keys(named))
    base = Config() if args.base or args.pulsar else read_base()
    changed = {f"{item.cluster}/{item.key}": item.value for item in differences(config, base)}
    value = {
        "config_version": digest(config),
        "changed": sorted(changed),
        **canonical(config),
        "origins": dict(sorted(config.origins.items())),
        **({"set_aside": dict(aside)} if is_of_job else {}),
    }
    for key, why in aside.items():
        note(f"set aside: {key} ({why}); `ballast config reset {key}` removes it")
    if args.markdown:
        text = render_page().rstrip("\n")
    elif args.pulsar:
        text = render_differences(differences(config), PRESETS[args.pulsar].head).rstrip("\n")
    elif args.changed:
        text = (
            "\n".join(map(printable, describe_differences(config, base)))
            or "nothing differs from the base"
        )
    else:
        text = _whole(config, base).rstrip("\n")
    answer(args, value, text.split("\n"))
    return Exit.DONE


def _whole(config: Config, base: Config) -> str:
    if config == Config():
        return render_config(config)
    lines = describe_differences(config, base)
    head = [
        "# The settings in force. What differs from the base, and who set it:",
        *(f"#   {at}" for at in lines),
    ]
    return render_config(config, "\n".join(head))


def _import(args: argparse.Namespace) -> int:
    keys = _read_properties(args.file)
    try:
        found = import_keys(keys, args.rules)
    except ConfigError as error:
        raise MisuseError(
            f"{args.file} has values that can't be used",
            why="; ".join(map(str, error.problems)),
            next_step="correct them there, or take them out and set ours in an overlay",
        ) from None
    if found.refused:
        raise CommandError(
            f"{args.file} can't be imported",
            why="; ".join(map(str, found.refused)),
            next_step="correct it there and import it again; nothing was written",
        )
    if not args.rules:  # the shipped files of two releases are nearly alike
        rules, evidence = (
            RULES_4_0,
            f"no key is of a later release; --rules {RULES_4_2} takes those",
        )
        if found.ruled_by:
            rules, evidence = RULES_4_2, f"the file has {found.ruled_by}, which {RULES_4_0} has not"
        note(f"rules of {rules}: {evidence}")
    for item in found.notes:
        note(f"without effect: {item}")
    for item in found.disobeyed:
        note(f"not obeyed: {item}")
    text = _overlay_text(found, args.file.name)
    if args.output is not None:
        try:
            atomic_write(args.output, text)
        except OSError as error:
            raise CommandError(
                f"{args.output} can't be written",
                why=cause_message(error),
                next_step="name another file with --output, in a folder that is there",
            ) from None
        text = f"wrote {args.output}"
    value = {
        "overlay": _overlay_text(found, "broker.conf"),
        "rules": found.config.shedding.rules,
        "ruled_by": found.ruled_by,
        "disobeyed": {item.key: item.detail for item in found.disobeyed},
        "without_effect": {item.key: item.detail for item in found.notes},
        "unrelated": found.unrelated,
        **({} if args.output is None else {"output": str(args.output)}),
    }
    answer(args, value, text.rstrip("\n").split("\n"))
    return Exit.DONE if found.is_obeyed else Exit.FAILED


def _overlay_text(found: ImportedConfig, name: str) -> str:
    rules = found.config.shedding.rules
    head = f"As Pulsar {rules} behaves with {name}; what is not here is as in base.toml."
    return render_differences(differences(found.config), head)


def _read_properties(path: Path | None) -> Mapping[str, str]:
    if path is None:
        raise MisuseError(
            "there is no file to import",
            why="`ballast config import` reads a Pulsar broker.conf",
            next_step="name it: ballast config import conf/broker.conf",
        )
    try:
        text = path.read_bytes().removeprefix(codecs.BOM_UTF8).decode(ENCODING)  # as Pulsar does
        return parse_properties(text)
    except (OSError, ValueError) as cause:
        raise MisuseError(
            f"{path} can't be read",
            why=cause_message(cause),
            next_step="correct the path or its rights",
        ) from None


_LAYERS = (
    CONF_OPTION,
    argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="e.g. shedding.strategy=avg"
    ),
)
add_arguments = actions(
    action(
        "check",
        "Say what doesn't suit.",
        _check,
        *_LAYERS,
        *(
            argument(option, type=decimal_number, metavar=unit, help=meaning)
            for option, unit, meaning in (
                ("--seen-rate", "MSG/S", "largest difference of two brokers"),
                ("--seen-throughput", "BYTES/S", "the same in throughput"),
                ("--seen-usage", "POINTS", "the same in points of usage (0 .. 100)"),
            )
        ),
    ),
    action(
        "show",
        "Every setting with its meaning.",
        _show,
        *_LAYERS,
        argument("--base", action="store_true", help="the defaults (conf/base.toml)"),
        argument("--markdown", action="store_true", help="the reference (docs/configuration.md)"),
        argument("--changed", action="store_true", help="only what differs from the base"),
        argument(
            "--pulsar",
            nargs="?",
            choices=sorted(PRESETS),
            const="pulsar-4.0.8",
            help="a release of Pulsar with its defaults (conf/pulsar-4.0.8.toml and others)",
        ),
        group(
            "the job's: what it was started with, what commands have changed, what of that is set "
            "aside",
            *SERVICE_OPTIONS,
        ),
    ),
    action(
        "import",
        "Read a Pulsar broker.conf and write an overlay.",
        _import,
        argument("file", nargs="?", type=Path, help="the broker.conf to read"),
        argument(
            "--rules",
            choices=(RULES_4_0, RULES_4_2),
            default="",
            help="whose rules; by default those of the release that the file's keys are of",
        ),
        argument("--output", type=Path, metavar="FILE", help="write it there"),
    ),
    *command_actions("config"),
)
run = carry_out
