"""Contract of every database for closed periods, and for digests of what was known."""

import json
from dataclasses import replace

import pytest
from sqlalchemy.exc import DBAPIError, IntegrityError

from app.access.operator_store import AuditEntry, add_entry
from app.core.errors import StoreUnavailable
from app.finance.evidence_digest_store import PARTS, evidence_digests
from app.finance.period_store import (
    PART_BYTES,
    PrintParts,
    add_closing,
    add_reopening,
    all_closings,
    closed_periods,
    closing_of_period,
    print_of,
    reopening_text,
)
from app.orders.record_store import add_records
from app.orders.retention_store import prune
from app.receiving.inbox import Inbox
from reconcile.instants import DAY, EARLIEST, TICK, Instant
from reconcile.ledger.records import Record
from reconcile.money import Money
from reconcile.periods import Month
from reconcile.reporting.closing import (
    Closing,
    EvidenceDigest,
    Figure,
    Print,
    Reopening,
    first_difference,
    reopening_of,
)
from tests.database.builders import arrival, change, commit, fetch, keep, rows, said, tamper
from tests.reconcile.build import T, seconds

FIGURE = Figure(table="control", currency="KES", line="succeeded", what="orders", count=2, sum=9)
OCTOBER = Closing(
    month=Month(year=2026, number=10),
    as_of=T,
    closed_at=T + TICK,
    by="Ann",
    role="finance",
    margin_days=10,
    known_after=EARLIEST,
    before=None,
    policy={"grace": 5},
    program={"version": "1"},
    checkpoint=None,
    evidence=(EvidenceDigest(part="events", day="2026-10-01", count=1, digest="sha256:00"),),
    figures=(FIGURE,),
    adjusted=(),
    report={"from": "…"},
    prints=(Print(format="json", sha256="00", size=2),),
)


async def digests(
    inbox: Inbox, *, after: Instant = EARLIEST, until: Instant = T + DAY
) -> tuple[EvidenceDigest, ...]:
    return await fetch(
        inbox, evidence_digests, after=after, until=until, progress=lambda count: None
    )


async def evidence(inbox: Inbox) -> None:
    """Keep a delivery and its redelivery on one day, one on the next, a record and an audit
    entry."""
    paid = said("e1", "succeeded", order="ORD-1", money=Money(minor=1, currency="KES"))
    await keep(inbox, arrival(paid))
    await keep(inbox, arrival(paid, at=5))
    await keep(inbox, arrival(said("e2", order="ORD-2"), received_at=T + DAY))
    placed = Record(
        record_id="rec_1", recorded_at=T, kind="order_placed", order="ORD-1", at=T, money=paid.money
    )
    async with inbox.database.writing() as connection:
        await add_records(connection, [placed])
        await add_entry(
            connection,
            AuditEntry(at=seconds(1), who="Ann", role="finance", action="a", subject="s"),
        )


