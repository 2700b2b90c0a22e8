"""Every place where text is stored is listed, with what an erasure does there."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sqlalchemy import Column, LargeBinary, MetaData, Table, Text

from app.database.tables import metadata
from app.privacy.erase_store import TABLES
from app.privacy.places import EVERY, PLACES, Place

PAGE = Path(__file__).parents[2] / "app" / "privacy" / "README.md"

GO = ("attachment_files.", "rejections.", "unanswered.")
"""Rows that go whole, with what of them is not personal."""


def misfits(tables: MetaData, places: Iterable[Place]) -> list[str]:
    """Columns of text or bytes that no place names, and places that are no such column."""
    columns = {
        f"{table.name}.{column.name}"
        for table in tables.tables.values()
        for column in table.columns
        if isinstance(column.type, Text | LargeBinary)
    }
    return sorted(columns ^ {each.where for each in places})


def test_every_column_of_text_is_listed_once() -> None:
    assert misfits(metadata, PLACES) == []
    assert len({each.where for each in EVERY}) == len(EVERY)


def test_what_is_emptied_is_vacuumed() -> None:
    """PostgreSQL keeps the rows as they were until then."""
    emptied = {each.where.partition(".")[0] for each in PLACES if each.effect != "kept"}
    assert set(TABLES) == emptied | {"suspects"}, "from which a row is deleted once it was read"


def test_a_new_column_without_a_mark_is_found() -> None:
    tables = MetaData()
    Table("meta", tables, Column("name", Text), Column("value", Text), Column("told", LargeBinary))
    listed = [each for each in PLACES if each.where.startswith("meta.")]
    assert misfits(tables, listed) == ["meta.told"]
    assert misfits(MetaData(), listed) == ["meta.name", "meta.value"]


def test_what_is_kept_says_why_and_what_is_personal_goes_or_says_why_not() -> None:
    for each in EVERY:
        assert each.why, each.where
        assert (each.effect == "kept") is bool(each.because), each.where
        assert each.effect == "kept" or each.mark != "not" or each.where.startswith(GO), each.where
