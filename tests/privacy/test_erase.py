"""Erasure: erased data is gone as bytes, and what the money rests on stays as it was."""

import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.access.operator_store import audit_entries
from app.access.operators import SERVICE, Proven, asking_by_token, register_operator
from app.access.proposal import Proposal
from app.access.proposals import Agree, Agreed, Proposals
from app.config.load import load_settings
from app.core.errors import NotFoundError, UsageError
from app.core.logs import configure_logging
from app.database.statements import run
from app.evidence.attachments import AttachRequest, attach
from app.evidence.seal import anything_unsealed, open_signer, seal_all
from app.evidence.verify_log import verify_log
from app.finance.break_acts import breaks_of
from app.finance.imports import ImportRequest, import_bank, import_book, import_statement
from app.finance.reconcile_period import RunRequest, reconcile_period
from app.orders.pending_session_store import PendingSession, forget, note_pending
from app.orders.prove import prove_orders
from app.orders.read_orders import order_document
from app.orders.rebuild import refold_all
from app.orders.refold import refold_until_quiet
from app.orders.reindex import reindex
from app.orders.retention_store import prune
from app.privacy import erase as erase_module
from app.privacy.backup import back_up
from app.privacy.check import check_database
from app.privacy.erase import (
    ErasureRequest,
    erase,
    erasure_kinds,
    propose_erasure,
    traces_left,
)
from app.privacy.erase_finding import Erasure, ErasureFinder
from app.privacy.erase_rules import KeptData
from app.privacy.erase_store import rows_that_hold
from app.privacy.fit_journal import fitting_journal, is_pending
from app.privacy.pending_erasures import PendingErasures
from app.privacy.replay_erasures import ErasureReplay
from reconcile.instants import DAY, Instant
from tests.api.driving import Driver, driving, environ, event, of_order, signed
from tests.contexts import with_settings
from tests.copied import copy_of
from tests.finance.deciding import decide
from tests.receiving.test_several_events import PROFILE, item, send, service
from tests.reconcile.build import T

PHONE = "254711223344"
OTHER = "254799888777"
SPELLED = "+254 711-223 344"
EMAIL = "jane.doe@example.com"


def quiet(count: int) -> None:
    """Progress that nobody looks at."""


def paid(reference: str, event_id: str, phone: str = PHONE, **more: Any) -> dict[str, Any]:
    """Make a paid order's event, with its customer."""
    found = of_order(reference, event_id)
    found["data"]["customer"] = {"phone": phone, "name": "Wanjiku Kamau", **more}
    return found


async def plant(driver: Driver) -> None:
    """Plant a number in every place that a customer's number can reach."""
    body = json.dumps(paid("ORD-1", "e1")).encode()
    await driver.send(body, [*signed(body, event_id="e1"), (b"x-customer", SPELLED.encode())])
    await driver.send(body, [*signed(body, event_id="e1"), (b"x-customer", SPELLED.encode())])
    await driver.send(paid("ORD-2", "e2", OTHER))
    await driver.send(b'{"unreadable": "%s"' % PHONE.encode())
    await driver.send(json.dumps(paid("ORD-3", "e3")).encode(), [])  # refused: no signature
    await driver.send(paid("ORD-4", "e4", note=f"his wife's number is {SPELLED}"))
    nameless = event("e5", order=None, session=None, payment={"reference": "pay_x"})
    nameless["data"]["customer"] = {"phone": int(PHONE)}
    await driver.send(nameless)
    await refold_until_quiet(driver.context, limit=100, progress=quiet)
    book = driver.path.parent / "book.csv"
    book.write_text(
        f"reference,amount,currency,phone\nORD-1,1500,KES,+{PHONE}\nORD-77,5,KES,{PHONE}\n"
    )
    imported = await import_book(driver.context, ImportRequest(path=book))
    assert imported.new == 2
    book.unlink()
    bank = driver.path.parent / "bank.csv"
    bank.write_text(
        "booked_at,amount,currency,counterparty,text,entry_reference\n"
        f"2026-11-01,1500,KES,Wanjiku 0711 223344,PO-100200 of {SPELLED},{PHONE}\n"
        "2026-11-02,7,KES,PROVIDER,PO-100201,\n"
    )
    imported = await import_bank(driver.context, ImportRequest(path=bank, account="main"))
    assert imported.new == 2
    bank.unlink()
    till = driver.path.parent / "till.csv"
    till.write_text(
        "payment_reference,gross,currency,type,wallet,recipient\n"
        f"UJ1,-5.00,KES,disbursement,Utility,{PHONE} - WANJIKU\n"
    )
    imported = await import_statement(driver.context, ImportRequest(path=till), source="shop")
    assert imported.new == 1
    till.unlink()
    request = json.dumps({"customer": {"phone": PHONE}}).encode()
    for number in range(30):
        async with driver.context.database.writing() as connection:
            row = PendingSession(key=f"key_{number}", order="ORD-1", request=request, due_at=T)
            await run(connection, note_pending, row)
            if number % 2:
                await run(connection, forget, f"key_{number}")


