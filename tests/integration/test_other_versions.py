"""The versions that long tests rehearse upgrades with can be made of today's source, and start."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.other_versions import (
    COLUMN,
    digest_of,
    in_folder,
    make_mended_version,
    make_next_version,
)
from tests.integration.stack import ROOT

_NAMES = """
import jobs.balance_cluster
from lbcore.model.tables import NAMESPACES
print(*(column.name for column in NAMESPACES.columns))
"""


@pytest.mark.parametrize(
    ("make", "is_wider"), [(make_next_version, True), (make_mended_version, False)]
)
def test_other_version_is_another_and_can_be_started(
    make: Callable[[Path], Path], *, is_wider: bool, tmp_path: Path
) -> None:
    root = make(tmp_path / "other")
    assert digest_of(root) != digest_of(ROOT)
    asked = subprocess.run(
        [*in_folder(root), "-c", _NAMES], check=True, capture_output=True, text=True
    )
    assert (COLUMN in asked.stdout.split()) == is_wider
