"""The verbs that send commands: one for each kind, made from its dataclass."""

import argparse
import importlib
import shlex
from typing import Any

import pytest

from jobs.cli import main
from jobs.console import MisuseError
from jobs.operating.command_words import CommandVerb, read_command
from jobs.verbs import VERBS
from lbcore.wire import commands as asked
from lbcore.wire.mirror_commands import MIRROR_KINDS

SENDING = {
    (name, verb.name): verb
    for name, entry in VERBS.items()
    for verb in getattr(importlib.import_module(entry.module), "COMMANDS", ())
}


def parsed(*words: str) -> argparse.Namespace:
    module = importlib.import_module(VERBS[words[0]].module)
    parser = argparse.ArgumentParser(prog=f"ballast {words[0]}")
    module.add_arguments(parser)
    return parser.parse_args(list(words[1:]))


def test_verb_there_is_exactly_one_for_each_kind_of_command() -> None:
    by_hand = asked.KINDS.keys() - MIRROR_KINDS.keys()  # those only a bridge sends
    assert sorted(verb.kind for verb in SENDING.values()) == sorted(by_hand)


@pytest.mark.parametrize(("words", "verb"), SENDING.items(), ids=map("-".join, SENDING))
def test_example_of_a_verb_is_a_command_of_its_kind(
    words: tuple[str, str], verb: CommandVerb
) -> None:
    args = parsed(*filter(None, words), *shlex.split(verb.example))
    arguments = read_command(args)
    assert isinstance(arguments, asked.KINDS[verb.kind])
    assert args.wait
    assert not args.dry_run


@pytest.mark.parametrize(("words", "verb"), SENDING.items(), ids=map("-".join, SENDING))
def test_help_of_a_verb_has_its_example_and_the_exit_codes(
    words: tuple[str, str], verb: CommandVerb, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*filter(None, words), "--help"]) == 0
    said = capsys.readouterr().out
    assert f"example: ballast {' '.join(filter(None, words))} {verb.example}".rstrip() in said
    assert "exit codes: 0 done" in said
    for option in ("--no-wait", "--timeout", "--dry-run", "--json", "--tables", "--bootstrap"):
        assert option in said


BUNDLE = "acme/a/0x00000000_0xffffffff"


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (
            "namespace create acme/a --boundaries 0x0 0x40000000 0xffffffff --hash murmur3_32",
            asked.CreateNamespace(
                namespace="acme/a",
                boundaries=(0, 0x40000000, 0xFFFFFFFF),
                hash=asked.HashFunction.MURMUR3_32,
            ),
        ),
        (
            f"bundle pin {BUNDLE} b1 --ttl 2h --owner ada",
            asked.PinBundle(bundle=BUNDLE, broker="b1", ttl_ms=7_200_000, owner="ada"),
        ),
        (
            "broker drain b1 --deadline 30m --max-in-flight 7",
            asked.DrainBroker(broker="b1", deadline_ms=1_800_000, max_in_flight=7),
        ),
        (f"bundle split {BUNDLE} --parts 4", asked.SplitBundle(bundle=BUNDLE, parts=4)),
        ("pause", asked.Pause()),
        ("resume --namespace acme/a", asked.Resume(namespace="acme/a")),
        (
            "isolation set p --namespaces acme/.* --primary b1 b2 --usage-threshold-percent 80.5",
            asked.SetIsolationPolicy(
                policy="p",
                namespaces=("acme/.*",),
                primary=("b1", "b2"),
                usage_threshold_percent=80.5,
            ),
        ),
        (
            "config set shedding.strategy=uniform loadBalancerEnabled=true",
            asked.SetConfig(values={"shedding.strategy": "uniform", "loadBalancerEnabled": "true"}),
        ),
        ("config reset --all", asked.ResetConfig(keys=())),
        ("config reset shedding.strategy", asked.ResetConfig(keys=("shedding.strategy",))),
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
def test_words_that_argparse_refuses_are_misuse(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(shlex.split(line)) == 2
    assert "--help` says more; for example: ballast" in capsys.readouterr().err


def test_json_may_stand_behind_the_action_or_before_it() -> None:
    assert parsed("bundle", "unpin", BUNDLE, "--json").json
    assert not hasattr(parsed("bundle", "unpin", BUNDLE), "json")