async def _planted(folder: Path) -> None:
    async with driving(folder, with_worker=False) as driven:
        driven.context = driven.service.context
        await plant(driven)


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[Driver]:
    """Run a service with everything planted, a month ago."""
    copy_of(_planted, tmp_path)
    async with driving(tmp_path, with_worker=False, at=T + 40 * DAY) as driven:
        driven.context = driven.service.context
        yield driven


async def erased(
    driver: Driver, *, dry_run: bool = False, minimum: int = 0, country: str = "", **words: Any
) -> Erasure:
    """Erase as the command does."""
    context = with_settings(driver.context, retention_minimum_days=minimum, phone_country=country)
    asked = ErasureRequest(**{"phone": PHONE, "reason": "asked by letter", "by": None, **words})
    return await erase(context, asked, dry_run=dry_run, progress=quiet)


@pytest.mark.parametrize("reason", ["254799123456 asked", f"M-PESA of {OTHER}"])
async def test_a_reason_has_no_number_behind_the_default_country_code(
    driver: Driver, reason: str
) -> None:
    with pytest.raises(UsageError, match="remove the phone number"):
        await erased(driver, country="254", reason=reason)
    assert driver.rows("SELECT count(*) FROM audit WHERE action = 'erased'") == [(0,)]


async def ledgers(driver: Driver) -> list[dict[str, Any]]:
    """Return every ledger, without members that may differ."""
    found = []
    for order in ("ORD-1", "ORD-2", "ORD-4"):
        document = await order_document(driver.context, order, as_of=T + DAY)
        found.append({name: each for name, each in document.items() if name != "pruned"})
    return found


def held(folder: Path, *sought: str) -> set[str]:
    """Return the files under a folder that hold one of these texts."""
    return {
        path.name
        for path in folder.rglob("*")
        if path.is_file() and any(each.encode() in path.read_bytes() for each in sought)
    }


async def test_the_number_is_nowhere_afterwards(tmp_path: Path) -> None:
    """Searched for as bytes in every file, in what was logged, and in a backup made afterwards."""
    log = io.StringIO()
    configure_logging(format="json", level="debug", stream=log)
    async with driving(tmp_path, with_worker=False) as driver:
        driver.context = driver.service.context
        await plant(driver)
        assert held(tmp_path, PHONE)
        driver.clock.put(T + 40 * DAY)
        erasure = await erased(driver)
        assert (erasure.kept, erasure.tidied) == ([], True)
        assert held(tmp_path, PHONE, SPELLED, "Wanjiku") == {"t.db"}  # the name is of ORD-2, too
        assert held(tmp_path, PHONE, SPELLED) == set()
        settings = load_settings(environ(tmp_path))
        await back_up(
            settings,
            tmp_path / "copy.db",
            replace=False,
            progress=lambda done, total: None,
        )
        metrics = (await driver.client.get("/metrics")).text
        assert PHONE not in metrics
    assert traces_left(tmp_path / "t.db", erasure) == []
    assert held(tmp_path, PHONE, SPELLED) == set()
    for number, name in enumerate(("t.db", "t.db-wal")):  # each is looked through, to its end
        with (tmp_path / name).open("ab") as file:
            file.write(b"x" * (2 * 1024 * 1024 - number) + PHONE.encode())
        assert (tmp_path / name) in traces_left(tmp_path / "t.db", erasure)
    assert '"delivery"' in log.getvalue()
    assert PHONE not in log.getvalue()
    assert SPELLED not in log.getvalue()


