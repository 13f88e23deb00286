"""The commands that look at queues, jobs, dead jobs, schedules and workers, on queues with something in them."""

import json
import subprocess
import sys
from typing import Any

import pytest

from engine import Handlers, Job, Queue, Worker, options
from engine.models.model import random_id
from tests.engine.command.running import ROOT, Done, ironclaim, refused, said
from tests.engine.using import Bury, Desk, Failure, Options, producing, waiting


def kill_some(queue: Queue, *jobs: str, **needs: list[str]) -> None:
    """Jobs that fail for good, and those that need them."""
    handlers = Handlers()

    @handlers("send")
    def send(job: Job) -> None:
        raise OSError(f"no route for {job.id}")

    for job in jobs:
        queue.enqueue("send", {"to": job}, id=job, attempts=1)
    for child, parents in needs.items():
        queue.enqueue("send", {}, id=child, needs=parents)
    Worker(queue, handlers, sweep_ms=50).run(burst=True)
    if needs:
        Worker(queue, handlers).run(burst=True)
        waiting.wait_until(lambda: queue.counts().dead == len(jobs) + len(needs), "the children are dead")


def test_what_is_not_kept_of_an_ended_job_is_not_told_as_a_default(queue: Queue, at: tuple[str, ...]) -> None:
    handlers = Handlers()

    @handlers("send")
    def send(job: Job) -> None:
        if job.attempt < 3:
            raise OSError("no route")

    queue.enqueue("send", {}, id="third", priority=9, attempts=3, backoff_ms=1)
    Worker(queue, handlers, sweep_ms=50).run(burst=True)
    waiting.wait_until(lambda: queue.jobs.state("third") == "finished", "the third attempt")
    (row,) = said("jobs", "list", "--state", "finished", *at)
    assert (row["priority"], row["failures"], row["attempts"]) == (None, None, None)
    shown = said("jobs", "show", "third", *at)
    unknown = ("priority", "failures", "claims", "crashes", "headers", "options")
    assert {shown[name] for name in unknown} == {None} and shown["fence"] != 0
    lines = [line.split() for line in ironclaim("jobs", "show", "third", *at).stdout.splitlines()]
    assert all([name, "-"] in lines for name in unknown)
    # Of one that waits they are facts.
    queue.enqueue("send", {}, id="waits")
    assert [said("jobs", "show", "waits", *at)[name] for name in ("priority", "failures", "fence", "claims")] == [5, 0, 0, 0]


def test_each_drawn_id_is_an_argument_of_commands(queue: Queue, at: tuple[str, ...]) -> None:
    drawn = [*queue.enqueue_many({"name": "send", "payload": {}} for _ in range(1_000))]
    ids = [one.job for one in drawn] + [random_id() for _ in range(1_000)]
    # One of 32 began with a dash or an underscore.
    assert {id[0].isalnum() for id in ids} == {True} and {len(id) for id in ids} == {12} and len({*ids}) == 2_000
    assert {"-", "_"} < {one for id in ids for one in id}
    odd = min(ids[:1_000])
    assert said("jobs", "show", odd, *at)["job"] == said("why", odd, *at)["job"] == odd


@pytest.mark.feature("BQ30", "MQ14")
def test_dead_jobs_are_listed_requeued_discarded_and_cleared(queue: Queue, at: tuple[str, ...]) -> None:
    kill_some(queue, "a", "b", "c")
    rows = said("dead", "list", *at)
    assert {row["job"]: row["error"] for row in rows} == {job: f"OSError: no route for {job}" for job in ("a", "b", "c")}
    assert said("jobs", "show", "a", *at)["errors"][0]["trace"].count("no route") >= 1
    assert said("dead", "requeue", "a", *at)["result"] == "done" and said("dead", "discard", "b", *at)["result"] == "done"
    assert (queue.counts().waiting, queue.counts().dead) == (1, 1)
    assert said("dead", "requeue", "--all", "--name", "other", *at)["requeued"] == 0
    assert [said("dead", "clear", "--older-than", age, *at)["cleared"] for age in ("1h", "0s")] == [0, 1]
    assert ironclaim("dead", "list", *at).stdout == "no job is dead\n" and ironclaim("dead", "requeue", *at).returncode == 2


