"""Run operations in separate processes, each with its own context.

A killed operation has changed nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, cast

from anyio import BrokenWorkerProcess, CapacityLimiter, fail_after, to_process

from app.access.proposals import Proposals
from app.config.settings import Settings
from app.context.context import AppContext, Result, Words, Work
from app.core.errors import NotAllRead, NotFoundError, TallyhookError, UnreachableError, UsageError
from app.core.logs import configure_logging
from app.database.postgresql import Purpose
from app.wiring.opening import open_context

Refused = tuple[type[TallyhookError], str]
"""Class and sentence of an error."""


@dataclass(frozen=True, slots=True)
class ElsewhereOf:
    """Factory of objects that run operations in other processes, with the given settings."""

    settings: Settings

    def __call__(
        self,
        *,
        purpose: Purpose,
        at_once: int,
        died: str,
        most_s: float | None = None,
        too_long: str = "it took too long",
    ) -> Work:
        """Return an object that runs operations in up to `at_once` processes."""
        limiter = CapacityLimiter(at_once)

        async def work(
            use: Callable[Concatenate[AppContext, Words], Awaitable[Result]],
            *args: Words.args,
            **words: Words.kwargs,
        ) -> Result:
            asked = (use, self.settings, purpose, args, words)
            try:
                with fail_after(most_s):
                    refused, found = await to_process.run_sync(
                        _in_process, *asked, cancellable=True, limiter=limiter
                    )
            except BrokenWorkerProcess as error:
                raise UnreachableError(died) from error
            except TimeoutError as error:
                raise UnreachableError(too_long) from error
            if refused is not None:
                kind, sentence = refused
                raise kind(sentence)
            return cast(Result, found)

        return work


def _in_process(
    use: Callable[..., Awaitable[Any]],
    settings: Settings,
    purpose: Purpose,
    args: tuple[Any, ...],
    words: Mapping[str, Any],
) -> tuple[Refused | None, Any]:
    configure_logging(format=settings.log_format, level="warning")

    async def work() -> Any:
        async with open_context(settings, purpose=purpose) as context:
            return await use(context, *args, **words)

    try:
        return None, asyncio.run(work())
    except TallyhookError as error:
        kinds = (NotFoundError, NotAllRead, UnreachableError)
        kind = next((each for each in kinds if isinstance(error, each)), UsageError)
        return (kind, str(error)), None


def proposals_of(context: AppContext) -> Proposals:
    """Return the proposals of every kind of act that may need two people."""
    from app.access.proposals import Proposals
    from app.finance.bank_balances import difference_kind
    from app.finance.break_acts import acceptance_kind
    from app.finance.close_period import closing_kind, reopening_kind
    from app.finance.match_rules import rules_kind
    from app.finance.place_payment import placing_kinds
    from app.finance.withdraw_import import withdrawal_kind
    from app.orders.customers import unmasking_kind
    from app.privacy.erase import erasure_kinds
    from app.privacy.export import export_kind

    return Proposals(
        context,
        (
            acceptance_kind(context),
            rules_kind(context),
            closing_kind(context),
            reopening_kind(context),
            *erasure_kinds(context).values(),
            export_kind(context),
            withdrawal_kind(context),
            difference_kind(context),
            *placing_kinds(context).values(),
            unmasking_kind(context),
        ),
        countries=context.countries,
    )


async def approve(context: AppContext, proposal: str, by: str, reason: str, typed: str) -> None:
    await proposals_of(context).approve(proposal, by=by, reason=reason, typed=typed)
