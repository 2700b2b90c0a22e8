"""Every place where text is stored is listed, with what an erasure does there."""

import subprocess
import sys

from sqlalchemy import Column, Integer, LargeBinary, MetaData, Table, Text

from app.database import marks
from app.database.tables import metadata
from app.privacy.erase_store import TABLES
from app.privacy.places import FILES, columns

GO = ("attachment_files.", "inbox.", "rejections.", "suspects.", "unanswered.", "unread_values.")
"""Rows that go whole, with what of them is not personal."""


def unmarked(tables: MetaData) -> list[str]:
    """Return columns for text, JSON or bytes that have no mark."""
    return [
        f"{table.name}.{column.name}"
        for table in tables.tables.values()
        for column in table.columns
        if not isinstance(column.type, Integer) and marks.MARK not in column.info
    ]


def test_every_column_that_is_no_number_has_a_mark() -> None:
    assert unmarked(metadata) == []


def test_a_new_column_without_a_mark_is_found() -> None:
    tables, marked = MetaData(), {marks.MARK: marks.FACTS}
    Table("t", tables, Column("a", Text), Column("b", Text, info=marked), Column("c", LargeBinary))
    assert unmarked(tables) == ["t.a", "t.c"]


def test_what_is_emptied_is_vacuumed() -> None:
    """PostgreSQL keeps the rows as they were until then."""
    emptied = {where.partition(".")[0] for where, mark in columns() if mark.erased != "kept"}
    assert set(TABLES) == emptied | {"suspects"}, "from which a row is deleted once it was read"


def test_what_is_kept_says_why_and_what_is_personal_goes_or_says_why_not() -> None:
    for where, mark in (*columns(), *FILES):
        assert mark.what, where
        assert (mark.erased == "kept") is bool(mark.because), where
        assert mark.erased == "kept" or mark.personal != "not" or where.startswith(GO), where


def test_the_tables_are_loaded_only_where_places_are_asked_for() -> None:
    """They take a fifth of a second."""
    asked = "import sys, app.privacy.erase_finding; print('app.database.tables' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", asked], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"
