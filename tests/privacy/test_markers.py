"""One number, planted in every place that is listed, is found there before an erasure, and
afterwards nowhere but in what is kept for good, which the report names."""

import asyncio
import io
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from app.cli.main import application
from app.config.load import load_settings
from app.core.errors import UsageError
from app.core.logs import configure_logging
from app.database.tables import metadata
from app.evidence.attachments import AttachRequest, attach
from app.orders.record_store import add_records
from app.orders.refold import refold_until_quiet
from app.privacy.backup import back_up, restore
from app.privacy.places import columns
from app.privacy.replay_erasures import ErasureReplay, Replayed, replay_after_restore
from app.receiving.inbox import Inbox
from reconcile.instants import DAY, MINUTE
from tests.api.driving import Driver, driving, environ, of_order
from tests.contexts import on_inbox, settings_of
from tests.evidence.conftest import build
from tests.evidence.world import LATER, record
from tests.privacy.test_erase import OTHER, PHONE, SPELLED, erased, held, paid, plant, quiet
from tests.reconcile.build import T

FORMS = (PHONE, SPELLED, "0711 223344")
ORDERS = ("ORD-1", "ORD-4", "ORD-5")

IN_TRANSIT = {"inbox.records", "suspects.orders", "suspects.record"}
"""Empty once everything was read; what is set aside stays, and is judged by itself."""

OTHERWISE = {
    *("phones.digest", "phones.kind", "phones.thing", "unanswered.order_key"),
    *("order_keys.order_key", "order_keys.key"),
}
"""Columns that refer to a number but do not contain it. Rows are looked for instead."""

GOES = {where for where, mark in columns() if mark.erased != "kept" and mark.personal != "not"}
KEPT = {
    where
    for where, mark in columns()
    if (mark.erased, mark.personal) == ("kept", "possibly_personal")
}


def spoken_of(told: str) -> bool:
    """Return whether the number is in a text, in any planted form."""
    return any(each in told for each in FORMS)


def holding(path: Path) -> set[str]:
    """Return the columns in which the number stands."""
    found = set[str]()
    with closing(sqlite3.connect(path)) as connection:
        there = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        for table in metadata.tables.values():
            # The inbox's tables are in a file of their own.
            for column in table.columns if table.name in there else ():
                sql = f'SELECT "{column.name}" FROM {table.name}'
                values = [row[0] for row in connection.execute(sql)]
                told = (
                    each.decode("utf-8", "replace") if isinstance(each, bytes) else str(each)
                    for each in values
                )
                if any(map(spoken_of, told)):
                    found.add(f"{table.name}.{column.name}")
    return found


async def everywhere(driver: Driver) -> None:
    """Plant the number in every place that an erasure empties."""
    await plant(driver)
    failed = of_order("ORD-5", "e9", "declined")
    failed["data"] |= paid("ORD-5", "e9")["data"] | {
        "payment": {"reference": "pay-5", "reason": f"no wallet of {SPELLED}"}
    }
    await driver.send(failed)
    await driver.send(b"{}", [(b"x-customer", SPELLED.encode())])  # refused
    await refold_until_quiet(driver.context, limit=100, progress=quiet)
    letter = AttachRequest(
        about="order", subject="ORD-5", name=f"{PHONE}.txt", content=f"call {SPELLED}".encode(),
        kind="correspondence", note=f"from {SPELLED}", by=None,
    )  # fmt: skip
    await attach(driver.context, letter)
    async with driver.context.database.writing() as connection:
        for sql in (
            "INSERT INTO envelopes SELECT 'whole', body FROM deliveries "
            "WHERE event_id = 'e1' AND body IS NOT NULL",
            "UPDATE deliveries SET envelope = 'whole' WHERE event_id = 'e1'",
            "UPDATE events SET reason = 'msisdn' || :said WHERE event_id = 'e9'",
            "UPDATE bank_lines SET reference = :said WHERE minor = 150000",
            "INSERT INTO bookmarks VALUES ('Ann', 'orders', 'of ' || :said, 'q=' || :said, 1)",
        ):
            await connection.execute(text(sql), {"said": PHONE} if ":said" in sql else {})
    driver.clock.put(T + 40 * DAY)
    assert await driver.service.inbox.database.writer.checkpoint()


