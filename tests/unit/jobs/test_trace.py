"""Traces, recordings and pictures of runs."""

import gzip
import json
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import time, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from jobs.adapters.delta.recordings import read_recording
from jobs.cli import main
from jobs.console import Exit, MisuseError
from jobs.operating.backtesting import BIAS, COST_LEGEND
from jobs.operating.plots import FORMATS, draw_run, draw_strategies, drawn_run
from jobs.operating.simulations import load_scenarios
from jobs.verbs.trace import hashed_rows
from lbcore.config.tree import Config
from lbcore.sim.engine.engine import Run
from lbcore.sim.engine.scenario_run import LoadMap, run_scenario, run_with_load_map
from lbcore.sim.engine.traffic import Traffic
from lbcore.sim.scenario.parse import parse_scenario
from tests.support import Capsys, Patch

TRACES = Path("conf/traces")
RECORDED = "minute_ms,bundle,msg_rate_in,msg_rate_out\n"
LONG = "vm,time_s,cpu_percent\na,0,10\nb,0,30\na,300,20\nb,300,40\n"


def imported(path: Path, *words: str) -> int:
    """The exit code; what it wrote is beside the file."""
    out = str(path.parent / "out.parquet")
    wanted = ("--bundles", "2", "--brokers", "2", "--out", out)
    return main(["trace", "import", str(path), *wanted, *words])


def total(folder: Path) -> list[float]:
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
        (LONG.replace("a,300,20", "a,300,x") + "a,600,5\n", (), "not imported: 1 flaw\n"),
        (LONG, ("--resource", "cpu_percent=cpu:furlongs"), "unknown unit"),
        (LONG, ("--resource", "cpu_percent=colour:percent"), "no kind"),
        (LONG, ("--resource", "cpu_percent=cpu"), "unknown unit"),
        (
            LONG + "c,9e9,5\nc,9000000300,5\n",
            (),
            "(line 2) to its last (line 7) there are 30000002",
        ),
        (LONG.replace("b,300", "b,1e300"), (), "line 5, column 2: 1e300 is no time"),
        (LONG.replace("vm,time_s", "vm,vm,time_s"), (), "line 1: two columns are named 'vm'"),
        ("vm,time_s,cpu_percent\na,0,nan\na,9,\n", ("--gaps", "zero"), "no sample has a value"),
        ("vm,time_s,bytes_b/s\na,0,1e-9\na,9,1e-9\n", (), "has more than"),
        (
            "vm,time_s,cpu_percent,ms\na,0,1,inf\n",
            ("--covers", "ms"),
            "line 2, column 4: it covers",
        ),
    ],
)
def test_flaw_is_told_with_its_line_and_nothing_is_written(
    tmp_path: Path, capsys: Capsys, content: str, words: tuple[str, ...],
    told: str,
) -> None:  # fmt: skip
    assert imported(written(tmp_path, content), *words) == 2
    assert told in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


@pytest.mark.parametrize("cell", [time(1), timedelta(1), b"a", [1]])
def test_parquet_column_that_holds_no_times_is_told(
    tmp_path: Path, capsys: Capsys, cell: object
) -> None:
    table = pa.table({"id": ["a"], "time": [cell], "cpu_percent": [1.0]})
    pyarrow.parquet.write_table(table, tmp_path / "in.parquet")
    assert imported(tmp_path / "in.parquet", "--time-unit", "s") == 2
    assert "line 1, column 2: " in capsys.readouterr().err


def test_small_loads_keep_their_proportions(tmp_path: Path) -> None:
    content = "vm,time_s,msg_rate\na,0,0.01\nb,0,0.03\na,300,0.02\nb,300,0.02\n"
    words = ("--resource", "msg_rate=msg:msg/s")
    assert imported(written(tmp_path, content), *words) == 0
    assert total(tmp_path) == pytest.approx([0.04, 0.04])


def test_scenario_that_is_written_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "day.scenario"
    words = ("--scenario", str(path), "--load", "1000000")
    assert imported(written(tmp_path, LONG), *words) == 0
    (loaded,) = load_scenarios([str(path)])
    assert loaded.scenario.loads[0].rate.value == 1_000_000