def test_a_workflow_is_shown_retried_and_cancelled(queue: Queue, at: tuple[str, ...]) -> None:
    kill_some(queue, "a", b=["a"], c=["b"])
    found = said("jobs", "workflow", "b", *at)
    assert (found["counts"], [job["id"] for job in found["jobs"]], found["more"]) == ({"dead": 3}, ["a", "b", "c"], False)
    assert ironclaim("jobs", "workflow", "b", "--limit", "1", *at).stdout.endswith("1 dead; there are more: --limit\n")
    told = ironclaim("dead", "requeue", "a", "--with-children", *at)
    assert told.stdout == "requeued  a\nqueue     mails\nwas       dead\nchildren  2\nleft      0\n"
    again = ironclaim("dead", "requeue", "a", "--with-children", *at)
    assert (again.returncode, again.stdout) == (1, "") and "it is waiting" in again.stderr
    assert [queue.jobs.state(job) for job in "abc"] == ["waiting", "blocked", "blocked"]
    told = said("jobs", "workflow", "c", "--cancel", *at) | {"id": "", "job": ""}
    assert told == {"id": "", "job": "", "queue": "mails", "changed": 3, "left": 0, "more": False}
    assert said("jobs", "workflow", "c", "--retry", *at)["changed"] == 0
    assert ironclaim("jobs", "workflow", "nobody", *at).returncode == 1
    assert ironclaim("jobs", "workflow", "a", "--limit", "0", *at).returncode == 2
    assert ironclaim("dead", "requeue", "--all", "--with-children", *at).returncode == 2


def test_a_requeue_names_the_children_that_it_leaves_dead(queue: Queue, at: tuple[str, ...]) -> None:
    needs = {"ship-8": ["charge-8"], "ship-9": ["charge-8", "charge-9"], "bill-9": ["ship-9"]}
    kill_some(queue, "charge-8", "charge-9", **needs)
    told = ironclaim("dead", "requeue", "charge-8", "--with-children", *at).stdout
    assert told.endswith("children  1\nleft      2: ship-9, for charge-9 is dead; bill-9, for ship-9 is dead\n")
    assert [queue.jobs.state(job) for job in ("charge-8", "ship-8", "ship-9", "bill-9")] == ["waiting", "blocked", "dead", "dead"]
    assert said("dead", "requeue", "charge-9", *at)["result"] == "done"
    told = ironclaim("dead", "requeue", "charge-9", "--with-children", *at)
    assert (told.returncode, told.stdout) == (0, "children  2\nqueue     mails\nleft      0\n")
    again = ironclaim("dead", "requeue", "charge-9", "--with-children", "--json", *at)
    assert again.returncode == 1 and {"result": "changed", "children": 0, "left": 0}.items() <= json.loads(again.stdout).items()


def kill_by(queue: Queue, **errors: Exception) -> None:
    """Jobs of several names that fail for good, each with its error, in this order."""
    handlers = Handlers()
    for name, error in errors.items():
        handlers(name)(producing.raises(error))
        queue.enqueue(name, {}, id=name, attempts=1, key=f"of-{name}")
        Worker(queue, handlers, sweep_ms=50).run(burst=True)


def test_dead_jobs_by_name_key_error_and_age(queue: Queue, at: tuple[str, ...]) -> None:
    kill_by(queue, parse=ValueError("no number"), send=OSError("no route"), own=MyValueError("ValueErrors"))

    def listed(*arguments: str) -> list[str]:
        return [row["job"] for row in said("dead", "list", *at, *arguments)]

    assert listed() == ["parse", "send", "own"] and (listed("--name", "send"), listed("--key", "of-own")) == (["send"], ["own"])
    # Whole words: not those of MyValueError.
    assert (listed("--error", "ValueError"), listed("--error", "no route")) == (["parse"], ["send"])
    assert (listed("--error", "no"), listed("--error", "no", "--limit", "1", "--offset", "1")) == (["parse", "send"], ["send"])
    assert (listed("--older-than", "1h"), len(listed("--newer-than", "1h"))) == ([], 3)
    assert [row["job"] for row in said("jobs", "list", "--state", "dead", "--error", "OSError", *at)] == ["send"]
    assert said("dead", "requeue", "--error", "ValueError", *at)["requeued"] == 1
    assert (queue.jobs.state("parse"), listed()) == ("waiting", ["send", "own"])
    assert said("jobs", "list", "--key", "of-send", *at) == []
    assert said("jobs", "list", "--key", "of-parse", "--newer-than", "1h", *at)[0]["job"] == "parse"
    assert said("dead", "requeue", "--older-than", "1h", *at)["requeued"] == 0
    assert "name a job, or say --all, --name" in refused("dead", "requeue", "send", "--error", "OSError", *at)
    bound = "it must be a text of 1 to 200 characters, such as ValueError"
    assert refused("dead", "list", "--error", " ", *at) == f"ironclaim: error: ' ' is not allowed, {bound}\n"


