"""A resource is one record: in a copy of the project with one more, everything has it.

The copy's is one that nobody declares, and no test has a number of resources written out.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path

import pytest

from lbcore.config.signals import SignalsConfig
from lbcore.model.resources import LOCAL, RESOURCES, WIRE_NAMES, complete, local_max
from tests.pack_state import packed_today

ROOT = Path(__file__).parents[3]
SCHEMA = ROOT / "lbcore" / "wire" / "schemas" / "broker-load.json"
MORE = '    Resource(name="more", wire="more", metric="more", label="what is new"),\n'
IMPORTS = """
from dataclasses import replace
from pathlib import Path
import base64, json, sys
import numpy as np
from dashboards.pages import PULSAR
from jobs.sql.queries import VIEWS
from jobs.telemetry.job_names import USAGE_NAMES
from lbcore.config.placement import PlacementConfig
from lbcore.config.shedding import SheddingConfig
from lbcore.config.signals import SignalsConfig
from lbcore.config.tree import Config
from lbcore.balancer import report
from lbcore.balancer.balancer import ClusterBalancer
from lbcore.balancer.batch_context import BatchContext
from lbcore.balancer.book import BrokerEntry
from lbcore.agent.load_validation import check_load
from lbcore.agent.reporting import LoadRead
from lbcore.balancer.book import pack_brokers, unpack_brokers
from lbcore.model.resources import COUNT, LEAST_COUNT, complete
from lbcore.model.tables import LOAD_HISTORY
from lbcore.plan.decision import Plan, PlanState
from lbcore.plan.pending import COLUMNS
from lbcore.plan.planner import plan
from lbcore.signals.usage import weighted_usage, weighted_usage_with_memory
from lbcore.scorer.group_update import (
    Arrivals, BrokerReport, GroupUpdate, pack_update, unpack_update,
)
from lbcore.sim.load.load import usage_of
from lbcore.wire import loads
from lbcore.wire.messages import BUNDLE_COLUMNS, BrokerLoad, Envelope
from tests.support.values.clusters import Sections, cluster_of

def with_last(first, last):
    return (*complete((first,))[:-1], last)

"""


def test_weights_of_resources_are_settings() -> None:
    names = {one.name for one in fields(SignalsConfig)}
    assert {one.weight for one in RESOURCES if one.weight} <= names


def test_report_schema_has_every_resource() -> None:
    report = json.loads(SCHEMA.read_text())["$defs"]["report"]["properties"]
    resources = [name for name, of in report.items() if of == {"$ref": "#/$defs/resource"}]
    assert tuple(resources) == WIRE_NAMES, "run `make draw`"


def test_rows_of_before_a_resource_read_as_zero() -> None:
    assert complete((1.0, 2.0)) == (1.0, 2.0, *(0.0,) * (len(RESOURCES) - 2))
    assert local_max((10.0, 90.0, 20.0)) == 20.0
    assert [RESOURCES[at].name for at in range(len(RESOURCES)) if at not in LOCAL] == ["memory"]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The project with a resource more."""
    root = tmp_path / "more"
    for name in ("lbcore", "jobs", "dashboards"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    path = Path(str(find_spec("tests.support.values.clusters").origin)).relative_to(ROOT)
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / path, root / path)
    (root / "state_of_before.json").write_text(json.dumps(packed_today()))
    declared = root / "lbcore" / "model" / "resources.py"
    text = declared.read_text()
    assert text.count("\n)\n\nWIRE_NAMES") == 1
    declared.write_text(text.replace("\n)\n\nWIRE_NAMES", f"\n{MORE})\n\nWIRE_NAMES"))
    return root


