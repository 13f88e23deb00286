"""Corruptions of what only some runs have: rates, a bound for pickups, and results."""

from __future__ import annotations

from collections.abc import Iterable

from reports.corrupt.history import Entry, History, Life
from reports.corrupt.jobs import S, sent_ns, unkeyed
from reports.corrupt.kinds import kind
from reports.errors import JudgeError
from reports.facts import MS

# --- J11: rates --------------------------------------------------------------------------------------------------------------


def rated(history: History) -> dict[str, object]:
    """The rate limit of the run."""
    found = next((limit for limit in history.spec.get("limits") or () if limit.get("rate")), None)
    if found is None:
        raise JudgeError("the run has no limit of a rate")
    return found


@kind("J11", apart=True)
def one_claim_more_than_the_rate_allows(history: History) -> str:
    """A window gets one job more than the rate allows: the run was at its limit, and the limit is one lower."""
    limit = rated(history)
    limit["rate"] = int(str(limit["rate"])) - 1
    return str(limit["name"])


@kind("J11", apart=True)
def claims_that_no_rate_holds_back(history: History) -> str:
    """Jobs of a rated name are handed out one after the other, beyond its rate."""
    limit = rated(history)
    start_ns = max(row["t_ns"] for row in history.harness if row["kind"] == "phase") - 2 * S
    for number in range(int(str(limit["rate"])) + 1):
        life = history.take()
        moved = history.shift(life, start_ns + number * 2 * MS - sent_ns(life.claim))
        moved.claim.item.update({"class": limit["name"], "lane": limit["name"]})
    return str(limit["name"])


# --- J22: pickup -------------------------------------------------------------------------------------------------------------


def left_waiting(history: History, delay_ms: int = 0) -> str:
    """A job in a lane of its own that waits for the bound and a second and a half after its delay, without a fault about."""
    wait_ns = (history.spec["pickup_bound_ms"] + delay_ms) * MS + 3 * S // 2
    limited = {limit.get("name") for limit in history.spec.get("limits") or ()}
    last_ns = max(sent_ns(life.enqueue) for life in history.left)

    def calm(life: Life) -> bool:
        until_ns = life.finish.row["t_ns"] + wait_ns + S
        free = unkeyed(life) and life.claim.item["name"] not in limited and until_ns < last_ns
        return free and all(until_ns < begin or sent_ns(life.enqueue) > end for begin, end in history.windows())

    life = history.take(calm)
    apart = f"{life.claim.item['class']}-apart"
    moved = history.shift(life, wait_ns)
    for entry in (moved.enqueue_sent, moved.enqueue, moved.claim):
        entry.item.update({"class": apart, "lane": apart})
    for entry in (moved.enqueue_sent, moved.enqueue):
        entry.item["delay_ms"] = delay_ms
    return life.job


@kind("J22")
def waiting_while_workers_are_idle(history: History) -> str:
    """A job is handed out seconds after its enqueue, though workers are idle all the time."""
    return left_waiting(history)


@kind("J22")
def due_while_workers_are_idle(history: History) -> str:
    """A delayed job is handed out seconds after it was due, though workers are idle all the time."""
    return left_waiting(history, delay_ms=500)


# --- J23: results ------------------------------------------------------------------------------------------------------------


def read_result(history: History) -> Entry:
    """The row of a caller that was given a result."""

    def given(entry: Entry) -> bool:
        return entry.label == "result ok" and "result_crc" in entry.item

    _, entries = history.find(lambda entries: any(map(given, entries)))
    return next(filter(given, entries))


@kind("J23")
def results_swapped(history: History) -> str:
    """Two callers get the result of the other's job."""
    one, other = read_result(history), read_result(history)
    one.item["result_crc"], other.item["result_crc"] = other.item["result_crc"], one.item["result_crc"]
    return str(one.item["job"])


@kind("J23")
def result_that_is_gone(history: History) -> str:
    """A caller gets no value of a job that has finished a moment ago."""
    entry = read_result(history)
    del entry.item["result_crc"]
    return str(entry.item["job"])


@kind("J23")
def result_of_another_handler_sent(history: History) -> str:
    """A worker finishes a job with another result than the one that its handler returned."""
    life = history.take()
    for entry in (life.finish_sent, life.finish):
        entry.item["result_crc"] ^= 1
    return life.job


@kind("J23")
def result_left_behind(history: History) -> str:
    """A worker finishes a job without the result that its handler returned."""
    life = history.take()
    for entry in (life.finish_sent, life.finish):
        del entry.item["result_crc"]
    return life.job


# --- J25: effects ------------------------------------------------------------------------------------------------------------


def counted(history: History) -> dict[str, int]:
    """Let the run be one of a service that counts effects: one for each job that was finished."""
    history.spec |= {"effects": True, "without_effects": []}
    return {job: 1 for job, entries in history.by_job.items() if any(map(finished, entries))}


def finished(entry: Entry) -> bool:
    """True where the server answered that this call finished the job, or a copy of it did."""
    again = entry.item.get("result") == "repeated" and entry.item.get("outcome") == "finished"
    return entry.row.get("type") == "ok" and (again or (entry.label == "finish ok" and entry.item.get("result") == "ok"))


def tell(history: History, times: dict[str, int]) -> None:
    """Record what the service says of its effects, at the end."""
    at = next(number for number, row in enumerate(history.harness) if row["kind"] == "close")
    last = history.harness[at - 1]
    items = [{"job": job, "times": count} for job, count in times.items()]
    row = {"v": last["v"], "seq": 0, "t_ns": last["t_ns"], "proc": last["proc"], "kind": "effects", "items": items}
    history.harness.insert(at, row)


def name_of(entries: Iterable[Entry]) -> str:
    """The name of a job: its class without what it asks of workers."""
    return next(str(entry.item["class"]).partition("@")[0] for entry in entries if "class" in entry.item)


@kind("J25", apart=True)
def finished_without_its_effect(history: History) -> str:
    """A job counts as done, and its handler had returned before it worked."""
    times, life = counted(history), history.take()
    tell(history, {**times, life.job: 0})
    return life.job


@kind("J25", apart=True)
def effects_of_a_name_all_lost(history: History) -> str:
    """No job of a name takes effect, though all are finished."""
    times, life = counted(history), history.take()
    lost = [job for job in times if name_of(history.by_job[job]) == name_of(history.by_job[life.job])]
    tell(history, {**times, **dict.fromkeys(lost, 0)})
    return life.job


@kind("J25", apart=True)
def more_effects_than_runs(history: History) -> str:
    """A job takes effect twice in one run."""
    times, life = counted(history), history.take()
    tell(history, {**times, life.job: 2})
    return life.job
