"""Pictures of a run: all of them, in both formats, with words on them, the same each time."""

import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jobs.cli import main
from jobs.operating.plots import (
    FORMATS,
    PICTURES,
    Shot,
    draw_all,
    draw_strategies,
    drawn_run,
)
from lbcore.config.tree import Config
from lbcore.sim.engine.scenario_run import run_scenario, run_with_load_map
from lbcore.sim.scenario.parse import parse_scenario

SCENARIO = """
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


def shot_of(brokers: int = 3) -> Shot:
    run, load_map = run_with_load_map(parse_scenario(SCENARIO.format(brokers=brokers)), Config())
    return Shot(title="Two go", run=run, load_map=load_map)


def words_of(path: Path) -> str:
    return " ".join(ET.parse(path).getroot().itertext())  # noqa: S314 a file of our own


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    draw_all(shot_of(), folder / "new", "two")
    return folder / "new"


def test_every_picture_is_there_in_every_format(pictures: Path) -> None:
    wanted = {f"two-{name}.{suffix}" for name in PICTURES for suffix in FORMATS}
    assert {path.name for path in pictures.iterdir()} == wanted
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in pictures.glob("*.png"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("loads", ("Load of each broker", "b1", "b3", "% of the broker's capacity", "gives a")),
        ("imbalance", ("Imbalance", "floor-adjusted", "highest load / mean load")),
        ("moves", ("Moves by reason", "failover: ", "splits: 1", "bundles moved in each")),
        ("heat", ("Load of each bundle", "t/a", "t/b", "white: no service", "a bundle moved")),
    ],
)
def test_picture_says_what_it_shows(pictures: Path, name: str, words: tuple[str, ...]) -> None:
    text = words_of(pictures / f"two-{name}.svg")
    assert [
        word for word in ("Two go", "crash b2", "time, minutes", *words) if word not in text
    ] == []


def test_picture_of_the_same_run_is_the_same(pictures: Path, tmp_path: Path) -> None:
    draw_all(shot_of(), tmp_path, "two")
    for name in PICTURES:
        file = f"two-{name}.svg"
        assert (tmp_path / file).read_text() == (pictures / file).read_text()


def test_run_with_a_load_map_is_the_same_run() -> None:
    scenario = parse_scenario(SCENARIO.format(brokers=3))
    assert shot_of().run.recorder.hash() == run_scenario(scenario, Config()).recorder.hash()


def test_load_map_shows_what_nobody_serves() -> None:
    load_map = shot_of().load_map
    is_away = np.isnan(load_map.loads[load_map.times_ms.index(24_000)])
    assert is_away.tolist() == [*[False, True] * 4, *[False, True, False, False]]
    assert load_map.rows[load_map.row_of("t/b/0x40000000_0x80000000")].namespace == "t/b"


def test_many_brokers_are_summed_up(tmp_path: Path) -> None:
    draw_all(shot_of(14), tmp_path, "many")
    text = words_of(tmp_path / "many-loads.svg")
    assert "each of 14 brokers" in text
    assert "median" in text


def test_command_says_what_is_missing_where_nothing_can_be_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = tmp_path / "two.scenario"
    scenario.write_text(SCENARIO.format(brokers=3))
    monkeypatch.delitem(sys.modules, "jobs.operating.plots")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["simulate", str(scenario), "--plot", str(tmp_path / "p")]) == 1
    assert "pip install 'ballast-balancer[plots]'" in capsys.readouterr().err


def test_strategies_stand_side_by_side_the_most_even_first(tmp_path: Path) -> None:
    run = shot_of().run
    moves = len(run.recorder.moves)
    runs = [drawn_run("Two go", name, run) for name in ("beta", "alpha")]
    worse = replace(runs[0], strategy="gamma", imbalances=[3.0] * len(runs[0].times_ms))
    files = draw_strategies([worse, *runs], tmp_path, "two")
    assert {path.name for path in files} == {f"two-strategies.{suffix}" for suffix in FORMATS}
    text = words_of(tmp_path / "two-strategies.svg")
    assert text.index("alpha: ") < text.index("beta: ") < text.index("gamma: 3.00 in the mean")
    assert f"gamma: {moves}" in text
    assert "floor-adjusted" in text


def test_run_with_several_strategies_is_drawn_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "two.scenario"
    file.write_text(SCENARIO.format(brokers=3))
    words = ["simulate", str(file), "--strategy", "avg,threshold", "--plot", str(tmp_path / "out")]
    assert main(words) == 0
    assert "side by side: " in capsys.readouterr().err
    text = words_of(tmp_path / "out" / "two-strategies.svg")
    assert "avg: " in text
    assert "threshold: " in text


def test_heat_of_bundles_that_are_all_alike_says_so(tmp_path: Path) -> None:
    alike = SCENARIO.format(brokers=3).replace("load t/b even 1pt", "load t/b even 5pt")
    alike = "\n".join(line for line in alike.splitlines() if not line.startswith("at "))
    run, load_map = run_with_load_map(parse_scenario(alike), Config())
    draw_all(Shot(title="Two stay", run=run, load_map=load_map), tmp_path, "two")
    assert "5 % of a broker, alike and always" in words_of(tmp_path / "two-heat.svg")
