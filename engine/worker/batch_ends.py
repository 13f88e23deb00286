"""How each job of a batch has ended, from what its handler returned or raised. Pure code, used where the handler ran: in the
worker or in a child process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from engine.errors import BatchFailed, bounded_error
from engine.handlers import Fault, fault_of
from engine.job import Job

#: What a run of a job raised, or its result as it is kept.
End = tuple[BaseException | None, bytes | None]


class Said(Exception):
    """A failure of one job that was given as a text instead of an exception."""


def ends(jobs: Sequence[Job], returned: object, failure: BaseException | None) -> list[End]:
    """The end of each job that the handler was given."""
    if failure is None:
        try:
            return _kept(jobs, by_id(jobs, returned), {})
        except (TypeError, ValueError) as wrong:
            failure = wrong
    if isinstance(failure, BatchFailed) and {*failure.failures, *failure.results} <= {job.id for job in jobs}:
        return _kept(jobs, failure.results, failure.failures)
    return [(failure, None) for _ in jobs]


def by_id(jobs: Sequence[Job], returned: object) -> Mapping[str, object]:
    """The results that a handler returned, by job id. Raises TypeError and ValueError for what cannot be told apart by job."""
    if returned is None:
        return {}
    if isinstance(returned, Mapping):
        found = cast("Mapping[str, object]", returned)
        if not found.keys() <= {job.id for job in jobs}:
            raise ValueError("a batch handler returned results for ids that are not of its batch")
        return found
    if isinstance(returned, list | tuple):
        results = cast("Sequence[object]", returned)
        if len(results) != len(jobs):
            raise ValueError(f"a batch handler returned {len(results)} results for {len(jobs)} jobs")
        return {job.id: result for job, result in zip(jobs, results, strict=True)}
    raise TypeError(f"a batch handler returned a {type(returned).__name__}: None, a list or a mapping by job id are allowed")


def faults(found: Sequence[End]) -> list[tuple[Fault | None, bytes | None]]:
    """The ends as a child process sends them: jobs that failed by the same exception share one fault."""
    known: dict[int, Fault] = {}
    told: list[tuple[Fault | None, bytes | None]] = []
    for failure, result in found:
        if failure is not None and id(failure) not in known:
            known[id(failure)] = fault_in_batch(failure)
        told.append((known[id(failure)] if failure is not None else None, result))
    return told


def fault_in_batch(failure: BaseException) -> Fault:
    """The record of a failure; of a text the text itself."""
    return Fault(bounded_error(str(failure)), "") if isinstance(failure, Said) else fault_of(failure)


def _kept(jobs: Sequence[Job], results: Mapping[str, object], failures: Mapping[str, BaseException | str]) -> list[End]:
    found: list[End] = []
    for job in jobs:
        failure = failures.get(job.id)
        if failure is not None:
            found.append((Said(failure) if isinstance(failure, str) else failure, None))
            continue
        try:
            found.append((None, job.encode_result(results.get(job.id))))
        except Exception as wrong:
            # Only the job whose result cannot be stored has failed.
            found.append((wrong, None))
    return found
