"""Mutants of jobs: the clean engine, or the harness, with one planted defect each."""

from __future__ import annotations

from chaos import topologies
from chaos.catalogue import HTTP
from chaos.mutants import Mutant

#: A reply of one job, or a letter for each of several: what the script answers when it has made them.
_CREATED = """import time
us = time.time_ns() // 1000
jobs = getattr(self.call.operation, "jobs", ())
made = {"Enqueue": [us, b"created", b"", b"0", b""], "EnqueueMany": [us, b"c" * len(jobs), []]}
if str(getattr(reply, "status_code", "")) == "MOVED":
    reply = made.get(type(self.call.operation).__name__, reply)
if not isinstance(reply, NotSent):"""

#: A name with hardly more units in a window than a short drill has jobs for it, and tenants with one unit each.
_RATED = ({"name": "report", "rate": 14, "per_ms": 400},)
_LIMITED = ({"key": "*", "concurrency": 1},)

#: What stays open, or looks unfinished, where rows are missing.
_OPEN_WITHOUT_ROWS = frozenset(
    {"H0", "H2", "J1", "J2", "J3", "J4", "J5", "J6", "J7", "J8", "J9", "J10", "J13", "J16", "J20", "J21", "J24"}
)

_MUTANTS = (
    Mutant(
        "finish-without-token-check",
        "a finish is accepted whatever its token, also when another worker has finished the job since",
        "J3",
    )
    # It finishes a job twice, and refuses the finish that was right.
    .on("worker-freeze", also="J6, J4, H2")
    .by(
        "fence-checked",
        "local fields = run and run_open(run_key)\n"
        "if fields and fields.seal then\n"
        "state, seals[at], limits[at] = 'held', fields.seal, fields.limits\n"
        "elseif run and string.sub(run, 1, #token) == token then",
    ),
    Mutant(
        "extend-without-token-check", "a lease is renewed whatever the token, also when another worker has the job by now", "J3"
    )
    # The renewal of a worker that is gone keeps the job of another one from being reaped.
    .on("worker-freeze", also="J1, J13, H0, H1, H2")
    .by("renewal-after-the-deadline-is-accepted", "if deadline_ms == 0 then"),
    Mutant("claim-not-atomic", "two claims in one moment, now and then, get the same jobs", "J1")
    # What two workers run ends twice, fails twice, is refused to one of them, and is claimed while it waits for a retry.
    .on("worker-kill", also="J2, J3, J6, J7, J8, J9, H0, H2")
    .by(
        "claimed-jobs-leave-their-lane",
        "for at = 1, ids == lane.jobs and now_ms % 10 == 0 and 0 or #ids, PIECE do\n"
        "redis.call('ZREM', lane.zset, unpack(ids, at, math.min(at + PIECE - 1, #ids)))\n"
        "end",
    )
    .by("leased-job-is-not-claimed", "if not kind or kind == 'T' then"),
    Mutant(
        "finish-before-run",
        "a worker finishes its jobs when they start, so that those are lost with it that it has not run",
        "J20",
    )
    # Nothing is in hand that could run elsewhere, and a finish that is sent again after the run is refused.
    .on("worker-kill", also="J3, J6, J7, H2")
    .by("finishes-follow-their-handlers", "self._timeouts.began(job, now_ns)\nself._acknowledgements.finish(job.lease, now_ns)"),
    Mutant("enqueue-not-idempotent", "an enqueue that is sent again after its reply was lost creates the job once more", "J6")
    # A job that is there twice is claimed and finished twice, the first time before the delay of its second enqueue is over,
    # and no enqueue is ever said to be repeated; nor does one say that it has made the job whose second copy another job's
    # unique key has kept out.
    .on("net-reply-lost", also="J3, J4, J5, J8, H2")
    .by("enqueue-is-recognized-when-repeated", "if result == 'duplicate' then"),
    Mutant("http-key-dropped", "an app makes a job of each request, whatever its idempotency key", "J4")
    # Jobs run under ids that nobody has asked for.
    .on("app-kill", also="J5", face=HTTP)
    .by("key-becomes-the-id", ""),
    Mutant("no-reap", "leases that ran out are never reaped", "J13")
    # It leaves its job and the fault unfinished.
    .on("worker-kill", also="H0, H1, H2")
    # Those of a killed process are not taken by its lost connection either.
    .by("no-reap-after-a-stall", "expired = {}")
    .by("registration-is-unchanged", "local _ = connections"),
    Mutant(
        "lost-without-its-condition",
        "the leases of a worker whose connection was missing are taken, whichever it has named since",
        "J1",
    )
    .on("worker-cut")
    .by("registration-is-unchanged", "gone[ARGV[at]] = true")
    # The rule allows a look to come late. One that comes at once seldom meets a connection that has just changed.
    .by("looks-follow-at-once", "self._watched, self._look_at_ns = watched, now_ns + 1_000 * MS"),
    Mutant(
        "crash-forgotten",
        "a reaped lease leaves no trace in the count of crashes, so a job that kills its workers never ends",
        "J7",
    )
    .on("worker-kill")
    .by("reaped-lease-leaves-its-count", "if live then run_write(run, 'nonce', '', 'limits', '', unpack(lost())) end"),
    Mutant("due-by-another-clock", "due times are counted from a clock that is 300 ms behind that of the server", "J8")
    .on("worker-kill")
    .by(
        "delay-counts-from-the-servers-clock", "local due_ms = delay_ms > 0 and now_ms + math.max(1, delay_ms - 300) or -delay_ms"
    )
    .by("bulk-jobs-are-due-in-full-time", "due_ms = delay_ms > 0 and now_ms + math.max(1, delay_ms - 300) or -delay_ms"),
    Mutant("newest-first", "jobs are put in front of their lane instead of behind the others", "J9")
    .on("worker-kill", also="J13", limits=_RATED)
    .by("lifo-jobs-go-in-front", "if flags then return middle - sequence end"),
    Mutant("limit-not-counted", "leases do not count against the limits of concurrency", "J12")
    .on("worker-kill", limits=_LIMITED)
    .by("lease-holds-a-slot", "if false then"),
    Mutant(
        "slot-not-freed",
        "a reaped lease keeps its limit slots, and no sweep ever frees those",
        "J13",
    )
    # Nothing of a tenant starts any more.
    .on("worker-kill", "worker-freeze", also="J12, H0, H1, H2", limits=_LIMITED)
    .by("reaped-lease-frees-its-slot", "")
    .by("slots-without-a-lease-are-swept", ""),
    Mutant("rate-not-counted", "claims do not count against the limits of rates", "J11")
    .on("worker-kill", limits=_RATED)
    .by("claims-count-in-the-rate", "if false then"),
    Mutant(
        "window-does-not-slide",
        "a sliding window of a rate is counted from its own start, so that two bursts fit in beside each other",
        "J11",
    )
    .on("worker-kill", limits=_RATED)
    .by("fixed-window-begins-at-its-start", "kind = 'fixed'\nlocal start_ms = now_ms - now_ms % per_ms"),
    Mutant("unique-not-kept", "a unique key keeps nobody out while its job has not ended", "J14")
    .on("worker-kill", unique_keys=True)
    .by("unique-key-is-held", "if job and job.unique == unique and state == 'dead' then return holder, state, fence end"),
    Mutant("unique-not-released", "a unique key goes on keeping others out when its job has ended", "J14")
    .on("worker-kill", unique_keys=True)
    .by("finished-job-frees-its-unique-key", "")
    .by("unique-key-is-held", "if job and state ~= 'dead' then return holder, state, fence end"),
    Mutant(
        "tick-by-its-own-clock", "the next tick of a schedule is counted from when the last one came, so that it drifts", "J15"
    )
    .on("worker-kill", schedules=({"name": "beat", "every_ms": 500},))
    .by(
        "tick-checks-version-and-time",
        "if next_ms ~= '0' then next_ms = string.format('%d', next_ms + math.max(0, now_ms - expected_ms)) end\n"
        "last_ms = math.max(last_ms, expected_ms)\n"
        "if was.version ~= version or was.next_ms ~= expected_ms or was.enabled ~= '1' or last_ms > now_ms then",
    ),
    Mutant(
        "fence-through-tostring",
        "fences lose their last digits, as numbers do that go through a text, so that two leases of a job have the same",
        "J2",
    )
    # A lease that is newer and has no greater fence looks older, to the witness of the freeze as well.
    .on("worker-freeze", also="J3, J9, H1, H2")
    .by(
        "fence-keeps-every-digit",
        "for _, each in ipairs(picked) do each.fence = tonumber(string.format('%.8g', each.fence)) end\n"
        "last, fence = job.fence, string.format('%d', job.fence)",
    ),
    Mutant(
        "writes-to-a-replaced-primary",
        "a server at the address of the primary is written to, whatever the sentinels have decided since",
        "J24",
    )
    # Clients that nobody answers leave everything where it is, and cannot even stop: they are killed before they close their
    # histories.
    .on("primary-kill", topology=topologies.SENTINEL, also=frozenset({"H1", "H3", *_OPEN_WITHOUT_ROWS}))
    .by("majority-is-followed", "self._primary, self._answered_ns = self._primary or agreed, time.monotonic_ns()")
    .by("server-is-the-named-one", "if False:"),
    Mutant("era-ignored", "a process that meets another server does not ask what is missing there", "J24")
    # Jobs that the new primary lacks are never made again, and the harness waits for them until long after its deadline.
    .on("failover-lossy", topology=topologies.SENTINEL, also="J4, H0")
    .by("another-server-is-asked", "return ()"),
    Mutant("moved-taken-as-success", "an enqueue that a node answers with MOVED is taken for done", "J4")
    # A job that was never made held a unique key, for the judge; and the repeat of one that was made is a second one.
    .on("slot-move", topology=topologies.CLUSTER, also="J6, J14")
    .by("redirection-is-no-answer", _CREATED),
    Mutant("inject-nothing", "faults are announced and not injected", "H1", "unknown", faults_do_nothing=True)
    # Faults that do nothing provoke nothing.
    .on("worker-kill", also="H2"),
    Mutant("histories-lost", "what the processes recorded is lost before the judge sees it", "H0", "unknown", histories_lost=True)
    # Without a row of a claim or a finish no check can pass.
    .on("worker-kill", also=_OPEN_WITHOUT_ROWS),
)

MUTANTS: dict[str, Mutant] = {mutant.name: mutant for mutant in _MUTANTS}
