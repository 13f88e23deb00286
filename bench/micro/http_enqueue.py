"""What an enqueue over HTTP costs, beside a bare application on the same uvicorn that answers with the same bytes, and beside
`AsyncQueue` without HTTP: all three in turns, one after the other and as many at once as calls run at once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from bench.micro.http_enqueue_process import Order
from bench.micro.http_place import START_S, Face, answer, bare_application, serving
from bench.micro.place import CLIENT_CPU, SERVER_CPU, child, pinned_server
from bench.micro.rounds import in_turns, quantile, ratio, ratio_interval

_QUEUE = "q"
_AT_ONCE = (1, 16)
#: Warm-up of a number at once: connections, scripts, code that runs for the first time.
_WARM_UP = 200


def measure(jobs: int, repeat: int, report: Callable[[str], None]) -> dict[str, Any]:
    """Each case's rounds of so many enqueues, and the ratios."""
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        server = stack.enter_context(pinned_server())
        face = stack.enter_context(serving(server))
        bare = stack.enter_context(bare_application())
        for at_once in _AT_ONCE:

            def over_http(process: Face, at_once: int = at_once) -> dict[str, float]:
                cpu_s = process.cpu_s()
                order = Order("requests", process.port, queue=_QUEUE, jobs=jobs, at_once=at_once)
                came = _answer(order)
                return _cost(came, process.cpu_s() - cpu_s)

            def without_http(at_once: int = at_once) -> dict[str, float]:
                came = _answer(Order("direct", url=server.url, queue=_QUEUE, jobs=jobs, at_once=at_once), CLIENT_CPU)
                return _cost(came, came["cpu_s"])

            for process in (face, bare):
                _answer(Order("requests", process.port, queue=_QUEUE, jobs=_WARM_UP, at_once=at_once))
            cases: dict[str, Callable[[], dict[str, float]]] = {
                "HTTP face": lambda over_http=over_http: over_http(face),
                "bare application": lambda over_http=over_http: over_http(bare),
                "AsyncQueue": without_http,
            }
            rows = in_turns(cases, repeat, lambda text, at_once=at_once: report(f"enqueue, {at_once} at once: {text}"))
            found[f"{at_once} at once"] = {"rows": rows, "ratios": _ratios(rows)}
    return found


def _ratios(rows: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """What an enqueue over HTTP costs (CPU of its process) and takes (p50), beside each of the others."""
    ours, ratios = rows["HTTP face"], {}
    for other in ("bare application", "AsyncQueue"):
        for field in ("cpu_us", "p50_ms"):
            mine, theirs = [row[field] for row in ours], [row[field] for row in rows[other]]
            ratios[f"{field} / {other}"] = {"ratio": ratio(mine, theirs), "interval": ratio_interval(mine, theirs)}
    return ratios


def _answer(order: Order, cpu: int = SERVER_CPU) -> Any:
    with child("bench.micro.http_enqueue_process", order, cpu) as process:
        return answer(process, START_S + order.jobs)


def _cost(came: Any, cpu_s: float) -> dict[str, float]:
    """One round of enqueues; CPU is that of the process that enqueues into Redis, or answers."""
    took_ms = [ns / 1e6 for ns in came["took_ns"]]
    return {
        "jobs_per_s": len(took_ms) / came["seconds"],
        "p50_ms": quantile(took_ms, 0.50),
        "p99_ms": quantile(took_ms, 0.99),
        "cpu_us": 1e6 * cpu_s / len(took_ms),
    }
