"""Finance from the command line: a book and a statement, a run, evidence, and another run."""

import asyncio
import csv
import io
import json
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from app.cli import reconcile as cli_reconcile
from app.core.clock import SystemClock
from app.finance import reconcile_period
from reconcile.instants import DAY, MINUTE, Instant, format_instant
from tests.api.driving import driving, environ, event, of_order
from tests.copied import copy_of
from tests.reconcile.build import T

pytestmark = pytest.mark.slow

DAYS = ("--from", "2026-11-18", "--to", "2026-12-10")
"""Period of most files. An import before its end covers only the time until then."""

BOOK = """reference,amount,currency,placed_at,status
ORD-0,10.00,KES,{before},unpaid
ORD-1,1500.00,KES,{day},paid
ord 2,2000.00,KES,{day},paid
ORD-9,10.00,KES,{after},unpaid
"""
ASTRAY = """payment_reference,order_reference,gross,fee,net,currency,settled_at,type
pay_1,ORD-1,1500.00,22.50,1477.50,KES,{day},payment
pay_4x,2026.004x,1700.00,0.00,1700.00,KES,{day},payment
pay_9,ORD-1,0.00,0.00,0.00,KES,{later},fee
"""
STATEMENT = """payment_reference,order_reference,gross,fee,net,currency,settled_at,type
pay_0,ORD-1,0.00,0.00,0.00,KES,{before},fee
pay_1,ORD-1,1500.00,22.50,1477.50,KES,{day},payment
"""
DATES = {
    "before": format_instant(T - 2 * DAY),
    "day": format_instant(T),
    "after": format_instant(T + 3 * DAY),
    "later": format_instant(T + 20 * DAY),
}


@dataclass
class Shop:
    """A database in a folder, the commands on it, and the clock that they go by."""

    folder: Path
    capsys: pytest.CaptureFixture[str]
    now: Instant = T

    def __call__(self, *words: str, code: int = 0) -> str:
        """Run a command that must end with this code; its standard output."""
        self.capsys.readouterr()
        ended = main.run(words)
        written = self.capsys.readouterr()
        assert "Traceback" not in written.err + written.out
        assert ended == code, written.err
        self.said = written.err
        return written.out

    def document(self, *words: str, code: int = 0) -> Any:
        """Run a command with `--format json`; return its document."""
        return json.loads(self(*words, "--format", "json", code=code))

    def file(self, name: str, text: str) -> str:
        """Write a file in the folder."""
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    def hear(self, *events: dict[str, Any], at: Instant) -> None:
        """Let the provider deliver these."""
        asyncio.run(_hear(self.folder, *events, at=at))


async def _hear(folder: Path, *events: dict[str, Any], at: Instant) -> None:
    async with driving(folder, with_worker=False) as driver:
        driver.clock.put(at)
        for each in events:
            assert (await driver.send(each)).status_code == 200


async def _heard(folder: Path) -> None:
    await _hear(folder, paid("1"), paid("3"), at=T)


@pytest.fixture
def shop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shop:
    """Make a shop whose orders 1 and 3 were paid, whose book knows of 1 and 2, a month ago."""
    for name, value in environ(tmp_path).items():
        monkeypatch.setenv(name, value)
    shop = Shop(tmp_path, capsys)
    monkeypatch.setattr(SystemClock, "now", lambda _: shop.now)
    copy_of(_heard, tmp_path)
    shop.now = T + MINUTE
    shop("records", "import", shop.file("book.csv", BOOK.format(**DATES)), *DAYS)
    shop("statement", "import", shop.file("statement.csv", STATEMENT.format(**DATES)), *DAYS)
    shop.now = T + 30 * DAY
    return shop


def paid(number: str, amount: float = 1500) -> dict[str, Any]:
    """Make the event that pays an order."""
    return event(
        f"evt_{number}",
        order={"reference": f"ORD-{number}", "amount": amount},
        session={"reference": f"cs_{number}"},
        payment={"reference": f"pay_{number}", "amount": amount},
    )


