"""The processes of a service: its own commands, recorded and led to the servers of the drill by their environment alone.

A worker or an app that ends by itself is started anew under another name, as whoever runs the service would do.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from chaos import rows
from chaos.errors import HarnessError
from chaos.processes import STOP_GRACE_S, Child, Crew, inherited
from chaos.service import placeholders
from chaos.service.file import ServiceFile
from engine.testing.server import LOOPBACK, free_port
from record.environment import led

WORKER, APP = "worker", "app"

#: A process that ends so often before it has asked for anything is broken, and not only unlucky.
STILLBORN_MAX = 3


def search_path() -> str:
    """Where programs are found: first in the interpreter's own folder, so `ironclaim` is the one beside this harness."""
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))


def program_of(folder: Path, program: str) -> str | None:
    """The file of a program, on PATH or from the folder of the service; None where there is none."""
    found = shutil.which(program, path=search_path())
    return shutil.which(str(folder / program)) if found is None and "/" in program else found


@dataclass
class ServiceCrew(Crew):
    """The children of a drill of a service. `service` is set before the first of them starts."""

    OF_SERVICE: ClassVar[tuple[str, ...]] = (WORKER, APP)

    service: ServiceFile = field(init=False, repr=False)
    #: The load is a Locust user: what it enqueues has no intended instant.
    of_users: bool = False
    #: What the keys of the service begin with, on a server that others use.
    under: str = ""
    #: Name -> the words that it is started with, and its port if it is an app.
    commands: dict[str, tuple[str, ...]] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    #: What each process was called at first -> what is called so now.
    now: dict[str, str] = field(default_factory=dict)
    #: Processes that ended by themselves or would not stop.
    ended: list[dict[str, Any]] = field(default_factory=list)
    _noted: set[str] = field(default_factory=set)
    _stillborn: dict[str, int] = field(default_factory=dict)

    def start_worker(self, name: str) -> Child:
        """Announce a worker in the manifest, then start it."""
        at = int(name.removeprefix("worker-")) - 1
        return self._start_own(name, WORKER, self.service.workers[at % len(self.service.workers)])

    def start_app(self, name: str) -> Child:
        """Announce an app in the manifest, then start it."""
        self.ports[name] = free_port()
        return self._start_own(name, APP, self.service.apps[int(name.removeprefix("web-")) - 1])

    def start_replacement(self, name: str, of: str) -> Child:
        return self._start_own(name, self.children[of].role, self.commands[of])

    def start_producer(self, name: str) -> Child:
        """Announce the load in the manifest, then start it."""
        role = APP if self.of_users else "producer"
        self.manifest.append([rows.process(role, name, f"{name}.jsonl")])
        service, spec = self.service, self.spec
        command = [sys.executable, "-P", "-m", "bench.service_load", "--folder", str(service.folder)]
        command += ["--queue", service.queue, "--load", service.load, "--seed", str(spec.seed), "--prefix", spec.id]
        command += self._paced()
        if self.ports:
            command += ["--host", self.host]
        return self._start(name, "producer", command, self._led(name))

    def _paced(self) -> list[str]:
        """The options that say how fast the load sends."""
        return ["--rate", str(self.spec.rate_per_s)]

    @property
    def host(self) -> str:
        """The url of the first app."""
        return f"http://{LOOPBACK}:{next(iter(self.ports.values()))}"

    def folder(self, environment: object) -> str:
        return str(self.service.folder)

    def environment(self, more: Any) -> dict[str, str]:
        return {**inherited(), "PATH": search_path(), "PYTHONUNBUFFERED": "1", **more}

    def hide(self, text: str) -> str:
        return self.service.secrets.hide(text)

    def blamed(self, child: Child) -> bool:
        return child.role not in self.OF_SERVICE

    def living(self, name: str) -> str:
        """What took the place of this process, if something did."""
        return self.now.get(name, name)

    def unplanned_exits(self) -> list[Child]:
        """Of the load, and of processes that end again and again before they have asked for anything; others start anew."""
        gone = super().unplanned_exits()
        kept = [child for child in gone if child.role not in self.OF_SERVICE or self._is_stillborn(child)]
        for child in gone:
            if child not in kept:
                self._note(child, child.ending())
                self._start_anew(child)
        return kept

    def stop(self, names: list[str], grace_s: float = STOP_GRACE_S) -> list[str]:
        # One that is expected to be gone was killed by plan, or has been noted.
        named = [self.children[name] for name in names if name in self.children and not self.children[name].exit_expected]
        complaints = super().stop(names, grace_s)
        self.watch.poll()
        for child in named:
            if child.role in self.OF_SERVICE and not self._closed(child.name):
                self._note(child, child.ending())
        return complaints

    def _start_own(self, name: str, role: str, words: tuple[str, ...]) -> Child:
        """Announce a process of the service, then start it. Raises HarnessError for a program that is not there."""
        self.commands[name] = words
        self.manifest.append([rows.process(role, name, f"{name}.jsonl")])
        told = self._led(name)
        program, *rest = (self._filled(word, name) for word in words)
        found = program_of(self.service.folder, program)
        if found is None:
            raise HarnessError(f"{name}: {program!r} is no program on PATH")
        return self._start(name, role, [found, *rest], told)

    def _led(self, name: str) -> dict[str, str]:
        """What leads a process to the servers, and has it record."""
        return {
            **self.own_environment(name),
            **led(self.connect(name), self.spec.queue, self.history / f"{name}.jsonl", self.under),
        }

    def own_environment(self, name: str) -> dict[str, str]:
        """The variables of the file, for a process of this name."""
        return {key: self._filled(value, name) for key, value in self.service.environment.items()}

    def _filled(self, word: str, name: str) -> str:
        """A word of the file with `{run}`, the folder of the run; `{name}`, that of the process; and `{port}`, that of an app."""
        port = str(self.ports.get(name, ""))
        known = {placeholders.RUN: str(self.history.parent), placeholders.PROCESS: name, placeholders.PORT: port}
        return placeholders.filled(word, known)

    def _is_stillborn(self, child: Child) -> bool:
        view = self.watch.view(child.name)
        if view.completed.get("claim") or (child.role == APP and view.opened):
            return False
        first = self._first(child.name)
        self._stillborn[first] = self._stillborn.get(first, 0) + 1
        # One that has never worked is not started again: its command or its settings are wrong.
        return child.name == first or self._stillborn[first] >= STILLBORN_MAX

    def _start_anew(self, gone: Child) -> None:
        first = self._first(gone.name)
        number = sum(self._first(name) == first for name in self.children)
        name = f"{first}.{number}"
        if gone.name in self.ports:
            self.ports[name] = self.ports.pop(gone.name)
        self._start_own(name, gone.role, self.commands[gone.name])
        self.now[first] = name

    def _first(self, name: str) -> str:
        return name.partition(".")[0]

    def _closed(self, name: str) -> bool:
        view = self.watch.view(name)
        return view.closed or not view.opened

    def _note(self, child: Child, how: str) -> None:
        if child.name not in self._noted:
            self._noted.add(child.name)
            self.ended.append({"name": child.name, "how": how, "t_ns": time.monotonic_ns()})
