"""Mutation runner: makes one small change of the product at a time and asks whether its tests fail.

    1 collect  the changes that the syntax tree of the chosen modules has room for
    2 sample   as many as asked for, by the seed
    3 control  the part's tests pass in a copy of the repository in which nothing is changed
    4 run      the same tests with each change, until the first that fails
    5 tell     every change with what became of it, and the share that was killed

    make mutants ARGS=reconcile/ledger/fold.py
    make mutants ARGS="engine --sample 40 --seed 2"

Some changes alter nothing that can be seen, so no share is a target: each survivor is to be read.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final, Literal

ROOT: Final = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Part:
    """Modules, by the beginnings of their paths, and the test files that are quick and see most."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


_RECONCILE: Final = "tests/reconcile/test_"

PARTS: Final = {
    "matching": Part(
        ("reconcile/matching/",),
        tuple(
            f"{_RECONCILE}{name}.py"
            for name in ("match_table", "match_rest", "match_compare", "match_period", "books",
                         "breaks_life", "statement_versions", "ledger_lines", "details", "bank",
                         "exchange", "match_joined", "match_refunds", "suggest", "match_pinned",
                         "months", "match_laws")
        ),
    ),
    "engine": Part(
        ("reconcile/ledger/", "reconcile/money.py", "reconcile/instants.py", "reconcile/values.py"),
        tuple(
            f"{_RECONCILE}{name}.py"
            for name in ("scenarios", "golden", "nameless", "history", "settle", "revise", "money",
                         "instants", "values", "plain", "details", "pinned", "laws_by_generation")
        ),
    ),
    "receiving": Part(
        ("app/receiving/",),
        (
            "tests/receiving",
            "tests/database/test_inbox_file.py",
            "tests/database/test_opening.py",
            "tests/database/test_sqlite.py",
            "tests/api/test_webhooks.py",
            "tests/api/test_edges.py",
            "tests/api/test_delivering.py",
            "tests/api/test_lingering.py",
            "tests/api/test_deadlines.py",
            "tests/api/test_providers.py",
            "tests/api/test_accounts.py",
            "tests/cli/test_local.py",
            "tests/floods/test_limits.py",
            "tests/orders/test_delivery_log.py",
            "tests/orders/test_reindex.py",
            "tests/providers/test_doctor.py",
        ),
    ),
    "erase": Part(
        ("app/privacy/eras", "app/privacy/replay_erasures.py"),
        (
            "tests/privacy/test_erase.py",
            "tests/privacy/test_erase_unknown.py",
            "tests/privacy/test_erasure_journal.py",
            "tests/privacy/test_erase_kept.py",
            "tests/privacy/test_erase_words.py",
            "tests/privacy/test_markers.py",
            "tests/console/test_support_pages.py",
            "tests/cli/test_restore_erased.py",
            "tests/cli/test_people_and_data.py",
        ),
    ),
}  # fmt: skip
"""What can be asked for by name."""

SWAPS: Final = {
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
}  # fmt: skip
"""What stands in a comparison's place: its contrary, and for an order also its other boundary."""

UNTOUCHED: Final = (ast.Assert, ast.JoinedStr, ast.AnnAssign, ast.arg)
"""Where nothing is changed: guards that never fail, texts, and annotations."""

UNSWAPPED: Final = frozenset({"isinstance", "max", "min"})
"""Functions whose arguments stay where they are: the first would always fail, which would only
better the share, and of the others nothing could be seen."""

LEAST_LIMIT_S: Final = 30.0
TIMES_THE_CONTROL: Final = 3.0
"""A mutant's time limit, by the time that the tests take without a change."""

State = Literal["killed", "killed by time", "survived"]


@dataclass(frozen=True, slots=True)
class Change:
    """One change: the bytes of a file from `start` to `end` become `after`."""

    path: str
    line: int
    start: int
    end: int
    before: str
    after: str

    def __str__(self) -> str:
        """One line for a person."""
        texts = (" ".join(each.split()) for each in (self.before, self.after))
        return f"{self.path}:{self.line}: {' -> '.join(texts)}"

    def applied(self, source: bytes) -> bytes:
        """The changed file."""
        return source[: self.start] + self.after.encode() + source[self.end :]


def changes_of(path: str, source: bytes) -> Iterator[Change]:
    """Every change that this file knows of one module, from its top to its end."""
    starts = [0]
    for each in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(each))
    for node in _nodes(ast.parse(source)):
        for old, after in _changes_at(node):
            start = starts[old.lineno - 1] + old.col_offset
            end = starts[(old.end_lineno or 0) - 1] + (old.end_col_offset or 0)
            before = source[start:end].decode()
            yield Change(path, old.lineno, start, end, before, after)


