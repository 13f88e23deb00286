"""Whatever a foreign client may have written: nothing of it stops the queue, and all of it is told."""

from __future__ import annotations

import json

import pytest

from tests.engine.models.bananas_desk import BananasDesk, desk

__all__ = ["desk"]

GOOD = '{"id":"bad","name":"main","payload":{},"status":"pending","priority":"normal","attempts":0,"max_retries":3}'


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "null",
        "[]",
        "7",
        '"text"',
        "{oops",
        "\x00\x01",
        "{}",
        '{"error":"x","id":"bad"}',
        GOOD.replace('"main"', "null"),
        GOOD.replace('"main"', "[1]"),
        GOOD.replace('"main"', '""'),
        GOOD.replace('"attempts":0', '"attempts":"0"'),
        GOOD.replace('"attempts":0', '"attempts":1.5'),
        GOOD.replace('"max_retries":3', '"max_retries":{}'),
        GOOD.replace('"normal"', "3"),
        GOOD.replace('"pending"', "[]"),
        GOOD.replace("{}", "[" * 2000 + "]" * 2000),
        GOOD[:-1],
    ],
)
def test_a_body_that_is_no_job_is_dead_with_the_reason_and_the_next_one_runs(desk: BananasDesk, raw: str) -> None:
    desk.go("bad", raw=raw)
    desk.go("good")
    claimed = desk.claimed()
    assert [leased.lease.job for leased in claimed.jobs] == ["good"] and claimed.corrupt == ("bad",)
    assert desk.dead() == ["bad"] and desk.waiting() == []
    stub = desk.body("bad")
    assert stub["error"].startswith("Failed to unmarshal job: ") and len(stub["error"]) > 30
    assert stub["corrupted_data"] == (raw if len(raw) <= 500 else raw[:500] + "...")


@pytest.mark.parametrize(
    "raw",
    [
        GOOD.replace('"attempts":0', '"attempts":null'),
        GOOD.replace('"max_retries":3', '"max_retries":-3'),
        GOOD.replace('"normal"', '"urgent"'),
        GOOD.replace('"normal"', "null"),
        GOOD.replace(',"payload":{}', ""),
        GOOD.replace('"payload":{}', '"payload":null'),
        GOOD.replace('"status":"pending",', ""),
        GOOD[:-1] + ',"created_at":"yesterday","updated_at":5,"scheduled_for":null}',
        GOOD[:-1] + ',"created_at":"0001-01-01T00:00:00Z","metadata":{"a":["}\\"{"]},"priority":"normal"}',
        " \n" + GOOD.replace(",", " , ").replace(":", " : ") + "\n",
        GOOD.replace('"id":"bad"', '"id":"another"'),
    ],
)
def test_what_go_would_read_runs_and_ends(desk: BananasDesk, raw: str) -> None:
    desk.go("bad", raw=raw)
    (leased,) = desk.take()
    assert json.loads(leased.payload) in ({}, None) and leased.enqueued_ms >= 0
    assert desk.fail(leased.lease)[0] == "ok"
    body = desk.body("bad")
    assert body["error"] == "boom" and body["status"] in ("pending", "failed")


@pytest.mark.parametrize("kind", ["hash", "list", "zset"])
def test_a_job_whose_key_is_no_string_is_set_aside_as_it_is(desk: BananasDesk, kind: str) -> None:
    desk.go("good")
    desk.redis.lpush(desk.list_key(), "bad")
    key = "bananas:job:bad"
    if kind == "hash":
        desk.redis.hset(key, "id", "bad")
    elif kind == "list":
        desk.redis.lpush(key, "x")
    else:
        desk.redis.zadd(key, {"x": 1})
    claimed = desk.claimed()
    assert [leased.lease.job for leased in claimed.jobs] == ["good"] and claimed.corrupt == ("bad",)
    assert desk.dead() == ["bad"] and desk.redis.type(key) == kind.encode()


@pytest.mark.parametrize(
    "job", ["a:b:c", "x" * 5000, "550e8400-e29b-41d4-a716-446655440000", "cron:n:5", "with space", "\xfc", "new\nline"]
)
def test_ids_of_any_text_run(desk: BananasDesk, job: str) -> None:
    desk.go(job)
    (leased,) = desk.take()
    assert leased.lease.job == job and desk.succeed(leased.lease)[0] == "ok" and desk.body(job)["status"] == "completed"


def test_an_id_that_cannot_be_said_stops_nothing(desk: BananasDesk) -> None:
    desk.go("x" * 70_000)
    desk.go("good")
    assert [leased.lease.job for leased in desk.take()] == ["good"]


@pytest.mark.parametrize("score", [2**53 + 2.0, 1e300, float("inf")])
def test_scores_beyond_all_time_wait_and_those_before_it_are_due(desk: BananasDesk, score: float) -> None:
    desk.go("far")
    desk.go("past")
    desk.redis.delete(desk.list_key())
    desk.redis.zadd("bananas:queue:scheduled", {"far": score, "past": -score})
    assert desk.sweep().promoted == 1
    assert desk.waiting() == ["past"] and list(desk.scheduled()) == ["far"]


def test_unknown_members_and_foreign_texts_stay(desk: BananasDesk) -> None:
    body = GOOD[:-1] + ',"metadata":{"n":1.0,"s":"\\u00fc/\\/","e":[]},"x":12345678901234567890}'
    desk.go("bad", raw=body)
    (leased,) = desk.take()
    desk.succeed(leased.lease)
    text = desk.text("bad")
    assert ',"metadata":{"n":1.0,"s":"\\u00fc/\\/","e":[]},"x":12345678901234567890}' in text
    assert text.replace('"completed"', '"pending"').replace(',"updated_at":"2100-01-01T01:06:40Z"', "") == body


def test_an_error_of_any_bytes_stays_json(desk: BananasDesk) -> None:
    desk.go("j")
    desk.bury(desk.take()[0].lease, 'a "b" \\ \x00\x1f\x7f \u2028 <\ud7ff> \U0001f34c')
    assert desk.body("j")["error"] == 'a "b" \\ \x00\x1f\x7f \u2028 <\ud7ff> \U0001f34c'
