"""What handlers log carries their job, worker and queue, wherever they run; nothing that they log is lost. What the log says of
ends that came after their lease was lost, or taken for lost."""

import asyncio
import copy
import io
import json
import logging
import logging.config
import logging.handlers
import os
import pickle
import queue as queues
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import Bury, Discard, Handlers, Job, Queue, Worker
from engine.errors import logger
from engine.logs import JsonFormatter, Source, TextFormatter, _sendable, give_form  # pyright: ignore[reportPrivateUsage]
from engine.worker.executor import _why  # pyright: ignore[reportPrivateUsage]
from engine.worker.machine.events import LoseLease
from engine.worker.runs import LateEnds, Runs
from tests.engine.command.running import ROOT
from tests.engine.helpers import warm
from tests.engine.ops import Claimed, Ended, EndResult, Failure, Finish, FinishedAndClaimed, Release, Retry
from tests.engine.using import Lease, LeasedJob, raises, some_handlers, wait_until
from tests.given import Output

log = logging.getLogger("shop.orders")


@pytest.mark.parametrize(("starved_ms", "said"), [(0, ""), (1, ": this process stood still for 1 ms, so it was not renewed")])
def test_a_lost_lease_is_put_down_to_this_process_only_where_it_stood_still(starved_ms: int, said: str) -> None:
    assert _why(LoseLease(Lease("j", 1, "n"), starved_ms)).partition(", and ")[0] == said


@pytest.fixture
def lines() -> Iterator[list[dict[str, Any]]]:
    """What is logged, as JSON."""
    found: list[dict[str, Any]] = []

    kept, root = logging.Handler(), logging.getLogger()
    kept.emit = lambda record: found.append(json.loads(kept.format(record)))
    kept.setFormatter(JsonFormatter())
    before = root.level
    root.addHandler(kept)
    root.setLevel(logging.INFO)
    yield found
    root.removeHandler(kept)
    root.setLevel(before)


def said(lines: list[dict[str, Any]], text: str) -> dict[str, Any]:
    (line,) = [line for line in lines if line["message"] == text]
    return line


def run(queue: Queue, handlers: Handlers, *jobs: str, **settings: Any) -> None:
    """Enqueue these jobs, and run them."""
    for job in jobs:
        queue.enqueue("work", {"n": 1}, id=job, attempts=1)
    settings = {"sweep_ms": 50, **settings}
    Worker(queue, handlers, name="w", **settings).run(burst=True)


def fields(line: dict[str, Any]) -> tuple[object, ...]:
    return tuple(line.get(name) for name in ("worker", "queue", "job_id", "job_name", "attempt"))


OF_J = ("w", "q", "j", "work", 1)


@pytest.mark.feature("BN37")
@pytest.mark.parametrize("inline", [False, True])
def test_records_of_a_handler_in_a_thread_carry_its_job(queue: Queue, lines: list[dict[str, Any]], inline: bool) -> None:
    handlers, fences = Handlers(), list[int]()

    @handlers("work", inline=inline)
    def work(job: Job) -> None:
        fences.append(job.fence)
        log.info("in a thread")
        try:
            raise ValueError("no")
        except ValueError:
            log.exception("it failed")

    run(queue, handlers, "j")
    log.info("outside")
    line = said(lines, "in a thread")
    assert fields(line) == OF_J and line["fence"] == fences[0] and line["logger"] == "shop.orders"
    failed = said(lines, "it failed")
    assert fields(failed) == OF_J and failed["traceback"].endswith("ValueError: no")
    assert fields(said(lines, "outside")) == (None,) * 5


@pytest.mark.feature("BN37")
def test_records_of_coroutines_carry_their_own_job_while_they_take_turns(queue: Queue, lines: list[dict[str, Any]]) -> None:
    handlers = Handlers()

    async def deeper(word: str) -> None:
        await asyncio.sleep(0)
        log.info(word)

    @handlers("work")
    async def work(job: Job) -> None:
        for turn in range(5):
            await asyncio.sleep(0.001)
            await asyncio.gather(deeper(f"task of {job.id} {turn}"), asyncio.to_thread(log.info, f"thread of {job.id} {turn}"))

    run(queue, handlers, *"abc")
    for job in "abc":
        for turn in range(5):
            for kind in ("task", "thread"):
                assert fields(said(lines, f"{kind} of {job} {turn}")) == ("w", "q", job, "work", 1)


