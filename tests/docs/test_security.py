"""The page on security: each test that it names is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / ".github" / "SECURITY.md"


def test_every_test_that_the_table_names_is_there() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if re.match(r"\| \d", line) is not None]
    named = [
        (file, name)
        for row in rows
        for file, names in re.findall(r"([a-z_]+) ((?:`[a-z0-9_]+`(?:, )?)+)", row.split("|")[3])
        for name in re.findall("`([a-z0-9_]+)`", names)
    ]
    assert len(rows) >= 40
    assert len(named) >= 40
    missing = [
        (file, name)
        for file, name in named
        if not any(
            f"def test_{name}(" in path.read_text()
            for path in (ROOT / "tests").rglob(f"test_{file}.py")
        )
    ]
    assert missing == []
