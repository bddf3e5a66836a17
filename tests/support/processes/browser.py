"""A real browser without a window, driven through its debugging pipe; nothing but Chromium needed.

Source: the Chrome DevTools Protocol; messages end with a zero byte on file descriptors 3 and 4.
"""

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from tests.support.values.tokens import SECRET, token

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_WORDS = (
    "--headless=new",
    "--no-sandbox",  # tests may run as root, where the sandbox can't start
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--remote-debugging-pipe",
)
_PATIENCE_S = 60.0
_KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "/": 191}


def find_browser() -> str | None:
    """The path of a Chromium on this machine, None without one."""
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


@contextmanager
def running_browser(folder: Path) -> Iterator["Browser"]:
    """A browser whose profile is in the folder; skips the test where there is none."""
    if find_browser() is None:
        pytest.skip("no Chromium here (Debian, Ubuntu: apt-get install chromium)")
    running = Browser(folder / "profile")
    try:
        running.attach()
        yield running
    finally:
        running.close()


class Browser:
    """One page. complaints: what its console and its policy said against it."""

    def __init__(self, profile: Path, *words: str) -> None:
        command = [
            find_browser() or "chromium",
            *_WORDS,
            *words,
            f"--user-data-dir={profile}",
            "about:blank",
        ]
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        with (profile.parent / "browser.log").open("wb") as log:
            self._process = subprocess.Popen(
                ["/bin/bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", *command],
                pass_fds=(theirs_in, theirs_out),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        os.close(theirs_in)
        os.close(theirs_out)
        self._in, self._out = os.fdopen(ours_in, "rb", 0), os.fdopen(ours_out, "wb")
        self._unread = b""
        self._count = 0
        self._session = ""
        self.complaints: list[str] = []

    def attach(self) -> None:
        """Drive its page from now on."""
        targets = self._ask("Target.getTargets")["targetInfos"]
        page = next(one["targetId"] for one in targets if one["type"] == "page")
        attached = self._ask("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")
        self._ask("Emulation.setFocusEmulationEnabled", enabled=True)  # as the window in front

    def open(
        self, url: str, *, scheme: str = "light", width: int = 1100, height: int = 1400
    ) -> None:
        """Go to a page, as a screen of this size shows it under a colour scheme."""
        self.look(scheme, width, height)
        self.value("window.isLeft = true")
        self._ask("Page.navigate", url=url)
        self.wait("!window.isLeft && document.readyState === 'complete'")

    def sign_in(self, url: str, role: str) -> None:
        """Have a token of this role, as whoever gave it to a page at this address before."""
        self.open(url)
        pass_ = token(SECRET, "HS256", sub="ada", roles=[role])
        self.value(f"sessionStorage.setItem('token', '{pass_}')")

    def look(self, scheme: str, width: int, height: int) -> None:
        """Show the page as a screen of this size does under a colour scheme."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._ask("Emulation.setDeviceMetricsOverride", **size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._ask("Emulation.setEmulatedMedia", features=features)

    def value(self, expression: str) -> Any:
        """What an expression is on the page; promises are waited for."""
        answer = self._ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, expression: str) -> None:
        deadline_s = time.monotonic() + _PATIENCE_S
        while not self.value(f"Boolean({expression})"):
            assert time.monotonic() < deadline_s, f"waited in vain for {expression}"
            time.sleep(0.05)

    def press(self, key: str) -> None:
        parts = {"key": key, "windowsVirtualKeyCode": _KEYS[key], "code": key}
        text = {"Enter": "\r", "/": "/"}.get(key, "")
        self._ask(
            "Input.dispatchKeyEvent", type="keyDown", **parts, **({"text": text} if text else {})
        )
        self._ask("Input.dispatchKeyEvent", type="keyUp", **parts)

    def write(self, text: str) -> None:
        self._ask("Input.insertText", text=text)

    def shoot(self, path: Path) -> None:
        taken = self._ask("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(taken["data"]))

    def close(self) -> None:
        self._session = ""
        try:
            self._ask("Browser.close")
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(20)
        finally:  # also when it can't be asked any more
            self._process.kill()
            self._process.wait()
            self._in.close()
            self._out.close()

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._count += 1
        request = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            request["sessionId"] = self._session
        self._out.write(json.dumps(request).encode() + b"\0")
        self._out.flush()  # the whole of it, however many writes the pipe wants
        while True:
            message = self._read()
            if message.get("id") == self._count:
                assert "error" not in message, f"{method}: {message['error']}"
                found: dict[str, Any] = message["result"]
                return found
            self._note(message)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            part = self._in.read(1 << 16)
            assert part, "the browser has ended"
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def _note(self, message: dict[str, Any]) -> None:
        said = message.get("params", {})
        if message.get("method") == "Log.entryAdded" and said["entry"]["level"] == "error":
            self.complaints.append(said["entry"]["text"])
        if message.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(said["exceptionDetails"]))


_AXE = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
_FOUND = """axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) => violations
  .filter(({ impact }) => ["serious", "critical"].includes(impact))
  .flatMap(({ id, nodes }) => nodes.map((node) =>
    [id, node.target.join(" "), node.failureSummary].join(": "))))"""


def barriers(page: Browser) -> list[str]:
    """The rules that the page as it is breaks: each with its element and what would mend it."""
    if not page.value("'axe' in window"):
        page.value(_AXE)
    found: list[str] = page.value(_FOUND)
    return found
