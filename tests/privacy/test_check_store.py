"""The check: every kind of damage is found and named, and a sound store has none."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from app.core.errors import ConfigurationError
from app.orders.history_store import ranges
from app.orders.order_facts import OrderFacts, tell_order
from app.orders.refold import refold_until_quiet
from app.privacy.check import MAX_PROBLEMS, CheckReport, check_database, doing_again
from reconcile.instants import DAY, MILLISECOND, Instant
from reconcile.money import Money
from tests.api.driving import Driver, driving, event, of_order
from tests.contexts import with_settings, with_sources


def quiet(count: int) -> None:
    """Progress that nobody watches."""


async def checked(driver: Driver) -> CheckReport:
    """Run the check."""
    return await check_database(driver.context, deep=1, progress=quiet)


async def proved(driver: Driver) -> CheckReport:
    """Run the check that reads no body and folds no order."""
    return await check_database(driver.context, progress=quiet)


async def plant(driver: Driver, *statements: str) -> None:
    """Change what is stored behind the service's back, as one who holds the file can."""
    async with driver.service.inbox.database.writing() as connection:
        kept = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        triggers: list[Any] = list(await connection.exec_driver_sql(kept))
        dropping = [f"DROP TRIGGER {name}" for name, _ in triggers]
        for sql in (*dropping, *statements, *(made for _, made in triggers)):
            await connection.exec_driver_sql(sql)


@pytest.fixture(scope="module")
async def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Instant]:
    """Make a store that every test copies, and the instant of its making: a paid order with a
    redelivery, an open one, a canceled one, an orphan, a body that cannot be read, two bodies of
    one id, and two orders that contest a payment; all folded."""
    folder = tmp_path_factory.mktemp("made")
    async with driving(folder, with_worker=False, looking=True) as driven:
        bodies: list[Any] = [event("e1"), event("e1"), of_order("O-2", "e2", "pending"), b"{}"]
        bodies += [event("e3", "pending", order=None, session=None, payment={"reference": "p3"})]
        bodies += [of_order("O-4", "e4"), of_order("O-4", "e4", "declined")]
        bodies += [of_order("O-5", "e5"), event("e6", order={"reference": "O-6"}, session=None,
                                                payment={"reference": "pay-O-5"})]  # fmt: skip
        for body in bodies:
            driven.clock.put(driven.clock.now() + MILLISECOND)
            assert (await driven.send(body)).status_code == 200
        price, now = Money(minor=1, currency="KES"), driven.clock.now()
        await tell_order(driven.context, OrderFacts(order="O-7", money=price, canceled_at=now))
        await refold_until_quiet(driven.context, limit=100, progress=quiet)
        return folder, driven.clock.now()


@pytest.fixture
async def driver(made: tuple[Path, Instant], tmp_path: Path) -> AsyncIterator[Driver]:
    """Run a service on a copy of it."""
    source, at = made
    copytree(source, tmp_path, dirs_exist_ok=True)
    async with driving(tmp_path, with_worker=False, at=at) as driven:
        yield driven


async def test_a_sound_store(driver: Driver) -> None:
    """Nothing is found, everything was looked at, and it stays so as time goes by."""
    report = await checked(driver)
    assert report.problems == []
    assert (report.bodies, report.orders, report.pruned) == (8, 6, 0)
    driver.clock.put(driver.clock.now() + 10 * DAY)
    assert (await checked(driver)).problems == []  # what is due is behind, and known to be
    await refold_until_quiet(driver.context, limit=100, progress=quiet)
    assert (await checked(driver)).problems == []
    json.dumps(report.document())


async def test_what_comes_while_a_deep_check_runs_is_no_problem(driver: Driver) -> None:
    """A range is folded as of the instant at which it is read, not of when the check began."""
    async with (
        doing_again(driver.context, jobs=1) as doing,
        driver.service.inbox.database.reading() as connection,
    ):
        (orders,) = [each async for each in ranges(connection, events=1_000)]
        driver.clock.put(driver.clock.now() + MILLISECOND)
        assert (await driver.send(of_order("O-2", "e8"))).status_code == 200
        assert await doing.fold(orders) == (6, [])


async def test_the_progress_ends_at_what_was_said_to_be_ahead(driver: Driver) -> None:
    """Said once, before the first is checked."""
    told: list[tuple[str, int]] = []
    await check_database(
        driver.context,
        deep=1,
        progress=lambda count: told.append(("checked", count)),
        ahead=lambda rows: told.append(("ahead", rows)),
    )
    (_, ahead), *steps = told
    assert [what for what, _ in told] == ["ahead"] + ["checked"] * len(steps)
    assert sum(count for _, count in steps) == ahead


