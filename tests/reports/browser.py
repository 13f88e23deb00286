"""Headless Chromium through chromedriver's own protocol (W3C WebDriver over HTTP), and the fixture of tests that use it."""

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from tests.absent import without

HELP = "install the Debian packages chromium and chromium-driver"

#: Chromium by itself asks the network for many things. None of that is of the page; all of it is switched off.
SWITCHES = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"),
    *("--disable-component-update", "--disable-default-apps", "--disable-extensions", "--disable-sync", "--no-first-run"),
)

#: A proxy that the environment names is not for the loopback.
LOCAL = urllib.request.build_opener(urllib.request.ProxyHandler({}))

#: On a busy machine Chromium takes its time, and so do scripts that wait for a server.
START_S = 120.0
CALL_S = 300.0


class BrowserMissing(Exception):
    """There is no Chromium, or it does not start; the message says what installs it."""


class Browser:
    """One window. `open` a file or an address, then ask it."""

    def __init__(self, address: str, session: str) -> None:
        self._address = f"{address}/session/{session}"

    def open(self, page: Path | str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a page, from disk or from a server, in a window of that size, in the light or the dark colour scheme."""
        # The browser's own first page asks for things of its own.
        self._send("/url", {"url": "about:blank"})
        self.console()
        self.requests()
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.devtools("Emulation.setEmulatedMedia", features=[scheme])
        self._send("/url", {"url": page if isinstance(page, str) else page.resolve().as_uri()})

    def run(self, script: str) -> Any:
        """The value that a script returns, also one that it promises."""
        return self._send("/execute/sync", {"script": script, "args": []})

    def devtools(self, command: str, **parameters: Any) -> Any:
        """A command of the DevTools protocol."""
        return self._send("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def console(self) -> list[str]:
        """What the console said since the last call: errors of scripts, of the policy, of what could not be loaded."""
        return [entry["message"] for entry in self._send("/se/log", {"type": "browser"})]

    def requests(self) -> list[str]:
        """Addresses that the page asked for since the last call."""
        entries = [json.loads(entry["message"])["message"] for entry in self._send("/se/log", {"type": "performance"})]
        return [entry["params"]["request"]["url"] for entry in entries if entry["method"] == "Network.requestWillBeSent"]

    def picture(self, path: Path, *, height: int | None = None) -> None:
        """The page from top to bottom, or its upper part, as a PNG file."""
        size = self.devtools("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], height or 16_000), "scale": 1}
        shot = self.devtools("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _send(self, path: str, body: dict[str, Any]) -> Any:
        return call(self._address + path, body)


def call(address: str, body: dict[str, Any] | None, method: str = "POST") -> Any:
    """One call of the protocol. Raises AssertionError with what chromedriver says is wrong."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"}, method=method)
    try:
        with LOCAL.open(request, timeout=CALL_S) as answer:
            return json.load(answer)["value"]
    except HTTPError as error:
        raise AssertionError(json.load(error)["value"]["message"].splitlines()[0]) from error


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser that is gone afterwards, with everything that it wrote. Raises BrowserMissing."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        raise BrowserMissing(f"{'chromium' if chromium is None else 'chromedriver'} is not on PATH: {HELP}")
    with tempfile.TemporaryDirectory(prefix="ironclaim-browser-", ignore_cleanup_errors=True) as scratch:
        log = Path(scratch, "driver.log")
        environment = {**os.environ, "HOME": scratch, "XDG_CONFIG_HOME": scratch, "XDG_CACHE_HOME": scratch, "TMPDIR": scratch}
        command = [driver, "--port=0", f"--log-path={log}"]
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        )
        try:
            address = f"http://127.0.0.1:{port_of(process)}"
            session = call(f"{address}/session", {"capabilities": {"alwaysMatch": capabilities(chromium, scratch)}})
            yield Browser(address, session["sessionId"])
            call(f"{address}/session/{session['sessionId']}", None, "DELETE")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdout:
                process.stdout.close()


def port_of(process: subprocess.Popen[str]) -> int:
    """The port that chromedriver chose, from the line in which it says so."""
    deadline_s = time.monotonic() + START_S
    for line in process.stdout or ():
        words = line.split()
        if "successfully" in words:
            return int(words[-1].rstrip("."))
        if time.monotonic() > deadline_s:
            break
    raise BrowserMissing(f"chromedriver does not start: {HELP}")


def capabilities(chromium: str, scratch: str) -> dict[str, Any]:
    """A headless Chromium with a fresh profile that tells everything it asks the network for."""
    switches = [*SWITCHES, f"--user-data-dir={scratch}/profile"]
    return {
        "browserName": "chrome",
        "timeouts": {"script": round(1_000 * CALL_S), "pageLoad": round(1_000 * CALL_S)},
        "goog:chromeOptions": {"binary": chromium, "args": switches},
        "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
    }


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    """A browser."""
    with ExitStack() as stack:
        try:
            opened = stack.enter_context(browser())
        except BrowserMissing as missing:
            without(missing)
        yield opened
