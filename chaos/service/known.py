"""A service whose file is read and whose names resolve: what its run is, and what is missing for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import redis

from bench.models import NAMES as MODELS
from bench.models import carried
from chaos import runs, topologies, topology, toxiproxy_binary
from chaos.errors import HarnessError
from chaos.judge import validate_objectives
from chaos.plan import PRODUCER, Pace, Plan, draw, worker_names
from chaos.processes import inherited
from chaos.service import placeholders
from chaos.service.crew import program_of
from chaos.service.file import ServiceFile, toml
from chaos.service.spec import AT_LEAST_ONCE, SCENARIO, ServiceSpec
from chaos.topology.given import Given
from engine.testing import ServerMissing

#: Modules of a service are imported within this time.
IMPORT_TIMEOUT_S = 60.0

#: What is wrong with an object of the service is cut to this many characters.
WRONG_MAX = 250

#: The app that users call. The apps of the harness have other names, and no histories.
APP_1 = "web-1"


@dataclass(frozen=True, slots=True)
class Known:
    """A file whose names resolve: what its queue is, and whether its load is a Locust user."""

    service: ServiceFile
    queue: Mapping[str, Any]
    of_users: bool

    def spec(self, seed: int) -> ServiceSpec:
        """The spec of a run with this seed, as far as it is known before anything runs. Raises HarnessError."""
        service, model = self.service, str(self.queue["model"])
        if model not in MODELS:
            raise HarnessError(
                f"{service.path.name}: queue {service.queue} is of the model {model}, which drills of jobs have not"
            )
        waits = self.queue["durability"] if "replica" in topologies.DURABILITIES[service.topology] else ""
        declared = carried(model).findings + (() if service.once or not service.effects else (AT_LEAST_ONCE,))
        return ServiceSpec.bare(
            id=runs.run_id(SCENARIO, seed, "", time.time()),
            seed=seed,
            scenario=SCENARIO,
            topology=service.topology,
            durability=service.durability or waits,
            queue=str(self.queue["name"]),
            model=model,
            workers=len(service.workers),
            consumers=0,
            rate_per_s=service.rate,
            # A handler may ask for a wait of its own.
            retries_by_policy=False,
            findings=declared,
            effects=bool(service.effects),
            without_effects=service.without_effects,
        )

    def plan(self, spec: ServiceSpec, pace: Pace | None = None) -> Plan:
        """The faults of a spec. Raises HarnessError."""
        shape: dict[str, Any] = {"topology": spec.topology, "minutes": self.service.minutes, "kinds": self.service.faults}
        plan = draw(spec.seed, workers=worker_names(spec.workers), pace=pace, **shape)
        if not (self.of_users and self.service.apps):
            return plan
        # Users call the app, and it is the app that calls the server.
        return replace(plan, faults=tuple(replace(one, target=one.target.replace(PRODUCER, APP_1)) for one in plan.faults))


def resolved(service: ServiceFile) -> Known:
    """The file with what its names are. Raises HarnessError for the first that does not resolve."""
    for name, commands in (("workers", service.workers), ("apps", service.apps)):
        for at, (program, *_) in enumerate(commands):
            # What is in the folder of the run, or is called after the process, is not there yet.
            if "{" not in program and program_of(service.folder, program) is None:
                said = service.secrets.hide(json.dumps(program))
                raise HarnessError(f"{service.path.name}: {name}[{at}] begins with {said}, it must be a program on PATH")
    words = [f"{name}={reference}" for name, reference in service.references().items()]
    command = [sys.executable, "-P", "-m", "chaos.service.names", "describe", str(service.folder), *words]
    try:
        with tempfile.TemporaryDirectory() as folder:
            # The run has no folder yet.
            known = {placeholders.RUN: folder, placeholders.PROCESS: "check", placeholders.PORT: ""}
            own = {key: placeholders.filled(value, known) for key, value in service.environment.items()}
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                cwd=service.folder,
                env={**inherited(), **own},
                timeout=IMPORT_TIMEOUT_S,
                check=False,
            )
        told = json.loads(done.stdout)
    except subprocess.TimeoutExpired as error:
        raise HarnessError(f"{service.path.name}: its modules were not imported within {IMPORT_TIMEOUT_S:.0f} s") from error
    except (OSError, ValueError) as error:
        raise HarnessError(f"{service.path.name}: its modules end the interpreter when they are imported") from error
    service = replace(service, passwords=tuple(told["queue"].pop("passwords", ())))
    for name, reference in service.references().items():
        if wrong := told[name].get("wrong"):
            said = " ".join(service.secrets.hide(wrong).split())[:WRONG_MAX]
            raise HarnessError(f"{service.path.name}: {name} is {json.dumps(reference)}, it must be {said}")
    return Known(service, told["queue"], told["load"].get("users", False))


def objectives(service: ServiceFile, folder: Path) -> Path | None:
    """The service level objectives as a file in the folder, validated; None without any. Raises HarnessError."""
    if not service.slo:
        return None
    file = folder / "slo.toml"
    file.write_text(toml(service.slo))
    try:
        validate_objectives(file, channels=False)
    except HarnessError as error:
        raise HarnessError(f"{service.path.name}: slo: {str(error).removeprefix('slo.toml: ')}") from None
    return file


def lacking(service: ServiceFile, spec: ServiceSpec, plan: Plan) -> Iterator[str]:
    """What a run would miss, each with the line that installs it."""
    if service.servers:
        try:
            with Given(service.servers) as server:
                server.version()
        except (HarnessError, redis.RedisError, OSError) as error:
            yield service.secrets.hide(f"the given server: {error}")
    try:
        topology.binary()
    except ServerMissing as error:
        yield str(error)
    home = os.environ.get("JAVA_HOME")
    if not (home and os.access(Path(home) / "bin" / "java", os.X_OK)) and shutil.which("java") is None:
        yield "Java 17 or newer, for the judge: apt-get install openjdk-17-jre-headless"
    if plan.needs_network() or spec.topology in topologies.SEVERAL:
        try:
            if toxiproxy_binary.find() is None and toxiproxy_binary.find_go() is not None:
                yield "Toxiproxy's server, which the first run builds, once: python -m chaos.toxiproxy_binary"
        except toxiproxy_binary.ToxiproxyMissing as error:
            yield str(error)
