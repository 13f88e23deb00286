"""Rules 18, 20, 22, 23, 25 and 27: which workers may run a job, what a job costs of a rate, and jobs that are skipped or go on
elsewhere."""

from __future__ import annotations

from chaos.simulate.patching import Edit, Removal

ROUTES = (
    Removal(
        18,
        "a worker claims the jobs of all classes",
        (
            Edit(
                "engine.worker.machine.claiming:Claiming.learned",
                "matching(reply.targets, self._settings.classes, self._settings.attributes)",
                "tuple(sorted(name for name, _ in reply.targets))",
            ),
        ),
        ("routed",),
        ("routes",),
    ),
    Removal(
        20,
        "classes of one name have the room of its limit each",
        (
            Edit(
                "include/pick_jobs.lua",
                "if other.limit == class.limit then other.room",
                "if other.name == class.name then other.room",
            ),
        ),
        ("limit",),
        ("routes",),
    ),
    Removal(
        20,
        "a job takes one place of a rate, whatever it costs",
        (Edit("include/count_leases.lua", "for unit = 1, math.min(leases.costs[at], tonumber(rate)) do", "for unit = 1, 1 do"),),
        ("rate",),
        ("costs",),
    ),
    Removal(
        22,
        "nobody is told of a new class",
        (Edit("include/note_class.lua", "    helpers.tell_news(prefix, now_ms)\n", ""),),
        ("pickup", "liveness"),
        ("routes",),
    ),
    Removal(
        23,
        "a job that is skipped keeps its unique key",
        (Edit("drop.lua", "    free_unique(prefix, lease.job, lease.id)\n", ""),),
        ("unique left",),
        ("drops",),
    ),
    Removal(
        25,
        "a parent that was skipped is lost to its children",
        (
            Edit("include/parent_fate.lua", "outcome == 'finished' or outcome == 'skipped'", "outcome == 'finished'"),
            Edit("include/parent_fate.lua", "if outcome == 'discarded'", "if outcome == 'skipped' or outcome == 'discarded'"),
        ),
        ("parent lost",),
        ("drops",),
    ),
    Removal(
        27,
        "a job that goes on elsewhere ends here first",
        (
            Edit(
                "engine.worker.machine.replies:ReplyHandling._fail",
                "self._acknowledgements.rerouting.add(job, failure, end.target)",
                'self._acknowledgements.drop(job.lease, "rerouted")',
            ),
        ),
        ("drop",),
        ("drops",),
    ),
)
