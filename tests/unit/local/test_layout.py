"""What a local run's folder remembers from one run to the next."""

import argparse
import socket
from pathlib import Path

import pytest

from jobs.console import CommandError, MisuseError
from jobs.local.layout import Layout, Size, check_size
from jobs.local.stack import namespaces_of
from jobs.operating.connection_options import STACK_OPTIONS, connection_options
from jobs.run_local import check_kills, parse_kill


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(root=tmp_path / "run")


def test_size_of_first_run_is_kept_for_the_second(layout: Layout) -> None:
    first = layout.settle_size({"brokers": 10, "namespaces": None, "bundles": 1000})
    assert first == Size(brokers=10, namespaces=2, bundles=1000)
    assert layout.settle_size({"brokers": None, "namespaces": None, "bundles": None}) == first
    assert layout.settle_size({"brokers": 12}).brokers == layout.settle_size({}).brokers == 12
    assert [one.bundles for one in namespaces_of(Size(namespaces=3, bundles=11))] == [4, 4, 3]


def test_size_that_can_not_be_or_is_another_than_before_is_misuse(layout: Layout) -> None:
    for size in (Size(brokers=0), Size(namespaces=1), Size(namespaces=5, bundles=4)):
        with pytest.raises(MisuseError):
            check_size(size)
    layout.settle_size({"bundles": 100})
    with pytest.raises(MisuseError, match=r"(?s)100 bundles.*make clean"):
        layout.settle_size({"bundles": 200})


def test_layout_second_run_in_the_folder_is_refused(layout: Layout) -> None:
    with layout.exclusive():
        with pytest.raises(CommandError) as caught, layout.exclusive():
            pass
        assert "another run" in caught.value.what
    with layout.exclusive():
        pass


def test_lookup_port_taken_is_an_error_or_replaced_aloud(
    layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    layout.root.mkdir()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        with pytest.raises(CommandError, match=r"(?s)lookup service.*--port N"):
            layout.lookup_port(taken)
        (layout.root / "lookup-port.json").write_text(str(taken))
        port = layout.lookup_port(None)
    assert port != taken
    assert layout.lookup_port_now() == layout.lookup_port(None) == port
    told = capsys.readouterr().err
    assert f"port {taken} is taken" in told
    assert f"has port {port}; --port N chooses one" in told


@pytest.mark.parametrize("port", [0, -1, 65_536, 10**30])
def test_lookup_port_that_is_none_is_an_error(layout: Layout, port: int) -> None:
    layout.root.mkdir()
    with pytest.raises(CommandError) as caught:
        layout.lookup_port(port)
    assert "1 to 65535" in caught.value.why


def test_kill_of_a_broker_that_the_run_has_not_is_misuse() -> None:
    check_kills((parse_kill("broker-1@1"), parse_kill("broker-6@1.5")), Size(brokers=6))
    for name in ("broker-7", "broker-0", "broker-01", "store-1", "BROKER-1"):
        with pytest.raises(MisuseError) as caught:
            check_kills((parse_kill(f"{name}@1"),), Size(brokers=6))
        assert "broker-1 to broker-6" in caught.value.why
    for text in ("broker-1", "@1", "broker-1@", "broker-1@inf", "broker-1@-1"):
        with pytest.raises(argparse.ArgumentTypeError, match="BROKER@SECONDS"):
            parse_kill(text)


def test_settings_of_the_last_run_are_those_of_verbs_that_name_none(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BALLAST_CONF", raising=False)
    parser = argparse.ArgumentParser()
    STACK_OPTIONS(parser)

    def shed_interval_ms(*words: str) -> int:
        args = parser.parse_args(["--state-dir", str(layout.root), *words])
        return connection_options(args).config.pipeline.shed_interval_ms

    layout.root.mkdir()
    assert layout.settings() is None
    assert shed_interval_ms() == 10_000
    layout.save_settings(("demo",), ("shedding.avg_low_hits=3",))
    assert layout.settings() == (["demo"], ["shedding.avg_low_hits=3"])
    assert shed_interval_ms() == 5_000
    assert shed_interval_ms("--conf", "test") == 2_000
    assert shed_interval_ms("--tables", str(layout.tables)) == 10_000
    monkeypatch.setenv("BALLAST_CONF", "test")
    assert shed_interval_ms() == 2_000
