"""One job of a service, run before a drill is: on a server of its own, by the first command of its workers."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from chaos.errors import HarnessError
from chaos.interrupts import Interrupts
from chaos.plan import PRODUCER
from chaos.processes import last_line
from chaos.service.crew import ServiceCrew
from chaos.service.file import ServiceFile
from chaos.service.spec import ServiceSpec
from chaos.watch import Watch
from engine.testing import EmbeddedServer, ServerFailed
from record.history import HistoryFile

#: Interpreters have to start and import; and the job has to end.
TRIAL_TIMEOUT_S = 30.0

#: For so long the load sends at least.
SENDING_S = 2.0

#: How often the histories are looked at.
LOOK_S = 0.05

#: A worker that was told to stop gets this long; nobody needs its last words.
STOP_GRACE_S = 3.0

WORKER = "worker-1"


def one_job(service: ServiceFile, spec: ServiceSpec, of_users: bool, interrupts: Interrupts) -> str:
    """Let the load send, until one of its jobs has ended; what came of it, in words. Raises HarnessError where none did."""
    with TemporaryDirectory(prefix="ironclaim-check-") as scratch:
        try:
            return _tried(Path(scratch), service, spec, of_users, interrupts)
        except (ServerFailed, OSError) as error:
            raise HarnessError(service.secrets.hide(f"check: {error}")) from error


def _tried(folder: Path, service: ServiceFile, spec: ServiceSpec, of_users: bool, interrupts: Interrupts) -> str:
    history, logs = folder / "history", folder / "logs"
    history.mkdir()
    logs.mkdir()
    manifest, watch = HistoryFile(history / "manifest.jsonl", proc="manifest", role="harness"), Watch(history)
    with EmbeddedServer(log=folder / "server.log") as server:
        crew = ServiceCrew(spec, lambda name: server.url, history, logs, manifest, watch)
        crew.service, crew.of_users = service, of_users
        try:
            crew.start_worker(WORKER)
            for number in range(1, len(service.apps) + 1):
                crew.start_app(f"web-{number}")
            crew.start_producer(PRODUCER)
            begun_s = time.monotonic()
            sent_s = 0.0
            # A load of several kinds of job sends more than one of them.
            while not (words := _ended(watch, spec.queue)) or time.monotonic() < sent_s + SENDING_S:
                sent_s = sent_s or (time.monotonic() if watch.created() else 0.0)
                interrupts.check()
                watch.poll()
                if gone := crew.unplanned_exits():
                    raise HarnessError(f"check: unplanned exit of {gone[0].ending()}")
                if not words and time.monotonic() > begun_s + TRIAL_TIMEOUT_S:
                    raise HarnessError(_stuck(watch, logs, crew.hide))
                time.sleep(LOOK_S)
            return words
        finally:
            crew.stop_all(STOP_GRACE_S)
            watch.close()
            manifest.close()


def _ended(watch: Watch, queue: str) -> str:
    """What came of the first job that has ended; empty when none has."""
    for token, (operation, result, _) in watch.view(WORKER).ended.items():
        how = "its handler returned" if operation == "finish" else f"its handler did not return: {operation}"
        return f"one job of queue {queue} was sent and ran: {how} ({token.job}, {result})"
    return ""


def _stuck(watch: Watch, logs: Path, hide: Callable[[str], str]) -> str:
    """Why no job has ended: the first thing that did not happen."""
    what, name = "no job ended", WORKER
    if not watch.view(WORKER).opened:
        what = f"{WORKER} recorded nothing: does its command work for the queue of chaos.toml, without an observer in its code?"
    elif not watch.created():
        what, name = "the load created no job", PRODUCER
    elif not any(watch.view(WORKER).claimed.values()):
        what = f"{WORKER} claimed no job of the load"
    elif watch.view(WORKER).running:
        what = "the handler of the first job did not end"
    words = last_line(logs / f"{name}.log", hide)
    return f"check: {what} within {TRIAL_TIMEOUT_S:.0f} s" + (f"; the log of {name} says: {words}" if words else "")
