"""Requests of pulsar-admin, and Pulsar's refusals of them.

A line of a file: method, path, body, status, and the refusal, or the command with its arguments.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NS = "/admin/v2/namespaces/acme/ns1"
FIRST, SECOND = "0x00000000_0x40000000", "0x40000000_0x80000000"
TOPIC = "/admin/v2/persistent/acme/ns1"
POLICY = {
    "namespaces": ["acme/iso.*"],
    "primary": ["broker-1:8080"],
    "secondary": ["broker-2:8080"],
    "auto_failover_policy": {
        "policy_type": "min_available",
        "parameters": {"min_limit": "1", "usage_threshold": "80"},
    },
}
POLICIES_PATH = "/admin/v2/clusters/c1/namespaceIsolationPolicies"
SPLIT = f"{NS}/{FIRST}/split?splitAlgorithmName="
UNEXPECTED = "\n --- An unexpected error occurred in the server ---\n\nMessage: "


def _cases(name: str) -> list[Any]:
    lines = Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()
    cases = [tuple(json.loads(line)) for line in lines]
    return [
        (method, path, body.encode() if isinstance(body, str) else body, *rest)
        for method, path, body, *rest in cases
    ]


ASKED: list[tuple[str, str, Any, int, str, Mapping[str, Any]]] = _cases("pulsar_asked.jsonl")
REFUSED: list[tuple[str, str, Any, int, str]] = _cases("pulsar_refused.jsonl")
