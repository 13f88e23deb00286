"""The processes of a run, as real children with a log each, stopped politely and then by force; and those of a run of jobs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from bench.history_files import history_of
from bench.models import DURABILITY, LANES
from bench.workload import CAPABILITY, GROW_VARIABLE
from chaos import rows
from chaos.installed import PACKAGES, ROOT
from chaos.mutants import engine_beside
from chaos.preload.control import Preload
from chaos.spec import RunSpec
from chaos.watch import Watch
from engine.errors import redacted
from engine.testing import start_guarded
from engine.testing.server import BINARY_VARIABLE, LOOPBACK, free_port
from record.environment import recording
from record.history import HistoryFile

#: Settings of the engine in an environment; and those that are of the harness and its judge, and of no queue.
SETTING, OF_HARNESS = "IRONCLAIM_", (BINARY_VARIABLE, "IRONCLAIM_SPARK_MASTER", "IRONCLAIM_SPARK_CONF")

#: A child that was asked to stop gets this long.
STOP_GRACE_S = 15.0

PRODUCER_USERS = 4

#: Name of the process that leads several producers. It sends nothing, and has no history.
MASTER = "locust-master"

S = TypeVar("S")


@dataclass
class Child:
    """One process that the harness started, and whether its exit is part of the plan."""

    name: str
    role: str
    process: subprocess.Popen[bytes]
    log: Path
    exit_expected: bool = False
    #: The return codes of one that was asked to stop and has done so.
    endings: tuple[int, ...] = (0,)
    #: What takes secrets out of a line of its log.
    hide: Callable[[str], str] = field(default=redacted, repr=False)

    @property
    def pid(self) -> int:
        return self.process.pid

    def alive(self) -> bool:
        """False once the process was reaped."""
        return self.process.poll() is None

    def ending(self) -> str:
        """How it ended, with the last line of its log: for one line to the user."""
        code = self.process.returncode
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        last = last_line(self.log, self.hide)
        return f"{self.name}: {how}" + (f" ({last})" if last else "")


@dataclass
class Children(Generic[S]):
    """Starts, counts and stops the children of a run. Starting is for the main thread only: see `start_guarded`."""

    spec: S
    #: The url that the process of this name is to use; called before it starts, so that its proxy is there.
    connect: Callable[[str], str]
    history: Path
    logs: Path
    manifest: HistoryFile
    watch: Watch
    lua: Path | None = None
    children: dict[str, Child] = field(default_factory=dict)
    #: What processes are started with where a fault acts inside of them.
    preload: Preload | None = None

    #: Roles of those that send: they are stopped before the others.
    SENDERS: ClassVar[tuple[str, ...]] = ("producer",)

    def start_replacement(self, name: str, of: str) -> Child:
        """Start the process that takes the place of `of`, which was killed."""
        raise NotImplementedError

    def grow_file(self, name: str) -> Path:
        """The file by which a fault lets the next handler of this process take too much memory."""
        return self.logs / f"{name}.grow"

    def _start(self, name: str, role: str, command: list[str], environment: Mapping[str, str]) -> Child:
        self.watch.follow(name)
        log = self.logs / f"{name}.log"
        loaded = self.preload.environment(name) if self.preload else {}
        environment = {**changed_engine(self.lua), **loaded, **environment}
        with log.open("ab") as output:
            process = start_guarded(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder(environment),
                env=self.environment(environment),
            )
        self.children[name] = Child(name, role, process, log, hide=self.hide)
        return self.children[name]

    def folder(self, environment: Mapping[str, str]) -> str:
        """The folder that a child with these variables starts in. Locust puts it before all others."""
        return environment.get("PYTHONPATH", str(ROOT)).split(os.pathsep)[0]

    def hide(self, text: str) -> str:
        """A line of a log as the harness may show and store it."""
        return redacted(text)

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        """The whole environment of a child with these variables."""
        return child_environment(more)

    def blamed(self, child: Child) -> bool:
        """True for a child whose end in another way than it was asked to is an error of the run."""
        return True

    def alive(self, role: str) -> int:
        """How many of a role live."""
        return sum(child.role == role and child.alive() for child in self.children.values())

    def pids(self) -> dict[str, int]:
        """Process ids of the living children."""
        return {name: child.pid for name, child in list(self.children.items()) if child.process.returncode is None}

    def unplanned_exits(self) -> list[Child]:
        """Children that ended though nobody asked them to. Each is returned once."""
        gone = [child for child in self.children.values() if not child.exit_expected and not child.alive()]
        for child in gone:
            child.exit_expected = True
        return gone

    def stop(self, names: list[str], grace_s: float = STOP_GRACE_S) -> list[str]:
        """Ask the named children to stop, all at once, and wait; kill those that do not.

        Returns a complaint for each that did not stop as asked, and for each that was gone already without anybody's plan.
        """
        named = [self.children[name] for name in names if name in self.children]
        stopping = [child for child in named if child.alive()]
        gone = [child for child in named if child not in stopping and not child.exit_expected]
        for child in (*stopping, *gone):
            child.exit_expected = True
        for child in stopping:
            send(child.pid, signal.SIGCONT)
            send(child.pid, signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        complaints = [f"unplanned exit of {child.ending()}" for child in gone if self.blamed(child)]
        for child in stopping:
            try:
                child.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
                if self.blamed(child):
                    complaints.append(f"{child.name}: did not stop within {grace_s:g} s of SIGTERM and was killed")
            else:
                if child.process.returncode not in child.endings and self.blamed(child):
                    complaints.append(child.ending())
        return complaints

    def stop_all(self, grace_s: float = STOP_GRACE_S) -> list[str]:
        """Stop whatever still lives: those that send first, then the others."""
        senders = [child.name for child in self.children.values() if child.role in self.SENDERS]
        others = [child.name for child in self.children.values() if child.role not in self.SENDERS]
        return self.stop(senders, grace_s) + self.stop(others, grace_s)


@dataclass
class Crew(Children[RunSpec]):
    """The children of a run of jobs. `led`: producers that have a Locust master."""

    #: What the workers run.
    handlers: ClassVar[str] = "bench.handlers:handlers"

    led: list[Child] = field(default_factory=list)

    def start_worker(self, name: str) -> Child:
        """Announce a worker in the manifest, then start it."""
        told = self._announced(name)
        words = worker_command(self.spec, name, self.connect(name), self.lua, self.handlers)
        return self._start(name, "worker", words, {**told, **recording(self.history / f"{name}.jsonl")})

    def start_consumer(self, name: str) -> Child:
        """Announce a consumer, which is a worker inside Locust, then start it."""
        told = self._announced(name)
        words = consumer_command(self.spec, self.connect(name), self.history / f"{name}.jsonl", self.lua)
        return self._start(name, "consumer", words, told)

    def start_producer(self, name: str) -> Child:
        """Announce the producer in the manifest, then start it."""
        return self._start_sending(name, self.connect(name))

    def announce_producers(self, name: str) -> list[Path]:
        """Announce what sends in the manifest: the history files."""
        first = self.history / f"{name}.jsonl"
        files = [history_of(str(first), part) or first for part in range(self.spec.producers)]
        self.manifest.append([rows.process("producer", file.stem, file.name) for file in files])
        return files

    def announce_worker(self, name: str) -> Path:
        """Announce what works on jobs in the manifest, for the judge a worker with a history and a sink. Returns the sink."""
        sink = f"{name}.sink.jsonl"
        self.manifest.append([rows.process("worker", name, f"{name}.jsonl"), rows.process("sink", name, sink)])
        return self.history / sink

    def _start_sending(self, name: str, url: str) -> Child:
        """Start what sends, to this url. Several processes share the schedule: Locust's workers, with a master of their own."""
        files = self.announce_producers(name)
        command = producer_command(self.spec, url, files[0], self.lua)
        if len(files) == 1:
            return self._start(name, "producer", command, durable(self.spec))
        port = str(free_port())
        master = ["--master", "--master-bind-host", LOOPBACK, "--master-bind-port", port, "--expect-workers", str(len(files))]
        leader = self._start(MASTER, "producer", command + master, durable(self.spec))
        for file in files:
            # The first that reports to the master writes the first file, which may be another one than this.
            words = [*command, "--worker", "--master-host", LOOPBACK, "--master-port", port]
            self.led.append(self._start(file.stem, "producer", words, durable(self.spec)))
        return leader

    def _announced(self, name: str) -> dict[str, str]:
        """Announce what works on jobs. Returns what its process is told by the environment."""
        sink = self.announce_worker(name)
        told = {"IRONCLAIM_SINK": str(sink), "IRONCLAIM_PROC": name, GROW_VARIABLE: str(self.grow_file(name))}
        return {**told, **durable(self.spec)}

    def start_replacement(self, name: str, of: str) -> Child:
        return self.start_worker(name)

    def stop_load(self, name: str, grace_s: float = STOP_GRACE_S) -> list[str]:
        """Stop the producer of this name. Several are stopped by their master: it would hand the share of one that ends by itself
        to the others."""
        if MASTER not in self.children:
            return self.stop([name], grace_s)
        gone = [f"unplanned exit of {child.ending()}" for child in self.led if not child.alive()]
        for child in self.led:
            child.exit_expected = True
        complaints = self.stop([MASTER], grace_s)
        for child in self.led:
            with suppress(subprocess.TimeoutExpired):
                child.process.wait(grace_s)
        complaints += self.stop([child.name for child in self.led], grace_s)
        return [*gone, *complaints, *(child.ending() for child in self.led if child.process.returncode not in child.endings)]


