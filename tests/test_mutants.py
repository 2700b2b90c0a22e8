"""Test which changes the mutation runner makes, and whether it sees what tests notice."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutant_runs import ROOT, Player
from tests.mutants import (
    LEAST_LIMIT_S,
    PARTS,
    Change,
    Choice,
    Recording,
    applied,
    changes_of,
    chosen,
    judged,
)
from tests.protections import PROTECTIONS, Protection


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
    """Test that each change is made by itself, at its own place."""
    written = source.encode()
    assert [each.applied(written).decode() for each in changes_of("a.py", written)] == changed


MADE = b"""\
def count(to):
    at = 0
    while at < to:
        at += 1
    return at


def other():
    return 4


MOST = count(2) + 5
"""

TESTS = """\
import made

def test_it():
    assert made.count(3) == 3

def test_some():
    made.other()

def test_most():
    assert made.MOST == 7
"""


def test_a_change_is_played_with_the_tests_that_run_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Test what is reported of a change that a test notices, one that none notices, an endless one
    and one that runs at import, which is played in a new process with all tests.
    """
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # loading them is most of the start
    (tmp_path / "made.py").write_bytes(MADE)
    (tmp_path / "test_it.py").write_text(TESTS)
    changes = {str(each).partition(": ")[2]: each for each in changes_of("made.py", MADE)}
    with Player(tmp_path, ["test_it.py"], recorded=["made.py"]) as player:
        (tmp_path / "made.py").write_text("no Python")  # what was collected does not change
        done: list[tuple[int, int]] = []
        assert player.record(tmp_path / "told", ["test_it.py"], lambda *told: done.append(told))
        (tmp_path / "made.py").write_bytes(MADE)
        told = Recording.of(**json.loads((tmp_path / "told").read_text()))
        every = ["test_it.py::test_it", "test_it.py::test_some", "test_it.py::test_most"]
        assert (done, list(told.seconds)) == ([(1, 3), (2, 3), (3, 3)], every)
        alone = replace(told, imported={})
        words = {
            change: judged(player, tmp_path, changes[change], using).split("[")
            for change, using in (
                ("at < to -> (at <= to)", alone),
                ("4 -> (5)", alone),
                ("5 -> (6)", told),
            )
        }
        with applied(tmp_path, changes["1 -> (0)"]):
            assert player.play(every, limit_s=0.5, module="made.py") == "killed by time"
        assert player.play(every, limit_s=LEAST_LIMIT_S) == "survived"
    assert {change: (said.split()[0], seen) for change, (said, seen) in words.items()} == {
        "at < to -> (at <= to)": ("killed", "by test_it.py::test_it]"),
        "4 -> (5)": ("survived", "1 run the line, 1 played]"),
        "5 -> (6)": ("killed", "by test_it.py::test_most]"),
    }
    assert (tmp_path / "made.py").read_bytes() == MADE


@pytest.mark.parametrize(
    ("to_collect_s", "said"),
    [
        pytest.param(
            20.0,
            "killed by time made.py:4: 1 -> (0)   [by what is run while tests are collected]",
            marks=pytest.mark.soak,
        ),
        (0.0, "unsure, nor are they collected in time without made.py:4: 1 -> (0)   "
              "[by what is run while tests are collected]"),
    ],
)  # fmt: skip
def test_an_import_without_end_takes_no_more_than_the_time_to_collect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to_collect_s: float, said: str
) -> None:
    """Test that an endless import is killed, if collecting takes less time without the change."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setattr("tests.mutants.LEAST_TO_COLLECT_S", to_collect_s)
    (tmp_path / "made.py").write_bytes(MADE)
    (tmp_path / "test_it.py").write_text(TESTS)
    (change,) = [e for e in changes_of("made.py", MADE) if str(e) == "made.py:4: 1 -> (0)"]
    told = Recording.of({"test_it.py::test_it": (500.0, {"made.py": [4]})}, {"made.py": [4]})
    with Player(tmp_path, ["test_it.py"]) as player:
        assert player.in_time
        assert player.collected_s > 0
        player.collected_s = 0.0
        assert judged(player, tmp_path, change, told) == said
        assert player.play(["test_it.py::test_it"], limit_s=LEAST_LIMIT_S) == "survived"


@pytest.mark.parametrize(
    ("line", "tests", "own", "anew"),
    [
        (3, ["b", "a"], 2, False),  # fastest first
        (4, ["c"], 1, False),
        (5, ["c", "b", "a"], 3, False),  # those that run another line of its statement
        (7, ["c", "b", "a", "d", "e"], 0, False),  # all, as none runs it
        (8, ["a", "c", "b", "d", "e"], 1, True),  # it also runs at import
        (1, ["c", "b", "a", "d", "e"], 0, True),  # outside of functions
        (9, ["e", "f"], 3, False),  # two minutes at most
        (10, ["g"], 1, False),  # one that takes longer
    ],
)
def test_which_tests_are_played(line: int, tests: list[str], own: int, anew: bool) -> None:
    """Test the choice of tests by line and by statement."""
    lines = {"a": [3, 8], "b": [3], "c": [4], "d": [], "e": [9], "f": [9], "h": [9], "g": [10]}
    seconds = {"a": 3, "b": 2, "c": 1, "d": 9, "e": 50, "f": 70, "h": 70.1, "g": 121}
    told = Recording.of(
        {name: (seconds[name], {"m.py": ran}) for name, ran in lines.items()}, {"m.py": [1, 8]}
    )
    around = range(3, 6) if line == 5 else range(line, line + 1)
    change = Change("m.py", 0, 0, "", "", range(line, line + 1), around, inside=line > 1)
    assert told.choice(change) == Choice(tests, own, anew)


@pytest.mark.parametrize("name", PARTS)
def test_every_part_has_its_modules_and_tests(name: str) -> None:
    """Test that the modules and tests in the table of parts exist."""
    found, modules = chosen(name)
    part = PARTS[found]
    assert all(any(each.startswith(start) for each in modules) for start in part.modules)
    assert [each for each in part.tests if not (ROOT / each).exists()] == []
    assert chosen(modules[-1]) == (name, modules[-1:])


def test_what_no_part_has_is_refused() -> None:
    """Test that a misspelt word is refused instead of testing nothing."""
    with pytest.raises(ValueError, match="nor a module"):
        chosen("reconcile/no_such.py")


@pytest.mark.parametrize("each", PROTECTIONS, ids=lambda each: each.name)
def test_each_protection_stands_where_its_change_breaks_it(each: Protection) -> None:
    assert (ROOT / each.path).read_text().count(each.before) == 1
    assert all((ROOT / test.partition("::")[0]).exists() for test in each.tests)
