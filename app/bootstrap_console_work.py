"""Wiring: what a console's jobs do, in this process or in one of their own.

Its process is killed where the console ends before it (`bootstrap_elsewhere`): a run, an import or
a closing that is killed has changed nothing, as when its command is. An approval that is killed may
have been kept: an erasure is approved before its first row goes, and what is left of it is carried
out by the next erasure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from app.access.proposal import Proposal
from app.bootstrap_elsewhere import Elsewhere, Use
from app.bootstrap_golive import check_now, examine
from app.bootstrap_proposals import proposals_of
from app.bootstrap_reports import MOST_S, made_preview, made_report
from app.bootstrap_sources import compile_sources
from app.config.settings import Settings
from app.console.jobs import Checked, Work
from app.core.errors import UsageError
from app.finance.bank_match import BookedPage, booked_page
from app.finance.close_period import CloseRequest, against_closing, close_period
from app.finance.imports import (
    Imported,
    ImportKind,
    ImportRequest,
    import_bank,
    import_book,
    import_statement,
)
from app.finance.match_rules import save_rules
from app.finance.reconcile_period import RunRequest, reconcile_for
from app.finance.withdraw_import import Foreseen, withdraw_import, withdrawable
from app.golive.golive import checklist
from app.receiving.context import AppContext
from reconcile.reporting.closing import Blocker

AT_ONCE: Final = 2
"""Processes of a console's jobs: each reads with a core of its own and some 100 MiB."""

UNCHANGED: Final = (
    "the process that did it has ended before its time, and nothing was changed: begin again, and "
    "look whether memory was short"
)
TOO_LONG: Final = (
    f"it took more than {MOST_S // 60} minutes and was ended, and nothing was changed: send fewer "
    "and shorter rules"
)
BEGUN: Final = (
    "the process that did it has ended before its time. It may have been approved and begun: look "
    "at the proposal and at Personal data before you begin again, and whether memory was short"
)
"""An erasure keeps its approval before the first row goes."""


def work_here(context: AppContext, settings: Settings) -> Work:
    """Done in this process, on an open store."""

    async def do(use: Use, *words: Any) -> Any:
        return await use(context, settings, *words)

    return _work(do)


def work_elsewhere(settings: Settings) -> Work:
    """Done in processes of their own."""
    processes = Elsewhere(settings, at_once=AT_ONCE, purpose="writing")

    async def do(use: Use, *words: Any) -> Any:
        died = BEGUN if use is _approve else UNCHANGED
        most_s = MOST_S if use in _READ_RULES else None
        return await processes.do(use, *words, died=died, most_s=most_s, too_long=TOO_LONG)

    return _work(do)


def _work(do: Callable[..., Awaitable[Any]]) -> Work:
    return Work(
        reconcile=lambda *words: do(_reconcile, *words),
        preview=lambda *words: do(made_preview, *words),
        save_rules=lambda *words: do(_save_rules, *words),
        import_file=lambda *words: do(_import, *words),
        booked=lambda *words: do(_booked, *words),
        withdrawable=lambda *words: do(_withdrawable, *words),
        withdraw=lambda *words: do(_withdraw, *words),
        close=lambda *words: do(_close, *words),
        against=lambda *words: do(_against, *words),
        approve=lambda *words: do(_approve, *words),
        report=lambda *words: do(made_report, *words),
        check=lambda: do(_check),
    )


async def _reconcile(
    context: AppContext, settings: Settings, asked: RunRequest, by: str, reason: str
) -> int:
    done = await reconcile_for(context, asked, by=by, reason=reason, progress=lambda _: None)
    return done.number


async def _save_rules(
    context: AppContext, settings: Settings, rules: str, by: str, reason: str
) -> Proposal | None:
    done = await save_rules(context, rules, by=by, reason=reason)
    return done if isinstance(done, Proposal) else None


_READ_RULES: Final = (made_preview, _save_rules)
"""What reads rules that somebody sends: a TOML parser's time grows with the square."""


async def _import(
    context: AppContext, settings: Settings, kind: ImportKind, request: ImportRequest, source: str
) -> Imported:
    if kind == "book":
        return await import_book(context, request, sources=settings.sources.keys())
    if kind == "bank":
        return await import_bank(context, request)
    known = settings.sources.get(source)
    own_orders = known is not None and known.orders == "own"
    return await import_statement(context, request, source=source, own_orders=own_orders)


async def _booked(
    context: AppContext, settings: Settings, stands: str | None, skip: int, limit: int
) -> BookedPage:
    return await booked_page(context, stands=stands, skip=skip, limit=limit)


async def _withdrawable(
    context: AppContext, settings: Settings, number: int, kind: ImportKind, by: str
) -> Foreseen:
    return await withdrawable(context, number, kind=kind, by=by)


async def _withdraw(
    context: AppContext,
    settings: Settings,
    number: int,
    kind: ImportKind,
    by: str,
    reason: str,
    seen: str,
) -> Proposal | None:
    done = await withdraw_import(context, number, kind=kind, by=by, reason=reason, seen_as=seen)
    return done if isinstance(done, Proposal) else None


async def _against(
    context: AppContext, settings: Settings, month: str, by: str
) -> tuple[Blocker, ...]:
    request = replace(_closing(settings, month, by), still_s=0)
    return await against_closing(context, request, progress=lambda _: None)


def _closing(settings: Settings, month: str, by: str) -> CloseRequest:
    return CloseRequest(
        period=month,
        by=by,
        as_of=None,
        margin_days=settings.closing_margin_days,
        sources=compile_sources(settings),
    )


async def _close(
    context: AppContext, settings: Settings, month: str, by: str, reason: str
) -> Proposal | None:
    request = replace(_closing(settings, month, by), reason=reason)
    done = await close_period(context, request, progress=lambda _: None)
    if isinstance(done, tuple):
        raise UsageError(" ".join(each.sentence for each in done))
    return done if isinstance(done, Proposal) else None


async def _approve(
    context: AppContext, settings: Settings, proposal: str, by: str, reason: str
) -> None:
    proposals = proposals_of(context, settings)
    await proposals.approve(proposal, by=by, reason=reason)


CHECKS_LIMIT_S: Final = 120.0
"""Seconds for all checks: some forty seconds for each service that does not answer, and its
source's trials; whoever has more of them runs the commands, which have no such limit."""


async def _check(context: AppContext, settings: Settings) -> Checked:
    try:
        async with asyncio.timeout(CHECKS_LIMIT_S):
            doctor = [check.document() for check in await examine()]
            found = await check_now(context, settings)
    except TimeoutError:
        raise UsageError(
            f"the checks took longer than {CHECKS_LIMIT_S:.0f} s, so something does not answer: "
            "run `tallyhook doctor` and `tallyhook golive` on the machine"
        ) from None
    await checklist(context, found)
    return Checked(doctor=doctor, checklist=found)
