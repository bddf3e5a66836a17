"""The certificates of a conversation with Pulsar: ours, and those that brokers have shown.

How near their ends are is judged by `lbcore.model.certificates`. Safe to use from many threads.
"""

import threading
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from jobs.adapters.http.tls import ends_in_file


class ShownCertificates:
    """Until when each is good, as it was shown last. own: the file of ours, read at each look."""

    def __init__(self, own: Path | None) -> None:
        self._own = own
        self._lock = threading.Lock()
        self._ends_ms: dict[str, int] = {}

    def note(self, url: str, ends_ms: int) -> None:
        """Record the end of the certificate shown at `url`; ends_ms: 0 = none shown."""
        if ends_ms:
            with self._lock:
                self._ends_ms[urlsplit(url).netloc] = ends_ms

    def ends(self, entry: str, brokers: Mapping[str, str]) -> dict[str, int]:
        """Return the owners of certificates → their end, ms since 1970.

        entry: where we begin to ask. brokers: broker → where it answers itself.
        """
        places = {name: urlsplit(url).netloc for name, url in brokers.items()}
        first = urlsplit(entry).netloc
        if first not in places.values():
            places[first] = first
        with self._lock:
            shown = dict(self._ends_ms)
        found = {name: shown[place] for name, place in places.items() if place in shown}
        own_ms = ends_in_file(self._own)
        return {**found, f"the bridge ({self._own})": own_ms} if own_ms else found
