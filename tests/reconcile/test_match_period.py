"""Orders belong to a period whole, by when they were placed, else by the first date of money."""

from reconcile.instants import Instant
from reconcile.matching.period import Period, joined_dates, within
from reconcile.matching.rows import BookRow, StatementRow, TakingRow
from reconcile.matching.rules import Coverage, HandMatch, MatchRules, Terms
from tests.reconcile.books_cases import case
from tests.reconcile.books_truth import covered
from tests.rows import for_each

PERIOD = Period(since=Instant(100), until=Instant(200))


def _instant(at: int | None) -> Instant | None:
    return None if at is None else Instant(at)


def took(key: str, at: int) -> TakingRow:
    return TakingRow(key, key, 5, "KES", "shop", "p", "e", Instant(at), Instant(at))


def booked(key: str, placed_at: int | None) -> BookRow:
    return BookRow(key, f"b-{key}", key, "order", 5, "KES", _instant(placed_at))


def settled(key: str, settled_at: int | None, line: str = "s") -> StatementRow:
    return StatementRow(key, line, "p", None, "payment", "KES", 5, 0, 5, _instant(settled_at))


@for_each(
    ("placed_at", "at", "settled_at", "inside"),
    [
        (100, 300, 300, True),
        (99, 150, 150, False),
        (200, 150, 150, False),
        (None, 150, 300, True),
        (None, 300, 150, False),
        (None, None, 150, True),
        (None, None, 300, False),
        (None, None, None, True),
    ],
)
def test_an_order_belongs_to_when_it_was_placed_else_to_its_money(
    placed_at: int | None, at: int | None, settled_at: int | None, inside: bool
) -> None:
    takings, book, statements = within(
        PERIOD,
        takings=[] if at is None else [took("a", at)],
        book=[booked("a", placed_at)],
        statements=[settled("a", settled_at)],
    )
    found = [len(list(each)) for each in (takings, book, statements)]
    assert found == ([0 if at is None else 1, 1, 1] if inside else [0, 0, 0])


@for_each("turned", [1, -1])
@for_each(
    ("at", "placed_at", "settled_at", "inside"),
    [
        ([], [150, 250], [], True),
        ([], [50, 150], [], False),
        ([], [None, 150], [], True),
        ([150, 150], [50, 150], [150], False),
        ([150, 250], [], [], True),
        ([50, 150], [], [150], False),
        ([50], [None], [150], False),
        ([], [], [150, 250], True),
        ([], [None], [150, 50], False),
        ([], [], [150, None], True),
    ],
)
def test_of_several_dates_of_an_order_the_first_counts(
    at: list[int], placed_at: list[int | None], settled_at: list[int | None], inside: bool,
    turned: int,
) -> None:  # fmt: skip
    streams = within(
        PERIOD,
        takings=[took("a", each) for each in at][::turned],
        book=[booked("a", each) for each in placed_at][::turned],
        statements=[settled("a", each) for each in settled_at][::turned],
    )
    expected = [len(at), len(placed_at), len(settled_at)] if inside else [0, 0, 0]
    assert [len(list(each)) for each in streams] == expected


SETTLED = settled("a", 50)
BOOKED = booked("a", 50)


@for_each(
    ("book", "statements", "expected"),
    [
        ([], [SETTLED], False),
        ([BOOKED], [SETTLED], False),
        ([BOOKED._replace(group="G")], [SETTLED], True),
        ([BOOKED, BOOKED._replace(line_id="more")], [SETTLED], True),
        ([BOOKED], [], True),
        ([BOOKED], [SETTLED, SETTLED._replace(line_id="more")], True),
        ([BOOKED], [SETTLED._replace(gross=6)], True),
        ([BOOKED], [SETTLED._replace(currency="UGX")], True),
        ([BOOKED], [SETTLED._replace(kind="refund")], True),
        ([BOOKED], [SETTLED._replace(payment="another")], True),
        ([BOOKED], [SETTLED._replace(payment=None)], False),
    ],
)
def test_of_an_order_beyond_the_period_is_reported_what_its_line_does_not_settle(
    book: list[BookRow], statements: list[StatementRow], expected: bool
) -> None:
    outside: list[str] = []
    streams = within(
        PERIOD,
        takings=[took("a", 50)],
        book=book,
        statements=statements,
        outside=lambda group: outside.append(group.key),
    )
    assert [list(each) for each in streams] == [[], [], []]
    assert outside == ["a"] * expected


def test_lines_of_no_order_belong_to_their_own_dates() -> None:
    lines = [settled("", 50, "early"), settled("", 150, "in"), settled("", 250, "late")]
    streams = within(
        PERIOD,
        takings=[took("a", 250), took("b", 250)],
        book=[booked("a", 150)],
        statements=[*lines, settled("b", 150, "b")],
    )
    assert [row.key for row in streams[0]] == ["a"]
    assert [row.key for row in streams[1]] == ["a"]
    assert [row.line_id for row in streams[2]] == ["in"]


def test_a_book_line_whose_reference_has_no_key_belongs_to_its_own_date() -> None:
    book = [booked("", 50), booked("", 150), booked("", 250)]
    streams = within(
        PERIOD, takings=[], book=book, statements=[settled("", 250, "late"), settled("", 150, "in")]
    )
    assert [list(streams[0]), list(streams[1])] == [[], book[1:2]]
    assert [row.line_id for row in streams[2]] == ["in"]


def test_streams_may_be_read_one_after_the_other() -> None:
    keys = [f"k{n:02}" for n in range(40)]
    takings, book, statements = within(
        PERIOD,
        takings=[took(key, 100 + n) for n, key in enumerate(keys)],
        book=[booked(key, 90 + n) for n, key in enumerate(keys) if n % 2],
        statements=[settled(key, 0) for key in keys],
    )
    wanted = [key for n, key in enumerate(keys) if not n % 2 or n >= 10]
    assert [row.key for row in statements] == wanted
    assert [row.key for row in takings] == wanted
    assert [row.key for row in book] == [key for n, key in enumerate(keys) if n % 2 and n >= 10]


