"""Functions that are jobs and take the calls of several at once: `@queue.job("index", batch=50)`.

    @queue.job("index", batch=50)
    def index(documents: list[Document]) -> None: ...

    index.enqueue(Document(...))  # one job, which has one item

Each parameter is a list, of which every job of the batch has one item, in the same order; a first one of type `list[Job]` (or
called `jobs`, without an annotation) is the list of the Jobs. A job whose payload does not fit fails alone, and the function does
not see it. It returns None, a `list[R]` with a result for each job, or a `dict[str, R]` of results by job id; a job whose result
is no R fails alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from engine.errors import BatchFailed
from engine.handlers import Job, by_id
from engine.parameters import Parameters


class _Calls(NamedTuple):
    """The jobs whose payloads fit, what the function is called with, why the others do not, and how a result is written."""

    jobs: list[Job]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    unfit: dict[str, BaseException | str]
    write_result: Callable[[Any], Any]

    def returned(self, what: object) -> object:
        """The results by job, from the return value of the function. Raises BatchFailed for jobs whose payload or result does not
        fit."""
        results, unfit = self._written(by_id(self.jobs, what))
        if not (unfit or self.unfit):
            return results
        raise BatchFailed({**self.unfit, **unfit}, results)

    def failed(self, failure: BatchFailed) -> BatchFailed:
        """The exception of the batch, from the exception of the function."""
        results, unfit = self._written({job: one for job, one in failure.results.items() if job not in failure.failures})
        return BatchFailed({**self.unfit, **unfit, **failure.failures}, results)

    def _written(self, results: Mapping[str, object]) -> tuple[dict[str, object], dict[str, BaseException | str]]:
        written: dict[str, object] = {}
        unfit: dict[str, BaseException | str] = {}
        for job, result in results.items():
            try:
                written[job] = self.write_result(result)
            except BaseException as error:
                # Also of a validator of the service: its neighbours have nothing to do with it.
                unfit[job] = error
        return written, unfit


class BatchOf:
    """A task's function as a handler of batches. A child process finds it by the function's own module and name."""

    def __init__(self, function: Callable[..., Any], parameters: Parameters) -> None:
        self.__module__ = function.__module__
        self.__qualname__ = f"{function.__qualname__}.handler"
        self._function = function
        self._parameters = parameters

    def __call__(self, jobs: list[Job]) -> Any:
        """Run the function on the jobs that fit. Raises BatchFailed."""
        calls = self._read(jobs)
        try:
            returned = self._function(*calls.args, **calls.kwargs)
        except BatchFailed as failure:
            raise calls.failed(failure) from failure
        return calls.returned(returned)

    def _read(self, jobs: list[Job]) -> _Calls:
        """Raises BatchFailed where no payload fits."""
        fit: list[Job] = []
        items: list[dict[str, Any]] = []
        unfit: dict[str, BaseException | str] = {}
        for job in jobs:
            try:
                items.append(self._parameters.item(job.payload))
                fit.append(job)
            except BaseException as error:
                unfit[job.id] = error
        if not fit:
            raise BatchFailed(unfit)
        args, kwargs = self._parameters.listed(items)
        given = (fit, *args) if self._parameters.takes_job else args
        return _Calls(fit, given, kwargs, unfit, self._parameters.write_result)


class AsyncBatchOf(BatchOf):
    """A task's async function as a handler of batches."""

    async def __call__(self, jobs: list[Job]) -> Any:
        """Run the function on the jobs that fit. Raises BatchFailed."""
        calls = self._read(jobs)
        try:
            returned = await self._function(*calls.args, **calls.kwargs)
        except BatchFailed as failure:
            raise calls.failed(failure) from failure
        return calls.returned(returned)
