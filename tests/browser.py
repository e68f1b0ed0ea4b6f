"""A headless Chromium for tests, spoken to over a pipe (its DevTools protocol), with the network off."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_ALT, _SHIFT = 1, 8
"""Bits of the protocol's modifiers."""

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find_browser() -> str | None:
    """Return the path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page of a browser. What it complains of gathers in `complaints`, what it asks for in `requests`."""

    def __init__(self, program: str, width: int = 1280, height: int = 900) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._number = 0
        self._rest = b""
        self._loaded = False
        self._home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        read_here, write_there = os.pipe()
        read_there, write_here = os.pipe()
        self._in, self._out = read_here, write_here
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                 "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND", "--remote-debugging-pipe",
                 f"--user-data-dir={self._home.name}", f"--window-size={width},{height}", "about:blank"]  # fmt: skip
        # The protocol's pipe is on the descriptors 3 and 4 of the browser.
        script = f'exec "$@" 3<&{read_there} 4>&{write_there}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", program, *flags],
            pass_fds=(read_there, write_there),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_there)
        os.close(write_there)
        targets = self._ask("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self._ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        self.ask("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.terminate()
        self._process.wait(30)
        os.close(self._in)
        os.close(self._out)
        self._home.cleanup()

    def ask(self, method: str, **arguments: object) -> dict[str, Any]:
        """Call a method of the page's protocol."""
        return self._ask(method, self._session, **arguments)

    def open(self, page: Path) -> None:
        """Open a file and wait until it is loaded."""
        self._loaded = False
        self.ask("Page.navigate", url=page.resolve().as_uri())
        end = time.monotonic() + 60
        while not self._loaded:
            self._take(end)
        self.run("1")

    def run(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press and release a key, by its name in the protocol (`Enter`, `ArrowRight`)."""
        code = {"Enter": 13, "Tab": 9, "Escape": 27, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38,
                "ArrowRight": 39, "ArrowDown": 40}[key]  # fmt: skip
        text: dict[str, object] = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            extra: dict[str, object] = {"modifiers": _SHIFT * shift} | (text if kind == "keyDown" else {})
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **extra)

    def write(self, selector: str, text: str) -> None:
        """Put the caret into a field, remove what it holds, and type a text."""
        self.run(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.focus(); e.select(); }})()")
        self.ask("Input.insertText", text=text)

    def choose(self, selector: str, text: str) -> None:
        """Choose an option of a list by its text."""
        self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            f" e.selectedIndex = [...e.options].findIndex((o) => o.textContent === {json.dumps(text)});"
            " e.dispatchEvent(new Event('change')); })()"
        )

    def download(self, selector: str, folder: Path) -> Path:
        """Click a link that saves a file, and return the file as soon as it is whole."""
        self._ask("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder.resolve()))
        before = set(folder.iterdir())
        self.click(selector)
        end = time.monotonic() + 30
        while time.monotonic() < end:
            self.run("new Promise((done) => setTimeout(done, 50))")
            new = [file for file in set(folder.iterdir()) - before if file.suffix != ".crdownload"]
            if new:
                return new[0]
        raise AssertionError(f"{selector} saves nothing")

    def click(self, selector: str, *, alt: bool = False) -> None:
        """Click the middle of an element with the mouse."""
        x, y = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
            "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            button: dict[str, object] = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, modifiers=_ALT * alt, **button)

    def size(self, width: int, height: int = 900) -> None:
        """Give the window another size."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.run("new Promise((done) => setTimeout(done, 300))")

    def scheme(self, name: str) -> None:
        """Prefer `light` or `dark`."""
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def picture(self, whole: bool = True) -> bytes:
        """Return a PNG of the window, or of the whole page."""
        found = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(found["data"])

    def _ask(self, method: str, session: str | None = None, **arguments: object) -> dict[str, Any]:
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": arguments}
        text = json.dumps(message | ({"sessionId": session} if session else {}))
        os.write(self._out, text.encode() + b"\0")
        end = time.monotonic() + 60
        while True:
            answer = self._take(end)
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _take(self, end: float) -> dict[str, Any]:
        """Take one message, and note what it tells."""
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser says nothing"
            more = os.read(self._in, 1 << 16)
            assert more, "the browser is gone"
            self._rest += more
        first, self._rest = self._rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(first)
        match message.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Runtime.exceptionThrown" | "Log.entryAdded":
                self.complaints.append(json.dumps(message["params"])[:2000])
            case "Runtime.consoleAPICalled" if message["params"]["type"] in ("error", "warning", "assert"):
                self.complaints.append(json.dumps(message["params"])[:2000])
            case "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
            case _:
                pass
        return message
