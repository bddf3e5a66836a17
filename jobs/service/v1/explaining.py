"""Explanations over HTTP: why a bundle, a broker, the cluster or a decision is as it is.

Decides nothing: `lbcore.explain` has the words; the answer has them and the numbers. Source: ours.
"""

from functools import partial
from typing import Any

from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.processes.clocks import wall_ms
from jobs.operating.explaining import WINDOW_MS, ExplainQuestion, explain
from jobs.operating.job_settings import started_with
from jobs.service.about import About, Example, QueryParameter, whole
from jobs.service.access import Role
from jobs.service.context import AdminContext
from jobs.service.exchange import Reply, Request
from jobs.service.reader_process import ReadRefusedError
from jobs.service.routes import Handler, Route
from jobs.service.v1.reading import in_background
from lbcore.config.tree import Config

_AT_MAX_MS = 10**14
_WINDOW_MAX_MS = 86_400_000

QUERIES = (
    QueryParameter(
        name="at",
        doc="As it was then, in ms since 1970; without it, now.",
        schema=whole(0, _AT_MAX_MS),
    ),
    QueryParameter(
        name="window_ms",
        doc="How far back decisions are looked at.",
        schema=whole(1, _WINDOW_MAX_MS),
    ),
)


def explaining(kind: str) -> Handler:
    """A handler that explains one kind of thing; its name is in the path."""

    async def handle(request: Request, context: AdminContext) -> Reply:
        question = ExplainQuestion(
            kind=kind,
            name="/".join(request.params.values()),
            now_ms=wall_ms(),
            at_ms=request.whole("at", 0, maximum=_AT_MAX_MS),
            window_ms=request.whole("window_ms", WINDOW_MS, minimum=1, maximum=_WINDOW_MAX_MS),
        )
        return await in_background(context, partial(_read, context.config, question))

    return handle


def _read(config: Config, question: ExplainQuestion, reader: TableReader) -> Any:
    found = explain(reader, started_with(reader, config, question.at_ms), question)
    if found is None:
        raise ReadRefusedError(404, f"There is no {question.kind} {question.name}")
    return found.to_json()


def _route(kind: str, path: str, summary: str, example: Example) -> Route:
    return Route(
        method="GET",
        path=path,
        handler=explaining(kind),
        role=Role.VIEWER,
        about=About(
            summary=summary,
            queries=QUERIES,
            answers={200: "Sentences and numbers.", 404: "There is no such thing."},
            example=example,
        ),
    )


EXPLAINING_ROUTES = (
    _route(
        "cluster",
        "/v1/explain/cluster",
        "What balancing does in this cluster, or why it does nothing.",
        Example(path="/v1/explain/cluster", status=200, answer={"kind": "cluster"}),
    ),
    _route(
        "broker",
        "/v1/explain/broker/{broker}",
        "Why a broker has what it has, and what it takes to relieve it.",
        Example(path="/v1/explain/broker/nobody:8080", status=404, answer={"reason": None}),
    ),
    _route(
        "bundle",
        "/v1/explain/bundle/{tenant}/{namespace}/{range}",
        "Why a bundle is where it is, what holds it, what would have to change.",
        Example(
            path="/v1/explain/bundle/acme/free/0x00000000_0xffffffff",
            status=200,
            answer={"kind": "bundle"},
        ),
    ),
    _route(
        "decision",
        "/v1/explain/decision/{decision_id}",
        "A decision with its numbers, its losers and its effect.",
        Example(path="/v1/explain/decision/local-1-1", status=404, answer={"reason": None}),
    ),
)
