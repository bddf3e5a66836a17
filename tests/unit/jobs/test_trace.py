"""`ballast trace`: whole or not at all, every flaw with its line, names replaced by hashes."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from jobs.adapters.delta.recordings import read_recording
from jobs.cli import main
from jobs.verbs.trace import hashed_rows

TRACES = Path("conf/traces")
LONG = "vm,time_s,cpu_percent\na,0,10\nb,0,30\na,300,20\nb,300,40\n"


def imported(path: Path, *words: str) -> int:
    """The exit code; what it wrote is beside the file."""
    out = str(path.parent / "out.parquet")
    wanted = ("--bundles", "2", "--brokers", "2", "--out", out)
    return main(["trace", "import", str(path), *wanted, *words])


def total(folder: Path) -> list[float]:
    """Messages in and out of each interval."""
    space = read_recording(folder / "out.parquet").namespaces["trace/load"]
    return space.rates[:, :, :2].sum(axis=(1, 2)).tolist()


def written(folder: Path, content: str, name: str = "in.csv") -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (LONG, ()),
        (LONG.replace(",", ";"), ()),
        (LONG.replace("time_s", "when"), ("--time", "when", "--time-unit", "s")),
        (LONG.replace("cpu_percent", "use"), ("--resource", "use=cpu:percent")),
        ("time_s,a,b\n0,10,30\n300,20,40\n", ("--resource", "cpu:percent")),
        ("vm,0,300\na,10,20\nb,30,40\n", ("--resource", "cpu:percent", "--time-unit", "s")),
        ("a,10,20\nb,30,40\n", ("--resource", "cpu:percent", "--step", "5m")),
        (
            "vm,2011-03-03T00:00Z,2011-03-03T00:05Z\na,10,20\nb,30,40\n",
            ("--resource", "cpu:percent"),
        ),
    ],
)
def test_table_is_read_long_and_wide(tmp_path: Path, content: str, words: tuple[str, ...]) -> None:
    assert imported(written(tmp_path, content), *words) == 0
    assert total(tmp_path) == [40 * 400, 60 * 400]


def test_packed_and_parquet_tables_are_the_same(tmp_path: Path) -> None:
    packed = tmp_path / "in.csv.gz"
    packed.write_bytes(gzip.compress(LONG.encode()))
    assert imported(packed) == 0
    assert total(tmp_path) == [16_000, 24_000]
    table = pa.table({"id": ["a", "b", "a", "b"], "at_s": [0, 0, 300, 300], "c": [1, 3, 2, 4]})
    pyarrow.parquet.write_table(table, tmp_path / "in.parquet")
    words = ("--time", "at_s", "--resource", "c=cpu:percent")
    assert imported(tmp_path / "in.parquet", *words) == 0
    assert total(tmp_path) == [1_600, 2_400]


@pytest.mark.parametrize(
    ("content", "words", "told"),
    [
        (LONG.replace("a,300,20", "a,300,-20"), (), "line 4: negative value of a"),
        (LONG.replace("a,300,20", "a,300,"), (), "line 4: missing value of a"),
        (LONG.replace("a,300,20", "a,300,x"), (), "line 4, column 3: 'x' is no number"),
        (
            LONG.replace("a,300,20", "a,0,20"),
            (),
            "line 4: duplicate: a has the same time in line 2",
        ),
        (LONG + "a,0,5\n", (), "line 6: unordered: a has a later time in line 4"),
        (LONG + "a,900,5\nb,600,3\n", (), "line 6: gap: a has nothing for 300 s before"),
        (LONG.replace("a,300,20", "a,300"), (), "line 4: it has 2 cells, the header 3"),
        (LONG.replace("a,300,20", ",300,20"), (), "line 4, column 1: missing entity"),
        (LONG.replace("a,300,20", "a,,20"), (), "line 4, column 2: missing time"),
        (LONG.replace("time_s", "time"), (), "line 2, column 2: 0 has an unknown unit"),
        (LONG.replace("cpu_percent", "cpu"), (), "no column tells resource and unit"),
        (LONG.replace("vm", "who"), (), "nothing says which column is the entity"),
        ("a,10,20\nb,30,40\n", ("--resource", "cpu:percent"), "nothing says how long a step is"),
        (
            "a,10,20\nb,30\n",
            ("--resource", "cpu:percent", "--step", "5m"),
            "line 2: it has 2 cells",
        ),
        ("a,1,2\na,3,4\n", ("--resource", "cpu:percent", "--step", "5m"), "line 2, column 1: dup"),
        ("a,1,-2\n", ("--resource", "cpu:percent", "--step", "5m"), "line 1, column 3: negative"),
        ("a,10,20\n", ("--step", "5m"), "one resource, and nothing says which"),
        (LONG.replace("cpu", "memory"), (), "memory weighs nothing"),
        ("", (), "it is empty"),
        (
            LONG + "c,9e9,5\nc,9000000300,5\n",
            (),
            "(line 2) to its last (line 7) there are 30000002",
        ),
        (LONG.replace("b,300", "b,1e300"), (), "line 5, column 2: 1e300 is no time"),
        (LONG.replace("vm,time_s", "vm,vm,time_s"), (), "line 1: two columns are named 'vm'"),
    ],
)
def test_flaw_is_told_with_its_line_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, words: tuple[str, ...],
    told: str,
) -> None:  # fmt: skip
    assert imported(written(tmp_path, content), *words) == 2
    assert told in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_packed_file_that_is_damaged_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = gzip.compress(LONG.encode() * 50)
    for content in (b"no gzip", whole[:-9], whole[:20] + b"\xff\xff\xff" + whole[23:]):
        (tmp_path / "in.csv.gz").write_bytes(content)
        assert imported(tmp_path / "in.csv.gz") == 2
        assert "can't be read as a trace" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["cpu:furlongs", "colour:percent", "cpu"])
def test_unknown_unit_or_kind_is_a_misuse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], word: str
) -> None:
    assert imported(written(tmp_path, LONG), "--resource", f"cpu_percent={word}") == 2
    assert "unknown unit" in (said := capsys.readouterr().err) or "no kind" in said


def test_column_that_nobody_named_is_said_to_be_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = "vm,time_s,cpu_percent,colour\na,0,10,red\na,300,20,red\n"
    assert imported(written(tmp_path, content), "--json") == 0
    assert (
        "colour is left out: nobody said what it is" in json.loads(capsys.readouterr().out)["said"]
    )


def test_committed_recording_is_what_its_source_gives(tmp_path: Path) -> None:
    name = "planetlab-20110303"
    words = ["--step", "5m", "--resource", "cpu:percent", "--bundles", "128", "--brokers", "10"]
    out, scenario = tmp_path / f"{name}.parquet", tmp_path / f"{name}.scenario"
    files = ["--out", str(out), "--scenario", str(scenario)]
    assert (
        main(["trace", "import", str(TRACES / f"{name}.csv.gz"), *words, "--for", "6h", *files])
        == 0
    )
    script, _, _ = (TRACES / f"{name}.scenario").read_text().partition("\n----\n")  # its runs
    assert scenario.read_text() == script
    mine, theirs = read_recording(out), read_recording(TRACES / f"{name}.parquet")
    assert np.array_equal(
        mine.namespaces["trace/load"].rates, theirs.namespaces["trace/load"].rates
    )


def test_traces_are_small_and_each_is_named_with_its_source() -> None:
    assert sum(path.stat().st_size for path in TRACES.iterdir()) <= 3_000_000
    text = (TRACES / "README.md").read_text()
    assert [path.name for path in TRACES.glob("*.parquet") if path.stem not in text] == []


def test_recording_can_be_backtested(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert imported(written(tmp_path, LONG)) == 0
    words = ["--recording", str(tmp_path / "out.parquet"), "--strategy", "none", "--json"]
    capsys.readouterr()
    assert main(["backtest", *words]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["strategy"] for row in rows] == ["recorded", "none"]


def history_row(**changes: Any) -> dict[str, Any]:
    lists = ("msg_rate_in", "msg_rate_out", "msg_throughput_in", "msg_throughput_out", "topics")
    row = {
        "cluster": "east",
        "broker": "pulsar-1",
        "broker_group": "pulsar-0",
        "minute_ms": 60_000,
        "percent": [4.0] * 5,
    }
    bundles = ["acme/orders/0x00000000_0x80000000", "acme/bills/0x80000000_0xffffffff"]
    return {**row, "bundles": bundles, **{name: [1.0, 2.0] for name in lists}, **changes}


def test_export_has_no_name_and_the_same_load() -> None:
    (row,) = hashed_rows([history_row()], b"key")
    text = json.dumps(row)
    assert not any(name in text for name in ("acme", "orders", "bills", "pulsar-", "east"))
    assert [name.rpartition("/")[2] for name in row["bundles"]] == [
        "0x00000000_0x80000000",
        "0x80000000_0xffffffff",
    ]
    tenants = {name.partition("/")[0] for name in row["bundles"]}
    assert len(tenants) == 1
    assert row["msg_rate_in"] == [1.0, 2.0]


def test_same_key_gives_the_same_hashes_and_another_others() -> None:
    one, two, other = (hashed_rows([history_row()], key)[0] for key in (b"k", b"k", b"l"))
    assert one == two
    assert one["broker"] != other["broker"]
    assert one["bundles"] != other["bundles"]