def causes(document: Any) -> dict[str, str]:
    """Order to cause of the breaks."""
    return {each["order"]: each["cause"] for each in document["breaks"]}


FOUND = {"ord 2": "book_paid_not_received", "ORD-3": "paid_not_in_book"}


def test_breaks_close_by_the_evidence_that_arrives_and_say_which(shop: Shop) -> None:
    """A missed webhook and a missing line of the book: found, then brought, then closed."""
    first = shop.document("reconcile", "run", "--fail-on-breaks", code=1)
    assert (first["run"], first["ties"], causes(first)) == (1, True, FOUND)
    assert {(each["side"], each["bucket"]) for each in first["control"]} >= {
        ("takings", "by_reference"), ("takings", "paid_not_in_book"),
    }  # fmt: skip
    captured = [each["sum"] for each in first["control"] if each["bucket"] == "paid_not_in_book"]
    assert captured == [{"amount": "1500.00", "currency": "KES"}]
    assert "KES 1,500.00" in shop("reconcile", "show", "1")
    shop.hear(paid("2", 2000), at=shop.now + MINUTE)
    later = BOOK + "ORD-3,1500.00,KES,{day},paid\n"
    shop.now += DAY
    shop("records", "import", shop.file("book.csv", later.format(**DATES)), *DAYS)
    shop.now += DAY
    second = shop.document("reconcile", "run", "--fail-on-breaks")
    assert (second["breaks"], second["open"], second["matched"]["count"]) == ([], 0, 3)
    assert shop.document("breaks", "list") == []
    closed = shop.document("breaks", "list", "--state", "closed")
    shown = {
        each["order"]: shop.document("breaks", "show", each["id"])["closed_by"] for each in closed
    }
    assert shown["ord 2"] == ["evt_2"]
    assert [cite[:4] for cite in shown["ORD-3"]] == ["bok_"]
    assert "evt_2" in shop("breaks", "show", closed[0]["id"]) + shop(
        "breaks", "show", closed[1]["id"]
    )


def test_a_run_of_the_past_sees_what_was_known_and_changes_nothing(shop: Shop) -> None:
    """As of the first run's instant, whatever came since; kept as a look."""
    first = shop.document("reconcile", "run")
    before = shop.now
    shop.hear(paid("2", 2000), at=shop.now + DAY)
    shop.now += 2 * DAY
    past = shop.document("reconcile", "run", "--as-of", format_instant(before))
    assert "was read-only" in shop.said
    assert (causes(past), past["control"]) == (FOUND, first["control"])
    assert [each["state"] for each in shop.document("breaks", "list")] == ["open", "open"]
    runs = shop.document("reconcile", "list")
    assert [(each["run"], each["kind"], each["breaks"]) for each in runs] == [
        (2, "look", 2), (1, "lived", 2),
    ]  # fmt: skip
    assert shop.document("reconcile", "show", "1")["breaks"] == first["breaks"]
    assert "is in the future" in fails(shop, "reconcile", "run", "--as-of", "2099-01-01")


def fails(shop: Shop, *words: str, code: int = 2) -> str:
    """Return the message of a command that is refused."""
    shop(*words, code=code)
    return shop.said


def test_lines_that_add_up_to_more_than_can_be_kept_are_named_until_they_are_put_right(
    shop: Shop,
) -> None:
    """Each fits by itself; the run says which order it is, and the corrected book mends it."""
    heading, most = "reference,kind,amount,currency,status\n", "92233720368547758.07"
    rows = [f"BIG,{kind},{most},KES,paid\n" for kind in ("order", "invoice")]
    shop("records", "import", shop.file("big.csv", heading + "".join(rows)))
    said = fails(shop, "reconcile", "run")
    assert "the lines of BIG add up to more than can be stored" in said
    shop.now += MINUTE
    right = "".join(rows).replace(most, "1.00")
    shop("records", "import", shop.file("right.csv", heading + right), *DAYS)
    shop("reconcile", "run")


