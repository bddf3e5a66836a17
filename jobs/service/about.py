"""What the OpenAPI document says of a route, with an example that a test tries.

Decides nothing. Stands beside the route it is about. Source: ours, after OpenAPI 3.1.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Schema = Mapping[str, Any]

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}
OBJECT: Schema = {"type": "object"}
TEXTS: Schema = {"type": "array", "items": TEXT}


def whole(minimum: int, maximum: int) -> Schema:
    """A whole number from minimum to maximum."""
    return {**WHOLE, "minimum": minimum, "maximum": maximum}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryParameter:
    """A query parameter."""

    name: str
    doc: str
    schema: Schema = field(default_factory=lambda: TEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A request of the example world and the answer to it; None: numbers and times that vary.

    path: with its query. body: None = none.
    """

    path: str
    status: int
    answer: Any = None
    body: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """A route's page. answers: status → what it means, beside 400, 401, 403, 429, 503."""

    summary: str
    example: Example
    queries: tuple[QueryParameter, ...] = ()
    body: Schema | None = None
    answers: Mapping[int, str] = field(default_factory=lambda: {200: "The answer."})
    media_type: str = "application/json"
