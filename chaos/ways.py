"""The ways that processes call over: a proxy each, and what is asked over it, and past it, to see what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException

from chaos.probe import PATIENCE_S, Address, Silence, ask, pinged, round_trip_ms

#: Keys of probes vanish by themselves, should the harness be killed.
PROBE_KEY_MS = 60_000

#: The queue of the jobs that probes make over HTTP. Nobody works on it.
PROBE_JOBS = "/api/queues/probe/jobs"


@dataclass(frozen=True, slots=True)
class Way:
    """A way to the server. `proxy`: its name in Toxiproxy; it listens at `entry` and leads to `server`. `greeting`: how a
    connection begins."""

    proxy: str
    entry: Address
    server: Address
    greeting: tuple[tuple[str, ...], ...] = field(default=(), repr=False)

    def write(self, key: str, patience_s: float) -> str:
        """What was answered to a write over this way. Raises Silence where nothing came back, and another OSError."""
        return ask(self.entry, f"SET {key} 1 PX {PROBE_KEY_MS}", patience_s, self.greeting)

    def arrived(self, key: str) -> bool:
        """Whether the write is at the server, which is asked past the proxy. Raises OSError."""
        return ask(self.server, f"EXISTS {key}", greeting=self.greeting) == ":1"

    def forget(self, key: str) -> None:
        """Remove what a write has left."""
        ask(self.server, f"DEL {key}", greeting=self.greeting)

    def round_trip_ms(self, address: Address) -> float:
        """How long a round trip to one of the two ends takes. Raises OSError."""
        return round_trip_ms(address, lambda asked: pinged(asked, greeting=self.greeting))


class HttpWay(Way):
    """A way to an app, where HTTP is spoken: a write makes a job."""

    __slots__ = ()

    def write(self, key: str, patience_s: float) -> str:
        body = b'{"name":"probe","id":"%s"}' % key.encode()
        return str(status(self.entry, "POST", PROBE_JOBS, body, patience_s))

    def arrived(self, key: str) -> bool:
        return status(self.server, "GET", f"{PROBE_JOBS}/{key}") == 200

    def forget(self, key: str) -> None:
        status(self.server, "POST", f"{PROBE_JOBS}/{key}/cancel")

    def round_trip_ms(self, address: Address) -> float:
        return round_trip_ms(address, lambda app: status(app, "GET", "/nowhere") == 404)


def status(address: Address, method: str, path: str, body: bytes | None = None, patience_s: float = PATIENCE_S) -> int:
    """The status that a request is answered with. Raises Silence when nothing came, another OSError when the connection broke."""
    connection = HTTPConnection(address.host, address.port, timeout=patience_s)
    headers = {} if body is None else {"Content-Type": "application/json"}
    try:
        connection.request(method, path, body, headers)
        return connection.getresponse().status
    except TimeoutError as error:
        raise Silence(f"{address}: no answer to {method} {path} within {patience_s:g} s") from error
    except HTTPException as error:
        raise ConnectionResetError(f"{address}: no answer to {method} {path}: {error}") from error
    finally:
        connection.close()
