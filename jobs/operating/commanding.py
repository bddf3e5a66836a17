"""Send a command, wait for its end, and report the outcome: shared by all verbs.

Decides the exit code (0 done or sent, 1 refused or failed, 3 nobody knows). With --dry-run nothing
is sent: the balancer's own code carries the command out on what the tables say.
"""

import argparse
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from jobs.adapters.following.outcome_follower import CommandOutcome
from jobs.adapters.kafka.command_client import NoOutcome, new_command
from jobs.console import CommandError, Exit, UnknownError, answer, note, three_parts
from jobs.operating.answers import Answers
from jobs.operating.command_options import read_command
from jobs.operating.connection_options import connection_options
from jobs.operating.foreseeing import Outlook, RehearsedCommand
from jobs.operating.service_answers import answers_of
from jobs.operating.text_format import format_instant
from lbcore.balancer.state.book import DONE
from lbcore.config.pipeline import Pipeline
from lbcore.explain.job_state import JobWord, judge_job
from lbcore.foresight.rehearse import Rehearsal
from lbcore.model.times import duration
from lbcore.wire.arguments import CommandArguments
from lbcore.wire.commands import KINDS
from lbcore.wire.messages import Command

_LISTED = 20
_FEW = 3
_INSTANTS_FROM_MS = 1_000_000_000_000
_NOT_NEWS = frozenset({"cluster", "command_id", "at_ms", "principal", "config_version"})
"""What each row has that a command writes."""


def run_command(args: argparse.Namespace) -> int:
    """Execute the verb. Raises CommandError if it was not sent, or is unknown.

    Unknown: nobody knows whether it was.
    """
    return send_command(args, read_command(args))


def send_command(args: argparse.Namespace, arguments: CommandArguments) -> int:
    """Send it as the words of `add_sending` say; raises as `run_command` does."""
    where = connection_options(args)
    answers = answers_of(where)
    command = new_command(
        answers.cluster, arguments, command_id=args.command_id, timeout_ms=args.timeout_ms
    )
    if args.dry_run:
        return _say_rehearsal(args, command, answers.rehearse(command))
    began_s = time.monotonic()

    def progress(waited_s: float, is_accepted: bool) -> None:  # noqa: FBT001 (as Answers has it)
        note(_progress(answers, command, waited_s, is_accepted=is_accepted))

    outcome = answers.carry_out(command, wait=args.wait, progress=progress)
    if outcome is None:
        return _say_sent(args, command)
    waited_ms = round((time.monotonic() - began_s) * 1_000)
    if isinstance(outcome, NoOutcome):
        config = where.config.for_cluster(answers.cluster)
        pipeline = answers.settings_in_force(config)[0].pipeline
        raise _nobody_knows(command, replace(outcome, waited_ms=waited_ms), pipeline)
    return _say_outcome(args, command, outcome, waited_ms)


def _say_sent(args: argparse.Namespace, command: Command) -> int:
    value = {"command_id": command.command_id, "kind": command.kind, "status": "sent"}
    text = (
        f"sent {command.kind} as {command.command_id}; what becomes of it is a row of the table"
        " commands"
    )
    answer(args, value, text)
    return Exit.DONE


def _progress(answers: Answers, command: Command, waited_s: float, *, is_accepted: bool) -> str:
    waited = f"{waited_s:.0f} s"
    if is_accepted:
        return f"{waited}: accepted and under way{_drains(answers, command.command_id)}"
    return f"{waited}: no answer yet; {_heartbeat(answers)}"


def _heartbeat(answers: Answers) -> str:
    try:
        return f"the job's last heartbeat was {_ago(answers.status().writer_silent_ms)}"
    except CommandError as error:
        return f"{error.what}: {error.why}"


def _drains(answers: Answers, command_id: str) -> str:
    try:
        rows = [row for row in answers.policies() if row["kind"] == "drain"]
    except CommandError:
        return ""
    values = [json.loads(row["value"]) for row in rows if row["command_id"] == command_id]
    return "".join(f", {value['left']} of {value['total']} bundles left" for value in values)


def _ago(silent_ms: int) -> str:
    return "never" if silent_ms < 0 else f"{duration(silent_ms)} ago"


def _nobody_knows(command: Command, outcome: NoOutcome, pipeline: Pipeline) -> UnknownError:
    silent_ms = outcome.writer_silent_ms
    job = judge_job(silent_ms, silent_ms, pipeline)
    if outcome.is_job_away(pipeline.heartbeat_commit_ms):
        why = f"the streaming job is away: its last heartbeat was {_ago(silent_ms)}"
        next_step = "start the job; it carries the command out unless its time is over by then"
    elif outcome.accepted is None and job.word is JobWord.LATE:
        why = job.why()
        next_step = "wait, and look at `ballast status`"
    elif outcome.accepted is not None:
        why = "the balancer has accepted it and it has not ended yet"
        next_step = "look at `ballast status`, or wait longer with --timeout"
    else:
        why = f"the balancer has not answered, although its last heartbeat was {_ago(silent_ms)}"
        next_step = "read the job's log; rejected_reports has messages that can't be read"
    return UnknownError(
        f"no outcome of {command.kind} within {duration(outcome.waited_ms)}"
        f" (command {command.command_id})",
        why=why,
        next_step=f"{next_step}. The same verb with --command-id {command.command_id} asks again "
        "and does nothing twice",
    )


