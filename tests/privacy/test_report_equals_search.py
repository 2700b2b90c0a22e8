"""Report of an erasure, compared with a full-text search of the raw bytes.

The search covers the database, its log, the inbox, later backups and logged lines. It is repeated
after an earlier backup was put back.

Each planted marker names its place and its form, so that the bytes tell of themselves where they
stand: `of 0711 223344 in deliveries.body`.
"""

import io
import json
import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from sqlalchemy import text

from app.core.errors import NotAllRead
from app.core.logs import configure_logging
from app.evidence.seal import seal_unsealed
from app.orders.refold import refold_until_quiet
from app.privacy.copies import note_backup
from app.privacy.erase_finding import Erasure
from app.privacy.places import columns, is_emptied
from app.receiving.reader import Reader
from reconcile.instants import DAY
from tests.api.driving import Driver, driving, of_order
from tests.database.contract_personal import is_searched, planted_rows
from tests.privacy.test_erase import OTHER, PHONE, SPELLED, erased, paid, quiet
from tests.privacy.test_erase_forms import backed_up, copied, put_back
from tests.reconcile.build import T
from tests.searching import every, examples
from tests.waiting import soon

LOCAL, BARE, EMAIL = "0711 223344", "711223344", "jane.doe@example.com"
FORMS: Final = {PHONE: (PHONE, SPELLED, LOCAL, BARE), EMAIL: (EMAIL, EMAIL.title())}

_PLACES = sorted((re.escape(each.where) for each in columns()), key=len, reverse=True)
_FORMS = [re.escape(each) for forms in FORMS.values() for each in forms]

MARKER: Final = re.compile(
    rf"of ({'|'.join(_FORMS)}) in ({'|'.join(_PLACES)})".encode(), re.IGNORECASE
)

LEFT_OUT: Final = ("operators", "log_leaves", "unsealed")
"""Tables whose planted row nobody could work beside: who may erase, and what must be sealed. By
their marks nothing of a customer stands in them: names of people who work here, our own ids, codes
and hashes."""

ENDED: Final = ("sessions", "invitations")
"""Tables that a restore empties."""

EMPTIED: Final = frozenset(each for each, mark in columns() if is_emptied(mark))


def planted(where: str, form: str) -> tuple[str, dict[str, Any]]:
    """Return the insert of the row whose marker stands in this place."""
    wanted = {f"of {form} in {where}", f"of {form} in {where}".encode()}
    sql, values = next(each for each in planted_rows(form) if wanted & {*each[1].values()})
    plain = where.replace(".", "-")  # as an id in the journal of erasures
    return sql, {
        name: plain if value == where else plain.encode() if value == where.encode() else value
        for name, value in values.items()
    }


def found_in(paths: Iterable[Path]) -> set[str]:
    """Return the places whose markers stand in the raw bytes of these files."""
    return {place.decode() for path in paths for _, place in MARKER.findall(path.read_bytes())}


def served(driver: Driver) -> list[Path]:
    """Return the files of the database and its inbox, with their logs."""
    return [*driver.path.parent.glob("t.*db*"), *driver.path.parent.glob("t.*inbox*"),
            *driver.path.parent.glob("t.db*")]  # fmt: skip


def reported(erasure: Erasure) -> set[str]:
    """Return the places of which the report says that something stays there."""
    return {each.where for each in erasure.places() if each.stays}


