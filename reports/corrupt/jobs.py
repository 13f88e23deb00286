"""Corruptions of single jobs: each takes a job that went well and lets it go wrong in one way."""

from __future__ import annotations

from reports.corrupt.history import Entry, History, Life
from reports.corrupt.kinds import kind
from reports.errors import JudgeError
from reports.facts import MS

S = 1_000 * MS

#: Calls that may end a job; a release only gives it back.
ENDING = ("finish", "retry", "bury", "drop", "reap")


def labels(entries: list[Entry]) -> list[str]:
    """What the rows of a job are."""
    return [entry.label for entry in entries]


def last_heal_ns(history: History) -> int:
    """When the last fault was healed."""
    return max(row["t_ns"] for row in history.harness if row["kind"] == "fault" and row["stage"] == "heal")


def before_last_heal(history: History) -> Life:
    """A job whose rows are older than the last heal by some seconds."""
    heal_ns = last_heal_ns(history)
    return history.take(lambda life: life.finish.row["t_ns"] < heal_ns - 3 * S)


def sent_ns(entry: Entry) -> int:
    """When the call of a row was first sent."""
    return int(entry.row["first_send_ns"])


# --- J1: leases that overlap ------------------------------------------------------------------------------------------------


@kind("J1")
def claimed_by_two_workers(history: History) -> str:
    """A second worker gets the job while the first has it in hand."""
    life = history.take()
    history.claimed_again(life, history.another(life.proc), life.start.row["first_send_ns"] + MS)
    return life.job


@kind("J1")
def claimed_from_a_worker_that_then_says_nothing(history: History) -> str:
    """A second worker gets a job 150 ms after the first, of which nothing is heard any more."""
    life, _ = run_again(history, release=False)
    return life.job


@kind("J1")
def reaped_before_its_end(history: History) -> str:
    """A sweep takes the lease away while it has seconds left."""
    life = history.take()
    sweep = next(row for rows in history.files.values() for row in rows if row.get("f") == "reap" and row.get("type") == "ok")
    item = {name: life.claim.item[name] for name in ("job", "fence", "nonce")} | {"crashes": 1, "result": "reaped"}
    at_ns = life.start.row["first_send_ns"] + MS
    srv_us = life.claim.row["srv_us"] + (at_ns - sent_ns(life.claim)) // 1_000
    like = {**sweep, "first_send_ns": at_ns, "srv_us": srv_us}
    history.call(history.another(life.proc), like, [item], at_ns, result="0")
    return life.job


# --- J2: fences and tokens --------------------------------------------------------------------------------------------------


