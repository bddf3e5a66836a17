"""What an operator says and what becomes of it, on a real stack that lets nobody in unasked.

Kafka over TLS with passwords and ACLs: each process has what its role needs, and no more. One
stack, one story: each test goes on with what the one before left.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import psutil
import pytest
from kafka import KafkaProducer
from kafka.errors import TopicAuthorizationFailedError

from jobs.adapters.kafka.clients import PASSWORD, Sender
from jobs.cli import main
from jobs.console import CommandError
from lbcore.wire.messages import Topic
from tests.integration.secure_stack import SecureStack, running_secure_stack, secret_of
from tests.integration.stack import PATIENCE_S

Say = Callable[..., tuple[int, Any]]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureStack]:
    with running_secure_stack(tmp_path_factory.mktemp("secure")) as running:
        yield running


@pytest.fixture
def say(
    stack: SecureStack, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Say:
    """Says a line to `ballast`, logged in as an operator; exit code and answer."""
    overlay = stack.folder / "operator.toml"
    overlay.write_text(overlay_of(stack.words("operator")))
    monkeypatch.setenv(PASSWORD, secret_of("operator"))

    def run(line: str) -> tuple[int, Any]:
        words = [*line.split(), "--json", "--conf", "test", "--conf", str(overlay)]
        words += ["--tables", str(stack.tables)]
        if line.split(maxsplit=1)[0] not in ("status", "ownership"):
            words += ["--bootstrap", stack.kafka.bootstrap]
            words += [] if "--timeout" in line else ["--timeout", f"{PATIENCE_S}s"]
        code = main(words)
        said = capsys.readouterr()
        lines = (said.out or said.err).splitlines()
        return code, json.loads(lines[-1]) if lines else None

    return run


def overlay_of(words: list[str]) -> str:
    settings = (word.removeprefix("kafka.").partition("=") for word in words if word != "--set")
    return "[kafka]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, _, value in settings)


def done(answer: tuple[int, Any]) -> Any:
    code, value = answer
    assert code == 0, value
    return value


def status(say: Say) -> Any:
    """What `status` shows; its exit code tells of alarms, and a busy machine may well raise one."""
    code, found = say("status")
    assert code in (0, 1), found
    return found


def test_pause_is_seen(say: Say) -> None:
    done(say("pause --reason thinking"))
    found = status(say)
    assert found["phase"] == "off"
    assert found["pauses"][""]["reason"] == "thinking"


def test_unload_is_waited_for_and_seen_in_the_ownership(stack: SecureStack, say: Say) -> None:
    # nothing else moves in the pause that the test before began
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


def test_resume_ends_the_pause(say: Say) -> None:
    done(say("resume"))
    assert status(say)["pauses"] == {}


def test_pin_brings_a_bundle_to_its_broker_and_status_shows_it(
    stack: SecureStack, say: Say
) -> None:
    owners = stack.owners()
    bundle = min(owners)
    other = next(name for name in sorted(set(owners.values())) if name != owners[bundle])
    done(say(f"bundle pin {bundle} {other} --ttl 10m --reason test"))
    stack.wait("the pinned bundle to move", lambda: stack.owners().get(bundle) == other)
    (pin,) = status(say)["pins"]
    assert (pin["bundle"], pin["broker"], pin["reason"]) == (bundle, other, "test")
    done(say(f"bundle unpin {bundle}"))
    assert status(say)["pins"] == []
    code, refused = say(f"bundle unpin {bundle}")
    assert (code, refused["status"]) == (1, "refused")


def test_setting_is_changed_and_taken_back_while_running(say: Say) -> None:
    done(say("config set shedding.max_moves_per_cycle=3"))
    done(say("config reset shedding.max_moves_per_cycle"))
    assert say("config set pipeline.trigger_ms=500")[0] == 1, "needs a restart"


@pytest.mark.long
def test_drained_broker_is_empty_when_the_verb_ends(stack: SecureStack, say: Say) -> None:
    owners = stack.owners()
    broker = max(set(owners.values()))
    assert done(say(f"broker drain {broker}"))["status"] == "done"
    assert broker not in stack.owners().values()
    found = status(say)
    (drain,) = found["drains"]
    assert (drain["broker"], drain["left"], drain["is_done"]) == (broker, 0, True)
    cancelled = done(say(f"broker cancel-drain {broker}"))
    assert status(say)["drains"] == []
    assert f"`ballast plan undo --drain {broker}`" in cancelled["next"]
    proposed = done(say(f"plan undo --drain {broker}"))
    plan = proposed["result"]["plan"]
    assert f"`ballast plan approve {plan}`" in proposed["next"]
    done(say(f"plan approve {plan}"))
    had = {bundle for bundle, owner in owners.items() if owner == broker}

    def is_filled_again() -> bool:
        now = stack.owners()  # meanwhile balancing may have given it others, too
        return {now.get(bundle) for bundle in had} == {broker}  # none while it moves

    stack.wait("the broker to be filled again", is_filled_again)


def test_role_is_refused_what_it_has_no_right_to(stack: SecureStack) -> None:
    producer = KafkaProducer(**stack.address("agent").client_options("test-forger"))
    with pytest.raises(TopicAuthorizationFailedError):
        producer.send(Topic.OWNERSHIP.value, b"x").get(60)
    producer.close()


def test_wrong_password_is_named_and_not_shown(stack: SecureStack) -> None:
    known = stack.address("operator", "a-wrong-one")
    address = replace(known, security={**known.security, "bootstrap_timeout_ms": 5_000})
    with pytest.raises(CommandError) as raised:
        Sender(address, "test-wrong")
    assert re.search("Authentication failed|password may be wrong", raised.value.why)
    assert "a-wrong-one" not in str(raised.value)


def test_no_password_is_in_a_log_or_in_the_list_of_processes(stack: SecureStack) -> None:
    logs = [path for path in stack.folder.rglob("*.log") if path.is_file()]
    logs += list(stack.folder.rglob("*.jsonl"))
    shown = "".join(path.read_text(errors="replace") for path in logs) + command_lines()
    assert "-hush-hush" not in shown
    assert "PRIVATE KEY" not in shown


@pytest.mark.long
def test_command_to_a_job_that_is_away_ends_with_nobody_knows(stack: SecureStack, say: Say) -> None:
    stack.kill("job")
    assert done(say("resume --no-wait"))["status"] == "sent"
    code, error = say("pause --timeout 2s")
    assert code == 3
    assert "no outcome of pause" in error["error"]
    assert "last heartbeat" in error["why"]


def command_lines() -> str:
    """The command lines of every process that may be seen."""
    processes = psutil.process_iter(["cmdline"])
    return "\n".join(" ".join(each.info["cmdline"] or ()) for each in processes)
