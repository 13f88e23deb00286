"""A small service on real parts: its module, its `chaos.toml`, and the command that is asked about it."""

import subprocess
import sys
from pathlib import Path

from chaos.service.crew import ServiceCrew
from chaos.service.file import ServiceFile
from chaos.service.spec import ServiceSpec
from chaos.watch import Watch
from record.history import HistoryFile

#: Every job is a row; `{effects}` is what its `effects` does.
MODULE = """
import os
import sqlite3
import time
from engine import Job, Queue

queue = Queue("small")

def database():
    connection = sqlite3.connect(os.environ["SMALL_DB"], timeout=30)
    connection.execute("CREATE TABLE IF NOT EXISTS done (job TEXT)")
    return connection

@queue.job("work")
def work(job: Job, ms: float) -> None:
    time.sleep(ms / 1000)
    with database() as connection:
        connection.execute("INSERT INTO done VALUES (?)", (job.id,))

@queue.job("fail", attempts=1)
def fail(job: Job) -> None:
    time.sleep(0.005)
    raise RuntimeError("no")

def load(seed):
    while True:
        yield work, {{"ms": {ms}}}
        {more}

def effects():
    {effects}

def each():
    with database() as connection:
        return [(job, 1) for (job,) in connection.execute("SELECT job FROM done")]
"""

ENVIRONMENT = '\n[environment]\nSMALL_DB = "{run}/small.db"\n'


def written(folder: Path, more: str = "pass", effects: str = "return each()", ms: float = 15, **fields: str) -> Path:
    """The file of a service in this folder. `more`: what its load does beside."""
    (folder / "small.py").write_text(MODULE.format(more=more, effects=effects, ms=ms))
    given = {"queue": '"small:queue"', "load": '"small:load"', "rate": "30", "effects": '"small:effects"', **fields}
    file = folder / "chaos.toml"
    file.write_text("".join(f"{name} = {value}\n" for name, value in given.items() if value) + ENVIRONMENT)
    return file


def crew_of(folder: Path, service: ServiceFile) -> ServiceCrew:
    """The crew of a service, which has started nobody."""
    history, logs = folder / "history", folder / "logs"
    for made in (history, logs):
        made.mkdir()
    manifest = HistoryFile(history / "manifest.jsonl", proc="manifest", role="harness")
    spec = ServiceSpec(id="run", seed=1, queue="shop")
    crew = ServiceCrew(spec, lambda name: f"redis://{name}:1", history, logs, manifest, Watch(history))
    crew.service = service
    return crew


def asked(*words: object, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
    """What the command says."""
    command = [sys.executable, "-m", "chaos", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
