"""A few jobs of a service, run before a drill is: on a server of its own, by one worker of each command, with their effects."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from chaos.errors import HarnessError
from chaos.interrupts import Interrupts
from chaos.plan import PRODUCER
from chaos.processes import last_line
from chaos.service.crew import ServiceCrew
from chaos.service.drill import counted
from chaos.service.file import ServiceFile
from chaos.service.spec import ServiceSpec
from chaos.watch import Token, Watch
from engine.testing import EmbeddedServer, ServerFailed
from record.environment import led
from record.history import HistoryFile

#: Interpreters have to start and import, each worker has to ask for work, and a job has to end.
TRIAL_TIMEOUT_S = 20.0

#: How a run ends that has finished its job: the operation, and what the server answered.
FINISHED = ("finish", "ok")

#: What a log says is cut to so many characters.
LINE_MAX = 200

#: For so long the load sends at least.
SENDING_S = 1.0

#: Handlers may fail on purpose: so many jobs may have ended, none of them finished, before nobody waits for another one.
TRIED_MAX = 5

#: How often the histories are looked at.
LOOK_S = 0.05

#: A worker that was told to stop gets this long; nobody needs its last words.
STOP_GRACE_S = 3.0

#: The service reads its own database, which has next to nothing, within this time.
EFFECTS_TIMEOUT_S = 10.0


def tried(service: ServiceFile, spec: ServiceSpec, of_users: bool, interrupts: Interrupts) -> list[str]:
    """Start a worker of each command and let the load send, until one of its jobs is finished; then count effects once. What came
    of it, in words. Raises HarnessError where a worker asked for no work, no job was finished, or effects are none."""
    with TemporaryDirectory(prefix="ironclaim-check-") as scratch:
        try:
            return _tried(Path(scratch), service, spec, of_users, interrupts)
        except (ServerFailed, OSError) as error:
            raise HarnessError(service.secrets.hide(f"check: {error}")) from error


def _tried(folder: Path, service: ServiceFile, spec: ServiceSpec, of_users: bool, interrupts: Interrupts) -> list[str]:
    history, logs = folder / "history", folder / "logs"
    history.mkdir()
    logs.mkdir()
    manifest, watch = HistoryFile(history / "manifest.jsonl", proc="manifest", role="harness"), Watch(history)
    with EmbeddedServer(log=folder / "server.log") as server:
        crew = ServiceCrew(spec, lambda name: server.url, history, logs, manifest, watch)
        crew.service, crew.of_users = service, of_users
        kinds = kinds_of(service)
        try:
            for name in kinds:
                crew.start_worker(name)
            for number in range(1, len(service.apps) + 1):
                crew.start_app(f"web-{number}")
            crew.start_producer(PRODUCER)
            until_s = time.monotonic() + TRIAL_TIMEOUT_S
            sent_s, running = 0.0, None
            # A load of several kinds of job sends more than one of them.
            while (stuck := _stuck(watch, kinds)) or time.monotonic() < sent_s + SENDING_S:
                sent_s = sent_s or (time.monotonic() if watch.created() else 0.0)
                interrupts.check()
                watch.poll()
                if gone := crew.unplanned_exits():
                    raise HarnessError(f"check: unplanned exit of {gone[0].ending()}")
                if failed := _failed(watch):
                    running = _still(watch, running) if len(failed) >= TRIED_MAX else None
                    if not watch.finished() and (running == set() or time.monotonic() > until_s):
                        raise HarnessError(f"check: queue {spec.queue}: {_unfinished(watch, crew)}")
                if stuck and time.monotonic() > until_s:
                    what, name = stuck
                    words = last_line(logs / f"{name}.log", crew.hide)
                    said = f"; the log of {name} says: {words}" if words else ""
                    raise HarnessError(f"check: {what} within {TRIAL_TIMEOUT_S:.0f} s{said}")
                time.sleep(LOOK_S)
            # As in a run: whatever handlers still do in the background is done before anybody counts.
            crew.stop_all(STOP_GRACE_S)
            watch.poll()
            words = [_ended(watch, spec.queue), *([_unfinished(watch, crew)] if _failed(watch) else [])]
            if len(kinds) > 1:
                words.append(f"each of {len(kinds)} kinds of worker asked for work")
            return words + (_effects(watch, crew, server.url) if service.effects else [])
        finally:
            crew.stop_all(STOP_GRACE_S)
            watch.close()
            manifest.close()


def kinds_of(service: ServiceFile) -> list[str]:
    """The first worker of each command."""
    first: dict[tuple[str, ...], str] = {}
    for number, command in enumerate(service.workers, 1):
        first.setdefault(command, f"worker-{number}")
    return list(first.values())


def _ends(watch: Watch) -> Iterator[tuple[Token, str, str, str]]:
    """The runs that have ended: each with the operation that ended it, what the server answered, and the worker. A worker that
    has ended meanwhile was started anew under another name."""
    for name, view in watch.views.items():
        for token, (operation, result, _) in view.ended.items():
            yield token, operation, result, name


def _finished(watch: Watch) -> set[str]:
    """The jobs that are finished."""
    return {token.job for token, operation, result, _ in _ends(watch) if (operation, result) == FINISHED}


def _failed(watch: Watch) -> dict[str, str]:
    """The jobs of which a run has ended and none has finished them, each with its worker."""
    finished = _finished(watch)
    return {token.job: name for token, _, _, name in _ends(watch) if token.job not in finished}


def _still(watch: Watch, before: Set[Token] | None) -> Set[Token]:
    """The handlers that run, and have run since this was asked first."""
    running = {token for view in watch.views.values() for token in view.running}
    return running if before is None else running & before


def _unfinished(watch: Watch, crew: ServiceCrew) -> str:
    """How many jobs were tried and not finished, and what a worker's log says of the last of them."""
    failed, finished = _failed(watch), _finished(watch)
    job, name = list(failed.items())[-1]
    how = f"{len(failed)} of {len(failed) + len(finished)} jobs that were tried are not finished"
    words = _why(crew.logs / f"{name}.log", job, crew.hide)
    return f"{how}; the log of {name} says: {words}" if words else how


