"""Holds answers to what the OpenAPI document says of them."""

import re
from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator

from jobs.service.routes import Route
from tests.support.admin.asgi_calls import Answer


def operation_of(document: Mapping[str, Any], route: Route) -> Mapping[str, Any]:
    """A route's page in the document, which may name the parts of its path otherwise."""
    shape = re.sub(r"{\w+}", "{}", route.path)
    paths = {re.sub(r"{\w+}", "{}", path): said for path, said in document["paths"].items()}
    found: Mapping[str, Any] = paths[shape][route.method.lower()]
    return found


def check_answer(document: Mapping[str, Any], route: Route, reply: Answer) -> None:
    """Fails for an answer that is not of the status, type and schema that the document says."""
    said = operation_of(document, route)["responses"][str(reply.status)]
    if "$ref" in said:
        said = document["components"]["responses"][said["$ref"].rpartition("/")[2]]
    if "content" not in said:
        return
    schema = said["content"][reply.headers["content-type"]]["schema"]
    validator = Draft202012Validator({**schema, "components": document["components"]})
    assert not [error.message for error in validator.iter_errors(reply.json)]
