"""Run a command's operation with settings, store and event loop."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, Literal, ParamSpec, TypeVar

from app.core.errors import UsageError
from app.core.process import collect_garbage_rarely, freeze_objects

if TYPE_CHECKING:
    from app.access.operators import Proven
    from app.config.settings import Settings
    from app.context.context import AppContext

Given = ParamSpec("Given")
Result = TypeVar("Result")


def run_loop(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on a new event loop."""
    import asyncio

    try:
        import uvloop

        collect_garbage_rarely()
        freeze_objects()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work)
    finally:
        work.close()  # no warning if it was interrupted before it began


def with_context(
    use: Callable[[AppContext], Awaitable[Result]],
    *,
    purpose: Literal["alone", "writing", "reading"] = "reading",
    loaded: Settings | None = None,
) -> Result:
    """Call `use` with a new context, and return the result. The purpose is `alone` if no other
    process may use the store."""
    from app.access.operators import asking_by_token
    from app.config.load import load_settings
    from app.core.logs import configure_logging
    from app.wiring.opening import open_context

    settings = load_settings() if loaded is None else loaded
    # Logs show only faults, because a command prints its result.
    configure_logging(format=settings.log_format, level="warning")

    async def work() -> Result:
        async with open_context(settings, purpose=purpose) as context:
            if purpose != "alone":  # in that mode no reader runs
                await _note_unread(context)
            with asking_by_token(None if purpose == "reading" else await _holder(context)):
                return await use(context)

    return run_loop(work())


def reading(
    use: Callable[Concatenate[AppContext, Given], Awaitable[Result]],
    *args: Given.args,
    **options: Given.kwargs,
) -> Result:
    """Call an operation with a context that can read."""
    return with_context(lambda context: use(context, *args, **options))


def writing(
    use: Callable[Concatenate[AppContext, Given], Awaitable[Result]],
    *args: Given.args,
    **options: Given.kwargs,
) -> Result:
    """Call an operation with a context that can write."""
    return with_context(lambda context: use(context, *args, **options), purpose="writing")


async def _note_unread(context: AppContext) -> None:
    from app.cli import printing
    from app.receiving.caught_up import behind_s, unread_notice

    behind = await behind_s(context, patience="none")
    if behind:
        printing.note(unread_notice(behind))


def processes(chosen: int | None, *, most: int) -> int:
    """Return the chosen number of processes, or the cores."""
    return min(len(os.sched_getaffinity(0)), most) if chosen is None else chosen


BY_OWN: Final = "TALLYHOOK_OPERATOR_TOKEN"
"""Environment variable for an operator's token."""

GIVEN_FILE: Final[ContextVar[Path | None]] = ContextVar("given_file", default=None)

_MOST_BYTES: Final = 1_000


def given_token() -> str | None:
    """Return the operator's token from --token-file or the environment. Raise UsageError for an
    unreadable file."""
    path = GIVEN_FILE.get()
    if path is None:
        return os.environ.get(BY_OWN) or None
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("ascii").strip()
    except OSError as error:
        raise UsageError(f"--token-file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(
            f"--token-file {path} contains no token: write the token into it"
        ) from None


async def _holder(context: AppContext) -> Proven | None:
    from app.access.tokens import ScopeMissing, TokenNotInForce, holder_of

    token = given_token()
    if token is None:
        return None
    try:
        return (await holder_of(context, token)).name
    except (ScopeMissing, TokenNotInForce) as error:
        raise UsageError(f"the operator's token was refused: {error}") from None
