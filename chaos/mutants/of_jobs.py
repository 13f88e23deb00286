"""Mutants of jobs: the clean engine, or the harness, with one planted defect each."""

from __future__ import annotations

from chaos import topologies
from chaos.faces import HTTP
from chaos.mutants import Mutant
from chaos.planting import Edit

#: A reply of one job, or a letter for each of several: what the script answers when it has made them.
_CREATED = """import time
us = time.time_ns() // 1000
jobs = getattr(self.call.operation, "jobs", ())
made = {"Enqueue": [us, b"created", b"", b"0", b""], "EnqueueMany": [us, b"c" * len(jobs), []]}
if str(getattr(reply, "status_code", "")) == "MOVED":
    reply = made.get(type(self.call.operation).__name__, reply)
if not isinstance(reply, NotSent):"""

#: A name with hardly more places in a window than a short drill has jobs for it, and tenants with one place each.
_RATED = {"limits": ({"name": "report", "rate": 14, "per_ms": 400},)}
_LIMITED = {"limits": ({"key": "*", "concurrency": 1},)}

#: What stays open, or looks unfinished, where rows are missing.
_OPEN_WITHOUT_ROWS = frozenset(
    {"H0", "H2", "J1", "J2", "J3", "J4", "J5", "J6", "J7", "J8", "J9", "J10", "J13", "J16", "J20", "J21", "J24"},
)