async def test_a_number_is_found_wherever_it_stands_in_an_event(driver: Driver) -> None:
    """Also where no digest leads to it, and written without its zero."""
    await driver.send(paid("ORD-6", "e6", OTHER, note=f"his wife's number is {SPELLED}"))
    await driver.send(paid("ORD-7", "e7", OTHER, note=f"or {PHONE[3:]}"))
    driver.clock.put(T + 80 * DAY)
    await refold_until_quiet(driver.context, limit=100, progress=quiet)
    finding = ErasureFinder(driver.context, quiet)
    async with driver.context.database.reading() as connection:
        found = await finding.of_identifier(connection, PHONE)
    assert [each.order for each in found.orders] == ["ORD-1", "ORD-4", "ORD-6", "ORD-7"]


async def test_ledgers_stay_as_they_were_and_everything_still_fits(driver: Driver) -> None:
    before = await ledgers(driver)
    await erased(driver)
    assert await ledgers(driver) == before
    await reindex(driver.context, progress=quiet)
    await refold_all(driver.context, progress=quiet)
    assert await ledgers(driver) == before
    report = await check_database(driver.context, deep=1, progress=quiet)
    assert report.problems == []
    proof = await prove_orders(driver.context, None, shuffles=5, seed=1, progress=quiet)
    assert (proof.orders >= 3, list(proof.counter_examples)) == (True, [])


async def test_the_sealed_log_still_verifies(driver: Driver) -> None:
    signer = await open_signer(driver.context)
    await seal_all(driver.context, signer)
    await erased(driver)
    await seal_all(driver.context, signer)
    verified = await verify_log(driver.context, progress=lambda done, total: None)
    assert (verified.leaves > 5, verified.problems) == (True, [])


async def test_a_redelivery_is_still_a_duplicate_and_its_body_is_not_stored(driver: Driver) -> None:
    await erased(driver)
    driver.clock.put(T + 41 * DAY)
    again = await driver.send(paid("ORD-1", "e1"))
    assert again.json()["verdict"] == "duplicate"
    # It was in the inbox until it was read, and is in the log until that is emptied.
    assert held(driver.path.parent, PHONE) <= {"t.db-wal", "t.db.inbox-wal", "t.db.inbox"}
    assert await driver.service.inbox.database.writer.checkpoint()
    assert await driver.service.inbox.tidy()
    assert held(driver.path.parent, PHONE) == set()
    assert driver.rows("SELECT count(*) FROM phones WHERE thing = 'ORD-1'") == [(0,)]


async def test_other_customers_lose_nothing(driver: Driver) -> None:
    kept = "SELECT thing FROM phones WHERE kind = 'recipient'"
    assert driver.rows(kept) == [("stm:UJ1",)]
    await erased(driver)
    assert OTHER.encode() in driver.rows("SELECT body FROM deliveries WHERE event_id='e2'")[0][0]
    assert driver.rows("SELECT DISTINCT thing FROM phones") == [("ORD-2",)]


async def test_a_number_is_understood_in_the_national_way(driver: Driver) -> None:
    """With the calling code of the settings, as in the search; without it, it is no whole one."""
    told = await erased(driver, dry_run=True, phone="0711 223 344", country="254")
    assert told.identifiers == [PHONE]
    with pytest.raises(UsageError, match="with its country code"):
        await erased(driver, dry_run=True, phone="0711 223 344")


async def test_what_would_go_is_only_told_by_a_dry_run(driver: Driver) -> None:
    told = await erased(driver, dry_run=True)
    assert [each.order for each in told.orders] == ["ORD-1", "ORD-4"]
    assert (len(told.deliveries), len(told.rejections)) == (2, 1)
    assert driver.rows("SELECT count(*) FROM deliveries WHERE pruned_at IS NOT NULL") == [(0,)]
    assert driver.rows("SELECT count(*) FROM audit WHERE action = 'erased'") == [(0,)]
    assert PHONE not in str(told.document()) + repr(told)


async def test_who_erased_what_and_why_is_in_the_trail(driver: Driver) -> None:
    await erased(driver, by="Ann")
    async with driver.context.database.reading() as connection:
        found = await audit_entries(connection, limit=10, action="erased")
    assert [(deed.subject, deed.who, deed.reason) for deed in found] == [
        ("+254 ••• ••• •44", "Ann", "asked by letter"),
        ("ORD-1", "Ann", "asked by letter"),
        ("ORD-4", "Ann", "asked by letter"),
    ]


