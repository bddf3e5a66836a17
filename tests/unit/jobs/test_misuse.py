"""Words of the command line as typed arguments, and whatever is wrong on it in three parts."""

import argparse
import importlib
import json
import re
import shlex
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from jobs import archive_history, balance_cluster, run_agent, run_fleet, serve_lookup
from jobs.adapters.kafka.command_client import new_command
from jobs.cli import main, verb_parser
from jobs.console import Exit, MisuseError
from jobs.operating.commanding import read_command, shown_command
from jobs.operating.connection_options import STATE_DIR
from jobs.parser import decimal_number, port_number, positive_number, whole_number
from jobs.verbs import VERBS
from lbcore.model.bundles import HashFunction
from lbcore.wire.arguments import CommandVerb
from lbcore.wire.commands import KINDS
from lbcore.wire.kinds.balancing_commands import (
    DrainBroker,
    Pause,
    ProposePlan,
    ResetConfig,
    Resume,
    SetConfig,
    SetIsolationPolicy,
)
from lbcore.wire.kinds.bundle_commands import PinBundle, SplitBundle
from lbcore.wire.kinds.mirror_commands import MIRROR_COMMANDS
from lbcore.wire.kinds.namespace_commands import RECORD_COMMANDS, CreateNamespace
from tests.support import Capsys, Patch
from tests.support.worlds.checked_world import running
from tests.support.worlds.explained_world import write_tables

PARTS = {"error", "why", "next"}
WORD = "nonsense"


def declared(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """What a parser takes; argparse has no public word for it."""
    return list(parser._actions)  # noqa: SLF001 (as its docstring says)


def leaves(words: list[str], parser: argparse.ArgumentParser) -> Iterator[Any]:
    """Each verb, and each verb within a verb, with what reads its words."""
    inner = [one for one in declared(parser) if one.nargs == argparse.PARSER]
    if not inner:
        yield words, parser
    for action in inner:
        choices: Any = action.choices
        for name, one in choices.items():
            yield from leaves([*words, name], one)


NUMBERS = (decimal_number, positive_number, whole_number, port_number)
LEAVES = [leaf for name, verb in VERBS.items() for leaf in leaves([name], verb_parser(name, verb))]


def bad_lines(words: Sequence[str], parser: argparse.ArgumentParser) -> Iterator[list[str]]:
    """Command lines that can't be taken, by what the parser declares."""
    positions = [one for one in declared(parser) if not one.option_strings]
    is_required = [one for one in positions if one.required and one.nargs != "*"]
    if is_required:
        yield [*words]
    filled = [_value(one) for one in is_required]
    options = [one for one in declared(parser) if one.option_strings and one.dest != "help"]
    for option in options:
        flag = option.option_strings[0]
        yield [*words, *filled, flag[:-1] + "q" + flag[-1]]
        if option.nargs is None and option.const is None:
            yield [*words, *filled, flag]
        if option.choices or option.type in (int, float, *NUMBERS):
            yield [*words, *filled, flag, WORD]
        if option.type in NUMBERS:
            yield from ([*words, *filled, f"{flag}={word}"] for word in ("nan", "inf", "-1"))
        if option.dest in ("port", "metrics_port"):
            yield [*words, *filled, flag, "65536"]
    for position in is_required:
        if position.choices:
            yield [*words, *[WORD for _ in is_required]]
    if not any(one.nargs in ("+", "*", argparse.REMAINDER) for one in positions):
        yield [*words, *[_value(one) for one in positions], "too", "much"]


def _value(position: argparse.Action) -> str:
    return str(next(iter(position.choices))) if position.choices else "1"


BAD = [line for leaf in LEAVES for line in bad_lines(*leaf)]


def complaint(capsys: Capsys) -> Mapping[str, str]:
    """The one JSON document on standard error; nothing is on standard output."""
    said = capsys.readouterr()
    assert said.out == ""
    found: Mapping[str, str] = json.loads(said.err)
    assert found.keys() >= PARTS
    assert all(found[part].strip() for part in PARTS)
    return found


def test_every_verb_is_tried() -> None:
    assert {line[0] for line in BAD} == set(VERBS)
    assert len(BAD) > 500


@pytest.mark.parametrize("name", sorted(VERBS))
def test_bad_words_are_told_in_three_parts(name: str, capsys: Capsys) -> None:
    for line in (line for line in BAD if line[0] == name):
        assert main([*line, "--json"]) == Exit.MISUSE, line
        assert "usage:" not in complaint(capsys)["error"]
        assert main(line) == Exit.MISUSE, line
        text = capsys.readouterr().err
        first, second, third = text.splitlines()
        assert first.startswith("error: ")
        assert second.startswith("  why: ")
        assert third.startswith(" next: ")


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        (["stauts"], "did you mean status?"),
        (["drain", "broker-8"], "did you mean `ballast broker drain`?"),
        (["pin"], "did you mean `ballast bundle pin`?"),
        (["broker", "drian", "b"], "did you mean drain?"),
        (["status", "--tabels", "x"], "did you mean --tables?"),
        (["explain", "bundel", "b"], "did you mean bundle?"),
        (["bundle", "list", "--by", "bandwith"], "did you mean bandwidth?"),
        (["bundle", "unload", "b", "--destinaton", "c"], "did you mean --destination?"),
    ],
)
def test_word_that_was_meant_is_named(line: list[str], meant: str, capsys: Capsys) -> None:
    assert main([*line, "--json"]) == Exit.MISUSE
    assert complaint(capsys)["next"].startswith(meant)


