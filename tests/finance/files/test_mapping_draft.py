"""Mappings are drafted from choices: what is shown of a file, and the TOML that reads it."""

from pathlib import Path

import pytest

from app.finance.files.books import BookForm
from app.finance.files.mapping import FileMapping, SumOf, read_mapping
from app.finance.files.mapping_draft import IGNORED, MappingDraft, preview_table
from app.finance.files.statements import StatementForm
from app.finance.files.tables import RefusedTable
from tests.rows import for_each

OWN = (
    'Account 254712345678\n"Datum";"Beleg ""Nr""";"Eingang";"Ausgang";"Art";"Tel"\n'
    "20.11.2026;R-1;10,00;;Zahlung;+254712345678\n21.11.2026;R-2;;2,50;Gebühr;\n"
)


def test_the_heading_is_the_fullest_row_and_numbers_are_masked(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(OWN)
    seen = preview_table(path)
    assert list(seen.columns) == ["Datum", 'Beleg "Nr"', "Eingang", "Ausgang", "Art", "Tel"]
    assert seen.rows[0][:5] == ["20.11.2026", "R-1", "10,00", "", "Zahlung"]
    assert "254712345678" not in str(seen.rows)
    assert seen.words["Art"] == ["Zahlung", "Gebühr"]
    path.write_text(OWN + "22.11.2026;R-3;;1,00;;\n")
    assert preview_table(path).words["Art"] == ["Zahlung", "Gebühr", ""]


@for_each("content", ['{"a": 1}\n', "%PDF-1.7\n", ""])
def test_a_file_without_columns_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "own"
    path.write_text(content)
    with pytest.raises(RefusedTable):
        preview_table(path)


def test_a_draft_is_a_mapping_that_says_what_was_chosen() -> None:
    fields = StatementForm.FIELDS
    draft = MappingDraft(
        kind="statement",
        columns={"payment_reference": 'Beleg "Nr"', "gross": "Eingang", "type": "Art", "fee": ""},
        less={"gross": "Ausgang"},
        words={"type": {"Zahlung": "payment", "Gebühr": IGNORED, "Rest": "", "": "fee"}},
        keys={"decimal": ",", "thousands": ".", "dates": "day_first", "zone": ""},
        defaults={"currency": "EUR", "payout": ""},
    )
    read = read_mapping(draft.toml(fields, ["Fee"]).encode(), fields)
    expected = FileMapping(kind="statement")
    assert read.kind == expected.kind
    assert read.columns["payment_reference"] == 'Beleg "Nr"'
    assert read.columns["fee"] == "", "the file has a column of this name, and it was not chosen"
    assert "net" not in read.columns
    assert read.made["gross"] == SumOf(add=("Eingang",), subtract=("Ausgang",))
    assert read.words == {"type": {"Zahlung": "payment", "": "fee"}}
    assert read.signs == "none"
    assert read.shape.ignore == {"Art": ("Gebühr",)}
    assert (read.marks.decimal, read.marks.thousands, read.dates) == (",", ".", "day_first")
    assert read.defaults == {"currency": "EUR"}


@for_each("name", ['a"b', "a\\b", "ä€", "tab\tname", "\x7f"])
def test_any_column_name_survives_as_toml(name: str) -> None:
    draft = MappingDraft(kind="book", columns={"reference": name})
    read = read_mapping(draft.toml(BookForm.FIELDS, []).encode(), BookForm.FIELDS)
    assert read.columns == {"reference": name}
