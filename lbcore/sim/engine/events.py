"""Events of a scenario: what each verb of `scenario.scenario_events` does.

Faults, brokers that come and go, commands.
"""

from collections.abc import Callable, Mapping
from itertools import count, islice
from typing import Any, TypeAlias

from lbcore.sim.engine.engine import Engine
from lbcore.sim.engine.log import START_MS, Action
from lbcore.sim.engine.node import Node
from lbcore.sim.scenario.model import BrokerSpec, ScenarioEvent

Verb: TypeAlias = Callable[[Engine, list[str], Mapping[str, Any]], None]


def schedule_events(engine: Engine) -> None:
    """Schedule all events of the scenario."""
    for event in engine.scenario.scenario_events:
        engine.clock.at(START_MS + event.at_ms, _executor(engine, event))


def _executor(engine: Engine, event: ScenarioEvent) -> Action:
    def do() -> None:
        names = _names(engine, event.brokers)
        _VERBS[event.verb](engine, names, event.options)

    return do


def _names(engine: Engine, written: tuple[str, ...]) -> list[str]:
    """Return the named brokers, without unknown ones."""
    if written == ("all",):
        return list(engine.nodes)
    return [name for name in written if name in engine.nodes]


def _crash(engine: Engine, names: list[str], _: Mapping[str, Any]) -> None:
    for name in names:
        engine.nodes[name].crash()


def _start(engine: Engine, names: list[str], _: Mapping[str, Any]) -> None:
    for name in names:
        engine.start(name)


def _stop(engine: Engine, names: list[str], _: Mapping[str, Any]) -> None:
    for name in names:
        engine.nodes[name].stop()


def _add(engine: Engine, _: list[str], options: Mapping[str, Any]) -> None:
    free = (f"b{at}" for at in count(1) if f"b{at}" not in engine.nodes)
    for name in list(islice(free, options["brokers"])):
        spec = BrokerSpec(
            name=name,
            capacity=options["capacity"],
            domain=options["domain"],
        )
        engine.add_node(spec)
        engine.start(spec.name)


def _restart(engine: Engine, names: list[str], options: Mapping[str, Any]) -> None:
    """Run a rolling restart.

    With every=0 each broker waits until the one before is back.
    """
    every_ms = options["every"]
    if every_ms:
        for at, name in enumerate(names):
            engine.clock.after(at * every_ms, _restarter(engine, [name], options))
    elif names:
        _restarter(engine, names, options)()


def _restarter(engine: Engine, names: list[str], options: Mapping[str, Any]) -> Action:
    """Restarts the first of these brokers, then the others."""

    def begin() -> None:
        node = engine.nodes[names[0]]
        if options["crash"] or not node.is_there:
            node.crash()
            down()
        else:
            node.stop(down)

    def down() -> None:
        engine.clock.after(options["down"], back)

    def back() -> None:
        engine.start(names[0])
        if len(names) > 1:
            engine.clock.after(options["down"], _restarter(engine, names[1:], options))

    return begin


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
            engine.clock.at(until, _end_of_fault(end, node, engine, verb))

    return verb


def _end_of(engine: Engine, options: Mapping[str, Any]) -> int:
    return int(engine.clock.now_ms + options["for"])


def _end_of_fault(
    end: Callable[[Node, Engine], None], node: Node, engine: Engine, verb: Verb
) -> Action:
    """Ends a fault, unless it began again in between and lasts longer."""

    def ended() -> None:
        if engine.clock.now_ms >= node.until_ms[verb]:
            end(node, engine)

    return ended


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


def _lose_acks(node: Node, engine: Engine, _: Mapping[str, Any]) -> None:
    engine.log.paths[node.name].are_acks_lost = True


def _bring_acks(node: Node, engine: Engine) -> None:
    engine.log.paths[node.name].are_acks_lost = False


def _impair(field: str, option: str, nothing: object) -> Verb:
    """Return a verb for a fault that is one field of a broker's impairment."""

    def begin(node: Node, _: Engine, options: Mapping[str, Any]) -> None:
        setattr(node.impairment, field, options[option] if option else True)

    def end(node: Node, _: Engine) -> None:
        setattr(node.impairment, field, nothing)

    return _lasting(begin, end)


def _job_fault(field: str) -> Verb:
    def verb(engine: Engine, _: list[str], options: Mapping[str, Any]) -> None:
        _job_until(engine, field, options, lambda: None)

    return verb


def _job_until(
    engine: Engine, field: str, options: Mapping[str, Any], then: Callable[[], None]
) -> None:
    """Set a fault of the job; one that is set again lasts until the later end."""
    setattr(engine.job, field, True)
    until = engine.job.until_ms[field] = max(
        engine.job.until_ms.get(field, 0), _end_of(engine, options)
    )

    def ended() -> None:
        if getattr(engine.job, field) and engine.clock.now_ms >= until:
            setattr(engine.job, field, False)
            then()

    engine.clock.at(until, ended)


def _job_away(engine: Engine, _: list[str], options: Mapping[str, Any]) -> None:
    _job_until(engine, "is_away", options, engine.job.restart)


def _command(engine: Engine, _: list[str], options: Mapping[str, Any]) -> None:
    engine.command(options["kind"], **options["arguments"])


def _command_on(kind: str) -> Verb:
    def verb(engine: Engine, names: list[str], _: Mapping[str, Any]) -> None:
        for name in names:
            engine.command(kind, broker=name)

    return verb


_VERBS: Mapping[str, Verb] = {
    "crash": _crash,
    "start": _start,
    "stop": _stop,
    "add": _add,
    "restart": _restart,
    "pause": _lasting(lambda node, _, __: node.pause(), lambda node, _: node.resume()),
    "cut-off": _lasting(_cut, lambda node, engine: engine.log.mend(node.name)),
    "messages": _lasting(_impair_messages, _mend_messages),
    "stale": _impair("stale_ms", "by", 0),
    "gauge": _impair("gauge_ms", "keep", 0),
    "acks-lost": _lasting(_lose_acks, _bring_acks),
    "records-lost": _impair("loses_records", "", nothing=False),
    "callbacks-fail": _impair("failing", "part", 0.0),
    "conflict": _job_fault("is_refused"),
    "ticks-lost": _job_fault("are_ticks_away"),
    "job-away": _job_away,
    "job-restart": lambda engine, _, __: engine.job.restart(),
    "job-rebuild": lambda engine, _, __: engine.job.rebuild(),
    "drain": _command_on("drain_broker"),
    "cancel-drain": _command_on("cancel_drain"),
    "set": _command,
    "command": _command,
}