def test_a_time_that_ends_before_it_begins_is_refused(shop: Shop) -> None:
    """Nothing belongs to it: that all of nothing ties would be no answer."""
    shop("reconcile", "run", "--from", "2026-10-05", "--to", "2026-10-01", code=2)
    assert "--from must be before --to" in shop.said


def test_a_period_takes_whole_orders_by_when_they_were_placed(shop: Shop) -> None:
    """The day of the orders has all of them, the day after none; the end day is included."""
    day = DATES["day"][:10]
    on_it = shop.document("reconcile", "run", "--from", day, "--to", day)
    assert causes(on_it) == FOUND
    after = shop.document("reconcile", "run", "--from", DATES["after"][:10])
    assert (after["breaks"], after["ties"]) == ([], True)
    assert shop.document("breaks", "list") == []
    assert "write a date" in fails(shop, "reconcile", "run", "--from", "yesterday")


def own_token(shop: Shop, name: str) -> str:
    """Make a person's own token; return its file."""
    token = shop("operators", "token", name, "--until", "30d", "--by", "ann")
    return shop.file(f"{name}.token", token)


def approve(shop: Shop, token_file: str) -> None:
    """Approve the one proposal that waits."""
    (waiting,) = shop.document("proposals", "list")
    words = ("proposals", "approve", waiting["id"], "--reason", "seen")
    shop("--token-file", token_file, *words)
    assert shop.document("proposals", "list") == []


def test_people_work_through_breaks(shop: Shop) -> None:
    """Assigned, commented, accepted by two with tokens of their own; everything is shown again."""
    shop("operators", "add", "ann", "--role", "admin")
    shop("operators", "add", "bob", "--role", "finance", "--by", "ann")
    rules = shop.file("rules.toml", '[accept_alone_max]\nKES = "1999.99"\n')
    assert "no operator is named" in fails(shop, "reconcile", "rules", "save", rules)
    shop("reconcile", "rules", "save", rules, "--by", "bob")
    assert shop.document("reconcile", "rules", "show")["number"] == 1
    none = ("reconcile", "rules", "save", shop.file("none.toml", ""), "--by", "bob")
    assert "a second operator must approve" in fails(shop, *none)
    ann, bob = (own_token(shop, name) for name in ("ann", "bob"))
    shop.now = Instant(shop.now + 8 * DAY)  # who made another a way in waits a week to count as two
    shop("--token-file", bob, *none[:-2], "--reason", "a new year")
    approve(shop, ann)
    shop("reconcile", "rules", "save", rules, "--by", "bob")
    found = {each["order"]: each["id"] for each in shop.document("reconcile", "run")["breaks"]}
    big, small = found["ord 2"], found["ORD-3"]
    shop("breaks", "assign", small, "--to", "anne", "--by", "bob")
    assert "no active operator is named anne" in shop.said
    shop("breaks", "assign", big, "--to", "ann", "--by", "bob")
    assert "No operator" not in shop.said
    shop("breaks", "comment", big, "--note", "asked the bank", "--by", "ann")
    (mine,) = shop.document("breaks", "list", "--assignee", "ann", "--state", "assigned")
    assert mine["id"] == big
    accept = ("breaks", "accept", big, "--reason", "gone")
    assert "a second operator must approve" in fails(shop, *accept, "--by", "bob")
    shop("--token-file", bob, *accept)
    assert "tallyhook --token-file FILE proposals approve prp_" in shop.said
    (waiting,) = shop.document("proposals", "list")
    assert waiting["id"] in shop("proposals", "show", waiting["id"])
    decide = ("approve", waiting["id"], "--reason", "seen")
    assert "you made this proposal" in fails(shop, "--token-file", bob, "proposals", *decide)
    assert "no operator is named" in fails(shop, "proposals", *decide)
    approve(shop, ann)
    assert "ann has already approved this" in fails(shop, "--token-file", ann, "proposals", *decide)
    shop("breaks", "accept", small, "--reason", "small", "--by", "bob")
    again = shop.document("reconcile", "run", "--fail-on-breaks")
    assert ({each["state"] for each in again["breaks"]}, again["open"]) == ({"accepted"}, 0)
    steps = shop.document("breaks", "show", big)["steps"]
    assert [(each["step"], each["by"]) for each in steps] == [
        ("opened", "run 1"), ("assigned", "bob"), ("commented", "ann"), ("accepted", "bob"),
    ]  # fmt: skip
    assert "asked the bank" in shop("breaks", "show", big)
    assert "with the saved rules opens breaks" in fails(shop, "breaks", "show", "brk_none", code=5)