def test_records_of_a_batch_carry_the_name_and_of_one_job_its_id(queue: Queue, lines: list[dict[str, Any]]) -> None:
    run(queue, some_handlers(lambda jobs: log.info("batch of %d", len(jobs)), batch=2), *"abc")
    assert fields(said(lines, "batch of 2")) == ("w", "q", None, "work", None)
    assert fields(said(lines, "batch of 1")) == ("w", "q", "c", "work", 1)


def test_records_of_the_worker_itself_carry_its_queue_and_no_job_of_another(queue: Queue, lines: list[dict[str, Any]]) -> None:
    run(queue, some_handlers(raises(ValueError("no"))), "j")
    (failed,) = [line for line in lines if "failed" in line["message"]]
    assert fields(failed) == OF_J
    others = [line for line in lines if line["logger"] == "ironclaim.worker" and line is not failed]
    assert others and all(fields(line) == ("w", "q", None, None, None) for line in others)


def test_what_a_record_has_of_its_own_stays(queue: Queue, lines: list[dict[str, Any]]) -> None:
    """`extra` may name the same fields: logging refuses names that a record has already."""
    run(queue, some_handlers(lambda job: log.info("own", extra={"queue": "own", "job_id": 7, "attempt": "x"})), "j")
    assert fields(said(lines, "own")) == ("w", "own", 7, "work", "x") and queue.counts().finished == 1


def test_json_has_what_extra_gave_a_record_and_survives_what_it_cannot_say(lines: list[dict[str, Any]]) -> None:
    log.info("sent", extra={"order": 7, "to": {"city": "Bern"}, "level": "no", "when": Path("a"), "odd": {(1, 2): 3}})
    line = said(lines, "sent")
    assert (line["order"], line["to"], line["when"], line["odd"]) == (7, {"city": "Bern"}, "a", "{(1, 2): 3}")
    assert line.keys() == {"time", "level", "logger", "message", "order", "to", "when", "odd"} and line["level"] == "info"


def test_a_job_that_its_handler_buries_is_a_warning_and_a_discarded_one_is_not(queue: Queue, lines: list[dict[str, Any]]) -> None:
    def work(job: Job) -> None:
        raise (Bury if job.id == "b" else Discard)("no such order")

    run(queue, some_handlers(work), "b", "d")
    ended = [line for line in lines if " ended: " in line["message"]]
    assert {line["job_id"]: line["level"] for line in ended} == {"b": "warning", "d": "info"}


def test_formats_and_queues_of_the_standard_library_see_the_fields(queue: Queue) -> None:
    """Text formats, filters, handlers that pass copies on to a thread, and pickles for sockets."""
    told: queues.SimpleQueue[Any] = queues.SimpleQueue()
    seen, pickles, stream = list[str](), list[bytes](), io.StringIO()
    direct, passing = logging.StreamHandler(stream), logging.handlers.QueueHandler(told)
    direct.setFormatter(logging.Formatter("%(job_id)s of %(queue)s: %(message)s"))

    def watch(record: logging.LogRecord) -> bool:
        seen.append(f"{record.job_id} {hasattr(record, 'other')}")  # type: ignore[attr-defined]  # pyright: ignore
        pickles.append(pickle.dumps(record))
        assert vars(copy.copy(record))["job_id"] == "j"
        return True

    direct.addFilter(watch)
    own = logging.getLogger("shop.formats")
    own.propagate = False
    own.handlers = [direct, passing]
    own.setLevel(logging.INFO)
    run(queue, some_handlers(lambda job: own.info("it is %s", "said")), "j")
    assert stream.getvalue() == "j of q: it is said\n" and seen == ["j False"]
    assert vars(told.get_nowait())["job_id"] == "j" and vars(pickle.loads(pickles[0]))["queue"] == "q"


