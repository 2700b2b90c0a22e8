"""Runs an operation from a command: settings, an open store, one event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from app.core.process import look_seldom, pass_over_start

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.receiving.context import AppContext

Result = TypeVar("Result")


def run_loop(work: Coroutine[Any, Any, Result]) -> Result:
    """Run to the end on the fast event loop."""
    import asyncio

    try:
        import uvloop

        look_seldom()
        pass_over_start()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work)
    finally:
        work.close()  # quietly, where it was interrupted before it began


def with_context(
    use: Callable[[AppContext, Settings], Awaitable[Result]],
    *,
    purpose: Literal["alone", "writing", "reading"] = "reading",
) -> Result:
    """Load the settings, open the store for a purpose, and call `use` with context and settings."""
    from app.bootstrap_context import open_context
    from app.config.load import load_settings
    from app.core.logs import configure_logging

    settings = load_settings()
    # A command's result is what it prints; only what went wrong is logged beside it.
    configure_logging(format=settings.log_format, level="warning")

    async def work() -> Result:
        async with open_context(settings, purpose=purpose) as context:
            return await use(context, settings)

    return run_loop(work())