@pytest.mark.costly
def test_many_breaks_are_decided_by_what_is_said_of_them(shop: Shop) -> None:
    """First counted and added up, then done once that is said; above the limit is left out, and
    together they may not be above that of a day."""
    rules = shop.file("rules.toml", '[accept_alone_max]\nKES = "1999.99"\n')
    shop("reconcile", "rules", "save", rules, "--by", "bob")
    shop.hear(paid("5", 600), at=T + MINUTE)
    shop("reconcile", "run")
    with_five = ("breaks", "accept", "--where", "currency=KES amount>1.00", "--reason", "small")
    reported = fails(shop, *with_five, "--by", "bob", "--yes")
    assert "together they amount to KES 2,100.00, more than the KES 1,999.99" in reported
    assert "600.00" in shop(*with_five[:3], "order=ORD-5", *with_five[4:], "--by", "bob", "--yes")
    shop.now += DAY  # the limit is of a day

    def states() -> dict[str, str]:
        found = shop.document("breaks", "list")
        return {each["order"]: each["state"] for each in found if each["order"] != "ORD-5"}

    every = ("--where", "currency=KES amount>1.00")
    accept = ("breaks", "accept", *every, "--reason", "not worth it", "--by", "bob")
    table = shop(*accept)
    assert "Nothing was changed. Add --yes --seen" in shop.said
    assert "Left out: 1 break: the amount is above one person's limit" in shop.said
    assert "KES 1,500.00" in table
    assert "2,000.00" not in table
    assert set(states().values()) == {"open"}
    shop("breaks", "assign", *every, "--to", "ann", "--by", "bob")
    assert set(states().values()) == {"open"}
    shop("breaks", "assign", *every, "--to", "ann", "--by", "bob", "--yes")
    assert "2 breaks: each is ann's" in shop.said
    assert states() == {"ord 2": "assigned", "ORD-3": "assigned"}
    shop("breaks", "comment", "--where", "assignee=ann", "--note", "seen", "--by", "ann", "--yes")
    shop(*accept)
    mark = shop.said.partition("--seen ")[2].split()[0]
    assert "the breaks have changed since the list" in fails(
        shop, *accept, "--yes", "--seen", f"{int(mark, 16) ^ 1:016x}"
    )
    assert "--seen works with --yes only" in fails(shop, *accept, "--seen", mark)
    shop(*accept, "--yes", "--seen", mark)
    assert states() == {"ord 2": "assigned", "ORD-3": "accepted"}
    (two,) = shop.document("breaks", "list", "--state", "assigned")
    steps = [each["step"] for each in shop.document("breaks", "show", two["id"])["steps"]]
    assert steps == ["opened", "assigned", "commented"]
    shop(*accept, "--yes")
    assert "No break was selected" in shop.said
    both = ("breaks", "accept", two["id"], *every, "--reason", "x")
    assert "give the id of a break, or select breaks with --where" in fails(shop, *both)
    assert "is not a condition" in fails(shop, "breaks", "assign", "--where", "x", "--to", "ann")
    assert "write a condition" in fails(shop, "breaks", "assign", "--where", " ", "--to", "ann")


