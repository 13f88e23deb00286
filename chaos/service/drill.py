"""The drill of a service: as any drill of jobs, with its own processes, its own load, and its own word on effects."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.references import found
from chaos import rows, snapshot
from chaos.drill import Drill
from chaos.errors import HarnessError
from chaos.faults.base import Scene
from chaos.plan import PlannedFault, worker_names
from chaos.probe import Address, refused
from chaos.processes import inherited, last_line
from chaos.service.crew import WORKER, ServiceCrew
from chaos.service.file import ServiceFile
from chaos.service.spec import ServiceSpec
from chaos.topology import Setting, Topology
from chaos.topology.given import Given
from chaos.watch import Watch
from engine import Queue
from engine.errors import redacted_url
from engine.ops.looks import LimitInfo
from engine.queue.settings import synchronous
from engine.redis.endpoint import Endpoint
from engine.testing.server import LOOPBACK
from record.environment import led
from record.history import HistoryError, load_file

#: The service reads its own database within this time.
EFFECTS_TIMEOUT_S = 60.0

#: The most jobs of one row of effects.
EFFECTS_MAX = 1_000


@dataclass
class ServiceDrill(Drill):
    """A run of the jobs of a service."""

    crew_of = ServiceCrew

    spec: ServiceSpec
    _crew: ServiceCrew = field(init=False, repr=False)
    service: ServiceFile = field(kw_only=True, repr=False)
    #: The load is a Locust user.
    of_users: bool = field(default=False, kw_only=True)
    _given: Given | None = None

    def run(self) -> None:
        super().run()
        self._hide_secrets()
        if crew := getattr(self, "_crew", None):
            self.spec = replace(self.spec, ended=tuple(crew.ended))
            for one in crew.ended:
                self.progress.say(f"the service: {one['how']}")

    def _hide_secrets(self) -> None:
        """Take secrets out of the logs of processes that have all ended."""
        for log in sorted(self.folder.logs.glob("*.log")):
            try:
                self.service.secrets.hide_in(log)
            except OSError as error:
                self.errors.append(f"secrets may stand in {log.name}: {error.strerror or error}")

    def _set_up(self, stack: ExitStack) -> None:
        super()._set_up(stack)
        if self._given:
            self.spec = replace(self.spec, versions={**self.spec.versions, "server": self._given.version()})
            if gone := self._given.removed:
                self.progress.say(f"removed what killed runs had left at the server: {', '.join(gone)}")
        self._learn()

    def _open_queue(self, url: str) -> Queue:
        """The service's own queue, at this url. Raises HarnessError for one that cannot be made."""
        return open_queue(self.service, self.spec.queue, url, self._under)

    def _make_servers(self, topology: str, setting: Setting) -> Topology:
        if not self.service.servers:
            return super()._make_servers(topology, setting)
        self._given = Given(self.service.servers)
        return self._given

    @property
    def _under(self) -> str:
        """What keys begin with, on a server that others use."""
        return self._given.prefix if self._given else ""

    def _start_workers(self) -> tuple[str, ...]:
        self._crew.service, self._crew.of_users, self._crew.under = self.service, self.of_users, self._under
        names = worker_names(self.spec.workers)
        for name in names:
            self._crew.start_worker(name)
        return names

    def _begin_load(self) -> None:
        apps = [f"web-{number}" for number in range(1, len(self.service.apps) + 1)]
        for name in apps:
            self._crew.start_app(name)
        ports = self._crew.ports
        self._require(lambda: not any(refused(Address(LOOPBACK, ports[name])) for name in apps), "the apps did not listen")
        super()._begin_load()

    def _learn(self) -> None:
        """Take over what the workers have configured. Raises HarnessError where what was started is not the worker itself."""
        configured: list[dict[str, Any]] = []
        for name in worker_names(self.spec.workers):
            child, view = self._crew.children[name], self._watch.view(name)
            if view.pid != child.pid:
                raise HarnessError(
                    f"{name}: its command is not the worker but has started it; name the worker itself in chaos.toml"
                )
            configured += self._configurations(name)
        leases_ms = {one["lease_ms"] for one in configured}
        if not leases_ms:
            raise HarnessError(f"no worker of queue {self.spec.queue} has told its settings")
        self.spec = replace(
            self.spec,
            lease_ms=max(leases_ms),
            leases_ms=tuple(sorted(leases_ms)),
            sweep_ms=max(one["sweep_ms"] for one in configured),
            concurrency=max(one["concurrency"] for one in configured),
        )

    def _configurations(self, name: str) -> list[dict[str, Any]]:
        try:
            lines = load_file(self.folder.history / f"{name}.jsonl").rows
        except HistoryError as error:
            raise HarnessError(str(error)) from error
        told = [json.loads(row["config"]) for row in lines if row["kind"] == "configuration"]
        return [one for one in told if one["queue"] == self.spec.queue]

    def _strike(self, scene: Scene, planned: PlannedFault, quiet_ms: int = 0) -> int:
        """As any fault, of what took the place of processes that have ended since."""
        self._hold(time.monotonic_ns() + (quiet_ms + planned.delay_ms) * 1_000_000)
        target = ",".join(map(self._crew.living, planned.targets))
        if target != planned.target:
            planned = replace(planned, target=target)
            hits = {"target": target}
            plan = ({**entry, **hits} if entry["fault"] == planned.fault else entry for entry in self.spec.plan)
            self.spec = replace(self.spec, plan=tuple(plan))
        return super()._strike(scene, replace(planned, delay_ms=0))

    def _drain(self, healed_ns: int) -> None:
        super()._drain(healed_ns)
        if self.service.effects:
            # Whatever handlers still do in the background is done before anybody counts.
            self.errors += self._crew.stop_all()
            self._read_effects()

    def _give_up(self) -> None:
        """Jobs whose handlers still run are the service's own: they hang, or take their time. So are those that wait for them."""
        running = {token.job for view in self._watch.views.values() for token in view.running}
        listing = self._queue.snapshot()
        left = {job for state in snapshot.OPEN_STATES for job, _ in listing.states.get(state, [])}
        if left <= running:
            self.progress.say(f"the service: {len(left)} handlers still run long after the load: {', '.join(sorted(left)[:3])}")
            return
        if not self._taken().full:
            super()._give_up()
            return
        self._snapshot("give-up")
        why = self.spec.full.get("give-up", "their places are taken")
        self.progress.say(f"the service: {len(left)} jobs are left long after the load, as {why}")
        # One that got a place now would be finished after the last snapshot.
        self.errors += self._crew.stop_all()

    def _snapshot(self, name: str) -> None:
        """As of any drill, with why jobs might rightly wait meanwhile."""
        before = self._taken()
        super()._snapshot(name)
        found = all_the_while(before, self._taken())
        if found.full:
            self.spec = replace(self.spec, full={**self.spec.full, name: ", and ".join(found.full)})
        if name == "deadline":
            self.spec = replace(self.spec, busy=tuple(sorted(found.busy)))

    def _taken(self) -> Taken:
        """Which places handlers have now."""
        self._watch.poll()
        living = [child.name for child in self._crew.children.values() if child.role == WORKER and child.alive()]
        told = {name: self._configurations(name) for name in living}
        each = {name: sum(one["concurrency"] for one in found) for name, found in told.items() if found}
        return taken(self._watch, each, self._queue.limits())

    def _read_effects(self) -> None:
        """Record how often each job took effect, as the service says; that it cannot say it is an error of the run."""
        environment = {**self._crew.environment({}), **self._crew.own_environment("effects")}
        environment |= led(self._servers.url, self.spec.queue, None, self._under)
        log = self.folder.logs / "effects.log"
        try:
            told = counted(self.service, environment, log, self._crew.hide, EFFECTS_TIMEOUT_S)
        except HarnessError as error:
            self.errors.append(str(error))
            return
        counts = list(told.items())
        for start in range(0, max(len(counts), 1), EFFECTS_MAX):
            items = [{"job": job, "times": times} for job, times in counts[start : start + EFFECTS_MAX]]
            self._harness.append([rows.body("effects", items=items)])


