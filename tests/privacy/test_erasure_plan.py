"""Plan of an erasure as a value: its lines in the journal, its counts, its report."""

from collections import Counter
from types import SimpleNamespace
from typing import Any, Final

import pytest

from app.database.marks import GROUNDS
from app.evidence.attachment_store import AttachmentRecord
from app.privacy import replay_erasures
from app.privacy.copies import TakenCopy
from app.privacy.erase import files_of_others
from app.privacy.erase_finding import Erasure, JudgedDeliveries
from app.privacy.erase_rules import KeptData
from app.privacy.erase_store import TABLES
from app.privacy.erase_texts import BankText, without
from app.privacy.erasure_journal import JournalKey
from app.privacy.prune import SettledOrder
from app.privacy.replay_erasures import (
    ErasureReplay,
    NamedRows,
    Replayed,
    emptied_by,
    restricted_by,
)
from app.receiving.due_store import Due
from app.receiving.journal_state import WAITS
from reconcile.instants import DAY, EARLIEST, Instant, format_instant
from tests.privacy.test_erase import PHONE
from tests.reconcile.build import T
from tests.rows import for_each

KEY: Final = JournalKey(bytes(range(32)))
UNTIL: Final = Instant(T + 90 * DAY)

NOTES: Final[list[Any]] = [
    (b"\x01\x02", "order", "ORD-1", T),
    (b"\x01\x02", "delivery", "dlv_6", T),
    (b"\x01\x02", "order", "ORD-2", T),
    (b"\x01\x02", "recipient", "stm:UJ1", T),
]


def settled(order: str, *deliveries: str) -> SettledOrder:
    """Return an order that may go, with its deliveries that still have bodies."""
    return SettledOrder(
        order=order,
        outcome="succeeded",
        last_heard=T,
        sizes=dict.fromkeys(deliveries, 10),
        mark=Due(order=order, generation=1),
    )


def attached(name: str, order: str) -> AttachmentRecord:
    return AttachmentRecord(
        attachment_id=name, about="order", subject=order, order=order, kind="other", media="text",
        sha256=f"sha of {name}", size=1, who="Ann", at=T, audit_number=1,
    )  # fmt: skip


def planned() -> Erasure:
    """Return an erasure of two orders with data of every kind."""
    return Erasure(
        subject="+254 ••• ••• •44",
        identifiers=[PHONE],
        orders=[settled("ORD-1", "dlv_1", "dlv_6"), settled("ORD-2")],
        deliveries=["dlv_2", "dlv_3"],
        unreadable={"dlv_3"},
        gone_before=["dlv_4"],
        wholes=["dlv_5"],
        brought={"ORD-1": ["dlv_1", "dlv_6"], "ORD-2": ["dlv_0"]},
        notes=list(NOTES),
        rejections=["dlv_7"],
        book_lines=[("ORD-9", "order", 3)],
        bank_lines=[BankText(("main", 2, 3), ("", "", "", ""), "-xxx")],
        bookmarks={("Ann", "orders", "his")},
        attachments=[attached("att_1", "ORD-1"), attached("att_2", "ORD-5")],
        reasons=[(5, "dlv_6"), (6, "dlv_0")],
        going={"deliveries": {("dlv_1",), ("dlv_6",)}, "audit": {(1,)}},
        holding={"deliveries.body": {("dlv_1",)}},
        requests=4,
        latest=T,
    )


