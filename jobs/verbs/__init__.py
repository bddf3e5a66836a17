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
    "config": Verb(module="jobs.verbs.config", summary="check, show or import settings"),
    "lookup": Verb(module="jobs.verbs.lookup", summary="say which broker serves a topic"),
    "kill-broker": Verb(
        module="jobs.verbs.kill_broker", summary="crash a simulated broker of `run-local`"
    ),
    "run-local": Verb(
        module="jobs.run_local", summary="run everything on this machine and watch it"
    ),
    "strategies": Verb(
        module="jobs.verbs.strategies", summary="list the strategies, their rules and settings"
    ),
    "topics": Verb(module="jobs.verbs.topics", summary="make or check the topics of the wire"),
    "version": Verb(
        module="jobs.verbs.version", summary="say which Ballast, Python and Java this is"
    ),
}