def test_scenario_that_could_not_be_read_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: Capsys
) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    path = written(tmp_path, LONG)
    words = ("--scenario", str(tmp_path / "day.scenario"), "--out", str(folder / "out.parquet"))
    assert imported(path, *words) == Exit.MISUSE
    assert "would be no scenario" in capsys.readouterr().err
    assert [*folder.iterdir()] == []


def test_packed_file_that_is_damaged_is_refused(tmp_path: Path, capsys: Capsys) -> None:
    whole = gzip.compress(LONG.encode() * 50)
    for content in (b"no gzip", whole[:-9], whole[:20] + b"\xff\xff\xff" + whole[23:]):
        (tmp_path / "in.csv.gz").write_bytes(content)
        assert imported(tmp_path / "in.csv.gz") == 2
        assert "can't be read as a trace" in capsys.readouterr().err


def test_column_that_nobody_named_is_said_to_be_left_out(tmp_path: Path, capsys: Capsys) -> None:
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


def test_recording_can_be_backtested(tmp_path: Path, capsys: Capsys) -> None:
    assert imported(written(tmp_path, LONG)) == 0
    words = ["--recording", str(tmp_path / "out.parquet"), "--strategy", "none", "--json"]
    capsys.readouterr()
    assert main(["backtest", *words]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["strategy"] for row in rows] == ["recorded", "none"]


def test_legend_of_a_backtest_is_shown_in_lines(tmp_path: Path, capsys: Capsys) -> None:
    assert imported(written(tmp_path, LONG)) == 0
    words = ["--recording", str(tmp_path / "out.parquet"), "--strategy", "none"]
    capsys.readouterr()
    assert main(["backtest", *words]) == 0
    shown = capsys.readouterr().out.split("\n")
    legend = f"{COST_LEGEND}\n{BIAS}\n".split("\n")
    assert shown[-len(legend) :] == legend


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


def test_export_of_a_recording_with_a_wrong_name_says_which(tmp_path: Path, capsys: Capsys) -> None:
    path, out = written(tmp_path, f"{RECORDED}1,nonsense,1,1\n"), str(tmp_path / "out.parquet")
    assert main(["trace", "export", "--recording", str(path), "--out", out]) == Exit.FAILED
    assert "nonsense" in capsys.readouterr().err


def test_same_key_gives_the_same_hashes_and_another_others() -> None:
    one, two, other = (hashed_rows([history_row()], key)[0] for key in (b"k", b"k", b"l"))
    assert one == two
    assert one["broker"] != other["broker"]
    assert one["bundles"] != other["bundles"]


CSV = """minute_ms,bundle,msg_rate_in,msg_rate_out
60000,t/n/0x00000000_0x80000000,300,100
60000,t/n/0x80000000_0xffffffff,50,50
120000,t/n/0x00000000_0x80000000,700,300
120000,t/n/0x80000000_0xffffffff,50,50
"""
SCENARIO = "brokers 2\nnamespace t/n bundles=2 topics=2\nload t/n replay {} file=day.csv\nrun 5m\n"


def traffic_of(folder: Path, words: str) -> Traffic:
    (folder / "day.csv").write_text(CSV)
    (folder / "one.scenario").write_text(SCENARIO.format(words))
    (loaded,) = load_scenarios([str(folder / "one.scenario")])
    return Traffic(loaded.scenario)


def rates(traffic: Traffic, minute: int) -> list[float]:
    return traffic.rates_at(minute * 60_000).tolist()


