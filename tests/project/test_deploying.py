"""The pages on deploying and on frameworks: what they tell supervisors is done with a worker, and their services are asked."""

import asyncio
import configparser
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.testclient import TestClient

from engine import Worker
from engine.command.health import TIMEOUT_MS
from tests.engine.using import at_work, wait_until

ROOT = Path(__file__).resolve().parents[2]
DEPLOYING = (ROOT / "docs/guides/deploying.md").read_text()
#: By then a program has started, and done what it is to do, on however busy a machine.
STARTED_S = 300
FRAMEWORKS = (ROOT / "docs/guides/frameworks.md").read_text()
#: The default of Worker(grace_ms=), and what a coroutine may take to clean up.
GRACE_S, CLEAN_UP_S = 30, 5

JOBS = """\
import os
from engine import Queue
queue = Queue("shop", url=os.environ["SHOP_REDIS_URL"])
@queue.job("receipt")
def receipt(order: int) -> str:
    return f"receipt of order {order}"
"""


def block(page: str, language: str) -> str:
    """The one block of a page in a language."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
    return found


UNIT = configparser.ConfigParser(interpolation=None, strict=True)
UNIT.optionxform = str  # type: ignore[assignment,method-assign]
UNIT.read_string(block(DEPLOYING, "ini"))
DOCKERFILE = block(DEPLOYING, "dockerfile")
WORKERS, WEB = yaml.safe_load_all(block(DEPLOYING, "yaml"))
POD = WORKERS["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
PROBES = {name: CONTAINER[f"{name}Probe"] for name in ("startup", "readiness", "liveness")}


def environment(url: str) -> dict[str, str]:
    told = {variable["name"]: variable["value"] for variable in CONTAINER["env"] if "value" in variable}
    return {**os.environ, "PYTHONPATH": str(ROOT), "SHOP_REDIS_URL": url, **told}


def ironclaim(words: list[str], folder: Path, url: str) -> subprocess.Popen[bytes]:
    """A command of a page, in the folder of its user's package."""
    assert words[0] == "ironclaim"
    output = (folder / f"{words[1]}.log").open("ab")
    with output:
        command = [sys.executable, "-m", "engine", *words[1:]]
        return subprocess.Popen(command, cwd=folder, env=environment(url), stdout=output, stderr=output)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder with the package that the pages speak of."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/jobs.py").write_text(JOBS)
    return tmp_path


@pytest.mark.slow
def test_the_probes_of_a_pod_see_its_worker_come_and_go(shop: Path, ironclaim_url: str) -> None:
    def probe(name: str) -> int:
        return ironclaim(PROBES[name]["exec"]["command"], shop, ironclaim_url).wait(STARTED_S)

    def come_to(what: str, **codes: int) -> None:
        """A probe whose own time ran out on a busy machine is asked again, as a supervisor does."""
        for name, code in codes.items():
            wait_until(lambda name=name, code=code: probe(name) == code, f"{what}: {name} exits with {code}", STARTED_S)

    come_to("before the worker", readiness=0, liveness=1, startup=1)
    worker = ironclaim(CONTAINER["command"], shop, ironclaim_url)
    try:
        come_to("with the worker", startup=0, readiness=0, liveness=0)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(STARTED_S) == 0
        come_to("after the worker", readiness=0, liveness=1)
    finally:
        worker.kill()
        worker.wait()


@pytest.mark.slow
def test_a_worker_that_is_killed_is_missed_after_its_beats_have_run_out(shop: Path, ironclaim_url: str) -> None:
    command = [*CONTAINER["command"], "--beat-ms", "200"]
    worker, live = ironclaim(command, shop, ironclaim_url), PROBES["liveness"]["exec"]["command"]
    try:
        wait_until(lambda: ironclaim(live, shop, ironclaim_url).wait(STARTED_S) == 0, "the worker lives", STARTED_S)
    finally:
        worker.kill()
        worker.wait()
    wait_until(lambda: ironclaim(live, shop, ironclaim_url).wait(STARTED_S) == 1, "it is missed", STARTED_S)


