"""Text from outside is read in linear time: each expression, each reader of a page.

Each attack takes milliseconds in linear time and minutes in quadratic time. A limit of CPU time
ends it, which no load of the machine changes.
"""

import ast
import importlib
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from lbcore.assess.owner_changes import unloads_of
from lbcore.bridge.answers import parse_metrics
from lbcore.bridge.client_latency import parse_client_latency
from lbcore.config.java_values import parse_properties
from lbcore.config.tree import Config
from lbcore.config.values import ConfigError
from lbcore.plan.filter.policies import matches_any
from lbcore.validation.dynamic import with_dynamic
from tests.tidy.source_files import module_of, name_of, parsed, python_files

LIMIT_S = 5.0
CHARS = 400_000
_OWN_WORDS = {
    "jobs/parser.py": "the command line of whoever calls it",
    "jobs/bill_of_materials.py": "the project's own lock files",
    "jobs/adapters/processes/preflight.py": "what java -version says",
    "jobs/sql/engine.py": "the statement of whoever asks",
}
"""Modules whose expressions meet no text from outside, with what they read."""


class TooSlowError(Exception):
    """The limit of CPU time is over."""


@contextmanager
def limited() -> Iterator[None]:
    """End what takes longer than LIMIT_S of CPU time; `re` looks for signals while it matches."""

    def end(*_: object) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


# -- every expression of the product, by how it is used


def _expressions() -> Iterator[tuple[str, "re.Pattern[str] | re.Pattern[bytes]", str]]:
    """Name, expression and method of each use of a module's own expressions."""
    for path in python_files("lbcore", "jobs"):
        tree = parsed(path)
        names = {
            node.targets[0].id
            for node in tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and "re.compile(" in ast.unparse(node.value)
        }
        if not names or name_of(path) in _OWN_WORDS:
            continue
        module = importlib.import_module(module_of(path))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                found = getattr(module, node.value.id, None)
                if node.value.id in names and isinstance(found, re.Pattern):
                    yield f"{module_of(path)}.{node.value.id}", found, node.attr


USES = sorted({(name, used): found for name, found, used in _expressions()}.items())


def _attacks(pattern: str) -> Iterator[str]:
    """Texts made of the expression's own literals, which begin to match and never end."""
    literal = re.sub(r"\\[dwsSDW]|\[[^\]]*\]|\(\?[:P<!=a-z_>]*|[\\()*+?{}^$|]", "", pattern)[:60]
    seeds = ["a", "0", "1.", "-", "/", "a=", 'a="', "{", "a{", "a{\n", "\\", " ", "\n", "_", "a/b/"]
    head = re.match(r"[\^]?([\w -]*)", pattern)[1]
    for seed in [*seeds, literal, f"{literal}\n", f"{literal}{{", f"{head}{{\n", f"{head}{{"]:
        if seed:
            yield seed * (CHARS // len(seed))
            yield literal + seed * (CHARS // len(seed)) + "\x00"


@pytest.mark.parametrize("use", USES, ids=[f"{name}.{used}" for (name, used), _ in USES])
def test_expression_is_linear_in_the_text(
    use: tuple[tuple[str, str], "re.Pattern[str] | re.Pattern[bytes]"],
) -> None:
    (_, used), compiled = use
    if used == "pattern":
        return
    source = compiled.pattern
    is_text = isinstance(source, str)
    for attack in _attacks(source if is_text else source.decode("latin-1")):
        text = attack if is_text else attack.encode()
        with limited():
            match used:
                case "sub":
                    compiled.sub("" if is_text else b"", text)
                case "finditer":
                    assert sum(1 for _ in compiled.finditer(text)) >= 0
                case _:
                    getattr(compiled, used)(text)


# -- every reader of a page, a file or a name


def _metrics(line: str) -> bytes:
    return (line * (CHARS // len(line))).encode()


def _refused(values: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        with_dynamic(Config(), values)


READERS: dict[str, Callable[[], object]] = {
    "metrics, open braces": lambda: parse_metrics(_metrics("pulsar_version_info{\n")),
    "metrics, one label": lambda: parse_metrics(b"pulsar_version_info{" + b"a" * CHARS + b"} 1"),
    "metrics, open quotes": lambda: parse_metrics(
        b"pulsar_version_info{" + b'a="' * CHARS + b"} 1"
    ),
    "metrics, a long number": lambda: parse_metrics(
        b"process_start_time_seconds " + b"9" * 10 * CHARS
    ),
    "felt": lambda: parse_client_latency(_metrics("pulsar_broker_publish_latency_sum{\n")),
    "felt, no number": lambda: parse_client_latency(b"pulsar_topic_load_times_sum 1.2.3\n"),
    "sightings": lambda: unloads_of(
        'pulsar_lb_unload_broker_breakdown_total{reason="Admin"' * (CHARS // 20)
    ),
    "sightings, lines": lambda: unloads_of("pulsar_lb_unload_bundle_total{\n" * (CHARS // 20)),
    "broker.conf, continued": lambda: parse_properties("a=" + "b\\\n" * CHARS),
    "broker.conf, backslashes": lambda: parse_properties("\\" * (4 * CHARS + 1) + "\n"),
    "settings, unknown": lambda: _refused({f"shedding.strategi{at}": "x" for at in range(1_000)}),
    "isolation": lambda: matches_any(["([a-z0-9-]+[.]?)+:8080", "(a|a)*b", "(.*)*x"], "a" * CHARS),
}


@pytest.mark.parametrize("reader", READERS)
def test_reader_of_outside_text_is_linear(reader: str) -> None:
    with limited():
        READERS[reader]()


def test_every_exception_names_a_module_that_has_expressions() -> None:
    assert sys.version_info >= (3, 10)
    paths = {name_of(path): path for path in python_files("jobs")}
    assert [name for name in _OWN_WORDS if "re." not in paths[name].read_text()] == []