def test_an_erasure_names_its_data_in_the_journal_by_kind() -> None:
    """Deliveries without a body are named, too, because a backup may have the body."""
    emptied, named = emptied_by(planned(), KEY)
    orders = [KEY.digest("orders", each) for each in ("ORD-1", "ORD-2")]
    book = KEY.digest("book_lines", "ORD-9\norder\n3")
    bank = KEY.digest("bank_lines", "main\n2\n3")
    saved = KEY.digest("bookmarks", "Ann\norders\nhis")
    recipient = KEY.digest("recipients", "0102\nstm:UJ1")
    assert list(emptied.items()) == [
        ("reasons", ["dlv_6", "dlv_0"]),
        ("deliveries", ["dlv_0", "dlv_1", "dlv_2", "dlv_4", "dlv_6"]),
        ("unreadable", ["dlv_3"]),
        ("wholes", ["dlv_5"]),
        ("attachments", ["att_1", "att_2"]),
        ("orders", orders),
        ("rejections", ["dlv_7"]),
        ("book_lines", [book]),
        ("bank_lines", [f"{bank}/-xxx"]),
        ("bookmarks", [saved]),
        ("recipients", [recipient]),
    ]
    assert named == NamedRows(
        orders=dict(zip(orders, ("ORD-1", "ORD-2"), strict=True)),
        book_lines={book: ("ORD-9", "order", 3)},
        bank_lines={bank: (("main", 2, 3), ("", "", "", ""))},
        recipients={recipient: NOTES[3]},
        bookmarks={saved: ("Ann", "orders", "his")},
    )
    assert emptied_by(Erasure(subject="ORD-1"), KEY) == ({}, NamedRows())


def kept(what: str, why: Any = "disputable", **more: Any) -> KeptData:
    return KeptData(what=what, why=why, **more)


def test_a_restriction_is_named_in_the_journal_with_its_reason_and_end() -> None:
    """An order and a line of a bank by digests."""
    erasure = Erasure(
        subject="x",
        kept=[
            kept("ORD-1", until=UNTIL),
            kept("ORD-2", "disputed"),
            kept("dlv_1", "unread", kind="delivery"),
            kept("dlv_2", "minimum", until=UNTIL, kind="whole"),
            kept("att_1", "disputed", kind="attachment"),
            kept("main.2.3", "accounts", until=UNTIL, kind="bank_line"),
            kept("row 7", "set_aside", kind=None),
        ],
    )
    orders = [KEY.digest("orders", each) for each in ("ORD-1", "ORD-2")]
    bank = KEY.digest("bank_lines", "main\n2\n3")
    assert restricted_by(erasure, KEY) == (
        {
            "kept_orders": [f"{orders[0]}/disputable/{UNTIL}", f"{orders[1]}/disputed/-"],
            "kept_deliveries": ["dlv_1/unread/-"],
            "kept_wholes": [f"dlv_2/minimum/{UNTIL}"],
            "kept_attachments": ["att_1/disputed/-"],
            "kept_bank_lines": [f"{bank}/accounts/{UNTIL}"],
        },
        NamedRows(
            orders=dict(zip(orders, ("ORD-1", "ORD-2"), strict=True)),
            bank_lines={bank: (("main", 2, 3), ("", "", "", ""))},
        ),
    )


def test_an_order_with_new_evidence_leaves_the_plan_with_all_that_belongs_to_it() -> None:
    """Data of no order and of other orders are erased as planned."""
    erasure = planned()
    erasure.staying = {"ORD-7": ["dlv_8"]}
    assert erasure.keep({"ORD-1"}) == {"ORD-1": ["dlv_1", "dlv_6"]}
    assert erasure.staying == {"ORD-7": ["dlv_8"], "ORD-1": ["dlv_1", "dlv_6"]}
    assert erasure.kept == [kept("ORD-1", "changed")]
    assert erasure.brought == {"ORD-2": ["dlv_0"]}
    assert [each.order for each in erasure.orders] == ["ORD-2"]
    assert [each.attachment_id for each in erasure.attachments] == ["att_2"]
    assert erasure.reasons == [(6, "dlv_0")]
    assert erasure.notes == NOTES[2:]
    assert erasure.deliveries == ["dlv_2", "dlv_3"]


