"""A number goes however it was written, and what went does not come back: neither with a redelivery
nor with a backup that a clock which was set back makes look newer than the erasure."""

import json
from base64 import b64encode
from pathlib import Path
from urllib.parse import quote

import pytest

from app.access.operators import register_operator
from app.config.load import load_settings
from app.core.errors import NotFoundError, UsageError
from app.evidence.attachments import AttachRequest, attach
from app.evidence.seal import open_signer, seal_all
from app.evidence.verify_log import verify_log
from app.finance.imports import ImportRequest, import_bank, import_book
from app.orders.refold import refold_until_quiet
from app.privacy.backup import back_up, restore
from app.privacy.check import check_database
from app.privacy.erase import traces_left
from app.privacy.erase_finding import Erasure
from app.privacy.replay_erasures import ErasureReplay, Replayed, replay_after_restore
from app.receiving.inbox import Inbox
from reconcile.instants import DAY, HOUR
from tests.api.driving import Driver, driving, environ, signed
from tests.contexts import on_inbox, settings_of
from tests.copied import copy_of
from tests.privacy.test_erase import OTHER, PHONE, erased, held, paid, quiet
from tests.reconcile.build import T

NATIONAL = "0711 223344"

WRITTEN = {
    "with marks of direction": "\u202a+254 711 223344\u202c",
    "with blanks and dashes of no keyboard": "+254\u00a0711\u2011223\u2013344",
    "with a zero in brackets": "+254 (0)711 223344",
    "with slashes": "+254/711 - 223344",
}

BEHIND = {
    "escaped in JSON": rb'{"msisdn": "\u002b\u0032\u0035\u0034711\u0020223344"',
    "escaped in a form": f"msisdn={quote('+254 711 223344')}".encode(),
    "as base64": b'{"payload": "%s"'
    % b64encode(b'{"name": "Wanjiku Kamau", "msisdn": "0711223344"}'),
}


async def _begun(folder: Path) -> None:
    async with driving(folder, with_worker=False) as driver:
        await driver.send(paid("ORD-9", "e9", OTHER))
        for form in WRITTEN.values():
            await driver.send(json.dumps({"told": form}, ensure_ascii=False).encode(), [])
        for body in BEHIND.values():
            await driver.send(body)
        await refold_until_quiet(driver.service.context, limit=10, progress=quiet)


def copied(driver: Driver) -> Path:
    """Return the path of the backup."""
    return driver.path.with_name("older.backup")


async def backed_up(driver: Driver) -> None:
    """Make it."""
    url = environ(driver.path.parent)["TALLYHOOK_DATABASE_URL"]
    await back_up(
        settings_of(url), copied(driver), replace=False, progress=lambda done, total: None
    )


async def put_back(driver: Driver) -> Replayed:
    """Restore it, with whoever was erased since erased again."""
    folder = driver.path.parent
    settings = load_settings(environ(folder))
    context = driver.service.context

    async def erase_again(inbox: Inbox) -> Replayed:
        replaying = ErasureReplay(on_inbox(context, inbox), progress=quiet, restored=True)
        return await replay_after_restore(replaying, without=None)

    restored = await restore(
        settings, copied(driver), replace=True,
        clock=context.clock, erase_again=erase_again, progress=lambda done, total: None,
        accepts="a test",
    )  # fmt: skip
    return restored.erased


async def test_a_number_goes_however_it_is_written(tmp_path: Path) -> None:
    """From what was refused and from what could not be read, which no digest leads to; and again
    from a backup of before."""
    copy_of(_begun, tmp_path)
    async with driving(tmp_path, with_worker=False, at=T + 80 * DAY) as driver:
        driver.context = driver.service.context
        await backed_up(driver)
        erasure = await erased(driver)
        assert erasure.kept == []
        assert (len(erasure.rejections), len(erasure.deliveries)) == (len(WRITTEN), len(BEHIND))
        assert driver.rows("SELECT count(body) FROM deliveries") == [(1,)]
        assert driver.rows("SELECT count(*) FROM rejections") == [(0,)]
    replayed = await put_back(driver)
    assert replayed.counts["rejections"] == len(WRITTEN)
    assert replayed.counts["deliveries"] == len(BEHIND)
    assert driver.rows("SELECT count(body) FROM deliveries") == [(1,)]
    assert driver.rows("SELECT count(*) FROM rejections") == [(0,)]


EMAIL = "jane.doe@example.com"


