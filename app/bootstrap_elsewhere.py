"""Wiring: work in processes of its own, each with a store of its own, as a command has.

A process is kept for some minutes for the next work, and killed where whoever began it no longer
waits, or ends. So the API has made what takes seconds to minutes, as commands make it and the
console does: an order's bundle and letter, reports and journals of a period, the proof of closed
months, what other rules would change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from anyio import BrokenWorkerProcess, CapacityLimiter, fail_after, to_process

from app.api.case_routes import WritesLetter
from app.api.evidence_routes import Builds
from app.api.report_routes import AT_ONCE, MAX_JOURNAL_BYTES, Makes
from app.bootstrap_context import open_context
from app.bootstrap_evidence import evidence_providers, merchant_of, signer_of
from app.config.settings import Settings
from app.context.context import AppContext
from app.core.errors import (
    ConfigurationError,
    NotFoundError,
    TallyhookError,
    UnreachableError,
    UsageError,
)
from app.core.logs import configure_logging
from app.database.postgresql import Purpose
from app.evidence.bundle import Built, BundleRequest, build_evidence
from app.evidence.dispute_case import CaseRequest
from app.evidence.dispute_letter import Letter, LetterForm, letter_of, take_letter
from app.finance.close_period import verify_periods
from app.finance.match_rules import preview_rules
from app.finance.report_period import report_period
from app.finance.reports.journal import JournalFormat, write_journal
from app.finance.reports.render import ReportFormat, render
from reconcile.instants import Instant
from reconcile.reporting.report import Scope

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


# --- an order's evidence --------------------------------------------------------------------------

BUNDLES_AT_ONCE: Final = 1
"""Bundles, and letters, that the API makes at once: each reads all that came of an order."""

BUNDLE_MOST_S: Final = 120.0
"""Seconds that one may take; one of an order with twenty deliveries takes two, its process's start
among them."""


async def built_bundle(context: AppContext, settings: Settings, asked: BundleRequest) -> Built:
    """An order's bundle. Raises as `build_evidence` does."""
    return await build_evidence(
        context,
        asked,
        providers=evidence_providers(settings),
        signer=await signer_of(context, settings),
    )


async def taken_letter(
    context: AppContext, settings: Settings, asked: CaseRequest, form: LetterForm | None
) -> tuple[Letter, bytes]:
    """An order's letter. Raises as `take_letter` does."""
    return await take_letter(
        context,
        asked,
        form,
        providers=evidence_providers(settings),
        signer=await signer_of(context, settings),
        merchant=merchant_of(settings),
    )


def building_bundles(settings: Settings) -> Builds:
    """What builds bundles in a process of its own: deliveries are acknowledged meanwhile."""
    processes = Elsewhere(settings, at_once=BUNDLES_AT_ONCE, purpose="writing")

    async def build(order: str, file: Path, *, as_of: Instant | None, by: str) -> None:
        await processes.do(
            _build,
            BundleRequest(order=order, as_of=as_of, by=by),
            file,
            died="the process that built the bundle has ended before its time: ask again",
            most_s=BUNDLE_MOST_S,
            too_long=f"the bundle was not built within {BUNDLE_MOST_S:.0f} s: ask again",
        )

    return build


async def _build(context: AppContext, settings: Settings, asked: BundleRequest, file: Path) -> None:
    built = await built_bundle(context, settings, asked)
    await asyncio.to_thread(file.write_bytes, built.archive)


def writing_letters(settings: Settings) -> WritesLetter:
    """What writes letters for the API, likewise."""
    processes = Elsewhere(settings, at_once=BUNDLES_AT_ONCE, purpose="reading")

    async def write(asked: CaseRequest) -> dict[str, Any]:
        found: dict[str, Any] = await processes.do(
            _letter,
            asked,
            died="the process that wrote the letter has ended before its time: ask again",
            most_s=BUNDLE_MOST_S,
            too_long=f"the letter was not written within {BUNDLE_MOST_S:.0f} s: ask again",
        )
        return found

    return write


async def _letter(context: AppContext, settings: Settings, asked: CaseRequest) -> dict[str, Any]:
    found = await letter_of(
        context, asked, providers=evidence_providers(settings), merchant=merchant_of(settings)
    )
    return found.document | {"checklist": found.case.document()}


# --- reports --------------------------------------------------------------------------------------

DIED: Final = (
    "the process that made it has ended before its time: ask again, and look whether memory was "
    "short"
)

MOST_S: Final = 1_800
"""Seconds that one may take: a service that reports more has a replica to do it on."""

TOO_LONG: Final = (
    f"it took more than {MOST_S // 60} minutes and was ended: ask for a shorter period, or let "
    "the command or the schedule make it"
)

TOO_MUCH: Final = (
    f"the journal is longer than the {MAX_JOURNAL_BYTES // 1024 // 1024} MiB that an answer has: "
    "ask for a shorter period, or let `tallyhook report journal` write it"
)


def making_reports(settings: Settings) -> Makes:
    """What makes them as the commands do."""
    reading = Elsewhere(settings, at_once=AT_ONCE, purpose="reading")
    writing = Elsewhere(settings, at_once=AT_ONCE, purpose="writing")

    async def do(use: Use, *words: Any, by: Elsewhere = reading) -> Any:
        return await by.do(use, *words, died=DIED, most_s=MOST_S, too_long=TOO_LONG)

    return Makes(
        report=lambda scope: do(made_report, scope, "json"),
        journal=lambda scope, form, file: do(journal, scope, form, file),
        verification=lambda period: do(verification, period),
        # It stores what it folds anew of orders, as every run does.
        preview=lambda rules: do(preview, rules, by=writing),
    )


async def made_report(
    context: AppContext, settings: Settings, scope: Scope, form: ReportFormat
) -> bytes:
    """A period's report in one form, as the command writes it."""
    return render(await report_period(context, scope, progress=lambda _: None), form)


async def made_preview(context: AppContext, settings: Settings, rules: str) -> dict[str, Any]:
    """What other rules would change, as the command reports it."""
    return (await preview_rules(context, rules, progress=lambda _: None)).document()


async def preview(
    context: AppContext, settings: Settings, rules: str
) -> dict[str, Any] | tuple[str, ...]:
    """The same for whoever sends rules: or every mistake in them."""
    try:
        return await made_preview(context, settings, rules)
    except ConfigurationError as error:
        return error.problems


async def journal(
    context: AppContext, settings: Settings, scope: Scope, form: JournalFormat, path: Path
) -> None:
    """A period's journal in one form, into a new file. Raises UsageError where it is too long."""
    with path.open("xb") as file:  # nothing else is done in this process

        def write(part: bytes) -> None:
            if file.tell() + len(part) > MAX_JOURNAL_BYTES:
                raise UsageError(TOO_MUCH)
            file.write(part)

        await write_journal(context, scope, form, write=write, progress=lambda _: None)


async def verification(
    context: AppContext, settings: Settings, period: str | None
) -> list[dict[str, Any]]:
    """Every step on the closed months, or on one, as the command reports them."""
    found = verify_periods(context, only=period, progress=lambda _: None)
    return [each.document() async for each in found]