async def answers(driver: Driver, folder: Path) -> str:
    """Return all that is said of the orders: the API's answers, the command's words, a redacted
    bundle."""
    told = [
        (await driver.api("GET", f"/orders/{order}{part}")).text
        for order in ORDERS
        for part in ("", "/timeline", "/revisions")
    ]
    told += [(await driver.api("GET", "/revisions")).text]
    told += [(await driver.client.get("/metrics")).text]
    arguments = ["orders", "show", "ORD-5"]
    shown = await asyncio.to_thread(CliRunner().invoke, application, arguments, env=environ(folder))
    assert "ORD-5" in shown.output
    bundle = await build(driver, "ORD-5")
    return "\n".join([*told, shown.output, bundle.decode("latin-1")])


async def test_the_number_is_where_it_was_planted_and_then_nowhere(tmp_path: Path) -> None:
    """In no column, file, log line, answer or bundle; nor after an older backup was put back."""
    log = io.StringIO()
    configure_logging(format="json", level="debug", stream=log)
    _settings, file = load_settings(environ(tmp_path)), tmp_path / "older.backup"
    url = environ(tmp_path)["TALLYHOOK_DATABASE_URL"]
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        driver.context = driver.service.context
        await everywhere(driver)
        assert holding(driver.path) == GOES - IN_TRANSIT - OTHERWISE
        assert driver.rows("SELECT count(*) FROM phones") == [(10,)]
        assert driver.rows("SELECT count(*) FROM unanswered") == [(15,)]
        await back_up(settings_of(url), file, replace=False, progress=lambda done, total: None)
        erasure = await erased(driver)
        assert (erasure.kept, erasure.holding) == ([], {})
        assert holding(driver.path) == set()
        assert driver.rows("SELECT DISTINCT thing FROM phones") == [("ORD-2",)]
        assert driver.rows("SELECT count(*) FROM unanswered") == [(0,)]
        assert driver.rows("SELECT count(*) FROM attachment_files") == [(0,)]
        driver.clock.put(LATER + MINUTE)
        assert not spoken_of(await answers(driver, tmp_path))
        context = driver.context
    assert held(tmp_path, *FORMS) == {file.name}

    async def erase_again(inbox: Inbox) -> Replayed:
        replaying = ErasureReplay(on_inbox(context, inbox), progress=quiet, restored=True)
        return await replay_after_restore(replaying, without=None)

    await restore(
        settings_of(url), file, replace=True, clock=context.clock,
        erase_again=erase_again, progress=lambda done, total: None, accepts="a test",
    )  # fmt: skip
    assert holding(tmp_path / "t.db") == set()
    assert held(tmp_path, *FORMS) == {file.name}
    assert '"delivery"' in log.getvalue()
    assert not spoken_of(log.getvalue())


async def test_what_is_kept_for_good_is_told_by_place(tmp_path: Path) -> None:
    """References that are the number, and what is sealed; each place that keeps it says why."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        driver.context = driver.service.context
        body = paid("ORD-1", "e1")
        body["data"]["payment"]["reference"] = f"pay-{PHONE}"
        await driver.send(body)
        refused = record("refused", "session_refused", T, reason=f"no wallet of {PHONE}")
        async with driver.context.database.writing() as connection:
            await add_records(connection, [refused], details=f'{{"asked": "{PHONE}"}}')
        await refold_until_quiet(driver.context, limit=10, progress=quiet)
        driver.clock.put(T + 40 * DAY)
        told = await erased(driver, dry_run=True)
        erasure = await erased(driver)
        left = holding(driver.path)
    assert left <= KEPT
    assert {"events.payment", "records.reason", "records.details"} <= left
    stays = {each.where: each for each in erasure.places() if each.stays}
    assert stays.keys() == left, "each column in which the number still stands, and no other"
    assert all(each.why for each in stays.values())
    places = {each["place"]: each for each in erasure.document()["places"]}
    assert places["records.reason"] == {
        "place": "records.reason", "went": 0, "stays": 1,
        "why": "it is sealed (legal claims may rest on it: GDPR Art. 17(3)(e))",
    }  # fmt: skip
    assert (places["deliveries.body"]["went"], places["phones.digest"]["went"]) == (1, 2)
    assert told.document()["places"] == erasure.document()["places"]
    assert PHONE not in str(erasure.document())


async def test_what_an_order_that_stays_keeps_is_told_by_place(tmp_path: Path) -> None:
    """Of one that is not over nothing goes: its rows and its references are counted where they
    stand, also where another order of the same number is erased."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        driver.context = driver.service.context
        await driver.send(paid("ORD-1", "e1"))
        pending = of_order("ORD-8", "e8", "pending")
        pending["data"] |= paid("ORD-8", "e8")["data"]
        for number in range(2):
            pending["id"] = f"e8{number}"
            pending["data"]["payment"] = {"reference": f"pay-{PHONE}-{number}"}
            await driver.send(pending)
        file = AttachRequest(
            about="order", subject="ORD-8", name="a.txt", content=b"call me", kind="other", by=None
        )
        await attach(driver.context, file)
        await refold_until_quiet(driver.context, limit=10, progress=quiet)
        told = await erased(driver, dry_run=True)
        erasure = await erased(driver)
        left = holding(driver.path)
    assert [each.order for each in erasure.orders] == ["ORD-1"]
    assert [each.what for each in erasure.kept] == ["ORD-8"]
    places = {each.where: (each.went, each.stays) for each in erasure.places()}
    assert places["deliveries.body"] == (1, 2)
    assert places["phones.digest"] == (2, 2)
    assert places["attachments.details"] == places["attachment_files.body"] == (0, 1)
    assert places["events.payment"] == (0, 2)
    assert all(each.why for each in erasure.places() if each.stays)
    assert told.document()["places"] == erasure.document()["places"]
    copies = {each for each in left if each in KEPT or each == "deliveries.body"}
    assert left == copies
    assert left <= places.keys()


