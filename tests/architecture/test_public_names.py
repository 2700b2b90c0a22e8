"""Public names: none appears or vanishes unnoticed (tests/architecture/public_names.py)."""

from pathlib import Path

import pytest

from tests.architecture import public_names
from tests.architecture.public_names import SECTIONS, differences, promised, write

WAS = {"alarms": frozenset({"clock", "silence"}), "outcomes": frozenset({"paid"})}


@pytest.mark.parametrize("section", sorted({*SECTIONS, *promised()}))
def test_the_names_are_those_of_the_list(section: str) -> None:
    names = SECTIONS.get(section, tuple)()
    assert not list(differences(promised(), {section: frozenset(names)}, section))


def test_every_section_has_names() -> None:
    assert set(promised()) == set(SECTIONS)
    assert all(promised().values())


def test_a_lost_name_and_a_new_one_are_reported() -> None:
    now = {"alarms": frozenset({"clock", "quiet"})}
    assert list(differences(WAS, now, "alarms")) == [
        "alarms: silence is public: keep it or an alias",
        "alarms: quiet is new: add it to tests/architecture/public_names.txt with `make write`",
    ]


def test_a_name_is_removed_only_with_drop(tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    assert write(WAS, path=path) == []
    assert promised(path) == WAS
    now = {"alarms": frozenset({"clock", "quiet"})}
    before = path.read_bytes()
    assert write(now, path=path) == [
        "alarms: silence is public: keep it or an alias",
        "outcomes: paid is public: keep it or an alias",
    ]
    assert path.read_bytes() == before
    assert write(now, path=path, drop=True) == []
    assert promised(path) == now


def test_the_list_is_as_it_would_be_written(tmp_path: Path) -> None:
    """It is sorted, one name a line, so that lists of two branches merge."""
    path = tmp_path / "names.txt"
    write(promised(), path=path)
    assert path.read_text() == public_names.LIST.read_text()
