"""A headless Chromium over its own protocol, without a driver: commands and answers are JSON in two pipes.

Source: Chrome DevTools Protocol; with --remote-debugging-pipe the browser reads file descriptor 3 and writes 4.
"""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
TIMEOUT_S = 120


def find():
    """The browser's path; None if there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """A page of a browser of its own. messages: what its console said as errors, and exceptions."""

    def __init__(self, width=1280, height=800):
        self._folder = tempfile.TemporaryDirectory(prefix="weft-browser-")
        read_end, self._write = os.pipe()
        self._read, write_end = os.pipe()

        def place():  # in the child: the pipes where the browser looks for them
            os.dup2(read_end, 13), os.dup2(write_end, 14)
            os.dup2(13, 3), os.dup2(14, 4)

        self._process = subprocess.Popen(
            [
                find(),
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--no-first-run",
                "--hide-scrollbars",
                "--remote-debugging-pipe",
                f"--user-data-dir={self._folder.name}",
                f"--window-size={width},{height}",
                "about:blank",
            ],
            preexec_fn=place,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_end), os.close(write_end)
        self._rest, self._number, self._session = b"", 0, None
        self.messages, self.events = [], []
        targets = self.command("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        self._session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.command("Page.enable"), self.command("Runtime.enable"), self.command("Network.enable")
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def command(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        answer = self._until(lambda m: m.get("id") == self._number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def _until(self, wanted):
        end = time.monotonic() + TIMEOUT_S
        while True:
            while b"\0" in self._rest:
                text, _, self._rest = self._rest.partition(b"\0")
                message = json.loads(text)
                self._note(message)
                if wanted(message):
                    return message
            if not select.select([self._read], [], [], max(end - time.monotonic(), 0))[0]:
                raise TimeoutError("the browser does not answer")
            data = os.read(self._read, 1 << 16)
            if not data:
                raise RuntimeError("the browser has ended")
            self._rest += data

    def _note(self, message):
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.messages.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
            self.messages.append(str([a.get("value") for a in parameters["args"]]))
        elif method == "Network.requestWillBeSent":
            self.events.append(parameters["request"]["url"])

    def open(self, path):
        """Load a file; returns the addresses that the page asked for."""
        self.messages, self.events = [], []
        self.command("Page.navigate", url=Path(path).resolve().as_uri())
        self._until(lambda m: m.get("method") == "Page.loadEventFired")
        return self.events

    def run(self, text):
        """The value of an expression of JavaScript; a promise is waited for."""
        result = self.command(
            "Runtime.evaluate", expression=text, returnByValue=True, awaitPromise=True, userGesture=True
        )
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description", text))
        return result["result"].get("value")

    def until(self, text):
        """Wait until an expression is true."""
        self.run(
            f"new Promise((done, fail) => {{ const end = Date.now() + {TIMEOUT_S * 900}; const look = () => ({text}) ? "
            "done(true) : Date.now() > end ? fail(new Error('never true')) : setTimeout(look, 10); look(); })"
        )

    def mouse(self, kind, x, y, **more):
        self.command("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def type(self, text):
        self.command("Input.insertText", text=text)

    def screenshot(self, path):
        data = self.command("Page.captureScreenshot", format="png")["data"]
        Path(path).write_bytes(base64.b64decode(data))

    def close(self):
        with contextlib.suppress(Exception):
            self._session = None
            self.command("Browser.close")
        self._process.wait(timeout=20)
        os.close(self._write), os.close(self._read)
        self._folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
