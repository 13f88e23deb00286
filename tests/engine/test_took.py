"""How long handlers took: a worker's report in raw keys, as its state machine tells it, and as both faces and the command read it
(MQ36; rules 1, 4 and 7)."""

import random
import re
from typing import Any

import pytest

from engine import AsyncQueue, BatchFailed, Durations, Malformed, NewJob, Queue, Worker, WrongKeyType
from engine.command.main import main
from engine.models.model import RUN_TIMES_NAMES_MAX
from engine.ops.workers import BUCKET_MAX, Beat, Beaten, ListRunTimes, ReportRunTimes, RunTimes, RunTimesReported, bucket_end_ns
from engine.worker.machine.events import Forked, HandlerEnded, Send, StopAsked
from engine.worker.machine.reports import RunStatistics
from tests.engine.using import Desk, Machine, NoteQueue, exits, raises, refused, some_handlers, wait_until

pytestmark = pytest.mark.feature("MQ36")


def item(name: str = "main", outcome: Any = "ok", total_us: int = 10, most_us: int = 7, buckets: Any = ((3, 1), (5, 2))) -> Any:
    return RunTimes(name, outcome, total_us, most_us, buckets)


def times(desk: Desk, name: str = "main") -> dict[bytes, bytes]:
    return desk.redis.hgetall(desk.keys.took_by(name))


# -- the script


def test_a_report_adds_to_what_was_told_before(desk: Desk) -> None:
    assert desk.run(desk.took_operation(item(), item(outcome="failed", buckets=((9, 4),)))).result == "ok"
    expected = {b"ok:total_us": b"10", b"ok:most_us": b"7", b"ok:3": b"1", b"ok:5": b"2"}
    failed = {b"failed:total_us": b"10", b"failed:most_us": b"7", b"failed:9": b"4"}
    assert times(desk) == {**expected, **failed}
    first_ms = desk.now_ms
    more = item(total_us=2**40, most_us=6, buckets=((5, 1), (95, 2**33)))
    report = desk.tick(10_000).took_operation(more, item("other", most_us=9), worker="b")
    assert desk.run(report).result == "ok"
    assert times(desk) == {**expected, **failed, b"ok:total_us": b"%d" % (2**40 + 10), b"ok:5": b"3", b"ok:95": b"%d" % 2**33}
    names = desk.redis.zrange(desk.keys.took, 0, -1, withscores=True)
    assert names == [(b"main", first_ms), (b"other", desk.now_ms)], "by the time of the first report"
    assert desk.redis.get(desk.keys.told("b" * 16)) == b"1"
    assert desk.redis.pexpiretime(desk.keys.told("b" * 16)) == report.not_after_ms + 20_000


def test_a_second_copy_adds_nothing_nor_does_a_late_one_of_an_earlier_report(desk: Desk) -> None:
    first, second = desk.call(desk.took_operation(item())), desk.call(desk.took_operation(item("other")))
    assert desk.send(first).result == "ok"
    with desk.unchanged():
        assert desk.send(first).result == "repeated"
    assert desk.send(second).result == "ok"
    keys = desk.dump()
    for late in (first, second):
        assert desk.send(late).result == "repeated" and desk.dump() == keys
    assert desk.run(desk.took_operation(item(), worker="b")).result == "ok", "another worker counts by itself"


def test_rule_01_a_report_that_is_cut_off_anywhere_and_sent_again_adds_nothing_twice(desk: Desk) -> None:
    """It may lose numbers: they are statistics."""
    whole: list[int] = []
    for writes in range(100):
        desk.redis.delete(*desk.redis.scan_iter(desk.keys.took_by("*")), desk.keys.took, desk.keys.told("a" * 16))
        report = desk.took_operation(item(), item("other", "failed"))
        cut = desk.cut_off(report, writes)
        desk.run(report)
        runs = sum(int(runs) for name in ("main", "other") for field, runs in times(desk, name).items() if field[-2:-1] == b":")
        whole.append(runs)
        if not cut:
            break
    assert whole[0] == whole[-1] == 6 and max(whole) == 6 and min(whole[1:]) == 0


