"""All routes of the service, their OpenAPI document, and the console at `/`.

Decides which handler serves each of Pulsar's admin paths, and who may ask: changes of the cluster
take Pulsar's superuser, who is an admin of the whole cluster here; those of a tenant its admin;
reading takes a viewer. The document is drawn from routes and answers, and served at
/v1/openapi.json to everybody who may look up. The files hold nothing of the cluster and are for
everybody. The browser may do nothing with them but ask this service, under the caller's own roles.
Source: Pulsar 4.0.8, admin.v2.*; the paths of lookups are `lookup_http`'s. OpenAPI 3.1, JSON Schema
2020-12, Content Security Policy Level 3.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from jobs import VERSION
from jobs.service.access import Role
from jobs.service.exchange import JSON, Header, Reply, encode, is_pulsar
from jobs.service.pulsar import brokers, namespaces
from jobs.service.pulsar.brokers import existing
from jobs.service.routes import MAX_AGE, Handler, Route, Schema, TextQuery, reading
from jobs.service.v1.ownership import LOOKUP_DATA, OWNERSHIP_ROUTES
from jobs.service.v1.planning import (
    COMMAND_ROUTES,
    PLANNING_ROUTES,
)
from jobs.service.v1.showing import (
    LEFT_OUT_OF_ROWS,
    SHOWING_ROUTES,
)
from lbcore.model.tables import Table
from lbcore.pulsar.clusters import internal_data, leader_data
from lbcore.pulsar.dynamic_config import dynamic_names, overrides, runtime
from lbcore.pulsar.names import NOT_IMPLEMENTED, PulsarError
from lbcore.pulsar.namespaces import bundles_data, policies_data
from lbcore.pulsar.stats import DEFAULT_QUOTA, allocator_stats, metrics, no_availability
from lbcore.wire.commands import KINDS

_V2 = "/admin/v2"
_NAMESPACE = f"{_V2}/namespaces/{{tenant}}/{{namespace}}"
_BUNDLE = f"{_NAMESPACE}/{{bundle}}"
_ANY_TOPIC = f"{_V2}/{{domain}}/{{tenant}}/{{namespace}}"
_TOPIC = f"{_ANY_TOPIC}/{{topic}}"
_V1_TOPIC = "/admin/{domain}/{tenant}/{cluster}/{namespace}/{topic}"
_BROKERS = f"{_V2}/brokers"
_STATS = f"{_V2}/broker-stats"
_CLUSTER = f"{_V2}/clusters/{{cluster}}"
_POLICIES = f"{_CLUSTER}/namespaceIsolationPolicies"
_QUOTAS = f"{_V2}/resource-quotas"
_BUNDLE_QUOTA = f"{_QUOTAS}/{{tenant}}/{{namespace}}/{{bundle}}"


_NO_QUOTAS = "Ballast has no resource quotas: it measures load, and obeys limits and policies"
_TEXTS, _TEXT_MAP, _OBJECT = list[str], dict[str, str], dict[str, Any]
_BUNDLES = {"boundaries": _TEXTS, "numBundles": int}
_POSITIONS = {"namespace": str, "bundle": str, "topicHashPositions": dict[str, int]}
_PARTITIONS = {"partitions": int, "deleted": bool}
_LEADER = {"serviceUrl": str, "brokerId": str}
_OWNED = {str: {"broker_assignment": str, "is_controlled": bool, "is_active": bool}}
_DOMAIN = {"brokers": _TEXTS}
_TENANT = {"adminRoles": _TEXTS, "allowedClusters": _TEXTS}
_POLICY = {
    **dict.fromkeys(("namespaces", "primary", "secondary"), _TEXTS),
    "auto_failover_policy": {"policy_type": str, "parameters": _TEXT_MAP},
}
_ISOLATED = {"brokerName": str, "namespaceRegex?": _TEXTS, "primary?": bool, "policyName?": str}
_QUOTA = {
    **dict.fromkeys(("msgRateIn", "msgRateOut", "bandwidthIn", "bandwidthOut", "memory"), float),
    "dynamic": bool,
}


def _of_cluster(
    way: str,
    handler: Handler,
    answer: Any = None,
    summary: str = "",
    *,
    is_for_superuser: bool = True,
) -> Route:
    """A route about the whole cluster; a change takes a superuser.

    way: method and path; what is only read takes a viewer, anything else an admin.
    """
    method, path = way.split()
    return Route(
        method=method,
        path=path,
        handler=handler,
        role=Role.VIEWER if method == "GET" else Role.ADMIN,
        is_for_superuser=is_for_superuser,
        summary=summary,
        answer=answer,
        statuses={} if answer else {204: "Done, or there is none."},
    )


_of_tenant = partial(_of_cluster, is_for_superuser=False)
"""A route about a tenant, or about the whole cluster if the path names none."""


_NAMESPACE_ROUTES = (
    _of_tenant(f"GET {_V2}/namespaces/{{tenant}}", namespaces.list_namespaces, _TEXTS),
    _of_tenant(
        f"GET {_NAMESPACE}",
        lambda request, context: policies_data(
            (found := existing(request, context)).live, context.cluster, found.hash_function
        ),
        _OBJECT,
        "The policies of a namespace.",
    ),
    _of_tenant(f"PUT {_NAMESPACE}", namespaces.create_namespace),
    _of_tenant(f"DELETE {_NAMESPACE}", namespaces.delete_namespace),
    _of_tenant(
        f"GET {_NAMESPACE}/bundles",
        lambda request, context: bundles_data(existing(request, context).live),
        _BUNDLES,
        "The boundaries of a namespace's bundles.",
    ),
    _of_tenant(f"GET {_NAMESPACE}/topics", namespaces.list_all_topics, _TEXTS),
    _of_tenant(
        f"GET {_NAMESPACE}/replication",
        lambda request, context: existing(request, context) and [context.cluster],
        _TEXTS,
        "The clusters that a namespace is in: this one.",
    ),
    _of_cluster(f"PUT {_NAMESPACE}/unload", namespaces.unload_namespace),
    _of_tenant(f"GET {_NAMESPACE}/antiAffinity", namespaces.get_group),
    _of_tenant(f"POST {_NAMESPACE}/antiAffinity", namespaces.set_group),
    _of_tenant(f"DELETE {_NAMESPACE}/antiAffinity", namespaces.delete_group),
    _of_cluster(
        f"GET {_V2}/namespaces/{{cluster}}/antiAffinity/{{group}}", namespaces.list_group, _TEXTS
    ),
    _of_cluster(
        "GET /admin/namespaces/{cluster}/antiAffinity/{group}", namespaces.list_group, _TEXTS
    ),
    _of_cluster(f"PUT {_BUNDLE}/unload", namespaces.unload_bundle),
    _of_cluster(f"PUT {_BUNDLE}/split", namespaces.split_bundle),
    _of_tenant(f"GET {_BUNDLE}/topicHashPositions", namespaces.get_positions, _POSITIONS),
)

_TOPIC_ROUTES = (
    _of_tenant(f"GET {_ANY_TOPIC}", namespaces.list_topics, _TEXTS),
    _of_tenant(f"GET {_ANY_TOPIC}/partitioned", namespaces.list_partitioned, _TEXTS),
    _of_tenant(f"GET {_ANY_TOPIC}/{{bundle}}", namespaces.list_topics, _TEXTS),
    _of_tenant(f"PUT {_TOPIC}", namespaces.create_topic),
    _of_tenant(f"DELETE {_TOPIC}", namespaces.delete_topic),
    _of_tenant(f"GET {_TOPIC}/partitions", namespaces.get_partitions, _PARTITIONS),
    _of_tenant(f"PUT {_TOPIC}/partitions", namespaces.create_partitioned),
    _of_tenant(f"POST {_TOPIC}/partitions", namespaces.update_partitions),
    _of_tenant(f"DELETE {_TOPIC}/partitions", namespaces.delete_partitioned),
    _of_tenant(f"GET {_TOPIC}/stats", namespaces.get_stats, _OBJECT),
    _of_tenant(f"GET {_TOPIC}/partitioned-stats", namespaces.get_partitioned_stats, _OBJECT),
    _of_tenant(
        f"GET {_V2}/schemas/{{tenant}}/{{namespace}}/{{topic}}/schema", namespaces.get_schema
    ),
    _of_tenant(
        f"GET {_V2}/schemas/{{tenant}}/{{namespace}}/{{topic}}/schema/{{version}}",
        namespaces.get_schema,
    ),
    _of_tenant(f"GET {_V1_TOPIC}/partitions", namespaces.get_partitions, _PARTITIONS),
)

_BROKER_ROUTES = (
    _of_cluster(f"GET {_BROKERS}", brokers.list_brokers, _TEXTS),
    _of_cluster(f"GET {_BROKERS}/{{cluster}}", brokers.list_brokers, _TEXTS),
    _of_cluster(
        f"GET {_BROKERS}/leaderBroker",
        lambda request, _: leader_data(request.reached_at),
        _LEADER,
        "Return this service as the leader.",
    ),
    _of_cluster(
        f"GET {_BROKERS}/{{cluster}}/{{broker}}/ownedNamespaces", brokers.get_owned, _OWNED
    ),
    _of_cluster(f"GET {_BROKERS}/health", brokers.get_health),
    _of_tenant(
        f"GET {_BROKERS}/ready",
        lambda _, context: brokers.OK if context.follower.view is not None else Reply(status=500),
        summary="Check that the tables are loaded.",
    ),
    _of_tenant(
        f"GET {_BROKERS}/version",
        lambda *_: Reply(body=brokers.PULSAR_VERSION.encode(), headers=(JSON,)),
        summary="The version of Pulsar whose interface this is.",
    ),
    _of_cluster(
        f"GET {_BROKERS}/configuration",
        lambda *_: dynamic_names(),
        _TEXTS,
        "The keys that may be changed while running.",
    ),
    _of_cluster(
        f"GET {_BROKERS}/configuration/values",
        lambda _, context: overrides(context.views.settings),
        _TEXT_MAP,
        "Return the settings that were changed at runtime.",
    ),
    _of_cluster(
        f"GET {_BROKERS}/configuration/runtime",
        lambda _, context: runtime(context.started, context.views.settings),
        _TEXT_MAP,
        "All settings in force.",
    ),
    _of_cluster(
        f"GET {_BROKERS}/internal-configuration",
        lambda *_: internal_data(),
        _OBJECT,
        "InternalConfigurationData: there is no metadata store to name.",
    ),
    _of_cluster(f"POST {_BROKERS}/configuration/{{key}}/{{value}}", brokers.set_value),
    _of_cluster(f"DELETE {_BROKERS}/configuration/{{key}}", brokers.delete_value),
)

_CLUSTER_ROUTES = (
    _of_tenant(
        f"GET {_V2}/clusters",
        lambda _, context: [context.cluster],
        _TEXTS,
        "The one cluster of this service.",
    ),
    _of_tenant(f"GET {_CLUSTER}", brokers.get_cluster, _OBJECT),
    _of_cluster(f"GET {_CLUSTER}/failureDomains", brokers.list_domains, {str: _DOMAIN}),
    _of_cluster(f"GET {_CLUSTER}/failureDomains/{{domain}}", brokers.get_domain, _DOMAIN),
    _of_cluster(f"POST {_CLUSTER}/failureDomains/{{domain}}", brokers.set_domain),
    _of_cluster(f"DELETE {_CLUSTER}/failureDomains/{{domain}}", brokers.set_domain),
    _of_cluster(f"GET {_POLICIES}", brokers.list_policies, {str: _POLICY}),
    _of_cluster(f"GET {_POLICIES}/{{policy}}", brokers.get_policy, _POLICY),
    _of_cluster(f"POST {_POLICIES}/{{policy}}", brokers.set_policy),
    _of_cluster(f"DELETE {_POLICIES}/{{policy}}", brokers.delete_policy),
    _of_cluster(f"GET {_POLICIES}/brokers", brokers.list_isolated_brokers, [_ISOLATED]),
    _of_cluster(f"GET {_POLICIES}/brokers/{{broker}}", brokers.get_isolated_broker, _ISOLATED),
    _of_cluster(f"GET {_V2}/tenants", namespaces.list_tenants, _TEXTS),
    _of_cluster(f"GET {_V2}/tenants/{{tenant}}", namespaces.get_tenant, _TENANT),
    _of_cluster(f"PUT {_V2}/tenants/{{tenant}}", namespaces.create_tenant),
    _of_cluster(f"POST {_V2}/tenants/{{tenant}}", namespaces.update_tenant),
    _of_cluster(f"DELETE {_V2}/tenants/{{tenant}}", namespaces.delete_tenant),
)

_STATS_ROUTES = (
    _of_cluster(f"GET {_STATS}/load-report", brokers.get_load_report, _OBJECT),
    _of_cluster(f"GET {_STATS}/topics", brokers.get_topics, _OBJECT),
    _of_cluster(f"GET {_STATS}/destinations", brokers.get_topics, _OBJECT),
    _of_cluster(
        f"GET {_STATS}/metrics",
        lambda _, context: metrics(one for _, one in sorted(context.views.newest_load.items())),
        [_OBJECT],
        "The newest load of every broker as metrics.",
    ),
    _of_cluster(f"GET {_STATS}/mbeans", lambda *_: [], [_OBJECT], "Java's beans: none."),
    _of_cluster(
        f"GET {_STATS}/bookieops",
        lambda *_: {},
        _OBJECT,
        "BookKeeper's pending operations: none.",
    ),
    _of_cluster(
        f"GET {_STATS}/allocator-stats/{{allocator}}",
        lambda request, _: allocator_stats(request.params["allocator"]),
        _OBJECT,
        "The statistics of Netty's allocators, of which there are none here.",
    ),
    _of_cluster(
        f"GET {_STATS}/broker-resource-availability/{{tenant}}/{{namespace}}",
        lambda *_: no_availability(),
        summary="Only Pulsar's oldest load manager has an answer.",
    ),
    *(
        _of_cluster(
            f"GET {path}",
            lambda *_: DEFAULT_QUOTA,
            _QUOTA,
            "Pulsar's default: nothing is ever measured against it.",
        )
        for path in (_QUOTAS, _BUNDLE_QUOTA)
    ),
    *(
        _of_cluster(
            way,
            lambda *_: PulsarError(NOT_IMPLEMENTED, _NO_QUOTAS),
            summary="Quotas can't be set: nothing would obey them.",
        )
        for way in (f"POST {_QUOTAS}", f"POST {_BUNDLE_QUOTA}", f"DELETE {_BUNDLE_QUOTA}")
    ),
)

PULSAR_ROUTES = (
    *_NAMESPACE_ROUTES,
    *_TOPIC_ROUTES,
    *_BROKER_ROUTES,
    *_CLUSTER_ROUTES,
    *_STATS_ROUTES,
)


_ERRORS = {
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
_PULSAR_ERRORS = {
    "405": "There is no such method here.",
    "406": "A number of partitions that can't be.",
    "412": "A name or condition that does not hold.",
    "422": "Fewer or too many partitions.",
    "500": "Pulsar's own fault, as it words it.",
    "501": "Ballast has no such thing.",
}
_PROBLEM = {"type": str, "title": str, "status": int, "detail": str}
_FIRST_ERROR = 400
_AGES = {
    "X-Ballast-Table-Version": "Version of ownership_events that the answer comes from.",
    "X-Ballast-Age-Ms": "Since that was last known to be the newest.",
    "X-Ballast-Writer-Silent-Ms": "Since the balancer's last commit, -1 = never.",
}
_ROW_TYPES: Mapping[str, Schema] = {
    "string": {"type": "string"},
    "long": {"type": "integer"},
    "int": {"type": "integer"},
    "double": {"type": ["number", "null"]},
    "boolean": {"type": "boolean"},
    "map<string,string>": {"type": "object", "additionalProperties": {"type": "string"}},
}
_SCALARS: Mapping[Any, Schema] = {
    Any: {},
    NoneType: {"type": "null"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
}


class Schemas:
    """JSON Schemas of answers by their shapes; each record is in `known` by its name.

    A shape is a type, a table (a row of it), {name: shape} with "name?" where it may be missing,
    {str: shape} with any names, [shape], [shape, None] for a value that may be null, or a tuple of
    objects that are one together.
    """

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}
        self._kinds: dict[str, Any] = {}

    def of(self, shape: Any) -> Schema:  # noqa: PLR0911 (one a kind of shape)
        """The schema of a shape; raises TypeError for one that JSON has nothing for."""
        match shape:
            case tuple():
                parts = [self.of_object(part) for part in shape]
                named = {name: one for part in parts for name, one in part["properties"].items()}
                return _object(named, [name for part in parts for name in part["required"]])
            case dict() | Table():
                return self.of_object(shape)
            case [item]:
                return {"type": "array", "items": self.of(item)}
            case [item, None]:
                return {"anyOf": [self.of(item), self.of(NoneType)]}
            case type() if is_dataclass(shape):
                return self._reference(shape)
            case type() if issubclass(shape, Enum):
                return {"type": "string", "enum": [one.value for one in shape]}
        return _SCALARS[shape] if shape in _SCALARS else self._composed(shape)

    def of_object(self, shape: Any) -> Schema:
        """The schema of an object, written out."""
        match shape:
            case dict() if str in shape:
                return {"type": "object", "additionalProperties": self.of(shape[str])}
            case dict():
                named = {name.rstrip("?"): self.of(one) for name, one in shape.items()}
                needed = [name for name in shape if not name.endswith("?")]
                return _object(named, needed)
            case Table():
                shown = [one for one in shape.columns if one.name not in LEFT_OUT_OF_ROWS]
                return _object({one.name: _column(one) for one in shown})
        hints = get_type_hints(shape)
        return _object({one.name: self.of(hints[one.name]) for one in fields(shape)})

    def _reference(self, kind: type[Any]) -> Schema:
        if self._kinds.setdefault(kind.__name__, kind) is not kind:
            raise TypeError(f"answers' records must differ in name, got {kind.__name__} twice")
        if kind.__name__ not in self.known:
            self.known[kind.__name__] = self.of_object(kind)
        return {"$ref": f"#/components/schemas/{kind.__name__}"}

    def _composed(self, hint: Any) -> Schema:
        origin, arguments = get_origin(hint), get_args(hint)
        if origin in {Union, UnionType}:
            return {"anyOf": [self.of(one) for one in arguments]}
        if origin in {tuple, list, frozenset, Sequence} and not {*arguments[1:]} - {...}:
            return {"type": "array", "items": self.of(arguments[0])}
        if origin is tuple:
            return {"type": "array", "prefixItems": [self.of(one) for one in arguments]}
        if origin in {dict, Mapping}:
            return {"type": "object", "additionalProperties": self.of(arguments[1])}
        raise TypeError(f"an answer's field must be of a type that JSON has, got {hint}")


def _object(named: Mapping[str, Any], needed: Iterable[str] | None = None) -> Schema:
    required = list(named if needed is None else needed)
    return {
        "type": "object",
        "properties": named,
        "required": required,
        "additionalProperties": False,
    }


def _column(column: Any) -> Schema:
    schema = {**_ROW_TYPES.get(column.type, {"type": "array"}), "description": column.doc}
    if column.is_nullable:
        kinds = schema["type"]
        schema["type"] = [*([kinds] if isinstance(kinds, str) else kinds), "null"]
    return schema


_LOOKUP = "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}"
IN_FRONT = tuple(
    reading(path, lambda *_: None, summary, answer, queries=queries, media_type=media_type)
    for path, summary, answer, queries, media_type in (
        (
            _LOOKUP,
            "The broker that serves a topic.",
            LOOKUP_DATA,
            (TextQuery("listenerName", "The listener whose addresses are asked for."),),
            "application/json",
        ),
        (f"{_LOOKUP}/bundle", "The range of a topic's bundle.", None, (), "application/json"),
        ("/health", "The state of this service.", dict[str, Any], (), "application/json"),
        ("/alive", "That this process answers.", {"status": str}, (), "application/json"),
        ("/metrics", "The metrics, for Prometheus.", str, (), "text/plain"),
    )
)
"""The paths in front of the routes, which `LookupApp` serves."""


def draw_openapi(routes: Iterable[Route]) -> dict[str, Any]:
    """The document for the routes and the paths in front of them."""
    schemas, paths, known = Schemas(), dict[str, dict[str, Any]](), dict[str, str]()
    for route in (*routes, *IN_FRONT):
        # two paths that differ in the names of their parts alone are one
        path = known.setdefault(re.sub(r"{\w+}", "{}", route.path), route.path)
        operation = _operation(replace(route, path=path), schemas)
        paths.setdefault(path, {})[route.method.lower()] = operation
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
            "schemas": {
                "Problem": {**schemas.of(_PROBLEM), "additionalProperties": True},
                "Reason": schemas.of({"reason": str}),
                **schemas.known,
            },
            "responses": {
                **{f"Problem{status}": _error("Problem", doc) for status, doc in _ERRORS.items()},
                **{
                    f"Reason{status}": _error("Reason", doc)
                    for status, doc in {**_ERRORS, **_PULSAR_ERRORS}.items()
                },
            },
            "headers": {
                name: {"description": doc, "schema": {"type": "integer"}}
                for name, doc in _AGES.items()
            },
            "parameters": {
                MAX_AGE.name: {
                    "name": MAX_AGE.name,
                    "in": "query",
                    "description": MAX_AGE.doc,
                    "schema": {"type": "integer", "minimum": 0},
                }
            },
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}
            },
        },
    }


def openapi_route(routes: Iterable[Route]) -> Route:
    """The route that serves the document of these and of itself."""
    own = reading(
        "/v1/openapi.json",
        lambda *_: Reply(body=body, headers=(JSON,)),
        "This document.",
        dict[str, Any],
        checks_itself=True,
    )
    body = encode(draw_openapi((*routes, own)))
    return own


def _operation(route: Route, schemas: Schemas) -> dict[str, Any]:
    text, kind = {"type": "string", "minLength": 1}, {"type": "string", "enum": sorted(KINDS)}
    operation: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", f"{route.method.lower()}{route.path}").strip("_"),
        "summary": route.summary or (route.handler.__doc__ or "").partition("\n")[0],
        "parameters": [
            *(
                {
                    "name": name,
                    "in": "path",
                    "required": True,
                    "schema": kind if name == "kind" else text,
                }
                for name in re.findall(r"{(\w+)}", route.path)
            ),
            *(
                {"name": one.name, "in": "query", "description": one.doc, "schema": one.schema}
                for one in route.queries
            ),
            {"$ref": "#/components/parameters/max_age_ms"},
        ],
        "responses": _responses(route, schemas),
    }
    if route.body is not None:
        content = {"schema": route.body}
        if route.example is not None and route.example.body is not None:
            content["example"] = route.example.body
        operation["requestBody"] = {"content": {"application/json": content}}
    return operation


def _responses(route: Route, schemas: Schemas) -> dict[str, Any]:
    kind = "Reason" if is_pulsar(route.path.encode()) else "Problem"
    headers = {name: {"$ref": f"#/components/headers/{name}"} for name in _AGES}
    errors = _ERRORS if kind == "Problem" else {**_ERRORS, **_PULSAR_ERRORS}
    found: dict[str, Any] = {
        status: {"$ref": f"#/components/responses/{kind}{status}"} for status in errors
    }
    for status, doc in {200: "The answer.", **route.statuses}.items():
        if status >= _FIRST_ERROR:
            found[str(status)] = _error(kind, doc)
            continue
        answer: dict[str, Any] = {"description": doc, "headers": headers}
        if route.answer is not None:
            answer["content"] = {route.media_type: {"schema": schemas.of(route.answer)}}
        found[str(status)] = answer
    return dict(sorted(found.items()))


def _error(kind: str, doc: str) -> dict[str, Any]:
    media = "application/problem+json" if kind == "Problem" else "application/json"
    schema = {"$ref": f"#/components/schemas/{kind}"}
    return {"description": doc, "content": {media: {"schema": schema}}}


FOLDER = Path(__file__).with_name("page")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PAGE_HEADERS: tuple[Header, ...] = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
)
_TYPES = {
    ".html": b"text/html; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".md": b"text/plain; charset=utf-8",
    ".svg": b"image/svg+xml",
}


def _route(path: str, name: str) -> Route:
    headers = ((b"content-type", _TYPES[Path(name).suffix]), *_PAGE_HEADERS)
    reply = Reply(body=(FOLDER / name).read_bytes(), headers=headers)
    return Route(method="GET", path=path, handler=lambda *_: reply, is_open=True)


_NAMES = sorted(path.name for path in FOLDER.iterdir() if path.suffix in _TYPES)
PAGE_ROUTES = (
    _route("/", "index.html"),
    *(_route(f"/page/{name}", name) for name in _NAMES if name != "index.html"),
)


_DOCUMENTED = (
    *SHOWING_ROUTES,
    *PLANNING_ROUTES,
    *OWNERSHIP_ROUTES,
    *COMMAND_ROUTES,
    *PULSAR_ROUTES,
)

ROUTES: tuple[Route, ...] = (*_DOCUMENTED, openapi_route(_DOCUMENTED), *PAGE_ROUTES)
