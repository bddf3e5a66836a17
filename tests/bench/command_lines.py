"""The batches that `bench_commands` measures: what is asked, of a cluster in which state.

The targets are CPU seconds on two cores of 2026.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from lbcore.balancer.state.rules import Pin
from lbcore.ownership.records import State
from lbcore.wire.messages import Ack, AckOutcome, Acks, AuditEntry, Command
from tests.bench.bench_balancer import CLUSTER, PER_NAMESPACE
from tests.bench.command_setting import Line, Message, Setting, asked

PARTITIONS = 1 << 20


def _bundles(count: int, **arguments: Any) -> Callable[[Setting], list[Mapping[str, Any]]]:
    """Arguments that name `count` bundles, each of another namespace as far as there are any."""

    def made(setting: Setting) -> list[Mapping[str, Any]]:
        names = setting.names
        spread = [names[i * PER_NAMESPACE % len(names) + i // (len(names) // PER_NAMESPACE)]
                  for i in range(count)]  # fmt: skip
        return [{"bundle": name, **arguments} for name in spread]

    return made


def _each(kind: str, make: Callable[[Setting], list[Mapping[str, Any]]]) -> Any:
    return lambda setting: asked(kind, make(setting))


def _free(count: int) -> Callable[[Setting], None]:
    """Let some bundles have no owner; nobody assigns them, because a broker has just joined."""

    def prepare(setting: Setting) -> None:
        ledger = setting.state.ledger.copy()
        wanted = _bundles(count)(setting)
        for item in wanted:
            record = ledger.record(item["bundle"])
            assert record is not None
            free = replace(record, state=State.FREE, destination="", destination_incarnation="")
            ledger.put(free, setting.state.times.clock_ms)
        times = replace(setting.state.times, newcomer_clock_ms=setting.state.times.clock_ms)
        setting.state = replace(setting.state, ledger=ledger, times=times)

    return prepare


def _splitting(count: int) -> Callable[[Setting], None]:
    def prepare(setting: Setting) -> None:
        setting.step(asked("split_bundle", _bundles(count, force=True)(setting)))

    return prepare


def _split_answers(setting: Setting) -> list[Message]:
    """What owners say of the splits that are under way."""
    ledger = setting.state.ledger
    found = []
    for row in ledger.rows_in(State.SPLITTING).tolist():
        record = ledger.record_at(row)
        envelope = replace(
            setting.bench.cluster.update(1, (), (0,)).loads[0].load.envelope, broker=record.source
        )
        ack = Ack(bundle=record.bundle, version_id=record.version_id, outcome=AckOutcome.SPLIT)
        found.append(Acks(envelope=envelope, acks=(ack,)))
    assert found, "splits must be under way"
    return list(found)


def _known_topics(setting: Setting) -> None:
    """100,000 topics, a hundred in each namespace."""
    setting.with_topics(
        {f"persistent://{setting.namespace(i % 1_000)}/t{i}": 0 for i in range(100_000)}
    )


def _partitioned(setting: Setting) -> None:
    space = setting.namespace(0)
    setting.with_topics({f"persistent://{space}/t{i}": PARTITIONS for i in range(4)})


def _pinned(count: int, until_ms: int = 0) -> Callable[[Setting], None]:
    def prepare(setting: Setting) -> None:
        ledger = setting.state.ledger
        names = sorted(item["bundle"] for item in _bundles(count)(setting))
        owner = {name: ledger.record_at(ledger.index[name]).destination for name in names}
        pins = {name: Pin(broker=owner[name], until_ms=until_ms) for name in names}
        setting.with_rules(pins=pins)

    return prepare


def _spaces(count: int, **arguments: Any) -> Callable[[Setting], list[Mapping[str, Any]]]:
    return lambda setting: [{"namespace": setting.namespace(i), **arguments} for i in range(count)]


def _numbered(count: int, **texts: Any) -> Callable[[Setting], list[Mapping[str, Any]]]:
    """Arguments whose texts have {i}, the number of the command, filled in."""
    return lambda _: [
        {name: text.format(i=i) if isinstance(text, str) else text for name, text in texts.items()}
        for i in range(count)
    ]


def _unknown(setting: Setting) -> list[Message]:
    del setting
    kinds = [f"pin_bundel_{i}" if i % 2 else f"make-coffee-{i}" for i in range(8_000)]
    return [
        Command(cluster=CLUSTER, command_id=f"u-{i}", kind=kind, arguments={})
        for i, kind in enumerate(kinds)
    ]


def _audit(setting: Setting) -> list[Message]:
    del setting
    return [
        AuditEntry(
            cluster=CLUSTER,
            principal="p",
            address="127.0.0.1",
            action="GET /v1/ownership",
            is_allowed=bool(i % 2),
            reason="",
            command_id="",
        )
        for i in range(8_000)
    ]


def _topic(setting: Setting, at: int) -> str:
    return f"persistent://{setting.namespace(at % 1_000)}/new{at}"


LINES = (
    Line(
        name="400 assign_bundle",
        target_s=0.5,
        prepare=_free(400),
        messages=_each("assign_bundle", _bundles(400)),
    ),
    Line(
        name="100 answers of splits",
        target_s=0.5,
        prepare=_splitting(100),
        messages=_split_answers,
    ),
    Line(
        name="100 create_record of 100,000",
        target_s=0.5,
        prepare=_known_topics,
        messages=lambda s: asked(
            "create_record",
            [{"record_type": "topic", "name": _topic(s, i)} for i in range(100)],
        ),
    ),
    Line(
        name="2,000 pin_bundle",
        target_s=0.5,
        messages=lambda s: asked("pin_bundle", _bundles(2_000, broker=s.broker(0))(s)),
    ),
    Line(name="8,000 of an unknown kind", target_s=0.3, messages=_unknown),
    Line(
        name="split beside 2^22 partitions",
        target_s=0.1,
        prepare=_partitioned,
        messages=lambda s: asked("split_bundle", [{"bundle": s.names[0], "force": True}]),
    ),
    Line(
        name="LARGEST of 2^22 partitions",
        target_s=0.1,
        prepare=_partitioned,
        messages=lambda s: asked(
            "split_bundle", [{"namespace": s.namespace(0), "which": "LARGEST", "force": True}]
        ),
    ),
    Line(
        name="400 assign_bundle with destination",
        target_s=0.5,
        prepare=_free(400),
        messages=lambda s: asked("assign_bundle", _bundles(400, destination=s.broker(0))(s)),
    ),
    Line(
        name="400 unload_bundle",
        target_s=0.5,
        messages=_each("unload_bundle", _bundles(400)),
    ),
    Line(
        name="400 override_bundle",
        target_s=0.5,
        messages=lambda s: asked("override_bundle", _bundles(400, destination=s.broker(0))(s)),
    ),
    Line(
        name="100 split_bundle",
        target_s=0.5,
        messages=_each("split_bundle", _bundles(100, force=True)),
    ),
    Line(
        name="100 split_bundle of 100,000 topics",
        target_s=0.5,
        prepare=_known_topics,
        messages=_each("split_bundle", _bundles(100, force=True)),
    ),
    Line(
        name="100 split_bundle, children placed",
        target_s=0.5,
        messages=_each("split_bundle", _bundles(100, force=True, unload=True)),
    ),
    Line(
        name="2,000 unpin_bundle",
        target_s=0.5,
        prepare=_pinned(2_000),
        messages=_each("unpin_bundle", _bundles(2_000)),
    ),
    Line(name="nothing, 20,000 pins", target_s=0.2, prepare=_pinned(20_000), messages=lambda _: []),
    Line(
        name="1,000 pause",
        target_s=0.5,
        messages=_each("pause", _spaces(1_000)),
    ),
    Line(
        name="1,000 set_anti_affinity_group",
        target_s=0.5,
        messages=_each("set_anti_affinity_group", _spaces(1_000, group="g")),
    ),
    Line(
        name="1,000 exclude_namespace",
        target_s=0.5,
        messages=_each("exclude_namespace", _spaces(1_000)),
    ),
    Line(
        name="1,000 set_isolation_policy",
        target_s=0.5,
        messages=_each(
            "set_isolation_policy",
            _numbered(1_000, policy="p{i}", namespaces=["t/x{i}"], primary=["b"], secondary=[]),
        ),
    ),
    Line(
        name="2,000 create_record",
        target_s=0.5,
        messages=_each("create_record", _numbered(2_000, record_type="tenant", name="tenant{i}")),
    ),
    Line(
        name="2,000 update_record",
        target_s=0.5,
        messages=_each("update_record", _numbered(2_000, record_type="tenant", name="t")),
    ),
    Line(
        name="2,000 delete_record",
        target_s=0.5,
        messages=_each("delete_record", _numbered(2_000, record_type="tenant", name="t{i}")),
    ),
    Line(
        name="100 delete_record of 100,000",
        target_s=0.5,
        prepare=_known_topics,
        messages=lambda s: asked(
            "delete_record",
            [
                {"record_type": "topic", "name": f"persistent://{s.namespace(i)}/t{i}"}
                for i in range(100)
            ],
        ),
    ),
    Line(
        name="100 delete_namespace",
        target_s=2.0,
        messages=_each("delete_namespace", _spaces(100)),
    ),
    Line(
        name="100 create_namespace of 16",
        target_s=0.5,
        messages=_each("create_namespace", _numbered(100, namespace="new/n{i}", bundles=16)),
    ),
    Line(
        name="create_namespace of 100,000, dearest",
        target_s=2.0,
        messages=lambda _: asked("create_namespace", [{"namespace": "new/n", "bundles": 100_000}]),
        following=30,
    ),
    Line(
        name="100 unload_namespace",
        target_s=2.0,
        messages=_each("unload_namespace", _spaces(100)),
    ),
    Line(
        name="100 drain_broker, cancel_drain",
        target_s=0.5,
        messages=lambda s: [
            message
            for i in range(50)
            for message in (
                *asked("drain_broker", [{"broker": s.broker(i)}]),
                *asked("cancel_drain", [{"broker": s.broker(i)}]),
            )
        ],
    ),
    Line(
        name="400 set_config",
        target_s=0.5,
        messages=_each(
            "set_config",
            lambda _: [{"values": {"shedding.max_moves_per_cycle": 10 + i}} for i in range(400)],
        ),
    ),
    Line(name="8,000 audit entries", target_s=0.3, messages=_audit),
    Line(
        name="8,000 with an unknown argument",
        target_s=0.5,
        messages=_each("pin_bundle", lambda _: [{f"bundel{i}": "x"} for i in range(8_000)]),
    ),
    Line(
        name="8,000 for no such bundle",
        target_s=0.5,
        messages=_each(
            "pin_bundle", _numbered(8_000, bundle="t/x{i}/0x00000000_0xffffffff", broker="b")
        ),
    ),
)