async def test_an_operator_proposes_an_erasure_and_another_approves_it(driver: Driver) -> None:
    """Nothing is touched before, in rows or in the journal; nor may a
    proposer erase alone; approved, it is done in both names, after what waits was sealed."""
    context = driver.context
    assert await anything_unsealed(context)
    for name in ("Ann", "Ben"):
        await register_operator(context, name=name, role="admin", by="Ann")

    async def proposed(**words: Any) -> Proposal | None:
        asked = ErasureRequest(**{"reason": "asked by letter", "by": Proven("Ann"), **words})
        return await propose_erasure(context, asked)

    assert await proposed(order="ORD-4", by="Ann") is None, "the owner of the machine erases"
    with pytest.raises(UsageError, match="needs two operators"):
        await erased(driver, phone=None, order="ORD-4", by=Proven("Ann"))
    with pytest.raises(UsageError, match="remove the phone number"):
        await proposed(order="ORD-4", reason=f"it is +{PHONE}")
    letter = AttachRequest(
        about="order", subject="ORD-2", name="a.txt", content=b"x", kind="other",
        note=f"of {SPELLED}", by="Ann",
    )  # fmt: skip
    await attach(context, letter)
    journal = (driver.path.parent / "t.erasures").read_bytes()
    proposal = await proposed(order="ORD-4")
    assert proposal is not None
    assert "of the order ORD-4: bodies and headers of 1 delivery of 1 order," in proposal.sentence
    assert "1 file of other orders (ORD-2) with" in proposal.sentence
    assert PHONE not in repr(proposal)
    assert driver.rows("SELECT count(*) FROM deliveries WHERE pruned_at IS NOT NULL") == [(0,)]
    assert (driver.path.parent / "t.erasures").read_bytes() == journal
    with asking_by_token(Proven("Ben")):
        kinds = erasure_kinds(context).values()
        await Proposals(context, kinds).approve(proposal.id, by=None, reason="I saw it")
    assert driver.rows("SELECT count(*) FROM log_leaves WHERE subject LIKE 'dlv_%'")[0][0] > 3
    assert driver.rows("SELECT body FROM deliveries WHERE event_id='e4'") == [(None,)]
    assert driver.rows("SELECT count(*) FROM attachments WHERE gone_at > 0") == [(1,)]
    async with context.database.reading() as connection:
        found = await audit_entries(connection, limit=10, action="erased")
    assert [(deed.who, deed.facts.get("second")) for deed in found][:1] == [("Ann", "Ben")]


