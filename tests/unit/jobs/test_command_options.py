"""The verbs that send commands: one for each kind, made from its dataclass."""

import argparse
import importlib
import re
import shlex
from typing import Any

import pytest

from jobs.adapters.kafka.command_client import new_command
from jobs.cli import main
from jobs.console import MisuseError
from jobs.operating.commanding import read_command, shown_command
from jobs.verbs import VERBS
from lbcore.model.hashing import HashFunction
from lbcore.wire.commands import KINDS
from lbcore.wire.kinds.balancing_commands import (
    Pause,
    ProposePlan,
    ResetConfig,
    Resume,
    SetConfig,
    SetIsolationPolicy,
)
from lbcore.wire.kinds.broker_commands import DrainBroker
from lbcore.wire.kinds.bundle_commands import PinBundle, SplitBundle
from lbcore.wire.kinds.command_about import CommandVerb
from lbcore.wire.kinds.mirror_commands import MIRROR_COMMANDS
from lbcore.wire.kinds.namespace_commands import CreateNamespace
from lbcore.wire.kinds.record_commands import RECORD_COMMANDS
from tests.support import Capsys

SENDING = {
    tuple(one.about.verb.words.split()): (kind, one.about.verb)
    for kind, one in KINDS.items()
    if one.about.verb
}


def parsed(*words: str) -> argparse.Namespace:
    module = importlib.import_module(VERBS[words[0]].module)
    parser = argparse.ArgumentParser(prog=f"ballast {words[0]}")
    module.add_arguments(parser)
    return parser.parse_args(list(words[1:]))


def test_verb_there_is_exactly_one_for_each_kind_of_command() -> None:
    others = {one.about.kind for one in (*MIRROR_COMMANDS, *RECORD_COMMANDS)}  # bridge, HTTP
    assert {kind for kind, _ in SENDING.values()} == KINDS.keys() - others
    assert {words[0] for words in SENDING} <= VERBS.keys()


@pytest.mark.parametrize(("words", "sent"), SENDING.items(), ids=map("-".join, SENDING))
def test_example_of_a_verb_is_a_command_of_its_kind(
    words: tuple[str, ...], sent: tuple[str, CommandVerb]
) -> None:
    kind, verb = sent
    args = parsed(*words, *shlex.split(verb.example))
    arguments = read_command(args)
    assert isinstance(arguments, KINDS[kind])
    assert args.wait
    assert not args.dry_run


@pytest.mark.parametrize(("words", "sent"), SENDING.items(), ids=map("-".join, SENDING))
def test_help_of_a_verb_has_its_example_and_the_exit_codes(
    words: tuple[str, ...], sent: tuple[str, CommandVerb], capsys: Capsys
) -> None:
    assert main([*words, "--help"]) == 0
    said = capsys.readouterr().out
    assert f"example: ballast {' '.join(words)} {sent[1].example}".rstrip() in said
    assert "exit codes: 0 done" in said
    for option in ("--no-wait", "--timeout", "--dry-run", "--json", "--tables", "--bootstrap"):
        assert option in said


BUNDLE = "acme/a/0x00000000_0xffffffff"


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (
            "namespace create acme/a --boundaries 0x0 0x40000000 0xffffffff --hash murmur3_32",
            CreateNamespace(
                namespace="acme/a",
                boundaries=(0, 0x40000000, 0xFFFFFFFF),
                hash=HashFunction.MURMUR3_32,
            ),
        ),
        (
            f"bundle pin {BUNDLE} b1 --ttl 2h --owner ada",
            PinBundle(bundle=BUNDLE, broker="b1", ttl_ms=7_200_000, owner="ada"),
        ),
        (
            "broker drain b1 --deadline 30m --max-in-flight 7",
            DrainBroker(broker="b1", deadline_ms=1_800_000, max_in_flight=7),
        ),
        (f"bundle split {BUNDLE} --parts 4", SplitBundle(bundle=BUNDLE, parts=4)),
        ("pause", Pause()),
        ("resume --namespace acme/a", Resume(namespace="acme/a")),
        (
            "policy set-isolation p --namespaces a/.* --primary b1 --usage-threshold-percent 80.5",
            SetIsolationPolicy(
                policy="p",
                namespaces=("a/.*",),
                primary=("b1",),
                usage_threshold_percent=80.5,
            ),
        ),
        (
            "config set shedding.strategy=uniform loadBalancerEnabled=true",
            SetConfig(values={"shedding.strategy": "uniform", "loadBalancerEnabled": "true"}),
        ),
        ("config reset --all", ResetConfig(keys=())),
        ("config reset shedding.strategy", ResetConfig(keys=("shedding.strategy",))),
    ],
)
def test_words_become_the_typed_arguments(line: str, wanted: Any) -> None:
    assert read_command(parsed(*shlex.split(line))) == wanted


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("config reset", "--all"),
        ("config reset --all shedding.strategy", "--all"),
        ("config set strategy", "section.name=value"),
        ("config set =3", "section.name=value"),
        ("namespace create orders", "namespace"),
        ("bundle split", "name either a bundle"),
        (f"bundle split {BUNDLE} --parts 1", "at least 2"),
        ("bundle split --namespace acme/a --which BIGGEST", "which"),
        ("bundle unload acme/a/0x0_0x1", "bundle"),
    ],
)
def test_words_that_are_no_command_are_misuse(line: str, why: str) -> None:
    with pytest.raises(MisuseError) as raised:
        read_command(parsed(*shlex.split(line)))
    assert why in raised.value.why


@pytest.mark.parametrize("line", ["bundle pin acme/a/0x0", "broker drain b1 --deadline soon"])
def test_words_that_argparse_refuses_are_misuse(line: str, capsys: Capsys) -> None:
    assert main(shlex.split(line)) == 2
    assert "--help` says more; for example: ballast" in capsys.readouterr().err


def test_json_may_stand_behind_the_action_or_before_it() -> None:
    assert parsed("bundle", "unpin", BUNDLE, "--json").json
    assert not hasattr(parsed("bundle", "unpin", BUNDLE), "json")


@pytest.mark.parametrize("name", ["namespace create", "bundle split"])
def test_help_names_one_of_many_in_the_singular(name: str, capsys: Capsys) -> None:
    assert main([*name.split(), "--help"]) == 0
    assert re.findall(r"\b[A-Z]+IE\b|\b[A-Z]{3,}(?:ES|RS)\b", capsys.readouterr().out) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (ProposePlan(moves={f"a/b{n}/0x00000000_0xffffffff": "x" for n in range(20)}, why="space"),
         "propose_plan moves=(20 of them) why=space"),
        (SetConfig(values={"shedding.is_shedding": False}),
         "set_config values=shedding.is_shedding false"),
    ],
)  # fmt: skip
def test_command_is_shown_in_one_short_line(arguments: Any, words: str) -> None:
    assert shown_command(new_command("c", arguments)) == words