@dataclass(frozen=True, slots=True)
class Taken:
    """At one instant: `busy`, the workers without a free place; and what else is full, in words."""

    busy: frozenset[str]
    full: tuple[str, ...]


def taken(watch: Watch, places: Mapping[str, int], limits: Iterable[LimitInfo]) -> Taken:
    """What is full. `places`: of each worker that lives. A limit whose places are held by jobs that no handler runs is not full
    of work, but a defect; one of a rate is full until its time comes."""
    running = {name: watch.view(name).running for name in places}
    jobs = {token.job for tokens in running.values() for token in tokens}
    busy = frozenset(name for name, tokens in running.items() if len(tokens) >= places[name])
    full = [f"handlers had all {sum(places.values())} places of the workers"] if busy == places.keys() and places else []
    for limit in limits:
        held = 0 < limit.concurrency <= limit.in_hand and all(job in jobs for job, _ in limit.holders)
        if held or limit.free_ms:
            full.append(f"the limit of {limit.target} was full")
    return Taken(busy, tuple(full))


def all_the_while(before: Taken, after: Taken) -> Taken:
    """What was full at both instants, and so between them, too."""
    return Taken(before.busy & after.busy, tuple(one for one in before.full if one in after.full))


def counted(
    service: ServiceFile, environment: Mapping[str, str], log: Path, hide: Callable[[str], str], timeout_s: float
) -> dict[str, int]:
    """The effects of each job by its id. `log`: what the function prints. Raises HarnessError, in one line, where the function
    raises, takes too long, or returns something else."""
    command = [sys.executable, "-P", "-m", "chaos.service.names", "effects", str(service.folder), service.effects]
    try:
        with log.open("ab") as output:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd=service.folder,
                env=environment,
                timeout=timeout_s,
                check=True,
            )
        found: dict[str, int] = json.loads(done.stdout)
    except subprocess.TimeoutExpired as error:
        raise HarnessError(f"effects {service.effects}: it did not return within {timeout_s:.0f} s") from error
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        # The text of the error has the words of the command alone.
        raise HarnessError(f"effects {service.effects}: {last_line(log, hide) or hide(str(error))}") from None
    return found