async def test_what_is_attached_to_another_order_stays_while_that_needs_it(tmp_path: Path) -> None:
    """A disputed order of another customer, of which a letter names the number: the letter is for
    the provider. Of an order that is over it goes."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        driver.context = driver.service.context
        await driver.send(paid("ORD-1", "e1"))
        for order in ("ORD-2", "ORD-3"):
            await driver.send(paid(order, f"e-{order}", OTHER))
            letter = AttachRequest(
                about="order", subject=order, name="a.txt", content=order.encode(),
                kind="correspondence", note=f"his brother is {SPELLED}", by=None,
            )  # fmt: skip
            await attach(driver.context, letter)
        await driver.send(of_order("ORD-2", "e-d", "disputed"))
        await refold_until_quiet(driver.context, limit=10, progress=quiet)
        driver.clock.put(T + 40 * DAY)
        erasure = await erased(driver)
        left = driver.rows("SELECT order_key, details > '' FROM attachments ORDER BY 1")
    assert left == [("ORD-2", 1), ("ORD-3", None)]
    assert [(each.kind, each.why) for each in erasure.kept] == [("attachment", "disputed")]
    assert [each.order for each in erasure.orders] == ["ORD-1"]
    places = {each.where: (each.went, each.stays) for each in erasure.places()}
    assert places["attachments.details"] == (1, 1)


async def test_an_order_takes_files_of_others_only_where_that_was_said(tmp_path: Path) -> None:
    """They are named before, in the proposal's sentence too, and after; the bytes of a file that
    another order has as well stay with that order."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        driver.context = driver.service.context
        await driver.send(paid("ORD-1", "e1"))
        await driver.send(paid("ORD-3", "e3", OTHER))
        for order, content, note in (
            ("ORD-1", b"the same", ""), ("ORD-3", b"the same", ""), ("ORD-3", b"x", f"of {SPELLED}")
        ):  # fmt: skip
            file = AttachRequest(
                about="order", subject=order, name="a.txt", content=content, kind="other",
                note=note, by=None,
            )  # fmt: skip
            await attach(driver.context, file)
        await refold_until_quiet(driver.context, limit=10, progress=quiet)
        driver.clock.put(T + 40 * DAY)
        asked: dict[str, Any] = {"phone": None, "order": "ORD-1"}
        told = await erased(driver, dry_run=True, **asked)
        with pytest.raises(UsageError, match=r"^1 file of other orders \(ORD-3\) with"):
            await erased(driver, **asked)
        assert driver.rows("SELECT count(*) FROM attachments WHERE gone_at > 0") == [(0,)]
        erasure = await erased(driver, files_of_others=True, **asked)
        left = driver.rows("SELECT order_key FROM attachments WHERE gone_at IS NULL")
        files = driver.rows("SELECT body FROM attachment_files")
    assert (left, files) == ([("ORD-3",)], [(b"the same",)])
    assert [each["order"] for each in told.document()["files"]] == ["ORD-1", "ORD-3"]
    assert erasure.document()["files"] == told.document()["files"]
    places = {each.where: (each.went, each.stays) for each in erasure.places()}
    assert (places["attachments.details"], places["attachment_files.body"]) == ((2, 0), (1, 0))
