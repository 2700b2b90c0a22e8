"""Wiring: work in processes of its own, each with a store of its own, as a command has.

A process is kept for some minutes for the next work, and killed where whoever began it no longer
waits, or ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from anyio import BrokenWorkerProcess, CapacityLimiter, fail_after, to_process

from app.bootstrap_context import open_context
from app.config.settings import Settings
from app.core.errors import NotFoundError, TallyhookError, UnreachableError, UsageError
from app.core.logs import configure_logging
from app.database.postgresql import Purpose

Use = Callable[..., Awaitable[Any]]
"""(context, settings, further words) → what comes of it; all of it can be pickled."""


class Elsewhere:
    """Does work in processes of their own, so many at once."""

    def __init__(self, settings: Settings, *, at_once: int, purpose: Purpose) -> None:
        self._settings, self._purpose = settings, purpose
        self._limiter = CapacityLimiter(at_once)

    async def do(
        self,
        use: Use,
        *words: Any,
        died: str,
        most_s: float | None = None,
        too_long: str = "it took too long",
    ) -> Any:
        """most_s: seconds that it may take; None: as long as it takes.

        Raises what it was refused with: UsageError, NotFoundError or UnreachableError; and
        UnreachableError with `too_long` where it took more, and with `died` where its process has
        ended before its time.
        """
        try:
            with fail_after(most_s):
                refused, found = await to_process.run_sync(
                    _in_process,
                    use,
                    self._settings,
                    self._purpose,
                    words,
                    cancellable=True,
                    limiter=self._limiter,
                )
        except BrokenWorkerProcess as error:
            raise UnreachableError(died) from error
        except TimeoutError as error:
            raise UnreachableError(too_long) from error
        if refused is not None:
            kind, sentence = refused
            raise kind(sentence)
        return found


Refused = tuple[type[TallyhookError], str]
"""As what, and the sentence: an error with more than that may not be made anew elsewhere."""


def _in_process(
    use: Use, settings: Settings, purpose: Purpose, words: tuple[Any, ...]
) -> tuple[Refused | None, Any]:
    """(why it was refused, None), or (None, what came of it)."""
    configure_logging(format=settings.log_format, level="warning")

    async def work() -> Any:
        async with open_context(settings, purpose=purpose) as context:
            return await use(context, settings, *words)

    try:
        return None, asyncio.run(work())
    except TallyhookError as error:
        kinds = (NotFoundError, UnreachableError)
        kind = next((each for each in kinds if isinstance(error, each)), UsageError)
        return (kind, str(error)), None