@pytest.mark.parametrize(
    ("named", "typed"), [({"phone": PHONE}, SPELLED), ({"email": EMAIL}, f" {EMAIL.upper()}")]
)
async def test_an_erasure_of_a_person_is_approved_by_who_types_the_number_again(
    tmp_path: Path, named: dict[str, Any], typed: str
) -> None:
    """The proposal and the trail hold a pseudonym alone, before and after; whoever types another
    number approves nothing."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        driver.context = context = driver.service.context
        await driver.send(paid("ORD-1", "e1", email=EMAIL))
        await driver.send(paid("ORD-2", "e2", OTHER))
        await refold_until_quiet(context, limit=10, progress=quiet)
        driver.clock.put(T + 40 * DAY)
        for name in ("Ann", "Ben"):
            await register_operator(context, name=name, role="admin", by="Ann")
        asked = ErasureRequest(**named, reason="asked by letter", by=Proven("Ann"))
        proposal = await propose_erasure(context, asked)
        assert proposal is not None
        with pytest.raises(UsageError, match="already made the same proposal"):
            await propose_erasure(context, asked)
        proposals = Proposals(context, erasure_kinds(context).values())
        with asking_by_token(Proven("Ben")):
            for wrong in (f"+{OTHER}", "john@example.com"):
                with pytest.raises(UsageError, match="not what Ann proposed to erase"):
                    await proposals.approve(proposal.id, by=None, reason="letter", typed=wrong)
            with pytest.raises(UsageError, match="give it with --typed"):
                await proposals.approve(proposal.id, by=None, reason="letter")
            assert driver.rows("SELECT 1 FROM proposal_decisions") == []
            assert driver.rows("SELECT count(body) FROM deliveries") == [(2,)]
            await proposals.approve(proposal.id, by=None, reason="letter", typed=typed)
        assert driver.rows("SELECT event_id FROM deliveries WHERE body > ''") == [("e2",)]
        told = str([driver.rows(f"SELECT * FROM {each}") for each in ("proposals", "audit")])
        assert not any(each in told for each in (PHONE, SPELLED, EMAIL))
        unfinished = proposals.kinds["erase_person"].unfinished
        assert unfinished is not None
        assert await unfinished(proposal) is None


async def test_one_order_is_erased_by_its_reference(driver: Driver) -> None:
    erasure = await erased(driver, phone=None, order="ORD-4")
    assert [each.order for each in erasure.orders] == ["ORD-4"]
    assert driver.rows("SELECT body FROM deliveries WHERE event_id='e4'") == [(None,)]
    assert driver.rows("SELECT count(*) FROM deliveries WHERE pruned_at IS NOT NULL") == [(1,)]


async def test_an_order_of_which_something_new_arrived_meanwhile_is_left_out(
    driver: Driver,
) -> None:
    """It stays with all that it has, in rows, report and journal; the others are erased."""

    async def arrives(connection: AsyncConnection) -> Agreed:
        sql = "UPDATE order_due SET generation = generation + 1 WHERE order_key = 'ORD-1'"
        await connection.execute(text(sql))
        return Agreed(who=SERVICE, second="Ben", proposal="p1")

    planned = await erased(driver, dry_run=True)
    asked = ErasureRequest(phone=PHONE, reason="asked by letter", by=None)
    agree = Agree(second="Ben", store=arrives)
    told: list[int] = []
    erasure = await erase(driver.context, asked, dry_run=False, agree=agree, progress=told.append)
    ((lines,),) = driver.rows("SELECT count(*) - 1 FROM erasures")
    assert told[-lines:] == [1] * lines
    assert [(each.what, each.why) for each in erasure.kept] == [("ORD-1", "changed")]
    assert [each.order for each in erasure.orders] == ["ORD-4"]
    bodies = "SELECT event_id, body IS NULL FROM deliveries WHERE event_id IN ('e1', 'e4')"
    assert sorted(driver.rows(bodies)) == [("e1", 0), ("e1", 1), ("e4", 1)]
    assert driver.rows("SELECT count(*) FROM phones WHERE thing = 'ORD-1'") == [(2,)]
    assert driver.rows("SELECT count(*) FROM unanswered") == [(15,)]
    before, after = (
        {each.where: (each.went, each.stays) for each in one.places()} for one in (planned, erasure)
    )
    assert (before["deliveries.body"], after["deliveries.body"]) == ((5, 0), (3, 2))
    assert (before["unanswered.request"], after["unanswered.request"]) == ((15, 0), (0, 15))
    (facts,) = driver.rows("SELECT facts FROM audit WHERE subject = '+254 ••• ••• •44'")
    said = json.loads(facts[0])
    assert (said["orders"], said["kept"], said["second"]) == (1, 1, "Ben")


async def test_asked_again_there_is_nothing_left(driver: Driver) -> None:
    await erased(driver)
    with pytest.raises(NotFoundError):
        await erased(driver)


async def test_an_order_that_was_erased_is_not_erased_again(driver: Driver) -> None:
    """The trail tells of what was done, and a second time nothing is."""
    await erased(driver, phone=None, order="ORD-1")
    with pytest.raises(NotFoundError, match="nothing is stored about ORD-1"):
        await erased(driver, phone=None, order="ORD-1")
    assert driver.rows("SELECT count(*) FROM audit WHERE subject = 'ORD-1'") == [(1,)]


async def test_what_an_erasure_left_that_was_cut_short_goes_with_the_next(driver: Driver) -> None:
    """Its bodies went first: digests and requests are left, and are found by the order alone."""
    ids = [row[0] for row in driver.rows("SELECT id FROM deliveries WHERE event_id='e1'")]
    async with driver.context.database.writing() as connection:
        await prune(connection, ids, now=T + 40 * DAY)
    erasure = await erased(driver, phone=None, order="ORD-1")
    assert (erasure.counts()["orders"], erasure.counts()["deliveries"]) == (1, 0)
    assert driver.rows("SELECT count(*) FROM phones WHERE thing='ORD-1'") == [(0,)]
    assert driver.rows("SELECT count(*) FROM unanswered WHERE order_key='ORD-1'") == [(0,)]


async def test_what_was_begun_is_carried_out_though_nothing_is_known_of_who_is_asked_for(
    driver: Driver,
) -> None:
    """An erasure stands in the journal and was cut short before the database; whoever asks next
    finishes it, whatever they ask for. Who only looks changes nothing."""
    journal = await fitting_journal(driver.context)
    ids = [row[0] for row in driver.rows("SELECT id FROM deliveries WHERE event_id = 'e1'")]
    of_order = journal.key.digest("orders", "ORD-1")
    journal.append({"deliveries": ids, "orders": [of_order]}, at=driver.clock.now())
    bodies = "SELECT count(*) FROM deliveries WHERE event_id = 'e1' AND body IS NOT NULL"
    for dry_run, left in ((True, 1), (False, 0)):
        with pytest.raises(NotFoundError):
            await erased(driver, phone="254700000001", dry_run=dry_run)
        assert driver.rows(bodies) == [(left,)]
        assert driver.rows("SELECT count(*) FROM erasures") == [(0 if left else 3,)]
        assert await pending(driver) == [bool(left), bool(left), False]
    journal.append({"wholes": ids}, at=Instant(driver.clock.now() + 1))
    assert await pending(driver) == [True, False, False]


async def pending(driver: Driver) -> list[bool]:
    """Return whether an erasure is unfinished: any, one of ORD-1, one of ORD-2."""
    return [await is_pending(driver.context, order=each) for each in (None, "ORD-1", "ORD-2")]


@pytest.mark.parametrize(
    "words",
    [{"phone": "711223344"}, {"phone": "hello"}, {"reason": ""}, {"reason": f"call {SPELLED}"}],
)
async def test_words_that_do_not_fit_erase_nothing(driver: Driver, words: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        await erased(driver, **words)
    assert driver.rows("SELECT count(*) FROM deliveries WHERE pruned_at IS NOT NULL") == [(0,)]


KEPT = {
    "open": (of_order("ORD-9", "e9", "pending"), 0, "its payment is not over (pending)"),
    "disputed": (of_order("ORD-9", "e9", "disputed"), 40, "its payment is disputed"),
    "to settle": (
        event("e9", order={"reference": "ORD-9", "amount": 2000}),
        40,
        "a person must settle it first (amount_mismatch)",
    ),
    "the minimum": (
        of_order("ORD-9", "e9"),
        40,
        "TALLYHOOK_RETENTION_MINIMUM_DAYS keeps it until ",
    ),
}


@pytest.mark.parametrize("name", KEPT)
async def test_what_must_stay_is_listed_with_the_reason(tmp_path: Path, name: str) -> None:
    document, days, sentence = KEPT[name]
    document["data"]["customer"] = {"phone": PHONE}
    async with driving(tmp_path, with_worker=False) as driver:
        driver.context = driver.service.context
        await driver.send(document)
        driver.clock.put(T + days * DAY)
        minimum = 90 if name == "the minimum" else 0
        erasure = await erased(driver, minimum=minimum)
        (kept,) = erasure.kept
        assert (kept.what, erasure.orders) == ("ORD-9", [])
        assert kept.sentence.startswith(sentence)
        assert driver.rows("SELECT count(*) FROM deliveries WHERE body IS NULL") == [(0,)]
        assert driver.rows("SELECT count(*) FROM phones") == [(1,)]


@pytest.mark.parametrize(
    ("reference", "noted"),
    [("ORD-9", set()), (f"ORD-{PHONE}", {"audit.subject", "restrictions.thing"})],
)
async def test_all_is_searched_again_only_where_a_reference_holds_the_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str, noted: set[str]
) -> None:
    """The erasure itself notes that reference, in rows that nothing found before."""
    searched: list[Any] = []

    async def searching(*args: Any, among: Any, **words: Any) -> Any:
        searched.append(among)
        return await rows_that_hold(*args, among=among, **words)

    monkeypatch.setattr(erase_module, "rows_that_hold", searching)
    async with driving(tmp_path, with_worker=False) as driver:
        driver.context = driver.service.context
        await driver.send(paid(reference, "e9"))
        driver.clock.put(T + 40 * DAY)
        before = (await erased(driver, dry_run=True)).holding
        left = (await erased(driver)).holding
    assert left.keys() - before.keys() == noted
    assert searched == [None if noted else before]


async def test_what_finance_has_accepted_is_settled_and_may_go(tmp_path: Path) -> None:
    """Each answer names the next command. A later word of the order asks for another run."""
    async with driving(tmp_path, with_worker=False) as driver:
        driver.context = context = driver.service.context

        async def next_step() -> str:
            """Return the next step that the answer names; nothing where the order would go."""
            erasure = await erased(driver, phone=None, order="ORD-1", dry_run=True)
            for each in erasure.kept:
                assert each.sentence.startswith("a person must settle it first (paid_twice): ")
                return each.sentence.partition("): ")[2]
            return ""

        again = {"reference": "p2", "amount": 1500, "currency": "KES"}
        await driver.send(event("e1"))
        await driver.send(event("e2", payment=again))
        driver.clock.put(T + 40 * DAY)
        before = await next_step()
        await reconcile_period(context, RunRequest(), progress=quiet)
        breaks = await breaks_of(context, "ORD-1")
        (found,) = [each for each in breaks if each.seen.cause == "paid_twice"]
        seen = await next_step()
        await decide(context, found.identity, "accepted", reason="it went back by hand", by=None)
        accepted = await next_step()
        driver.clock.put(T + 41 * DAY)
        await driver.send(event("e1"))
        heard = await next_step()
        await reconcile_period(context, RunRequest(), progress=quiet)
        erasure = await erased(driver, phone=None, order="ORD-1")
        assert [each.order for each in erasure.orders] == ["ORD-1"]
        assert driver.rows("SELECT count(*) FROM deliveries WHERE body IS NOT NULL") == [(0,)]
    assert before.startswith("`tallyhook reconcile run`, then `tallyhook breaks accept ID ")
    assert f"`tallyhook breaks accept {found.identity} --reason WHY`. Then try again" in seen
    assert (accepted, heard) == ("", before)


async def test_a_run_that_had_nothing_to_compare_with_settles_nothing(tmp_path: Path) -> None:
    """Without a line of the book no break can open: nobody has decided anything. A line that agrees
    says what became of the money."""
    price = {"reference": "ORD-1", "amount": 2000}
    book = tmp_path / "book.csv"
    book.write_text("reference,amount,currency,date,status\nORD-1,1500,KES,2026-11-20,refunded\n")
    async with driving(tmp_path, with_worker=False) as driver:
        driver.context = context = driver.service.context
        await driver.send(event("e1", order=price))
        await driver.send(event("e2", "refunded", order=price))
        driver.clock.put(T + 40 * DAY)
        await reconcile_period(context, RunRequest(), progress=quiet)
        assert await breaks_of(context, "ORD-1") == []
        (kept,) = (await erased(driver, phone=None, order="ORD-1", dry_run=True)).kept
        await import_book(context, ImportRequest(path=book))
        await reconcile_period(context, RunRequest(), progress=quiet)
        done = await erased(driver, phone=None, order="ORD-1", dry_run=True)
    assert kept.sentence.startswith("a person must settle it first (amount_mismatch): import an ")
    assert ([each.order for each in done.orders], done.kept) == (["ORD-1"], [])


async def test_the_whole_body_of_several_events_goes_with_one_of_them(tmp_path: Path) -> None:
    """The other customer's own event stays, and is read as it was."""
    profile = PROFILE + '[customer]\nphone = "json:phone"\n'
    async with service(tmp_path, profile, with_worker=False) as driver:
        driver.context = driver.service.context
        await send(driver, item(1, phone=PHONE), item(2, phone=OTHER))
        driver.clock.put(T + 40 * DAY)
        erasure = await erase(
            driver.context,
            ErasureRequest(phone=PHONE, reason="asked", by=None),
            dry_run=False,
            progress=quiet,
        )
        assert ([each.order for each in erasure.orders], erasure.kept) == (["O-1"], [])
        assert held(tmp_path, PHONE) == set()
        before = driver.rows("SELECT event_id, order_key, claim FROM events ORDER BY 1")
        assert [row[:2] for row in before] == [("EV1", "O-1"), ("EV2", "O-2")]
        await reindex(driver.context, progress=quiet)
        assert driver.rows("SELECT event_id, order_key, claim FROM events ORDER BY 1") == before
        assert driver.rows("SELECT body IS NULL FROM deliveries ORDER BY id") == [(1,), (0,)]


