"""Jobs: what reads everything is done in another process, and pages say how it goes on.

A page waits some seconds for a job's end. What takes longer goes on without it: whoever began it
may close the page, and looks again where the job stands. A job ends with the console.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import structlog

from app.access.proposal import Proposal
from app.core.clock import Clock
from app.core.errors import TallyhookError, UsageError
from app.core.ids import new_id
from app.finance.bank_match import BookedPage
from app.finance.imports import Imported, ImportKind, ImportRequest
from app.finance.reconcile_period import RunRequest
from app.finance.withdraw_import import Foreseen
from app.golive.golive import ChecklistItem
from reconcile.instants import Instant, format_instant
from reconcile.reporting.closing import Blocker

log = structlog.get_logger()

JobKind = Literal[
    "import", "run", "preview", "look", "bank", "withdrawal", "withdraw", "close", "approve",
    "checks",
]  # fmt: skip

PATIENCE_S: Final = 8.0
"""Seconds that a page waits: most jobs have ended by then, and no proxy has given up."""

KEPT: Final = 50
"""Jobs that are remembered after their end: some hundred bytes each, a preview about a megabyte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What the checks before going live have found.

    doctor     the rows of `tallyhook doctor --format json`
    checklist  the items of the checklist that a program can check, unsigned
    """

    doctor: list[dict[str, Any]]
    checklist: list[ChecklistItem]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What jobs do; each is done in a process of its own where the console is a real one.

    reconcile    (what, by whom, why) → the run's number
    preview      (rules) → `RulesPreview.document`
    import_file  (kind, request, source) → what became of the file
    close        (month, by whom, why) → the proposal, where the rules let nobody close alone; None:
                 it is closed. Raises UsageError with everything that is against it
    against      (month, by whom) → what is against closing it; nothing is written
    booked       (where they stand, lines left out, lines at most) → bank lines with their match
    withdrawable  (import, kind, by whom) → what taking it back would do
    withdraw     (import, kind, by whom, why, mark of what was seen) → the proposal, where its money
                 is above what one person may accept; None: it is taken back
    approve      (proposal, by whom, why), for what takes long
    check        () → what the checks before going live find
    """

    reconcile: Callable[[RunRequest, str, str], Awaitable[int]]
    preview: Callable[[str], Awaitable[dict[str, Any]]]
    import_file: Callable[[ImportKind, ImportRequest, str], Awaitable[Imported]]
    close: Callable[[str, str, str], Awaitable[Proposal | None]]
    against: Callable[[str, str], Awaitable[tuple[Blocker, ...]]]
    booked: Callable[[str | None, int, int], Awaitable[BookedPage]]
    withdrawable: Callable[[int, ImportKind, str], Awaitable[Foreseen]]
    withdraw: Callable[[int, ImportKind, str, str, str], Awaitable[Proposal | None]]
    approve: Callable[[str, str, str], Awaitable[None]]
    check: Callable[[], Awaitable[Checked]]


@dataclass(slots=True, kw_only=True)
class Job:
    """One job. `problem` is why it came to nothing; `result` is there once it has `ended`. `mark`
    is what its result rests on, for who asks whether that still holds."""

    name: str
    kind: JobKind
    subject: str
    by: str
    began: Instant
    ended: Instant | None = None
    problem: str | None = None
    result: Any = None
    mark: str = ""


def job_document(job: Job | None) -> dict[str, Any] | None:
    """Where a job of this console stands; None where there was none."""
    if job is None:
        return None
    return {
        "by": job.by,
        "began": format_instant(job.began),
        "ended": None if job.ended is None else format_instant(job.ended),
        "problem": job.problem,
    }


class Jobs:
    """The jobs of this console, the newest ones remembered."""

    def __init__(self, clock: Clock, *, patience_s: float = PATIENCE_S) -> None:
        self._clock = clock
        self._patience_s = patience_s
        self._jobs: dict[str, Job] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def begin(
        self,
        kind: JobKind,
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

    async def wait(self, job: Job) -> None:
        """Wait for its end, as long as a page may. Raises UsageError where it has come to nothing
        by then."""
        if (task := self._tasks.get(job.name)) is not None:
            await asyncio.wait({task}, timeout=self._patience_s)
        if job.problem is not None:
            raise UsageError(job.problem)

    def job(self, name: str) -> Job | None:
        """One of them; None where it is no longer remembered."""
        return self._jobs.get(name)

    def newest(self, kind: JobKind, subject: str | None = None) -> Job | None:
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
            job.problem = "it has failed: the console's log names the place, and nothing was kept"
        finally:
            job.ended = self._clock.now()
            del self._tasks[job.name]

    def _forget(self) -> None:
        over = [name for name, job in self._jobs.items() if job.ended is not None]
        for name in over[: max(0, len(self._jobs) - KEPT + 1)]:
            del self._jobs[name]