@for_each(
    ("stays", "restricted"),
    [
        ([], [("ORD-1", "accounts")]),
        ([("ORD-1", "accounts"), ("ORD-1", "disputed")], [("ORD-1", "disputed")]),
        ([("ORD-1", "in_the_reference"), ("ORD-1", "changed")], [("ORD-1", "changed")]),
        ([("ORD-1", "in_the_reference")], [("ORD-1", "in_the_reference")]),
        ([("ORD-1", "disputed"), ("ORD-1", "accounts")], [("ORD-1", "disputed")]),
        (
            [("ORD-4", "shared"), ("ORD-3", "refused")],
            [("ORD-4", "shared"), ("ORD-3", "refused"), ("ORD-1", "accounts")],
        ),
    ],
)
def test_of_two_reasons_for_a_restriction_the_one_that_a_person_can_end_counts(
    stays: list[tuple[str, str]], restricted: list[tuple[str, str]]
) -> None:
    """An erased order is restricted for the books, unless it stays for another reason."""
    erasure = Erasure(
        subject="x",
        orders=[settled("ORD-1"), settled("ORD-2")],
        kept=[kept(*each) for each in stays],
        accounts={"ORD-1": UNTIL},
    )
    found = erasure.restricted()
    assert [(each.what, each.why) for each in found] == restricted
    assert {each.until for each in found if each.why == "accounts"} <= {UNTIL}


def test_one_thing_of_two_kinds_is_restricted_as_both() -> None:
    stays = [kept("dlv_1", "unread", kind=kind) for kind in ("delivery", "whole")]
    assert Erasure(subject="x", kept=stays).restricted() == stays


def test_a_row_that_still_contains_the_number_does_not_count_as_erased() -> None:
    """A place that an erasure never empties says nothing of the rows that go."""
    erasure = planned()
    found: dict[str, set[Any]] = {
        "deliveries.body": {("dlv_6",)}, "audit.reason": {(1,)}, "rejections.body": {("dlv_7",)}
    }  # fmt: skip
    erasure.found_after(found)
    assert erasure.holding == found
    assert erasure.going == {"deliveries": {("dlv_1",)}, "audit": {(1,)}}


def test_the_report_of_an_erasure_states_every_count_and_thing() -> None:
    erasure = planned()
    erasure.dry_run = erasure.tidied = True
    erasure.kept = [kept("ORD-7", until=UNTIL), kept("ORD-8", "disputed")]
    erasure.copies = [TakenCopy(what="a backup", name="b.db", at=T, who="Ann")]
    document = erasure.document()
    places = document.pop("places")
    assert document == {
        "subject": "+254 ••• ••• •44",
        "dry_run": True,
        "orders": 2,
        "deliveries": 5,
        "rejections": 1,
        "session_requests": 4,
        "book_lines": 1,
        "bank_lines": 1,
        "attachments": 2,
        "reasons": 2,
        "bookmarks": 1,
        "tidied": True,
        "copies": [each.document() for each in erasure.copies],
        "erased": [
            {"order": "ORD-1", "deliveries": 2},
            {"order": "ORD-2", "deliveries": 0},
            {"delivery": "dlv_2"},
            {"delivery": "dlv_3"},
            {"delivery": "dlv_5"},
        ],
        "files": [
            {"attachment": "att_1", "order": "ORD-1", "sha256": "sha of att_1"},
            {"attachment": "att_2", "order": "ORD-5", "sha256": "sha of att_2"},
        ],
        "kept": [
            {"what": "ORD-7", "why": "disputable", "sentence": erasure.kept[0].sentence},
            {"what": "ORD-8", "why": "disputed", "sentence": erasure.kept[1].sentence},
        ],
        "restricted": [
            {"kind": "order", "what": "ORD-7", "until": format_instant(UNTIL),
             "ground": GROUNDS["claims"]},
            {"kind": "order", "what": "ORD-8", "until": None, "ground": GROUNDS["claims"]},
        ],
    }  # fmt: skip
    assert {each["place"]: (each["went"], each["stays"]) for each in places} == {
        "deliveries.headers": (2, 0), "deliveries.body": (2, 0)
    }  # fmt: skip
    counts = erasure.counts()
    assert (counts["kept"], counts["restricted"]) == (2, 2)


