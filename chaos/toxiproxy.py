"""Our wrapper around toxiproxy-python: its HTTP calls with what they lack.

The library keeps host and port in class globals, waits for ever, takes an answer of 5xx for success, and posts a misspelt
attribute that the server then ignores. Here every client has an address of its own, every request a timeout, every failure is
one line, and whatever was changed is read back and compared: a toxic that is not in force would be a fault that did nothing.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
import requests
from toxiproxy.api import APIConsumer, validate_response
from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists

from chaos.errors import HarnessError
from chaos.probe import Address
from engine.testing import start_guarded
from engine.testing.server import LOOPBACK, free_port

#: The server is on this machine and answers within milliseconds.
TIMEOUT_S = 5.0

#: An HTTP proxy of the environment is not for our own server.
NO_HTTP_PROXY = {"no_proxy": "*"}

DIRECTIONS = ("upstream", "downstream")


class ToxiproxyError(HarnessError):
    """Toxiproxy refused something, does not answer, or did something else than it was told."""


@dataclass(frozen=True, slots=True)
class Toxic:
    """One toxic: all attributes of its kind, for the read-back. `stream`: upstream hits requests, downstream replies.

    Toxicity is always 1 and jitter 0: Toxiproxy's own dice follow no seed.
    """

    kind: str
    stream: str
    attributes: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.stream}"

    def as_json(self) -> dict[str, Any]:
        """As the server takes it, and as it must read back."""
        return {"name": self.name, "type": self.kind, "stream": self.stream, "toxicity": 1, "attributes": dict(self.attributes)}


def latency(stream: str, latency_ms: int) -> Toxic:
    """Everything in this direction arrives `latency_ms` later."""
    return Toxic("latency", stream, {"latency": latency_ms, "jitter": 0})


def blackhole(stream: str) -> Toxic:
    """Nothing arrives in this direction, and the connections stay open; they are closed when the toxic is removed."""
    return Toxic("timeout", stream, {"timeout": 0})


class Api(APIConsumer):
    """The library's calls, and the one that it lacks. `client` makes a class with an address of its own from it."""

    @classmethod
    def patch(cls, url: str, **kwargs: Any) -> requests.Response:
        """Change something. The library posts for that, which newer servers only tolerate."""
        return validate_response(requests.patch(url=f"http://{cls.host}:{cls.port}{url}", **kwargs))  # noqa: S113  callers give it


class ToxiproxyClient:
    """What the harness asks of one Toxiproxy server. Every method raises ToxiproxyError."""

    def __init__(self, address: Address, timeout_s: float = TIMEOUT_S) -> None:
        self._api = type("AddressedApi", (Api,), {"host": address.host, "port": address.port})
        self._address = address
        self._timeout_s = timeout_s

    def version(self) -> str:
        """What the server calls itself; `git` for one that `go install` built."""
        return str(self._ask("the version", self._api.get, "/version")["version"])

    def create(self, name: str, *, listen: Address, upstream: Address) -> None:
        """A proxy, enabled."""
        body = {"name": name, "listen": str(listen), "upstream": str(upstream), "enabled": True}
        self._ask(f"proxy {name} on {listen}", self._api.post, "/proxies", json=body)
        self._expect(name, {**body, "toxics": []})

    def add(self, name: str, toxic: Toxic) -> None:
        """Put a toxic on a proxy: on its connections and on those to come."""
        self._ask(f"toxic {toxic.name} on {name}", self._api.post, f"/proxies/{name}/toxics", json=toxic.as_json())
        found = [one for one in self.show(name)["toxics"] if one.get("name") == toxic.name]
        if found != [toxic.as_json()]:
            raise ToxiproxyError(f"toxic {toxic.name} on {name}: it reads back as {found}, not as {toxic.as_json()}")

    def enable(self, name: str, enabled: bool) -> None:
        """Let a proxy listen again, or cut its connections and stop listening."""
        what = f"proxy {name} {'up' if enabled else 'down'}"
        self._ask(what, self._api.patch, f"/proxies/{name}", json={"enabled": enabled})
        self._expect(name, {"enabled": enabled})

    def move(self, name: str, listen: Address) -> None:
        """Let a proxy listen elsewhere; its connections are cut."""
        self._ask(f"proxy {name} to {listen}", self._api.patch, f"/proxies/{name}", json={"listen": str(listen)})
        self._expect(name, {"listen": str(listen)})

    def heal(self, name: str) -> None:
        """No toxic on the proxy, and it listens."""
        shown = self.show(name)
        for toxic in shown["toxics"]:
            self._ask(f"removing {toxic['name']} from {name}", self._api.delete, f"/proxies/{name}/toxics/{toxic['name']}")
        if not shown["enabled"]:
            self.enable(name, True)
        self._expect(name, {"enabled": True, "toxics": []})

    def show(self, name: str) -> dict[str, Any]:
        """A proxy as the server has it: name, listen, upstream, enabled, toxics."""
        shown = self._ask(f"proxy {name}", self._api.get, f"/proxies/{name}")
        if not isinstance(shown, dict) or not isinstance(shown.get("toxics"), list) or "enabled" not in shown:
            raise ToxiproxyError(f"proxy {name}: Toxiproxy shows it as {shown!r}")
        return shown

    def _expect(self, name: str, wanted: Mapping[str, Any]) -> None:
        shown = self.show(name)
        for key, value in wanted.items():
            if shown.get(key) != value:
                raise ToxiproxyError(f"proxy {name}: {key} reads back as {shown.get(key)!r}, not as {value!r}")

    def _ask(self, what: str, method: Any, path: str, **body: Any) -> Any:
        """One request: the answer's JSON, None for an answer without any."""
        try:
            response = method(path, timeout=self._timeout_s, proxies=NO_HTTP_PROXY, **body)
        except (ProxyExists, NotFound, InvalidToxic) as error:
            raise ToxiproxyError(f"{what}: Toxiproxy refused it: {said(error.args[0] if error.args else b'')}") from error
        except requests.RequestException as error:
            raise ToxiproxyError(f"{what}: Toxiproxy at {self._address} does not answer ({type(error).__name__})") from error
        if not response.ok:
            raise ToxiproxyError(f"{what}: Toxiproxy answered {response.status_code}: {said(response.content)}")
        if not response.content:
            return None
        try:
            return response.json()
        except ValueError as error:
            raise ToxiproxyError(f"{what}: Toxiproxy answered {said(response.content)}") from error


