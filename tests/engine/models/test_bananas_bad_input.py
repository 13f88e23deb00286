"""Whatever a foreign client may have written: nothing of it stops the queue, and all of it is told."""

import json

from tests.engine.models.bananas_desk import BananasDesk, desk

__all__ = ["desk"]

GOOD = '{"id":"bad","name":"main","payload":{},"status":"pending","priority":"normal","attempts":0,"max_retries":3}'


#: In a job, what another text in its place makes no job of, and what Go reads all the same.
NO_JOBS = [
    ("{}", "[" * 2000 + "]" * 2000), ('"normal"', "3"), ('"pending"', "[]"),
    *(('"main"', text) for text in ("null", "[1]", '""')), *(('"attempts":0', f'"attempts":{text}') for text in ('"0"', "1.5")),
    ('"max_retries":3', '"max_retries":{}'),
    # The server's own reader takes these.
    ("{}", "nan(1)"), ("3}", "3}\0"), ("3}", "3}\0}"),
]  # fmt: skip
JOBS = [
    ('"attempts":0', '"attempts":null'), ('"max_retries":3', '"max_retries":-3'), ('"normal"', '"urgent"'), ('"normal"', "null"),
    ('"status":"pending",', ""), ('"id":"bad"', '"id":"another"'), (',"payload":{}', ""), ('"payload":{}', '"payload":null'),
    ("3}", '3,"created_at":"yesterday","updated_at":5,"scheduled_for":null}'), ("3}", '3,"metadata":{"a":["}\\"{"]}}'),
    ("3}", '3,"created_at":"0001-01-01T00:00:00Z","priority":"normal"}'),
]  # fmt: skip


def test_a_body_that_is_no_job_is_dead_with_the_reason_and_the_next_one_runs(desk: BananasDesk) -> None:
    texts = ["", "null", "[]", "7", '"text"', "{oops", "\x00\x01", "{}", '{"error":"x","id":"bad"}', GOOD[:-1]]
    for raw in (*texts, *(GOOD.replace(*change) for change in NO_JOBS)):
        sets_aside_bad(desk.begin().go("bad", raw=raw).go("good"))
        assert desk.waiting() == []
        stub = desk.body("bad")
        assert stub["error"].startswith("Failed to unmarshal job: ") and len(stub["error"]) > 30
        assert stub["corrupted_data"] == (raw if len(raw) <= 500 else raw[:500] + "...")


def sets_aside_bad(desk: BananasDesk) -> None:
    """A claim takes the good one, and what is none is dead."""
    claimed = desk.claimed()
    assert [leased.lease.job for leased in claimed.jobs] == ["good"] and claimed.corrupt == ("bad",) and desk.dead() == ["bad"]


def test_a_due_body_that_only_the_server_reads_holds_up_no_claim(desk: BananasDesk) -> None:
    for raw in (GOOD.replace("{}", "nan(1)"), GOOD + "\0", GOOD + "\0}"):
        desk.begin().go("bad", raw=raw).redis.delete(desk.list_key())
        desk.go("good").redis.zadd("bananas:queue:scheduled", {"bad": 1})
        sets_aside_bad(desk)
        assert desk.scheduled() == {}


def test_what_go_would_read_runs_and_ends(desk: BananasDesk) -> None:
    for raw in (" \n" + GOOD.replace(",", " , ").replace(":", " : ") + "\n", *(GOOD.replace(*change) for change in JOBS)):
        (leased,) = desk.begin().go("bad", raw=raw).take()
        assert json.loads(leased.payload) in ({}, None) and leased.enqueued_ms >= 0, raw
        assert desk.fail(leased.lease)[0] == "ok"
        body = desk.body("bad")
        assert body["error"] == "boom" and body["status"] in ("pending", "failed"), raw


def test_a_job_whose_key_is_no_string_is_set_aside_as_it_is(desk: BananasDesk) -> None:
    for kind, (command, *words) in {"hash": ("HSET", "id", "bad"), "list": ("LPUSH", "x"), "zset": ("ZADD", 1, "x")}.items():
        desk.begin().go("good").redis.lpush(desk.list_key(), "bad")
        desk.redis.execute_command(command, "bananas:job:bad", *words)
        sets_aside_bad(desk)
        assert desk.redis.type("bananas:job:bad") == kind.encode()


def test_ids_of_any_text_run(desk: BananasDesk) -> None:
    for job in ("a:b:c", "x" * 5000, "550e8400-e29b-41d4-a716-446655440000", "cron:n:5", "with space", "\xfc", "new\nline"):
        (leased,) = desk.go(job).take()
        assert leased.lease.job == job and desk.succeed(leased.lease)[0] == "ok" and desk.body(job)["status"] == "completed"


def test_an_id_that_cannot_be_said_stops_nothing(desk: BananasDesk) -> None:
    assert [leased.lease.job for leased in desk.go("x" * 70_000).go("good").take()] == ["good"]


def test_scores_beyond_all_time_wait_and_those_before_it_are_due(desk: BananasDesk) -> None:
    for score in (2**53 + 2.0, 1e300, float("inf")):
        desk.begin().go("far").go("past").redis.delete(desk.list_key())
        desk.redis.zadd("bananas:queue:scheduled", {"far": score, "past": -score})
        assert desk.sweep().promoted == 1
        assert desk.waiting() == ["past"] and list(desk.scheduled()) == ["far"], score


def test_unknown_members_and_foreign_texts_stay(desk: BananasDesk) -> None:
    body = GOOD[:-1] + ',"metadata":{"n":1.0,"s":"\\u00fc/\\/","e":[]},"x":12345678901234567890}'
    desk.succeed(desk.go("bad", raw=body).one().lease)
    text = desk.text("bad")
    assert ',"metadata":{"n":1.0,"s":"\\u00fc/\\/","e":[]},"x":12345678901234567890}' in text
    assert text.replace('"completed"', '"pending"').replace(',"updated_at":"2100-01-01T01:06:40Z"', "") == body


def test_an_error_of_any_bytes_stays_json(desk: BananasDesk) -> None:
    desk.go("j").bury(desk.take()[0].lease, 'a "b" \\ \x00\x1f\x7f \u2028 <\ud7ff> \U0001f34c')
    assert desk.body("j")["error"] == 'a "b" \\ \x00\x1f\x7f \u2028 <\ud7ff> \U0001f34c'
