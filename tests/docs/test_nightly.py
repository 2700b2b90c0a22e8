"""The page of the long forms names every one, and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS / "NIGHTLY.md"

LENGTHENED = re.compile(r"^[A-Z]+ = .* if os\.environ\.get\(.TALLYHOOK_LONG", re.MULTILINE)


def long_forms(source: str) -> set[str]:
    """What of a test file only `make nightly` runs: names of tests, and "" where the file reads
    how long it is to search."""
    marked = {
        node.name
        for node in ast.walk(ast.parse(source if "pytest.mark.soak" in source else ""))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and any("pytest.mark.soak" in ast.unparse(each) for each in node.decorator_list)
    }
    return marked | ({""} if LENGTHENED.search(source) else set())


def test_the_page_has_every_long_form() -> None:
    """A row for each, with the day of its figure or the words that there is none."""
    there = {
        f"{path.relative_to(TESTS.parent)}::{name}".removesuffix("::")
        for path in TESTS.rglob("*.py")
        for name in long_forms(path.read_text())
    }
    rows = [line.split(" | ") for line in PAGE.read_text().splitlines() if "`tests/" in line]
    assert {row[1].strip("`") for row in rows} == there
    assert len(there) == len(rows)
    assert [row for row in rows if _is_dated(row[3]) == (row[2] == "none written down")] == []


def test_a_long_form_is_seen() -> None:
    """Whether the test is marked or one of its parameters, or it reads the variable."""
    marked = "@pytest.mark.soak\nasync def test_a(): ...\ndef test_b(): ...\n"
    some = "@pytest.mark.parametrize('n', [1, pytest.param(2, marks=pytest.mark.soak)])\n"
    read = 'EXAMPLES = 9 if os.environ.get("TALLYHOOK_LONG") else 1\n'
    assert long_forms(read + marked + some + "def test_c(n): ...\n") == {"", "test_a", "test_c"}


def _is_dated(cell: str) -> bool:
    return re.match(r"\d{4}-\d\d-\d\d\b", cell) is not None
