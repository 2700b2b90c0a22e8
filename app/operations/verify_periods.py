"""Looks whether closed months still follow from the evidence that they were closed on.

    1 chain     the closing is what was written, and names the closing before it
    2 prints    the bytes that were kept are those of the closing
    3 history   everything that was known then is there, and is what it was
    4 figures   the report made again, as of then and by the policy of then, has the same figures

Beside that, each format is printed again from the report that was kept. One that would look
otherwise now is named and is no fault: what was kept is what is shown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, get_args

from app.operations.close_period import scope_of
from app.operations.closed_periods import closing_named
from app.operations.desk import Desk
from app.operations.report_period import report_period
from app.reports.print_all import printed
from app.store.closings import Closed, closed_periods, print_of
from app.store.history_digest import history_digests
from reconcile.closing import Closing, first_difference
from reconcile.figures import Figure, difference, figures
from reconcile.policy import Policy
from reconcile.report_document import report_of

Step = Literal["chain", "prints", "history", "figures"]
STEPS: Final[tuple[Step, ...]] = get_args(Step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """One step on one month. `sentence` says what was found, or the first difference."""

    period: str
    step: Step
    passed: bool
    sentence: str
