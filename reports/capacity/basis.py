"""The few numbers of a measurement that every plan is computed from, each with where it comes from."""

from __future__ import annotations

from dataclasses import dataclass

from reports.capacity.fit import Law, Refused
from reports.capacity.measurement import Measurement

#: The faults whose recovery a plan uses.
WORKER_LOST = "worker-kill"
PRIMARY_LOST = "server-kill"


@dataclass(frozen=True, kw_only=True)
class Basis:
    """What was measured. `steps`: (p99, how busy the workers were) of each step whose backlog did not grow; `sources`: field ->
    where it comes from."""

    model: str
    topology: str
    rate_met: float
    workers_met: int
    handlers_at_once: int
    handler_ms: float
    payload_bytes: float
    overhead_ms: float
    beside_p99_ms: float
    worker_us_per_job: float
    server_us_per_job: float
    shard_rate_max: float
    contention: float
    coherence: float
    bytes_per_waiting: float
    bytes_per_retained: float
    fragmentation: float
    bytes_per_job: float
    worker_lost_ms: float | None
    primary_lost_ms: float | None
    steps: tuple[tuple[float, float], ...]
    sources: dict[str, str]

    def service_ms(self, handler_ms: float) -> float:
        """How long a job with such a handler takes a place."""
        return handler_ms + self.overhead_ms

    def meeting(self, p99_ms: float, handler_ms: float) -> float:
        """How busy the workers may be at this target: as busy as in the busiest step that would have met it. 0 for none."""
        slack_ms = p99_ms - handler_ms + self.handler_ms
        return max((busy for p99, busy in self.steps if p99 <= slack_ms), default=0.0)

    def efficiency(self, workers: int) -> float:
        """What each of so many workers of a server does, as a share of what it did at the highest rate that met."""

        def alone(count: int) -> float:
            return 1 + self.contention * (count - 1) + self.coherence * count * (count - 1)

        return min(1.0, alone(self.workers_met) / alone(workers))


def basis(found: Measurement, law: Law | Refused) -> Basis:
    """The basis of plans."""
    top = found.met[-1]
    at = f"the step of {top.rate:,.0f} jobs/s with {top.workers} workers, the highest that met"
    steady = [step for step in found.sound if step.waiting.slope_interval[0] <= 0 and not step.dropped]
    fastest = min(steady, key=lambda step: step.latency_ms.p99, default=top)
    fitted = isinstance(law, Law)
    recovery = found.recovery
    return Basis(
        model=found.target.model,
        topology=found.target.topology,
        rate_met=top.finished_per_s,
        workers_met=top.workers,
        handlers_at_once=top.handlers_at_once,
        handler_ms=found.target.handler_ms,
        payload_bytes=found.target.payload_bytes,
        overhead_ms=max(0.0, top.service_ms.mean - found.target.handler_ms),
        beside_p99_ms=max(0.0, fastest.latency_ms.p99 - found.target.handler_ms),
        worker_us_per_job=top.worker.cpu_share * top.workers / top.finished_per_s * 1e6,
        server_us_per_job=top.server.us_per_job,
        # Without a law nothing is known of more workers on a server than were measured.
        shard_rate_max=1e6 / top.server.us_per_job if fitted else min(1e6 / top.server.us_per_job, top.finished_per_s),
        contention=law.contention if isinstance(law, Law) else 0.0,
        coherence=law.coherence if isinstance(law, Law) else 0.0,
        bytes_per_waiting=found.memory.bytes_per_waiting,
        bytes_per_retained=found.memory.bytes_per_retained,
        fragmentation=found.memory.fragmentation,
        bytes_per_job=found.network.bytes_per_job,
        worker_lost_ms=recovery[WORKER_LOST].ms if WORKER_LOST in recovery else None,
        primary_lost_ms=recovery[PRIMARY_LOST].ms if PRIMARY_LOST in recovery else None,
        steps=tuple((step.latency_ms.p99, max(step.utilisation, step.worker.cpu_share)) for step in steady),
        sources={
            "service": f"mean service time less the handler's {found.target.handler_ms:g} ms, in {at}",
            "worker_us_per_job": f"processor time of the workers by finished jobs, in {at}",
            "server_us_per_job": f"the server's processor time by finished jobs, in {at}",
            "beside_p99_ms": f"the lowest p99 measured ({fastest.latency_ms.p99:.1f} ms at {fastest.rate:,.0f} jobs/s)",
            "efficiency": "the scalability law that was fitted"
            if fitted
            else f"as measured, as the law was refused: {law.reason}",
            "memory": "memory of waiting and of retained jobs, and fragmentation, as measured",
            "network": "the server's bytes in and out by finished jobs, as measured",
            **{fault: one.source for fault, one in recovery.items()},
        },
    )
