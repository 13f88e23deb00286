"""`ironclaim serve`: a process that serves what its flags say, to whom they say."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from engine import Malformed, Queue, testing
from engine.command.serve import read_tokens
from tests.engine.command.running import ROOT
from tests.engine.helpers.waiting import wait_until


@contextmanager
def serving(*words: str) -> Iterator[httpx.Client]:
    """A client of such a process, which has ended well at SIGTERM afterwards."""
    port = testing.free_port()
    process = subprocess.Popen([sys.executable, "-m", "engine", "serve", "--port", str(port), *words], cwd=ROOT)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
            wait_until(lambda: answers(client) or process.poll() is not None, "it serves", 120)
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) in (0, -signal.SIGTERM)


def answers(client: httpx.Client) -> bool:
    try:
        return client.get("/openapi.json").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.slow
def test_it_serves_what_its_flags_say(ironclaim_url: str, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.txt"
    tokens.write_text(f"# who\nci operate {'c' * 32} mails\n")
    with serving("--url", ironclaim_url, "--allow-changes", "--tokens", str(tokens)) as client:
        known = {"Authorization": f"Bearer {'c' * 32}"}
        assert client.post("/api/queues/mails/jobs", json={"name": "a"}).status_code == 401
        assert client.post("/api/queues/mails/jobs", json={"name": "a"}, headers=known).status_code == 201
        assert client.post("/api/queues/bills/jobs", json={"name": "a"}, headers=known).status_code == 403


@pytest.mark.slow
def test_it_serves_the_channels_of_a_file(ironclaim_url: str, tmp_path: Path) -> None:
    file = tmp_path / "channels.toml"
    file.write_text('[[channels]]\nregex = "room-.*"\n')
    with serving("--url", ironclaim_url, "--allow-changes", "--channels", str(file)) as client:
        assert client.put("/channel/room-1/message/m1", content="1").json() == {"channelID": "room-1", "messageID": "m1"}
        assert client.put("/channel/hall-1/message/m1", content="1").json()["code"] == "dsps.storage.invalid-channel"


@pytest.mark.slow
def test_its_metrics_want_workers_as_its_flags_say(ironclaim_url: str) -> None:
    words = ("--workers-min", "0", "--service-ms", "1000", "--concurrency", "1", "--drain-ms", "1000")
    with Queue("mails", url=ironclaim_url) as queue, serving("--url", ironclaim_url, *words, "--workers-max", "9") as client:
        assert 'ironclaim_wanted_workers{queue="mails"} 0' in client.get("/api/queues/mails/metrics").text
        for _ in range(20):
            queue.enqueue("a", {})
        # At least 20 jobs in a second, of a second each, want 25 workers with one handler.
        assert 'ironclaim_wanted_workers{queue="mails"} 9' in client.get("/api/queues/mails/metrics").text


#: A file of tokens begins so: with three lines that name none.
COMMENTS = "\n# who may what\n#who\n"


def test_a_file_of_tokens_may_have_comments(tmp_path: Path) -> None:
    file, secret = tmp_path / "tokens.txt", "c" * 32
    file.write_text(f"{COMMENTS}ci operate {secret} mails,bills\n  # one more\nboard read {secret}\n")
    found = [("ci", "operate", secret, ("mails", "bills")), ("board", "read", secret, ())]
    assert [(token.name, token.role, token.secret, token.queues) for token in read_tokens(file)] == found


def test_a_bad_line_of_the_tokens_is_named_and_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "tokens.txt"
    secret = "c" * 32
    # A comma alone names no queue, and without one the token would be for all of them.
    lines = {"ci operate": "line 4 of", f"ci operate {secret} ,": "line 4 of", f"ci boss {secret}": "token.role"}
    for line, told in {**lines, "ci read short-secret": "token.secret"}.items():
        file.write_text(f"{COMMENTS}{line}\n")
        with pytest.raises(Malformed) as refused:
            read_tokens(file)
        assert told in str(refused.value) and "short-secret" not in str(refused.value)