def test_many_are_matched_with_the_suggestion_that_stands_out(shop: Shop) -> None:
    """A line of which one character of the payment is wrong, and one that nothing comes near."""
    order = {"reference": "2026.004", "amount": 1700}
    payment = event("evt_4", order=order, payment={"reference": "pay_4", "amount": 1700})
    shop.hear(payment, at=T + MINUTE)
    shop("statement", "import", shop.file("astray.csv", ASTRAY.format(**DATES)), *DAYS)
    shop.now += MINUTE
    breaks = shop.document("reconcile", "run")["breaks"]
    found = {(each["cause"], each["order"]): each for each in breaks}
    one = found["not_settled", "2026.004"]
    (near,) = one["candidates"]
    assert near["score"] >= 60
    assert [each["reason"] for each in near["reasons"]][:2] == [
        "nearly_same_reference", "same_amount",
    ]  # fmt: skip
    assert "the amount is the same (35)" in shop("breaks", "show", one["id"])
    where = ("breaks", "match", "--where", "cause=not_settled", "--reason", "a slip", "--by", "ann")
    shop(*where, "--yes", "--score", "99")
    assert "no suggestion has enough points" in shop.said
    shop(*where, "--yes")
    assert "is matched and closed" in shop.said
    shop(*where, "--yes")
    assert "No break was selected, so nothing was changed" in shop.said
    shop.now += MINUTE
    left = [(each["cause"], each["order"]) for each in shop.document("reconcile", "run")["breaks"]]
    assert not {("not_settled", "2026.004"), ("settled_never_notified", "2026.004x")} & {*left}
    assert "--line works with one break only" in fails(shop, *where, "--line", near["line"])
    assert "--line is missing" in fails(shop, "breaks", "match", one["id"], "--reason", "x")


def test_money_in_doubt_takes_two_people_as_any_other(shop: Shop) -> None:
    """One event with two amounts: nothing of it is certain, and the greater is above the limit."""
    shop.hear(paid("5", 100), paid("5", 5000), at=T + MINUTE)
    rules = shop.file("rules.toml", '[accept_alone_max]\nKES = "1000.00"\n')
    shop("reconcile", "rules", "save", rules)
    found = {each["order"]: each for each in shop.document("reconcile", "run")["breaks"]}["ORD-5"]
    assert (found["cause"], found["money"]["amount"]) == ("unresolved", "5000.00")
    said = fails(shop, "breaks", "accept", found["id"], "--reason", "small", "--by", "ann")
    assert "KES 5,000.00 is more than the KES 1,000.00 that one person may accept" in said


def test_late_money_is_listed_with_a_proposal_and_settled(shop: Shop) -> None:
    """Money for an order that the shop's book has as canceled is late until somebody decides."""
    canceled = BOOK.replace("ORD-9,10.00", "ORD-4,1500.00").replace(
        "{after},unpaid", "{day},canceled"
    )
    again = paid("4") | {"id": "evt_4b"}
    again["data"] = again["data"] | {"payment": {**again["data"]["payment"], "reference": "p4b"}}
    shop.hear(paid("4"), again, at=T + MINUTE)
    shop("records", "import", shop.file("b2.csv", canceled.format(**DATES)), *DAYS)
    shop("reconcile", "run")
    late = {each["order"]: each for each in shop.document("late", "list")}
    assert (late["ORD-4"]["cause"], late["ORD-4"]["proposed"]) == ("paid_twice", "refund")
    name = late["ORD-4"]["id"]
    assert "--action must be one of" in fails(
        shop, "late", "settle", name, "--action", "keep", "--reason", "x"
    )
    shop("late", "settle", name, "--action", "refund", "--reason", "paid twice", "--by", "ann")
    after = {each["order"]: each["state"] for each in shop.document("late", "list")}
    assert after["ORD-4"] == "waits_for_refund"