def said(content: bytes | str) -> str:
    """The words of an answer in one line, cut to 200 characters."""
    text = content.decode(errors="replace") if isinstance(content, bytes) else str(content)
    return " ".join(text.split())[:200] or "nothing"


START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 3.0
POLL_S = 0.01

#: How often another free port is tried when somebody took the one that was picked.
PORTS_MAX = 5

#: What the server writes to its log when it could not bind. It does not exit: it stays, deaf.
PORT_TAKEN = "address already in use"


class ToxiproxyServer:
    """The process, alive inside the `with` block. Enter it from a thread that lives as long as it should (see `start_guarded`).

    `port`: a fixed port of 127.0.0.1; without it a free one. Raises HarnessError when it does not come up.
    """

    def __init__(self, program: Path, log: Path, port: int | None = None) -> None:
        self.port = 0
        self._program = program
        self._log = log
        self._fixed_port = port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id; 0 outside the `with` block."""
        return self._process.pid if self._process else 0

    def complaint(self) -> str:
        """Why the server does not work any more, in one line; empty while it does."""
        code = self._process.poll() if self._process else None
        return "" if code is None else f"the Toxiproxy server exited in mid-run with code {code}; see {self._log}"

    def __enter__(self) -> ToxiproxyServer:
        tries_left = 1 if self._fixed_port else PORTS_MAX
        while True:
            self.port = self._fixed_port or free_port()
            try:
                failure = self._try_port()
            except BaseException:
                self.stop()
                raise
            if not failure:
                return self
            self.stop()
            tries_left -= 1
            if not tries_left or PORT_TAKEN not in failure:
                raise HarnessError(f"{self._program} on port {self.port}: {failure}")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server. A second call does nothing."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _try_port(self) -> str:
        """One start on one port: empty when the server listens, else why not. Raises HarnessError when it cannot be run."""
        with self._log.open("ab") as output:
            start = output.tell()
            command = [str(self._program), "-host", LOOPBACK, "-port", str(self.port)]
            try:
                self._process = start_guarded(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    # At lower levels there are several lines for each connection.
                    env={**os.environ, "LOG_LEVEL": "error"},
                )
            except OSError as error:
                raise HarnessError(f"{self._program}: {error.strerror or error}; it must be a toxiproxy-server") from error
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline_s:
            if self._listens():
                return ""
            # Asked before its log is read: what a process writes last is missed when it ends in between.
            code = self._process.poll()
            said = self._log.read_bytes()[start:].decode(errors="replace")
            if PORT_TAKEN in said:
                return PORT_TAKEN
            if code is not None:
                return f"exited with code {code}; {(said.strip().splitlines() or ['it said nothing'])[-1].strip()}"
            time.sleep(POLL_S)
        return f"does not listen within {START_TIMEOUT_S:.0f} s; see {self._log}"

    def _listens(self) -> bool:
        """True when this very process listens on the port. Another server there would answer, and is not ours."""
        try:
            found = psutil.Process(self.pid).net_connections(kind="tcp")
        except psutil.Error:
            return False
        return any(one.status == psutil.CONN_LISTEN and one.laddr and one.laddr[1] == self.port for one in found)