def test_with_too_many_names_the_rest_goes_under_one(desk: Desk) -> None:
    desk.redis.zadd(desk.keys.took, {f"n{number}": 1 for number in range(RUN_TIMES_NAMES_MAX - 1)})
    report = desk.took_operation(item("last"), item("more1"), item("more2", most_us=99), item("last", "failed"), item("n5"))
    assert desk.run(report).result == "ok"
    assert times(desk, "last")[b"failed:5"] == b"2" and times(desk, "n5")[b"ok:5"] == b"2"
    assert times(desk, "*") == {b"ok:total_us": b"20", b"ok:most_us": b"99", b"ok:3": b"2", b"ok:5": b"4"}
    assert not desk.redis.exists(desk.keys.took_by("more1"), desk.keys.took_by("more2"))
    assert desk.redis.zcard(desk.keys.took) == RUN_TIMES_NAMES_MAX + 1 and desk.redis.zscore(desk.keys.took, "*") == desk.now_ms
    found = {entry.name: entry for entry in desk.queue.stats()}
    assert len(found) == RUN_TIMES_NAMES_MAX + 1 and found["*"].succeeded.count == 6 and found["n6"].succeeded.count == 0


@pytest.mark.parametrize("key", ["took", "took:main", "took:*", "told:" + "a" * 16])
def test_a_key_of_another_type_stops_it_before_its_first_write_and_is_named(desk: Desk, key: str) -> None:
    desk.redis.lpush(desk.keys.prefix + key, "x")
    desk.refuses(desk.took_operation(item()), re.escape(key), WrongKeyType)


def test_obliterate_removes_them_and_a_late_copy_does_not_bring_them_back(desk: Desk) -> None:
    late = desk.enqueue("j1").call(desk.took_operation(item()))
    assert desk.sent(late).queue.obliterate() and desk.send(late).result == "repeated"
    assert desk.queue.stats() == [] and not list(desk.redis.scan_iter(desk.keys.prefix + "took*"))


# -- what is read


async def test_both_faces_read_every_name_in_order(desk: Desk) -> None:
    for start in range(0, 250, 50):
        desk.run(desk.took_operation(*(item(f"n{number:03}") for number in range(start, start + 50))))
    found = desk.queue.stats()
    assert [entry.name for entry in found] == [f"n{number:03}" for number in range(250)]
    assert found[7].succeeded == Durations(3, 10, 7, ((3, 1), (5, 2))) and found[7].failed == Durations(0, 0, 0, ())
    assert found[7].since_ms == desk.now_ms and desk.run(ListRunTimes(249, 5)).names[0].name == "n249"
    async with AsyncQueue("desk", url=desk.queue.url) as queue:
        assert await queue.stats() == found


def test_percentiles_are_within_a_fifth_of_the_true_ones() -> None:
    draw = random.Random(5)
    for spread in (0.1, 1.0, 2.5):
        took = RunStatistics(Machine().clock, 1000, 0)
        values = sorted(int(draw.lognormvariate(15, spread)) for _ in range(5000))
        for value in values:
            took.succeeded("main", value)
        (told,) = reported(took).items
        found = Durations(sum(runs for _, runs in told.buckets), told.total_us, told.most_us, told.buckets)
        assert found.count == 5000 and found.most_ms == values[-1] // 1000 / 1000
        assert found.mean_ms == pytest.approx(sum(values) / 5000 / 1e6, rel=1e-3)
        for percent in (50, 95, 99, 99.9):
            true_ms = values[int(percent / 100 * 5000) - 1] / 1e6
            assert found.percentile_ms(percent) == pytest.approx(true_ms, rel=0.2)
        assert found.percentile_ms(100) <= found.most_ms


def test_percentiles_of_nothing_of_one_run_and_out_of_bounds() -> None:
    assert Durations(0, 0, 0, ()).percentile_ms(99) == 0 == Durations(0, 0, 0, ()).mean_ms
    one = Durations(1, 3_000, 3_000, ((44, 1),))
    assert one.percentile_ms(0) <= one.percentile_ms(50) <= one.percentile_ms(100) == 3.0
    for percent in (-0.1, 100.1, float("nan")):
        refused(Malformed, "percent", one.percentile_ms, percent)


