"""The processes of a calibration: a server of its own, the workers of a drill, and a sender, for two seconds at each rate."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import models
from chaos.calibration import TRIAL_S, Calibration, Samples, calibrate, offered_per_s
from chaos.errors import HarnessError
from chaos.interrupts import Interrupts
from chaos.plan import consumer_names, worker_names
from chaos.probe import Address, address_of, pinged, round_trip_ms
from chaos.processes import ROOT, Crew, child_environment, last_line
from chaos.spec import RunSpec
from chaos.watch import Watch
from engine import EngineError, Queue
from engine.testing import EmbeddedServer, ServerFailed, start_guarded
from engine.testing.server import ask_server
from record.history import HistoryFile, load_file

#: Interpreters have to start and import; on a busy machine that takes seconds.
START_TIMEOUT_S = 60.0

#: A sender waits for its last answers, and closes its history.
END_TIMEOUT_S = 30.0

#: How often the server and the queue are asked.
LOOK_S = 0.05

#: A server that answers so late is slow; only one that does not answer at all is away.
LOOK_PATIENCE_S = 30.0

#: A worker of a calibration that was told to stop gets this long; nobody needs its last words.
STOP_GRACE_S = 2.0

QUEUE = "trial"


def calibrated(model: str, interrupts: Interrupts, asked_per_s: int | None = None) -> Calibration:
    """Which rate this machine carries; the one that was asked for is tried alone.

    Raises HarnessError when the parts cannot be started, ServerMissing, and Interrupted.
    """
    try:
        with TemporaryDirectory(prefix="ironclaim-trial-") as scratch, stage(Path(scratch), model, interrupts) as attempt:
            return calibrate(attempt, asked_per_s)
    except (ServerFailed, EngineError, OSError) as error:
        raise HarnessError(f"calibration: {error}") from error


@contextmanager
def stage(folder: Path, model: str, interrupts: Interrupts) -> Iterator[Callable[[int], Samples]]:
    """A server with as many workers as a drill has, ready to work, and what offers them a rate."""
    spec = RunSpec(id="trial", seed=1, model=model, queue=QUEUE)
    with EmbeddedServer(log=folder / "server.log") as server, models.queue(model, QUEUE, url=server.url) as queue:
        # On a slow machine workers hold jobs for longer, and then it is the limits that no longer let the load through.
        for limit in models.carried(model).features()["limits"]:
            queue.set_limit(**limit)
        manifest, watch = HistoryFile(folder / "manifest.jsonl", proc="manifest", role="harness"), Watch(folder)
        crew = Crew(spec, lambda name: server.url, folder, folder, manifest, watch)
        try:
            names = (*worker_names(spec.workers), *consumer_names(spec.consumers))
            for name in names:
                crew.start_worker(name)
            wait_until_ready(crew, watch, names, interrupts)
            yield lambda rate_per_s: attempt(folder, spec, rate_per_s, server.url, queue, interrupts)
        finally:
            crew.stop_all(STOP_GRACE_S)
            watch.close()
            manifest.close()


def wait_until_ready(crew: Crew, watch: Watch, names: tuple[str, ...], interrupts: Interrupts) -> None:
    """Wait until every worker has asked for work. Raises HarnessError and Interrupted."""
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while not all(watch.view(name).completed.get("claim") for name in names):
        interrupts.check()
        if gone := crew.unplanned_exits():
            raise HarnessError(f"calibration: {gone[0].ending()}")
        if time.monotonic() > deadline_s:
            raise HarnessError(f"calibration: the workers did not claim within {START_TIMEOUT_S:.0f} s")
        time.sleep(LOOK_S)
        watch.poll()


def attempt(folder: Path, spec: RunSpec, rate_per_s: int, url: str, queue: Queue, interrupts: Interrupts) -> Samples:
    """Offer a rate, with its headroom, for `TRIAL_S`. Raises HarnessError and Interrupted."""
    history, log = folder / f"sender-{rate_per_s}.jsonl", folder / f"sender-{rate_per_s}.log"
    command = [sys.executable, "-m", "bench.trial", "--url", url, "--queue", QUEUE, "--model", spec.model]
    command += ["--rate", str(offered_per_s(rate_per_s)), "--seconds", str(TRIAL_S), "--history", str(history)]
    pings_ms, waiting, server = list[float](), list[tuple[int, int]](), address_of(url)
    deadline_s = time.monotonic() + START_TIMEOUT_S + TRIAL_S + END_TIMEOUT_S
    before_s = scripts_s(server)
    with log.open("ab") as output:
        sender = start_guarded(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=ROOT, env=child_environment({})
        )
    try:
        while sender.poll() is None:
            interrupts.check()
            if time.monotonic() > deadline_s:
                raise HarnessError(f"calibration: the sender did not end; its log says: {last_line(log)}")
            look(server, queue, pings_ms, waiting)
            time.sleep(LOOK_S)
    finally:
        sender.kill()
        sender.wait()
    if sender.returncode != 0:
        raise HarnessError(f"calibration: the sender ended with exit code {sender.returncode} ({last_line(log)})")
    return Samples(lags_of(history), waiting, pings_ms, scripts_s(server) - before_s)


def look(server: Address, queue: Queue, pings_ms: list[float], waiting: list[tuple[int, int]]) -> None:
    """Ask the server for one round trip, and how many jobs wait for a worker."""
    pings_ms.append(round_trip_ms(server, lambda address: pinged(address, LOOK_PATIENCE_S)))
    waiting.append((time.monotonic_ns(), queue.counts().waiting))


def scripts_s(server: Address) -> float:
    """How long the server has been in scripts, in seconds by the clock. Raises OSError."""
    lines = ask_server(server.port, "INFO commandstats").splitlines()
    told = [line for line in lines if line.startswith("cmdstat_evalsha:")]
    return sum(int(line.partition("usec=")[2].partition(",")[0]) for line in told) / 1e6


def lags_of(history: Path) -> list[tuple[int, float]]:
    """When each send was meant, and how many ms later it left."""
    sent = {
        row["op"]: (row["intended_ns"], (row["first_send_ns"] - row["intended_ns"]) / 1e6)
        for row in load_file(history).rows
        if row["kind"] == "operation" and row["f"] == "enqueue" and row["intended_ns"] is not None
    }
    return list(sent.values())