def test_a_record_factory_of_the_service_is_kept() -> None:
    """One that was set before the first worker ran, in a process of its own; here with a class of its own."""
    program = """
        import logging, sys
        class Own(logging.LogRecord):
            def __init__(self, *given, **more):
                super().__init__(*given, **more)
                self.host = "h1"
        logging.setLogRecordFactory(Own)
        logging.basicConfig(format="%(host)s %(job_id)s %(message)s", stream=sys.stdout, level="WARNING")
        from engine.logs import Source, mark_records, running
        from engine.ops.claims import LeasedJob
        from engine.ops.jobs import Lease, Options
        mark_records(); mark_records()
        lease = Lease("j", 1, "n:1")
        running.set((Source("w", "q"), LeasedJob(lease, 0, "work", "main", "main", b"{}", Options(), 0, 0, 1, 0, 0)))
        logging.warning("said")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("h1 j said\n", "")


def test_lines_for_people_name_the_job_of_what_a_handler_logs() -> None:
    formatter = TextFormatter()

    def line(name: str, **more: object) -> str:
        record = logging.makeLogRecord({"name": name, "levelname": "INFO", "msg": "100%% of %s", "args": ("it",), **more})
        return formatter.format(record).split(" ", 2)[2]

    assert line("shop", job_name="work", job_id="j") == "INFO work[j]: 100% of it"
    assert line("shop", job_name="work") == "INFO work: 100% of it" and line("shop") == "INFO 100% of it"
    assert line("ironclaim.worker", job_name="work", job_id="j") == "INFO 100% of it"
    assert not give_form(formatter), "nothing of this process writes to its stderr"


# -- child processes


def in_a_child(job: Job) -> None:
    log.debug("not wanted")
    log.info("in a child: %s", job.payload)
    extra = {"own": {1, 2}, "lock": threading.Lock()}
    thread = threading.Thread(target=lambda: log.warning("in a thread of the child", extra=extra))
    thread.start()
    thread.join()
    quiet.debug("of a logger with a level of its own")
    try:
        raise ValueError("no")
    except ValueError:
        log.exception("it failed")


def dies(job: Job) -> None:
    log.warning("before the end")
    os._exit(3)


def says_to_odd(job: Job) -> str:
    logging.getLogger("shop.odd").info("said")
    return job.id


quiet = logging.getLogger("shop.quiet")


@pytest.mark.feature("BN37")
def test_records_of_a_child_process_are_written_by_its_worker(queue: Queue, lines: list[dict[str, Any]]) -> None:
    quiet.setLevel(logging.DEBUG)
    run(queue, some_handlers(in_a_child), "j", processes=1)
    quiet.setLevel(logging.NOTSET)
    texts = ["in a child: {'n': 1}", "in a thread of the child", "of a logger with a level of its own", "it failed"]
    assert [line["message"] for line in lines if line["logger"].startswith("shop")] == texts
    for text in texts:
        assert fields(said(lines, text)) == OF_J
    assert said(lines, "it failed")["traceback"].endswith("ValueError: no")


def test_nothing_that_a_child_has_logged_is_lost_with_it(queue: Queue, lines: list[dict[str, Any]]) -> None:
    run(queue, some_handlers(dies), "j", processes=1)
    assert fields(said(lines, "before the end")) == OF_J


@pytest.mark.slow
def test_a_filter_that_raises_keeps_no_answer_of_a_child_back(queue: Queue, lines: list[dict[str, Any]], capsys: Any) -> None:
    odd, broken = logging.getLogger("shop.odd"), raises(ValueError("no"))
    for job in ("a", "b"):
        queue.enqueue("work", {}, id=job, result_ttl_ms=60_000)
    odd.addFilter(broken)
    run(queue, some_handlers(says_to_odd), processes=1)
    odd.removeFilter(broken)
    kept = [queue.results.get(job) for job in ("a", "b")]
    assert [result and result.get() for result in kept] == ["a", "b"] and capsys.readouterr().err.count("ValueError: no") == 2


def test_what_cannot_be_logged_is_said_on_stderr(capsys: Output) -> None:
    ours = logger("ironclaim.unlogged")
    ours.addFilter(raises(ValueError("no")))
    ours.warning("a")
    said, *_, last = capsys.readouterr().err.splitlines()
    assert (said, last) == ("a record could not be logged, because of ValueError:", "ValueError: no")


def test_a_record_is_sent_without_what_only_its_process_knows() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise SystemError

    sent = _sendable(logging.makeLogRecord({"msg": "%s", "args": ({1},), "own": Odd(), "deep": {"a": [object]}, "n": 1}))
    assert pickle.loads(pickle.dumps(sent)) == sent
    assert (sent["msg"], sent["args"], sent["own"], sent["n"]) == ("{1}", None, "Odd", 1)
    assert "class 'object'" in sent["deep"]["a"][0]


# -- the command

SERVICE = """
import logging, logging.config
from engine import Queue
{config}
log = logging.getLogger("shop.orders")
early = logging.getLogger("shop.early")
queue = Queue("q", url={url!r})

@queue.job("work")
def work() -> None:
    log.info("hello")

@queue.job("later")
async def later() -> None:
    log.info("hello from a coroutine")
