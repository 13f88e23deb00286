"""Errors that differ in ids, numbers, addresses and quoted values alone are of one kind, others are not; and a group of dead
jobs is changed as it is counted."""

import uuid
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import Job, Queue, Worker
from engine.queue.looks import NO_ERROR, JobInfo, PageRequest, Selection, error_groups, error_kind, listing, main_line, selection
from tests.engine.helpers.producing import some_handlers
from tests.walks import examples

HEX = "0123456789abcdef"
LETTERS = "abcdefghijklmnopqrstuvwxyz"
UNITS = st.sampled_from(["ms", "s", " s", " min", " seconds", " h 20 min"])
#: What errors say of one job and not of another, by what it is.
PARTS: dict[str, st.SearchStrategy[str]] = {
    "uuid": st.uuids().map(str), "hex": st.text(HEX, min_size=8, max_size=40),
    "address of memory": st.text(HEX, min_size=1, max_size=16).map("0x".__add__),
    "number": st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False)).map(str),
    "ip:port": st.tuples(st.ip_addresses(v=4), st.integers(1, 65_535)).map(lambda pair: f"{pair[0]}:{pair[1]}"),
    "ip": st.ip_addresses(v=4).map(str),
    "ipv6:port": st.tuples(st.ip_addresses(v=6), st.integers(1, 65_535)).map(lambda pair: f"[{pair[0]}]:{pair[1]}"),
    "quoted": st.text("abc def7-:/.", max_size=30).map(repr),
    "length of time": st.tuples(st.integers(0, 9_999).map(str), UNITS).map("".join),
    "instant": st.datetimes().map(lambda at: at.isoformat(timespec="milliseconds") + "Z"),
    "numbered": st.integers(0, 10**9).map(lambda number: f"order-{number}"),
    "line": st.integers(1, 99_999).map(lambda number: f"shop/mail.py:{number}"),
    "url": st.text(LETTERS + "0123456789/?=&-", min_size=1, max_size=30).map("https://".__add__),
    "mail": st.text(LETTERS + "0123456789.", min_size=1, max_size=12).map(lambda name: f"{name}@example.com"),
    "list": st.lists(st.integers(), min_size=1, max_size=5).map(str),
}  # fmt: skip
#: Words that no unit and no value is written as.
WORDS = ("user", "card", "route", "refused", "timed", "out", "not", "found", "can't", "is", "gone", "no", "closed", "by", "peer")


@pytest.mark.walk
@pytest.mark.parametrize("of", PARTS)
@settings(max_examples=examples(30))
@given(data=st.data(), words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=6), at=st.integers(0, 5))
def test_errors_that_differ_in_such_a_part_alone_are_of_one_kind(of: str, data: st.DataObject, words: list[str], at: int) -> None:
    one, other = (data.draw(PARTS[of]) for _ in range(2))
    place = min(at, len(words))
    first, second = (f"ValueError: {' '.join([*words[:place], part, *words[place:]])}" for part in (one, other))
    assert error_kind(first) == error_kind(second) and error_kind(error_kind(first)) == error_kind(first)
    for word in words:
        assert word in error_kind(first), "what is said stays"


@pytest.mark.walk
@settings(max_examples=examples(60))
@given(*[st.lists(st.sampled_from(WORDS), min_size=1, max_size=6) for _ in range(2)], PARTS["number"])
def test_errors_that_differ_in_words_are_not(one: list[str], other: list[str], number: str) -> None:
    first, second = (f"ValueError: {number} {' '.join(words)}" for words in (one, other))
    assert (error_kind(first) == error_kind(second)) is (one == other)


@pytest.mark.walk
@settings(max_examples=examples(60))
@given(st.text())
def test_the_kind_of_a_kind_is_itself_whatever_is_said(error: str) -> None:
    assert error_kind(error_kind(error)) == error_kind(error) != ""


@pytest.mark.parametrize(("error", "kind"), [
    ("botocore.S3UploadFailedError: bucket b-7", "botocore.S3UploadFailedError: bucket b-…"),
    ("UnicodeError: 'utf-8' codec can't decode byte 0xff at 12", "UnicodeError: … codec can't decode byte … at …"),
    ("OSError: [Errno 111] Connect call failed ('127.0.0.1', 6379)", "OSError: [Errno …] Connect call failed (…)"),
    ("ConnectionError: fe80::1ff:fe23:4567:890a refused", "ConnectionError: … refused"),
    ("job V1StGXR8_Z5jdHi6B-myT is gone", "job … is gone"),
    ("<Card object at 0x7f001122> of user7", "<Card object at …> of user…"),
    ("x=-5, y=5", "x=…, y=…"), ("std::string is bad", "std::string is bad"), ("", NO_ERROR),
])  # fmt: skip
def test_what_is_said_stays_and_what_is_meant_goes(error: str, kind: str) -> None:
    assert error_kind(error) == kind