def test_prometheus_text_is_a_histogram_for_each_name_and_outcome(desk: Desk) -> None:
    buckets = ((3, 1), (32, 1), (33, 2), (50, 3), (BUCKET_MAX, 1))
    desk.run(desk.took_operation(item("a.b:c-d", total_us=12_345_678, buckets=buckets), item("b", "failed")))
    lines = desk.queue.metrics().splitlines()
    assert lines.count("# TYPE ironclaim_run_seconds histogram") == 1
    pattern = r'ironclaim_run_seconds_(bucket|sum|count)\{queue="desk",name="([^"]+)",outcome="(\w+)"(?:,le="([^"]+)")?\} (\S+)'
    samples = [re.fullmatch(pattern, line) for line in lines if line.startswith("ironclaim_run_seconds")]
    rows = [sample.groups() for sample in samples if sample is not None]
    assert len(rows) == len(samples) and {row[1:3] for row in rows} == {("a.b:c-d", "succeeded"), ("b", "failed")}
    mine = [row for row in rows if row[1] == "a.b:c-d"]
    bounds = [(float(le), int(count)) for kind, _, _, le, count in mine if kind == "bucket"]
    assert bounds == sorted(bounds) and [count for _, count in bounds] == sorted(count for _, count in bounds)
    assert bounds[0] == (0.000065536, 2) and bounds[1] == (0.000131072, 4) and bounds[-1] == (float("inf"), 8)
    assert dict(bounds)[2**24 / 1e9] == 4 and dict(bounds)[2**25 / 1e9] == 7 and bounds[-2] == (2**42 / 1e9, 7)
    assert [row[0] for row in mine] == ["bucket"] * len(bounds) + ["sum", "count"]
    assert mine[-2][4] == "12.345678" and mine[-1][4] == "8"


