"""Events of a scenario: what each verb of `scenario.scenario_events` does.

Faults, brokers that come and go, commands.
"""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import count, islice
from typing import Any, TypeAlias

from lbcore.sim.engine.engine import Engine
from lbcore.sim.engine.job import Job
from lbcore.sim.engine.log import START_MS, NetworkPath
from lbcore.sim.engine.node import Impairment
from lbcore.sim.scenario.model import BrokerSpec, ScenarioEvent

Options: TypeAlias = Mapping[str, Any]
Verb: TypeAlias = Callable[[Engine, str, Options], None]


def schedule_events(engine: Engine) -> None:
    """Schedule all events of the scenario."""
    for event in engine.scenario.scenario_events:
        engine.clock.at(START_MS + event.at_ms, partial(_execute, engine, event))


def _execute(engine: Engine, event: ScenarioEvent) -> None:
    """Execute an event on those of its brokers that there are."""
    written = engine.nodes if event.brokers == ("all",) else event.brokers
    names = [name for name in written if name in engine.nodes]
    if event.verb == "restart":
        _restart(engine, names, event.options)
        return
    for name in names if event.brokers else [""]:
        _VERBS[event.verb](engine, name, event.options)


def _add(engine: Engine, _: str, options: Options) -> None:
    free = (f"b{at}" for at in count(1) if f"b{at}" not in engine.nodes)
    for name in list(islice(free, options["brokers"])):
        engine.add_node(
            BrokerSpec(name=name, capacity=options["capacity"], domain=options["domain"])
        )
        engine.start(name)


def _restart(engine: Engine, names: list[str], options: Options) -> None:
    """Run a rolling restart.

    With every=0 each broker waits until the one before is back.
    """
    every_ms = options["every"]
    if every_ms:
        for at, name in enumerate(names):
            engine.clock.after(at * every_ms, partial(_restart_in_turn, engine, [name], options))
    elif names:
        _restart_in_turn(engine, names, options)


def _restart_in_turn(engine: Engine, names: list[str], options: Options) -> None:
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


def _lasting(begin: Verb, end: Verb) -> Verb:
    """Return a verb for a fault for a time; set again, it lasts until the later end."""

    def verb(engine: Engine, name: str, options: Options) -> None:
        begin(engine, name, options)
        key = verb, name
        ends_ms = max(engine.fault_ends_ms.get(key, 0), engine.clock.now_ms + options["for"])
        engine.fault_ends_ms[key] = ends_ms

        def end_if_over() -> None:
            if engine.fault_ends_ms.get(key) == engine.clock.now_ms:
                del engine.fault_ends_ms[key]
                end(engine, name, options)

        engine.clock.at(ends_ms, end_if_over)

    return verb


def _fault(
    of: Callable[[Engine, str], object], then: Verb = lambda *_: None, **fields: str
) -> Verb:
    """Return a verb for a fault for a time that is fields of an object.

    fields: name → the option whose value it takes, "" = True; without the fault it is 0 or False.
    then: done at the end.
    """

    def begin(engine: Engine, name: str, options: Options) -> None:
        for field, option in fields.items():
            setattr(of(engine, name), field, options[option] if option else True)

    def end(engine: Engine, name: str, options: Options) -> None:
        for field in fields:
            setattr(of(engine, name), field, type(getattr(of(engine, name), field))())
        then(engine, name, options)

    return _lasting(begin, end)


def _impairment(engine: Engine, name: str) -> Impairment:
    return engine.nodes[name].impairment


def _path(engine: Engine, name: str) -> NetworkPath:
    return engine.log.paths[name]


def _job(engine: Engine, _: str) -> Job:
    return engine.job


def _command(engine: Engine, _: str, options: Options) -> None:
    engine.command(options["kind"], **options["arguments"])


_VERBS: Mapping[str, Verb] = {
    "crash": lambda engine, name, _: engine.nodes[name].crash(),
    "start": lambda engine, name, _: engine.start(name),
    "stop": lambda engine, name, _: engine.nodes[name].stop(),
    "add": _add,
    "pause": _lasting(
        lambda engine, name, _: engine.nodes[name].pause(),
        lambda engine, name, _: engine.nodes[name].resume(),
    ),
    "cut-off": _fault(_path, lambda engine, name, _: engine.log.mend(name), is_cut=""),
    "messages": _fault(_path, lost="lost", repeated="repeated", delay_ms="delay"),
    "stale": _fault(_impairment, stale_ms="by"),
    "gauge": _fault(_impairment, gauge_ms="keep"),
    "acks-lost": _fault(_path, are_acks_lost=""),
    "records-lost": _fault(_impairment, loses_records=""),
    "callbacks-fail": _fault(_impairment, failing="part"),
    "conflict": _fault(_job, is_refused=""),
    "ticks-lost": _fault(_job, are_ticks_away=""),
    "job-away": _fault(_job, lambda engine, *_: engine.job.restart(), is_away=""),
    "job-restart": lambda engine, *_: engine.job.restart(),
    "job-rebuild": lambda engine, *_: engine.job.rebuild(),
    "drain": lambda engine, name, _: engine.command("drain_broker", broker=name),
    "cancel-drain": lambda engine, name, _: engine.command("cancel_drain", broker=name),
    "set": _command,
    "command": _command,
}
"""Every verb but `restart`, for one broker; "" where the verb has none."""