def test_the_main_line_is_the_first_where_a_class_begins_it_and_else_the_last() -> None:
    assert main_line("ValidationError: 1 error for Card\nnumber\nsee https://example.com") == "ValidationError: 1 error for Card"
    assert main_line("Traceback (most recent call last):\n  x\nKeyError: 7") == "KeyError: 7" and main_line("") == ""


def test_a_hostile_error_takes_no_time() -> None:
    for text in ("'" * 5_000, "\"'`" * 2_000, "a:" * 3_000, "1-" * 3_000, "[::" * 2_000, "9" * 10_000, "\\'" * 3_000):
        assert error_kind(text)


def dead_job(id: str, error: str, ended_ms: int, name: str = "send", unreadable: str = "") -> JobInfo:
    return JobInfo(id, "dead", name=name, ended_ms=ended_ms, last_error=error, unreadable=unreadable)


def test_groups_have_a_count_a_first_and_a_last_time_and_an_example() -> None:
    jobs = (
        dead_job("1", "ValueError: no user 7", 10), dead_job("2", "ValueError: no route", 30),
        dead_job("3", "ValueError: no user 8", 20), dead_job("4", "ValueError: no user 9", 5, name="other"),
        dead_job("5", "", 1), dead_job("6", "", 2, name="", unreadable="version 9"),
    )  # fmt: skip
    assert [(at.name, at.kind, at.count, at.first_ms, at.last_ms, at.job, at.example) for at in error_groups(jobs)] == [
        ("send", "ValueError: no user …", 2, 10, 20, "3", "ValueError: no user 8"),
        ("send", "ValueError: no route", 1, 30, 30, "2", "ValueError: no route"),
        ("other", "ValueError: no user …", 1, 5, 5, "4", "ValueError: no user 9"),
        ("", "unreadable: version …", 1, 2, 2, "6", "version 9"), ("send", NO_ERROR, 1, 1, 1, "5", ""),
    ]  # fmt: skip


def kill_some(queue: Queue) -> None:
    """Jobs that died of four kinds of error, of two names."""

    def fail(job: Job) -> None:
        raise ValueError(job.payload)

    handlers = some_handlers(fail, "send")
    handlers("other")(fail)
    for number in range(30):
        queue.enqueue("send", f"no user {uuid.UUID(int=number)} at {IPv4Address(number)}:6379", id=f"user-{number}", attempts=1)
    for number in range(5):
        queue.enqueue("send", f"no route to {IPv6Address(number + 2**64)} after {number}.5 s", id=f"route-{number}", attempts=1)
    queue.enqueue("send", "no route", id="plain", attempts=1)
    queue.enqueue("other", "no user 7 at 10.0.0.1", id="other", attempts=1)
    Worker(queue, handlers).run(burst=True)


def test_a_group_is_changed_as_it_is_counted(queue: Queue) -> None:
    kill_some(queue)
    found = queue.dead.by_error()
    assert (found.looked, found.more) == (37, False)
    counted = {(group.name, group.kind): group.count for group in found.groups}
    users, routes = ("send", "ValueError: no user … at …"), ("send", "ValueError: no route to … after …")
    assert counted == {users: 30, routes: 5, ("send", "ValueError: no route"): 1, ("other", users[1]): 1}
    assert all(group.first_ms <= group.last_ms and queue.jobs.state(group.job) == "dead" for group in found.groups)
    assert {job.id for job in queue.dead.list(name="send", error_like=routes[1])} == {f"route-{at}" for at in range(5)}
    # An error is as good as its kind.
    assert queue.dead.requeue_all("send", error_like="ValueError: no user ffffffff9 at 1.1.1.1") == 30
    assert queue.dead.discard_all("send", error_like=routes[1]) == 5
    assert {job.id for job in queue.dead.list()} == {"plain", "other"} and queue.counts().waiting == 30
    assert queue.jobs.state("route-3") == "discarded" and queue.dead.discard_all() == 2
    looked = queue.dead.by_error(limit=1)
    assert (looked.groups, looked.looked, looked.more) == ((), 0, False)


def test_those_that_died_last_are_looked_at(queue: Queue) -> None:
    assert listing(1_000) == PageRequest(Selection(), 0, 100, False) and listing(1_000).wanted.everything
    for error, like in (("x", "y"), ("x" * 200, "y" * 1_000)):
        assert selection(None, None, f" {error} ", 0, None, error_like=like) == Selection(error=error, error_like=like)
    kill_some(queue)
    found = queue.dead.by_error(limit=3)
    assert (sum(group.count for group in found.groups), found.looked, found.more) == (3, 3, True)