def test_a_preview_changes_nothing_and_tells_what_would(shop: Shop) -> None:
    """A tolerance under which an amount would agree."""
    shop("records", "import", shop.file("b2.csv", BOOK.replace("1500", "1499").format(**DATES)))
    shop("reconcile", "run")
    wide = shop.file("wide.toml", '[tolerance]\nKES = "1.00"\n')
    before = shop.document("reconcile", "list"), shop.document("breaks", "list", "--all")
    found = shop.document("reconcile", "preview", "--rules", wide)
    effects = {(each["effect"], each["kind"]): each["count"] for each in found["totals"]}
    assert effects == {("gone_break", "amount_differs"): 1, ("newly_matched", "by_tolerance"): 1}
    assert (shop.document("reconcile", "list"), shop.document("breaks", "list", "--all")) == before
    shop("reconcile", "preview", "--rules", shop.file("same.toml", ""))
    assert "would change no match" in shop.said
    look = shop.document("reconcile", "run", "--rules", wide)
    assert "amount_differs" not in causes(look).values()
    wrong = shop.file("wrong.toml", "a = 1\nb = 2\n")
    assert len(fails(shop, "reconcile", "run", "--rules", wrong, code=3).splitlines()) == 2


def test_every_format_tells_of_every_break(shop: Shop) -> None:
    """Tables for people; CSV, JSON and JSON Lines for programs."""
    shop("reconcile", "run")
    table = shop("reconcile", "show", "1")
    assert "sums tie" in table
    assert "Matched: 1 order, KES 1,500.00. " in table
    rows = list(csv.DictReader(io.StringIO(shop("reconcile", "show", "1", "--format", "csv"))))
    assert {row["order"]: row["cause"] for row in rows} == FOUND
    line = shop("reconcile", "show", "1", "--format", "jsonl")
    assert json.loads(line) == shop.document("reconcile", "show", "1")
    listed = shop("breaks", "list", "--format", "jsonl").splitlines()
    assert [json.loads(each)["id"] for each in listed] == sorted(row["id"] for row in rows)
    assert "book_paid_not_received" in shop("breaks", "list", "--cause", "book_paid_not_received")
    assert "is none of" in fails(shop, "breaks", "list", "--cause", "bad luck")
    assert fails(shop, "reconcile", "show", "7", code=5)


PAID_OUT = """payment_reference,gross,currency,settled_at,payout
p1,5.00,KES,2026-11-20,PO-100200
p2,6.00,KES,2026-11-25,PO-100201
"""
BANK = """booked_at,amount,currency,counterparty,text
2026-11-20,5.00,KES,Jane,PO-100200
2026-11-22,7.00,KES,Jane,GIFT
2026-12-19,8.00,KES,Jane,GIFT
"""


