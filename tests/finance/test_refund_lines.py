"""A refund's line in a statement that has a reference of its own, with its payment or without.

Which payment a refund is of stands in the file alone, as `original_payment`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from app.core.errors import UsageError
from app.finance.break_acts import breaks_of_run, match_break
from app.finance.imports import ImportRequest, import_statement
from app.finance.reconcile_period import RunRequest, reconcile_period
from app.finance.withdraw_import import withdraw_import
from reconcile.instants import DAY, Instant, format_instant
from tests.api.driving import Driver, driving, event, of_order
from tests.reconcile.build import T

HEADING = "payment_reference,original_payment,order_reference,gross,fee,currency,settled_at,type\n"


def statement(folder: Path, *, names: str) -> ImportRequest:
    """A payment, its refund, whose line names this payment, and a payment of four weeks later:
    until then the statement reaches."""
    at, last = (format_instant(Instant(T + days * DAY)) for days in (0, 30))
    rows = f"pay_1,,ORD-1,1500.00,0,KES,{at},payment\nre_1,{names},,-400.00,0,KES,{at},refund\n"
    rows += f"pay-ORD-2,,ORD-2,1500.00,0,KES,{last},payment\n"
    path = folder / f"statement{len(names)}.csv"
    path.write_text(HEADING + rows)
    return ImportRequest(path=path)


async def found(driver: Driver) -> dict[str, str]:
    """The open breaks of a run now, by their causes."""
    context = driver.service.context
    ran = await reconcile_period(context, RunRequest(), progress=lambda _: None)
    seen = [each async for batch in breaks_of_run(context, ran.number) for each in batch]
    return {each.seen.cause: each.identity for each in seen if each.life.state == "open"}


async def test_a_refund_without_its_payment_is_not_matched_by_hand_but_by_its_file(
    tmp_path: Path,
) -> None:
    """No run heeds such a match, and it was taken for one that closes the break: it is refused with
    what does close it."""
    refund = {"reference": "re_1", "amount": 400, "currency": "KES"}
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await driver.send(event("e1"))
        await driver.send(event("e2", "refunded", refund=refund))
        await driver.send(of_order("ORD-2", "e3"))
        context = driver.service.context
        driver.clock.put(Instant(T + 40 * DAY))
        done = await import_statement(context, statement(tmp_path, names=""), source="shop")
        breaks = await found(driver)
        assert sorted(breaks) == ["refund_not_settled", "settled_never_notified"]
        (line,) = driver.rows("SELECT line FROM statement_lines WHERE payment = 're_1'")
        with pytest.raises(UsageError, match="original_payment"):
            await match_break(
                context, breaks["refund_not_settled"], line=line[0], reason="the same", by=None
            )
        assert done.number is not None
        driver.clock.put(Instant(T + 41 * DAY))
        await withdraw_import(
            context, done.number, kind="statement", by=None, reason="it names no payment"
        )
        await import_statement(context, statement(tmp_path, names="pay_1"), source="shop")
        driver.clock.put(Instant(T + 42 * DAY))
        assert await found(driver) == {}