E1 = "(SELECT id FROM deliveries WHERE event_id='e1' AND verdict='stored')"
PLANTED = {
    "a flipped byte": (
        "UPDATE deliveries SET body=CAST(replace(body, 'KES', 'KET') AS BLOB) WHERE event_id='e2'",
        ["the body of", "does not have its digest"],
    ),
    "a body that is gone": (
        f"UPDATE deliveries SET body=NULL WHERE id={E1}",
        ["the body of", "is gone, and was not pruned"],
    ),
    "a verdict": (
        f"UPDATE deliveries SET verdict='unreadable' WHERE id={E1}",
        ["the verdict of", "is not what its body gives"],
    ),
    "an event id of a delivery": (
        f"UPDATE deliveries SET event_id='e9' WHERE id={E1}",
        ["the verdict of", "is not what its body gives"],
    ),
    "a redelivery of nothing": (
        "UPDATE deliveries SET event_id='e9' WHERE verdict='duplicate'",
        ["is a redelivery of an event that is not in the index"],
    ),
    "an amount in the index": (
        "UPDATE events SET amount=amount+1 WHERE event_id='e1'",
        ["the event e1 of ORD-1 is not what its delivery gives"],
    ),
    "an amount in no currency": (
        "UPDATE events SET currency='KE9' WHERE event_id='e1'",
        ["the ledger of ORD-1 cannot be compared: 'KE9' is not a currency code"],
    ),
    "a claim that is none": (
        "UPDATE events SET claim='succeeding' WHERE event_id='e1'",
        ["orders are not compared, since a row cannot be read:", "the stored claim of event e1"],
    ),
    "an event under another order": (
        "UPDATE events SET order_key='O-2' WHERE event_id='e1'",
        ["the event e1 of O-2 is not what its delivery gives"],
    ),
    "an event without its order": (
        "UPDATE events SET order_key=NULL WHERE event_id='e1'",
        ["the event e1 of no order is not what its delivery gives"],
    ),
    "an event that is missing": (
        "DELETE FROM events WHERE event_id='e2'",
        ["the event e2 of O-2 is missing in the index"],
    ),
    "an event that nobody sent": (
        "INSERT INTO events SELECT 99, order_key, source, 'e99', digest, delivery_id, received_at, "
        "kind, claim, occurred_at, order_ref, session, payment, movement, amount, currency, "
        "order_amount, order_currency, reason, standing, capture, refunded_total, "
        "refunded_currency, unclear, method, expected_by, revocable_days, "
        "shop, suggested, agreement, standalone, parts, states, stated_at FROM events "
        "WHERE event_id='e1'",
        ["the event e99 of ORD-1 is in the index, and no delivery gives it"],
    ),
    "a link to another order": (
        "UPDATE links SET order_key='O-2' WHERE reference='pay_1'",
        ["the link pay_1 of O-2 is not what its delivery gives"],
    ),
    "a link that is missing": (
        "DELETE FROM links WHERE reference='pay_1'",
        ["the link pay_1 of ORD-1 is missing in the index"],
    ),
    "a contest that is missing": (
        "DELETE FROM contested",
        ["the contested orders of O-5 are not what the deliveries give"],
    ),
    "a contest that is none": (
        "INSERT INTO contested VALUES ('ORD-1', 'O-2'), ('O-2', 'ORD-1')",
        ["the contested orders of O-2 are not what the deliveries give"],
    ),
    "an outcome": (
        "UPDATE ledgers SET outcome='failed' WHERE order_key='ORD-1'",
        ["the ledger of ORD-1 is not what its history gives"],
    ),
    "findings": (
        "UPDATE ledgers SET findings='' WHERE order_key='O-4'",
        ["the ledger of O-4 is not what its history gives"],
    ),
    "fulfillable": (
        "UPDATE ledgers SET fulfillable=1-fulfillable WHERE order_key='ORD-1'",
        ["the ledger of ORD-1 is not what its history gives"],
    ),
    "a ledger that is missing": (
        "DELETE FROM ledgers WHERE order_key='ORD-1'",
        ["the ledger of ORD-1 is not cached, and nothing is due"],
    ),
    "a ledger of nothing": (
        "INSERT INTO ledgers SELECT 'O-9', as_of, outcome, fulfillable, findings, substance, "
        "next_decision_at, rules, expected_by, method_class, revocable_until FROM ledgers "
        "WHERE order_key='ORD-1'",
        ["order O-9 has no due mark"],
    ),
    "what was published": (
        "UPDATE revisions SET substance='x' WHERE order_key='ORD-1'",
        ["what was last published of ORD-1 is not what its history gives"],
    ),
    "a gap in the feed": (
        "DELETE FROM revisions WHERE seq=1",
        ["the outcome feed has gaps"],
    ),
    "the feed's counter": (
        "UPDATE counters SET value=1 WHERE name='revisions'",
        ["the outcome feed would go on at another number"],
    ),
    "a counter of orders": (
        "UPDATE counters SET value=9 WHERE name='outcome canceled'",
        [
            "the counter of orders with the outcome canceled is 9, and there are 1; "
            "`tallyhook refold --all` counts them again"
        ],
    ),
    "a list of orders": (
        "DELETE FROM order_listings WHERE word='outcome canceled'",
        [
            "the list of orders with the outcome canceled has 0, and there are 1; "
            "`tallyhook refold --all` lists them again"
        ],
    ),
    "an order that is listed by an older revision": (
        "UPDATE order_listings SET seq=seq+90 WHERE word='outcome canceled'",
        [
            "1 order is listed by a revision that is not its last; `tallyhook refold --all` lists "
            "them again"
        ],
    ),
    "a mark that is missing": (
        "DELETE FROM order_due WHERE order_key='O-2'",
        ["order O-2 has no due mark"],
    ),
    "a mark that never comes": (
        "UPDATE order_due SET due_at=NULL WHERE order_key='O-2'",
        ["the due mark of O-2 is not at its ledger's next decision"],
    ),
}


