"""Payments that were captured in several parts, against the statement: no part is lost, and none is
taken for another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconcile.matching.breaks import Break
from tests.reconcile.books_cases import case, decided, stands
from tests.reconcile.books_truth import Case


def in_parts(*parts: int, event: str = "") -> Case:
    """An order whose one payment was captured in these parts, and its book line.

    event  on which all of them but the first rest; else each on one of its own
    """
    made = case(minor=sum(parts))
    more = [
        replace(made.taken(minor=minor), cites=(event or f"evt_{n}",))
        for n, minor in enumerate(parts[1:], 2)
    ]
    return made.pays(minor=parts[0], more=tuple(more)).books()


def breaks(made: Case) -> list[tuple[str, int, str | None]]:
    """Cause, money and subject of what is told."""
    found = [each for each in decided(made)[0] if isinstance(each, Break)]
    assert len({each.identity for each in found}) == len(found)
    return [(each.cause, each.money.minor, each.subject) for each in found]


@pytest.mark.parametrize(("event", "subjects"), [
    ("", ["checkout", "checkout:evt_2", "checkout:evt_3"]),
    ("evt_x", ["checkout", "checkout:evt_x", "checkout:evt_x#2"]),
])  # fmt: skip
def test_each_part_of_a_payment_that_no_statement_has_is_missed(
    event: str, subjects: list[str]
) -> None:
    """Once, by itself: none stands for another of its payment, whatever its amount."""
    made = in_parts(1_000, 300, 300, event=event)
    told = zip((1_000, 300, 300), subjects, strict=True)
    assert breaks(made) == [("not_settled", minor, subject) for minor, subject in told]
    assert stands(decided(made)[1], "settlement") == ["not_settled"]
