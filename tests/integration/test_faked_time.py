"""The clock of a real lookup service turned under it, by Debian's package faketime."""

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.processes.lookup_service import LookupService
from tests.support.tables.lookup_tables import (
    BROKER_NAMES,
    BUNDLES,
    NAMESPACE,
    TOPIC,
    Row,
    TablesWriter,
    move,
    owned,
)

LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
METRIC = "ballast_service_clock_ahead_seconds "
LOOKUP = f"/lookup/v2/topic/{TOPIC.replace('://', '/')}"

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(LIBRARY is None, reason="needs libfaketime: apt-get install faketime"),
]


def test_service_whose_clock_is_turned_answers_as_before_and_names_it(tmp_path: Path) -> None:
    turned = tmp_path / "turned"
    turned.write_text("+0")
    writer = TablesWriter(tmp_path / "tables")
    writer.namespaces({NAMESPACE: "crc32"})
    writer.brokers(*BROKER_NAMES)
    _commit(writer, owned(NAMESPACE, 4, BROKER_NAMES))
    faked = {
        "LD_PRELOAD": str(LIBRARY),
        "FAKETIME_TIMESTAMP_FILE": str(turned),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    service = LookupService(tmp_path / "tables", environment=faked)
    try:
        service.wait_ready()
        for version, ahead_s in enumerate((0, 3_600, -3_600, 40, -40, 5, 0), start=1):
            turned.write_text(f"{ahead_s:+d}")
            for at in (2 * version, 2 * version + 1):
                _commit(writer, [move(BUNDLES[0], at, "b2")])
                time.sleep(1)
            _check(service, ahead_s)
    finally:
        assert service.stop() == 0


def _check(service: LookupService, ahead_s: int) -> None:
    reply = service.get(LOOKUP)
    assert reply.status == 200, reply
    assert int(reply.headers["x-ballast-writer-silent-ms"]) < 10_000, ahead_s
    assert abs(_ahead_s(service) - ahead_s) <= 3, ahead_s


def _commit(writer: TablesWriter, rows: Sequence[Row]) -> None:
    writer.now_ms = time.time_ns() // 1_000_000 - 1_000  # a batch's time is a second on
    writer.committed_ms = writer.now_ms + 1_000
    writer.batch(rows)


def _ahead_s(service: LookupService) -> float:
    lines = service.get("/metrics").body.decode().splitlines()
    return next(float(line.removeprefix(METRIC)) for line in lines if line.startswith(METRIC))