def test_files_of_other_orders_are_counted_and_their_orders_named() -> None:
    """Each order once, in order; files of the erased orders are not among them."""
    erasure = planned()
    for order in ("ORD-5", "ORD-3"):
        erasure.attachments.append(attached("att_3", order))
    assert files_of_others(erasure) == (
        "3 files of other orders (ORD-3, ORD-5) with the customer's number"
    )


def test_published_reasons_that_quote_an_erased_one_are_counted_with_what_stays() -> None:
    because = "revisions.because"
    erasure = Erasure(subject="x", holding={because: {(1,)}}, quoting={(1,), (2,)})
    assert [(each.where, each.stays) for each in erasure.places()] == [(because, 2)]


def test_the_newest_delivery_that_goes_dates_the_erasure() -> None:
    """A delivery that stays keeps the kind of data that it is."""
    judged = JudgedDeliveries(kind="whole")
    assert judged.latest == EARLIEST
    for name, received, why in (("a", T, None), ("b", T - DAY, None), ("c", T + DAY, "minimum")):
        judged.add(name, Instant(received), None if why is None else kept(name, why))
    assert (judged.going, judged.latest) == (["a", "b"], T)
    assert judged.kept == [kept("c", "minimum", kind="whole")]


@for_each(
    ("which", "left"),
    [
        ("xxxx", ("•", "•", "", "•")),
        ("-x-x", ("1", "•", "", "•")),
        ("----", ("1", "2", "", "4")),
        ("x--x", ("•", "2", "", "•")),
    ],
)
def test_a_bank_lines_texts_are_emptied_as_its_code_says(which: str, left: tuple[str, ...]) -> None:
    """A text that was empty stays empty."""
    assert without(("1", "2", "", "4"), which) == left


def test_the_result_of_a_replay_states_every_count_and_why_lines_wait() -> None:
    names = (
        "orders", "deliveries", "rejections", "session_requests", "book_lines", "bank_lines",
        "attachments", "reasons", "bookmarks",
    )  # fmt: skip
    counts = {name: number for number, name in enumerate(names)}
    replayed = Replayed(
        lines=20,
        counts=Counter(counts),
        pending=Counter(unread=2, refused=1),
        copied=True,
        unread=3,
    )
    assert replayed.document() == {
        "lines": 20,
        **counts,
        "pending": [
            {"lines": 1, "why": "refused", "sentence": WAITS["refused"]},
            {"lines": 2, "why": "unread", "sentence": WAITS["unread"]},
        ],
        "from_copy": True,
        "unread": 3,
    }
    assert Replayed().document() == {
        "lines": 0, **dict.fromkeys(names, 0), "pending": [], "from_copy": False, "unread": 0
    }  # fmt: skip
    assert Replayed().tidied


@for_each(
    ("emptied", "inbox", "tidied", "tries"),
    [
        ([True], True, True, 1),
        ([True], False, False, 1),
        ([False, False, True], True, True, 3),
        ([False, False, False, True], True, False, 3),
    ],
)
async def test_the_logs_are_emptied_as_soon_as_no_reader_uses_them(
    monkeypatch: pytest.MonkeyPatch, emptied: list[bool], inbox: bool, tidied: bool, tries: int
) -> None:
    """The inbox's log and the database's, which is tried for a while."""
    monkeypatch.setattr(replay_erasures, "TRIES", 3)
    monkeypatch.setattr(replay_erasures, "PAUSE_S", 0.0)
    asked: list[Any] = []

    async def tidy(*tables: Any) -> bool:
        asked.append(tables)
        return emptied[len(asked) - 1] if tables else inbox

    of_both = SimpleNamespace(tidy=tidy)
    context: Any = SimpleNamespace(inbox=of_both, database=SimpleNamespace(writer=of_both))
    emptied = [True, *emptied]
    assert await ErasureReplay(context).tidy() is tidied
    assert asked == [(), *[(TABLES,)] * tries]
