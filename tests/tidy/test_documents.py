"""What the documents say is there: files, commands, options, settings, messages, strategies."""

import argparse
import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from jobs import run_local
from jobs.cli import verb_parser
from jobs.service import lookup_http
from jobs.verbs import VERBS
from lbcore.balancer.commands import HANDLERS
from lbcore.config.setting import UNSET
from lbcore.config.tree import SECTIONS, SETTINGS
from lbcore.model.resources import RESOURCES
from lbcore.wire.commands import KINDS, RefusedArguments, parse_arguments
from lbcore.wire.messages import Command, Topic
from lbcore.wire.parse import parse
from tests.conformance.runner import FAMILY_OF
from tests.drawn_pages import DOCS, PAGES
from tests.support.values.wire_messages import RULES
from tests.tidy.source_files import ROOT, of_each, python_files

README = ROOT / "README.md"
_DOCUMENTS = [
    README,
    ROOT / "CHANGELOG.md",
    ROOT / "lbcore" / "DESIGN.md",
    ROOT / "conf" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
_QUOTED_MIN = 6
_README_LINES_MAX = 200
_HEADER = r"X-Ballast-[A-Za-z-]+"


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def rows_of(path: Path, heading: str) -> list[list[str]]:
    """The cells of the table whose head begins so, without its two head lines."""
    lines = text_of(path).split(f"| {heading} |", 1)[1].splitlines()[2:]
    end = next(at for at, line in enumerate([*lines, ""]) if not line.startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[:end]]


@of_each(_DOCUMENTS)
def test_link_of_a_document_leads_to_a_file(path: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text_of(path))
    absent = [link for link in links if "://" not in link and not (path.parent / link).exists()]
    assert absent == []


@of_each(_DOCUMENTS)
def test_path_that_a_document_names_exists(path: Path) -> None:
    named = re.findall(r"`((?:jobs|lbcore|tests|conf|docs)/[\w./-]+)`", text_of(path))
    assert [one for one in named if not (ROOT / one).exists()] == []


@of_each(_DOCUMENTS)
def test_command_that_a_document_names_exists(path: Path) -> None:
    text = text_of(path)
    verbs = set(re.findall(r"(?:^|[`/ ])ballast ([a-z][a-z-]+)(?=[`\s])", text, re.MULTILINE))
    verbs = {verb for verb in verbs if f"`ballast {verb}" in text or f"bin/ballast {verb}" in text}
    assert verbs - VERBS.keys() == set()
    targets = set(re.findall(r"^([a-z-]+):(?!=)", text_of(ROOT / "Makefile"), re.MULTILINE))
    assert set(re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE)) - targets == set()
    modules = re.findall(r"python -m ((?:jobs|tests)(?:\.\w+)*)", text)
    paths = [ROOT / module.replace(".", "/") for module in modules]
    assert [one for one in paths if not (one.with_suffix(".py").exists() or one.is_dir())] == []


def _options_of(verb: str, words: Sequence[str]) -> set[str]:
    """The options that a verb takes, and those of the action that comes next, if any."""
    parser: argparse.ArgumentParser = verb_parser(verb, VERBS[verb])
    found: set[str] = set()
    while True:
        actions = parser._actions  # noqa: SLF001 argparse shows them nowhere else
        found |= {option for action in actions for option in action.option_strings}
        below = [one.choices for one in actions if isinstance(one.choices, dict)]
        name, *words = [*words, ""]
        if not below or name not in below[0]:
            return found
        parser = below[0][name]


@of_each(_DOCUMENTS)
def test_option_of_a_command_that_a_document_names_exists(path: Path) -> None:
    lines = re.findall(
        r"(?:`|bin/|^|\$ )ballast ([a-z][a-z-]+ [^`\n#|;&]*--[^`\n#|;&]*)", text_of(path)
    )
    absent = []
    for line in lines:
        verb, *words = line.split()
        options = {word.partition("=")[0].strip(".,)'") for word in words if word.startswith("--")}
        if verb in VERBS:
            absent += [(line, one) for one in options - _options_of(verb, words) - {"--"}]
    assert absent == []


@of_each(_DOCUMENTS)
def test_setting_that_a_document_names_exists(path: Path) -> None:
    sections = "|".join(SECTIONS)
    named = re.findall(rf"(?:`|--set )((?:{sections})\.\w+)", text_of(path))
    files = {f"{section}.py" for section in SECTIONS}
    assert [key for key in named if key not in SETTINGS and key not in files] == []


def _strategies(kind: str) -> list[list[str]]:
    return rows_of(DOCS / "strategies.md", f"{kind} | Pulsar's class")


def test_pathology_of_each_shedder_is_shown_by_a_file() -> None:
    shown_by_none = [row[0] for row in _strategies("shedding") if "](../tests/" not in row[-1]]
    assert shown_by_none == [], (
        "add it to a test of tests/golden/test_pathologies.py, write the text with `--rewrite`, and"
        " link it in the record's `seen_in`: [G2](golden/pathologies/G2_NAME.txt)"
    )


def test_table_of_the_command_line_has_every_verb() -> None:
    assert [row[0].strip("`") for row in rows_of(DOCS / "commands.md", "verb")] == sorted(VERBS)


def test_options_table_has_every_option_of_a_run() -> None:
    parser = argparse.ArgumentParser(prog="ballast run-local", add_help=False)
    run_local.add_arguments(parser)
    options = {word for action in parser._actions for word in action.option_strings}  # noqa: SLF001 argparse shows them nowhere else
    told = re.findall(
        r"--[a-z-]+", " ".join(row[0] for row in rows_of(DOCS / "local.md", "option"))
    )
    assert set(told) == options