def test_the_command_says_that_there_are_none(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["jobs", "times", "--url", desk.queue.url, "--queue", "desk"]
    assert main(arguments) == 1 and "there is no queue desk" in capsys.readouterr().err
    desk.queue.enqueue("main", {})
    assert main(arguments) == 0 and "no worker has told" in capsys.readouterr().out


# -- the machine


def reported(took: RunStatistics, now_ns: int = 0) -> ReportRunTimes:
    report = took.next_report("a" * 16, now_ns, last=True)
    assert report is not None
    return report


def test_each_run_is_in_the_bucket_that_ends_above_it() -> None:
    for took_ns in (0, 1, 2, 3, 1_000, 999_999, 2**30, 2**47 - 1, 2**47, 2**63):
        took = RunStatistics(Machine().clock, 1000, 0)
        took.succeeded("main", took_ns)
        (((bucket, runs),),) = [told.buckets for told in reported(took).items]
        assert runs == 1
        if took_ns >= 2**47:
            assert bucket == BUCKET_MAX
        else:
            assert bucket_end_ns(bucket - 1) <= max(took_ns, 0.8) < bucket_end_ns(bucket)


def test_a_report_takes_so_many_names_and_the_next_one_the_rest() -> None:
    took = RunStatistics(Machine().clock, 1000, 0)
    for number in range(51):
        took.succeeded(f"n{number}", 5)
    took.failed("n0", 6)
    assert took.next_report("a" * 16, 999_999_999) is None, "its time has not come"
    first = took.next_report("a" * 16, 1_000_000_000)
    assert first is not None and len(first.items) == 50
    took.answered()
    second = took.next_report("a" * 16, 1_000_000_000)
    assert second is not None and second.counter == 2 and sorted(told.outcome for told in second.items) == ["failed", "ok"]
    took.answered()
    took.succeeded("n0", 5)
    assert took.next_report("a" * 16, 1_999_999_999) is None and took.next_report("a" * 16, 2_000_000_000) is not None


def test_an_unanswered_report_keeps_its_identity_and_content_until_it_is_void() -> None:
    took = RunStatistics(Machine().clock, 1000, 0)
    took.succeeded("main", 5)
    first = reported(took)
    took.unanswered(0, fault=False)
    took.succeeded("main", 5)
    assert took.next_report("b" * 16, 999_999_999, last=True) is None
    assert took.next_report("b" * 16, 1_000_000_000) is first and took.next_report("b" * 16, 30_000_000_000) is first
    following = took.next_report("b" * 16, 30_001_000_000)
    assert following is not None and (following.incarnation, following.counter) == ("b" * 16, 2)
    took.unanswered(0, fault=True)
    assert took.next_report("b" * 16, 90_000_000_000) is None, "what the server cannot add is lost"


def working(**more: Any) -> Machine:
    machine = Machine(beat_ms=10_000, about={"name": "w"}, **more)
    beaten(machine)
    machine.sweep()
    return machine


def beaten(machine: Machine) -> None:
    machine.answer("sweep", Beaten(machine.srv_us, "ok", True, False))
    if isinstance(machine.out["sweep"].operation, NoteQueue):
        machine.answer("sweep", True)


def sweep_until(machine: Machine, kind: type[Any], ms: int = 11_000) -> Any:
    """Answer what the machine asks for until it sends such a call on its sweep slot."""
    end_ms = machine.now_ms + ms
    while machine.now_ms < end_ms:
        operation = machine.out["sweep"].operation if "sweep" in machine.out else None
        if isinstance(operation, kind):
            return operation
        if isinstance(operation, Beat):
            beaten(machine)
        elif isinstance(operation, ReportRunTimes):
            machine.answer("sweep", RunTimesReported(machine.srv_us, "ok"))
        elif operation is not None:
            machine.sweep()
        else:
            machine.wait(100)
        if "renew" in machine.out:
            machine.extend(*["ok"] * len(machine.renewal.leases))
    raise AssertionError(f"no {kind.__name__} within {ms} ms")


def test_the_machine_tells_runs_that_returned_raised_or_were_given_up() -> None:
    machine = working(concurrency=4)
    slow = machine.job("c", timeout_ms=5_000)
    jobs = [machine.job("a"), machine.job("b"), slow]
    machine.given(*jobs).after(7).on(HandlerEnded(jobs[0].lease, None))
    report = sweep_until(machine.told(HandlerEnded(jobs[1].lease, "boom")), ReportRunTimes)
    told = {entry.outcome: entry for entry in report.items}
    assert told["ok"].most_us == 7_000 and sum(runs for _, runs in told["ok"].buckets) == 1
    assert sum(runs for _, runs in told["failed"].buckets) == 2 and 5_000_000 <= told["failed"].most_us < 9_000_000
    assert report.incarnation == "0000000000000001" and report.counter == 1
    machine.answered("sweep", RunTimesReported(machine.srv_us, "ok")).on(HandlerEnded(slow.lease, None))
    refused(AssertionError, "no ReportRunTimes", sweep_until, machine, ReportRunTimes, 25_000)


def test_a_worker_that_stops_tells_before_it_leaves_and_does_not_wait_for_a_deaf_server() -> None:
    for answered in (True, False):
        machine = working(concurrency=1)
        (job,) = machine.takes("a")
        machine.told(HandlerEnded(job.lease, None)).given().wake(marker=False)
        assert isinstance(machine.told(StopAsked()).out["sweep"].operation, ReportRunTimes)
        machine.answer("sweep", RunTimesReported(machine.srv_us, "ok")) if answered else machine.fail("sweep")
        leave = machine.out["sweep"].operation
        assert isinstance(leave, Beat) and leave.until_ms == 0
        assert exits(machine.answer("sweep", Beaten(machine.srv_us, "left", False, False)))


def test_after_a_fork_the_child_does_not_tell_what_its_parent_has_measured() -> None:
    machine = working(concurrency=1)
    (job,) = machine.takes("a")
    machine.told(HandlerEnded(job.lease, None)).on(Forked())
    machine.end() if machine.work.claim is None else machine.give()
    machine.woken(marker=False).on(StopAsked())
    sent = [type(action.call.operation) for action in machine.log if isinstance(action, Send)]
    assert sent.count(Beat) == 2 and ReportRunTimes not in sent


def test_a_worker_without_beats_tells_nothing() -> None:
    machine = Machine(concurrency=1)
    (job,) = machine.after_sweep().takes("a")
    assert exits(machine.told(HandlerEnded(job.lease, None)).given().on(StopAsked()))


# -- a real worker


def test_a_worker_tells_how_long_its_handlers_took(queue: Queue) -> None:
    handlers = some_handlers(name="quick", inline=True)
    handlers("broken")(raises(RuntimeError("planned")))

    @handlers("several", batch=10)
    def several(jobs: Any) -> None:
        raise BatchFailed({jobs[0].id: RuntimeError("planned")})

    queue.enqueue_many([NewJob("quick", {}) for _ in range(200)])
    queue.enqueue("broken", {}, attempts=2, backoff="fixed", backoff_ms=1)
    for number in range(5):
        queue.enqueue("several", {}, id=f"s{number}", attempts=1)
    Worker(queue, handlers, sweep_ms=50).run(burst=True)

    def told() -> dict[str, Any]:
        found = {times.name: times for times in queue.stats()}
        runs = sum(times.succeeded.count + times.failed.count for times in found.values())
        return found if runs == 200 + 2 + 5 else {}

    # What a worker tells when it leaves, it waits for no longer than a moment.
    found = wait_until(told, "the server has what it was told")
    assert set(found) == {"quick", "broken", "several"}
    assert (found["quick"].succeeded.count, found["quick"].failed.count) == (200, 0)
    assert (found["broken"].succeeded.count, found["broken"].failed.count) == (0, 2)
    assert found["several"].failed.count >= 1 and found["several"].succeeded.count + found["several"].failed.count == 5
    quick = found["quick"].succeeded
    assert 0 < quick.percentile_ms(50) <= quick.percentile_ms(99) <= quick.most_ms and quick.mean_ms <= quick.most_ms
    assert 'ironclaim_run_seconds_count{queue="q",name="quick",outcome="succeeded"} 200' in queue.metrics().splitlines()
