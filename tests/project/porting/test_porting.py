"""Programs of RQ, Celery and FastAPI's BackgroundTasks beside their ports: the same visible results, on a real server.

`before` has them as they were written for the original libraries, `after` as they were ported with the pages of docs/ alone.
Others are on the page docs/migrating.md, in parts of both sides. Each runs as its users run it: a worker process and a program,
or a service that is asked over HTTP.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from engine.testing import free_port
from tests.engine.helpers.waiting import wait_until
from tests.golden import same
from tests.project.test_typed import Check, by_mypy, by_pyright

pytestmark = pytest.mark.slow

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PAGE = ROOT / "docs/migrating.md"
END_S = 300

PYTHON = (sys.executable, "-m")
RQ = (*PYTHON, "rq.cli", "worker", "--with-scheduler", "--url", "{url}")
IRONCLAIM = (*PYTHON, "engine", "worker")
CELERY = (*PYTHON, "celery", "-A", "shop", "worker", "-B", "-s", "{tmp}/beat", "-Q", "orders,mails", "--concurrency", "2")

#: The programs of the page: the heading of their section, the fence of a side, and the file that its blocks make together.
OF_THE_PAGE = {
    **{"celery": ("Celery, line by line", "py", "shop.py"), "shop": ("Celery, line by line", "python", "shop.py")},
    "rq-readme": ("RQ's README, line by line", "py", "words.py"),
    "words": ("RQ's README, line by line", "python", "words.py"),
    "paint": ("BullMQ's README, line by line", "python", "paint.py"),
}


def written_out(name: str, tmp: Path) -> Path:
    """The file of a program that docs/migrating.md shows in parts."""
    heading, fence, file = OF_THE_PAGE[name]
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    blocks = re.findall(rf"^```{fence}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 5
    (tmp / file).write_text("\n\n".join(blocks))
    return tmp / file


@contextmanager
def running(folder: Path, command: tuple[str, ...], url: str, tmp: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of one of the two sides, which ends well at SIGTERM; uvicorn then says that it was the signal."""
    words = [word.format(url=url, tmp=tmp) for word in command]
    log = tmp / f"{'-'.join(Path(word).name for word in command[2:4])}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(words, cwd=folder, env=environment(url), stdout=output, stderr=output)
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(END_S) in ((0, -signal.SIGTERM) if "uvicorn" in words else (0,)), log.read_text()
    finally:
        process.kill()
        process.wait()


def environment(url: str) -> dict[str, str]:
    return {**os.environ, "REDIS_URL": url, "PYTHONPATH": str(ROOT)}


def printed_by(program: Path, workers: list[tuple[str, ...]], url: str, tmp: Path) -> str:
    """What a program prints while these workers run; what it says as it ends is asserted of ports alone."""
    with ExitStack() as stack:
        for worker in workers:
            stack.enter_context(running(program.parent, worker, url, tmp))
        command, env = [sys.executable, program.name], environment(url)
        done = subprocess.run(command, cwd=program.parent, env=env, capture_output=True, text=True, timeout=END_S)
    # What the original says as its process ends is its own: Celery's results complain when the pool is gone first.
    ported = workers[0][: len(IRONCLAIM)] == IRONCLAIM
    assert (done.returncode, done.stderr if ported else "") == (0, ""), done.stderr
    return done.stdout


SIDES = [("before", (*RQ, "pictures", "mails")), ("after", (*IRONCLAIM, "pictures:pictures", "pictures:mails"))]


@pytest.mark.parametrize(("side", "worker"), SIDES, ids=["rq", "pictures"])
def test_a_port_shows_what_the_original_shows(side: str, worker: tuple[str, ...], ironclaim_url: str, tmp_path: Path) -> None:
    same("project/porting/pictures.txt", printed_by(HERE / side / "pictures.py", [worker], ironclaim_url, tmp_path))


PROGRAMS = [
    ("celery", [CELERY], "shop"),
    ("shop", [(*IRONCLAIM, "shop:orders", "shop:mails", "--processes", "2")], "shop"),
    ("rq-readme", [(*RQ, "high", "low"), (*PYTHON, "rq.cli", "cron", "--url", "{url}", "words.py")], "words"),
    ("words", [(*IRONCLAIM, "words:high", "words:low")], "words"),
    ("paint", [(*IRONCLAIM, "paint:paint", "paint:rooms", "--concurrency", "1")], "paint"),
]


@pytest.mark.parametrize(("name", "workers", "shown"), PROGRAMS, ids=list(OF_THE_PAGE))
def test_a_program_of_the_page_shows_what_the_original_shows(
    name: str, workers: list[tuple[str, ...]], shown: str, ironclaim_url: str, tmp_path: Path
) -> None:
    same(f"project/porting/{shown}.txt", printed_by(written_out(name, tmp_path), workers, ironclaim_url, tmp_path))


@pytest.mark.parametrize("check", [by_mypy, by_pyright])
def test_strict_checkers_have_nothing_to_say_of_a_port(check: Check, tmp_path: Path) -> None:
    ports, scratch = tmp_path / "ports", tmp_path / "scratch"
    ports.mkdir()
    scratch.mkdir()
    flagged, output = check(scratch, [written_out(name, ports) for name in ("shop", "words", "paint")])
    assert flagged == set(), output


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_service_and_its_port_answer_alike(side: str, ironclaim_url: str, tmp_path: Path) -> None:
    port = free_port()
    web = (*PYTHON, "uvicorn", "service:app", "--port", str(port))
    # uvicorn closes the connection on which a background task has failed.
    each_anew = httpx.Limits(max_keepalive_connections=0)
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", limits=each_anew, timeout=END_S)
    with running(HERE / side, web, ironclaim_url, tmp_path), client:
        wait_until(lambda: answers(client), "the service answers", END_S)
        made = client.post("/orders", json={"item": "pen", "count": 3, "due": "2026-03-01T12:00:00Z"})
        odd = client.post("/orders", json={"item": "unicorn"})
        assert (made.status_code, odd.status_code) == (202, 202)
        if side == "after":
            assert state(client, made) == "waiting", "the work is not lost with the service, and waits for a worker"
            with running(HERE / side, (*IRONCLAIM, "service:queue"), ironclaim_url, tmp_path):
                check_states(client, made, odd)
        else:
            check_states(client, made, odd)
        assert client.post("/orders", json={"count": 3}).status_code == 422
        assert client.get(f"/orders/{'0' * 32}").status_code == 404


def check_states(client: httpx.Client, made: httpx.Response, odd: httpx.Response) -> None:
    wait_until(lambda: state(client, made) == "3 x pen sent", "the order is sent", END_S)
    wait_until(lambda: state(client, odd) == "failed", "there is no unicorn", END_S)


def state(client: httpx.Client, made: httpx.Response) -> str:
    return client.get(f"/orders/{made.json()['id']}").json()["state"]


def answers(client: httpx.Client) -> bool:
    try:
        return client.get("/docs").status_code == 200
    except httpx.TransportError:
        return False
