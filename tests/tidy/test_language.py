"""Plain language: beginnings of docstrings, length of sentences in documents, commit subjects."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.commit_subject import fault_of
from tests.tidy.source_files import PACKAGES, ROOT, name_of, of_each, parsed, python_files

_RELATIVE = {
    "What", "Who", "Whose", "Whom", "Whether", "How", "Why", "Where", "When", "Which",
    "Whatever", "Whoever",
}  # fmt: skip
_WORDS_MAX = 30
_FIRST_LINE_MAX = 80
_LONG_PERCENT_MAX = 2.0
_PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "lbcore").glob("*.md")),
]
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@of_each(python_files(*PACKAGES, "dashboards"))
def test_docstring_begins_with_a_verb_or_a_noun(path: Path) -> None:
    docs = [
        (getattr(node, "name", "module"), ast.get_docstring(node) or "")
        for node in ast.walk(parsed(path))
        if isinstance(node, _DOCUMENTED)
    ]
    clauses = [
        name for name, doc in docs if doc and re.split(r"\W", doc, maxsplit=1)[0] in _RELATIVE
    ]
    assert clauses == [], "a docstring begins with a verb phrase or a noun phrase"
    long = [name for name, doc in docs if len(doc.partition("\n")[0]) > _FIRST_LINE_MAX]
    assert long == [], f"the first line of a docstring has at most {_FIRST_LINE_MAX} characters"


def test_sentences_of_the_documents_are_short() -> None:
    counts = [
        (len(sentence.split()), name_of(page), sentence)
        for page in _PAGES
        for sentence in _sentences(page.read_text(encoding="utf-8"))
    ]
    long = sorted((one for one in counts if one[0] > _WORDS_MAX), reverse=True)
    shown = "\n".join(f"{name}: {words} words: {text[:80]}" for words, name, text in long)
    assert 100 * len(long) <= _LONG_PERCENT_MAX * len(counts), f"break some of these up:\n{shown}"


@pytest.mark.parametrize(
    ("message", "is_good"),
    [
        (
            "Skip brokers with stale heartbeats in failover\n\nThey get bundles and lose them.\n",
            True,
        ),
        (
            "Merge branch 'next' into a-branch-with-a-name-that-is-longer-than-any-subject-may-be",
            True,
        ),
        ("\n", False),
        ("# a comment of git's alone\n", False),
        ("Skip brokers with stale heartbeats; count them\n", False),
        ("Skip brokers with stale heartbeats in failover\nand count them\n", False),
        (
            "Skip brokers with stale heartbeats in failover, and count those that were skipped\n",
            False,
        ),
    ],
)
def test_subject_of_a_commit_is_one_short_sentence(message: str, *, is_good: bool) -> None:
    assert (fault_of(message) == "") is is_good


def test_hook_checks_the_subject_of_each_commit() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    assert "tests.tidy.commit_subject" in hooks
    assert "stages: [commit-msg]" in hooks


_DIALECT = {
    "told", "tell", "telling", "said", "heard", "hear", "felt", "deeds", "sight", "sights", "words",
    "lift", "lifts", "ripe", "aside", "watchman", "inquiry", "fate", "bell", "tether",
    "whereabouts", "anew", "owed", "seen", "dice",
}  # fmt: skip


@of_each(python_files(*PACKAGES, "dashboards"))
def test_names_are_terms_and_no_words_of_a_dialect(path: Path) -> None:
    named = [path.stem] + [
        node.name
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    odd = [
        name
        for name in named
        if _DIALECT & {part.lower() for part in re.split(r"_|(?<=[a-z0-9])(?=[A-Z])", name)}
    ]
    assert odd == [], "take a term that docs/concepts.md has, or that a web search explains"


def _sentences(page: str) -> Iterator[str]:
    """Yield the sentences of a page's paragraphs: no code, no tables, no headings."""
    for paragraph in re.split(r"\n\s*\n", re.sub(r"```.*?```", "", page, flags=re.DOTALL)):
        if not paragraph.lstrip().startswith(("|", "#")):
            yield from (
                one for one in re.split(r"(?<=[.!?:])\s+", paragraph) if len(one.split()) > 2
            )
