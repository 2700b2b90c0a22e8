"""JSON Lines: exact numbers, each name once, nothing within anything."""

import json
from pathlib import Path

from tests.finance.files.reading import book
from tests.rows import for_each

GOOD = '{"Reference": "A", "amount": 1500.10, "currency": "KES", "other": "x"}\n'


def test_objects_become_rows_whatever_the_order_of_their_names(tmp_path: Path) -> None:
    content = GOOD + '\n{"currency": "KES", "status": null, "amount": "2.50", "reference": 7}\n'
    rows, problems = book(content, folder=tmp_path)
    assert not problems
    assert [(row["row"], row["reference"], row["amount"]["amount"]) for row in rows] == [
        (1, "A", "1500.10"), (3, "7", "2.50"),
    ]  # fmt: skip


def test_numbers_are_exact_and_do_not_depend_on_declared_marks(tmp_path: Path) -> None:
    content = GOOD.replace("1500.10", "90071992547409.93") + GOOD.replace("1500.10", '"1.234,50"')
    rows, problems = book(content, 'decimal = ","\nthousands = "."', folder=tmp_path)
    assert not problems
    assert [row["amount"]["amount"] for row in rows] == ["90071992547409.93", "1234.50"]


@for_each(("line", "said"), [
    ('{"reference": "A", "reference": "B"}', "a name twice"),
    ('{"reference": "A", "Reference": "B"}', "twice"),
    ('{"amount": NaN}', "NaN"), ('{"amount": -Infinity}', "NaN or Infinity"),
    ('{"amount": 1e999999999}', "too large"), ('{"amount": ' + "1" * 101 + "}", "100 characters"),
    ('{"amount": true}', "neither a text nor a number"), ('{"amount": [1]}', "neither"),
    ("[1]", "not a JSON object"), ("{", "the error is at character"), ('{"a": 1} x', "the error"),
    ('{"a":' * 100_000, "nested too deeply"),
    ('{"reference": "' + "x" * 200_000 + '"}', "characters"),
])  # fmt: skip
def test_a_line_that_is_no_row_is_one_row_with_a_problem(
    line: str, said: str, tmp_path: Path
) -> None:
    last = GOOD.replace('"A"', '"Z"')
    rows, problems = book(GOOD + line + "\n\n" + last, folder=tmp_path)
    assert [(row["row"], row["reference"]) for row in rows] == [(1, "A"), (4, "Z")]
    ((row, _, sentence),) = problems
    assert (row, said in sentence) == (2, True)


def test_every_bad_line_is_reported_even_where_they_are_more_than_the_good(tmp_path: Path) -> None:
    bad = '{"reference": "B"\n' * 3 + '{"reference": "C", "amount": true, "currency": "KES"}\n'
    rows, problems = book(bad + GOOD, folder=tmp_path)
    assert [row["row"] for row in rows] == [5]
    assert [each[:2] for each in problems] == [(1, None), (2, None), (3, None), (4, "amount")]


ORDERS = [{"reference": f"A-{n}", "amount": 1, "currency": "KES"} for n in range(2_000)]


@for_each(("content", "row", "said"), [
    (json.dumps({"orders": ORDERS}, indent=1), 1, "write one object on each line"),
    ('{"orders": [\n' + ",\n".join(map(json.dumps, ORDERS)) + "\n]}\n", 1, "write one object"),
    (",\n".join(map(json.dumps, ORDERS)), 1, "write one object on each line"),
    (json.dumps(ORDERS, indent=1), 1, "one JSON array"), (json.dumps(ORDERS), 1, "one JSON array"),
    ("\ufeff\n [ ]", 1, "one JSON array"),
    ("{\n" * 5_000, 1, "write one object on each line"),
    ("{x", 1, "the error is at character 2"),
    (GOOD.encode() + b"{\xff\n" + GOOD.encode(), 2, "is not utf-8"),
    (GOOD.encode() + b"{\0\n" + GOOD.encode(), 2, "zero byte"),
    (GOOD + "{" + "x" * 2_000_000, 2, "longer than"),
])  # fmt: skip
def test_what_is_no_json_lines_is_one_problem(
    content: str | bytes, row: int, said: str, tmp_path: Path
) -> None:
    rows, problems = book(content, folder=tmp_path)
    assert (rows, [each[:2] for each in problems]) == ([], [(row, None)])
    assert said in problems[0][2]


def test_a_file_without_any_known_name_is_refused(tmp_path: Path) -> None:
    _, problems = book('{"x": 1}\n', folder=tmp_path)
    assert "has none of the columns" in problems[0][2]