"""
CONFIGS = {
    "none": "",
    "console": """logging.config.dictConfig({"version": 1, "formatters": {"f": {"format": "OWN %(message)s"}},
    "handlers": {"h": {"class": "logging.StreamHandler", "formatter": "f"}}, "root": {"handlers": ["h"], "level": "INFO"}})""",
    "own logger": """logging.config.dictConfig({"version": 1, "formatters": {"f": {"format": "OWN %(message)s"}},
    "handlers": {"h": {"class": "logging.StreamHandler", "formatter": "f"}},
    "loggers": {"shop": {"handlers": ["h"], "level": "INFO", "propagate": False}}})""",
    "file": """logging.config.dictConfig({"version": 1, "formatters": {"f": {"format": "OWN %(message)s"}},
    "handlers": {"h": {"class": "logging.FileHandler", "filename": FILE, "formatter": "f"}},
    "root": {"handlers": ["h"], "level": "INFO"}})""",
}


def output_of(folder: Path, queue: Queue, config: str, *options: str) -> tuple[list[str], str]:
    """The lines on stderr of a worker of a module that configures logging so, and its log file."""
    name, file = f"service_{os.getpid()}_{len(config)}_{len(options)}", folder / "own.log"
    (folder / f"{name}.py").write_text(SERVICE.format(config=CONFIGS[config].replace("FILE", repr(str(file))), url=queue.url))
    queue.enqueue("work", {}, id="j")
    queue.enqueue("later", {}, id="k")
    words = ("-m", "engine", "worker", f"{name}:queue", "--name", "w", "--burst", "--sweep-ms", "100", *options)
    done = warm.run(words, cwd=folder, env={**os.environ, "PYTHONPATH": f"{ROOT}:{folder}"})
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines(), file.read_text() if file.exists() else ""


SLOWLY = [("none", "0"), ("none", "1"), ("console", "0"), ("own logger", "0"), ("own logger", "1")]
CONFIGURED = [("console", "1"), *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOWLY)]


@pytest.mark.parametrize(("config", "processes"), CONFIGURED)
def test_log_json_holds_whatever_the_module_configures(queue: Queue, tmp_path: Path, config: str, processes: str) -> None:
    lines, _ = output_of(tmp_path, queue, config, "--log-json", "--processes", processes)
    found = [json.loads(line) for line in lines]
    assert fields(said(found, "hello")) == OF_J and fields(said(found, "hello from a coroutine")) == ("w", "q", "k", "later", 1)
    # The configuration turns off the loggers that were there before it; those of the worker stay on.
    assert [line["level"] for line in found if line["message"].startswith("worker w: queue q")] == ["info"]


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["0", "1"])
def test_without_log_json_the_module_decides_how_records_look(queue: Queue, tmp_path: Path, processes: str) -> None:
    lines, _ = output_of(tmp_path, queue, "console", "--processes", processes)
    assert sorted(line for line in lines if "hello" in line) == ["OWN hello", "OWN hello from a coroutine"]
    assert any(line.startswith("OWN worker w: queue q") for line in lines)


@pytest.mark.slow
def test_log_json_that_cannot_hold_says_so(queue: Queue, tmp_path: Path) -> None:
    lines, file = output_of(tmp_path, queue, "file", "--log-json", "--processes", "1")
    assert not lines and file.count("OWN hello\n") == 1 and "--log-json: the modules have configured logging" in file


def test_lines_of_the_command_name_the_job(queue: Queue, tmp_path: Path) -> None:
    lines, _ = output_of(tmp_path, queue, "none", "--processes", "1")
    assert [line.split(" ", 2)[2] for line in lines if line.endswith("hello")] == ["INFO work[j]: hello"]
    wait_until(lambda: queue.counts().finished == 2, "the end")


def ends_of(lines: list[dict[str, Any]]) -> dict[str, tuple[str, str, str, bool]]:
    """How the log tells the end of each job's run: level, outcome, the end of the message, whether with a stack trace."""
    ended = [(line, line["message"].rpartition("; ")[2]) for line in lines if "outcome" in line]
    return {line["job_id"]: (line["level"], line["outcome"], end, "traceback" in line) for line, end in ended}


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_the_log_says_what_became_of_a_failed_run(queue: Queue, lines: list[dict[str, Any]], kind: str) -> None:
    handlers = Handlers()

    def work(job: Job) -> None:
        raise {"rules": KeyError, "asks": Bury, "drops": Discard}.get(job.id, ValueError)("no")

    async def awaited(job: Job) -> None:
        work(job)

    handlers("work", bury_on=KeyError)(work if kind == "thread" else awaited)
    handlers("other")(lambda job: None)
    slow: dict[str, Any] = {"backoff": "fixed", "backoff_ms": 60_000}
    options: dict[str, Any] = {"again": slow, "jitter": {**slow, "jitter": 0.5}, "last": {"attempts": 1}}
    options |= {"skips": {"skip_on": ["ValueError"]}, "goes": {"reroute_on": {"ValueError": "other"}}}
    for job in ("again", "jitter", "last", "rules", "asks", "drops", "skips", "goes"):
        queue.enqueue("work", 1, id=job, **dict[str, Any]({"attempts": 4, **options.get(job, {})}))
    assert Worker(queue, handlers, name="w", sweep_ms=50).run(burst=True, delayed=False) == "empty"
    assert ends_of(lines) == {
        "again": ("warning", "retried", "again in 60000 ms", True), "asks": ("warning", "dead", "dead", False),
        "jitter": ("warning", "retried", "again in at most 60000 ms", True), "drops": ("info", "discarded", "discarded", False),
        "last": ("warning", "dead", "dead: no attempt is left", True), "skips": ("info", "skipped", "skipped (skip_on)", False),
        "rules": ("warning", "dead", "dead, by the rules of its handler (bury_on, retry_on)", True),
        "goes": ("warning", "rerouted", "rerouted to other (reroute_on)", True),
    }  # fmt: skip


