"""A command is a record and a handler: in a copy with one more, everything has it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
KINDS = Path("lbcore/wire/kinds/balancing_commands.py")
HANDLERS = Path("lbcore/balancer/policy_commands.py")
RECORD = '''
@dataclass(frozen=True, slots=True, kw_only=True)
class GreetBroker(CommandArguments):
    """Say a word to a broker."""

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="greet_broker",
        is_for_operators=True,
        verb=CommandVerb(words="broker greet", example="broker-3 --word hello"),
        sample={"broker": "broker-3:8080", "word": "hello"},
        after=("pause",),
    )
    broker: str = argument(read.broker, "whom")
    word: str = argument(read.text, "what is said", "")


BROKER_COMMANDS: tuple[type[CommandArguments], ...] = (
    GreetBroker,
'''
HANDLER = """
def _greet(work: BatchContext, command: Command, arguments: Any) -> Outcome:
    return Outcome(status=DONE, result={"said": arguments.word})


POLICY_HANDLERS: Mapping[str, Callable[[BatchContext, Command, Any], Outcome]] = {
    "greet_broker": _greet,
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The project with a command that greets a broker: two files of it are changed."""
    root = tmp_path / "greeting"
    for name in ("lbcore", "jobs", "tests"):
        unwanted = shutil.ignore_patterns("__pycache__", "integration", "recordings", "cases")
        shutil.copytree(ROOT / name, root / name, ignore=unwanted)
    for path, added in ((KINDS, RECORD), (HANDLERS, HANDLER)):
        text, head = (root / path).read_text(), added.strip("\n").splitlines()[-2]
        assert text.count(head) == 1
        (root / path).write_text(text.replace(f"{head}\n", added))
    return root


USES = """
import json
import random
from jobs.cli import verb_parser
from jobs.operating.commanding import read_command
from jobs.service.access import Role
from jobs.service.v1.planning import role_of
from jobs.verbs import VERBS
from lbcore.wire.commands import KINDS, format_arguments, parse_arguments
from tests.drawn_pages import _draw_command
from tests.fuzz.drawn_commands import draw
from tests.support.worlds.command_cases import CASES, is_carried_out, prepared
# message
asked = parse_arguments('greet_broker', {'broker': 'b:1', 'word': 'hi'})
assert format_arguments(asked) == ('greet_broker', {'broker': 'b:1', 'word': 'hi'})
# verb
parser = verb_parser('broker', VERBS['broker'])
read = read_command(parser.parse_args(['greet', 'broker-3', '--word', 'hi']))
assert (read.spec.kind, read.broker, read.word) == ('greet_broker', 'broker-3', 'hi')
# HTTP, and who may
assert role_of('greet_broker') is Role.OPERATOR
# cluster
case = CASES['greet_broker']
world = prepared(case)
command_id = world.command('greet_broker', **case.arguments)
world.run(1_000)
assert is_carried_out(world, command_id)
(row,) = [one for one in world.other_rows['commands'] if one['command_id'] == command_id]
assert json.loads(row['result']) == {'said': 'hello'}
# fuzz
world, chooser = prepared(CASES['pause']), random.Random(1)
assert 'greet_broker' in {draw(world, chooser)[0] for _ in range(400)}
# page
assert '`ballast broker greet`, an operator' in _draw_command(KINDS['greet_broker'])
"""


def test_command_that_is_added_is_used(copy: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", USES], cwd=copy, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
