"""Plans that wait for a person, on the real stack: proposed, approved, carried out, undone."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.cli import main
from tests.integration.stack import Cluster, Stack, running_stack

CLUSTER = Cluster(settings=("cluster.approval=ask", "shedding.is_shedding=false"))


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("stack"), CLUSTER) as running:
        yield running


@pytest.fixture
def ballast(stack: Stack, capsys: pytest.CaptureFixture[str]) -> Any:
    """Exit code and what is written of a verb of `ballast plan`."""

    def run(action: str, *words: str) -> tuple[int, str]:
        where = ["--tables", str(stack.tables)]
        if action not in ("list", "show"):
            where += ["--bootstrap", stack.kafka.bootstrap]
        capsys.readouterr()
        code = main(["plan", action, *words, *where])
        found = capsys.readouterr()
        return code, found.out + found.err

    return run


def test_plan_is_shown_approved_done_and_taken_back(stack: Stack, ballast: Any) -> None:
    assert ballast("list")[1].startswith("no plan waits")
    bundle, owner = min(stack.owners().items())
    other = next(name for name in sorted(set(stack.owners().values())) if name != owner)
    code, text = ballast("propose", f"{bundle}={other}", "--why", "its own disk", "--plan", "p-1")
    assert (code, "p-1" in text) == (0, True), text
    assert stack.owners()[bundle] == owner
    listed, shown = ballast("list")[1], ballast("show", "p-1")[1]
    assert "waits, lapses in" in listed
    assert "its own disk" in listed
    assert f"{bundle}  {owner} -> {other}" in shown
    assert "ballast plan approve p-1" in shown
    assert ballast("approve", "p-1")[0] == 0
    stack.wait("the move", lambda: stack.owners().get(bundle) == other)
    code, text = ballast("approve", "p-1")
    assert code == 1
    assert "already" in text
    stack.wait("its end", lambda: "1 of 1 done" in ballast("show", "p-1")[1])
    stack.wait_settled()
    code, text = ballast("undo", "p-1", "--json")
    assert code == 0, text
    name = json.loads(text)["result"]["plan"]
    assert "undo of plan p-1" in ballast("show", name)[1]
    assert ballast("approve", name)[0] == 0
    stack.wait("the way back", lambda: stack.owners().get(bundle) == owner)
    stack.wait_settled()
    code, text = ballast("undo", "p-1")
    assert code == 1
    assert "there is nothing to undo" in text


def test_plan_that_there_is_not_is_told_with_those_there_are(ballast: Any) -> None:
    for action in ("show", "approve", "reject", "undo"):
        code, text = ballast(action, "nosuch")
        assert code == 1
        assert "there is no plan nosuch" in text
        assert " next: `ballast plan list`" in text


def test_every_decision_about_a_plan_is_kept_with_who_answered(stack: Stack) -> None:
    rows = [row for row in stack.rows("decisions") if row["kind"] == "plan"]
    rows.sort(key=lambda row: row["at_ms"])
    told = [(row["reason"], json.loads(row["inputs"])["plan"]) for row in rows]
    assert [reason for reason, plan in told if plan == "p-1"] == ["Proposed", "Approved", "Done"]
    assert all(
        json.loads(row["inputs"])["answered_by"] for row in rows if row["reason"] == "Approved"
    )


def test_words_that_are_no_move_and_no_undo_are_refused(tmp_path: Path) -> None:
    where = ["--tables", str(tmp_path)]
    assert main(["plan", "propose", "acme/a", *where]) == 2
    assert main(["plan", "undo", *where]) == 2
    assert main(["plan", *where]) == 2