async def addressed(driver: Driver) -> None:
    """Plant an email address, in several capitals, in every place that an erasure empties but its
    own digest, and of an order that a digest alone leads to."""
    await driver.send(paid("ORD-1", "e1", OTHER, email=EMAIL.title()))
    await driver.send(paid("ORD-4", "e4", OTHER, note=f"write to {EMAIL}, his wife"))
    await driver.send(paid("ORD-9", "e9", OTHER, email=f"mary.{EMAIL}"))
    await driver.send(b'{"unreadable": "%s"' % EMAIL.encode())
    await driver.send(json.dumps(paid("ORD-3", "e3", OTHER, email=EMAIL)).encode(), [])
    await refold_until_quiet(driver.context, limit=10, progress=quiet)
    bank = driver.path.with_name("bank.csv")
    bank.write_text(
        "booked_at,amount,currency,counterparty,text,entry_reference\n"
        f"2026-11-01,1500,KES,Jane Doe,PO-100200 of {EMAIL.upper()},E1\n"
    )
    assert (await import_bank(driver.context, ImportRequest(path=bank, account="main"))).new == 1
    bank.unlink()
    letter = AttachRequest(
        about="order", subject="ORD-9", name="a.txt", content=f"Dear {EMAIL}".encode(),
        kind="correspondence", note=f"from {EMAIL}", by=None,
    )  # fmt: skip
    await attach(driver.context, letter)


async def test_an_email_address_goes_as_a_number_does(tmp_path: Path) -> None:
    """Found by its digest and in every column; no file, trail or report has it, nor does an older
    backup that was put back. Another's address that ends with it stays."""
    forms = (EMAIL, EMAIL.title(), EMAIL.upper())
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        driver.context = driver.service.context
        await addressed(driver)
        driver.clock.put(T + 80 * DAY)
        await backed_up(driver)
        with pytest.raises(UsageError, match="or email address"):
            await erased(driver, phone=None, email=EMAIL, reason=f"{EMAIL.title()} asked")
        erasure = await erased(driver, phone=None, email=f" {EMAIL.title()}")
        assert [each.order for each in erasure.orders] == ["ORD-1", "ORD-4"]
        assert (erasure.kept, erasure.holding) == ([], {})
        went = {name for name, count in erasure.counts().items() if count}
        assert went == {"orders", "deliveries", "rejections", "bank_lines", "attachments"}
        assert erasure.subject == "the email address j•••"
        left = driver.rows("SELECT CAST(body AS TEXT) FROM deliveries WHERE body IS NOT NULL")
        assert [f"mary.{EMAIL}" in row[0] for row in left] == [True]
        assert EMAIL not in str(driver.rows("SELECT * FROM audit"))
        with pytest.raises(NotFoundError, match="nothing is stored about the email address"):
            await erased(driver, phone=None, email=EMAIL)
    replayed = await put_back(driver)
    assert (replayed.counts["orders"], replayed.pending) == (2, {})
    assert replayed.counts["rejections"] == replayed.counts["bank_lines"] == 1
    assert replayed.counts["attachments"] == 1
    assert not held(tmp_path, *forms[1:]) - {"older.backup"}


def test_a_trace_of_an_address_is_found_in_any_capitals(tmp_path: Path) -> None:
    (tmp_path / "t.db").write_bytes(b"x" * 100 + EMAIL.title().encode())
    erasure = Erasure(subject="", identifiers=[f"email:{EMAIL}"])
    assert traces_left(tmp_path / "t.db", erasure) == [tmp_path / "t.db"]


async def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False) as driver:
        driver.context = driver.service.context
        await register_operator(driver.context, name="Ann", role="admin", by="Ann")
        with pytest.raises(UsageError, match="--email must be one complete email address"):
            await erased(driver, phone=None, email="jane doe@example", by="Ann")


@pytest.mark.parametrize("form", [*WRITTEN.values()][:3])
async def test_a_number_that_an_event_names_is_found_by_its_digest(
    tmp_path: Path, form: str
) -> None:
    async with driving(tmp_path, with_worker=False) as driver:
        driver.context = driver.service.context
        await driver.send(paid("ORD-1", "e1", form))
        await refold_until_quiet(driver.context, limit=10, progress=quiet)
        driver.clock.put(T + 40 * DAY)
        erasure = await erased(driver)
        assert [each.order for each in erasure.orders] == ["ORD-1"]