def test_supervisors_wait_for_longer_than_a_worker_takes() -> None:
    grace = {variable["name"]: variable.get("value") for variable in CONTAINER["env"]}["IRONCLAIM_GRACE_MS"]
    assert POD["terminationGracePeriodSeconds"] >= int(grace) / 1000 + CLEAN_UP_S
    assert int(UNIT["Service"]["TimeoutStopSec"]) >= GRACE_S + CLEAN_UP_S
    told = re.findall(r"docker stop --time (\d+)|stop_grace_period: (\d+)s", DEPLOYING)
    assert len(told) == 2 and all(int("".join(each)) >= GRACE_S + CLEAN_UP_S for each in told)
    of_web = WEB["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]
    (of_docker,) = re.findall(r"HEALTHCHECK .*--timeout=(\d+)s", DOCKERFILE)
    timeouts = [int(of_docker), *(probe["timeoutSeconds"] for probe in (*PROBES.values(), of_web))]
    assert min(timeouts) * 1000 > TIMEOUT_MS, "a probe that is cut off counts as failed"


@pytest.mark.slow
def test_each_page_starts_the_same_worker(shop: Path, ironclaim_url: str) -> None:
    (command,) = re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    assert json.loads(command) == CONTAINER["command"]
    (check,) = re.findall(r"^HEALTHCHECK .* CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    assert json.loads(check) == PROBES["liveness"]["exec"]["command"]
    words = shlex.split(UNIT["Service"]["ExecStart"].replace("%i", "1"))
    worker = ironclaim(["ironclaim", *words[1:], "--burst"], shop, ironclaim_url)
    assert worker.wait(STARTED_S) == 0, (shop / "worker.log").read_text()
    assert "worker shop-1" in (shop / "worker.log").read_text()


def recipe(word: str, url: str) -> dict[str, Any]:
    """The names of the program of a page that has this word."""
    (found,) = [text for text in re.findall(r"```python\n(.*?)```", FRAMEWORKS, re.DOTALL) if word in text]
    names: dict[str, Any] = {"__name__": "shop"}
    exec(found.replace("redis://127.0.0.1:6379", url), names)
    return names


@pytest.mark.slow
def test_the_fastapi_service_enqueues_once_and_shows_what_came_of_it(ironclaim_url: str) -> None:
    names = recipe("FastAPI(", ironclaim_url)
    with TestClient(names["app"]) as client:
        made = client.post("/orders/7/receipt")
        assert made.status_code == 202
        assert client.post("/orders/7/receipt").json() == made.json(), "it is under way"
        path = f"/jobs/{made.json()['job']}"
        assert client.get(path).json() == {"ended": False, "receipt": None}
        with at_work(Worker(names["queue"])):
            wait_until(lambda: client.get(path).json()["ended"], "the job has run")
        assert client.get(path).json() == {"ended": True, "receipt": "receipt of order 7"}
        assert client.post("/orders/seven/receipt").status_code == 422
    asyncio.run(names["queue"].aclose())


@pytest.mark.slow
def test_the_flask_service_runs_its_handlers_in_the_context_of_an_app(ironclaim_url: str) -> None:
    names = recipe("Flask(", ironclaim_url)
    seen: list[str] = []

    @names["queue"].job("look")
    def look() -> None:
        from flask import current_app

        seen.append(current_app.name)

    client = names["create_app"]().test_client()
    made = client.post("/orders/7/receipt")
    look.enqueue()
    path = f"/jobs/{made.json['job']}"
    assert (made.status_code, client.get(path).json) == (202, {"ended": False, "receipt": None})
    with at_work(Worker(names["queue"])):
        wait_until(lambda: client.get(path).json["ended"], "the job has run")
        wait_until(lambda: seen == ["shop"], "a handler has seen the app")
    assert client.get(path).json == {"ended": True, "receipt": "receipt of order 7"}
    names["queue"].close()