def test_message_that_is_explained_is_in_the_code() -> None:
    code = "".join(text_of(path) for path in python_files("jobs", "lbcore"))
    code = re.sub(r'"\s+f?"', "", code)  # strings that go on in the next line
    quoted = [
        words
        for row in rows_of(DOCS / "troubleshooting.md", "what you see")
        for message in re.findall(r"`([^`]+)`", row[0])
        for words in re.split(r"\.\.\.|\bN\b|[:;]", message)
        if len(words.strip()) >= _QUOTED_MIN
    ]
    quoted = [words.strip() for words in quoted if not words.startswith("X-Ballast")]
    assert len(quoted) > 5
    assert [words for words in quoted if words not in code] == []


def test_header_that_a_document_names_is_sent() -> None:
    pages = ("local.md", "troubleshooting.md", "http.md")
    named = {word for page in pages for word in re.findall(_HEADER, text_of(DOCS / page))}
    sent = text_of(Path(str(lookup_http.__file__)))
    assert named
    assert [header for header in named if f'b"{header.lower()}"' not in sent] == []


def test_functions_table_of_the_conformance_page_is_the_runners() -> None:
    rows = rows_of(ROOT / "docs" / "conformance.md", "fn")
    assert sorted(fn for row in rows for fn in re.findall(r"`(\w+)`", row[0])) == sorted(FAMILY_OF)


def test_name_that_the_code_tour_shows_is_in_its_file() -> None:
    stops = re.findall(r"`([\w/]+\.py)`, `(\w+)`", text_of(DOCS / "code-tour.md"))
    assert len(stops) > 20
    for path, name in stops:
        assert re.search(
            rf"\b(def|class) {name}\b|^{name} = |^{name}: ", text_of(ROOT / path), re.MULTILINE
        )


@pytest.mark.parametrize("name", sorted(PAGES))
def test_drawn_page_is_its_declarations(name: str) -> None:
    is_drawn = text_of(ROOT / name) == PAGES[name]()  # a diff of whole pages says less
    assert is_drawn, f"{name} is not what is declared: run `make draw`"


def test_command_that_a_document_sends_is_carried_out() -> None:
    (text,) = re.findall(
        r"^command = (\{.*?^\})", text_of(DOCS / "local.md"), re.MULTILINE | re.DOTALL
    )
    value = json.dumps(ast.literal_eval(text)).encode()
    found = parse(Topic.COMMANDS, b"local", value, RULES)
    assert isinstance(found, Command)
    assert found.kind in HANDLERS
    assert not isinstance(parse_arguments(found.kind, found.arguments), RefusedArguments)


def test_each_declared_command_has_a_handler() -> None:
    assert KINDS.keys() == HANDLERS.keys(), (
        "give each kind a handler in the HANDLERS of lbcore/balancer, as docs/contributing.md says"
    )


def test_resources_that_a_service_reports_are_named_in_order() -> None:
    page = text_of(DOCS / "agent.md")
    (named,) = re.findall(r"^- `usage` and `limit`: (.*?), in any unit", page, re.MULTILINE)
    assert named == ", ".join(one.name.replace("_", " ") for one in RESOURCES), (
        "name each resource in docs/agent.md, in the order of RESOURCES"
    )


def test_commands_that_the_changelog_names_are_those_of_the_job() -> None:
    text = text_of(ROOT / "CHANGELOG.md")
    (sentence,) = re.findall(r"\*\*Commands\*\* on the topic(.*?)\. ", text, re.DOTALL)
    assert set(re.findall(r"`([a-z_]+)`", sentence)) - {"commands"} == HANDLERS.keys(), (
        "name each command in CHANGELOG.md, in the sentence of **Commands** on the topic"
    )


def test_setting_whose_default_is_not_pulsars_is_listed_with_its_reason() -> None:
    rows = rows_of(DOCS / "differences.md", "setting")
    listed = {name for row in rows for name in re.findall(r"`(\w+\.\w+)`", row[0])}
    differing = {key for key, one in SETTINGS.items() if one.setting.pulsar_default is not UNSET}
    assert listed == differing


def test_readme_fits_into_two_hundred_lines() -> None:
    assert len(text_of(README).splitlines()) <= _README_LINES_MAX


def test_layout_that_the_readme_draws_is_that_of_the_folders() -> None:
    drawn = text_of(README).split("## Layout")[1].split("```")[1]
    for top in ("jobs", "lbcore", "tests"):
        part = re.split(r"^(?=\w)", drawn.split(f"\n{top}/")[1], maxsplit=1, flags=re.MULTILINE)[0]
        named = set(re.findall(r"\b(\w+)/(?=\s|$)", part)) - {top}
        folders = {path.parent.name for path in (ROOT / top).glob("*/*.py")}
        assert folders - named == set(), f"{top}/ in README.md, 'Layout'"
        assert [name for name in named if not (ROOT / top / name).is_dir()] == []


def test_every_page_is_named_by_the_readme() -> None:
    pages = {path.name for path in DOCS.glob("*.md")} - {"index.md"}
    assert pages - set(re.findall(r"\]\(docs/([\w-]+\.md)\)", text_of(README))) == set()


def test_navigation_of_the_site_has_every_page() -> None:
    nav = text_of(ROOT / ".mkdocs.yml").partition("\nnav:")[2]
    assert {path.name for path in DOCS.glob("*.md")} == set(re.findall(r"[\w-]+\.md", nav))


def test_pages_make_a_site_whose_links_all_lead_somewhere(tmp_path: Path) -> None:
    words = ["build", "--strict", "--quiet", "--config-file", ".mkdocs.yml"]
    made = subprocess.run(
        [sys.executable, "-m", "mkdocs", *words, "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    absent = {path.stem for path in DOCS.glob("*.md")} - {"index"}
    assert [name for name in sorted(absent) if not (tmp_path / "site" / name).is_dir()] == []
