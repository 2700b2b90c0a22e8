"""Two months of a shop with providers' real exports: what finance does with them, to the cent."""

from pathlib import Path

from tests.finance.two_months import TwoMonths


def test_the_months_are_the_same_however_often_they_are_made(tmp_path: Path) -> None:
    one, other = TwoMonths(tmp_path / "one"), TwoMonths(tmp_path / "other")
    for first, second in zip(one.write().values(), other.write().values(), strict=True):
        assert first.name == second.name
        assert first.read_bytes() == second.read_bytes()
