"""Files in every form, dialect and with cells that people have, beside readers of our own.

What the product takes of a file must be what `csv`, `openpyxl`, `json` and small readers by hand
take of it: to the minor unit, the instant and the reference. What it refuses, they must refuse.
`CORPUS_SEED=2` draws others; files that differ are kept, each with its mapping.
"""

import gzip
import io
import os
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from app.finance.files.bank import BankForm
from app.finance.files.bank_formats import open_bank_table
from app.finance.files.banks.entries import HEADING
from app.finance.files.books import BookForm
from app.finance.files.containers import unpacked
from app.finance.files.line_forms import Understanding
from app.finance.files.mapping import read_mapping
from app.finance.files.opening import open_table
from app.finance.files.statements import StatementForm
from app.finance.files.tables import RefusedTable
from tests.corpus.cells import same_moment
from tests.corpus.statements import Statement, make_statement, read_statement
from tests.corpus.tables import NAMES, Expected, Kind, Table, make_table, read_by_others

FILES = 2_000 if os.environ.get("TALLYHOOK_LONG") else 100
SEED: Final = int(os.environ.get("CORPUS_SEED", "1"))

FORMS: Final[dict[Kind, Callable[[Any], Any]]] = {
    "book": BookForm,
    "statement": lambda mapping: StatementForm(mapping, source="shop"),
    "bank": BankForm,
}
FIELDS: Final = {
    "book": BookForm.FIELDS,
    "statement": StatementForm.FIELDS,
    "bank": BankForm.FIELDS,
}


def read_by_product(path: Path, kind: Kind, mapping: str) -> Expected:
    """Read the file as an import does."""
    said = read_mapping(mapping.encode(), FIELDS[kind])
    form = FORMS[kind](said)
    reference, amount, date = NAMES[kind]
    rows, refused, file_refused = [], dict[int, str](), None
    opens = open_bank_table if kind == "bank" else open_table
    try:
        with unpacked(path) as inside:
            table = opens(inside or path, said, FIELDS[kind])
            understanding = Understanding(table, form, said)
            for found in understanding.batches():
                for row in map(form.shown, found.rows):
                    money = row[amount]
                    units = int(money["amount"].replace(".", ""))
                    name = row[reference] or ""
                    if table.heading == HEADING:  # of a bank's own formats both references count
                        name = f"{name} | {row['reference']}"
                    rows.append((row["row"], name, units, money["currency"], row[date]))
                refused |= {each.row: f"{each.column}: {each.sentence}" for each in found.problems}
    except RefusedTable as error:
        file_refused = error.problem.sentence
    return Expected(rows=rows, refused=refused, file_refused=file_refused)


def differences(ours: Expected, theirs: Expected) -> list[str]:
    """Return what the two say differently, one sentence each."""
    if ours.file_refused or theirs.file_refused:
        if bool(ours.file_refused) == bool(theirs.file_refused):
            return []
        return [f"the file is refused: {ours.file_refused!r}, by others {theirs.file_refused!r}"]
    found = []
    by_number = {row[0]: row for row in theirs.rows}
    for row in ours.rows:
        other = by_number.pop(row[0], None)
        if other is None:
            why = theirs.refused.get(row[0], "it is no row")
            found.append(f"row {row[0]} was taken as {row[1:]}, and others refuse it: {why}")
        elif row[:4] != other[:4] or not same_moment(row[4], other[4]):
            found.append(f"row {row[0]} was taken as {row[1:]}, and others read {other[1:]}")
    for number, other in by_number.items():
        why = ours.refused.get(number, "it was dropped without a word")
        found.append(f"row {number}, {other[1:]}, was not taken: {why}")
    read = {row[0] for row in ours.rows} | {row[0] for row in theirs.rows}
    for number in (ours.refused.keys() ^ theirs.refused.keys()) - read:
        why = ours.refused.get(number) or f"nothing, and others refuse it: {theirs.refused[number]}"
        found.append(f"of row {number}, which others do not read, is said: {why}")
    return found


def packed(content: bytes, name: str, number: int) -> bytes:
    """Return every tenth file as gzip, and every eleventh as the only file of a ZIP."""
    if number % 10 == 0:
        return gzip.compress(content)
    if number % 11:
        return content
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, content)
    return file.getvalue()


def made(number: int) -> tuple[Table | Statement, Expected]:
    random = Random(f"{SEED}-{number}")
    if number % 3 == 0:
        statement = make_statement(random)
        return statement, read_statement(statement)
    table = make_table(random)
    return table, read_by_others(table)


@pytest.mark.disk  # its folder is kept
@pytest.mark.usefixtures("workbooks_here")
def test_every_row_is_what_others_read_of_it_and_every_refusal_has_a_reason(
    tmp_path: Path,
) -> None:
    counts: Counter[str] = Counter()
    failed = []
    for number in range(FILES):
        table, theirs = made(number)
        path = tmp_path / f"{number}-{table.name}"
        path.write_bytes(packed(table.content, table.name, number))
        ours = read_by_product(path, table.kind, table.mapping())
        differing = differences(ours, theirs)
        if differing:
            failed.append((path.name, differing))
            path.with_suffix(".toml").write_text(table.mapping())
        else:
            path.unlink()
        counts["rows"] += len(ours.rows)
        counts["refused"] += len(ours.refused)
        counts[table.form] += 1
    print(f"{FILES} files of seed {SEED}: {dict(counts)}, {len(failed)} differ")
    told = "\n".join(f"{name}: {each}" for name, all_of in failed[:20] for each in all_of[:3])
    assert not failed, f"seed {SEED}; the files are in {tmp_path}\n{told}"
