"""Runs a use case elsewhere: in a separate process, with a separate context."""

from collections.abc import Awaitable, Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from app.context.context import AppContext
from app.database.postgresql import Purpose

Words = ParamSpec("Words")
Result = TypeVar("Result")


class Work(Protocol):
    """Runs one use case after another."""

    async def __call__(
        self,
        use: Callable[Concatenate[AppContext, Words], Awaitable[Result]],
        *args: Words.args,
        **words: Words.kwargs,
    ) -> Result:
        """Call a function of a module, whose arguments and result can be pickled.

        Raises UsageError, NotFoundError or UnreachableError as the function does, UsageError for
        any other error of ours, and UnreachableError where its process died or took too long.
        """
        ...


class Elsewhere(Protocol):
    """Creates `Work` that runs use cases in separate processes."""

    def __call__(
        self,
        *,
        purpose: Purpose,
        at_once: int,
        died: str,
        most_s: float | None = None,
        too_long: str = "it took too long",
    ) -> Work:
        """Return `Work` that runs up to `at_once` use cases at the same time.

        purpose   what each process opens the database for
        died      message where a process ended too early
        most_s    seconds that a use case may take; None: no limit
        too_long  message where a use case took longer
        """
        ...