def _say_outcome(
    args: argparse.Namespace, command: Command, outcome: CommandOutcome, waited_ms: int
) -> int:
    is_done = outcome.status == DONE
    known = {**command.arguments, **outcome.result}
    next_step = _next_step(command, outcome.status)
    if is_done:
        next_step = KINDS[command.kind].about.afterwards.format_map(known)
    value = {
        "command_id": command.command_id,
        "kind": command.kind,
        "arguments": command.arguments,
        "status": outcome.status,
        "reason": outcome.reason,
        "result": outcome.result,
        "waited_ms": waited_ms,
        **({"next": next_step} if next_step else {}),
    }
    if is_done or args.json:
        head = f"{outcome.status} after {duration(waited_ms)}: {shown_command(command)}"
        next_lines = [f" next: {next_step}"] if next_step else []
        answer(args, value, [head, *_result_lines(outcome.result), *next_lines])
    else:
        what = f"{outcome.status}: {shown_command(command)}"
        note(*three_parts(what, outcome.reason, next_step))
    if is_done:
        return Exit.DONE
    return Exit.UNKNOWN if outcome.status == "timed_out" else Exit.FAILED


def _next_step(command: Command, status: str) -> str:
    """Return the advice for a command not carried out; the reason names the fault."""
    if status == "timed_out":
        return "`ballast status` says how the job is; ask again with more time: --timeout 5m"
    if status == "refused":
        return KINDS[command.kind].about.when_refused
    named = [name for name in ("bundle", "broker") if command.arguments.get(name)]
    asked = f"`ballast explain {named[0]} {command.arguments[named[0]]}`" if named else ""
    return f"{asked or '`ballast status`'} says how it is now; then ask again"


def shown_command(command: Command) -> str:
    """Kind and arguments in one line."""
    words = [f"{name}={_short(value)}" for name, value in sorted(command.arguments.items())]
    return " ".join([command.kind, *words])


def _short(value: Any) -> str:
    is_long = isinstance(value, Mapping) and len(value) > _FEW
    return f"({len(value)} of them)" if is_long else _plain(value)


def _result_lines(result: Mapping[str, Any]) -> Iterable[str]:
    return (f"  {_named(name, value)}" for name, value in sorted(result.items()))


def _named(name: str, value: Any) -> str:
    """A name and its value; instants and durations in words."""
    if not name.endswith("_ms") or not isinstance(value, int):
        return f"{name}: {_plain(value)}"
    text = format_instant(value) if value >= _INSTANTS_FROM_MS else duration(value)
    return f"{name.removesuffix('_ms')}: {text if value else 'none'}"


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(one)}" for name, one in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _say_rehearsal(args: argparse.Namespace, command: Command, rehearsed: RehearsedCommand) -> int:
    found, age_ms, foresight = rehearsed.found, rehearsed.tables_age_ms, rehearsed.foresight
    value = {
        "dry_run": True,
        "kind": command.kind,
        "arguments": command.arguments,
        "status": found.status,
        "reason": found.reason,
        "result": found.result,
        "transitions": [dict(one) for one in found.transitions],
        "changes": {name: list(rows) for name, rows in found.rows.items()},
        "tables_age_ms": age_ms,
        **({} if foresight is None else {"foresight": foresight.to_json()}),
    }
    if foresight is None:
        answer(args, value, _rehearsal_lines(command, found, age_ms))
    else:
        answer(args, value, Outlook(found=foresight, tables_age_ms=age_ms).lines())
    return Exit.DONE if found.is_possible else Exit.FAILED


def _rehearsal_lines(command: Command, found: Rehearsal, age_ms: int) -> Iterable[str]:
    age = "" if age_ms < 0 else f"; the tables are {duration(age_ms)} old"
    yield f"dry run, nothing was sent{age}"
    yield f"{shown_command(command)} would be {found.status}"
    if found.reason:
        yield f"  why: {found.reason}"
    if not found.is_possible:
        yield f" next: {_next_step(command, found.status)}"
    yield from _result_lines(found.result)
    shown = found.transitions[:_LISTED]
    yield from (f"  {one['bundle']}: {one['from']} → {one['to']}" for one in shown)
    if len(found.transitions) > len(shown):
        yield f"  and {len(found.transitions) - len(shown)} bundles more"
    for name, rows in found.rows.items():
        for row in rows[:_LISTED]:
            words = (_named(key, row[key]) for key in sorted(row) if key not in _NOT_NEWS)
            yield f"  a row of {name}: {'; '.join(words)}"
