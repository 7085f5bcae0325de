"""A headless Chromium, driven over the pipe of its DevTools protocol: no package is needed."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
# The protocol wants descriptors 3 and 4: they are first copied out of the way of each other.
# A program of its own rather than `preexec_fn`, which is not safe where threads run.
_LAUNCHER = """
import fcntl, os, sys
reads, writes = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(reads, 3)
os.dup2(writes, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
_PATIENCE = 60  # seconds for any answer
_KEY_CODES = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Enter": 13,
              "Escape": 27, "Tab": 9}  # fmt: skip


class Browser:
    """One browser with one page; a context manager that ends it."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        self._from_browser, browser_writes = os.pipe()
        browser_reads, self._to_browser = os.pipe()

        self._process = subprocess.Popen(
            [
                sys.executable, "-c", _LAUNCHER, str(browser_reads), str(browser_writes),
                CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu",
                "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
                "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank",
            ],
            pass_fds=(browser_reads, browser_writes), stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(browser_reads)
        os.close(browser_writes)
        self._numbers = itertools.count(1)
        self._buffer = b""
        self._events: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._session = None
        self.send("Browser.close")
        self._process.wait(_PATIENCE)
        os.close(self._from_browser)
        os.close(self._to_browser)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Give a command and wait for its answer; events that come in between are kept."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to_browser, data) :]
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def _receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + _PATIENCE
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._from_browser], [], [], max(left, 0))
            assert ready, "the browser does not answer"
            data = os.read(self._from_browser, 1 << 20)
            assert data, "the browser has ended"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        parsed = json.loads(message)
        if "method" in parsed:
            self._events.append(parsed)
        return parsed

    def open(self, page: Path) -> None:
        """Load a file and wait until it and its pictures are there."""
        self._events.clear()
        self.send("Page.navigate", url=page.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._receive()

    def complaints(self) -> list[dict[str, Any]]:
        """Exceptions, console output and browser messages since the page was opened."""
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        self.evaluate("0")  # whatever was said before has arrived then
        return [event["params"] for event in self._events if event["method"] in kinds]

    def requests(self) -> list[str]:
        """The addresses that the page asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self._events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        answer = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """Press and release the mouse button in the middle of an element."""
        box = self.evaluate(
            f"(e => {{ e.scrollIntoView({{block: 'center', inline: 'center'}});"
            " const r = e.getBoundingClientRect();"
            " return [r.x + r.width / 2, r.y + r.height / 2]; })"
            f"(document.querySelector({json.dumps(selector)}))"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left",
                      clickCount=1)  # fmt: skip

    def press(self, key: str) -> None:
        """Press and release a key; it goes to the element that has the focus."""
        common = {"key": key, "code": key, "windowsVirtualKeyCode": _KEY_CODES[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", **common, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", **common)

    def resize(self, width: int, height: int) -> None:
        """The size of the window's inside; below 600 pixels it is a phone."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)  # fmt: skip

    def prefer(self, scheme: str) -> None:
        """Let the system prefer ``light`` or ``dark``."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.send("Emulation.setEmulatedMedia", features=[feature])

    def screenshot(self) -> bytes:
        """The window as PNG."""
        return base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"])
