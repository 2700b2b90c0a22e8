"""Reconciles ledgers, books and statements: now, or as of an instant that has passed.

A run of everything, as of now and under the rules in force, moves the lives of breaks: it opens,
changes, closes and reopens them. Any other run (a period, the past, rules from a file) is a look:
it is kept with what it saw, and no break's life is touched by it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.operations.desk import Desk
from reconcile.instants import Instant
from reconcile.match_control import Control


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is to be reconciled.

    since, until  what belongs to this time, `until` not included; None: without that end. An order
                  belongs to when the book says it was placed, else to the first date of its money;
                  a line of no order to its own date
    as_of         what was known then; None: now
    rules         the text of a file of rules; None: the saved rules in force
    """

    since: Instant | None = None
    until: Instant | None = None
    as_of: Instant | None = None
    rules: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a run came to. Its breaks are read with `breaks_of_run`.

    rules   the number of the saved rules; None: those of a file, or none were ever saved
    lived   whether it moved the lives of breaks
    breaks  how many it saw; `open`: those that nobody has accepted
    """

    number: int
    at: Instant
    as_of: Instant
    since: Instant | None
    until: Instant | None
    rules: int | None
    lived: bool
    control: Control
    breaks: int
    open: int


async def reconcile_period(desk: Desk, asked: Asked, *, progress: Callable[[int], None]) -> Ran:
    """Match everything that was asked for, and keep the run.

    `progress` is told of rows that were folded or read. Raises ConfigurationError with every
    mistake of a file of rules.
    """
    raise NotImplementedError