def test_dead_jobs_are_grouped_by_kind_of_error_and_changed_by_it(queue: Queue, at: tuple[str, ...]) -> None:
    errors = {f"send-{number}": ValueError(f"no card {number} at 10.0.0.{number}:80") for number in range(3)}
    kill_by(queue, **errors, other=OSError("no route"))
    groups = said("dead", "by-error", *at)
    # Each has a name of its own here, so each is a group of its own.
    wanted = {("ValueError: no card … at …", name, 1, name) for name in errors} | {("OSError: no route", "other", 1, "other")}
    assert {(group["error"], group["name"], group["jobs"], group["example"]) for group in groups} == wanted
    assert all(group["first"] == group["last"] for group in groups)
    shown = ironclaim("dead", "by-error", "--limit", "3", *at)
    assert shown.stderr == "ironclaim: these are the errors of the 3 jobs that died last; others died before\n"
    alike = ("--error-like", "ValueError: no card 77 at 1.1.1.1:1")
    assert {row["job"] for row in said("dead", "list", *alike, *at)} == set(errors)
    assert said("dead", "requeue", *alike, "--name", "send-1", *at)["requeued"] == 1
    assert said("dead", "discard", *alike, *at)["discarded"] == 2
    assert [row["job"] for row in said("dead", "list", *at)] == ["other"]
    assert ironclaim("dead", "discard", *at).returncode == 2
    assert said("dead", "discard", "--all", *at)["discarded"] == 1 and said("dead", "by-error", *at) == []


class MyValueError(Exception):
    """Its name ends in that of another one."""


def test_more_dead_jobs_than_one_page(desk: Desk) -> None:
    """Those that are meant are found behind others; a requeue of all of them takes each once."""
    for number in range(0, 1_200, 100):
        desk.enqueue(*(f"j{number + at}" for at in range(100)), attempts=1)
        failures = [Failure(job.lease, "ValueError" if number == 1_100 else "OSError") for job in desk.claim(limit=100)]
        desk.run(Bury(tuple(failures)))
    dead = desk.queue.dead
    assert [job.id for job in dead.list(error="ValueError", limit=2, offset=98)] == ["j1198", "j1199"]
    assert dead.requeue_all(error="ValueError") == 100 and dead.list(error="ValueError") == []


def test_show_prints_stack_traces_as_they_were(queue: Queue, at: tuple[str, ...]) -> None:
    kill_some(queue, "a")
    lines = ironclaim("jobs", "show", "a", *at).stdout.splitlines()
    (first,) = [number for number, line in enumerate(lines) if line.startswith("errors")]
    assert "failed, fence" in lines[first] and lines[first].endswith("OSError: no route for a")
    trace = [line.strip() for line in lines[first + 1 :]]
    assert trace[0].startswith(("Traceback", "File")) and 'raise OSError(f"no route for {job.id}")' in trace
    assert "\\n" not in "\n".join(lines)


def test_enqueue_takes_each_option_of_jobs(queue: Queue, at: tuple[str, ...], client: Any) -> None:
    queue.enqueue("send", {}, id="parent")
    options = ("--priority", "7", "--delay-ms", "90s", "--headers", "trace=t1", "--headers", "a=b=c", "--key", "acme")
    more = ("--lifo", "--backoff", "linear", "--jitter", "0.5", "--skip-on", "ValueError,OSError", "--target", '{"stack": ["x"]}')
    others = ("--unique", "u", "--reroute-on", "KeyError=big:gpu")
    made = said("enqueue", "send", "--payload", '{"to": "ada"}', "--id", "j", *options, *more, *others, *at)
    assert made == {"id": "j", "job": "j", "queue": "mails", "result": "created"}
    job = queue.jobs.get("j")
    assert job is not None and (job.payload, job.state, job.priority, job.key) == ({"to": "ada"}, "delayed", 7, "acme")
    assert job.due_ms - job.enqueued_ms == 90_000 and job.headers == {"trace": "t1", "a": "b=c"}
    found = job.options
    assert (found.lifo, found.backoff, found.jitter, found.unique) == (True, "linear", 0.5, "u")
    assert set(found.skip_on) == {"ValueError", "OSError"}
    assert (found.reroute_on, found.target) == ((("KeyError", "big:gpu"),), '{"stack":["x"]}')
    again = said("enqueue", "send", "--unique", "u", *at)
    assert (again["result"], again["holder"]) == ("duplicate", "j")
    said("enqueue", "send", "--id", "k", "--needs", "parent,j", *at)
    custom = ("--backoff", "custom", "--backoff-delays-ms", "10,20", "--run-at-ms", "2100-01-01T00:00:00+00:00")
    said("enqueue", "send", "--id", "l", *custom, *at)
    assert (queue.jobs.state("k"), queue.jobs.state("l")) == ("blocked", "delayed")
    said("enqueue", "send", "--id", "m", "--on-success", '{"name": "report", "payload": 3, "priority": 9}', *at)
    (kept,) = client.keys("*:calls:*")
    assert "report" in client.get(kept)
    last = queue.jobs.get(said("enqueue", "send", *at)["job"])
    assert last is not None and (last.payload, last.options) == ({}, Options())