def run_again(history: History, *, release: bool = True) -> tuple[Life, dict[str, object]]:
    """A job that another worker had claimed before, and given back 5 ms later; and the token of that claim."""
    life = history.shift(history.take(), 200 * MS)
    sent = sent_ns(life.claim) - 150 * MS
    proc = history.another(life.proc)
    older = history.claimed_again(life, proc, sent, claims=1, fence=(life.claim.row["srv_us"] - 150_000) // 1_000)
    if release:
        history.ended(life, proc, older, sent + 5 * MS, "release")
    life.claim.item["claims"] = 2
    return life, older


@kind("J2")
def fence_fell(history: History) -> str:
    """A later claim gets a smaller fence than an earlier one."""
    life, older = run_again(history)
    rename(history, older, fence=life.claim.item["fence"] + 7)
    return life.job


def rename(history: History, token: dict[str, object], **columns: object) -> None:
    """Give a lease another token in every row of it."""
    for rows in history.files.values():
        for row in rows:
            for item in row.get("items") or ():
                if item.get("job") == token["job"] and item.get("nonce") == token["nonce"]:
                    item.update(columns)


@kind("J2")
def two_leases_with_one_fence(history: History) -> str:
    """Two claims of a job get the same fence."""
    life, older = run_again(history)
    rename(history, older, fence=life.claim.item["fence"])
    return life.job


@kind("J2")
def one_token_for_two_workers(history: History) -> str:
    """Two claims are answered with the same token."""
    life = history.take()
    token = {name: life.claim.item[name] for name in ("fence", "nonce")}
    history.claimed_again(life, history.another(life.proc), sent_ns(life.start) + MS, claims=1, **token)
    return life.job


# --- J3: stale calls ---------------------------------------------------------------------------------------------------------


def zombie(history: History) -> tuple[Life, dict[str, object], str, int]:
    """A job whose lease ended before its handler did, and which ran again under a newer one.

    Returns the job, the older token, the worker that has it, and an instant after the newer finish.
    """
    life = history.take()
    lease_ns = life.claim.row["lease_ms"] * MS
    moved = history.shift(life, lease_ns + S)
    proc, sent = history.another(life.proc), sent_ns(moved.claim) - lease_ns - 900 * MS
    fence = (moved.claim.row["srv_us"] // 1_000) - life.claim.row["lease_ms"] - 900
    older = history.claimed_again(moved, proc, sent, claims=1, fence=fence)
    history.handled(moved, proc, older, sent + 5 * MS, moved.finish.row["done_ns"] + 5 * MS, effect=False)
    moved.claim.item["claims"] = 2
    return moved, older, proc, moved.finish.row["done_ns"] + 20 * MS


@kind("J3")
def stale_finish_accepted(history: History) -> str:
    """A zombie's finish is accepted."""
    life, older, proc, at_ns = zombie(history)
    history.ended(life, proc, older, at_ns)
    return life.job


@kind("J3")
def stale_release_accepted(history: History) -> str:
    """A zombie's release is accepted."""
    life, older, proc, at_ns = zombie(history)
    history.ended(life, proc, older, at_ns, "release")
    return life.job


@kind("J3")
def stale_extend_accepted(history: History) -> str:
    """A zombie's lease is renewed."""
    life, older, proc, at_ns = zombie(history)
    history.ended(life, proc, older, at_ns, "extend")
    return life.job


@kind("J3")
def renewed_after_its_finish(history: History) -> str:
    """A lease is renewed after its finish was answered."""
    life = history.take()
    history.ended(life, life.proc, life.claim.item, life.finish.row["done_ns"] + 5 * MS, "extend")
    return life.job


# --- J4: lost jobs -----------------------------------------------------------------------------------------------------------


@kind("J4")
def lost_before_its_claim(history: History) -> str:
    """A job whose enqueue was answered is gone."""
    life = history.take()
    history.remove(*life.all)
    history.unlist(life.job)
    return life.job


@kind("J4")
def lost_after_its_claim(history: History) -> str:
    """A job was handed out, its end was never answered, and it is gone."""
    life = history.take()
    history.remove(life.start, life.handled, life.effect, life.finish_sent, life.finish)
    history.unlist(life.job)
    return life.job


@kind("J4")
def dead_without_a_burial(history: History) -> str:
    """A job is among the dead and nobody buried it."""
    life = history.take()
    history.remove(life.finish_sent, life.finish)
    history.unlist(life.job)
    history.list_in("end", "dead", life.job)
    return life.job


@kind("J4")
def done_without_a_finish(history: History) -> str:
    """A job counts as done and nobody finished it."""
    life = history.take()
    history.remove(life.finish_sent, life.finish)
    history.unlist(life.job)
    history.list_in("end", "done", life.job)
    return life.job


@kind("J4")
def finished_and_still_waiting(history: History) -> str:
    """A job was finished and is listed as waiting as well."""
    life = history.take()
    history.list_in("end", "waiting", life.job)
    history.list_in("end", "done", life.job)
    return life.job


# --- J5: jobs from nowhere ---------------------------------------------------------------------------------------------------


@kind("J5")
def claimed_and_never_enqueued(history: History) -> str:
    """A job is handed out that nobody sent."""
    life = history.take()
    history.remove(life.enqueue_sent, life.enqueue)
    return life.job


@kind("J5")
def listed_and_never_enqueued(history: History) -> str:
    """A job is waiting at the end that nobody sent."""
    history.list_in("end", "dead", "nobodys-job")
    return "nobodys-job"


@kind("J5")
def handled_by_another_worker(history: History) -> str:
    """A worker runs a job that another one has claimed."""
    life = history.take()
    proc = history.another(life.proc)
    history.handled(life, proc, life.claim.item, sent_ns(life.start) + MS, sent_ns(life.start) + 2 * MS, effect=False)
    return life.job


@kind("J5")
def effect_without_a_claim(history: History) -> str:
    """A handler has an effect under a token that no claim was answered with."""
    life = history.take()
    item = {**life.effect.item, "fence": life.effect.item["fence"] + 5, "nonce": f"{life.effect.item['nonce']}9"}
    history.add(life.proc, {**life.effect.row, "items": [item]}, sink=True)
    return life.job


# --- J6: exactly once --------------------------------------------------------------------------------------------------------


@kind("J6")
def run_twice(history: History) -> str:
    """A finished job is handed out again, and finished again."""
    life = history.take()
    done_ns = life.finish.row["done_ns"]
    proc = history.another(life.proc)
    token = history.claimed_again(life, proc, done_ns + 100 * MS)
    history.handled(life, proc, token, done_ns + 110 * MS, done_ns + 120 * MS)
    history.ended(life, proc, token, done_ns + 130 * MS)
    return life.job


@kind("J6")
def created_twice(history: History) -> str:
    """Two enqueues of one id are both answered with `created`."""
    life = history.take()
    history.call("producer-1", life.enqueue.row, [dict(life.enqueue.item)], sent_ns(life.enqueue) + 3 * MS)
    return life.job


@kind("J6")
def finished_without_an_effect(history: History) -> str:
    """A job counts as done and its handler had no effect."""
    life = history.take()
    history.remove(life.effect)
    return life.job


@kind("J6")
def two_effects_of_one_run(history: History) -> str:
    """A handler had its effect twice."""
    life = history.take()
    history.add(life.proc, {**life.effect.row, "items": [dict(life.effect.item)]}, sink=True)
    return life.job


# --- J7: attempts and waits --------------------------------------------------------------------------------------------------


def failed_once(history: History) -> tuple[Entry, Entry, Entry]:
    """A job with a failed run and a second claim: the first claim, the retry's answer and the second claim."""

    def wanted(entries: list[Entry]) -> bool:
        found = labels(entries)
        counted = [entry.item.get("claims") for entry in entries if entry.label == "claim ok"]
        return found.count("retry ok") >= 1 and "reap ok" not in found and counted[:2] == [1, 2]

    _, entries = history.find(wanted)
    entries = sorted(entries, key=lambda entry: entry.row["t_ns"])
    first, second, *_ = (entry for entry in entries if entry.label == "claim ok")
    return first, next(entry for entry in entries if entry.label == "retry ok"), second


@kind("J7")
def buried_with_attempts_left(history: History) -> str:
    """The first failed run buries a job that may fail three times."""
    _, retry, _ = failed_once(history)
    retry.item["outcome"] = "buried"
    return str(retry.item["job"])


@kind("J7")
def run_once_more_than_allowed(history: History) -> str:
    """A job is handed out though its attempts are used up."""
    first, _, _ = failed_once(history)
    for entry in history.by_job[first.item["job"]]:
        if "attempts" in entry.item:
            entry.item["attempts"] = 1
    return str(first.item["job"])


@kind("J7")
def attempts_changed(history: History) -> str:
    """A job comes back with other attempts than it was sent with."""
    life = history.take()
    life.claim.item["attempts"] += 1
    return life.job


@kind("J7")
def failed_run_not_counted(history: History) -> str:
    """The claim after a failed run says that none has failed."""
    _, _, second = failed_once(history)
    second.item["failures"] = 0
    return str(second.item["job"])


@kind("J7")
def crash_counted_for_nothing(history: History) -> str:
    """The claim after a failed run says that two workers were lost."""
    _, _, second = failed_once(history)
    second.item["crashes"] += 2
    return str(second.item["job"])


@kind("J7")
def back_off_shorter_than_asked(history: History) -> str:
    """A failed job waits a tenth of its back-off."""
    _, retry, _ = failed_once(history)
    for entry in history.by_job[retry.item["job"]]:
        if entry.row.get("f") == "retry":
            entry.item["delay_ms"] //= 10
    return str(retry.item["job"])


# --- J8: too early -----------------------------------------------------------------------------------------------------------


@kind("J8")
def claimed_before_its_delay_was_over(history: History) -> str:
    """A delayed job is handed out at once."""
    life = history.take()
    for entry in (life.enqueue_sent, life.enqueue):
        entry.item["delay_ms"] = 30_000
    return life.job


@kind("J8")
def claimed_before_its_retry_was_due(history: History) -> str:
    """A job runs again before the wait that its retry asked for."""
    _, retry, _ = failed_once(history)
    for entry in history.by_job[retry.item["job"]]:
        if entry.row.get("f") == "retry":
            entry.item["delay_ms"] += 5_000
    return str(retry.item["job"])


# --- J9 and J10: order and turns ---------------------------------------------------------------------------------------------


@kind("J9")
def lower_priority_claimed_first(history: History) -> str:
    """A job of low priority is handed out while one of high priority waits in its lane."""
    urgent = history.shift(history.take(unkeyed), 400 * MS)
    lowly = history.take(lambda life: unkeyed(life) and near(urgent, life) and same_lane(urgent, life))
    urgent.claim.item["priority"] = 10
    return lowly.job


@kind("J9")
def later_job_claimed_first(history: History) -> str:
    """A job is handed out before an older one of its lane and priority."""
    older = history.shift(history.take(unkeyed), 400 * MS)
    younger = history.take(lambda life: unkeyed(life) and near(older, life) and same_lane(older, life))
    return younger.job


def unkeyed(life: Life) -> bool:
    """True for a job whose lane no key shares."""
    return life.claim.item["lane"] == life.claim.item["class"] and life.claim.item["priority"] == 5


def same_lane(one: Life, other: Life) -> bool:
    """True for two jobs of one lane."""
    return one.claim.item["lane"] == other.claim.item["lane"]


def near(late: Life, other: Life) -> bool:
    """True for a job that was enqueued after the enqueue of a late one was answered, and claimed before it."""
    enqueued = late.enqueue.row["done_ns"] < sent_ns(other.enqueue)
    return enqueued and sent_ns(other.claim) + 5 * MS < sent_ns(late.claim)


@kind("J10", apart=True)
def lane_that_gets_no_turn(history: History) -> str:
    """A lane waits while another one of its class is served a hundred times and more."""

    def unlimited(life: Life) -> bool:
        limited = {limit.get("name") for limit in history.spec.get("limits") or ()}
        return unkeyed(life) and life.claim.item["name"] not in limited

    life = history.take(unlimited)
    of_class, claimed_ns = life.claim.item["class"], sent_ns(life.claim)
    for entries in history.by_job.values():
        for entry in entries:
            if entry.item.get("class") == of_class and entry.label == "claim ok" and entry.item is not life.claim.item:
                entry.item["lane"] = f"{of_class}/another"
    times = sorted(
        entry.row["first_send_ns"]
        for entries in history.by_job.values()
        for entry in entries
        if entry.label == "claim ok" and entry.item.get("class") == of_class and entry.row["first_send_ns"] > claimed_ns
    )
    history.shift(life, times[150] - claimed_ns + S)
    # J22 sees it as well, unless the job has a unique key.
    life.enqueue.item["unique"] = life.enqueue_sent.item["unique"] = f"only-{life.job}"
    return life.job


# --- J12: limits -------------------------------------------------------------------------------------------------------------


@kind("J12", apart=True)
def limit_exceeded(history: History) -> str:
    """Jobs of one tenant are handed out beyond its limit."""
    keyed = next(limit for limit in history.spec["limits"] if limit.get("key"))
    for _ in range(3 + keyed["concurrency"]):
        life = history.take()
        start_ns = max(row["t_ns"] for row in history.harness if row["kind"] == "phase") - 2 * S
        moved = history.shift(life, start_ns - sent_ns(life.claim))
        moved.claim.item["lane"] = f"{moved.claim.item['class']}/one-tenant"
        for entry in (moved.handled, moved.effect, moved.finish_sent, moved.finish):
            late(entry, 300 * MS)
    return "one-tenant"


def late(entry: Entry, by_ns: int) -> None:
    """Let a row happen later."""
    for name in ("t_ns", "done_ns", "last_send_ns", *(["first_send_ns"] if entry.row.get("f") == "finish" else [])):
        if entry.row.get(name) is not None:
            entry.row[name] += by_ns


# --- J13: liveness -----------------------------------------------------------------------------------------------------------


@kind("J13")
def waiting_for_ever(history: History) -> str:
    """A job is never handed out."""
    life = before_last_heal(history)
    history.remove(*life.all)
    history.unlist(life.job)
    for name in ("deadline", "end"):
        history.list_in(name, "waiting", life.job)
    return life.job


@kind("J13")
def delayed_for_ever(history: History) -> str:
    """A delayed job is never promoted."""
    life = before_last_heal(history)
    history.remove(*life.all)
    history.unlist(life.job)
    due_ms = life.enqueue.row["srv_us"] // 1_000
    for name in ("deadline", "end"):
        history.list_in(name, "delayed", life.job, due_ms)
    return life.job


@kind("J13")
def lease_that_ran_out_and_stays(history: History) -> str:
    """A lease that is over is not taken away."""
    life = before_last_heal(history)
    history.remove(life.start, life.handled, life.effect, life.finish_sent, life.finish)
    history.unlist(life.job)
    for name in ("deadline", "end"):
        history.list_in(name, "active", life.job, life.claim.item["deadline_ms"])
    return life.job


@kind("J13", apart=True)
def worker_that_stops_claiming(history: History) -> str:
    """A worker lives on and claims nothing any more."""
    heal_ns, name = last_heal_ns(history), history.workers()[0]
    rows = history.files[f"{name}.jsonl"]
    other = history.another(name)
    for row in [row for row in rows if row.get("f") in ("claim", "handle", "finish") and row["t_ns"] > heal_ns]:
        if row.get("items"):
            row["proc"] = other
            history.files[f"{other}.jsonl"].append(row)
        rows.remove(row)
    return name


@kind("J13", apart=True)
def killed_workers_job_never_ran_again(history: History) -> str | None:
    """A job that a killed worker had in hand stays where it was."""
    kill = next(row for row in history.harness if row["kind"] == "fault" and row["stage"] == "witness" and row.get("items"))
    job = kill["items"][0]["job"]
    for entry in history.by_job[job]:
        if entry.row["t_ns"] > kill["t_ns"] and entry.row["kind"] in ("operation", "effect"):
            history.remove(entry)
    history.unlist(job)
    for name in ("deadline", "end"):
        history.list_in(name, "active", job, 1)
    return str(job)


# --- J14: unique keys --------------------------------------------------------------------------------------------------------


@kind("J14")
def key_taken_twice(history: History) -> str:
    """A job is created while another one certainly has its unique key."""

    def surely(entry: Entry) -> bool:
        return refused(entry) and held(history.by_job[entry.item["holder"]], sent_ns(entry), entry.row["done_ns"])

    job, entries = history.find(lambda entries: any(map(surely, entries)))
    for entry in entries:
        if refused(entry):
            entry.item["result"] = "created"
            entry.item.pop("holder")
            entry.row["result"] = "created"
    return job


@kind("J14")
def key_kept_after_the_end_of_its_holder(history: History) -> str:
    """An enqueue is refused for a key whose job has ended a second before."""
    last_ns = max(sent_ns(life.enqueue) for life in history.left)
    holder = history.take(lambda life: life.finish.row["done_ns"] + S < last_ns)
    later = history.take(lambda life: sent_ns(life.enqueue) > holder.finish.row["done_ns"] + S)
    for entry in (holder.enqueue_sent, holder.enqueue, later.enqueue_sent, later.enqueue):
        entry.item["unique"] = f"only-{holder.job}"
    history.remove(*later.all)
    history.unlist(later.job)
    later.enqueue.item.update({"result": "duplicate", "holder": holder.job})
    return later.job


def refused(entry: Entry) -> bool:
    """True for the answer that an enqueue was refused for its unique key."""
    return entry.label == "enqueue ok" and entry.item.get("result") == "duplicate" and bool(entry.item.get("holder"))


def held(entries: list[Entry], from_ns: int, to_ns: int) -> bool:
    """True when a job was there all that time: its enqueue was answered before, and no call that may end it was sent. The slower
    a machine, the more refusals come while their holder is about to end, and those prove nothing."""
    made_ns = [entry.row["done_ns"] for entry in entries if entry.label == "enqueue ok"]
    ended_ns = [sent_ns(entry) for entry in entries if entry.row.get("f") in ENDING]
    return bool(made_ns) and max(made_ns) < from_ns and to_ns < min(ended_ns, default=0)


# --- J15: ticks --------------------------------------------------------------------------------------------------------------


def ticks(history: History) -> list[str]:
    """The jobs of a schedule in order, but the first and the last ones, that no fault touched and no other edit has."""
    windows = history.windows()

    def calm(job: str) -> bool:
        return not any(b <= entry.row["t_ns"] <= e for entry in history.by_job[job] for b, e in windows)

    jobs = sorted(job for job in history.by_job if job.startswith("cron:"))
    return [job for job in jobs[2:-2] if calm(job) and job not in history.taken]


def tick_of(history: History, since_ns: int = 0) -> str:
    """One of them, which fired at that instant or later. Raises JudgeError when there is none."""
    jobs = [job for job in ticks(history) if min(entry.row["t_ns"] for entry in history.by_job[job]) >= since_ns]
    if not jobs:
        raise JudgeError("no schedule ticked without a fault about: record a longer one")
    job = history.draw.choice(jobs)
    history.taken.add(job)
    return job


@kind("J15", apart=True)
def tick_that_made_no_job(history: History) -> str:
    """A schedule leaves a tick out."""
    jobs = sorted(job for job in history.by_job if job.startswith("cron:"))
    job = tick_of(history)
    history.remove(*history.by_job[job])
    history.unlist(job)
    return jobs[jobs.index(job) + 1]


@kind("J15")
def tick_before_its_time(history: History) -> str:
    """A tick fires half a second early."""
    job = tick_of(history)
    for entry in history.by_job[job]:
        if entry.row.get("f") == "tick" and entry.row.get("srv_us"):
            entry.row["srv_us"] -= 500_000
    return job


@kind("J15")
def tick_long_after_its_time(history: History) -> str:
    """A tick fires a minute late. That it does so proves nothing until a worker has been there for as long as one may take."""
    opened_ns = min(history.files[f"{proc}.jsonl"][0]["t_ns"] for proc in history.workers())
    job = tick_of(history, opened_ns + history.spec["recovery_bound_ms"] * MS + S)
    for entry in history.by_job[job]:
        if entry.row.get("f") == "tick" and entry.row.get("srv_us"):
            entry.row["srv_us"] += 60_000_000
    return job


# --- J16: payloads -----------------------------------------------------------------------------------------------------------


@kind("J16")
def payload_changed_on_its_way(history: History) -> str:
    """A job is handed out with another payload than it was sent with."""
    life = history.take()
    life.claim.item["crc"] ^= 1
    return life.job


@kind("J16")
def handler_got_another_payload(history: History) -> str:
    """A handler sees another payload than its worker was handed."""
    life = history.take()
    life.effect.item["crc"] ^= 1
    return life.job


@kind("J16")
def payloads_swapped(history: History) -> str:
    """Two jobs come with each other's payload."""
    one, other = history.take(), history.take()
    for first, second in ((one.claim, other.claim), (one.effect, other.effect)):
        first.item["crc"], second.item["crc"] = second.item["crc"], first.item["crc"]
    return one.job


# --- J17: parents ------------------------------------------------------------------------------------------------------------


@kind("J17")
def child_before_its_parent(history: History) -> str:
    """A job runs while one that it needs still waits."""
    parent = history.take()
    child = history.take(lambda life: sent_ns(life.claim) > parent.enqueue.row["done_ns"])
    history.shift(parent, max(0, child.claim.row["done_ns"] - sent_ns(parent.claim)) + S)
    for entry in (child.enqueue_sent, child.enqueue):
        entry.item.update({"needs": [parent.job], "on_parent_failure": "bury"})
    return child.job


@kind("J17")
def child_of_a_buried_parent(history: History) -> str:
    """A job runs though one that it needs has failed for good."""
    parent = history.take()
    child = history.take(lambda life: sent_ns(life.claim) > parent.finish.row["done_ns"] + 5 * MS)
    for entry in (child.enqueue_sent, child.enqueue):
        entry.item.update({"needs": [parent.job], "on_parent_failure": "bury"})
    own = [history.alone(entry) for entry in (parent.finish_sent, parent.finish)]
    for entry in own:
        entry.row["f"] = "bury"
    own[1].item["outcome"] = "buried"
    parent.handled.row["type"] = "fail"
    history.unlist(parent.job)
    history.list_in("end", "dead", parent.job)
    return child.job


# --- J18: routing ------------------------------------------------------------------------------------------------------------


@kind("J18")
def given_to_a_worker_that_it_is_not_for(history: History) -> str:
    """A routed job is handed to a worker without what it asks for."""
    life = history.take(lambda life: life.proc.startswith("consumer-"))
    life.claim.item["class"] = f"{life.claim.item['class']}~3312a4c78dd04d8f"
    return life.job


# --- J20: handlers -----------------------------------------------------------------------------------------------------------


@kind("J20")
def finished_and_no_handler_ran(history: History) -> str:
    """A job counts as done and no handler was started."""
    life = history.take()
    history.remove(life.start, life.handled)
    return life.job


@kind("J20")
def finished_before_its_handler_ended(history: History) -> str:
    """A job counts as done while its handler runs."""
    life = history.take()
    life.handled.row["done_ns"] += 500 * MS
    life.handled.row["t_ns"] += 500 * MS
    return life.job


@kind("J20")
def finished_and_its_handler_never_ended(history: History) -> str:
    """A job counts as done and its handler never came back."""
    life = history.take()
    history.remove(life.handled)
    return life.job


@kind("J20")
def finished_though_its_handler_raised(history: History) -> str:
    """A job counts as done though its handler failed."""
    life = history.take()
    life.handled.row.update({"type": "fail", "error": "ValueError: no"})
    return life.job


@kind("J20")
def retried_though_its_handler_returned(history: History) -> str:
    """A job runs again though its handler returned."""
    life = history.take()
    own = [history.alone(entry) for entry in (life.finish_sent, life.finish)]
    for entry in own:
        entry.row["f"] = "retry"
        entry.item["delay_ms"] = 500
    own[1].item["outcome"] = "retried"
    return life.job


@kind("J20")
def handled_twice_under_one_token(history: History) -> str:
    """A handler runs twice for one claim."""
    life = history.take()
    start_ns = sent_ns(life.start)
    history.handled(life, life.proc, life.claim.item, start_ns, start_ns + MS, effect=False)
    return life.job


# --- J21: leases -------------------------------------------------------------------------------------------------------------


@kind("J21")
def lease_longer_than_asked(history: History) -> str:
    """A claim is answered with a lease of a minute more."""
    life = history.take()
    life.claim.item["deadline_ms"] += 60_000
    return life.job


@kind("J21")
def renewal_longer_than_asked(history: History) -> str:
    """A renewal is answered with an hour."""
    life = history.take()
    lease_ms = life.claim.row["lease_ms"]
    deadline_ms = life.claim.item["deadline_ms"] + 3_600_000
    at_ns = sent_ns(life.start)
    token = {name: life.claim.item[name] for name in ("job", "fence", "nonce")}
    like = {**life.claim.row, "f": "extend", "lease_ms": lease_ms}
    item = {**token, "result": "ok", "deadline_ms": deadline_ms}
    history.call(life.proc, like, [item], at_ns, result="")
    return life.job