def worker_command(spec: RunSpec, name: str, url: str, lua: Path | None, handlers: str = Crew.handlers) -> list[str]:
    """The command line of one worker."""
    command = [sys.executable, "-m", "engine", "worker", handlers, "--queue", spec.queue, "--url", url]
    command += ["--name", name, "--concurrency", str(spec.concurrency), "--lease-ms", str(spec.lease_ms)]
    command += ["--sweep-ms", str(spec.sweep_ms), "--capabilities", CAPABILITY]
    return command + model_options(spec) + (["--lua", str(lua)] if lua else [])


def consumer_command(spec: RunSpec, url: str, history: Path, lua: Path | None) -> list[str]:
    """The command line of one consumer, a Locust process with one user, which is called after its history.
    Its planned failures are not its exit code."""
    command = locust_command(spec, users=1)
    command += ["--host", url, "--queue", spec.queue, "--consumer-concurrency", str(spec.concurrency)]
    command += ["--lease-ms", str(spec.lease_ms), "--sweep-ms", str(spec.sweep_ms), *model_options(spec)]
    command += ["--lua", str(lua)] if lua else []
    return [*command, "--consumer-history", str(history), "Consumer"]


def producer_command(spec: RunSpec, url: str, history: Path, lua: Path | None) -> list[str]:
    """The command line of the load: Locust without its web page. Failed requests are left to the judge, not to its exit code."""
    command = locust_command(spec, users=max(PRODUCER_USERS, spec.producers))
    command += ["--host", url, "--queue", spec.queue, "--seed", str(spec.seed), "--rate", str(spec.rate_per_s)]
    command += ["--retention-ms", str(spec.retention_ms)] if spec.retention_ms else []
    command += model_options(spec)
    command += ["--lua", str(lua)] if lua else []
    return [*command, "--history", str(history), "Producer"]