def _nodes(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """The nodes that may be changed, each before those within it: no types and no decorators."""
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        yield from _nodes(node.value)
    if isinstance(node, UNTOUCHED):
        return
    if isinstance(node, ast.expr | ast.stmt):
        yield node
    aside = [getattr(node, "returns", None), *getattr(node, "decorator_list", ())]
    for child in ast.iter_child_nodes(node):
        if child not in aside:
            yield from _nodes(child)


def _changes_at(node: ast.expr | ast.stmt) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """What is replaced, and by what."""
    match node:
        case ast.Compare(ops=[operator]):
            for swap in SWAPS[type(operator)]:
                yield node, _with(node, ops=[swap()])
        case ast.BoolOp(op=operator):
            yield node, _with(node, op=ast.And() if isinstance(operator, ast.Or) else ast.Or())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, f"({ast.unparse(operand)})"
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            if isinstance(test, ast.Name | ast.Attribute | ast.Call):
                yield test, f"(not {ast.unparse(test)})"
        case ast.Constant(value=bool(value)):
            yield node, str(not value)
        case ast.Constant(value=int(value)):
            yield node, f"({value + 1})"
            yield node, f"({value - 1})"
        case ast.Expr(value=ast.Call() | ast.Await(value=ast.Call())):
            yield node, "pass"
        case ast.Call():
            for text in _swapped(node):
                yield node, text


def _with(node: ast.expr, **fields: object) -> str:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return f"({ast.unparse(changed)})"


def _swapped(node: ast.Call) -> Iterator[str]:
    """The call with its two arguments in each other's place; its two named ones, where it has more
    than those."""
    changed = copy.deepcopy(node)
    args, keywords = changed.args, changed.keywords
    if ast.unparse(node.func) in UNSWAPPED or any(isinstance(a, ast.Starred) for a in args):
        return
    if len(args) == 2:
        args.reverse()
    elif len(keywords) == 2 and all(each.arg for each in keywords):
        keywords[0].value, keywords[1].value = keywords[1].value, keywords[0].value
    if ast.unparse(changed) != ast.unparse(node):
        yield ast.unparse(changed)


def copied(folder: Path) -> None:
    """The files of the repository as they are now, without what is ignored."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True).stdout
    for name in filter(None, found.decode().split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def tested(folder: Path, tests: Sequence[str], *, limit_s: float | None) -> State:
    """What becomes of the folder's tests. Whatever keeps them from passing has been noticed: a test
    that fails, or a module that cannot be imported any more."""
    words = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    running = subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "CI": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return "killed" if running.wait(limit_s) else "survived"
    except subprocess.TimeoutExpired:
        return "killed by time"
    finally:
        _end(running)


def _end(running: subprocess.Popen[bytes]) -> None:
    """End it with everything that it started."""
    if running.poll() is None:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def judged(folder: Path, change: Change, tests: Sequence[str], *, limit_s: float) -> State:
    """What the tests say of one change; afterwards the folder is as it was."""
    file = folder / change.path
    source = file.read_bytes()
    compiled = Path(cache_from_source(str(file)))
    try:
        file.write_bytes(change.applied(source))
        compiled.unlink(missing_ok=True)  # it is told from its source by second and size alone
        return tested(folder, tests, limit_s=limit_s)
    finally:
        file.write_bytes(source)
        compiled.unlink(missing_ok=True)


def chosen(what: str) -> tuple[Part, list[str]]:
    """The part of a name, a folder or a module, and its modules. ValueError where there is none."""
    every = sorted(str(p.relative_to(ROOT)) for top in ("app", "reconcile")
                   for p in (ROOT / top).rglob("*.py"))  # fmt: skip
    for name, part in PARTS.items():
        found = [m for m in every if m.startswith(part.modules) and (what == name or what in m)]
        if found:
            return part, found
    raise ValueError(f"{what!r} is none of {', '.join(PARTS)}, nor a module of theirs")


def main() -> int:
    """Run the command. 0 where all were killed, 1 where one survived."""
    parser = argparse.ArgumentParser(prog="make mutants ARGS=", description=__doc__.split("\n")[0])
    parser.add_argument("what", help=f"{', '.join(PARTS)}, or a module or folder of theirs")
    parser.add_argument("--sample", type=int, default=40, help="how many; 0: all (default 40)")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    try:
        part, modules = chosen(asked.what)
    except ValueError as error:
        parser.error(str(error))
    changes = [c for m in modules for c in changes_of(m, (ROOT / m).read_bytes())]
    sample = random.Random(asked.seed).sample(
        changes, min(asked.sample or len(changes), len(changes))
    )
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name)
        copied(folder)
        began = time.monotonic()
        if tested(folder, part.tests, limit_s=None) != "survived":
            print(f"without any change they do not pass: {' '.join(part.tests)}", file=sys.stderr)
            return 2
        control_s = time.monotonic() - began
        limit_s = max(LEAST_LIMIT_S, TIMES_THE_CONTROL * control_s)
        print(f"{len(sample)} of {len(changes)} changes; tests take {control_s:.0f} s", flush=True)
        survived = 0
        for number, change in enumerate(sample, 1):
            state = judged(folder, change, part.tests, limit_s=limit_s)
            survived += state == "survived"
            print(f"{number}/{len(sample)} {state:8} {change}", flush=True)
    killed = len(sample) - survived
    print(f"killed {killed} of {len(sample)}: {100 * killed // max(len(sample), 1)} %")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