@pytest.mark.parametrize("person", [PHONE, EMAIL])
@pytest.mark.parametrize("seed", range(examples(5)))
async def test_the_report_of_what_stays_is_a_full_text_search(
    tmp_path: Path, person: str, seed: int
) -> None:
    """Markers in any form, in a random part of all marked columns."""
    random, log = Random(f"{person} {seed}"), io.StringIO()
    configure_logging(format="json", level="debug", stream=log)
    chosen = {
        where
        for where, mark in columns()
        if is_searched(where, mark) and not where.startswith(LEFT_OUT) and random.random() < 0.7
    }
    named: dict[str, Any] = {"phone": None, "email": EMAIL} if person == EMAIL else {}
    async with driving(tmp_path, with_worker=False, at=T + 80 * DAY) as driver:
        driver.context = driver.service.context
        async with driver.context.database.writing() as connection:
            for where in sorted(chosen):
                sql, values = planted(where, random.choice(FORMS[person]))
                await connection.execute(text(sql), values)
            # One that was killed: what it brought goes, too.
            await connection.execute(
                text(
                    "INSERT INTO imports (number, kind, file, sha256, who, started_at, written, "
                    "read, new, changed, unchanged, rejected) "
                    "VALUES (9999, 'bank', '', '', '', 1, 0, 0, 0, 0, 0, 0)"
                )
            )
        await driver.service.inbox.database.writer.checkpoint()
        assert found_in(served(driver)) == chosen
        await backed_up(driver)
        assert found_in([copied(driver)]) == chosen
        erasure = await erased(driver, **named)
        left = reported(erasure)
        assert found_in(served(driver)) == left
        assert not {each for each in left if each.startswith("bank_lines.") and each in EMPTIED}
        later = copied(driver).rename(tmp_path / "earlier.backup")
        await backed_up(driver)
        assert found_in([copied(driver)]) == left
        copied(driver).unlink()
        later.rename(copied(driver))
    await put_back(driver)
    assert found_in([driver.path]) == {each for each in left if not each.startswith(ENDED)}
    assert not MARKER.search(log.getvalue().encode())


def test_the_tables_that_are_left_out_hold_nothing_of_a_customer() -> None:
    marks = {mark.personal for where, mark in columns() if where.startswith(LEFT_OUT)}
    assert marks == {"not"}


NAMES: Final = re.compile(rb"<Wanjiku (\w+)>")


async def nothing(_: Reader) -> int:
    """Read nothing, in the place of a round of the reader."""
    return 0


def of_customer(state: str, form: str) -> dict[str, Any]:
    """Return an event of a customer whose name tells what becomes of the delivery, and whose
    number or address is also in the order's reference and the event's id."""
    reference = f"{state}/{form}"
    shown = {"email": form} if form == EMAIL else {"phone": form}
    return paid(reference, reference, **{"phone": OTHER} | shown | {"name": f"<Wanjiku {state}>"})


async def arrive(driver: Driver, form: str) -> None:
    """Send what is read, what cannot be read, what is refused and what is set aside."""
    await driver.send(of_customer("read", form))
    await driver.send(json.dumps(of_customer("unreadable", form)).encode()[:-1])
    await driver.send(json.dumps(of_customer("refused", form)).encode(), [])
    for sql in (
        "CREATE TRIGGER no BEFORE INSERT ON events WHEN NEW.event_id LIKE 'aside%' "
        "BEGIN SELECT RAISE(ABORT, 'no'); END",
        "DROP TRIGGER no",
    ):
        async with driver.context.database.writing() as connection:
            await connection.exec_driver_sql(sql)
        if sql.startswith("CREATE"):
            await driver.send(of_customer("aside", form))
            await soon(lambda: driver.rows("SELECT aside FROM suspects") == [(1,)])
    await refold_until_quiet(driver.context, limit=10, progress=quiet)


