"""Rules 18, 20, 22, 23, 25 and 27: which workers may run a job, what a job costs of a rate, and jobs that are skipped or go on
elsewhere."""

from __future__ import annotations

from chaos.simulate.patching import removal

ROUTES = (
    removal(18, "a worker claims the jobs of all classes", "routed", "routes").by(
        "only-matching-classes-are-claimed", "classes = self._plain + tuple(sorted(name for name, _ in reply.targets))"
    ),
    removal(20, "classes of one name have the room of its limit each", "limit", "routes").by(
        "classes-share-the-room-of-their-limit", "if other.name == class.name then other.room = other.room - taken end"
    ),
    removal(20, "a job uses up one unit of a rate, whatever it costs", "rate", "costs").by(
        "rate-is-charged-the-cost-of-the-job", "for unit = 1, 1 do"
    ),
    removal(22, "nobody is told of a new class", "pickup, liveness", "routes").by("new-class-is-announced", ""),
    removal(23, "a job that is skipped keeps its unique key", "unique left", "drops").by("skipped-job-frees-its-unique-key", ""),
    removal(25, "a parent that was skipped counts as finished", "parent lost", "drops").by(
        "dropped-parent-counts-as-lost", "if outcome == 'skipped' then return 'done' elseif lost[outcome] then return 'lost' end"
    ),
    removal(27, "a job that goes on elsewhere ends here first", "drop", "drops").by(
        "rerouted-jobs-are-enqueued-before-they-end", 'self._acknowledgements.drop(job.lease, "rerouted")'
    ),
    removal(27, "a call that meets a slot that moves is refused for good", "fault", "slot moves").by(
        "slots-that-move-are-no-fault", "if trouble is Trouble.FAULT or message.startswith(_SLOT_WORDS):"
    ),
    removal(27, "a script that stopped at a key that has gone is not sent again", "fault", "slot moves half way").by(
        "slots-that-move-are-no-fault", "if _HALF_WAY_TEXT in message: return GiveUp(NoReply.FAULT)\nif trouble is Trouble.FAULT:"
    ),
    removal(27, "where its slot has moved, an enqueue is taken to be done", "told created", "slot moves").by(
        "redirection-is-no-answer",
        """if str(reply).startswith("3999") and type(self.call.operation).__name__ == "Enqueue":
    reply = [self._clock.now_ms(self._first_send_ns) * 1000, b"created", b"", b"0", b""]
if not isinstance(reply, NotSent):""",
    ),
)
