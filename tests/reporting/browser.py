"""A real browser for tests: headless Chromium, spoken to over a pipe in its DevTools protocol."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 60.0  # seconds for an answer; a start on a busy machine takes some


def installed() -> str | None:
    """The browser's path, None where there is none."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Page:
    """One open tab."""

    def __init__(self, requests: int, answers: int) -> None:
        self._requests, self._answers = requests, answers
        self._session: str | None = None
        self._sent = 0
        self._read = b""
        self.seen: list[dict[str, Any]] = []

    def open(self) -> None:
        """Attach to a new tab."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def show(self, file: Path, *, width: int, height: int = 900, dark: bool = False, media: str = "screen") -> None:
        """Load a file in a window of a given size."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url=file.as_uri())
        self._wait(
            lambda: self.value("document.readyState") == "complete" and self.value("location.protocol == 'file:'")
        )

    def value(self, expression: str) -> Any:
        """What a JavaScript expression evaluates to."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in found:
            raise AssertionError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def click(self, selector: str) -> None:
        """A real click in the middle of an element."""
        quoted = json.dumps(selector)
        self.value(f"document.querySelector({quoted}).scrollIntoView({{block: 'center', inline: 'center'}})")
        box = self.value(f"document.querySelector({quoted}).getBoundingClientRect().toJSON()")
        place = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2, "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, **place)

    def press(self, key: str, code: int, text: str = "") -> None:
        """A key of the keyboard, to whatever has the focus."""
        names = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **names)
        self.call("Input.dispatchKeyEvent", type="keyUp", **names)

    def screenshot(self, path: Path) -> None:
        """The whole page as a picture."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol; events that come in between are kept in ``seen``."""
        self._sent += 1
        message: dict[str, Any] = {"id": self._sent, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._requests, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + PATIENCE
        while True:
            answer = self._next(until)
            if answer.get("id") != self._sent:
                self.seen.append(answer)
                continue
            if "error" in answer:
                raise AssertionError(f"{method}: {answer['error']}")
            result: dict[str, Any] = answer["result"]
            return result

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._read:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, until - time.monotonic()))
            part = os.read(self._answers, 1 << 20) if ready else b""
            if not part:
                raise AssertionError("the browser does not answer")
            self._read += part
        first, self._read = self._read.split(b"\0", 1)
        message: dict[str, Any] = json.loads(first)
        return message

    def _wait(self, condition: Any) -> None:
        until = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > until:
                raise AssertionError("the page does not load")


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """A browser with an empty profile; gone when the block ends."""
    path = installed()
    if path is None:
        raise AssertionError(f"none of {', '.join(NAMES)} is installed")
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10) for descriptor in (theirs_in, theirs_out)]
    pipes = f"3<&{high[0]} 4>&{high[1]} {high[0]}<&- {high[1]}>&-"  # Chromium reads from 3 and writes to 4
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"]
    command = [path, *options, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
    process = subprocess.Popen(
        ["bash", "-c", f'exec "$@" {pipes}', "bash", *command],
        pass_fds=high,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for descriptor in (theirs_in, theirs_out, *high):
        os.close(descriptor)
    page = Page(ours_out, ours_in)
    try:
        page.open()
        yield page
    finally:
        with contextlib.suppress(AssertionError, OSError):
            page.call("Browser.close")
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(ours_in)
        os.close(ours_out)
