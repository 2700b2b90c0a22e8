"""Jobs: long work runs beside what is served, and whoever asks gets its progress.

An answer waits some seconds for a job's end. What takes longer goes on without it: whoever began it
looks again where the job stands. A job ends with the process that serves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import structlog

from app.core.clock import Clock
from app.core.errors import TallyhookError, UsageError
from app.core.ids import new_id
from reconcile.instants import MINUTE, Duration, Instant, format_instant

log = structlog.get_logger()

PATIENCE_S: Final = 8.0
"""Seconds that an answer waits: most jobs have ended by then, and no proxy has given up."""

KEPT: Final = 50
"""Jobs that are remembered after their end: some hundred bytes each, a preview about a megabyte."""

GOOD_FOR: Final[Duration] = MINUTE
"""How long a shared result is good: what no person did, such as a payment that came, is seen after
so long."""


@dataclass(slots=True, kw_only=True)
class Job:
    """One job. `problem` is why it came to nothing; `result` is there once it has `ended`. `mark`
    is what its result rests on, for who asks whether that still holds."""

    name: str
    kind: str
    subject: str
    by: str
    began: Instant
    ended: Instant | None = None
    problem: str | None = None
    result: Any = None
    mark: str = ""


def job_document(job: Job | None) -> dict[str, Any] | None:
    """Where a job stands; None where there was none."""
    if job is None:
        return None
    return {
        "by": job.by,
        "began": format_instant(job.began),
        "ended": None if job.ended is None else format_instant(job.ended),
        "problem": job.problem,
    }


class Jobs:
    """The jobs of one process that serves, the newest ones remembered."""

    def __init__(
        self, clock: Clock, *, patience_s: float | None = None, kept: int | None = None
    ) -> None:
        """patience_s: how long `wait` waits; kept: of how many that ended the result is remembered.
        None: PATIENCE_S, and KEPT."""
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
        """Begin a job. Raises UsageError where the same is under way already."""
        before = self.newest(kind, subject)
        if before is not None and before.ended is None:
            raise UsageError(f"{before.by} has begun this already, and it is still under way")
        now = self._clock.now()
        job = Job(name=new_id("job_", now), kind=kind, subject=subject, by=by, began=now, mark=mark)
        self._forget()
        self._jobs[job.name] = job
        self._tasks[job.name] = asyncio.create_task(self._run(job, work))
        return job

    def shared(
        self, kind: str, subject: str, *, by: str, mark: str, work: Callable[[], Awaitable[Any]]
    ) -> Job:
        """A job whose result all who ask share: the one that is under way or still good, else it is
        begun with `work`. It is good for GOOD_FOR after its end, as long as `mark` is the same."""
        job = self.newest(kind, subject)
        if job is None:
            return self.begin(kind, subject, by=by, mark=mark, work=work)
        over = job.ended is not None and self._clock.now() - job.ended >= GOOD_FOR
        if over or (job.ended is not None and job.mark != mark):
            return self.begin(kind, subject, by=by, mark=mark, work=work)
        return job

    def under_way(self, kind: str) -> int:
        """How many of this kind have not ended."""
        return sum(job.kind == kind and job.ended is None for job in self._jobs.values())

    async def wait(self, job: Job) -> None:
        """Wait for its end, as long as a page may. Raises UsageError where it has come to nothing
        by then."""
        if (task := self._tasks.get(job.name)) is not None:
            await asyncio.wait(
                {task}, timeout=PATIENCE_S if self._patience_s is None else self._patience_s
            )
        if job.problem is not None:
            raise UsageError(job.problem)

    def job(self, name: str) -> Job | None:
        """One of them; None where it is no longer remembered."""
        return self._jobs.get(name)

    def newest(self, kind: str, subject: str | None = None) -> Job | None:
        """The one of this kind that was begun last, about anything or about this."""
        found = (
            each
            for each in reversed(self._jobs.values())
            if each.kind == kind and subject in (None, each.subject)
        )
        return next(found, None)

    async def close(self) -> None:
        """End all of them."""
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
            job.problem = "it has failed: the log names the place, and nothing was kept"
        finally:
            job.ended = self._clock.now()
            del self._tasks[job.name]

    def _forget(self) -> None:
        over = [name for name, job in self._jobs.items() if job.ended is not None]
        kept = KEPT if self._kept is None else self._kept
        for name in over[: max(0, len(self._jobs) - kept + 1)]:
            del self._jobs[name]
