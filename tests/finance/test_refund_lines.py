"""A refund's line in a statement that has a reference of its own, with its payment or without.

Which payment a refund is of stands in the file, as `original_payment`, or is known by the webhook
that told of the refund by the same reference.
"""

from pathlib import Path
from typing import Any

import pytest

from app.core.errors import UsageError
from app.finance.break_acts import breaks_of_run, match_lines
from app.finance.imports import ImportRequest, import_book, import_statement
from app.finance.reconcile_period import RunRequest, reconcile_period
from app.finance.report_period import report_period
from app.finance.statement_store import statement_rows
from app.finance.withdraw_import import withdraw_import
from app.providers.profile import profile_text
from reconcile.instants import DAY, Instant, format_instant
from reconcile.matching.candidates import suggestions
from reconcile.reporting.report import Scope
from tests.api.driving import Driver, driving, event, of_order
from tests.reconcile.build import T

HEADING = "payment_reference,original_payment,order_reference,gross,fee,currency,settled_at,type\n"


def statement(
    folder: Path, *, names: str = "", own: str = "re_1", order: str = "", gross: str = "-400.00"
) -> ImportRequest:
    """Build a statement with a payment, its refund, and a payment of four weeks later.

    own, order: what the refund's line calls itself, and its order
    """
    at, last = (format_instant(Instant(T + days * DAY)) for days in (0, 30))
    rows = f"pay_1,,ORD-1,1500.00,0,KES,{at},payment\n"
    rows += f"{own},{names},{order},{gross},0,KES,{at},refund\n"
    rows += f"pay-ORD-2,,ORD-2,1500.00,0,KES,{last},payment\n"
    path = folder / f"statement{len(names)}.csv"
    path.write_text(HEADING + rows)
    return ImportRequest(path=path, days=(at[:10], last[:10]))


async def found(driver: Driver) -> dict[str, str]:
    """Return the open breaks of a run now, by their causes."""
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
        done = await import_statement(context, statement(tmp_path, own="bank-7"), source="shop")
        breaks = await found(driver)
        assert sorted(breaks) == ["refund_not_settled", "settled_never_notified"]
        (line,) = driver.rows("SELECT line FROM statement_lines WHERE payment = 'bank-7'")
        with pytest.raises(UsageError, match="original_payment"):
            await match_lines(
                context, breaks["refund_not_settled"], lines=[line[0]], reason="the same", by=None
            )
        assert done.number is not None
        driver.clock.put(Instant(T + 41 * DAY))
        await withdraw_import(
            context, done.number, kind="statement", by=None, reason="it names no payment"
        )
        file = statement(tmp_path, names="pay_1", own="bank-7")
        await import_statement(context, file, source="shop")
        driver.clock.put(Instant(T + 42 * DAY))
        assert await found(driver) == {}


async def refunded(driver: Driver, file: ImportRequest, *more: dict[str, Any]) -> dict[str, str]:
    """Return the breaks of this file, beside a payment, its refund re_1 of 400.00, and more."""
    refund = {"reference": "re_1", "amount": 400, "currency": "KES"}
    await driver.send(event("e1"))
    await driver.send(event("e2", "refunded", refund=refund))
    await driver.send(of_order("ORD-2", "e3"))
    for body in more:
        await driver.send(body)
    driver.clock.put(Instant(T + 40 * DAY))
    await import_statement(driver.service.context, file, source="shop")
    return await found(driver)


async def sums_of(driver: Driver) -> dict[str, int]:
    """Return the flows of the report of the first days, whose ties hold."""
    scope = Scope(
        start=T, end=Instant(T + 5 * DAY), as_of=driver.clock.now(), basis="captured",
        environment="sandbox",
    )  # fmt: skip
    report = await report_period(driver.service.context, scope, progress=lambda _: None)
    assert report.ties_hold
    return {each.flow: each.sum for each in report.money if each.sum}


