"""What a console's jobs do (`app.core.jobs`): what reads everything, in another process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from app.access.proposal import Proposal
from app.finance.bank_match import BookedPage
from app.finance.imports import Imported, ImportKind, ImportRequest
from app.finance.reconcile_period import RunRequest
from app.finance.reports.render import ReportFormat
from app.finance.withdraw_import import Foreseen
from app.golive.golive import ChecklistItem
from reconcile.reporting.closing import Blocker
from reconcile.reporting.report import Scope

JobKind = Literal[
    "import", "run", "preview", "look", "bank", "withdrawal", "withdraw", "close", "approve",
    "checks",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What the checks before going live have found.

    doctor     the rows of `tallyhook doctor --format json`
    checklist  the items of the checklist that a program can check, unsigned
    """

    doctor: list[dict[str, Any]]
    checklist: list[ChecklistItem]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What jobs do; each is done in a process of its own where the console is a real one.

    reconcile    (what, by whom, why) → the run's number
    preview      (rules) → `RulesPreview.document`. Raises UsageError with every mistake in them:
                 reading some takes long
    save_rules   (rules, by whom, why) → the proposal, where the rules in force let nobody change
                 them alone; None: they are in force
    import_file  (kind, request, source) → what became of the file
    close        (month, by whom, why) → the proposal, where the rules let nobody close alone; None:
                 it is closed. Raises UsageError with everything that is against it
    against      (month, by whom) → what is against closing it; nothing is written
    booked       (where they stand, lines left out, lines at most) → bank lines with their match
    withdrawable  (import, kind, by whom) → what taking it back would do
    withdraw     (import, kind, by whom, why, mark of what was seen) → the proposal, where its money
                 is above what one person may accept; None: it is taken back
    approve      (proposal, by whom, why), for what takes long
    report       (of what, format) → a report's bytes. Raises UsageError where it cannot be made
    check        () → what the checks before going live find
    """

    reconcile: Callable[[RunRequest, str, str], Awaitable[int]]
    preview: Callable[[str], Awaitable[dict[str, Any]]]
    save_rules: Callable[[str, str, str], Awaitable[Proposal | None]]
    import_file: Callable[[ImportKind, ImportRequest, str], Awaitable[Imported]]
    close: Callable[[str, str, str], Awaitable[Proposal | None]]
    against: Callable[[str, str], Awaitable[tuple[Blocker, ...]]]
    booked: Callable[[str | None, int, int], Awaitable[BookedPage]]
    withdrawable: Callable[[int, ImportKind, str], Awaitable[Foreseen]]
    withdraw: Callable[[int, ImportKind, str, str, str], Awaitable[Proposal | None]]
    approve: Callable[[str, str, str], Awaitable[None]]
    report: Callable[[Scope, ReportFormat], Awaitable[bytes]]
    check: Callable[[], Awaitable[Checked]]
