"""Jobs: long work in the background of the service.

A request waits some seconds for its job, and otherwise asks again later. A job is lost when the
serving process ends.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypedDict, TypeVar

from app.core.clock import Clock
from app.core.document_of import document_of
from app.core.errors import TallyhookError, UsageError
from app.core.ids import new_id
from app.core.logs import log
from reconcile.documents import InstantText
from reconcile.instants import MINUTE, Duration, Instant

Result = TypeVar("Result")

LARGE: Final = 100
"""Number of deliveries from which a ledger is computed in a thread; 100 take a millisecond."""


async def computed(work: Callable[[], Result], *, size: int) -> Result:
    """Return the result of a function without side effects. Large work runs in another thread.

    size  number of deliveries; large from LARGE on
    """
    return await asyncio.to_thread(work) if size >= LARGE else work()


PATIENCE_S: Final = 8.0
"""Seconds for which a request waits for its job. The usual timeout of proxies is longer."""

KEPT: Final = 50
"""Maximum number of ended jobs that are kept. Most jobs take some hundred bytes; a preview takes
about a megabyte."""

GOOD_FOR: Final[Duration] = MINUTE
"""Time for which a job's result may be used again; short, because `mark` does not cover all."""


def silent(_: int) -> None:
    """Ignore a count of progress."""


@dataclass(slots=True, kw_only=True)
class Job:
    """Piece of long work, running or ended."""

    name: str
    kind: str
    subject: str
    by: str
    began: Instant
    ended: Instant | None = None
    problem: str | None = None
    """Reason why the job failed, if it did."""
    result: Any = None
    """Value that the work returned. None until the end."""
    mark: str = ""
    """Text that identifies the data behind the result."""


class JobDocument(TypedDict):
    by: str
    began: InstantText
    ended: InstantText | None
    problem: str | None


def job_document(job: Job | None) -> JobDocument | None:
    """Return a document about a job's progress. Return None if there is no job."""
    return None if job is None else document_of(JobDocument, job)


class Jobs:
    """Background jobs of a serving process. Only the jobs that ended last are kept."""

    def __init__(
        self, clock: Clock, *, patience_s: float | None = None, kept: int | None = None
    ) -> None:
        self._clock = clock
        self._patience_s = patience_s
        self._kept = kept
        self._jobs: dict[str, Job] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def begin(
        self,
        kind: str,
        subject: str,
        *,
        by: str,
        work: Callable[[], Awaitable[Any]],
        mark: str = "",
    ) -> Job:
        """Begin a job and return it. Raise UsageError while a job of this kind about this subject
        is running."""
        before = self.newest(kind, subject)
        if before is not None and before.ended is None:
            raise UsageError(f"{before.by} has already started this job: wait until the job ends")
        now = self._clock.now()
        job = Job(name=new_id("job_", now), kind=kind, subject=subject, by=by, began=now, mark=mark)
        over = [name for name, each in self._jobs.items() if each.ended is not None]
        kept = KEPT if self._kept is None else self._kept
        for name in over[: max(0, len(self._jobs) - kept + 1)]:
            del self._jobs[name]
        self._jobs[job.name] = job
        self._tasks[job.name] = asyncio.create_task(self._run(job, work))
        return job

    def shared(
        self, kind: str, subject: str, *, by: str, mark: str, work: Callable[[], Awaitable[Any]]
    ) -> Job:
        """Return a job that is running or has a valid result, or begin a new one.

        A result is valid for a minute while `mark` is unchanged.
        """
        job = self.newest(kind, subject)
        if job is not None and (
            job.ended is None or (job.mark == mark and self._clock.now() - job.ended < GOOD_FOR)
        ):
            return job
        return self.begin(kind, subject, by=by, mark=mark, work=work)

    def under_way(self, kind: str) -> int:
        return sum(job.kind == kind and job.ended is None for job in self._jobs.values())

    async def wait(self, job: Job) -> None:
        """Wait up to `patience_s` seconds for a job to end. Raise UsageError if the job failed."""
        await self.settle([job])
        if job.problem is not None:
            raise UsageError(job.problem)

    async def settle(self, jobs: Sequence[Job]) -> None:
        """Wait up to `patience_s` seconds for jobs to end. Failed jobs raise no error."""
        patience = PATIENCE_S if self._patience_s is None else self._patience_s
        if tasks := {self._tasks[job.name] for job in jobs if job.name in self._tasks}:
            await asyncio.wait(tasks, timeout=patience)

    def job(self, name: str) -> Job | None:
        """Return the job with this name. Return None if the job is no longer kept."""
        return self._jobs.get(name)

    def newest(self, kind: str, subject: str | None = None) -> Job | None:
        """Return the newest job of a kind. With a subject, only jobs about this subject count.
        Return None if there is none."""
        found = (
            each
            for each in reversed(self._jobs.values())
            if each.kind == kind and subject in (None, each.subject)
        )
        return next(found, None)

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, job: Job, work: Callable[[], Awaitable[Any]]) -> None:
        try:
            job.result = await work()
        except TallyhookError as error:
            job.problem = str(error)
        except Exception as error:
            log.error("a job of the console has failed", exc_info=error)
            job.problem = "it failed and nothing was stored: see the log"
        finally:
            job.ended = self._clock.now()
            del self._tasks[job.name]
