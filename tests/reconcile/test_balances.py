"""Statements of a bank account follow each other, and each begins where the one before it ended."""

from reconcile.matching.balances import StatementBalances, difference_state, followed
from tests.rows import for_each


def stated(days: str, opening: int, closing: int, **more: object) -> StatementBalances:
    """Return a statement of days of November, such as `1-3`."""
    opened, _, closed = days.partition("-")
    given = {"account": "main", "currency": "KES", **more}
    return StatementBalances(
        opened=f"2026-11-{int(opened):02}",
        closed=f"2026-11-{int(closed):02}",
        opening=opening,
        closing=closing,
        **given,  # type: ignore[arg-type]
    )


@for_each(
    ("after", "expected"),
    [
        ([], "open"),
        ([stated("3-4", 9, 5)], "confirmed"),
        ([stated("4-4", 9, 5)], "confirmed"),
        ([stated("4-4", 8, 5)], "reopened"),
        ([stated("3-3", 8, 9), stated("3-3", 9, 7, place=1)], "confirmed"),
        ([stated("2-3", 0, 9, of_import=7)], "open"),
        ([stated("1-30", 1, 2), stated("9-9", 9, 9)], "confirmed"),
        ([stated("5-5", 8, 8), stated("4-4", 9, 8)], "confirmed"),
        ([stated("4-4", 8, 5, account="other"), stated("4-4", 8, 5, currency="EUR")], "open"),
    ],
)  # fmt: skip
def test_the_next_statement_confirms_a_closing_balance_or_does_not(
    after: list[StatementBalances], expected: str
) -> None:
    first = stated("2-3", 0, 9, difference=1)
    for found in ([first, *after], [*after, first]):
        states = {difference_state(one, then) for one, then in followed(found) if one == first}
        assert states <= {expected}
        assert states or after[0].stated == first.stated


def test_a_statement_of_one_day_is_followed_by_that_of_the_next_day() -> None:
    first, then = stated("2-2", 0, 9), stated("3-3", 9, 5)
    assert list(followed([then, first])) == [(first, then), (then, None)]
