"""The table of the verbs of `ballast`: which module carries each one out.

A verb's module has two functions:

    def add_arguments(parser: argparse.ArgumentParser) -> None   # not --json: every verb has it
    def run(args: argparse.Namespace) -> int                     # 0 done, 1 failed, 2 misuse

Only the module of the verb that was asked for is imported, so it may import at its top what it
needs, and `ballast lookup` never waits for Spark. It writes its result with `jobs.console.answer`
and reports trouble by raising `CommandError` or `MisuseError`. Source: ours.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """A verb: the module that carries it out, and the line that `ballast --help` shows."""

    module: str
    summary: str


VERBS = {
    "anti-affinity": Verb(
        module="jobs.verbs.anti_affinity", summary="spread namespaces of a group over brokers"
    ),
    "assess": Verb(
        module="jobs.verbs.assess", summary="look at a Pulsar cluster, say what would be better"
    ),
    "attach": Verb(
        module="jobs.verbs.attach", summary="run all that a real Pulsar cluster needs, observing"
    ),
    "backtest": Verb(
        module="jobs.verbs.backtest", summary="other strategies on the load that a run recorded"
    ),
    "bridge": Verb(
        module="jobs.verbs.bridge", summary="observe a Pulsar cluster, balance it, give it back"
    ),
    "broker": Verb(module="jobs.verbs.broker", summary="drain brokers, forget those that are gone"),
    "bundle": Verb(
        module="jobs.verbs.bundle", summary="unload, assign, override, split, pin, unpin a bundle"
    ),
    "chaos": Verb(module="jobs.verbs.chaos", summary="random clusters and faults, by the thousand"),
    "bundles": Verb(
        module="jobs.verbs.bundles", summary="the bundles with the most load, and who has them"
    ),
    "completion": Verb(
        module="jobs.verbs.completion",
        summary="a script that completes words, and the man page",
    ),
    "config": Verb(
        module="jobs.verbs.config", summary="check, show, import settings; set and reset them"
    ),
    "detach": Verb(module="jobs.verbs.detach", summary="give back what an attached run took over"),
    "doctor": Verb(
        module="jobs.verbs.doctor",
        summary="what is wrong around it: versions, disk, clocks, topics",
    ),
    "explain": Verb(
        module="jobs.verbs.explain", summary="why a bundle, broker, cluster or decision is as it is"
    ),
    "isolation": Verb(
        module="jobs.verbs.isolation", summary="keep namespaces on brokers of their own"
    ),
    "kill-broker": Verb(
        module="jobs.verbs.kill_broker", summary="crash a simulated broker of `run-local`"
    ),
    "league": Verb(
        module="jobs.verbs.league", summary="compare strategies on scenarios, in one table"
    ),
    "lookup": Verb(module="jobs.verbs.lookup", summary="say which broker serves a topic"),
    "namespace": Verb(
        module="jobs.verbs.namespace", summary="create, delete, unload, exclude, include"
    ),
    "ownership": Verb(
        module="jobs.verbs.ownership", summary="who owns what: now, back then, and what changed"
    ),
    "pause": Verb(module="jobs.verbs.pause", summary="stop shedding and splitting"),
    "performance": Verb(
        module="jobs.verbs.performance", summary="the four performance tests, in virtual time"
    ),
    "plan": Verb(
        module="jobs.verbs.plan",
        summary="look ahead (--dry-run); approve, reject, undo plans that wait",
    ),
    "release-brake": Verb(
        module="jobs.verbs.release_brake", summary="go on after many brokers vanished at once"
    ),
    "resume": Verb(module="jobs.verbs.resume", summary="end a pause"),
    "run-agent": Verb(
        module="jobs.run_agent", summary="run a broker's agent around a service in Python"
    ),
    "run-local": Verb(
        module="jobs.run_local", summary="run everything on this machine and watch it"
    ),
    "simulate": Verb(
        module="jobs.verbs.simulate", summary="rehearse scenarios in virtual time, and judge them"
    ),
    "sql": Verb(
        module="jobs.verbs.sql", summary="ask the tables in SQL: ready queries, or your own"
    ),
    "state": Verb(
        module="jobs.verbs.state", summary="set the job's checkpoint aside, to rebuild its state"
    ),
    "status": Verb(module="jobs.verbs.status", summary="how the cluster is, and what is wrong"),
    "strategies": Verb(
        module="jobs.verbs.strategies", summary="list the strategies, their rules and settings"
    ),
    "tenant": Verb(module="jobs.verbs.tenant", summary="create, update, delete tenants"),
    "top": Verb(
        module="jobs.verbs.top", summary="watch a running cluster in the terminal, by keyboard"
    ),
    "topic": Verb(module="jobs.verbs.topic", summary="create, update, delete topics"),
    "topics": Verb(module="jobs.verbs.topics", summary="make or check the topics of the wire"),
    "tour": Verb(
        module="jobs.tour.verb", summary="a hot spot, a crash, a split, a stuck move: what is said"
    ),
    "trace": Verb(
        module="jobs.verbs.trace", summary="load that others measured, and what a cluster recorded"
    ),
    "tune": Verb(
        module="jobs.verbs.tune", summary="the settings that recorded load would have wanted"
    ),
    "version": Verb(
        module="jobs.verbs.version", summary="say which Ballast, Python and Java this is"
    ),
}