@pytest.mark.costly
def test_people_read_the_times_of_sentences_in_the_merchants_zone(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its name; of a day that the bank gave, the day. Programs read UTC."""
    monkeypatch.setenv("TALLYHOOK_TIMEZONE", "Africa/Nairobi")
    monkeypatch.setenv("COLUMNS", "600")
    shop("operators", "add", "ann", "--role", "admin")
    shop("operators", "add", "bob", "--role", "finance", "--by", "ann")
    rules = shop.file("rules.toml", '[accept_alone_max]\nKES = "6.00"\n')
    shop("reconcile", "rules", "save", rules, "--by", "bob")
    shop(
        "statement",
        "import",
        shop.file("paid_out.csv", PAID_OUT),
        "--by",
        "bob",
        "--from",
        "2026-11-15",
        "--to",
        "2026-11-25",
    )
    shop(
        "bank",
        "import",
        shop.file("bank.csv", BANK),
        "--account",
        "main",
        "--by",
        "bob",
        "--from",
        "2026-11-20",
        "--to",
        "2026-12-19",
    )
    shop.now = Instant(shop.now + MINUTE)
    run = shop("reconcile", "run")
    found = {each["cause"]: each for each in shop.document("breaks", "list")}
    gift, payout = found["bank_line_unknown"], found["payout_not_in_bank"]
    assert "KES 7.00 at 2026-11-21T21:00:00Z, but no" in gift["sentence"]
    line = next(
        each for each in shop.document("bank", "list") if each["amount"]["amount"] == "7.00"
    )
    assert line["booked_at"] == "2026-11-21T21:00:00Z"
    for text in (shop("bank", "list"), shop("bank", "show", line["line"])):
        assert ("2026-11-22 " in text, "2026-11-21T21" in text) == (True, False)
    bob = own_token(shop, "bob")
    shop.now = Instant(shop.now + 8 * DAY)
    shop("--token-file", bob, "breaks", "accept", gift["id"], "--reason", "theirs")
    (waiting,) = shop.document("proposals", "list")
    assert "at 2026-11-21T21:00:00Z" in waiting["sentence"]
    lists = [run, *(shop(*words.split()) for words in ("reconcile show 1", "breaks list"))]
    reported = [shop(*words) for words in (
        ("breaks", "show", gift["id"]), ("proposals", "list"), ("proposals", "show", waiting["id"])
    )]  # fmt: skip
    for text in (*lists, *reported):
        assert "7.00 on 2026-11-22, but no" in text
        assert "at 2026-11-21T21:00:00Z" not in text
    for text in (*lists, shop("breaks", "show", payout["id"])):
        assert "beyond 2026-11-30 00:00 EAT" in text
    why = "it was said at 2026-11-21T21:05:00Z"
    shop("breaks", "accept", payout["id"], "--reason", why, "--by", "bob")
    assert "it was said at 2026-11-22 00:05 EAT" in shop("breaks", "show", payout["id"])
    assert shop.document("breaks", "show", payout["id"])["because"].endswith(why)


def test_support_reads_the_times_of_an_order_in_the_merchants_zone(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it rests on, and what programs read, is in UTC."""
    monkeypatch.setenv("TALLYHOOK_TIMEZONE", "Africa/Nairobi")
    monkeypatch.setenv("COLUMNS", "600")
    shop.hear(of_order("ORD-7", "evt_7", "pending"), at=T)
    ledger = shop.document("orders", "show", "ORD-7")
    aloud, _, evidence = shop("orders", "show", "ORD-7").partition("Reasons, with the ids")
    assert "by 20 November 2026, 10:35 UTC nobody" in ledger["plain"]["answer"][0]
    assert "by 20 November 2026, 13:35 EAT nobody" in aloud
    assert "had come by 2026-11-20T10:35:00Z" in evidence
    shop("refold")
    for words in (("list",), ("find", "ORD-7")):
        assert "had come by 2026-11-20 13:35 EAT" in shop("orders", *words)
    rows = shop("orders", "list", "--format", "csv")
    assert "had come by 2026-11-20T10:35:00Z" in rows


@pytest.mark.costly
def test_a_match_by_hand_is_taken_back(shop: Shop) -> None:
    """It closes two breaks; taken back, both are open again, and the line is free."""
    wrong = "reference,amount,currency,placed_at,status\nord 7,1500.00,KES,{day},paid\n"
    shop("records", "import", shop.file("wrong.csv", wrong.format(**DATES)), *DAYS)
    found = {each["order"]: each for each in shop.document("reconcile", "run")["breaks"]}
    name, other = found["ORD-3"]["id"], found["ord 7"]["id"]
    (line,) = found["ord 7"]["cites"]
    words = (name, "--reason", "the customer said so", "--by", "ann")
    assert "has no match by hand" in fails(shop, "breaks", "unmatch", *words)
    shop("breaks", "match", *words, "--line", line)
    shop.now += MINUTE
    assert set(causes(shop.document("reconcile", "run"))) == {"ord 2"}
    assert {each["id"] for each in shop.document("breaks", "list", "--state", "closed")} == {
        name, other,
    }  # fmt: skip
    assert f"is matched by hand with {line}" in fails(
        shop, "breaks", "unmatch", *words, "--line", "bok_1.1"
    )
    shop("breaks", "unmatch", name, "--reason", "it was another", "--by", "bob")
    assert f"{name} and {line} are no longer matched" in shop.said
    shown = shop.document("breaks", "show", name)
    assert (shown["state"], shown["because"]) == (
        "closed", f"bob undid its match with {line}: it was another",
    )  # fmt: skip
    shop.now += MINUTE
    assert set(causes(shop.document("reconcile", "run"))) == {"ord 2", "ORD-3", "ord 7"}
    steps = [each["step"] for each in shop.document("breaks", "show", name)["steps"]]
    assert steps == ["opened", "matched", "closed", "unmatched", "reopened"]
    earlier = shop.document("reconcile", "show", "2")
    assert set(causes(earlier)) == {"ord 2"}, "what a run saw stays"
    assert "has no match by hand" in fails(shop, "breaks", "unmatch", *words)
    shop("breaks", "match", *words, "--line", line)
    shop.now += MINUTE
    assert set(causes(shop.document("reconcile", "run"))) == {"ord 2"}


def test_money_is_matched_by_hand_from_either_of_its_breaks(shop: Shop) -> None:
    """A capture and a line of the statement that no reference brings together, of an order whose
    reference has a dot: whoever begins at the one or at the other, the next run heeds it."""
    order = {"reference": "2026.004", "amount": 1700}
    payment = event("evt_4", order=order, payment={"reference": "pay_4", "amount": 1700})
    shop.hear(payment, at=T + MINUTE)
    shop("statement", "import", shop.file("astray.csv", ASTRAY.format(**DATES)), *DAYS)
    open_ones = {("not_settled", "2026.004"), ("settled_never_notified", "2026.004x")}
    for cause, order_there in sorted(open_ones):
        shop.now += MINUTE
        breaks = shop.document("reconcile", "run")["breaks"]
        found = {(each["cause"], each["order"]): each for each in breaks}
        assert open_ones <= found.keys()
        name = found[cause, order_there]["id"]
        (line,) = [each["line"] for each in found[cause, order_there]["candidates"]]
        words = (name, "--reason", "the provider said so", "--by", "ann")
        shop("breaks", "match", *words, "--line", line)
        shop.now += MINUTE
        left = shop.document("reconcile", "run")["breaks"]
        assert not open_ones & {(each["cause"], each["order"]) for each in left}
        shop("breaks", "unmatch", *words)


async def interrupted(*_: object) -> None:
    """Stand for the work under way when somebody presses Ctrl-C."""
    signal.raise_signal(signal.SIGINT)
    await asyncio.Event().wait()


def test_an_interrupted_run_says_what_is_left_of_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """At its very end nothing of it is kept, and the next run does all of it; while it is
    printed, it is kept."""
    # Whoever runs the tests in the background has their signals ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    with monkeypatch.context() as patched:
        patched.setattr(reconcile_period, "finish", interrupted)
        assert shop("reconcile", "run", code=130) == ""
    assert "Interrupted: the run was not stored, and no break" in shop.said
    assert "`tallyhook reconcile list` shows completed runs." in shop.said
    assert shop.document("reconcile", "list") == shop.document("breaks", "list") == []
    with monkeypatch.context() as patched:
        patched.setattr(cli_reconcile, "print_run", interrupted)
        assert shop("reconcile", "run", code=130) == ""
    reported = shop.said
    (run,) = shop.document("reconcile", "list")
    assert f"`tallyhook reconcile show {run['run']}` prints it again." in reported
    assert causes(shop.document("reconcile", "run"))
    assert len(shop.document("breaks", "list")) > 0
