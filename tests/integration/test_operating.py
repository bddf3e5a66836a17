"""The verbs on the real stack, end to end: what an operator says, and what has become of it."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jobs.cli import main
from tests.integration.stack import NAMESPACES, Stack, running_stack, wait_for

Say = Callable[..., tuple[int, Any]]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("operating")) as running:
        yield running


@pytest.fixture
def say(stack: Stack, capsys: pytest.CaptureFixture[str]) -> Say:
    """Says a line to `ballast`; exit code and answer."""

    def run(line: str) -> tuple[int, Any]:
        words = [*line.split(), "--json", "--conf", "test", "--tables", str(stack.tables)]
        if line.split(maxsplit=1)[0] not in ("status", "ownership"):
            words += ["--bootstrap", stack.kafka.bootstrap]
        code = main(words)
        said = capsys.readouterr()
        lines = (said.out or said.err).splitlines()
        return code, json.loads(lines[-1]) if lines else None

    return run


def done(answer: tuple[int, Any]) -> Any:
    code, value = answer
    assert code == 0, value
    return value


def test_unload_is_waited_for_and_seen_in_the_ownership(stack: Stack, say: Say) -> None:
    before = done(say("ownership"))
    bundle, owner = next((row["bundle"], row["destination"]) for row in before["bundles"])
    other = next(name for name in sorted(set(stack.owners().values())) if name != owner)
    line = f"bundle unload {bundle} --destination {other}"
    dry = done(say(f"{line} --dry-run"))
    assert [one["bundle"] for one in dry["transitions"]] == [bundle]
    assert stack.owners()[bundle] == owner
    assert done(say(line))["status"] == "done"
    assert stack.owners()[bundle] == other
    changes = done(say(f"ownership --diff {before['version']} 0s"))["changes"]
    change = next(one for one in changes if one["bundle"] == bundle)
    assert (change["before"]["destination"], change["after"]["destination"]) == (owner, other)
    rows = done(say(f"ownership --as-of {before['version']}"))["bundles"]
    assert next(row for row in rows if row["bundle"] == bundle)["destination"] == owner


def test_pin_brings_a_bundle_to_its_broker_and_status_shows_it(stack: Stack, say: Say) -> None:
    owners = stack.owners()
    bundle = min(owners)
    other = next(name for name in sorted(set(owners.values())) if name != owners[bundle])
    done(say(f"bundle pin {bundle} {other} --ttl 10m --reason test"))
    wait_for("the pinned bundle to move", lambda: stack.owners().get(bundle) == other, 60)
    (pin,) = done(say("status"))["pins"]
    assert (pin["bundle"], pin["broker"], pin["reason"]) == (bundle, other, "test")
    done(say(f"bundle unpin {bundle}"))
    assert done(say("status"))["pins"] == []
    code, refused = say(f"bundle unpin {bundle}")
    assert (code, refused["status"]) == (1, "refused")


def test_pause_is_seen_until_it_is_ended(say: Say) -> None:
    done(say("pause --reason thinking"))
    found = done(say("status"))
    assert found["phase"] == "off"
    assert found["pauses"][""]["reason"] == "thinking"
    done(say("resume"))
    assert done(say("status"))["pauses"] == {}


def test_split_of_the_largest_bundle_ends_with_its_children(stack: Stack, say: Say) -> None:
    namespace = min(NAMESPACES)
    line = f"bundle split --namespace {namespace} --which LARGEST --force"
    children = done(say(line))["result"]["children"]
    assert len(children) == 2
    assert set(children) <= stack.owners().keys()
    rows = done(say(f"ownership --namespace {namespace}"))["bundles"]
    assert len(rows) == NAMESPACES[namespace][1] + 1


def test_setting_is_changed_and_taken_back_while_running(say: Say) -> None:
    done(say("config set shedding.max_moves_per_cycle=3"))
    done(say("config reset shedding.max_moves_per_cycle"))
    assert say("config set wire.max_message_bytes=5")[0] == 1, "needs a restart"


def test_drained_broker_is_empty_when_the_verb_ends(stack: Stack, say: Say) -> None:
    broker = max(set(stack.owners().values()))
    assert done(say(f"broker drain {broker} --timeout 90s"))["status"] == "done"
    assert broker not in stack.owners().values()
    found = done(say("status"))
    (drain,) = found["drains"]
    assert (drain["broker"], drain["left"], drain["is_done"]) == (broker, 0, True)
    done(say(f"broker cancel-drain {broker}"))
    assert done(say("status"))["drains"] == []


def test_command_to_a_job_that_is_away_ends_with_nobody_knows(stack: Stack, say: Say) -> None:
    stack.kill("job")
    assert done(say("resume --no-wait"))["status"] == "sent"
    code, error = say("pause --timeout 2s")
    assert code == 3
    assert "no outcome of pause" in error["error"]
    assert "last heartbeat" in error["why"]
