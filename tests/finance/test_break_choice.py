"""Choice of breaks by what is said of them, and the mistakes that are reported."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from app.core.errors import UsageError
from app.finance.break_acts import BreakAct, SeenBreak
from app.finance.break_choice import ChosenBreaks, act_on_chosen, few_breaks, read_choice, sums_of
from reconcile.instants import DAY
from reconcile.matching.breaks import Break, Step, life
from reconcile.matching.causes import BreakCause
from reconcile.money import Money
from tests.reconcile.books_truth import AS_OF
from tests.rows import for_each


def seen(
    name: str,
    minor: int = 1_000,
    *,
    currency: str = "KES",
    cause: BreakCause = "not_settled",
    days: int = 10,
    done: str = "",
) -> SeenBreak:
    """Build a break of an order of this name, and what was done to it."""
    found = Break(
        cause=cause,
        order=name,
        payment=f"pay_{name}",
        subject=None,
        money=Money(minor=minor, currency=currency),
        since=AS_OF - days * DAY,
        cites=(),
    )
    steps = [Step(at=AS_OF, kind="opened", money=found.money)]
    if done == "Ann":
        steps.append(Step(at=AS_OF, kind="assigned", money=found.money, by="boss", value="Ann"))
    elif done:
        steps.append(Step(at=AS_OF, kind=done, money=found.money, by="boss"))  # type: ignore[arg-type]
    return SeenBreak(identity=name, seen=found, steps=tuple(steps), life=life(steps))


ALL = [
    seen("small", 999),
    seen("exact", 1_000),
    seen("large", 150_000, days=40),
    seen("yen", 999, currency="JPY"),
    seen("late", 500, cause="late_money", days=31),
    seen("anns", 700, done="Ann"),
    seen("gone", 1, done="accepted"),
    seen("two words", 10, currency="USD", cause="overpaid"),
]


@for_each(
    ("where", "meant"),
    [
        ("cause=not_settled", "small exact large yen anns"),
        ("cause=not_settled currency=KES amount<10.00", "small anns"),
        ("currency=KES amount<=10", "small exact late anns"),
        ("currency=KES amount>10.00", "large"),
        ("currency=KES amount>=10 amount<1000", "exact"),
        ("currency=JPY amount=999", "yen"),
        ("age>30", "large late"),
        ("age>=31d age<40d", "late"),
        ("state=accepted", "gone"),
        ("state=assigned", "anns"),
        ("assignee=Ann", "anns"),
        ("assignee= age<30 currency=KES", "small exact"),
        ("order=large", "large"),
        ("'order=two words'", "two words"),
        ("payment=pay_yen", "yen"),
        ("order=nobody", ""),
    ],
)
def test_those_of_which_all_is_so_are_meant(where: str, meant: str) -> None:
    choice = read_choice(where)
    assert [each.identity for each in ALL if choice.fits(each, as_of=AS_OF)] == (
        [meant] if meant == "two words" else meant.split()
    )


@for_each(
    ("where", "why"),
    [
        ("", "write a condition"),
        ("everything", "'everything' is not a condition"),
        ("colour=red", "not a condition"),
        ("cause=lost", "cause must be one of"),
        ("cause<not_settled", "can only be compared with ="),
        ("currency=XXY", "is not a currency"),
        ("amount<10", "give currency="),
        ("currency=KES amount<ten", "amount: "),
        ("currency=JPY amount<1.5", "decimals"),
        ("age>a-month", "whole number of days"),
        ("'order=x", "quotation mark is not closed"),
        ("cause=not_settled cause=late_money", "cause is given twice"),
        ("amount=1 =", "not a condition"),
    ],
)
def test_what_means_nothing_is_refused(where: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        read_choice(where)


def test_money_is_added_up_by_cause_and_currency() -> None:
    sums = [(each.cause, each.count, str(each.money)) for each in sums_of(ALL[:5])]
    assert sums == [
        ("late_money", 1, "KES 5.00"),
        ("not_settled", 1, "JPY 999"),
        ("not_settled", 3, "KES 1,519.99"),
    ]


@for_each(
    ("where", "meant", "open_"),
    [
        ("currency=KES amount<10", False, True),
        ("currency=KES amount=0", False, True),
        ("currency=KES amount>=0 cause=unresolved", False, True),
        ("currency=UGX amount<10", False, False),
        ("currency=KES amount<10 cause=not_settled", False, False),
        ("currency=KES", True, False),
    ],
)
def test_what_is_not_known_is_no_small_sum(where: str, meant: bool, open_: bool) -> None:
    """An unresolved order of which nobody knows what is at stake: no amount means it, and it is
    counted as left out. One with a sum in doubt is as any other."""
    choice = read_choice(where)
    doubt = seen("doubt", 0, cause="unresolved")
    assert choice.fits(doubt, as_of=AS_OF) is meant
    assert choice.leaves_open(doubt, as_of=AS_OF) is open_
    known = seen("known", 5, cause="unresolved")
    assert not choice.leaves_open(known, as_of=AS_OF)
    assert read_choice("currency=KES amount<10").fits(known, as_of=AS_OF)


async def test_what_is_not_known_is_counted_as_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    here = [seen("small", 999), seen("doubt", 0, cause="unresolved")]

    async def living(*context: object, **words: object) -> AsyncIterator[list[SeenBreak]]:
        yield here

    monkeypatch.setattr("app.finance.break_acts.living_breaks", living)
    context: Any = SimpleNamespace(clock=SimpleNamespace(now=lambda: AS_OF))
    chosen = await few_breaks(context, "currency=KES amount<10")
    assert [each.identity for each in chosen.of] == ["small"]
    (left,) = chosen.left_out()
    assert left.startswith("Left out: 1 break: the amount at stake is not known")
    with pytest.raises(UsageError, match=r"no break is chosen.*Left out: 1 break.*separately$"):
        await few_breaks(context, "currency=KES amount<1")
    assert (await few_breaks(context, "currency=KES")).left_out() == []


def test_a_mark_is_of_what_is_shown() -> None:
    chosen = ChosenBreaks(of=[seen("a")], lines={"a": "stm_1"})
    others = [
        ChosenBreaks(of=[seen("a"), seen("b")], lines={"a": "stm_1"}),
        ChosenBreaks(of=[seen("a", 999)], lines={"a": "stm_1"}),
        ChosenBreaks(of=[seen("a", done="accepted")], lines={"a": "stm_1"}),
        ChosenBreaks(of=[seen("a")], lines={"a": "stm_2"}),
    ]
    assert chosen.mark == ChosenBreaks(of=[seen("a")], lines={"a": "stm_1"}).mark
    assert len({each.mark for each in (chosen, *others)}) == 5
    assert len(chosen.mark) == 16


async def test_where_a_later_part_is_refused_the_earlier_ones_are_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[str] = []

    async def match(context: object, name: str, **given: object) -> None:
        if len(taken) == 2:
            raise UsageError("these breaks have changed")
        taken.append(name)

    monkeypatch.setattr("app.finance.break_acts.match_lines", match)
    context: Any = None
    chosen = ChosenBreaks(of=ALL[:3], lines={each.identity: "stm_1" for each in ALL[:3]})
    doing = BreakAct(kind="matched", by="ann", reason="a slip")
    with pytest.raises(UsageError, match="2 of 3 breaks were done, then the request failed: these"):
        await act_on_chosen(context, chosen, doing)
    with pytest.raises(UsageError, match=r"^these breaks have changed$"):
        await act_on_chosen(context, chosen, doing)
    assert len(taken) == 2
