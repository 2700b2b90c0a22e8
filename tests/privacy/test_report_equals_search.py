"""What an erasure reports of what stays is what a full-text search of the raw bytes finds: of the
database, its log, the inbox, later backups and the lines that were logged; and again after an
earlier backup was put back.

Each planted marker names its place and its form, so that the bytes tell of themselves where they
stand: `of 0711 223344 in deliveries.body`.
"""

import io
import re
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from sqlalchemy import text

from app.core.logs import configure_logging
from app.orders.refold import refold_until_quiet
from app.privacy.erase_finding import Erasure
from app.privacy.places import columns, is_emptied
from reconcile.instants import DAY
from tests.api.driving import Driver, driving, of_order
from tests.database.contract_personal import is_searched, planted_rows
from tests.privacy.test_erase import PHONE, SPELLED, erased, paid, quiet
from tests.privacy.test_erase_forms import backed_up, copied, put_back
from tests.reconcile.build import T
from tests.searching import examples

LOCAL, BARE, EMAIL = "0711 223344", "711223344", "jane.doe@example.com"
FORMS: Final = {PHONE: (PHONE, SPELLED, LOCAL, BARE), EMAIL: (EMAIL, EMAIL.title())}

_PLACES = sorted((re.escape(each.where) for each in columns()), key=len, reverse=True)
_FORMS = [re.escape(each) for forms in FORMS.values() for each in forms]

MARKER: Final = re.compile(
    rf"of ({'|'.join(_FORMS)}) in ({'|'.join(_PLACES)})".encode(), re.IGNORECASE
)

FRAGILE: Final = re.compile(
    "meta|operators|erasures|pending_erasures|unsealed|log_.*|order_trees|sessions|invitations"
)
"""Tables whose rows an erasure or a restore reads as its own, or ends: a planted row is none of
theirs."""


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
@pytest.mark.parametrize("seed", range(examples(6)))
async def test_the_report_of_what_stays_is_a_full_text_search(
    tmp_path: Path, person: str, seed: int
) -> None:
    """Markers in any form, in a random part of all marked columns."""
    random, log = Random(f"{person} {seed}"), io.StringIO()
    configure_logging(format="json", level="debug", stream=log)
    chosen = {
        where
        for where, mark in columns()
        if is_searched(where, mark)
        and FRAGILE.fullmatch(where.partition(".")[0]) is None
        and random.random() < 0.7
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
    assert found_in([driver.path]) == left
    assert not MARKER.search(log.getvalue().encode())


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
