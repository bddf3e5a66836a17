"""The versions that long tests rehearse upgrades with can be made of today's source, and start."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lbcore.wire.messages import Tick, Topic
from lbcore.wire.parse import parse
from tests.integration.other_versions import (
    COLUMN,
    digest_of,
    in_folder,
    make_mended_version,
    make_next_version,
)
from tests.integration.stack import ROOT
from tests.support.values.wire_messages import RULES

_NAMES = """
import jobs.balance_cluster
from lbcore.model.tables import NAMESPACES
print(*(column.name for column in NAMESPACES.columns))
"""

_TICK = """
from lbcore.wire.format import format_message
from lbcore.wire.messages import Tick
_, key, value = format_message(Tick(cluster="local", number=7))
print(key.decode(), value.decode(), sep="\\n")
"""


@pytest.mark.parametrize(
    ("make", "is_wider"),
    [(make_next_version, True), (make_mended_version, False)],
)
def test_other_version_is_another_and_can_be_started(
    make: Callable[[Path], Path], *, is_wider: bool, tmp_path: Path
) -> None:
    root = make(tmp_path / "other")
    assert digest_of(root) != digest_of(ROOT)
    assert (COLUMN in _said_by(root, _NAMES).split()) == is_wider


def test_tick_of_the_next_versions_standby_is_read_by_the_job_that_it_waits_for(
    tmp_path: Path,
) -> None:
    key, value = _said_by(make_next_version(tmp_path / "next"), _TICK).splitlines()
    found = parse(Topic.BROKER_LOAD, key.encode(), value.encode(), RULES)
    assert isinstance(found, Tick)
    assert found.number == 7


def _said_by(root: Path, code: str) -> str:
    command = [*in_folder(root), "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