async def asked_for(driver: Driver, **words: Any) -> Erasure:
    """Erase PHONE, or what the words say, from a service of several events in one request."""
    return await erase(
        driver.context,
        ErasureRequest(**{"phone": PHONE, "reason": "asked", "by": None, **words}),
        dry_run=False,
        progress=quiet,
    )


async def test_a_number_that_the_whole_body_alone_still_holds_is_found(tmp_path: Path) -> None:
    """Retention let the event's own bytes go, and the digest; the request that brought it stays as
    long as another order needs it. What could not be read yet needs it, too, until it was read."""
    async with service(tmp_path, PROFILE, with_worker=False) as driver:
        driver.context = driver.service.context
        await send(driver, item(1, phone=PHONE), item(2, phone=OTHER))
        driver.clock.put(T + DAY)
        unread = [item(each, amount="12,50", phone=OTHER) for each in (4, 5)]
        await send(driver, item(3, phone=PHONE), *unread)
        driver.clock.put(T + 40 * DAY)
        gone = [row[0] for row in driver.rows("SELECT id FROM deliveries WHERE event_id IN "
                                              "('EV1', 'EV3') ORDER BY id")]  # fmt: skip
        async with driver.context.database.writing() as connection:
            await prune(connection, gone, now=driver.clock.now())
        told = await asked_for(driver)
        assert (told.wholes, told.counts()["deliveries"]) == ([gone[0]], 1)
        ids = driver.rows(
            "SELECT id FROM deliveries WHERE envelope = (SELECT envelope FROM deliveries "
            "WHERE event_id = 'EV3') ORDER BY verdict <> 'unreadable', id"
        )
        kept = KeptData(what=min(ids)[0], why="beside_unread", detail=ids[0][0], kind="whole")
        assert (len(ids), told.kept) == (3, [kept])
        ((left,),) = driver.rows("SELECT body FROM envelopes WHERE body IS NOT NULL")
        assert b"EV4" in left
        assert driver.rows("SELECT count(body) FROM deliveries") == [(3,)]
        for day, bodies in ((41, 1), (42, 0)):
            driver.clock.put(T + day * DAY)
            await PendingErasures(driver.context).work()
            assert driver.rows("SELECT count(body) FROM envelopes") == [(bodies,)]
            async with driver.context.database.writing() as connection:
                await connection.execute(text("UPDATE deliveries SET verdict = 'stored'"))