async def test_a_number_of_no_digest_is_found_in_the_bodies(tmp_path: Path) -> None:
    """A national number, of a country that nothing tells, has no digest."""
    async with driving(tmp_path, with_worker=False) as driver:
        driver.context = driver.service.context
        await driver.send(paid("ORD-1", "e1", NATIONAL))
        await driver.send(paid("ORD-9", "e9", OTHER))
        await refold_until_quiet(driver.context, limit=10, progress=quiet)
        driver.clock.put(T + 40 * DAY)
        assert [e.order for e in (await erased(driver)).orders] == ["ORD-1"]
        with pytest.raises(NotFoundError, match=r"44$"):
            await erased(driver)


async def test_a_clock_that_was_set_back_keeps_nobody(tmp_path: Path) -> None:
    """What arrived by the clock as it was before is no later than the erasure."""
    async with driving(tmp_path, with_worker=False, at=T + 80 * DAY) as driver:
        driver.context = driver.service.context
        await driver.send(paid("ORD-1", "e1"))
        await driver.send(json.dumps(paid("ORD-2", "e2")).encode(), [])
        await refold_until_quiet(driver.context, limit=10, progress=quiet)
        driver.clock.put(T + 160 * DAY)
        await driver.send(paid("ORD-3", "e3"))
        await refold_until_quiet(driver.context, limit=10, progress=quiet)
        await backed_up(driver)
        driver.clock.put(T + 160 * DAY - HOUR)
        first = await erased(driver)
        assert sorted(each.order for each in first.orders) == ["ORD-1", "ORD-3"]
        assert (len(first.rejections), first.kept) == (1, [])
        assert held(tmp_path, PHONE) == {"older.backup"}
    replayed = await put_back(driver)
    assert (replayed.counts["orders"], replayed.counts["rejections"]) == (2, 1)
    assert held(tmp_path, PHONE) == {"older.backup"}


async def test_an_imported_line_is_erased_no_earlier_than_it_was_imported(tmp_path: Path) -> None:
    """A clock that was set back would date the erasure before the import."""
    book, bank = tmp_path / "book.csv", tmp_path / "bank.csv"
    book.write_text(f"reference,amount,currency,phone\nORD-1,5,KES,{PHONE}\n")
    bank.write_text(f"booked_at,amount,currency,text\n2026-11-01,5,KES,of {OTHER}\n")
    async with driving(tmp_path, with_worker=False, at=T + DAY) as driver:
        driver.context = context = driver.service.context
        await import_book(context, ImportRequest(path=book))
        await import_bank(context, ImportRequest(path=bank, account="main"))
        driver.clock.put(T)
        for phone, count in ((PHONE, (1, 0)), (OTHER, (0, 1))):
            told = await erased(driver, dry_run=True, phone=phone)
            assert (len(told.book_lines), len(told.bank_lines)) == count
            assert told.latest >= T + DAY


async def redelivered(driver: Driver) -> None:
    """Erase ORD-1, and deliver its event once more, with the number in a header."""
    body = json.dumps(paid("ORD-1", "e1")).encode()
    await driver.send(body)
    await driver.send(paid("ORD-9", "e9", OTHER))
    await refold_until_quiet(driver.context, limit=10, progress=quiet)
    driver.clock.put(T + 40 * DAY)
    await erased(driver)
    headers = [*signed(body, event_id="e1", at=driver.clock.now()), (b"x-payer", PHONE.encode())]
    answer = await driver.send(body, headers)
    assert answer.json()["verdict"] == "duplicate"
    assert await driver.context.inbox.tidy()
    assert await driver.context.database.writer.checkpoint()


async def test_a_redelivery_brings_nothing_back(tmp_path: Path) -> None:
    """It is counted, and known by its digest; of it neither body nor header is kept. Of another
    order's the headers are kept as before."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        driver.context = driver.service.context
        await redelivered(driver)
        assert held(tmp_path, PHONE) == set()
        await driver.send(paid("ORD-9", "e9", OTHER))
        sql = "SELECT verdict, headers > '', body IS NULL, pruned_at > 0 FROM deliveries "
        found = {each: driver.rows(f"{sql} WHERE event_id = ? ORDER BY verdict DESC", each)
                 for each in ("e1", "e9")}  # fmt: skip
        assert found["e1"] == [("stored", 0, 1, 1), ("duplicate", 0, 1, 1)]
        assert found["e9"] == [("stored", 1, 0, None), ("duplicate", 1, 1, None)]
        with pytest.raises(NotFoundError):
            await erased(driver)
        await seal_all(driver.context, await open_signer(driver.context))
        report = await check_database(driver.context, deep=1, progress=quiet)
        assert report.problems == []
        verified = await verify_log(driver.context, progress=lambda done, total: None)
        assert verified.problems == []
