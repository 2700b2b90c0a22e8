"""Conditions that settle an order whose data may not go yet."""

from pathlib import Path
from typing import Any

from app.database.marks import GROUNDS
from app.finance.break_acts import SeenBreak
from app.privacy.erase_rules import (
    OTHERWISE,
    SETTLED_BY,
    KeptData,
    Periods,
    ToSettle,
    next_look,
    periods_of,
    steps_for,
    to_settle,
)
from reconcile.instants import DAY, Duration, Instant, format_instant
from reconcile.ledger.vocabulary import FINDINGS
from tests.contexts import settings_of
from tests.reconcile.build import T
from tests.reconcile.scenario_table import all_scenarios
from tests.reconcile.test_pinned import ledgers_of
from tests.rows import for_each


def test_of_each_finding_that_a_person_must_settle_it_is_known_what_settles_it() -> None:
    """By a break that finance decides, or by a command; a new finding must say by which."""
    errors = {code for code, words in FINDINGS.items() if words.severity == "error"}
    assert SETTLED_BY.keys() | OTHERWISE.keys() == errors | {"unresolved"}
    assert not SETTLED_BY.keys() & OTHERWISE.keys()


@for_each("code", [*SETTLED_BY, *OTHERWISE])
def test_nothing_is_settled_because_there_was_nothing_to_compare_it_with(code: ToSettle) -> None:
    """A run without a line of the book saw no break, and nobody has decided anything."""
    assert steps_for(code, [], "ORD-1", booked=False)
    stays = code in OTHERWISE or code == "fulfilled_but_not_paid"
    assert bool(steps_for(code, [], "ORD-1", booked=True)) == stays


def test_an_order_that_is_unresolved_is_to_be_settled_whatever_else_is_found() -> None:
    """Its own break is of no finding."""
    unresolved = [
        each for one in all_scenarios() for each in ledgers_of(one) if each.outcome == "unresolved"
    ]
    assert all("unresolved" in to_settle(each) for each in unresolved)
    assert any(len(to_settle(each)) > 1 for each in unresolved)


def found(identity: str, cause: str, state: str) -> Any:
    """Return a break as a run saw it."""
    seen, life = (type("Part", (), {})() for _ in range(2))
    seen.cause, life.state = cause, state
    return SeenBreak(identity=identity, seen=seen, steps=(), life=life)


RUN = (
    "`tallyhook reconcile run`, then `tallyhook breaks accept ID --reason WHY` for each break of "
    "it in `tallyhook breaks list`"
)
BOOK = (
    "import an order book that states its result (`tallyhook records import`), then `tallyhook "
    "reconcile run`, and accept its break if there is one"
)
OPEN, ACCEPTED, CLOSED = (
    found(name, "paid_twice", state)
    for name, state in (("b1", "open"), ("b2", "accepted"), ("b3", "closed"))
)
ANOTHER = found("b0", "amount_differs", "open")


@for_each(
    ("code", "seen", "booked", "steps"),
    [
        ("paid_twice", None, True, [RUN]),
        ("paid_twice", [], True, []),
        ("paid_twice", [], False, [BOOK]),
        ("paid_twice", [ANOTHER, CLOSED], True, []),
        ("paid_twice", [ANOTHER, CLOSED], False, [BOOK]),
        ("paid_twice", [ACCEPTED], False, []),
        ("paid_twice", [ACCEPTED, OPEN, ANOTHER], True, ["b1"]),
        ("paid_twice", [found("b9", "paid_twice", "assigned"), OPEN], False, ["b1", "b9"]),
        ("fulfilled_but_not_paid", [], True, [BOOK]),
        ("fulfilled_but_not_paid", [found("b", "book_paid_not_received", "accepted")], True, []),
        ("held_back", None, True, [
            "find out why it is held, then `tallyhook orders release ORD-1`"]),
        ("unread_money_event", [], True, [
            "name the event's kind in the source's profile, then `tallyhook reindex`"]),
    ],
)  # fmt: skip
def test_each_break_that_is_not_accepted_is_a_step(
    code: Any, seen: Any, booked: bool, steps: list[str]
) -> None:
    """Without a break, an order book must state the result."""
    accepts = {
        each: f"settle its break, then run `tallyhook breaks accept {each} --reason WHY`"
        for each in ("b1", "b9")
    }
    told = steps_for(code, seen, "ORD-1", booked=booked)
    assert told == [accepts.get(each, each) for each in steps]


@for_each(
    ("why", "ends", "look"),
    [
        ("accounts", None, 30 * DAY),
        ("accounts", 10 * DAY, 10 * DAY),
        ("accounts", 31 * DAY, 30 * DAY),
        ("in_the_reference", None, 30 * DAY),
        ("disputed", None, DAY),
        ("disputable", 90 * DAY, 90 * DAY),
    ],
)
def test_a_restriction_is_judged_again_when_it_may_have_ended(
    why: str, ends: int | None, look: int
) -> None:
    """Daily without a known end; monthly for the books, because a refund may prolong it."""
    assert next_look(T, why, None if ends is None else Instant(T + ends)) == T + look


def test_each_period_is_the_setting_of_its_class() -> None:
    settings = settings_of(
        Path("t.db"), retention_minimum_days=1, retention_accounts_days=2,
        retention_disputes_days=3, retention_unallocated_days=4,
    )  # fmt: skip
    days = (Duration(each * DAY) for each in (1, 2, 3, 4))
    minimum, accounts, disputes, unallocated = days
    assert periods_of(settings) == Periods(
        minimum=minimum, accounts=accounts, disputes=disputes, unallocated=unallocated
    )
    assert periods_of(settings_of(Path("t.db"))) == Periods()


@for_each(
    ("why", "until", "words"),
    [
        ("disputable", T, f"hidden from searches until {format_instant(T)}, then erased "
                          f"automatically ({GROUNDS['claims']})"),
        ("disputed", None, "hidden from searches until that ends, then erased automatically "
                           f"({GROUNDS['claims']})"),
        ("in_the_reference", None, f"hidden from searches permanently ({GROUNDS['accounts']})"),
    ],
)  # fmt: skip
def test_what_stays_says_how_long_it_is_hidden(why: Any, until: Any, words: str) -> None:
    assert KeptData(what="ORD-1", why=why, until=until).restricted_words == words
