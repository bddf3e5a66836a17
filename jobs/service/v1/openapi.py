"""The OpenAPI document of our own paths, drawn from the routes.

Decides nothing that a route doesn't. Served at /v1/openapi.json, to everybody who may look up.
Source: OpenAPI 3.1.
"""

import re
from collections.abc import Iterable
from typing import Any

from jobs import VERSION
from jobs.service.access import Role
from jobs.service.context import AdminContext
from jobs.service.exchange import JSON, Reply, Request, encode
from jobs.service.routes import About, Example, Handler, Route

_COMMON = {
    "400": "The request can't be understood, with the reason.",
    "401": "Nothing proves who asks.",
    "403": "The caller has not the role, or a page of another site asks.",
    "404": "There is no such thing.",
    "409": "Refused, with the reason.",
    "413": "The body is too long.",
    "415": "A change, or a body, without Content-Type: application/json.",
    "421": "Asked under a name that is not the service's.",
    "429": "Too many requests: come again after Retry-After.",
    "503": "Not possible at the moment: come again after Retry-After.",
}
_REASON = {
    "type": "object",
    "required": ["reason"],
    "properties": {"reason": {"type": "string"}},
}
_AGES = {
    "X-Ballast-Table-Version": "Version of ownership_events that the answer comes from.",
    "X-Ballast-Age-Ms": "Since that was last known to be the newest.",
    "X-Ballast-Writer-Silent-Ms": "Since the balancer's last commit, -1 = never.",
}


def draw_openapi(routes: Iterable[Route]) -> dict[str, Any]:
    """The document for the routes that have a page."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if route.about is not None:
            operation = _operation(route, route.about)
            paths.setdefault(route.path, {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Ballast",
            "version": VERSION,
            "description": "Who owns which bundle, and requests to change it. Every answer carries "
            "the table version and both ages in its headers; every request takes max_age_ms.",
        },
        "security": [{"bearer": []}, {}],
        "paths": paths,
        "components": {
            "schemas": {"Reason": _REASON},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}
            },
        },
    }


def openapi_route(routes: Iterable[Route]) -> Route:
    """The route that serves the document of these and of itself."""
    known = tuple(routes)
    own = Route(
        method="GET",
        path="/v1/openapi.json",
        handler=_not_made,
        role=Role.VIEWER,
        checks_itself=True,
        about=About(
            summary="This document.",
            example=Example(path="/v1/openapi.json", status=200, answer=None),
        ),
    )
    document = draw_openapi((*known, own))
    return Route(
        method=own.method,
        path=own.path,
        handler=_serving(document),
        role=own.role,
        checks_itself=True,
        about=own.about,
    )


def _serving(document: dict[str, Any]) -> Handler:
    body = encode(document)

    async def handle(request: Request, context: AdminContext) -> Reply:
        del request, context
        return Reply(body=body, headers=(JSON,))

    return handle


async def _not_made(request: Request, context: AdminContext) -> Reply:
    raise NotImplementedError


def _operation(route: Route, about: About) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", route.path)
    text = {"type": "string", "minLength": 1}
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": text} for name in names
    ] + [
        {"name": query.name, "in": "query", "description": query.doc, "schema": query.schema}
        for query in about.queries
    ]
    age = {"type": "integer", "minimum": 0}
    doc = "Refuse an answer that is older than this."
    parameters.append({"name": "max_age_ms", "in": "query", "description": doc, "schema": age})
    operation: dict[str, Any] = {
        "operationId": _identity(route),
        "summary": about.summary,
        "parameters": parameters,
        "responses": _responses(about),
    }
    if about.body is not None:
        content: dict[str, Any] = {"schema": about.body}
        if about.example.body is not None:
            content["example"] = about.example.body
        operation["requestBody"] = {"content": {"application/json": content}}
    return operation


def _identity(route: Route) -> str:
    parts = [part.strip("{}") for part in route.path.split("/")[2:]]
    return "_".join([route.method.lower(), *parts]).replace(".", "_")


def _responses(about: About) -> dict[str, Any]:
    headers = {
        name: {"description": doc, "schema": {"type": "integer"}} for name, doc in _AGES.items()
    }
    found: dict[str, Any] = {
        status: {
            "description": doc,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Reason"}}},
        }
        for status, doc in _COMMON.items()
    }
    for status, doc in about.answers.items():
        content: dict[str, Any] = {"schema": {}}
        if status == about.example.status and about.example.answer is not None:
            content["example"] = about.example.answer
        found[str(status)] = {
            "description": doc,
            "headers": headers,
            "content": {about.media_type: content},
        }
    return dict(sorted(found.items()))
