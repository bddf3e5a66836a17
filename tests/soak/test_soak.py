"""Kill -9 of whatever runs, for a quarter of an hour: nothing is wrong, lost or left afterwards.

BALLAST_SOAK_S and BALLAST_SOAK_SEED change how long it takes and what is killed when.
"""

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.adapters.http.client import LookupConnection
from jobs.console import CommandError
from tests.integration.replay import wrong_records
from tests.integration.stack import wait_for
from tests.soak import judge
from tests.soak.orders import Operator
from tests.soak.processes import VICTIMS, Processes
from tests.support.tables.small_batches import rows

SOAK_S = float(os.environ.get("BALLAST_SOAK_S", "900"))
SEED = int(os.environ.get("BALLAST_SOAK_SEED", "17"))
KILL_S = (8.0, 40.0)
OPEN_AGAIN_S = 60.0
_START_S, _TIMEOUT_MS = 300.0, 10_000
_SPACES = (
    "demo/crc32-1",
    "demo/murmur3-32-2",
    "s0/n",
    "s2/n",
)  # of those that come and go, two that stay
_TOPICS = [f"persistent://{space}/t{number}" for number in range(40) for space in _SPACES]


@pytest.fixture
def soak(tmp_path: Path) -> Iterator[Processes]:
    running = Processes(tmp_path)
    try:
        yield running
    finally:
        running.end_by_force()


def say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")  # xdist lets nothing else through
    sys.stderr.flush()


def is_open(soak: Processes) -> bool:
    """Whether every bundle is Owned, and open at its owner alone."""
    found = rows(soak.layout.tables, "bundle_ownership")
    live = {row["bundle"]: row for row in found if row["state"] != "Deleted"}
    try:
        served = soak.served()
    except (CommandError, OSError):
        return False
    owners = {bundle: [row["destination"]] for bundle, row in live.items()}
    return all(row["state"] == "Owned" for row in live.values()) and served == owners


def is_back(soak: Processes, url: str) -> bool:
    """Whether it is open, every process is there, the job works and every topic has its answer."""
    if not (str(soak.status()["job"]).startswith("at work") and soak.is_whole() and is_open(soak)):
        return False
    connection = LookupConnection(url, _TIMEOUT_MS)
    answers = [connection.look_up(topic) for topic in _TOPICS if "/demo/" in topic]
    connection.close()
    return all(answer.broker for answer in answers)


def kill_at_random(soak: Processes) -> Counter[str]:
    """Until the time is over; what was killed how often."""
    random_ = random.Random(SEED)
    killed: Counter[str] = Counter()
    until_s = time.monotonic() + SOAK_S
    while (left_s := until_s - time.monotonic()) > 0:
        time.sleep(min(left_s, random_.uniform(*KILL_S)))
        victim = random_.choice(VICTIMS)
        pid = soak.kill(victim)
        killed[victim] += pid is not None
        say(f"killed {victim}: {pid}")
        assert soak.run.exit_code() is None, soak.said()
    return killed


def judged(
    tables: Path, recorder: judge.Recorder, asker: judge.Asker, operator: Operator
) -> dict[str, str]:
    """What is looked at → what is wrong with it."""
    events = rows(tables, "ownership_events")
    current = rows(tables, "bundle_ownership")
    asked = Counter(a.error or ("later" if a.asked_later else "answered") for a in asker.answers)
    ends = Counter(f"{a.order.kind} {a.outcome}" for a in operator.answered)
    say(f"{len(events)} events, {len(recorder.owed)} batches read whole, {recorder.missed} not")
    say(f"lookups: {dict(asked)}")
    say(f"{len(operator.answered)} orders in {operator.tries} tries: {dict(ends)}")
    return {
        "answers": judge.first(judge.wrong_answers(asker.answers, recorder.transitions)),
        "versions": judge.first(judge.wrong_versions(events)),
        "records": judge.first(wrong_records(events, current, "writer_epoch")),
        "rows": judge.first(judge.lost_rows(tables, recorder.owed)),
        "ends": judge.first(judge.untrue_ends(tables, operator.answered)),
    }


def soaked(soak: Processes) -> dict[str, str]:
    """What is looked at after the kills → what is wrong with it."""
    say(f"seed {SEED}, {SOAK_S:.0f} s, in {soak.folder}")
    wait_for("the run's first batch", lambda: soak.status().get("batches"), _START_S)
    soak.start_agents()
    wait_for("every bundle to be open", lambda: soak.status() and is_open(soak), _START_S)
    recorder = judge.Recorder(soak.layout.tables)
    port = soak.layout.lookup_port_now
    url = f"http://127.0.0.1:{port()}"
    asker = judge.Asker(url, _TOPICS)
    operator = Operator(port)
    operator.start()
    killed = kill_at_random(soak)
    last_s = time.monotonic()
    operator.ask_to_stop()
    wait_for("all to be open again", lambda: is_back(soak, url), 5 * OPEN_AGAIN_S)
    open_again_s = time.monotonic() - last_s
    operator.stop()
    asker.stop()
    soak.descendants()
    code = soak.end()  # not 0 when the run's own prober saw a wrong answer
    recorder.stop()
    say(f"killed {dict(killed)}; open again after {open_again_s:.1f} s")
    found = judged(soak.layout.tables, recorder, asker, operator)
    found["exit"] = "" if code == 0 else f"{code}: {soak.said()}"
    found["processes"] = str(soak.left() or "")
    found["time"] = "" if open_again_s <= OPEN_AGAIN_S else f"open again after {open_again_s:.0f} s"
    found["lookups"] = "" if any(answer.broker for answer in asker.answers) else "none answered"
    return found


@pytest.mark.long
@pytest.mark.timeout(SOAK_S + 900)
def test_soak_leaves_nothing_wrong_lost_or_running(
    soak: Processes, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        found = soaked(soak)
    wrong = {what: how for what, how in found.items() if how}
    assert not wrong, "\n".join(f"{what}: {how}" for what, how in wrong.items())