def test_word_that_was_meant_is_told_without_all_others(capsys: Capsys) -> None:
    assert main(["stauts"]) == Exit.MISUSE
    assert max(map(len, capsys.readouterr().err.splitlines())) < 80
    assert main(["nothing-like-a-verb", "--json"]) == Exit.MISUSE
    why = complaint(capsys)["why"]
    assert all(verb in why for verb in VERBS)


@pytest.mark.parametrize("word", ["KEY", "=value"])
def test_setting_of_spark_without_key_or_value_is_told(word: str, capsys: Capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        balance_cluster.main(["--tables", "T", "--bootstrap", "B", "--spark", word, "--json"])
    assert ended.value.code == Exit.MISUSE
    assert f"{word!r} is not KEY=VALUE" in complaint(capsys)["why"]


@pytest.mark.parametrize("option", ["--conf", "--config"])
@pytest.mark.parametrize(
    "process", [balance_cluster, archive_history, serve_lookup, run_fleet, run_agent]
)
def test_processes_take_settings_as_verbs_do(
    process: types.ModuleType, option: str, capsys: Capsys
) -> None:
    with pytest.raises(SystemExit) as ended:
        process.main(["--help"])
    assert ended.value.code == Exit.DONE
    assert option in re.findall(r"--[a-z]+", capsys.readouterr().out)


def test_archive_tells_a_missing_overlay_in_three_parts(tmp_path: Path, capsys: Capsys) -> None:
    words = ["--tables", str(tmp_path), "--conf", "nowhere"]
    assert archive_history.main(words) == Exit.MISUSE
    assert "error: there is no overlay nowhere\n  why: " in capsys.readouterr().err


READING = [
    leaf
    for leaf in LEAVES
    if any(one.dest == "tables" for one in declared(leaf[1])) and leaf[0][0] != "doctor"
]  # the doctor's answer is that there are none


@pytest.mark.parametrize("leaf", READING, ids=[" ".join(words) for words, _ in READING])
def test_tables_that_are_nowhere_are_told_at_once(
    leaf: tuple[list[str], argparse.ArgumentParser],
    capsys: Capsys,
    monkeypatch: Patch,
) -> None:
    monkeypatch.setattr("time.sleep", lambda s: s < 0.1 or pytest.fail("it waits"))
    words, parser = leaf
    positions = [one for one in declared(parser) if not one.option_strings and one.required]
    names = {"kind": "cluster", "topics": "persistent://a/b/c"}
    filled = [names.get(one.dest, _value(one)) for one in positions]
    filled += {"plan": ["--dry-run"], "sql": ["skips"]}.get(words[0], [])
    assert main([*words, *filled, "--tables", "NOWHERE", "--json"]) != Exit.DONE
    assert complaint(capsys)


def test_state_folder_says_where_tables_are_to_every_verb_that_reads_some() -> None:
    folders = {
        " ".join(words): [one.default for one in declared(parser) if one.dest == "state_dir"]
        for words, parser in READING
        # answers by the files unless tables are named; processes of a cluster guess no folder
        if words not in (["config", "show"], ["run-job"], ["serve"])
    }
    assert folders == {words: [STATE_DIR] for words in folders}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tables")
    world = running(2, 4)
    world.run(70_000)
    write_tables(world, root)
    return root


def test_moments_that_are_swapped_are_told(tables: Path, capsys: Capsys) -> None:
    where = ["--tables", str(tables), "--cluster", "local"]
    assert main(["ownership", "--diff", "0s", "1m", *where]) == Exit.MISUSE
    said = capsys.readouterr().err
    assert "0s is later than 1m" in said
    assert "swap them: --diff 1m 0s" in said


@pytest.mark.parametrize(
    "words",
    [
        ["explain", "cluster", "--at", "2999-01-01T00:00Z"],
        ["ownership", "--as-of", "2999-01-01T00:00Z"],
        ["ownership", "--diff", "0s", "2999-01-01T00:00Z"],
    ],
)
def test_future_is_no_time_to_ask_about(words: list[str], tables: Path, capsys: Capsys) -> None:
    assert main([*words, "--tables", str(tables), "--cluster", "local"]) == Exit.MISUSE
    said = capsys.readouterr().err
    assert "'2999-01-01T00:00Z' is in the future" in said
    assert "this machine's clock says 20" in said


def test_query_that_is_nearly_a_ready_one_is_named(tables: Path, capsys: Capsys) -> None:
    assert main(["sql", "most-movd", "--tables", str(tables)]) == Exit.MISUSE
    assert "did you mean most-moved? " in capsys.readouterr().err


def test_environment_says_where_tables_are_and_which_cluster(
    tables: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    monkeypatch.setenv("BALLAST_TABLES", str(tables))
    monkeypatch.setenv("BALLAST_CLUSTER", "local")
    assert main(["ownership", "--json"]) == Exit.DONE
    assert json.loads(capsys.readouterr().out)["bundles"]
    monkeypatch.setenv("BALLAST_CLUSTER", "another")
    assert main(["ownership", "--json"]) == Exit.DONE
    assert json.loads(capsys.readouterr().out)["bundles"] == []
    assert main(["lookup", "persistent://t/n/x", "--tables", "NOWHERE"]) == Exit.FAILED


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (["ownership", "--broker", "broker-99"], "there is no broker broker-99"),
        (["ownership", "--namespace", "t/none"], "there is no namespace t/none"),
        (["ownership", "--diff", "1m", "0s", "--broker", "broker-99"], "no broker broker-99"),
        (["bundle", "list", "--broker", "broker-99"], "there is no broker broker-99"),
        (["explain", "broker", "broker-99"], "did you mean broker-"),
        (["broker", "drain", "broker-99", "--dry-run"], ""),
        (["plan", "--dry-run", "--remove-broker", "broker-99"], "this can't be foreseen"),
    ],
)
def test_name_that_nobody_has_is_an_error(
    line: list[str], error: str, tables: Path, capsys: Capsys
) -> None:
    where = ["--tables", str(tables), "--cluster", "local"]
    assert main([*line, *where]) == Exit.FAILED
    said = capsys.readouterr()
    text = said.err + said.out
    assert error in text
    assert "  why: " in text
    assert " next: " in text
    known = {"broker-99": "broker-1:8080", "t/none": "t/n"}
    assert main([*(known.get(word, word) for word in line), *where]) == Exit.DONE