_MUTANTS = (
    Mutant(
        name="finish-without-token-check",
        defect="a finish is accepted whatever its token, also when another worker has finished the job since",
        check="J3",
        verdict="violated",
        edits=(
            Edit(
                "fence-checked",
                "local fields = run and run_open(run_key)\n"
                "if fields and fields.seal then\n"
                "state, seals[at], limits[at] = 'held', fields.seal, fields.limits\n"
                "elseif run and string.sub(run, 1, #token) == token then",
            ),
        ),
        provoked_by=("worker-freeze",),
        # It finishes a job twice, and refuses the finish that was right.
        also=frozenset({"J6", "J4", "H2"}),
    ),
    Mutant(
        name="extend-without-token-check",
        defect="a lease is renewed whatever the token, also when another worker has the job by now",
        check="J3",
        verdict="violated",
        edits=(Edit("renewal-after-the-deadline-is-accepted", "if deadline_ms == 0 then"),),
        provoked_by=("worker-freeze",),
        # The renewal of a worker that is gone keeps the job of another one from being taken away.
        also=frozenset({"J1", "J13", "H0", "H1", "H2"}),
    ),
    Mutant(
        name="claim-not-atomic",
        defect="two claims in one moment, now and then, get the same jobs",
        check="J1",
        verdict="violated",
        edits=(
            Edit(
                "claimed-jobs-leave-their-lane",
                "for at = 1, ids == lane.jobs and now_ms % 10 == 0 and 0 or #ids, PIECE do\n"
                "redis.call('ZREM', lane.zset, unpack(ids, at, math.min(at + PIECE - 1, #ids)))\n"
                "end",
            ),
            Edit("leased-job-is-not-claimed", "if not kind or kind == 'T' then"),
        ),
        provoked_by=("worker-kill",),
        # What two workers run ends twice, fails twice, is refused to one of them, and is claimed while it waits for a retry.
        also=frozenset({"J2", "J3", "J6", "J7", "J8", "J9", "H0", "H2"}),
    ),
    Mutant(
        name="finish-before-run",
        defect="a worker finishes its jobs when they start, so that those are lost with it that it has not run",
        check="J20",
        verdict="violated",
        edits=(
            Edit(
                "finishes-follow-their-handlers",
                "self._timeouts.began(job, now_ns)\nself._acknowledgements.finish(job.lease, now_ns)",
            ),
        ),
        provoked_by=("worker-kill",),
        # Nothing is in hand that could run elsewhere, and a finish that is sent again after the run is refused.
        also=frozenset({"J3", "J6", "J7", "H2"}),
    ),
    Mutant(
        name="enqueue-not-idempotent",
        defect="an enqueue that is sent again after its reply was lost creates the job once more",
        check="J6",
        verdict="violated",
        edits=(Edit("enqueue-is-recognized-when-repeated", "if result == 'duplicate' then"),),
        provoked_by=("net-reply-lost",),
        # A job that is there twice is claimed and finished twice, the first time before the delay of its second enqueue is over,
        # and no enqueue is ever said to be repeated; nor does one say that it has made the job whose second copy another job's
        # unique key has kept out.
        also=frozenset({"J3", "J4", "J5", "J8", "H2"}),
    ),
    Mutant(
        name="http-key-dropped",
        defect="an app makes a job of each request, whatever its idempotency key",
        check="J4",
        verdict="violated",
        edits=(Edit("key-becomes-the-id", ""),),
        provoked_by=("app-kill",),
        scenario={"face": HTTP},
        # Jobs run under ids that nobody has asked for.
        also=frozenset({"J5"}),
    ),
    Mutant(
        name="no-reap",
        defect="leases that ran out are never taken away",
        check="J13",
        verdict="violated",
        # Those of a killed process are not taken by its lost connection either.
        edits=(Edit("no-reap-after-a-stall", "expired = {}"), Edit("registration-is-unchanged", "local _ = connections")),
        provoked_by=("worker-kill",),
        # It leaves its job and the fault unfinished.
        also=frozenset({"H0", "H1", "H2"}),
    ),
    Mutant(
        name="lost-without-its-condition",
        defect="the leases of a worker whose connection was missing are taken, whichever it has named since",
        check="J1",
        verdict="violated",
        edits=(
            Edit("registration-is-unchanged", "gone[ARGV[at]] = true"),
            # The rule allows a look to come late. One that comes at once seldom meets a connection that has just changed.
            Edit("looks-follow-at-once", "self._watched, self._look_at_ns = watched, now_ns + 1_000 * MS"),
        ),
        provoked_by=("worker-cut",),
    ),
    Mutant(
        name="crash-forgotten",
        defect="a lease that is taken away leaves no trace in the count of crashes, so a job that kills its workers never ends",
        check="J7",
        verdict="violated",
        edits=(
            Edit(
                "reaped-lease-leaves-its-count",
                "if live then run_write(run, 'nonce', '', 'limits', '', unpack(lost())) end",
            ),
        ),
        provoked_by=("worker-kill",),
    ),
    Mutant(
        name="due-by-another-clock",
        defect="due times are counted from a clock that is 300 ms behind that of the server",
        check="J8",
        verdict="violated",
        edits=(
            Edit(
                "delay-counts-from-the-servers-clock",
                "local due_ms = delay_ms > 0 and now_ms + math.max(1, delay_ms - 300) or -delay_ms",
            ),
            Edit("bulk-jobs-are-due-in-full-time", "due_ms = delay_ms > 0 and now_ms + math.max(1, delay_ms - 300) or -delay_ms"),
        ),
        provoked_by=("worker-kill",),
    ),
    Mutant(
        name="newest-first",
        defect="jobs are put in front of their lane instead of behind the others",
        check="J9",
        verdict="violated",
        edits=(Edit("lifo-jobs-go-in-front", "if flags then return middle - sequence end"),),
        provoked_by=("worker-kill",),
        scenario=_RATED,
        also=frozenset({"J13"}),
    ),
    Mutant(
        name="limit-not-counted",
        defect="leases do not count against the limits of concurrency",
        check="J12",
        verdict="violated",
        edits=(Edit("lease-holds-a-slot", "if false then"),),
        provoked_by=("worker-kill",),
        scenario=_LIMITED,
    ),
    Mutant(
        name="slot-not-freed",
        defect="a lease that is taken away keeps its place in the limits of concurrency, and no sweep ever frees that",
        check="J13",
        verdict="violated",
        edits=(Edit("reaped-lease-frees-its-slot", ""), Edit("slots-without-a-lease-are-swept", "")),
        provoked_by=("worker-kill", "worker-freeze"),
        scenario=_LIMITED,
        # Nothing of a tenant starts any more.
        also=frozenset({"J12", "H0", "H1", "H2"}),
    ),
    Mutant(
        name="rate-not-counted",
        defect="claims do not count against the limits of rates",
        check="J11",
        verdict="violated",
        edits=(Edit("claims-count-in-the-rate", "if false then"),),
        provoked_by=("worker-kill",),
        scenario=_RATED,
    ),
    Mutant(
        name="window-does-not-slide",
        defect="a sliding window of a rate is counted from its own start, so that two bursts fit in beside each other",
        check="J11",
        verdict="violated",
        edits=(Edit("fixed-window-begins-at-its-start", "kind = 'fixed'\nlocal start_ms = now_ms - now_ms % per_ms"),),
        provoked_by=("worker-kill",),
        scenario=_RATED,
    ),
    Mutant(
        name="unique-not-kept",
        defect="a unique key keeps nobody out while its job has not ended",
        check="J14",
        verdict="violated",
        edits=(
            Edit(
                "unique-key-is-held",
                "if job and job.unique == unique and state == 'dead' then return holder, state, fence end",
            ),
        ),
        provoked_by=("worker-kill",),
        scenario={"unique_keys": True},
    ),
    Mutant(
        name="unique-not-released",
        defect="a unique key goes on keeping others out when its job has ended",
        check="J14",
        verdict="violated",
        edits=(
            Edit("finished-job-frees-its-unique-key", ""),
            Edit("unique-key-is-held", "if job and state ~= 'dead' then return holder, state, fence end"),
        ),
        provoked_by=("worker-kill",),
        scenario={"unique_keys": True},
    ),
    Mutant(
        name="tick-by-its-own-clock",
        defect="the next tick of a schedule is counted from when the last one came, so that it drifts",
        check="J15",
        verdict="violated",
        edits=(
            Edit(
                "tick-checks-version-and-time",
                "if next_ms ~= '0' then next_ms = string.format('%d', next_ms + math.max(0, now_ms - expected_ms)) end\n"
                "last_ms = math.max(last_ms, expected_ms)\n"
                "if was[1] ~= version or was[2] ~= expected_ms or was[3] ~= '1' or last_ms > now_ms then",
            ),
        ),
        provoked_by=("worker-kill",),
        scenario={"schedules": ({"name": "beat", "every_ms": 500},)},
    ),
    Mutant(
        name="fence-through-tostring",
        defect="fences lose their last digits, as numbers do that go through a text, so that two leases of a job have the same",
        check="J2",
        verdict="violated",
        edits=(
            Edit(
                "fence-keeps-every-digit",
                "for _, each in ipairs(picked) do each.fence = tonumber(string.format('%.8g', each.fence)) end\n"
                "last, fence = job.fence, string.format('%d', job.fence)",
            ),
        ),
        provoked_by=("worker-freeze",),
        # A lease that is newer and has no greater fence looks older, to the witness of the freeze as well.
        also=frozenset({"J3", "J9", "H1", "H2"}),
    ),
    Mutant(
        name="writes-to-a-replaced-primary",
        defect="a server at the address of the primary is written to, whatever the sentinels have decided since",
        check="J24",
        verdict="violated",
        edits=(
            Edit("majority-is-followed", "self._primary, self._answered_ns = self._primary or agreed, time.monotonic_ns()"),
            Edit("server-is-the-named-one", "if False:"),
        ),
        topology=topologies.SENTINEL,
        provoked_by=("primary-kill",),
        # Clients that nobody answers leave everything where it is, and cannot even stop: they are killed before they close their
        # histories.
        also=frozenset({"H1", "H3", *_OPEN_WITHOUT_ROWS}),
    ),
    Mutant(
        name="era-ignored",
        defect="a process that meets another server does not ask what is missing there",
        check="J24",
        verdict="violated",
        edits=(Edit("another-server-is-asked", "return ()"),),
        topology=topologies.SENTINEL,
        provoked_by=("failover-lossy",),
        # Jobs that the new primary lacks are never made again, and the harness waits for them until long after its deadline.
        also=frozenset({"J4", "H0"}),
    ),
    Mutant(
        name="moved-taken-as-success",
        defect="an enqueue that a node answers with MOVED is taken for done",
        check="J4",
        verdict="violated",
        edits=(Edit("redirection-is-no-answer", _CREATED),),
        topology=topologies.CLUSTER,
        provoked_by=("slot-move",),
        # A job that was never made held a unique key, for the judge; and the repeat of one that was made is a second one.
        also=frozenset({"J6", "J14"}),
    ),
    Mutant(
        name="inject-nothing",
        defect="faults are announced and not injected",
        check="H1",
        verdict="unknown",
        faults_do_nothing=True,
        provoked_by=("worker-kill",),
        # Faults that do nothing provoke nothing.
        also=frozenset({"H2"}),
    ),
    Mutant(
        name="histories-lost",
        defect="what the processes recorded is lost before the judge sees it",
        check="H0",
        verdict="unknown",
        histories_lost=True,
        provoked_by=("worker-kill",),
        # Without a row of a claim or a finish no check can pass.
        also=_OPEN_WITHOUT_ROWS,
    ),
)

MUTANTS: dict[str, Mutant] = {mutant.name: mutant for mutant in _MUTANTS}
