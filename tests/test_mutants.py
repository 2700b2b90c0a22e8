"""The mutation runner: what it changes, and that it tells tests that see a change from others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants import LEAST_LIMIT_S, PARTS, ROOT, changes_of, chosen, judged


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("a == b", ["(a != b)"]),
        ("a < b", ["(a <= b)", "(a >= b)"]),
        ("a not in b", ["(a in b)"]),
        ("not a", ["(a)"]),
        ("a or b", ["(a and b)"]),
        ("a = True", ["a = False"]),
        ("a = 7", ["a = (8)", "a = (6)"]),
        ("a(1)", ["pass", "a((2))", "a((0))"]),
        ("b = a(c, d)", ["b = a(d, c)"]),
        ("b = a(x=c, y=d)", ["b = a(x=d, y=c)"]),
        ("b = a(x, y=c, z=d)", ["b = a(x, y=d, z=c)"]),
        ("if a:\n  b = c", ["if (not a):\n  b = c"]),
        ("x: T[1] = 7", ["x: T[1] = (8)", "x: T[1] = (6)"]),
        ("# é\na = 'é', b < c", ["# é\na = 'é', (b <= c)", "# é\na = 'é', (b >= c)"]),
        ("b = a(c, c)", []),
        ("b = max(c, d)", []),
        ("assert a == b", []),
        ("@a(b=True)\ndef c(d: e[1]) -> f[2]: ...", []),
        ('"""A docstring."""', []),
    ],
)
def test_every_change_that_a_line_has_room_for(source: str, changed: list[str]) -> None:
    """Each by itself, at its own place."""
    written = source.encode()
    assert [each.applied(written).decode() for each in changes_of("a.py", written)] == changed


def test_a_change_is_killed_where_a_test_sees_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And survives where none does; without an end, by time. The module is put back."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # its tests need none
    source = b"def count(to):\n    at = 0\n    while at < to:\n        at += 1\n    return at\n"
    (tmp_path / "made.py").write_bytes(source)
    (tmp_path / "test_all.py").write_text(
        "from made import count\ndef test_it():\n    assert count(3) == 3\n"
    )
    (tmp_path / "test_some.py").write_text("def test_it(): import made\n")
    changes = [each for each in changes_of("made.py", source) if each.line > 2]
    ending = [(changes[0], "test_some.py"), *((each, "test_all.py") for each in changes)]
    endless = ending.pop()
    states = {
        (str(change).partition(": ")[2], tests): judged(
            tmp_path, change, [tests], limit_s=LEAST_LIMIT_S
        )
        for change, tests in ending
    }
    assert judged(tmp_path, endless[0], [endless[1]], limit_s=3) == "killed by time"
    assert states == {
        ("at < to -> (at <= to)", "test_all.py"): "killed",
        ("at < to -> (at <= to)", "test_some.py"): "survived",
        ("at < to -> (at >= to)", "test_all.py"): "killed",
        ("1 -> (2)", "test_all.py"): "killed",
    }
    assert (tmp_path / "made.py").read_bytes() == source


@pytest.mark.parametrize("name", PARTS)
def test_every_part_has_its_modules_and_tests(name: str) -> None:
    """None of what the table names has been moved."""
    part, modules = chosen(name)
    assert all(any(each.startswith(start) for each in modules) for start in part.modules)
    assert [each for each in part.tests if not (ROOT / each).exists()] == []
    assert chosen(modules[-1]) == (part, modules[-1:])


def test_what_no_part_has_is_refused() -> None:
    """A word that is misspelt would otherwise test nothing."""
    with pytest.raises(ValueError, match="nor a module"):
        chosen("reconcile/no_such.py")