USES = """
# views
found = next(view for view in VIEWS if view.name == 'broker_loads')
assert f'percent[{COUNT}] AS more' in found.datafusion
assert f'percent[{COUNT}]' in found.datafusion.partition('GREATEST')[2]
assert 'more' in [column.name for column in found.columns]
# metrics
assert USAGE_NAMES[-1] == 'pulsar_lb_more_usage'
# tables
assert 'more' in next(c for c in LOAD_HISTORY.columns if c.name == 'percent').doc
# dashboards
assert 'pulsar_lb_more_usage' in repr(PULSAR)
# reports
envelope = Envelope(cluster='c', broker='b', incarnation='1', seq=1, reported_at_ms=0)
said = dict.fromkeys(loads.TRAFFIC, 1.0) | {'more': {'usage': 45.0, 'limit': 50.0}}
read = loads.read_load(said, envelope, 100)
assert (read.usage[-1], read.limit[-1]) == (45.0, 50.0)
# batches
numbers = np.arange(float(COUNT))
load = BrokerLoad(
    envelope=envelope, usage=numbers, limit=numbers * 10, traffic=np.arange(4.0)
)
scored = BrokerReport(
    load=load, percent=numbers * 5, weighted_max_ema=0.5, throughput_ema=9.0, reported_ms=7
)
none = np.zeros(0, dtype=np.int64)
arrivals = Arrivals(partition=none, offset=none, timestamp_ms=none, broker=none)
update = GroupUpdate(
    group=0, brokers=('b',), incarnations=('1',), arrivals=arrivals, loads=(scored,)
)
back = unpack_update(pack_update(update)).loads[0]
assert back.load.usage.tolist() == numbers.tolist()
assert back.load.limit[-1] == numbers[-1] * 10
assert back.load.traffic.tolist() == [0.0, 1.0, 2.0, 3.0]
assert back.percent[-1] == numbers[-1] * 5
assert (back.weighted_max_ema, back.throughput_ema, back.load.capacity) == (0.5, 9.0, 1.0)
# scores
percent = np.array([with_last(10.0, 90.0)])
assert weighted_usage(percent, SignalsConfig()).tolist() == [0.9]
assert weighted_usage_with_memory(percent, SignalsConfig()).tolist() == [0.9]
# state
entry = BrokerEntry(incarnation='1', percent=with_last(1.0, 6.0))
assert unpack_brokers(pack_brokers({'a': entry}, {}))['a'].percent == entry.percent
# states of before
known = json.loads(Path(sys.argv[1]).read_text())
chunks = {name: base64.b64decode(text) for name, text in known['balancer'].items()}
machine = ClusterBalancer(cluster='local', config=Config())
state = machine.step(machine.unpack(chunks), [], known['now_ms'] + 1_000).state
assert {len(one.percent) for one in state.brokers.values()} == {COUNT}
assert machine.unpack(machine.pack(state)).brokers == state.brokers
# planning memory of before
line = [0.0] * (COLUMNS - 1)
unseen = {'a': {'report_ms': 1, 'busy_ms': 1, 'shown': line, 'load': line}}
row = {'part': 'unseen', 'memory': json.dumps({'unseen': unseen})}
widened = report.remembered_plan([row]).unseen['a']
assert (len(widened.shown), len(widened.load)) == (COLUMNS, COLUMNS)
# services of before
def told(count):
    bundles = np.zeros((0, len(BUNDLE_COLUMNS)))
    return check_load(LoadRead(
        usage=np.full(count, 7.0), limit=np.full(count, 100.0), traffic=np.zeros(4),
        bundles=(), stats=bundles,
    ))
before = told(LEAST_COUNT).read
added = COUNT - LEAST_COUNT
assert before.usage.tolist() == [7.0] * LEAST_COUNT + [0.0] * added
assert before.limit.tolist() == [100.0] * LEAST_COUNT + [-1.0] * added
assert told(COUNT).read.usage[-1] == 7.0
assert told(LEAST_COUNT - 1).read is told(COUNT + 1).read is None
# gauges
hot = BrokerEntry(incarnation='1', percent=with_last(10.0, 90.0))
cold = BrokerEntry(incarnation='1', percent=with_last(10.0, 20.0))
work = BatchContext.on(replace(machine.empty(), brokers={'a': hot, 'b': cold}), Config(), '', 1)
hot_usage, cold_usage = report.make_gauges(work)['brokers']['max_usage']
assert hot_usage > 0.8 > 0.3 > cold_usage
# simulated brokers
assert usage_of(np.zeros(8), 1.0, 0.0)[1].tolist()[-1] == -1.0
# plans
snapshot = cluster_of({'a': [900.0, 800.0], 'b': [700.0, 600.0]})
percent = np.zeros((2, COUNT))
percent[0, -1] = 95.0
snapshot = replace(snapshot, brokers=replace(snapshot.brokers, percent=percent))
least = PlacementConfig(strategy='least_long_term_message_rate')
config = Sections(shedding=SheddingConfig(strategy='overload'), placement=least)
found, _ = plan(snapshot, PlanState(), config, 10_000_000)
assert isinstance(found, Plan)
assert {one.source for one in found.decisions} == {'a'}
"""


def test_resource_that_is_added_is_used(copy: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    older = copy / "state_of_before.json"
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS + USES, str(older)], cwd=copy, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
