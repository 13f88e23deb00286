"""What a Bananas wire cannot be protected from, each as it happens: the names are those of the model's FINDINGS."""

from engine.models.foreign.bananas import BananasModel
from tests.engine.models.bananas_desk import BananasDesk, desk

__all__ = ["desk"]


def foreign_take(desk: BananasDesk) -> None:
    """As a worker of the original takes a job."""
    assert desk.redis.lmove(desk.list_key(), "bananas:queue:processing", "RIGHT", "LEFT")


def test_stranded_in_processing(desk: BananasDesk) -> None:
    foreign_take(desk.go("j"))
    assert desk.past(60_000).processing() == ["j"] and desk.take() == []


def test_adopted_while_a_foreign_worker_runs_it(ironclaim_url: str) -> None:
    desk = BananasDesk(ironclaim_url, "document", adopt_after_ms=10_000)
    foreign_take(desk.go("j"))
    desk.sweep_past(18_000)
    assert [leased.lease.job for leased in desk.take()] == ["j"], "beside the one that may still run it"
    desk.close()


def test_foreign_promotion_doubles(desk: BananasDesk) -> None:
    desk.go("j").redis.lpush(desk.list_key(), "j")
    (leased,) = desk.take()
    foreign_take(desk)
    assert desk.processing() == ["j", "j"], "both have it in hand"
    assert desk.succeed(leased.lease) == ("ok", "finished")
    # The other way round.
    desk.begin().go("j").redis.lpush(desk.list_key(), "j")
    foreign_take(desk)
    (leased,) = desk.take()
    assert desk.processing() == ["j", "j"] and desk.succeed(leased.lease) == ("ok", "finished")


def test_foreign_ends_unfenced(desk: BananasDesk) -> None:
    (leased,) = desk.go("j").take()
    desk.redis.lrem("bananas:queue:processing", 1, "j")
    desk.redis.set("bananas:job:j", desk.text("j").replace('"pending"', '"completed"'), ex=86_400)
    assert desk.succeed(leased.lease, b"1")[0] == "stale", "what was done here is refused"
    assert desk.result("j") == {} and desk.body("j")["status"] == "completed"


def test_cron_without_id(desk: BananasDesk) -> None:
    desk.go("", payload='{"tick":1}').go("", payload='{"tick":2}').claimed()
    payloads = [leased.payload for _ in range(3) for leased in desk.take()]
    assert b'{"tick":1}' not in payloads and b'{"tick":2}' in payloads


def test_whole_seconds(desk: BananasDesk) -> None:
    assert desk.put("j", delay_ms=1).tick(999).sweep().promoted == 0 and desk.tick(1).sweep().promoted == 1


def test_jobs_that_are_due_in_one_second_wake_one_worker(desk: BananasDesk) -> None:
    def wakes(job: str, delay_ms: int) -> int:
        return desk.put(job, delay_ms=delay_ms).redis.delete(f"{desk.keys.prefix}wake")  # type: ignore[return-value]

    assert [wakes("one", 5_100), wakes("later", 5_900), wakes("sooner", 5_050), wakes("before", 4_900)] == [1, 0, 0, 1]


def test_pause_is_ours(desk: BananasDesk) -> None:
    assert desk.go("j").pause().take() == []
    foreign_take(desk)
    assert desk.processing() == ["j"]


def test_routes_are_not_listed(desk: BananasDesk) -> None:
    assert desk.go("j", route="gpu").queue.counts().waiting == 0
    assert [leased.lease.job for leased in desk.take(routes=("gpu",))] == ["j"]
    assert desk.go("k", route="gpu").queue.counts().waiting == 1, "from the first claim on"


def test_each_finding_has_a_test() -> None:
    assert {f"test_{name.replace('-', '_')}" for name in {finding.name for finding in BananasModel.FINDINGS}} <= set(globals())
