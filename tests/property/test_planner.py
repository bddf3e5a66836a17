"""What holds of every plan, on random clusters over several cycles."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lbcore.config.placement import PlacementConfig
from lbcore.config.shedding import SheddingConfig
from lbcore.config.splitting import Splitting
from lbcore.config.transfer import TransferConfig
from lbcore.plain import from_plain, to_plain
from lbcore.plan.decision import Decision, Kind, Plan, PlanState, Scope
from lbcore.plan.pending import placed_load
from lbcore.plan.planner import plan
from lbcore.plan.readings import readings_of
from lbcore.plan.registry import PLACEMENT_STRATEGIES, SHEDDING_STRATEGIES
from lbcore.plan.snapshot import Snapshot
from lbcore.wire.fields import flushed
from tests.support.values.clusters import Sections, cluster_of

CYCLE_MS = 10_000
RATES = st.sampled_from((0.0, 10.0, 500.0, 5_000.0, 20_000.0))


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Up to six brokers, some draining; bundles at rest, at work, pinned or without an owner."""
    count = draw(st.integers(1, 6))
    bundles = {f"b{at}": draw(st.lists(RATES, max_size=9)) for at in range(count)}
    cluster = cluster_of(bundles)
    size = len(cluster.bundles.names)
    owner = cluster.bundles.owner.copy()
    is_lost = np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)), dtype=np.bool_)
    owner[is_lost & (np.arange(size) % 4 == 0)] = -1
    at_rest = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    pins = draw(st.lists(st.integers(-6, count - 1), min_size=size, max_size=size))
    draining = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    rows = cluster.brokers
    return replace(
        cluster,
        brokers=replace(
            rows,
            is_draining=np.array(draining, dtype=np.bool_),
            weighted_max_ema=rows.percent[:, 0] / 100,
            throughput_ema=rows.traffic[:, 2],
        ),
        bundles=replace(
            cluster.bundles,
            owner=owner,
            can_move=(np.array(at_rest, dtype=np.bool_) | (np.arange(size) % 3 > 0)) & (owner >= 0),
            pin=np.maximum(np.array(pins, dtype=np.int64), -1),
        ),
    )


@st.composite
def configs(draw: st.DrawFn) -> Sections:
    """Any strategy, acting soon, with tight limits now and then."""
    shedding = SheddingConfig(
        strategy=draw(st.sampled_from(sorted(SHEDDING_STRATEGIES))),
        avg_low_hits=1,
        min_throughput_mib_per_s=0,
        min_unload_rate_msg_per_s=10,
        lower_boundary=draw(st.booleans()),
        multi_hit=draw(st.booleans()),
        max_moves_per_cycle=draw(st.sampled_from((-1, 0, 2))),
        max_moves_per_broker=draw(st.sampled_from((-1, 1))),
        max_drains_in_flight=3,
        grace_period_ms=draw(st.sampled_from((0, 60_000))),
    )
    return Sections(
        shedding=shedding,
        transfer=TransferConfig(hit_count_threshold=0, target_std=0.05),
        placement=PlacementConfig(strategy=draw(st.sampled_from(sorted(PLACEMENT_STRATEGIES)))),
        splitting=Splitting(enabled=False),
    )


def after(cluster: Snapshot, decisions: tuple[Decision, ...], at_ms: int) -> Snapshot:
    """The cluster when everything was carried out, with newer reports of the old load."""
    number = {name: at for at, name in enumerate(cluster.brokers.names)}
    owner = cluster.bundles.owner.copy()
    rows = {name: row for row, name in enumerate(cluster.bundles.names)}
    for one in decisions:
        owner[rows[one.bundle]] = number.get(one.destination, -1)
    brokers = len(cluster.brokers.names)
    return replace(
        cluster,
        brokers=replace(cluster.brokers, updated_at_ms=np.full(brokers, at_ms)),
        bundles=replace(cluster.bundles, owner=owner),
    )


def check(cluster: Snapshot, decisions: tuple[Decision, ...], config: Sections) -> None:
    """No decision touches what it must not."""
    brokers, bundles = cluster.brokers, cluster.bundles
    rows = {name: row for row, name in enumerate(bundles.names)}
    number = {name: at for at, name in enumerate(brokers.names)}
    assert len({one.bundle for one in decisions}) == len(decisions)
    for one in decisions:
        row = rows[one.bundle]
        assert bundles.can_move[row], one
        assert brokers.names[bundles.owner[row]] == one.source != one.destination
        if one.reason != "Pinned":
            assert not brokers.is_draining[number[one.destination]]
        if one.kind is Kind.DRAIN:
            assert brokers.is_draining[number[one.source]]
    balanced = [one for one in decisions if one.kind is Kind.TRANSFER and one.reason != "Pinned"]
    cap = config.shedding.max_moves_per_cycle
    assert cap == -1 or len(balanced) <= cap
    leaving = Counter(one.source for one in decisions if one not in balanced)
    assert max(leaving.values(), default=0) <= config.shedding.max_drains_in_flight


@given(cluster=clusters(), config=configs())
@settings(max_examples=600, deadline=None)
def test_plan_never_touches_what_it_must_not(cluster: Snapshot, config: Sections) -> None:
    state = PlanState()
    for cycle in range(1, 4):
        scope = Scope(is_traced=cycle == 2)
        answer, later = plan(cluster, state, config, cycle * CYCLE_MS, scope)
        again, _ = plan(cluster, state, config, cycle * CYCLE_MS)
        decisions = answer.decisions if isinstance(answer, Plan) else ()
        assert decisions == (again.decisions if isinstance(again, Plan) else ())
        check(cluster, decisions, config)
        list(answer.trace.rows())
        row = json.dumps(to_plain(later))  # compared as text: a NaN in it equals no other
        state = from_plain(PlanState, json.loads(row))
        assert json.dumps(to_plain(state)) == row
        cluster = after(cluster, decisions, cycle * CYCLE_MS + 5_000)


TRAFFIC = (0.0, 5e-324, 1e-310, 1e-12, 1e-9, 1.0, 1e18)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), percent=st.sampled_from((0.0, 1e-30, 50.0, 1e29)))
def test_expected_load_is_finite_whatever_traffic_is_reported(
    data: st.DataObject, percent: float
) -> None:
    cluster = cluster_of({"b1": [1.0, 1.0], "b2": [1.0]})
    brokers, bundles = len(cluster.brokers.names), len(cluster.bundles.names)
    values = st.lists(st.sampled_from(TRAFFIC), min_size=4, max_size=4)
    reported = flushed(np.array([data.draw(values) for _ in range(brokers)]))
    short = flushed(np.array([data.draw(values) for _ in range(bundles)]))
    cluster = replace(
        cluster,
        brokers=replace(
            cluster.brokers,
            traffic=reported,
            percent=np.full_like(cluster.brokers.percent, percent),
        ),
        bundles=replace(cluster.bundles, short=short, long=short),
    )
    usage = cluster.brokers.percent[:, 0] / 100
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        added = placed_load(cluster, np.arange(bundles), np.zeros(bundles, dtype=np.int64))
        readings = readings_of(cluster, usage, lags=True)
    assert np.isfinite(added).all()
    assert np.isfinite(readings.hot).all()
    assert np.isfinite(readings.cold).all()
