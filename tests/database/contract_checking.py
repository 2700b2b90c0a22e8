"""What every database's check must find, and must not."""

import pytest
from hypothesis import HealthCheck, given, settings

from app.finance.reconcile_rows import refresh_ledger_lines
from app.orders.refold import refold_until_quiet
from app.privacy.check import check_database
from app.receiving.inbox import Inbox
from reconcile.ledger.events import Event
from tests.contexts import with_sources
from tests.database.builders import SOURCES, context, quiet
from tests.database.contract_histories import PARTS, Part, _tags, deliver, tagged


def of_the_builders(problem: str) -> bool:
    """Return whether a problem is about the builders' bodies, whose digest is not their own."""
    return problem.endswith("does not have its digest")


class CheckingContract:
    """The check of generated histories. A subclass gives `url`."""

    @pytest.mark.alike
    @settings(
        max_examples=6,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(parts=PARTS)
    async def test_the_check_finds_nothing_wrong_in_any_history(
        self, inbox: Inbox, parts: list[Part]
    ) -> None:
        tag = f"{next(_tags)}-"
        again = [part for part in parts[:3] if isinstance(part, Event)]
        await deliver(inbox, [tagged(part, tag) for part in parts])
        at = context(inbox, at=10)
        await refresh_ledger_lines(at, progress=quiet)
        await deliver(inbox, [tagged(part, tag) for part in again])
        await refold_until_quiet(at, limit=500, progress=quiet)
        for deep in (None, 1):
            report = await check_database(with_sources(at, SOURCES), deep=deep, progress=quiet)
            assert [each for each in report.problems if not of_the_builders(each)] == []