SENDING = {
    tuple(one.spec.verb.words.split()): (kind, one.spec.verb)
    for kind, one in KINDS.items()
    if one.spec.verb
}


def parsed(*words: str) -> argparse.Namespace:
    module = importlib.import_module(VERBS[words[0]].module)
    parser = argparse.ArgumentParser(prog=f"ballast {words[0]}")
    module.add_arguments(parser)
    return parser.parse_args(list(words[1:]))


def test_verb_there_is_exactly_one_for_each_kind_of_command() -> None:
    others = {one.spec.kind for one in (*MIRROR_COMMANDS, *RECORD_COMMANDS)}  # bridge, HTTP
    assert {kind for kind, _ in SENDING.values()} == KINDS.keys() - others
    assert {words[0] for words in SENDING} <= VERBS.keys()


@pytest.mark.parametrize(("words", "sent"), SENDING.items(), ids=map("-".join, SENDING))
def test_example_of_a_verb_is_a_command_of_its_kind_and_in_its_help(
    words: tuple[str, ...], sent: tuple[str, CommandVerb], capsys: Capsys
) -> None:
    kind, verb = sent
    args = parsed(*words, *shlex.split(verb.example))
    assert isinstance(read_command(args), KINDS[kind])
    assert args.wait
    assert not args.dry_run
    assert main([*words, "--help"]) == 0
    said = capsys.readouterr().out
    assert f"example: ballast {' '.join(words)} {verb.example}".rstrip() in said
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


@pytest.mark.parametrize("option", ["look-ms", "load-ms", "namespaces-ms", "max-in-flight"])
def test_bridge_without_a_pause_or_a_move_is_misuse(option: str, capsys: Capsys) -> None:
    assert main(["bridge", "pulsar", "--admin-url", "http://p:8080", f"--{option}", "0"]) == 2
    assert "no whole number from 1" in capsys.readouterr().err


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