def durable(spec: RunSpec) -> dict[str, str]:
    """How a process is told that its calls count as answered when a replica has what they wrote: by the environment, which the
    worker's option --durability and `bench.models` read."""
    return {DURABILITY: spec.durability} if spec.durability == "replica" else {}


def model_options(spec: RunSpec) -> list[str]:
    """How a process is told of the model; the default is nothing to tell."""
    return [] if spec.model == LANES else ["--model", spec.model]


def locust_command(spec: RunSpec, *, users: int) -> list[str]:
    """What the command lines of Locust have in common: no web page, and an end should nobody tell it to stop."""
    command = [sys.executable, "-m", "locust", "-f", str(ROOT / "bench" / "locustfile.py"), "--headless", "--only-summary"]
    return [*command, "-u", str(users), "-r", str(users), "-t", f"{spec.load_bound_s}s", "--exit-code-on-error", "0"]


def child_environment(more: Mapping[str, str]) -> dict[str, str]:
    """Our environment for children, who must find the same packages whatever the working directory."""
    path = os.pathsep.join(filter(None, [*PACKAGES, os.environ.get("PYTHONPATH", "")]))
    return {**inherited(), "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **more}


def inherited() -> dict[str, str]:
    """Our environment without settings of the engine: those of a shell are about other servers and workers than a drill's."""
    return {name: value for name, value in os.environ.items() if not name.startswith(SETTING) or name in OF_HARNESS}


def changed_engine(lua: Path | None) -> dict[str, str]:
    """What makes a process import the changed package of the engine, where a mutant has one. Without the safe path, the folder
    that a process starts in comes first, and with it the engine of this checkout."""
    beside = engine_beside(lua)
    return {} if beside is None else {"PYTHONPATH": os.pathsep.join((str(beside), *PACKAGES)), "PYTHONSAFEPATH": "1"}


def send(pid: int, number: int) -> None:
    """Send a signal; a process that is gone already needs none."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def last_line(log: Path, hide: Callable[[str], str] = redacted) -> str:
    """The last line of a log that says something, without secrets, cut to 200 characters."""
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return hide(lines[-1].strip())[:200] if lines else ""
