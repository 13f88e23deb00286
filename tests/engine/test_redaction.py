"""Passwords: in no error, repr or line of a command, whatever characters they are of and wherever in a url they stand."""

import logging
import random
import traceback
from dataclasses import fields
from pathlib import Path
from urllib.parse import quote

import pytest

from chaos.attendance import Attendance
from chaos.errors import HarnessError
from chaos.probe import address_of
from engine import AsyncQueue, Channel, ConnectOptions, EngineError, Malformed, Queue
from engine.command.output import print_error
from engine.errors import redacted, redacted_url
from engine.http.settings import HttpSettings
from engine.logs import JsonFormatter, TextFormatter
from tests.engine.command.running import ironclaim
from tests.engine.helpers.producing import refused

_HOSTILE = "#?/@:%&=[]{}<>\\|^`'\"!$*+,;~ \té€\0\n\ud800"
_SECRET = "hunter2"


def passwords() -> list[str]:
    """Passwords that begin and end with a secret, with hostile characters between."""
    dice, single = random.Random(7), [f"{_SECRET}{one}{_SECRET}" for one in _HOSTILE]
    return single + [_SECRET + "".join(dice.choices(_HOSTILE, k=dice.randint(2, 6))) + _SECRET for _ in range(60)]


def urls(password: str) -> list[str]:
    encoded = quote(password.replace("\ud800", "x"), safe="")
    return [
        f"redis://:{password}@host", f"redis://user:{password}@127.0.0.1:6379/0?no_such_option=1",
        f"rediss://{password}@host:1/0", f"redis://:{encoded}@host?no_such_option=1",
        # Without a host: what is behind an @ would be one.
        f"redis://:{password.replace('@', '')}", f"redis://host/0?password={password}&no_such_option=1",
        f"redis://host:x/?username={password}&password={encoded}", f"sentinel://:{password}@a:1,b:2/service/more",
        f"sentinel://a:1,b:2/service?sentinel_password={password}&sentinel_other=1", f"redis+cluster://user:{password}@a:1,b:2/3",
        f"http://host/?token={password}", f"user:{password}@host", f"postgresql://u:{password}@h/db",
    ]  # fmt: skip


@pytest.mark.slow
def test_no_error_about_a_url_has_its_password() -> None:
    for password in passwords():
        for url in urls(password):
            assert _SECRET not in redacted_url(url), url
            for make in (Queue, AsyncQueue, Channel):
                try:
                    make("q", url=url)
                except EngineError as error:
                    told = [str(error), repr(error), *map(str, error.args), *traceback.format_exception(error)]
                    if isinstance(error, Malformed):
                        told.append(repr(error.value))
                    # The lines of this file that made it are part of a traceback, and do not spell the password.
                    assert not any(_SECRET in text for text in told), (url, told)
                except UnicodeError as error:
                    pytest.fail(f"{url!r}: {error!r}")


def test_no_repr_and_no_log_record_has_a_password() -> None:
    plain = "hunter2#x/é"
    encoded = quote(plain, safe="")
    url, sentinels = f"redis://u:{encoded}@127.0.0.1:1/0", f"sentinel://:{encoded}@a:1,b:2/s?sentinel_password={encoded}"
    quick, told = ConnectOptions(timeout_ms=10, connect_timeout_ms=10, deadline_ms=10), list[str]()
    for queue in (Queue("q", url=url, connect=quick), Queue("q", url=sentinels, connect=quick), AsyncQueue("q", url=url)):
        told += [queue.url, repr(queue), repr(queue.endpoint), repr(queue.endpoint.route), repr(queue.endpoint.options)]
    told += traceback.format_exception(refused(EngineError, "", Queue("q", url=url, connect=quick).counts))
    told.append(repr(HttpSettings(url=url)))
    assert not {field.name: field for field in fields(Attendance)}["url"].repr
    told.append(str(refused(HarnessError, r"rediss://\*\*\*@host", address_of, f"rediss://u:{encoded}@host:1")))
    record = logging.LogRecord("ironclaim.worker", logging.ERROR, "", 0, "%s is away", (url,), None)
    try:
        raise OSError(f"redis://:{plain}@host is away, password={encoded}")
    except OSError as error:
        record.exc_info = (OSError, error, error.__traceback__)
    for formatter in (TextFormatter(), JsonFormatter()):
        told.append(formatter.format(record))
        assert "***@127.0.0.1:1/0 is away" in told[-1]
    assert not [text for text in told if _SECRET in text]
    # What a service logs itself is its own.
    own = logging.LogRecord("shop", logging.ERROR, "", 0, "token=%s", ("a",), None)
    assert "token=a" in TextFormatter().format(own) and "token=a" in JsonFormatter().format(own)