def test_a_period_without_an_end_is_open_there() -> None:
    assert Instant(5) in Period()
    inside = [Instant(at) in PERIOD for at in (99, 100, 199, 200)]
    assert inside == [False, True, True, False]
    assert Instant(10**15) in Period(since=Instant(100))


@for_each(("source", "elsewhere"), [("shop", set()), ("", set()), ("other", {"s"})])
def test_only_a_line_of_its_own_source_plainly_settles_an_order(
    source: str, elsewhere: set[str]
) -> None:
    found = set[str]()
    line = settled("a", 250)._replace(source=source)
    streams = within(PERIOD, takings=[took("a", 150)], book=[], statements=[line], elsewhere=found)
    for each in streams:
        list(each)
    assert found == elsewhere


@for_each(
    ("takings", "statements", "plainly"),
    [
        ([took("a", 150)], [settled("a", 250)], True),
        ([took("a", 150), took("a", 160)], [settled("a", 250)], False),
        ([], [settled("a", 250)], False),
        ([took("a", 150)], [settled("a", 250), settled("a", 250, "t")], False),
        ([took("a", 150)._replace(whole=case().pays().takings[0])], [settled("a", 250)], False),
        ([took("a", 150)], [settled("a", 250)._replace(kind="dispute")], False),
        ([took("a", 150)], [settled("a", 250)._replace(payment=None)], True),
        ([took("a", 150)], [settled("a", 250)._replace(payment="q")], False),
        ([took("a", 150)], [settled("a", 250)._replace(gross=6)], False),
        ([took("a", 150)], [settled("a", 250)._replace(gross=4)], False),
        ([took("a", 150)], [settled("a", 250)._replace(currency="UGX")], False),
    ],
)
def test_one_payment_and_one_line_of_its_amount_are_plainly_settled(
    takings: list[TakingRow], statements: list[StatementRow], plainly: bool
) -> None:
    found = set[str]()
    book = [booked("a", 150)]
    for each in within(
        PERIOD, takings=takings, book=book, statements=statements, elsewhere=found
    ):  # fmt: skip
        list(each)
    assert found == (set() if plainly else {row.line_id for row in statements})


@for_each(
    ("placed_at", "settled_at", "elsewhere"),
    [
        (150, 250, True),
        (150, 150, False),
        (150, 199, False),
        (150, 200, True),
        (150, 99, True),
        (150, None, True),
        (50, 150, True),
        (50, 100, True),
        (50, 99, False),
        (50, 250, False),
        (50, None, False),
        (None, 150, False),
        (None, 250, False),
        (None, None, True),
    ],
)
def test_a_line_is_elsewhere_where_its_order_is_of_another_period_than_its_date(
    placed_at: int | None, settled_at: int | None, elsewhere: bool
) -> None:
    found = set[str]()
    book = [booked("a", placed_at)]
    lines = [settled("a", settled_at)]
    for each in within(PERIOD, takings=[], book=book, statements=lines, elsewhere=found):
        list(each)
    assert found == ({"s"} if elsewhere else set())


def dates(
    takings: list[TakingRow],
    statements: list[StatementRow],
    book: list[BookRow] | None = None,
    hands: tuple[tuple[str, str], ...] = (),
) -> dict[str, int]:
    """Return by name the rows that are joined with rows of another date."""
    asked = Terms(
        rules=MatchRules(),
        as_of=Instant(999),
        coverage=Coverage(statements=(covered("shop", 0, 999),)),
    )
    return dict(
        joined_dates(
            takings=takings,
            book=book or [],
            statements=statements,
            hands=[HandMatch(one=one, other=other) for one, other in hands],
            settles=asked.settles,
        )
    )


@for_each(
    ("taken", "stated", "joined"),
    [
        ("shop", "shop", True),
        ("shop", "", True),
        ("shop", "other", False),
        ("other", "shop", True),  # it has no statements of its own
        ("other", "third", True),
    ],
)
def test_a_payment_joins_lines_of_its_own_source(taken: str, stated: str, joined: bool) -> None:
    line = settled("b", 300)._replace(source=stated)
    assert dates([took("a", 150)._replace(source=taken)], [line]) == ({"b": 150} if joined else {})


@for_each(
    ("takings", "found"),
    [
        ([took("a", 150)], {"b": 150}),
        ([took("a", 300)], {"b": 300}),
        ([took("a", 300)._replace(payment="q")], {}),
        ([took("a", 150)._replace(minor=0)], {}),
        ([took("a", 150), took("c", 140)], {"a": 140, "b": 140}),
    ],
)
def test_only_money_that_moved_joins_by_its_payment(
    takings: list[TakingRow], found: dict[str, int]
) -> None:
    line = settled("b", 300)
    assert dates(takings, [line]) == found


def test_what_a_person_joins_is_named_by_line_or_order() -> None:
    line = settled("", 300, "stm_x.1")._replace(payment=None)
    book = [booked("B", 120)._replace(key="b", line_id="bok_b.1")]
    assert dates([took("a1", 150)], [line], hands=(("stm_x", "A-1"),)) == {"\x00stm_x": 150}
    assert dates([took("a1", 150)], [], book, hands=(("A 1", "bok_b"),)) == {"a1": 120}
    assert dates([took("a1", 110)], [], book, hands=(("A 1", "bok_b"),)) == {"a1": 120}
    assert dates([], [line], book, hands=(("bok_b", "stm_x"),)) == {"\x00stm_x": 120}