def test_recorded_load_is_replayed_as_it_was(tmp_path: Path) -> None:
    traffic = traffic_of(tmp_path, "recorded")
    assert rates(traffic, 0) == [200, 200, 50, 50]
    assert rates(traffic, 1) == [500, 500, 50, 50]
    assert rates(traffic, 2) == rates(traffic, 0)
    (stats,) = traffic.at(0).bundles("t/n", np.array([0]), np.array([0x80000000]))
    assert stats[:4].tolist() == [300, 100, 300 * 1024, 100 * 1024]
    late = traffic_of(tmp_path, "recorded from 1m")
    assert [rates(late, minute) for minute in (0, 1)] == [[0, 0, 0, 0], [200, 200, 50, 50]]
    scaled = traffic_of(tmp_path, "10%")
    mean = np.mean([sum(rates(scaled, minute)) for minute in (0, 1)])
    assert mean == pytest.approx(0.1 * 2 * 40_000, rel=1e-3)
    with pytest.raises(MisuseError, match="no load of t/other"):
        traffic_of(tmp_path, "recorded of=t/other")


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.csv", "minute_ms,bundle\n1,t/n/0x0_0x1\n", "msg_rate_in"),
        ("a.csv", "minute_ms,bundle,msg_rate_in,msg_rate_out\n1,nonsense,1,1\n", "no bundle"),
        (
            "a.csv",
            f"{RECORDED}1,t/n/0x00000000_0xffffffff,1,1\n2,t/n/0x00000000_0xffffffff,,1\n",
            "msg_rate_in of row 2",
        ),
        (
            "a.csv",
            f"{RECORDED}1,t/n/0x00000000_0xffffffff,1,-1\n",
            "msg_rate_out of row 1",
        ),
        (
            "a.csv",
            f"{RECORDED}2026-11-21T03:00:00,t/n/0x00000000_0xffffffff,1,1\n",
            "minute_ms of row 1",
        ),
        ("a.txt", "", "neither"),
        ("a.parquet", "", "can't be read"),
    ],
)
def test_file_that_is_no_recording_is_refused(
    tmp_path: Path, name: str, content: str, told: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(MisuseError) as caught:
        read_recording(tmp_path / name)
    assert told in f"{caught.value}"


def test_clusters_are_told_apart(tmp_path: Path) -> None:
    lines = CSV.splitlines()
    both = "\n".join([f"{lines[0]},cluster", f"{lines[1]},east", f"{lines[2]},west"])
    (tmp_path / "two.csv").write_text(both)
    with pytest.raises(MisuseError, match="several clusters"):
        read_recording(tmp_path / "two.csv")
    with pytest.raises(MisuseError, match="no load of the cluster north"):
        read_recording(tmp_path / "two.csv", "north")
    space = read_recording(tmp_path / "two.csv", "east").namespaces["t/n"]
    assert space.rates[0].tolist() == [[300, 100, 300 * 1024, 100 * 1024], [0, 0, 0, 0]]


SCENARIO_OF_PLOTS = """
title Two go
brokers {brokers}
namespace t/a bundles=8 topics=2
namespace t/b bundles=4 topics=2
own t/a all b1-b2
own t/b all all
load t/a even 5pt each
load t/b even 1pt each
at 20s crash b2
at 40s command split_bundle bundle=t/a/0x00000000_0x20000000 algorithm=range_equally_divide
run 70s sample=2s
"""


def played(brokers: int = 3) -> tuple[Run, LoadMap]:
    scenario = parse_scenario(SCENARIO_OF_PLOTS.format(brokers=brokers))
    return run_with_load_map(scenario, Config())


def words_of(path: Path) -> str:
    return " ".join(ET.parse(path).getroot().itertext())  # noqa: S314 a file of our own


def test_picture_says_what_it_shows_and_is_the_same_for_the_same_run(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    files = draw_run("Two go", *played(), tmp_path / "new" / "two")
    assert [path.name for path in files] == [f"two.{suffix}" for suffix in FORMATS]
    assert files[1].read_bytes()[:4] == b"\x89PNG"
    text = words_of(files[0])
    loads = ("Load of each broker", "b1", "b3", "% of the broker's capacity", "gives a")
    imbalance = ("Imbalance", "floor-adjusted", "highest load / mean load")
    moves = ("Moves by reason", "failover: ", "splits: 1", "bundles moved in each")
    heat = ("Load of each bundle", "t/a", "t/b", "white: no service", "a bundle moved")
    words = ("Two go", "crash b2", "time, minutes", *loads, *imbalance, *moves, *heat)
    assert [word for word in words if word not in text] == []
    monkeypatch.setattr("jobs.operating.plots.FORMATS", ("svg",))
    again = draw_run("Two go", *played(), tmp_path / "two")
    assert again[0].read_text() == files[0].read_text()
    scenario = parse_scenario(SCENARIO_OF_PLOTS.format(brokers=3))
    assert played()[0].recorder.hash() == run_scenario(scenario, Config()).recorder.hash()
    many = words_of(draw_run("Many", *played(14), tmp_path / "many")[0])
    assert "each of 14 brokers" in many
    assert "median" in many


def test_load_map_shows_what_nobody_serves() -> None:
    load_map = played()[1]
    is_away = np.isnan(load_map.loads[load_map.times_ms.index(24_000)])
    assert is_away.tolist() == [*[False, True] * 4, *[False, True, False, False]]
    assert load_map.rows[load_map.row_of("t/b/0x40000000_0x80000000")].namespace == "t/b"


def test_command_says_what_is_missing_where_nothing_can_be_drawn(
    tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    scenario = tmp_path / "two.scenario"
    scenario.write_text(SCENARIO_OF_PLOTS.format(brokers=3))
    monkeypatch.delitem(sys.modules, "jobs.operating.plots")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["simulate", str(scenario), "--plot", str(tmp_path / "p")]) == 1
    assert "pip install 'ballast-balancer[plots]'" in capsys.readouterr().err


def test_strategies_stand_side_by_side_the_most_even_first(tmp_path: Path) -> None:
    run = played()[0]
    moves = len(run.recorder.moves)
    runs = [drawn_run("Two go", name, run) for name in ("beta", "alpha")]
    worse = replace(runs[0], strategy="gamma", imbalances=[3.0] * len(runs[0].times_ms))
    files = draw_strategies([worse, *runs], tmp_path / "two-strategies")
    assert {path.name for path in files} == {f"two-strategies.{suffix}" for suffix in FORMATS}
    text = words_of(tmp_path / "two-strategies.svg")
    assert text.index("alpha: ") < text.index("beta: ") < text.index("gamma: 3.00 in the mean")
    assert f"gamma: {moves}" in text
    assert "floor-adjusted" in text


@pytest.mark.parametrize(
    ("names", "more", "picture"),
    [
        (("a/two", "b/two"), [], "two"),
        (("a/two", "b/two"), ["--compare", "avg,threshold"], "two-avg"),
        (("two", "two-avg"), ["--strategy", ",avg"], "two-avg"),
        (("two", "two-strategies"), ["--strategy", ",avg"], "two-strategies"),
    ],
)
def test_files_whose_pictures_would_have_one_name_are_refused_before_they_run(
    names: tuple[str, ...], more: list[str], picture: str, tmp_path: Path, capsys: Capsys
) -> None:
    files = [tmp_path / f"{name}.scenario" for name in names]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_text(SCENARIO_OF_PLOTS.format(brokers=3))
    words = ["simulate", *map(str, files), *more]
    assert main([*words, "--plot", str(tmp_path / "out")]) == Exit.MISUSE
    said = capsys.readouterr().err
    assert f"two pictures would have the name {picture}" in said
    assert [str(file) for file in files if str(file) not in said] == []
    assert not (tmp_path / "out").exists()


def test_file_named_like_a_comparison_that_is_not_drawn_is_no_misuse(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr("jobs.operating.plots.FORMATS", ("svg",))
    for name in ("two", "two-strategies"):
        file = tmp_path / f"{name}.scenario"
        file.write_text(SCENARIO_OF_PLOTS.format(brokers=3))
    assert main(["simulate", str(tmp_path), "--plot", str(tmp_path / "out")]) == Exit.DONE
    pictures = {path.name for path in (tmp_path / "out").iterdir()}
    assert pictures == {"two.svg", "two-strategies.svg"}


def test_run_with_several_strategies_is_drawn_side_by_side(
    tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    monkeypatch.setattr("jobs.operating.plots.FORMATS", ("svg",))
    file = tmp_path / "two.scenario"
    file.write_text(SCENARIO_OF_PLOTS.format(brokers=3))
    words = ["simulate", str(file), "--strategy", "avg,threshold", "--plot", str(tmp_path / "out")]
    assert main(words) == 0
    assert "side by side: " in capsys.readouterr().err
    text = words_of(tmp_path / "out" / "two-strategies.svg")
    assert "avg: " in text
    assert "threshold: " in text
