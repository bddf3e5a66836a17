"""A row of a small table that can't be read stays as it was, costs no other, and is told."""

from pathlib import Path
from typing import Any

import pytest

from jobs.service.views import TableViews
from lbcore.model.tables import COMMANDS, CONFIG_VERSIONS, NAMESPACES, POLICIES, RECORDS, Table
from tests.support.tables.commands_table import CommandsTable
from tests.support.tables.lookup_tables import CLUSTER, TablesWriter

POLICY = {"kind": "isolation", "is_set": True, "value": '{"namespaces": []}'}
TENANT = {"record_type": "tenant", "is_deleted": False, "value": '{"admin_roles": ["a"]}'}
NAMED = {"hash": "crc32", "is_deleted": False, "properties": "{}"}
SMALL: dict[str, tuple[Table, str, str, dict[str, Any]]] = {
    "records": (RECORDS, "name", "value", TENANT),
    "policies": (POLICIES, "name", "value", POLICY),
    "namespaces": (NAMESPACES, "namespace", "properties", NAMED),
}


@pytest.mark.parametrize("broken", ["{", "3", "[[[", '"text"'])
@pytest.mark.parametrize("small", SMALL)
def test_a_row_that_cannot_be_read_stays_as_it_was_and_its_neighbours_go_on(
    tmp_path: Path, small: str, broken: str
) -> None:
    table, key, column, row = SMALL[small]
    writer, views = TablesWriter(tmp_path), TableViews(tmp_path, CLUSTER)
    writer.upsert(table, key, [{**row, key: "a"}])
    views.refresh()
    writer.upsert(table, key, [{**row, key: "a", column: broken}, {**row, key: "b"}])
    views.refresh()
    assert {found[key]: found[column] for found in views.rows(table.name)} == {
        "a": row[column],
        "b": row[column],
    }
    assert f"{column} is no JSON" in views.last_error
    confirmed_ms = views.confirmed_ms
    views.refresh()
    assert views.confirmed_ms > confirmed_ms
    started = TableViews(tmp_path, CLUSTER)
    started.refresh()
    assert [found[key] for found in started.rows(table.name)] == ["b"]
    writer.upsert(table, key, [{**row, key: "a"}])
    views.refresh()
    assert views.last_error == ""


def test_shown_table_that_cannot_be_followed_is_told_once_and_costs_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As `TableViews.run` goes on, five times a second."""
    TablesWriter(tmp_path).upsert(RECORDS, "name", [{**TENANT, "name": "a"}])
    CommandsTable(tmp_path).add("c-1", "done")
    views = TableViews(tmp_path, CLUSTER)
    views.listening.add(page := object())
    views.refresh()
    broken = (
        tmp_path / COMMANDS.name / "_delta_log" / f"{views.version(COMMANDS.name) + 1:020d}.json"
    )
    broken.write_text("{")
    for _ in range(2):  # read on, then opened anew
        views.refresh()
    told, confirmed_ms = len(caplog.records), views.confirmed_ms
    for _ in range(3):
        views.refresh()
    assert views.last_error
    assert len(caplog.records) == told > 0
    assert views.confirmed_ms >= confirmed_ms > 0
    assert len(views.rows(RECORDS.name)) == 1
    broken.unlink()
    views.refresh()
    assert views.last_error == ""
    views.listening.discard(page)


def test_settings_that_cannot_be_read_stay_as_they_were(tmp_path: Path) -> None:
    writer, views = TablesWriter(tmp_path), TableViews(tmp_path, CLUSTER)
    for number, settings in enumerate(('{"shedding.enabled": false}', "{")):
        writer.upsert(CONFIG_VERSIONS, "number", [{"number": number, "settings": settings}])
        views.refresh()
        assert views.settings == {"shedding.enabled": False}
    assert "settings is no JSON" in views.last_error