@pytest.mark.parametrize("order", ["", "ORD-1"])
async def test_a_refund_is_of_the_payment_of_which_a_webhook_told_it_by_its_own_reference(
    tmp_path: Path, order: str
) -> None:
    """Also where the line names its order. It was two breaks: the refund that no line takes, and a
    line of which no webhook told. The report has the line with its refund."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        assert await refunded(driver, statement(tmp_path, order=order)) == {}
        sums = await sums_of(driver)
        assert (sums["refunded"], sums["settled"]) == (40_000, 260_000)
        assert "not_notified" not in sums


async def test_one_that_takes_another_amount_is_one_break(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        assert list(await refunded(driver, statement(tmp_path, gross="-390.00"))) == [
            "refund_amount_differs"
        ]


async def test_a_reference_that_refunds_of_two_orders_bear_says_nothing(tmp_path: Path) -> None:
    refund = {"reference": "re_1", "amount": 400, "currency": "KES"}
    other = of_order("ORD-2", "e4", "refunded") | {}
    other["data"]["refund"] = refund
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        breaks = await refunded(driver, statement(tmp_path), other)
    assert "settled_never_notified" in breaks


async def test_a_disputes_line_is_of_a_reversal_of_its_payment_that_took_just_that(
    tmp_path: Path,
) -> None:
    """As PayPal tells what a bank took back: a reversal in its webhooks, and in its statement a
    payment reversal, which is a dispute. It was missed beside a line of which no webhook told."""
    at, last = (format_instant(Instant(T + days * DAY)) for days in (0, 30))
    file = tmp_path / "disputed.csv"
    file.write_text(
        f"{HEADING}pay_1,,ORD-1,1500.00,0,KES,{at},payment\n"
        f"pay_1,,ORD-1,-1500.00,0,KES,{last},dispute\n"
    )
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await driver.send(event("e1"))
        await driver.send(event("e2", "reversed"))
        driver.clock.put(Instant(T + 40 * DAY))
        await import_statement(driver.service.context, ImportRequest(path=file), source="shop")
        assert await found(driver) == {}
        sums = await sums_of(driver)
    assert sums == {"captured": 150_000, "refunded": 150_000}


async def test_a_line_of_a_renewal_finds_no_order_until_the_shop_names_one(tmp_path: Path) -> None:
    """Its events name the order of the agreement's first payment."""
    profile = tmp_path / "renewing.toml"
    where = 'agreement = "json:data.agreement"\n'
    profile.write_text(profile_text("checkout").replace("[event]\n", f"[event]\n{where}"))
    given: dict[str, Any] = {"SOURCES__SHOP__PROFILE": str(profile)}
    async with driving(tmp_path, with_worker=False, **given) as driver:
        for name, days in (("first", 0), ("later", 28)):
            payment = {"reference": name, "amount": 1500, "currency": "KES"}
            at = format_instant(Instant(T + days * DAY))
            driver.clock.put(Instant(T + days * DAY))
            body = event(
                f"e_{name}", session=None, payment=payment, agreement="sub", occurred_at=at
            )
            await driver.send(body)
        rows = "".join(f"{n},,,1500.00,0,KES,{at},payment\n" for n in ("first", "later"))
        (tmp_path / "lines.csv").write_text(HEADING + rows)
        asked = ImportRequest(path=tmp_path / "lines.csv", days=(at[:10], at[:10]))
        await import_statement(driver.service.context, asked, source="shop")
        assert await orders_of_lines(driver) == {"first": "ord1", "later": None}
        named = {"references": [{"source": "shop", "payment": "later"}]}
        price = {"amount": "1500.00", "currency": "KES"}
        assert (await driver.api("PUT", "/orders/ORD-1", json=price | named)).is_success
        assert await orders_of_lines(driver) == {"first": "ord1", "later": "ord1"}


async def orders_of_lines(driver: Driver) -> dict[str, str | None]:
    """Return the order that each line belongs to, by its payment."""
    async with driver.context.database.reading() as connection:
        as_of = driver.clock.now()
        batches = [rows async for rows in statement_rows(connection, as_of=as_of)]
    return {row[2]: row[0] or None for rows in batches for row in rows}


async def test_money_that_went_to_the_orders_number_is_the_first_candidate_for_its_refund(
    tmp_path: Path,
) -> None:
    """Sums must be equal; it is only a candidate. Only a keyed digest of the number is kept."""
    phone, at = "254712345678", [format_instant(Instant(T + days * DAY)) for days in range(31)]
    rows = [
        f"pay_1,1500.00,KES,{at[0]},payment,",
        f"B2C-1,-400.00,KES,{at[1]},disbursement,254700000009 - OTIENO",
        f"B2C-2,-400.00,KES,{at[3]},disbursement,{phone} - WANJIRU",
        f"B2C-3,-400.00,KES,{at[1]},disbursement,2547*****678 - WANJIRU",
        f"pay_2,5.00,KES,{at[30]},payment,",
    ]
    path = tmp_path / "till.csv"
    heading = "payment_reference,gross,currency,settled_at,type,recipient,wallet"
    path.write_text("\n".join([heading, *(f"{row},Utility" for row in rows), ""]))
    book = tmp_path / "book.csv"
    book.write_text(
        "reference,amount,currency,status,refunded_amount,refunded_at\n"
        f"ORD-1,1500.00,KES,paid,400.00,{at[1]}\n"
    )
    days = (at[0][:10], at[30][:10])
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await driver.send(event("e1", customer={"phone": phone}))
        context = driver.service.context
        driver.clock.put(Instant(T + 40 * DAY))
        done = await import_statement(context, ImportRequest(path=path, days=days), source="shop")
        booked = await import_book(context, ImportRequest(path=book, days=days))
        assert (booked.new, booked.problems) == (1, [])
        assert done.problems == []
        driver.clock.put(Instant(T + 41 * DAY))
        ran = await reconcile_period(context, RunRequest(), progress=lambda _: None)
        seen = [e.seen async for some in breaks_of_run(context, ran.number) for e in some]
        (due,) = [each for each in seen if each.cause == "refund_not_received"]
        first, *others = suggestions(due)
        assert (first.candidate.reference, first.reasons[0]) == ("B2C-2", "same_number")
        assert {each.candidate.reference for each in others} == {"B2C-1", "B2C-3"}
        assert not any("same_number" in each.reasons for each in others)
        noted = driver.rows("SELECT thing FROM phones WHERE kind = 'recipient' ORDER BY thing")
        assert noted == [("stm:B2C-1",), ("stm:B2C-2",)]
        assert phone not in str(driver.rows("SELECT * FROM statement_lines"))
