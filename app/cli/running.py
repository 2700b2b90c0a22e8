"""Runs an operation from a command: settings, an open store, one event loop."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from app.config import Settings
    from app.operations.desk import Desk

Result = TypeVar("Result")


def run_loop(work: Coroutine[Any, Any, Result]) -> Result:
    """Run to the end on the fast event loop."""
    try:
        import uvloop

        calm_the_collector()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work)
    finally:
        work.close()  # quietly, where it was interrupted before it began


YOUNG_OBJECTS = 50_000
"""New containers before the cycle collector looks at them: a pause of some milliseconds."""


def calm_the_collector() -> None:
    """Let the cycle collector pass over what start-up made, and look at new objects less often.

    Requests and folds make thousands of small values and no cycles. Looking through all of them
    every 700 allocations, as is the default, takes a third of the time of a rebuild.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 20)


def with_desk(
    use: Callable[[Desk, Settings], Awaitable[Result]],
    *,
    purpose: Literal["alone", "writing", "reading"] = "reading",
) -> Result:
    """Load the settings, open the store for a purpose, and call `use` with desk and settings."""
    from app.bootstrap import open_desk
    from app.config import load_settings
    from app.logs import configure_logging

    settings = load_settings()
    # A command's result is what it prints; only what went wrong is logged beside it.
    configure_logging(format=settings.log_format, level="warning")

    async def work() -> Result:
        async with open_desk(settings, purpose=purpose) as desk:
            return await use(desk, settings)

    return run_loop(work())
