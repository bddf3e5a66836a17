"""The table of the verbs of `ballast`: which module carries each one out.

A verb's module has two functions:

def add_arguments(parser: argparse.ArgumentParser) -> None   # not --json: every verb has it
def run(args: argparse.Namespace) -> int                     # 0 done, 1 failed, 2 misuse

Only the module of the verb that was asked for is imported, so it may import at its top what it
needs, and `ballast lookup` never waits for Spark. It writes its result with `jobs.console.answer`
and reports trouble by raising `CommandError` or `MisuseError`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """A verb: its module, and its line in `ballast --help`."""

    module: str
    summary: str


VERBS = {
    "assess": Verb(
        module="jobs.assess.watch", summary="look at a Pulsar cluster, say what would be better"
    ),
    "attach": Verb(
        module="jobs.verbs.attach", summary="run all that a real Pulsar cluster needs, observing"
    ),
    "backtest": Verb(
        module="jobs.operating.backtesting",
        summary="other strategies on the load that a run recorded",
    ),
    "bridge": Verb(
        module="jobs.verbs.bridge", summary="observe a Pulsar cluster, balance it, give it back"
    ),
    "broker": Verb(
        module="jobs.verbs.commands", summary="drain brokers, forget those that are gone"
    ),
    "bundle": Verb(
        module="jobs.verbs.commands", summary="list bundles by load; unload, assign, split, pin one"
    ),
    "completion": Verb(
        module="jobs.verbs.completion",
        summary="a script that completes words, and the man page",
    ),
    "config": Verb(
        module="jobs.verbs.config", summary="check, show, import settings; set and reset them"
    ),
    "detach": Verb(module="jobs.verbs.attach", summary="give back what an attached run took over"),
    "doctor": Verb(
        module="jobs.operating.doctor",
        summary="what is wrong around it: versions, disk, clocks, topics",
    ),
    "explain": Verb(
        module="jobs.verbs.reading", summary="why a bundle, broker, cluster or decision is as it is"
    ),
    "kill-broker": Verb(module="jobs.run_local", summary="crash a simulated broker of `run-local`"),
    "lookup": Verb(module="jobs.verbs.reading", summary="say which broker serves a topic"),
    "namespace": Verb(
        module="jobs.verbs.commands", summary="create, delete, unload, exclude, include"
    ),
    "ownership": Verb(
        module="jobs.verbs.reading", summary="who owns what: now, back then, and what changed"
    ),
    "pause": Verb(module="jobs.verbs.commands", summary="stop shedding and splitting"),
    "plan": Verb(
        module="jobs.verbs.commands",
        summary="look ahead (--dry-run); approve, reject, undo plans that wait",
    ),
    "policy": Verb(
        module="jobs.verbs.commands", summary="isolation policies, and groups that are kept apart"
    ),
    "resume": Verb(module="jobs.verbs.commands", summary="end a pause, or the brake"),
    "run-agent": Verb(
        module="jobs.run_agent", summary="run a broker's agent around a service in Python"
    ),
    "run-job": Verb(module="jobs.balance_cluster", summary="run the streaming job that decides"),
    "run-local": Verb(
        module="jobs.run_local", summary="run everything on this machine and watch it"
    ),
    "serve": Verb(
        module="jobs.serve_lookup", summary="serve lookups, the console and the admin API"
    ),
    "simulate": Verb(
        module="jobs.verbs.simulate", summary="rehearse scenarios in virtual time, and judge them"
    ),
    "sql": Verb(
        module="jobs.verbs.reading", summary="ask the tables in SQL: ready queries, or your own"
    ),
    "state": Verb(
        module="jobs.verbs.upkeep", summary="set the job's checkpoint aside, to rebuild its state"
    ),
    "status": Verb(module="jobs.verbs.reading", summary="how the cluster is, and what is wrong"),
    "strategies": Verb(
        module="jobs.verbs.strategies", summary="list the strategies, their rules and settings"
    ),
    "topics": Verb(module="jobs.verbs.upkeep", summary="make or check Ballast's Kafka topics"),
    "trace": Verb(
        module="jobs.verbs.trace", summary="load that others measured, and what a cluster recorded"
    ),
}
