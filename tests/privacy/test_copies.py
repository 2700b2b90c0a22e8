"""An erasure's report names the copies that were taken before, each by itself."""

import os
from pathlib import Path
from typing import Any

from app.access.operators import note_in_trail, owner
from app.database.statements import run
from app.orders.refold import refold_until_quiet
from app.privacy.copies import note_backup
from app.privacy.export import ExportRequest, export
from app.receiving.inbox_store import LAST_BACKUP, put_counter
from reconcile.instants import DAY, HOUR, SECOND, Instant, format_instant
from tests.api.driving import Driver, driving
from tests.contexts import with_settings
from tests.evidence.conftest import build
from tests.evidence.world import LATER
from tests.privacy.test_erase import OTHER, PHONE, erased, paid, quiet
from tests.reconcile.build import T


def listed(erasure: Any) -> list[tuple[str, str]]:
    return [(each["what"], each["name"]) for each in erasure.document()["copies"]]


async def two_who_bought(driver: Driver) -> None:
    driver.context = driver.service.context
    await driver.send(paid("ORD-1", "e1"))
    await driver.send(paid("ORD-2", "e2", OTHER))
    await refold_until_quiet(driver.context, limit=10, progress=quiet)


async def test_copies_of_what_is_erased_are_named_and_no_others(tmp_path: Path) -> None:
    """Not of another order or person, nor a backup from before the first delivery."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await note_backup(driver.service.context, at=Instant(T - DAY), file=Path("too-early.db"))
        await two_who_bought(driver)
        context = driver.context
        await note_backup(
            context, at=Instant(T + HOUR), file=Path("backups/nightly-20261120T110000Z.db")
        )
        await note_backup(context, at=Instant(T + 2 * HOUR), file=Path(f"of +{PHONE}.db"))
        for phone in (PHONE, OTHER):
            await export(context, ExportRequest(phone=f"+{phone}", identity="seen", by="Ann"))
        async with context.database.writing() as connection:
            said: dict[str, Any] = {"action": "data_exported", "subject": "+254 ••• ••• •44"}
            facts = {"pseudonym": "of somebody else"}
            await note_in_trail(connection, owner(), **said, at=T, facts=facts)
        lost = driver.path.with_name(f"{driver.path.name}.inbox.lost-1-wal")
        lost.write_bytes(b"bodies")
        os.utime(lost, (T // SECOND + 30, T // SECOND + 30))
        driver.clock.put(LATER + HOUR)
        await build(driver, "ORD-1")
        await build(driver, "ORD-2")
        told = await erased(driver, dry_run=True)
        erasure = await erased(driver)
        kept = driver.rows("SELECT facts FROM audit WHERE action = 'backed_up'")
    assert listed(erasure) == listed(told)
    assert sorted(listed(erasure)) == [
        ("a backup", "nightly-20261120T110000Z.db"),
        ("a backup", "of +254 ••• ••• •44.db"),
        ("a copy of a person's data", "+254 ••• ••• •44"),
        ("a part of a lost inbox", "t.db.inbox.lost-1-wal"),
        ("an evidence bundle", "ORD-1"),
    ]
    assert PHONE not in str(kept)
    assert all("its retention period is not known" in each.sentence for each in erasure.copies)


async def test_a_backup_is_named_until_its_time_is_over(tmp_path: Path) -> None:
    """By the setting; a dump of another tool, which only the counter knows, is named, too."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await two_who_bought(driver)
        for day in (1, 20):
            await note_backup(driver.context, at=Instant(T + day * DAY), file=Path(f"{day}.db"))
        async with driver.context.database.writing() as connection:
            await run(connection, put_counter, LAST_BACKUP, Instant(T + 30 * DAY))
            said: dict[str, Any] = {"action": "restored", "subject": "database"}
            files = {"file": "1.db", "kept": "t.old"}
            await note_in_trail(connection, owner(), **said, at=Instant(T + 2 * DAY), facts=files)
        driver.clock.put(T + 40 * DAY)
        driver.context = with_settings(driver.context, backups_kept_days=30)
        erasure = await erased(driver, dry_run=True)
    assert listed(erasure) == [
        ("the database before a restore", "t.old"),
        ("a backup", "20.db"),
        ("a backup", "by another tool, such as pg_dump"),
    ]
    assert f"kept until {format_instant(Instant(T + 50 * DAY))}" in erasure.copies[1].sentence