def test_what_can_be_known_of_a_url_is_told() -> None:
    for same in ("redis://127.0.0.1:6379/0?socket_timeout=1", "unix:///run/redis.sock?db=1"):
        assert redacted_url(same) == same
    assert redacted_url("redis://user:pw@[::1]:6379/3") == "redis://***@[::1]:6379/3"
    service = "sentinel://a:1,b:2/service?sentinel_password="
    assert redacted_url(f"{service}x&db=1") == f"{service}***"
    for url, said in (
        ("redis://:hunter2@host:6379/0?foo=1", r"redis://\*\*\*@host:6379/0\?foo=1.*'foo'"),
        # What stands for a port may be the password of somebody who forgot the host.
        ("redis://localhost:port", r"^url: 'redis://\*\*\*'"), ("redis://:hunter2#x@host", "%23"),
    ):  # fmt: skip
        refused(Malformed, said, Queue, "q", url=url)


def test_texts_of_others_are_printed_without_passwords(capsys: pytest.CaptureFixture[str]) -> None:
    for text in (
        "OperationalError: postgresql://u:hunter2@h/db is away", "redis://:hunter2#/?hunter2@host:6379 and more",
        'connection failed: host=h password=hunter2 dbname="x"', "connection failed: password='hunter2 \\' hunter2' host=h",
    ):  # fmt: skip
        assert "hunter2" not in redacted(text)
        print_error(text)
    told = capsys.readouterr().err
    assert "hunter2" not in told and told.count("ironclaim: ") == 4


def test_each_url_of_a_sentence_is_redacted_alone() -> None:
    dice, words = random.Random(11), passwords()
    joins = (" is away, and ", " -> ", ", ", ";", " (instead of ", "\nthen '", " from [")
    for _ in range(400):
        count, told, expected = dice.choice((2, 3)), "the server ", "the server "
        for at in range(count):
            scheme, host = dice.choice(("redis", "rediss", "postgresql", "redis+cluster")), f"h{at}.example:{at + 1}/{at}"
            join = dice.choice(joins) if at < count - 1 else " is away"
            told += f"{scheme}://user:{dice.choice(words)}@{host}{join}"
            expected += f"{scheme}://***@{host}{join}"
        assert redacted(told) == expected, told
    # One without a password beside one with it, and a password with what looks like another url.
    beside = "see https://a.example/b, (redis://h:1) and redis://:hunter2@h:2"
    assert redacted(beside) == "see https://a.example/b, (redis://h:1) and redis://***@h:2"
    assert "hunter2" not in redacted("redis://:hunter2 hunter://x:hunter2@h is away, redis://u:hunter2://hunter2@h")


@pytest.mark.parametrize("piece", ["a://", "a://b@", "a", "a_"])
def test_what_others_write_is_searched_in_time_by_its_length(piece: str) -> None:
    """A second or two. In time by the square, each takes more than the deadline of tests."""
    repeated = piece.removesuffix("b@")
    many = repeated * ((1 << 22) // len(repeated))
    for text in (f"{piece}{many}=", f"@{many}://"):
        assert redacted(text) == text.replace("b@", "***@"), "there is no other password"
    assert redacted_url(f"{many[: 1 << 19]}=") in (f"{many[: 1 << 19]}=", "***", "a://***")


def test_no_command_prints_the_password_of_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "with_password.py").write_text(
        "from engine import Queue\nqueue = Queue('q', url='redis://:hunter2@127.0.0.1:1')\n"
        "@queue.job('a')\ndef a() -> None: ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for line in (
        "worker with_password:queue --url redis://:hunter2@127.0.0.1:2", "queues redis://:hunter2@host",
        "worker with_password:queue --url redis://:hunter2#x@host", "queues --url redis://host?password=hunter2&foo=1",
        "jobs list --queue q --url redis://:hunter2#x@host", "health --url redis://u:hunter2#@127.0.0.1:1 --queue q",
        "jobs list --queue q --limit redis://:hunter2@host", "queues --dsn=redis://:hunter2@host",
    ):  # fmt: skip
        done = ironclaim(*line.split())
        assert done.returncode in (1, 2) and done.stdout + done.stderr
        assert "hunter2" not in done.stdout + done.stderr, line


def test_no_help_prints_the_password_of_the_environment() -> None:
    given = {"IRONCLAIM_URL": "redis://:hunter2#@host:1", "IRONCLAIM_PREFIX": "redis://u:hunter2@host"}
    for command in (("queues",), ("worker",), ("serve",), ("health",), ("jobs", "show")):
        with pytest.MonkeyPatch.context() as patched:
            for name, value in given.items():
                patched.setenv(name, value)
            done = ironclaim(*command, "--help")
        assert done.returncode == 0 and "IRONCLAIM_URL" in done.stdout
        assert "hunter2" not in done.stdout and "redis://***@host:1" in done.stdout.replace("\n", ""), command
    assert "default: 8080" in ironclaim("serve", "--help").stdout.replace("\n", " ")
