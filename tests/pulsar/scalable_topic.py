"""A scalable topic of a real Pulsar 5, with traffic, and what is asked of Pulsar about it.

The client is a Java one of the server's own folder: the Python client knows no topic:// yet. It
finds segments by the second broker, for the standalone process names itself as the owner of each
(5.0.0-M1). PIP-460, PIP-468, 5.0.0-M1's ScalableTopics.
"""

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.integration.stack import PATIENCE_S, wait_for
from tests.pulsar.distribution import ensure_distribution
from tests.pulsar.pulsar_cluster import PulsarCluster, java_home

_PROGRAM = Path(__file__).with_name("ScalableTraffic.java")
_MOVED = 307
_REDIRECTS_MAX = 5


class ScalableTopic:
    """One topic; `start` makes it."""

    def __init__(self, cluster: PulsarCluster, name: str, folder: Path) -> None:
        """name: tenant/namespace/topic. folder: of what the client says."""
        self._cluster, self.name, self._log = cluster, name, folder / "scalable-traffic.log"
        self._client: subprocess.Popen[bytes] | None = None

    def start(self, segments: int, per_second: int, size: int) -> None:
        """Make it, with so many segments, produce and consume; returns when messages arrive."""
        self._ask("PUT", f"?numInitialSegments={segments}")
        words = [f"{java_home()}/bin/java", "-Xmx256m", "-cp", f"{ensure_distribution()}/lib/*"]
        words += [str(_PROGRAM), self._cluster.service_url_of(2), f"topic://{self.name}"]
        self._client = subprocess.Popen(
            [*words, str(per_second), str(size)],
            stdin=subprocess.PIPE,
            stdout=self._log.open("wb"),
            stderr=subprocess.STDOUT,
        )
        wait_for("messages of the scalable topic", lambda: self.counts()[1] > 0, PATIENCE_S)

    def stop(self) -> None:
        """Stop producing and wait for what is under way; once."""
        if self._client is not None and self._client.stdin is not None:
            self._client.stdin.close()
            self._client.wait(PATIENCE_S)
            self._client = None

    def counts(self) -> tuple[int, int, int]:
        """Messages acknowledged and received, and errors, as the client told last."""
        lines = [line.split() for line in self._log.read_text().splitlines()]
        told = [line for line in lines if len(line) == 3 and all(map(str.isdigit, line))]
        acknowledged, received, errors = map(int, told[-1]) if told else (0, 0, 0)
        return acknowledged, received, errors

    def segments(self) -> Sequence[str]:
        found: Mapping[str, Any] = json.loads(self._ask("GET", "/stats"))["segments"]
        return sorted(one["name"] for one in found.values() if one["state"] == "ACTIVE")

    def split(self, segment: str) -> None:
        self._ask("POST", f"/split/{segment.rpartition('-')[2]}")

    def _ask(self, method: str, rest: str) -> str:
        url = f"{self._cluster.admin_url}/admin/v2/scalable/{self.name}{rest}"
        for _ in range(_REDIRECTS_MAX):
            request = urllib.request.Request(url, method=method)  # noqa: S310 (loopback)
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 (loopback)
                    return str(answer.read().decode())
            except urllib.error.HTTPError as error:
                if error.code != _MOVED:
                    raise
                url = str(error.headers["Location"])
        raise AssertionError(f"{url}: redirected more than {_REDIRECTS_MAX} times")