def _why(log: Path, job: str, hide: Callable[[str], str]) -> str:
    """What the worker itself has logged of how a run of this job ended, else the last line of its log."""
    with suppress(OSError):
        for line in log.read_text(errors="replace").splitlines():
            if found := re.search(rf"job {re.escape(job)} \(.*?, attempt .*? (?:failed|ended): .*", line):
                return " ".join(hide(_message(line) or found[0]).split())[:LINE_MAX]
    return last_line(log, hide)


def _message(line: str) -> str:
    """The message of a line of a log of JSON; empty for another line."""
    try:
        return str(json.loads(line)["message"])
    except (ValueError, TypeError, LookupError):
        return ""


def _ended(watch: Watch, queue: str) -> str:
    """What came of the first job that is finished."""
    job = next(token.job for token, operation, result, _ in _ends(watch) if (operation, result) == FINISHED)
    return f"one job of queue {queue} was sent and ran: its handler returned ({job}, ok)"


def _stuck(watch: Watch, kinds: Sequence[str]) -> tuple[str, str] | None:
    """The first thing that has not happened yet, and whose log may say why; None when all has."""
    for name in kinds:
        if not watch.view(name).opened:
            return (
                f"{name} recorded nothing: does its command work for the queue of chaos.toml, without an observer in its code?",
                name,
            )
    if silent := [name for name in kinds if not watch.view(name).completed.get("claim")]:
        return f"{silent[0]} asked for no work", silent[0]
    if not watch.created():
        return "the load created no job", PRODUCER
    if watch.finished():
        return None
    if not any(any(watch.view(name).claimed.values()) for name in kinds):
        return f"{' and '.join(kinds)} claimed no job of the load", kinds[0]
    running = [name for name in kinds if watch.view(name).running]
    return ("the handler of the first job did not end", running[0]) if running else ("no job ended", kinds[0])


def _effects(watch: Watch, crew: ServiceCrew, url: str) -> list[str]:
    """What the service counts, in words. Raises HarnessError for what is no count."""
    service = crew.service
    environment = {**crew.environment({}), **crew.own_environment("effects"), **led(url, crew.spec.queue, None)}
    told = counted(service, environment, crew.logs / "effects.log", crew.hide, EFFECTS_TIMEOUT_S)
    finished = _finished(watch)
    took = sum(bool(told.get(job)) for job in finished)
    line = f"effects {service.effects}: {took} of {len(finished)} finished jobs took effect"
    if finished and not took and not service.without_effects:
        raise HarnessError(f"check: {line}: does it count by the ids of jobs, and in the database of [environment]?")
    return [line]