def texts_of(paths: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Yield each text or blob in all tables of these databases, with its place."""
    for path in paths:
        with closing(sqlite3.connect(path)) as database:
            tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            for (table,) in tables.fetchall():
                rows = database.execute(f"SELECT * FROM {table}")
                for row in rows:
                    for (column, *_), value in zip(rows.description, row, strict=True):
                        raw = value if isinstance(value, bytes) else str(value).encode()
                        yield f"{table}.{column}", raw.decode("utf-8", "replace")


def places_with(form: str, *paths: Path) -> set[str]:
    """Return the places in which the number or address stands."""
    return {where for where, text_ in texts_of(paths) if form in text_}


ARRIVING: Final = (PHONE, "+254711-223344", "0711-223344", BARE, EMAIL)


@pytest.mark.parametrize("form", ARRIVING[:: every(4)])
async def test_what_arrived_is_reported_wherever_it_waits(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a delivery is unread, there is no report. Then the report is a search of database,
    inbox, their logs and a later backup, and of an earlier one that was put back."""
    log = io.StringIO()
    named: dict[str, Any] = {"phone": None, "email": EMAIL} if form == EMAIL else {}
    configure_logging(format="json", level="debug", stream=log)
    async with driving(tmp_path, with_worker=False) as driver:
        driver.context = driver.service.context
        inbox = driver.path.with_name("t.db.inbox")

        def names() -> set[str]:
            return {name.decode() for each in served(driver)
                    for name in NAMES.findall(each.read_bytes())}  # fmt: skip

        await arrive(driver, form)
        driver.clock.put(T + 80 * DAY)
        everybody = {"read", "unreadable", "refused", "aside", "unread"}
        with monkeypatch.context() as patched:
            patched.setattr(Reader, "_round", nothing)
            await driver.send(of_customer("unread", form))
            with pytest.raises(NotAllRead):
                await erased(driver, **named)
            await backed_up(driver)
            await note_backup(driver.context, at=driver.clock.now(), file=copied(driver))
        logs = [each.with_name(f"{each.name}-wal").read_bytes() for each in (driver.path, inbox)]
        assert {each.decode() for each in NAMES.findall(logs[0])} == everybody - {"unread"}
        assert "unread" in {each.decode() for each in NAMES.findall(logs[1])}
        assert names() == everybody
        await soon(lambda: driver.rows("SELECT 1 FROM events WHERE event_id LIKE 'unread%'"))
        await refold_until_quiet(driver.context, limit=10, progress=quiet)
        driver.clock.put(T + 160 * DAY)
        await seal_unsealed(driver.context)  # as the command does
        erasure = await erased(driver, **named)
        left = reported(erasure)
        assert {"suspects.record", "suspects.orders", "order_keys.order_key"} <= left
        assert places_with(form, driver.path, inbox) == left
        assert names() == {"aside"}
        assert [each.name for each in erasure.copies] == [copied(driver).name]
        earlier = copied(driver).rename(tmp_path / "earlier.backup")
        await seal_unsealed(driver.context)
        await backed_up(driver)
        assert places_with(form, copied(driver)) == left
        assert set(NAMES.findall(copied(driver).read_bytes())) == {b"aside"}
        copied(driver).unlink()
        earlier.rename(copied(driver))
    await put_back(driver)
    assert places_with(form, driver.path) == left
    assert set(NAMES.findall(driver.path.read_bytes())) == {b"aside"}
    assert '"order":"read/' in log.getvalue()
    assert not re.search(rf"Wanjiku|{re.escape(form)}|{form[-6:]}", log.getvalue())


NAME: Final = "Wanjiku Kamau"


async def test_a_name_in_a_reason_and_a_number_in_a_reference_are_reported_where_they_stay(
    tmp_path: Path,
) -> None:
    """The name goes from the event, and stays in what was published of it, as the report says."""
    log = io.StringIO()
    configure_logging(format="json", level="debug", stream=log)
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        driver.context = driver.service.context
        failed = of_order("ORD-5", "e5", "declined")
        failed["data"] |= {
            "customer": {"phone": PHONE, "email": EMAIL},
            "payment": {"reference": "pay-5", "reason": f"{NAME} has no funds"},
        }
        await driver.send(failed)
        await driver.send(paid(f"ORD-{PHONE}", "e1"))
        await refold_until_quiet(driver.context, limit=10, progress=quiet)
        driver.clock.put(T + 40 * DAY)
        told = await erased(driver, dry_run=True)
        erasure = await erased(driver)
        left = reported(erasure)
        # What the erasure itself notes of an order whose reference holds the number.
        assert left - reported(told) == {"audit.subject", "restrictions.thing"}
        holding = {NAME: set[str](), PHONE: set[str](), EMAIL: set[str]()}
        for where, mark in columns():
            table, _, column = where.partition(".")
            rows = (
                driver.rows(f'SELECT "{column}" FROM {table}') if is_searched(where, mark) else []
            )
            for marker, places in holding.items():
                if any(marker in str(each) for each in rows):
                    places.add(where)
        files = b"".join(path.read_bytes() for path in served(driver))
    assert holding[NAME] == {"revisions.because"}
    assert holding[NAME] | holding[PHONE] == left
    assert {each for each in holding if each.encode() in files} == {NAME, PHONE}
    # A log line names references without the number in them, and nothing else of a customer.
    logged = log.getvalue()
    assert f'"order":"ORD-•{PHONE[-3:]}"'.encode("ascii", "backslashreplace").decode() in logged
    assert not any(each in logged for each in holding)