async def test_many_problems_are_counted(driver: Driver) -> None:
    """Only the first problems are told; all are counted."""
    for number in range(MAX_PROBLEMS + 5):
        await driver.send(of_order(f"X-{number}", f"x{number}", "pending"))
    await plant(driver, "UPDATE deliveries SET body=CAST('x' AS BLOB) WHERE event_id LIKE 'x%'")
    report = await checked(driver)
    assert len(report.problems) == MAX_PROBLEMS
    assert report.found > MAX_PROBLEMS


async def test_without_a_source(driver: Driver) -> None:
    """Without the source of a stored delivery the variable is named."""
    with pytest.raises(ConfigurationError, match="TALLYHOOK_SOURCES__SHOP__PROFILE"):
        await check_database(with_sources(driver.context, {}), deep=1, progress=quiet)


async def test_a_customer_who_is_not_found_by_the_number_that_a_body_names(tmp_path: Path) -> None:
    """Told as one problem, whatever form the note has; not where notes are let go by themselves."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        driver.context = driver.service.context
        nameless = event("e2", order=None, session=None, payment={"reference": "p2"})
        for body in (event("e1"), nameless):
            body["data"]["customer"] = {"phone": "254711223344"}
            await driver.send(body)
        await refold_until_quiet(driver.context, limit=100, progress=quiet)
        assert (await checked(driver)).problems == []
        await plant(driver, "UPDATE phones SET kind='delivery', thing=(SELECT id FROM deliveries "
                            "WHERE event_id='e1') WHERE kind='order'")  # fmt: skip
        assert (await checked(driver)).problems == []
        await plant(driver, "DELETE FROM phones")
        (problem,) = (await checked(driver)).problems
        assert problem.startswith(
            "2 customers are not found by the number, email address, name or id"
        )
        driver.context = with_settings(driver.context, retention_phones_days=30)
        assert (await checked(driver)).problems == []


# What the form that reads nothing again says of the same damage, where it says anything else.
PROVED: dict[str, list[str]] = {
    "a verdict": ["the verdict of", "does not fit its event"],
    "an event id of a delivery": ["the event e9 of dlv_", "is missing in the index"],
    "an amount in the index": [],
    "an amount in no currency": [],
    "a claim that is none": [],
    "an event under another order": ["the event e1 names ORD-1, and is kept under O-2"],
    "an event without its order": ["the event e1 names ORD-1, and is kept under no order"],
    "an event that is missing": ["the event e2 of dlv_", "is missing in the index"],
    "a link to another order": ["the link pay_1 of O-2 is in the index, and nothing gives it"],
    "an outcome": ["the ledger of ORD-1 is not what was last published of it"],
    "findings": ["the counter of orders with the finding same_id_different_body is 1"],
    "fulfillable": ["the ledger of ORD-1 is not what was last published of it"],
    "what was published": ["the ledger of ORD-1 is not what was last published of it"],
}


@pytest.mark.parametrize("name", PLANTED)
async def test_what_was_planted_is_named(driver: Driver, name: str) -> None:
    """Each kind of damage is a problem that names the row; without reading a body again all of it,
    but for what only a body or a history can tell. Nothing is told before."""
    assert (await proved(driver)).problems == []
    sql, words = PLANTED[name]
    await plant(driver, sql)
    for report, wanted in (
        (await checked(driver), words),
        (await proved(driver), PROVED.get(name, words)),
    ):
        named = [each for each in report.problems if all(word in each for word in wanted)]
        assert bool(named) == bool(wanted), report.problems
        assert report.found == 0 or "problem" in report.sentence()


BETWEEN_LAYERS = {
    "the size of a body": (
        "UPDATE deliveries SET size=size+1 WHERE event_id='e2'",
        "does not have its size",
    ),
    "a verdict that is none": (
        "UPDATE deliveries SET verdict='lost' WHERE event_id='e3'",
        "does not fit its event",
    ),
    "a whole body that is missing": (
        "UPDATE deliveries SET envelope='x' WHERE event_id='e3'",
        "the whole body that dlv_",
    ),
    "a link that an orphan waits for": (
        "INSERT INTO links VALUES ('p3', 'payment', 'shop', 'O-2')",
        "the event e3 of no order has a link to one",
    ),
    "an orphan that was put under an order": (
        "UPDATE events SET order_key='O-2' WHERE event_id='e3'",
        "the event e3 of O-2 names no order, and has no link to it",
    ),
    "a ledger of other rules": (
        "UPDATE ledgers SET rules='x' WHERE order_key='O-2'",
        "the ledger of O-2 was folded by other rules",
    ),
}


@pytest.mark.parametrize("name", BETWEEN_LAYERS)
async def test_rows_that_do_not_fit_the_layer_beneath_are_named(driver: Driver, name: str) -> None:
    sql, words = BETWEEN_LAYERS[name]
    await plant(driver, sql)
    problems = (await proved(driver)).problems
    assert any(words in problem for problem in problems), problems


IN_BOTH: dict[str, tuple[str, ...]] = {
    "what a revision says of the one before it": (
        "UPDATE revisions SET before_outcome='failed' WHERE seq=1",
        "revision 1 of ORD-1 does not follow the one before it",
    ),
    "a whole body of several events": (
        "INSERT INTO envelopes VALUES ('x', x'00')",
        "the whole body x does not have its digest",
    ),
    "the bytes of an attachment": (
        "INSERT INTO attachments (id, about, subject, order_key, kind, media, sha256, size, who, "
        "at, deed) VALUES ('att_1', 'order', 'O-2', 'O-2', 'other', 'text/plain', 'x', 1, 'a', 1, "
        "9)",
        "the bytes of att_1 are gone",
    ),
    "an attached file": (
        "INSERT INTO attachment_files VALUES ('x', x'00')",
        "the attached file x does not have its digest",
    ),
    "a row that nobody seals": (
        "INSERT OR REPLACE INTO meta VALUES ('sealed ids delivery', '')",
        "DELETE FROM unsealed",
        "has no leaf in the log, and waits for none",
    ),
    "a leaf of nothing": (
        "INSERT INTO log_leaves VALUES (0, 'delivery', 'dlv_x', '{}', x'00')",
        "the log has 1 leaf, and the rows that are there have 0",
    ),
    "a leaf that is missing": (
        "INSERT INTO log_leaves SELECT 1, 'delivery', id, '{}', x'00' FROM deliveries LIMIT 1",
        "leaves of the log are missing",
    ),
    "a hash of the log": (
        "INSERT INTO log_nodes VALUES (8, 0, x'00')",
        "hashes of the log are missing, or too many",
    ),
}


@pytest.mark.parametrize("name", IN_BOTH)
async def test_what_both_forms_find(driver: Driver, name: str) -> None:
    """Revisions, whole bodies and the log are looked at in the same way."""
    assert (await proved(driver)).problems == []
    *planted, words = IN_BOTH[name]
    await plant(driver, *planted)
    for report in (await proved(driver), await checked(driver)):
        assert any(words in problem for problem in report.problems), report.problems


async def test_the_two_forms_say_what_they_looked_at(driver: Driver) -> None:
    ahead: list[int] = []
    steps: list[int] = []
    report = await check_database(driver.context, progress=steps.append, ahead=ahead.append)
    assert [sum(steps)] == ahead
    assert report.sentence() == "8 bodies and 6 ledgers checked: all is as it should be"
    again = (await checked(driver)).sentence()
    assert again == "8 bodies and 6 ledgers read and folded again: all is as it should be"
