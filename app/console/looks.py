"""Looks: what a page shows for which everything is read. A job makes it, and all who look share it.

A look is good for a minute, where nobody did anything since: an import, a decision or a run of a
person is an entry of the trail. What takes longer than a page waits is shown as under way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from app.access.operators import AFTER_ALL, trail
from app.console.jobs import Job, JobKind
from app.console.view import View
from reconcile.instants import MINUTE, Duration

GOOD_FOR: Final[Duration] = MINUTE
"""What nobody did, such as a payment that came, is seen after so long."""


async def look(
    view: View, kind: JobKind, subject: str, *, work: Callable[[], Awaitable[Any]]
) -> Job:
    """The look that is under way or still good; else it is begun with `work`. Waits a little for
    its end. Raises UsageError where it came to nothing."""
    jobs = view.console.jobs
    mark = str([each.number for each in await trail(view.context, before=AFTER_ALL, limit=1)])
    job, now = jobs.newest(kind, subject), view.context.clock.now()
    over = job is not None and job.ended is not None
    if job is None or (over and (job.mark != mark or now - job.began >= GOOD_FOR)):
        job = jobs.begin(kind, subject, by=view.person.name, mark=mark, work=work)
    await jobs.wait(job)
    return job
