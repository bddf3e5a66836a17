"""Clocks of real processes turned under them: Kafka's broker, Spark's driver, agents, producers.

The JVMs of Kafka and Spark, Spark's Python workers and the command line each live by a clock of
their own: what tests/sim/test_clock_faults.py shows in virtual time, on the real stack.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import pytest

from jobs.adapters.kafka.embedded_kafka import KafkaOptions
from jobs.adapters.processes.processes import ProcessSpec
from tests.integration.stack import ROOT, Cluster, Stack, wait_for
from tests.support.processes.frozen import COMPILER, TurnedClock
from tests.support.processes.kafka_cluster import QUICK_JAVA, KafkaNode, make_topics

AHEAD_S = (3_600, -3_600, 40, -40, 5)
TIMEOUT = "30s"
SOON_S = 60.0
"""A wait of an hour, by whatever clock, is none; a crowded machine needs some seconds."""
SHORT_S = 2
NEAR_S = 4
BACK_S = 10
"""A job whose clock goes back by more ends, as Spark would wait: a supervisor starts it again."""
NAMESPACES = {"demo/one": ("crc32", 8)}
VERB = "from jobs.cli import main; raise SystemExit(main())"

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(COMPILER is None, reason="needs a C compiler: apt-get install gcc"),
]


class TurnedKafka(KafkaNode):
    """One that lives by a clock of its own."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        super().__init__(folder, KafkaOptions(java_options=QUICK_JAVA))
        self._environment = environment

    def spec(self) -> ProcessSpec:
        return replace(super().spec(), environment=self._environment)


@dataclass
class TurnedStack(Stack):
    """A stack each part of which has its own clock: kafka, job, agent, producer."""

    clocks: Mapping[str, TurnedClock] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=count)
    ahead_s: dict[str, int] = field(default_factory=dict)

    def environment(self, role: str) -> dict[str, str]:
        return dict(self.clocks[role].environment) if role in self.clocks else {}

    def turn(self, process: str, ahead_s: int) -> None:
        """Turn a clock, and start the job again where that ends it."""
        back_s = self.ahead_s.get(process, 0) - ahead_s
        self.ahead_s[process] = ahead_s
        self.clocks[process].turn(ahead_s)
        if process == "job" and back_s > BACK_S:
            code, said = self.wait_end("job")
            assert code == 1, said
            assert "the clock of this machine went back" in said
            self.metrics_file("job").unlink(missing_ok=True)
            self.start_job()
            self.wait_for_batches(1)

    def order(self) -> None:
        """A command by the command line, which says that it was carried out in its timeout."""
        setting = f"shedding.max_moves_per_cycle={next(self.numbers) % 7 + 2}"
        words = ["config", "set", setting, "--json", "--conf", "test", "--timeout", TIMEOUT]
        words += ["--tables", str(self.tables), "--bootstrap", self.kafka.bootstrap]
        ended = subprocess.run(
            [sys.executable, "-c", VERB, *words],
            cwd=ROOT,
            env={**os.environ, **self.environment("producer")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, (ended.stdout, ended.stderr)

    def cycle(self) -> float:
        return self.metric("ballast_cycle", 'cluster="local"')

    def wait_for_cycles(self) -> None:
        cycle = self.cycle()
        wait_for("two cycles", lambda: self.cycle() >= cycle + 2, SOON_S)

    def wait_named(self, clock: str, ahead_s: int) -> None:
        """Until the metric that the alert reads names the clock, and by how much it is wrong."""
        seen: list[float] = []

        def is_near() -> bool:
            seen.append(self.metric("ballast_clock_ahead_seconds", f'clock="{clock}"'))
            return abs(seen[-1] - ahead_s) <= NEAR_S

        try:
            wait_for(f"the alert on {clock} at {ahead_s} s", is_near, SOON_S)
        except AssertionError as error:
            raise AssertionError(f"{error}: it says {seen[::10]}") from None

    def check(self) -> None:
        """Nobody died, all is open at its owner, and a reader that starts now serves it."""
        self.wait_settled()
        assert {row["state"] for row in self.rows("brokers")} == {"active"}
        assert not [one for one in self.batch_lines() if one.get("counts", {}).get("died")]
        (self.folder / "lookup-port").unlink(missing_ok=True)
        self.start_lookup()
        self.wait("a lookup", lambda: self.lookup("persistent://demo/one/t")[0] == 200)
        self.stop("lookup")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TurnedStack]:
    folder = tmp_path_factory.mktemp("turned")
    names = ("kafka", "job", "agent", "producer")
    clocks = {name: TurnedClock(folder / "clocks" / name) for name in names}
    kafka = TurnedKafka(folder / "kafka", clocks["kafka"].environment)
    cluster = Cluster(brokers=3, namespaces=NAMESPACES)
    made = TurnedStack(folder=folder, kafka=kafka, cluster=cluster, clocks=clocks)
    try:
        kafka.start()
        make_topics(kafka, made.address("operator"))
        made.begin()
        yield made
    finally:
        made.stop_all()


@pytest.mark.parametrize("ahead_s", AHEAD_S)
@pytest.mark.parametrize(("process", "clock"), [("kafka", "kafka"), ("job", "driver")])
def test_turned_clock_of_a_server_stops_nothing_and_is_named(
    stack: TurnedStack, process: str, clock: str, ahead_s: int
) -> None:
    for is_short in (True, False):
        stack.turn(process, ahead_s)
        if is_short:
            threading.Event().wait(SHORT_S)
        else:
            stack.wait_named(clock, ahead_s)
            stack.order()
            stack.wait_for_cycles()
        stack.turn(process, 0)
        stack.order()
        stack.wait_for_cycles()
    stack.check()


@pytest.mark.parametrize("ahead_s", AHEAD_S)
def test_command_by_a_turned_clock_is_carried_out_and_its_clock_named(
    stack: TurnedStack, ahead_s: int
) -> None:
    stack.turn("producer", ahead_s)
    stack.order()
    stack.wait_named("producer", ahead_s)
    stack.turn("producer", 0)
    stack.order()
    stack.check()
