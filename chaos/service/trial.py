"""One job of a service, run before a drill is: on a server of its own, by one worker of each command, with its effects."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from chaos.errors import HarnessError
from chaos.interrupts import Interrupts
from chaos.plan import PRODUCER
from chaos.processes import last_line
from chaos.service.crew import ServiceCrew
from chaos.service.effects import counted
from chaos.service.file import ServiceFile
from chaos.service.spec import ServiceSpec
from chaos.watch import Token, Watch
from engine.testing import EmbeddedServer, ServerFailed
from record.environment import led
from record.history import HistoryFile

#: Interpreters have to start and import, each worker has to ask for work, and a job has to end.
TRIAL_TIMEOUT_S = 20.0

#: For so long the load sends at least.
SENDING_S = 1.0

#: How often the histories are looked at.
LOOK_S = 0.05

#: A worker that was told to stop gets this long; nobody needs its last words.
STOP_GRACE_S = 3.0

#: The service reads its own database, which has next to nothing, within this time.
EFFECTS_TIMEOUT_S = 10.0


def tried(service: ServiceFile, spec: ServiceSpec, of_users: bool, interrupts: Interrupts) -> list[str]:
    """Start a worker of each command and let the load send, until one of its jobs has ended; then count effects once. What came
    of it, in words. Raises HarnessError where a worker asked for no work, no job ended, or effects are none."""
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
            sent_s = 0.0
            # A load of several kinds of job sends more than one of them.
            while (stuck := _stuck(watch, kinds)) or time.monotonic() < sent_s + SENDING_S:
                sent_s = sent_s or (time.monotonic() if watch.created() else 0.0)
                interrupts.check()
                watch.poll()
                if gone := crew.unplanned_exits():
                    raise HarnessError(f"check: unplanned exit of {gone[0].ending()}")
                if stuck and time.monotonic() > until_s:
                    what, name = stuck
                    words = last_line(logs / f"{name}.log", crew.hide)
                    said = f"; the log of {name} says: {words}" if words else ""
                    raise HarnessError(f"check: {what} within {TRIAL_TIMEOUT_S:.0f} s{said}")
                time.sleep(LOOK_S)
            # As in a run: whatever handlers still do in the background is done before anybody counts.
            crew.stop_all(STOP_GRACE_S)
            watch.poll()
            words = [_ended(watch, spec.queue)]
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


def _ends(watch: Watch) -> Iterator[tuple[Token, str, str]]:
    """The jobs that have ended: each with the operation that ended it, and what the server answered. A worker that has ended
    meanwhile was started anew under another name."""
    for view in watch.views.values():
        for token, (operation, result, _) in view.ended.items():
            yield token, operation, result


def _ended(watch: Watch, queue: str) -> str:
    """What came of the first job that has ended."""
    token, operation, result = next(_ends(watch))
    how = "its handler returned" if operation == "finish" else f"its handler did not return: {operation}"
    return f"one job of queue {queue} was sent and ran: {how} ({token.job}, {result})"


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
    if any(_ends(watch)):
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
    finished = {token.job for token, operation, result in _ends(watch) if (operation, result) == ("finish", "ok")}
    took = sum(bool(told.get(job)) for job in finished)
    line = f"effects {service.effects}: {took} of {len(finished)} finished jobs took effect"
    if finished and not took and not service.without_effects:
        raise HarnessError(f"check: {line}: does it count by the ids of jobs, and in the database of [environment]?")
    return [line]