def test_a_soft_timeout_in_vain_is_told_once(queue: Queue, lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a coroutine it is not told, also where the time is over before anything could interrupt it."""
    handlers, stoppable = Handlers(), Runs.stoppable

    def late(self: Runs, leased: LeasedJob, stop: Callable[[], None], *, alone: bool = True) -> None:
        wait_until(lambda: leased.lease in self._soft_over, "its soft timeout is over")  # pyright: ignore[reportPrivateUsage]
        stoppable(self, leased, stop, alone=alone)

    monkeypatch.setattr(Runs, "stoppable", late)

    handlers("work")(lambda job: wait_until(lambda: job.cancelled, "its soft timeout is over"))

    @handlers("heard")
    async def heard(job: Job) -> None:
        await asyncio.sleep(60)

    for id in ("a", "b"):
        queue.enqueue("work", 1, id=id, soft_timeout_ms=50)
    queue.enqueue("heard", 1, id="c", soft_timeout_ms=50, attempts=1)
    run(queue, handlers, concurrency=1)
    (line,) = [line for line in lines if "goes on in its thread" in line["message"]]
    assert (line["level"], line["job_name"]) == ("warning", "work")


LEASES = tuple(Lease(job, 7, f"n:{job}") for job in "ab")
OK: tuple[EndResult, str] = ("ok", "finished")
STALE: tuple[EndResult, str] = ("stale", "")
CANCELLED: tuple[EndResult, str] = ("stale", "cancelled")
COUNTS = "job a: the end of the run with fence 7 counts: no other worker had claimed it (finished)"
REFUSED = "job b: the end of the run with fence 7 was refused: its lease was over, so the job runs again, unless it is gone"


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[tuple[str, str, Any]]]]:
    with caplog.at_level(logging.INFO, logger="ironclaim.worker"):
        yield lambda: [(one.levelname, one.getMessage(), getattr(one, "job_id", "")) for one in caplog.records]


def test_an_end_of_a_lost_lease_is_told_as_the_server_took_it(told: Callable[[], list[Any]]) -> None:
    ends = LateEnds(Source("w"))
    ends.lost(LEASES[0])
    ends.lost(LEASES[1])
    ends.answered(Finish(LEASES), Ended(0, (OK, STALE)))
    assert told() == [("INFO", COUNTS, "a"), ("WARNING", REFUSED, "b")]
    ends.answered(Finish(LEASES[:1]), Ended(0, (OK,)))
    assert len(told()) == 2, "each is told once"


def test_a_refusal_is_told_although_nobody_had_noticed_the_loss(told: Callable[[], list[Any]]) -> None:
    LateEnds(Source("w")).answered(Finish(LEASES), FinishedAndClaimed(0, Ended(0, (OK, STALE)), Claimed(0, "leased", 0, ())))
    failed = Retry(tuple(Failure(lease, "x") for lease in LEASES))
    LateEnds(Source("w")).answered(failed, Ended(0, (("ok", "retried"), CANCELLED)))
    cancelled = "job b: the end of the run with fence 7 was refused, for the job was cancelled"
    assert told() == [("WARNING", REFUSED, "b"), ("INFO", cancelled, "b")]


def test_what_ends_as_it_should_and_what_never_ran_are_not_told(told: Callable[[], list[Any]]) -> None:
    ends = LateEnds(Source("w"))
    ends.answered(Finish(LEASES), Ended(0, (OK, OK)))
    ends.answered(Release(LEASES), Ended(0, (STALE, STALE)))
    assert told() == []
