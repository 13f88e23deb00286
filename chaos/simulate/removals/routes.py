"""Rules 18, 20, 22, 23, 25 and 27: which workers may run a job, what a job costs of a rate, and jobs that are skipped or go on
elsewhere."""

from __future__ import annotations

from chaos.planting import Edit
from chaos.simulate.patching import Removal

ROUTES = (
    Removal(
        18,
        "a worker claims the jobs of all classes",
        (Edit("only-matching-classes-are-claimed", "classes = self._plain + tuple(sorted(name for name, _ in reply.targets))"),),
        ("routed",),
        ("routes",),
    ),
    Removal(
        20,
        "classes of one name have the room of its limit each",
        (Edit("classes-share-the-room-of-their-limit", "if other.name == class.name then other.room = other.room - taken end"),),
        ("limit",),
        ("routes",),
    ),
    Removal(
        20,
        "a job takes one place of a rate, whatever it costs",
        (Edit("rate-is-charged-the-cost-of-the-job", "for unit = 1, 1 do"),),
        ("rate",),
        ("costs",),
    ),
    Removal(
        22,
        "nobody is told of a new class",
        (Edit("new-class-is-announced", ""),),
        ("pickup", "liveness"),
        ("routes",),
    ),
    Removal(
        23,
        "a job that is skipped keeps its unique key",
        (Edit("skipped-job-frees-its-unique-key", ""),),
        ("unique left",),
        ("drops",),
    ),
    Removal(
        25,
        "a parent that was skipped counts as finished",
        (
            Edit(
                "dropped-parent-counts-as-lost",
                "if outcome == 'skipped' then return 'done' elseif lost[outcome] then return 'lost' end",
            ),
        ),
        ("parent lost",),
        ("drops",),
    ),
    Removal(
        27,
        "a job that goes on elsewhere ends here first",
        (Edit("rerouted-jobs-are-enqueued-before-they-end", 'self._acknowledgements.drop(job.lease, "rerouted")'),),
        ("drop",),
        ("drops",),
    ),
    Removal(
        27,
        "a call that meets a slot that moves is refused for good",
        (Edit("slots-that-move-are-no-fault", "if trouble is Trouble.FAULT or message.startswith(_SLOT_WORDS):"),),
        ("fault",),
        ("slot moves",),
    ),
    Removal(
        27,
        "a script that stopped at a key that has gone is not sent again",
        (
            Edit(
                "slots-that-move-are-no-fault",
                "if _HALF_WAY_TEXT in message: return GiveUp(Verdict.FAULT)\nif trouble is Trouble.FAULT:",
            ),
        ),
        ("fault",),
        ("slot moves half way",),
    ),
    Removal(
        27,
        "where its slot has moved, an enqueue is taken to be done",
        (
            Edit(
                "redirection-is-no-answer",
                """if str(reply).startswith("3999") and type(self.call.operation).__name__ == "Enqueue":
    reply = [self._clock.now_ms(self._first_send_ns) * 1000, b"created", b"", b"0", b""]
if not isinstance(reply, NotSent):""",
            ),
        ),
        ("told created",),
        ("slot moves",),
    ),
)