def test_the_help_of_enqueue_says_what_each_option_is() -> None:
    shown = " ".join(ironclaim("enqueue", "--help").stdout.split())
    for option in options.OPTIONS:
        assert f"--{option.replace('_', '-')} " in shown
    assert "Not claimable before this has passed, by the server's clock" in shown


@pytest.mark.slow
@pytest.mark.feature("MQ22")
def test_queues_and_workers(queue: Queue, at: tuple[str, ...], ironclaim_url: str) -> None:
    queue.enqueue("send", {})
    with Queue("other", url=ironclaim_url) as other:
        other.enqueue("send", {}, delay_ms=60_000)
    rows = {row["queue"]: row for row in said("queues", "--url", ironclaim_url)}
    # Former names are for programs alone.
    heads = ironclaim("queues", "--url", ironclaim_url).stdout.split("\n")[0].split()
    assert "finished" in heads and not {"done", "buried"} & {*heads}
    assert all((row["done"], row["buried"]) == (row["finished_kept"], row["dead_total"]) for row in rows.values())
    assert {name: (row["waiting"], row["delayed"]) for name, row in rows.items()} == {"mails": (1, 0), "other": (0, 1)}
    assert ironclaim("workers", *at).stdout == "no workers\n"
    program = "import sys; from engine import Handlers, Queue, Worker\nhandlers = Handlers()\n"
    program += "handlers('other')(lambda job: None)\nWorker(Queue('mails', url=sys.argv[1]), handlers, name='w1').run()"
    worker = subprocess.Popen([sys.executable, "-c", program, ironclaim_url], cwd=ROOT)
    try:
        rows = waiting.wait_until(lambda: said("workers", *at), "the worker is listed", 120)
        assert [(row["name"], row["pid"], row["alive"], row["handlers"]) for row in rows] == [("w1", worker.pid, True, ["other"])]
        assert json.dumps(worker.pid) in ironclaim("workers", *at).stdout
    finally:
        worker.terminate()
        assert worker.wait(120) == 0
    assert said("workers", *at) == []


def test_what_became_of_a_job_is_in_the_history(queue: Queue, at: tuple[str, ...]) -> None:
    queue.enqueue("wait", {"to": "ada"}, id="mail-1")
    done = ironclaim("jobs", "history", *at)
    assert done.returncode == 1 and "keeps no history" in done.stderr
    queue.history.on(payload_bytes=100)
    kill_some(queue, "order-7", "order-8")
    done = ironclaim("jobs", "history", *at, "--key", "order-7", "--newer-than", "24h")
    assert done.returncode == 0 and "OSError: no route for order-7" in done.stdout and "order-8" not in done.stdout
    (latest,) = said("jobs", "history", *at, "--outcome", "dead", "--limit", "1")
    assert (latest["outcome"], latest["payload"], latest["claims"]) == ("dead", {"to": latest["id"]}, 1)
    (other,) = said("jobs", "history", *at, "--outcome", "dead", "--before", latest["place"])
    assert {latest["id"], other["id"]} == {"order-7", "order-8"}
    none = "no job that is meant has ended since the history began\n"
    assert ironclaim("jobs", "history", *at, "--name", "nothing") == Done(0, none, "")
    assert ironclaim("jobs", "history", *at, "--before", "here").returncode == 2
