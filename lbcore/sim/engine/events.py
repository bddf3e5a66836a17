"""Events of a scenario: what each verb of `scenario.scenario_events` does.

Faults, brokers that come and go, commands.
"""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import count, islice
from typing import Any, TypeAlias

from lbcore.sim.engine.engine import Engine
from lbcore.sim.engine.log import START_MS
from lbcore.sim.engine.node import Node
from lbcore.sim.scenario.model import BrokerSpec, ScenarioEvent

Verb: TypeAlias = Callable[[Engine, list[str], Mapping[str, Any]], None]


def schedule_events(engine: Engine) -> None:
    """Schedule all events of the scenario."""
    for event in engine.scenario.scenario_events:
        engine.clock.at(START_MS + event.at_ms, partial(_execute, engine, event))


def _execute(engine: Engine, event: ScenarioEvent) -> None:
    """Execute an event on those of its brokers that there are."""
    written = engine.nodes if event.brokers == ("all",) else event.brokers
    names = [name for name in written if name in engine.nodes]
    _VERBS[event.verb](engine, names, event.options)


def _each(do: Callable[[Engine, str], None]) -> Verb:
    """Return a verb that does the same to each broker."""

    def verb(engine: Engine, names: list[str], _: Mapping[str, Any]) -> None:
        for name in names:
            do(engine, name)

    return verb


def _add(engine: Engine, _: list[str], options: Mapping[str, Any]) -> None:
    free = (f"b{at}" for at in count(1) if f"b{at}" not in engine.nodes)
    for name in list(islice(free, options["brokers"])):
        engine.add_node(
            BrokerSpec(name=name, capacity=options["capacity"], domain=options["domain"])
        )
        engine.start(name)


def _restart(engine: Engine, names: list[str], options: Mapping[str, Any]) -> None:
    """Run a rolling restart.

    With every=0 each broker waits until the one before is back.
    """
    every_ms = options["every"]
    if every_ms:
        for at, name in enumerate(names):
            engine.clock.after(at * every_ms, partial(_restart_in_turn, engine, [name], options))
    elif names:
        _restart_in_turn(engine, names, options)


def _restart_in_turn(engine: Engine, names: list[str], options: Mapping[str, Any]) -> None:
    """Restart the first of these brokers, then the others."""
    first, *others = names

    def back() -> None:
        engine.start(first)
        if others:
            engine.clock.after(options["down"], partial(_restart_in_turn, engine, others, options))

    node = engine.nodes[first]
    down = partial(engine.clock.after, options["down"], back)
    if options["crash"] or not node.is_there:
        node.crash()
        down()
    else:
        node.stop(down)


def _lasting(
    begin: Callable[[Node, Engine, Mapping[str, Any]], None],
    end: Callable[[Node, Engine], None],
) -> Verb:
    """Return a verb for a fault of brokers that begins now and ends later."""

    def verb(engine: Engine, names: list[str], options: Mapping[str, Any]) -> None:
        for name in names:
            node = engine.nodes[name]
            begin(node, engine, options)
            until = node.until_ms[verb] = max(node.until_ms.get(verb, 0), _end_of(engine, options))
            engine.clock.at(until, partial(_end_fault, end, node, engine, verb))

    return verb


def _end_of(engine: Engine, options: Mapping[str, Any]) -> int:
    return int(engine.clock.now_ms + options["for"])


def _end_fault(end: Callable[[Node, Engine], None], node: Node, engine: Engine, verb: Verb) -> None:
    """End a fault, unless it began again in between and lasts longer."""
    if engine.clock.now_ms >= node.until_ms[verb]:
        end(node, engine)


def _impair_messages(node: Node, engine: Engine, options: Mapping[str, Any]) -> None:
    path = engine.log.paths[node.name]
    path.lost, path.repeated = options["lost"], options["repeated"]
    path.delay_ms = options["delay"]


def _mend_messages(node: Node, engine: Engine) -> None:
    path = engine.log.paths[node.name]
    path.lost = path.repeated = 0.0
    path.delay_ms = 0


def _cut(node: Node, engine: Engine, _: Mapping[str, Any]) -> None:
    engine.log.paths[node.name].is_cut = True


def _impair(
    field: str,
    option: str,
    healthy: object,
    of: Callable[[Node, Engine], object] = lambda node, _: node.impairment,
) -> Verb:
    """Return a verb for a fault that is one field of a broker's impairment.

    option: whose value the field takes, "" = True. healthy: its value without the fault. of: the
    object that has the field.
    """

    def begin(node: Node, engine: Engine, options: Mapping[str, Any]) -> None:
        setattr(of(node, engine), field, options[option] if option else True)

    def end(node: Node, engine: Engine) -> None:
        setattr(of(node, engine), field, healthy)

    return _lasting(begin, end)


def _job_fault(field: str, then: Callable[[Engine], None] = lambda _: None) -> Verb:
    """Return a verb for a fault of the job; set again, it lasts until the later end."""

    def verb(engine: Engine, _: list[str], options: Mapping[str, Any]) -> None:
        setattr(engine.job, field, True)
        until = engine.job.until_ms[field] = max(
            engine.job.until_ms.get(field, 0), _end_of(engine, options)
        )

        def ended() -> None:
            if getattr(engine.job, field) and engine.clock.now_ms >= engine.job.until_ms[field]:
                setattr(engine.job, field, False)
                then(engine)

        engine.clock.at(until, ended)

    return verb


def _command(engine: Engine, _: list[str], options: Mapping[str, Any]) -> None:
    engine.command(options["kind"], **options["arguments"])


_VERBS: Mapping[str, Verb] = {
    "crash": _each(lambda engine, name: engine.nodes[name].crash()),
    "start": _each(lambda engine, name: engine.start(name)),
    "stop": _each(lambda engine, name: engine.nodes[name].stop()),
    "add": _add,
    "restart": _restart,
    "pause": _lasting(lambda node, _, __: node.pause(), lambda node, _: node.resume()),
    "cut-off": _lasting(_cut, lambda node, engine: engine.log.mend(node.name)),
    "messages": _lasting(_impair_messages, _mend_messages),
    "stale": _impair("stale_ms", "by", 0),
    "gauge": _impair("gauge_ms", "keep", 0),
    "acks-lost": _impair(
        "are_acks_lost", "", healthy=False, of=lambda node, engine: engine.log.paths[node.name]
    ),
    "records-lost": _impair("loses_records", "", healthy=False),
    "callbacks-fail": _impair("failing", "part", 0.0),
    "conflict": _job_fault("is_refused"),
    "ticks-lost": _job_fault("are_ticks_away"),
    "job-away": _job_fault("is_away", lambda engine: engine.job.restart()),
    "job-restart": lambda engine, _, __: engine.job.restart(),
    "job-rebuild": lambda engine, _, __: engine.job.rebuild(),
    "drain": _each(lambda engine, name: engine.command("drain_broker", broker=name)),
    "cancel-drain": _each(lambda engine, name: engine.command("cancel_drain", broker=name)),
    "set": _command,
    "command": _command,
}
