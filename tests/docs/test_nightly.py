"""The page of the long forms names each of them and no other test."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS / "NIGHTLY.md"

LENGTHENED = re.compile(r"^[A-Z]+ = .* if os\.environ\.get\(.TALLYHOOK_LONG", re.MULTILINE)


def long_forms(source: str) -> set[str]:
    """Return the names of the tests of a file that only `make nightly` runs, and "" where the file
    reads how long to search."""
    marked = {
        node.name
        for node in ast.walk(ast.parse(source if "pytest.mark.soak" in source else ""))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and any("pytest.mark.soak" in ast.unparse(each) for each in node.decorator_list)
    }
    return marked | ({""} if LENGTHENED.search(source) else set())


def named_in(cell: str) -> list[str]:
    """Return the tests that a cell names; `::name` is another test of the file before it."""
    found: list[str] = []
    for name in re.findall("`([^`]+)`", cell):
        found.append(found[-1].partition("::")[0] + name if name.startswith("::") else name)
    return found


def test_the_page_has_every_long_form() -> None:
    """Each is in one row, with the day of its figure, or without a figure."""
    there = [
        f"{path.relative_to(TESTS.parent)}::{name}".removesuffix("::")
        for path in TESTS.rglob("*.py")
        for name in long_forms(path.read_text())
    ]
    rows = [line.split(" | ") for line in PAGE.read_text().splitlines() if "`tests/" in line]
    assert sorted(name for row in rows for name in named_in(row[0])) == sorted(there)
    assert [row for row in rows if _is_dated(row[2]) == (row[1] == "none written down")] == []


def test_further_tests_of_a_file_are_named_by_themselves() -> None:
    cell = "`tests/a.py::b` `::c` `tests/d.py`"
    assert named_in(cell) == ["tests/a.py::b", "tests/a.py::c", "tests/d.py"]


@pytest.mark.parametrize(
    ("page", "most"),
    [("tests/NIGHTLY.md", 80), ("tests/bench/README.md", 80), ("app/CHANGELOG.md", 60)],
)
def test_a_page_has_the_present_and_no_history(page: str, most: int) -> None:
    assert len((TESTS.parent / page).read_text().splitlines()) <= most


def test_a_long_form_is_seen() -> None:
    marked = "@pytest.mark.soak\nasync def test_a(): ...\ndef test_b(): ...\n"
    some = "@pytest.mark.parametrize('n', [1, pytest.param(2, marks=pytest.mark.soak)])\n"
    read = 'EXAMPLES = 9 if os.environ.get("TALLYHOOK_LONG") else 1\n'
    assert long_forms(read + marked + some + "def test_c(n): ...\n") == {"", "test_a", "test_c"}


def _is_dated(cell: str) -> bool:
    return re.match(r"\d{4}-\d\d-\d\d\b", cell) is not None