async def unfinished(driver: Driver, kind: str = "erase", subject: str = "O-1") -> str | None:
    """Return the sentence on an approved erasure that was not completed."""
    proposal: Any = SimpleNamespace(kind=kind, subject=subject)
    tells = erasure_kinds(driver.context)[kind].unfinished
    assert tells is not None
    return await tells(proposal)


class Killed(BaseException):
    """The process ended here."""


@pytest.mark.parametrize("words", [{}, {"phone": None, "order": "O-1"}])
async def test_what_was_killed_after_the_bodies_is_done_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: dict[str, Any]
) -> None:
    """By the next erasure, whoever it is of: the whole body goes, and which order leaves name."""

    async def die(*_: Any, **__: Any) -> None:
        raise Killed

    async with service(tmp_path, PROFILE, with_worker=False) as driver:
        driver.context = driver.service.context
        await send(driver, item(1, phone=PHONE), item(2, phone=OTHER))
        driver.clock.put(T + 40 * DAY)
        signer = await open_signer(driver.context)
        await seal_all(driver.context, signer)
        with monkeypatch.context() as patched:
            patched.setattr(ErasureReplay, "_empty_orders", die)
            with pytest.raises(Killed):
                await asked_for(driver, **words)
        assert held(tmp_path, PHONE)
        pending = [await is_pending(driver.context, order=each) for each in (None, "O-1", "O-2")]
        assert pending == [True, True, False]
        told = [await unfinished(driver, *each) for each in (
            ("erase", "O-1"), ("erase", "O-2"), ("erase_person", "+254 ••• ••• •44"))]  # fmt: skip
        assert told[1] is None
        assert "by: tallyhook erase --order O-1 --reason WHY" in str(told[0])
        assert "by: tallyhook erase --phone NUMBER --reason WHY" in str(told[2])
        with pytest.raises(NotFoundError):
            await asked_for(driver, phone="254700000009")
        (tmp_path / "t.erasures").rename(tmp_path / "elsewhere")
        assert "Whether it was completed is unknown: " in str(await unfinished(driver))
        assert driver.rows("SELECT body FROM envelopes") == [(None,)]
        if words:
            assert "O-1" not in str(driver.rows("SELECT order_key FROM order_keys"))
