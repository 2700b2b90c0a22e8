"""JSON Lines: exact numbers, each name once, nothing within anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.files.reading import book

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


@pytest.mark.parametrize(("line", "said"), [
    ('{"reference": "A", "reference": "B"}', "same name twice"),
    ('{"reference": "A", "Reference": "B"}', "twice"),
    ('{"amount": NaN}', "NaN"), ('{"amount": -Infinity}', "NaN or Infinity"),
    ('{"amount": 1e999999999}', "too large"), ('{"amount": ' + "1" * 101 + "}", "100 characters"),
    ('{"amount": true}', "neither a text nor a number"), ('{"amount": [1]}', "neither"),
    ("[1]", "no JSON object"), ("{", "breaks at character"), ('{"a": 1} x', "breaks"),
    ('{"a":' * 100_000, "nested too deeply"),
    ('{"reference": "' + "x" * 200_000 + '"}', "characters"),
])  # fmt: skip
def test_a_line_that_is_no_row_is_refused_with_its_number(
    line: str, said: str, tmp_path: Path
) -> None:
    _, problems = book(GOOD + line + "\n", folder=tmp_path)
    assert problems[0][0] == 2
    assert said in problems[0][2]


def test_a_file_without_any_known_name_is_refused(tmp_path: Path) -> None:
    _, problems = book('{"x": 1}\n', folder=tmp_path)
    assert "names none of" in problems[0][2]
