"""A strategy of the user's own in the real job: named by an overlay, other code means a rebuild."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.integration.stack import ROOT, Cluster, Stack, running_stack

OVERLAY = """\
[shedding]
strategy = "turning:decide"

[placement]
strategy = "least_long_term_message_rate"
"""
CODE = '''\
from ballast import Proposal, ProposedMove

STEP = {step}


def decide(snapshot, state, config, now_ms):
    """Every cycle one bundle that may move goes to the broker STEP further on."""
    names, bundles = snapshot.brokers.names, snapshot.bundles
    rows = bundles.can_move.nonzero()[0].tolist()
    if not rows:
        return Proposal(), state
    to = names[(int(bundles.owner[rows[0]]) + STEP) % len(names)]
    return Proposal(moves=(ProposedMove(bundle=bundles.names[rows[0]], destination=to),)), state
'''


class WithOwnCode(Stack):
    """A stack whose job finds the modules of the test's folder."""

    def environment(self, role: str) -> Mapping[str, str]:
        del role
        return {"PYTHONPATH": f"{self.folder}:{ROOT}"}


def codes_of_moves(stack: Stack) -> set[str]:
    """Which code the rows of decisions name, for what it has moved."""
    rows = [row for row in stack.rows("decisions") if row["strategy"] == "turning:decide"]
    inputs: list[dict[str, Any]] = [
        json.loads(row["inputs"]) for row in rows if row["kind"] == "transfer"
    ]
    return {one["code"] for one in inputs}


def reasons_of_rebuilds(stack: Stack) -> list[str]:
    return [one["rebuilt_because"] for one in stack.lines("job", "start")]


@pytest.mark.long
def test_changed_code_of_an_own_strategy_means_a_state_rebuilt_from_the_tables(
    tmp_path: Path,
) -> None:
    (tmp_path / "turning.py").write_text(CODE.format(step=1))
    (tmp_path / "mine.toml").write_text(OVERLAY)
    overlays = ("test", str(tmp_path / "mine.toml"))
    cluster = Cluster(brokers=3, namespaces={"demo/one": ("crc32", 12)}, overlays=overlays)
    with running_stack(tmp_path, cluster, kind=WithOwnCode) as stack:
        stack.wait("a move by the first code", lambda: codes_of_moves(stack))
        (first,) = codes_of_moves(stack)
        assert first.startswith("turning:decide@")
        assert stack.stop("job") == 0
        stack.start_job()
        stack.wait_for_batches(2)
        assert reasons_of_rebuilds(stack)[1:] == [""]  # the same code goes on from the checkpoint
        assert stack.stop("job") == 0
        (tmp_path / "turning.py").write_text(CODE.format(step=2))
        records = {row["bundle"]: row["version_id"] for row in stack.rows("bundle_ownership")}
        stack.start_job()
        stack.wait("a move by the other code", lambda: len(codes_of_moves(stack)) > 1)
        (again,) = reasons_of_rebuilds(stack)[2:]
        assert again
        now = {row["bundle"]: row["version_id"] for row in stack.rows("bundle_ownership")}
        assert now.keys() == records.keys()
        assert all(now[bundle] >= version for bundle, version in records.items())