def open_queue(service: ServiceFile, name: str, url: str, under: str = "") -> Queue:
    """The service's own queue, as its module makes it, at this url, with keys that begin with `under`. Raises HarnessError for
    one that cannot be made."""
    told, folder = led(url, name, None, under), str(service.folder)
    without = os.environ.keys() - inherited().keys()
    before = {variable: os.environ.get(variable) for variable in told.keys() | without}
    for variable in without:
        del os.environ[variable]
    os.environ.update(told)
    if folder not in sys.path:
        # Behind all others: no module of the service takes the place of one of the harness's.
        sys.path.append(folder)
    try:
        made = Queue.like(synchronous(found(service.queue)))
    except Exception as error:
        # Without the cause, whose text may have a secret of the service.
        said = service.secrets.hide(f"{type(error).__name__}: {error}")
        raise HarnessError(f"queue {service.queue}: {' '.join(said.split())}") from None
    finally:
        for variable, value in before.items():
            if value is None:
                os.environ.pop(variable, None)
            else:
                os.environ[variable] = value
    if not made.endpoint.reaches(Endpoint(url)) or not made.prefix.startswith(under):
        # Nothing is ever done to the service's own server.
        raise HarnessError(f"queue {service.queue} is at {redacted_url(made.url)}, and not at the server of the drill")
    return made
