"""Tables and a balancer that tests of the admin service share."""

from pathlib import Path

import pytest

from jobs.service.context import AdminContext
from tests.support.admin.admin_world import Balancer, make_context, write_tables
from tests.support.tables.lookup_tables import TablesWriter


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("admin") / "tables"
    write_tables(root)
    return root


@pytest.fixture
def moving(tmp_path: Path) -> tuple[TablesWriter, AdminContext]:
    """Tables that a test writes on to, and a context that follows them by hand."""
    root = tmp_path / "tables"
    return write_tables(root), make_context(root)


@pytest.fixture
def balancer() -> Balancer:
    return Balancer()