class ClosingContract:
    """Closings and digests of evidence. A subclass gives `url`."""

    @pytest.mark.alike
    async def test_a_closing_comes_back_as_it_was_written(self, inbox: Inbox) -> None:
        await commit(inbox, add_closing, OCTOBER, prints={"json": PrintParts(b"{}")})
        async with inbox.database.reading() as connection:
            assert await closing_of_period(connection, "2026-10", version=1) == OCTOBER
            assert await closing_of_period(connection, "2026-11", version=1) is None
            assert [(c.period, c.digest) for c in await closed_periods(connection)] == [
                ("2026-10", OCTOBER.digest)
            ]
            assert await print_of(connection, "2026-10", "json", version=1) == b"{}"
            assert await print_of(connection, "2026-10", "pdf", version=1) is None

    @pytest.mark.alike
    async def test_the_database_refuses_a_second_closing_of_a_period(self, inbox: Inbox) -> None:
        await commit(inbox, add_closing, OCTOBER, prints={})
        with pytest.raises((IntegrityError, StoreUnavailable)):
            await commit(inbox, add_closing, OCTOBER, prints={})

    @pytest.mark.alike
    async def test_a_reopened_closing_stays_and_stands_no_more(self, inbox: Inbox) -> None:
        reopening = Reopening(
            period="2026-10", version=1, at=T + DAY, by="Ann", second="Ben", reason="a refund",
            before=OCTOBER.digest,
        )  # fmt: skip
        again = replace(OCTOBER, version=2, closed_at=T + 2 * DAY, before=reopening.digest)
        await commit(inbox, add_closing, OCTOBER, prints={})
        await commit(inbox, add_reopening, reopening)
        with pytest.raises((IntegrityError, StoreUnavailable)):
            await commit(inbox, add_reopening, reopening)
        assert await fetch(inbox, closed_periods) == []
        await commit(inbox, add_closing, again, prints={})
        made = await fetch(inbox, all_closings)
        assert [(each.version, each.reopening) for each in made] == [
            (1, reopening.digest),
            (2, None),
        ]
        assert [each.version for each in await fetch(inbox, closed_periods)] == [2]
        for at, versions in ((T, []), (T + TICK, [1]), (T + DAY, []), (T + 2 * DAY, [2])):
            standing = await fetch(inbox, closed_periods, as_of=Instant(at))
            assert [each.version for each in standing] == versions
        text = await fetch(inbox, reopening_text, "2026-10", version=1)
        assert reopening_of(json.loads(text or "")) == reopening

    @pytest.mark.alike
    async def test_a_long_print_is_kept_in_parts(self, inbox: Inbox) -> None:
        made = PrintParts()
        for _ in range(3):
            made.write(b"x" * (PART_BYTES - 1) + b"\n")
        assert len(made.parts()) == 3
        await commit(inbox, add_closing, OCTOBER, prints={"journal.csv": made})
        kept = await fetch(inbox, print_of, "2026-10", "journal.csv", version=1)
        assert (len(kept or b""), made.described("x").size) == (3 * PART_BYTES, 3 * PART_BYTES)

    @pytest.mark.parametrize("table", ["closings", "closing_prints", "reopenings"])
    @pytest.mark.parametrize("sql", ["UPDATE {} SET period = '2026-09'", "DELETE FROM {}"])
    async def test_a_closing_is_append_only(self, inbox: Inbox, table: str, sql: str) -> None:
        await commit(inbox, add_closing, OCTOBER, prints={"json": PrintParts(b"{}")})
        reopening = Reopening(
            period="2026-10", version=1, at=T, by="Ann", second="Ben", reason="so", before="x"
        )
        await commit(inbox, add_reopening, reopening)
        with pytest.raises(DBAPIError, match="are only added"):
            await change(inbox, sql.format(table))

    @pytest.mark.alike
    async def test_digests_are_by_kind_and_day_of_what_became_known(self, inbox: Inbox) -> None:
        """A stretch begins after its first instant and ends with its last."""
        await evidence(inbox)
        found = {(each.part, each.day): each.count for each in await digests(inbox)}
        assert found == {
            ("deliveries", "2026-11-20"): 2,
            ("deliveries", "2026-11-21"): 1,
            ("events", "2026-11-20"): 1,
            ("events", "2026-11-21"): 1,
            ("records", "2026-11-20"): 1,
            ("deeds", "2026-11-20"): 1,
        }
        first, rest = await digests(inbox, until=T), await digests(inbox, after=T)
        assert [each.count for each in first] == [1, 1, 1]
        assert sum(each.count for each in rest) == 4

    @pytest.mark.alike
    async def test_a_pruned_body_changes_no_digest(self, inbox: Inbox) -> None:
        await evidence(inbox)
        before = await digests(inbox)
        ids = [row[0] for row in await rows(inbox, "SELECT id FROM deliveries")]
        await commit(inbox, prune, ids, now=T + DAY)
        assert await rows(inbox, "SELECT 1 FROM deliveries WHERE body IS NOT NULL") == []
        assert await digests(inbox) == before

    @pytest.mark.parametrize(
        ("change", "expected"),
        [
            (
                "UPDATE events SET amount = 2 WHERE amount = 1",
                "events of 2026-11-20: 1 as at closing, but different ones",
            ),
            (
                "DELETE FROM deliveries WHERE verdict = 'duplicate'",
                "deliveries of 2026-11-20: 2 at closing, 1 now",
            ),
            (
                "UPDATE records SET at = at + 1",
                "records of 2026-11-20: 1 as at closing, but different ones",
            ),
            (
                "UPDATE audit SET who = 'Ben'",
                "deeds of 2026-11-20: 1 as at closing, but different ones",
            ),
        ],
    )
    async def test_the_first_changed_evidence_is_named_by_kind_and_day(
        self, inbox: Inbox, change: str, expected: str
    ) -> None:
        await evidence(inbox)
        before = await digests(inbox)
        await tamper(inbox, change.split()[1 if change.startswith("UPDATE") else 2], change)
        assert first_difference(before, await digests(inbox)) == expected

    @pytest.mark.alike
    def test_no_two_kinds_of_evidence_share_a_name(self) -> None:
        assert len({part.name for part in PARTS}) == len(PARTS)
