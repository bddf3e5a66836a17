"""The stops of the tour on a cluster in virtual time: each statement is true, each query is right.

The real stack takes the tour in `make tour`; here the same stops ask the same verbs about tables
that a cluster in virtual time has written.
"""

import io
import time
from collections.abc import Callable, Collection
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from jobs.cli import main
from jobs.local.layout import Layout
from jobs.operating.stack_words import Whereabouts
from jobs.telemetry.job_names import JOB_METRICS
from jobs.tour import stops
from jobs.tour.guide import Guide
from lbcore.config.tree import Config
from lbcore.wire.messages import Command
from tests.support.worlds.explained_world import write_tables
from tests.support.worlds.ruled_world import owners, running
from tests.support.worlds.world import World

NAMES = {"HOT": "broker-1:8080", "HANGING": "broker-5:8080"}
_STEPS = 12
_STEP_MS = 20_000


class VirtualGuide(Guide):
    """Asks the real verbs; what would change the cluster is done to the world instead."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.folder = folder
        self.looks = 0
        self.prometheus = None
        self.look()

    def look(self) -> None:
        """The tables as they are now."""
        self.looks += 1
        self.layout = Layout(root=self.folder / str(self.looks))
        write_tables(self.world, self.layout.tables, time.time_ns() // 1_000_000)

    def wait(self, what: str, condition: Callable[[], Any]) -> Any:
        for _ in range(_STEPS):
            if found := condition():
                return found
            self.world.run(_STEP_MS)
            self.look()
        raise AssertionError(what)

    def metrics(self, *names: str) -> str:
        declared = {metric.name for metric in JOB_METRICS}
        assert set(names) <= declared
        return 'ballast_moves_total{shed} failover bundles_split_total{} 1.0 kind="repair"'

    def _verb(self, *words: str, codes: Collection[int] = (0,)) -> str:
        match words:
            case ("namespace", "unload", namespace, "--destination", broker, *_):
                return self.command("unload_namespace", namespace=namespace, destination=broker)
            case ("bundle", "split", bundle, *_):
                return self.command("split_bundle", bundle=bundle, force=True)
            case ("kill-broker", broker):
                self.world.kill(broker)
                return f"killed {broker}"
            case ("kill-broker", broker, "--start"):
                self.world.start(broker)
                return f"started {broker}"
        with redirect_stdout(io.StringIO()) as said:
            more = ["--no-kafka"] if words[0] == "doctor" else []
            code = main([*words, *more, "--state-dir", str(self.layout.root)])
        assert code in codes, words
        return said.getvalue()

    def command(self, kind: str, **arguments: object) -> str:
        self.world.command(kind, **arguments)
        self.world.run(5_000)
        self.look()
        return "done"


@pytest.fixture
def guide(tmp_path: Path) -> VirtualGuide:
    world = running(6, 24)
    world.rates = dict.fromkeys(owners(world), 1_000.0)
    world.run(60_000)
    return VirtualGuide(world, tmp_path)


def test_each_statement_of_the_tour_is_true(
    guide: VirtualGuide, capsys: pytest.CaptureFixture[str]
) -> None:
    class Fleet:
        def act(self, action: str, broker: str) -> None:
            guide.world.brokers[broker].is_hanging = action == "hang"

    def send(_: object, commands: list[Command]) -> None:
        for command in commands:
            guide.world.append(command)

    where = mock.Mock(spec=Whereabouts, layout=guide.layout, config=Config())
    with (
        mock.patch.multiple(stops, **NAMES, CLUSTER="local"),
        mock.patch.object(stops, "fleet_client", return_value=Fleet()),
        mock.patch.object(stops, "send_commands", side_effect=send),
    ):
        stops.start(guide, stops.Size(brokers=6, namespaces=1, bundles=24))  # type: ignore[attr-defined]
        stops.hot_spot(guide, "t/n")
        stops.crash(guide)
        stops.split(guide)
        stops.stuck(guide, where)
        stops.end(guide)
    told = capsys.readouterr().out
    assert told.count("✓") == 23
