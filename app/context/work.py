"""Runs a use case elsewhere: in a process of its own, with a context of its own."""

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

        Raises UsageError, NotFoundError or UnreachableError as it does, UsageError for another
        error of ours, and UnreachableError where its process died or took too long.
        """
        ...


class Elsewhere(Protocol):
    """Makes what runs use cases in processes of their own."""

    def __call__(
        self,
        *,
        purpose: Purpose,
        at_once: int,
        died: str,
        most_s: float | None = None,
        too_long: str = "it took too long",
    ) -> Work:
        """Return what runs so many at once.

        purpose   for which each opens the database
        died      what is said where a process ended before its time
        most_s    seconds that a use case may take; None: as long as it takes
        too_long  what is said where it took more
        """
        ...
