"""Programs of RQ, Celery and FastAPI's BackgroundTasks beside their ports: the same visible results, on a real server.

`before` has them as they were written for the original libraries, `after` as they were ported with the pages of docs/ alone. Each
runs as its users run it: a worker process and a program, or a service that is asked over HTTP.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from engine.testing import free_port
from tests.engine.helpers.waiting import wait_until

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
END_S = 300

PYTHON = (sys.executable, "-m")
RQ = (*PYTHON, "rq.cli", "worker", "--with-scheduler", "--url", "{url}", "pictures", "mails")
CELERY = (*PYTHON, "celery", "-A", "shop", "worker", "-B", "-s", "{tmp}/beat", "-Q", "orders,mails", "--concurrency", "2")

PICTURES = """\
large: 600 - resized cat to 200
sheet: 900
uploaded at try 3
check: ValueError: dog.txt is no picture
failed: ['dog']
sent: ['ada'] - cancelled: True
"""
SHOP = """\
price: 6
chain: ada pays 5
chord: 12
charged at run 3
book: KeyError: 'order-7' - failed: True
revoked: True
mailed: ['ada']
the beat goes on
"""


@contextmanager
def running(side: str, command: tuple[str, ...], url: str, tmp: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of one of the two sides, which ends well at SIGTERM; uvicorn then says that it was the signal."""
    words = [word.format(url=url, tmp=tmp) for word in command]
    log = tmp / f"{'-'.join(Path(word).name for word in command[2:4])}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(words, cwd=HERE / side, env=environment(url), stdout=output, stderr=output)
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(END_S) in ((0, -signal.SIGTERM) if "uvicorn" in words else (0,)), log.read_text()
    finally:
        process.kill()
        process.wait()


def environment(url: str) -> dict[str, str]:
    return {**os.environ, "REDIS_URL": url, "PYTHONPATH": str(ROOT)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("side", "program", "worker", "expected"),
    [
        ("before", "pictures.py", RQ, PICTURES),
        ("after", "pictures.py", (*PYTHON, "engine", "worker", "pictures:pictures", "pictures:mails"), PICTURES),
        ("before", "shop.py", CELERY, SHOP),
        ("after", "shop.py", (*PYTHON, "engine", "worker", "shop:orders", "shop:mails"), SHOP),
    ],
    ids=["rq", "pictures", "celery", "shop"],
)
def test_a_port_shows_what_the_original_shows(
    side: str, program: str, worker: tuple[str, ...], expected: str, ironclaim_url: str, tmp_path: Path
) -> None:
    with running(side, worker, ironclaim_url, tmp_path):
        command, env = [sys.executable, program], environment(ironclaim_url)
        done = subprocess.run(command, cwd=HERE / side, env=env, capture_output=True, text=True, timeout=END_S)
    # What the original says as its process ends is its own: Celery's results complain when the pool is gone first.
    assert (done.returncode, done.stderr if side == "after" else "") == (0, "")
    assert done.stdout == expected


@pytest.mark.slow
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_service_and_its_port_answer_alike(side: str, ironclaim_url: str, tmp_path: Path) -> None:
    port = free_port()
    web = (*PYTHON, "uvicorn", "service:app", "--port", str(port))
    # uvicorn closes the connection on which a background task has failed.
    each_anew = httpx.Limits(max_keepalive_connections=0)
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", limits=each_anew)
    with running(side, web, ironclaim_url, tmp_path), client:
        wait_until(lambda: answers(client), "the service answers", END_S)
        made = client.post("/orders", json={"item": "pen", "count": 3, "due": "2026-03-01T12:00:00Z"})
        odd = client.post("/orders", json={"item": "unicorn"})
        assert (made.status_code, odd.status_code) == (202, 202)
        if side == "after":
            assert state(client, made) == "waiting", "the work is not lost with the service, and waits for a worker"
            with running(side, (*PYTHON, "engine", "worker", "service:queue"), ironclaim_url, tmp_path):
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
