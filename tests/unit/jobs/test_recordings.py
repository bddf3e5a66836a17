"""Recordings from files, and scenarios that replay them."""

from pathlib import Path

import numpy as np
import pytest

from jobs.adapters.delta.recordings import read_recording
from jobs.console import MisuseError
from jobs.operating.simulations import load_scenarios
from lbcore.sim.engine.traffic import Traffic

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


def test_recorded_load_is_scaled_to_a_mean(tmp_path: Path) -> None:
    traffic = traffic_of(tmp_path, "10%")
    mean = np.mean([sum(rates(traffic, minute)) for minute in (0, 1)])
    assert mean == pytest.approx(0.1 * 2 * 40_000, rel=1e-3)


def test_replay_starts_when_it_is_asked_to(tmp_path: Path) -> None:
    traffic = traffic_of(tmp_path, "recorded from 1m")
    assert rates(traffic, 0) == [0, 0, 0, 0]
    assert rates(traffic, 1) == [200, 200, 50, 50]


def test_throughput_and_direction_stay_as_recorded(tmp_path: Path) -> None:
    field = traffic_of(tmp_path, "recorded").at(0)
    (stats,) = field.bundles("t/n", np.array([0]), np.array([0x80000000]))
    assert stats[:4].tolist() == [300, 100, 300 * 1024, 100 * 1024]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.csv", "minute_ms,bundle\n1,t/n/0x0_0x1\n", "msg_rate_in"),
        ("a.csv", "minute_ms,bundle,msg_rate_in,msg_rate_out\n1,nonsense,1,1\n", "no bundle"),
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


def test_namespace_that_was_not_recorded_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="no load of t/other"):
        traffic_of(tmp_path, "recorded of=t/other")
