"""Mutation runner: makes one small change of the product at a time and asks whether its tests fail.

    1 collect  the changes that the syntax tree of the chosen modules has room for
    2 sample   as many as asked for, by the seed
    3 record   which tests of the part run which line, in a copy of the repository in which nothing
               is changed; all of them have to pass
    4 play     each change with the tests that run its line, the fastest first, until one fails, for
               MOST_S at most; where none runs it with those of the whole part
    5 tell     every change with what became of it, and the share that was killed

    make mutants ARGS=reconcile/ledger/fold.py
    make mutants ARGS="engine --sample 40 --seed 2"

Some changes alter nothing that can be seen, so no share is a target: each survivor is to be read.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import cache_from_source
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from tests.mutant_runs import ROOT, Player


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
                         "bank_bounds", "exchange", "match_joined", "match_settled",
                         "match_refunds", "match_figures", "match_near", "match_rows",
                         "match_totals", "suggest", "match_pinned", "months", "match_laws")
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
            "tests/database/test_appending.py",
            "tests/database/test_inbox_file.py",
            "tests/database/test_journal.py",
            "tests/database/test_opening.py",
            "tests/database/test_sqlite.py",
            "tests/postgres/test_inbox.py",
            "tests/postgres/test_sharing.py",
            "tests/api/test_webhooks.py",
            "tests/api/test_answering.py",
            "tests/api/test_edges.py",
            "tests/api/test_delivering.py",
            "tests/api/test_lingering.py",
            "tests/api/test_deadlines.py",
            "tests/api/test_providers.py",
            "tests/api/test_accounts.py",
            "tests/cli/test_local.py",
            "tests/cli/test_places.py",
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
            "tests/privacy/test_numbers_in_texts.py",
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

FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)

RECORDINGS: Final = ROOT / "var" / "mutants"
"""Where it stays written which test runs which line, a file for each part."""

LEAST_LIMIT_S: Final = 30.0
MOST_S: Final = 120.0
"""Seconds of tests, as they were recorded, that are played with a change. A line that each delivery
runs has hundreds; what only the slowest of them would see is told as survived."""

LEAST_TO_COLLECT_S: Final = 20.0
"""Collecting may always take so long: another's work beside it is no change's fault."""
TIMES_THE_CONTROL: Final = 3.0
"""A mutant's time limit, by the time that collecting, or the tests, take without a change."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change: the bytes of a file from `start` to `end` become `after`. They are on `lines`,
    in a statement that is on those `around` it, inside of a function's body or not."""

    path: str
    start: int
    end: int
    before: str
    after: str
    lines: range
    around: range
    inside: bool

    def __str__(self) -> str:
        """One line for a person."""
        texts = (" ".join(each.split()) for each in (self.before, self.after))
        return f"{self.path}:{self.lines[0]}: {' -> '.join(texts)}"

    def applied(self, source: bytes) -> bytes:
        """The changed file."""
        return source[: self.start] + self.after.encode() + source[self.end :]


def changes_of(path: str, source: bytes) -> Iterator[Change]:
    """Every change that this file knows of one module, from its top to its end."""
    starts = [0]
    for each in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(each))
    tree = ast.parse(source)
    statements = [each for each in ast.walk(tree) if isinstance(each, ast.stmt)]
    for node in _nodes(tree):
        for old, after in _changes_at(node):
            lines = _lines(old)
            start = starts[lines[0] - 1] + old.col_offset
            end = starts[lines[-1] - 1] + (old.end_col_offset or 0)
            around = [each for each in statements if set(lines) <= set(_lines(each))]
            yield Change(
                path, start, end, source[start:end].decode(), after, lines,
                _header(min(around, key=lambda each: len(_lines(each)))),
                any(_within(lines, each) for each in around if isinstance(each, FUNCTIONS)),
            )  # fmt: skip


def _lines(node: ast.expr | ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _header(statement: ast.stmt) -> range:
    """Its lines, without those of the statements in it."""
    body = getattr(statement, "body", None)
    return range(statement.lineno, body[0].lineno) if body else _lines(statement)


def _within(lines: range, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether lines are of its body, and not also of what is said before that."""
    return lines[0] >= function.body[0].lineno > function.lineno


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


def listed() -> list[str]:
    """The files of the repository as they are now, without what is ignored."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(words, cwd=ROOT, check=True, capture_output=True).stdout
    return sorted(name for name in found.decode().split("\0") if name and (ROOT / name).exists())


def copied(folder: Path) -> None:
    """All of them."""
    for name in listed():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)


def digests(name: str) -> tuple[str, dict[str, str]]:
    """Of each file of a part's tests, and of all else that decides what they run."""
    starts, told, each = PARTS[name].tests, hashlib.sha256(sys.version.encode()), {}
    for file in listed():
        found = hashlib.sha256((ROOT / file).read_bytes()).hexdigest()
        if file.startswith(starts) and Path(file).name.startswith("test_"):
            each[file] = found
        elif not file.endswith((".md", "/mutants.py", "/test_mutants.py")):
            told.update(f"{file} {found}\n".encode())
    return told.hexdigest(), each


@dataclass(frozen=True, slots=True)
class Recording:
    """What a part's tests run.

    seconds   how long each takes
    lines     of each module the tests that run each line
    imported  of each module the lines that run while modules are imported
    """

    seconds: Mapping[str, float]
    lines: Mapping[str, Mapping[int, Collection[str]]]
    imported: Mapping[str, Collection[int]]

    @classmethod
    def of(cls, tests: Mapping[str, Any], imported: Mapping[str, Collection[int]]) -> Recording:
        """From what `Recorder` wrote of each test."""
        lines: dict[str, dict[int, list[str]]] = {}
        for test, (_, ran) in tests.items():
            for module, numbers in ran.items():
                for number in numbers:
                    lines.setdefault(module, {}).setdefault(number, []).append(test)
        return cls({test: seconds for test, (seconds, _) in tests.items()}, lines, imported)

    def choice(self, change: Change) -> Choice:
        """Those that run the changed line, the fastest first; all where none does. What is changed
        beyond the bodies of functions, or is run while modules are imported, any may see: those of
        the line first."""
        ran = self.lines.get(change.path, {})
        own = {test for line in change.lines for test in ran.get(line, ())}
        own = own or {test for line in change.around for test in ran.get(line, ())}
        imported = self.imported.get(change.path, ())
        anew = not change.inside or not set(change.lines).isdisjoint(imported)
        others = set() if own and not anew else self.seconds.keys() - own
        return Choice(self._within([*self.sorted(own), *self.sorted(others)]), len(own), anew)

    def _within(self, tests: list[str]) -> list[str]:
        """As many from the first on as take MOST_S together; one at least."""
        spent = accumulate(self.seconds[test] for test in tests)
        return tests[: max(1, sum(seconds <= MOST_S for seconds in spent))]

    def sorted(self, tests: Iterable[str]) -> list[str]:
        """Fastest first."""
        return sorted(tests, key=lambda test: (self.seconds[test], test))

    def limit_s(self, tests: Iterable[str]) -> float:
        """How long tests may take with a change."""
        return max(LEAST_LIMIT_S, TIMES_THE_CONTROL * sum(self.seconds[test] for test in tests))


@dataclass(frozen=True, slots=True)
class Choice:
    """Tests in the order in which they are played, how many of them run the line, and whether what
    is changed runs while modules are imported."""

    tests: Sequence[str]
    own: int
    anew: bool


def recording(name: str, player: Player) -> Recording | None:
    """The part's: of test files that have not changed since, from `var/`, where all else is as it
    was; of the others made now. None where those do not pass without a change."""
    kept, (rest, files) = RECORDINGS / f"{name}.json", digests(name)
    found = json.loads(kept.read_text()) if kept.exists() else {}
    if found.get("rest") != rest:
        found = {"rest": rest, "files": {}, "tests": {}, "imported": {}}
    new = {file for file, digest in files.items() if found["files"].get(file) != digest}
    of = {test: ran for test, ran in found["tests"].items() if _file_of(test) in files.keys() - new}
    if new:
        made = kept.with_suffix(".new")
        made.parent.mkdir(parents=True, exist_ok=True)
        if not player.record(made, sorted(new), _recorded):
            return None
        written = json.loads(made.read_text())
        of |= written["tests"]
        found = {"rest": rest, "files": files, "tests": of, "imported": written["imported"]}
        made.write_text(json.dumps(found))
        made.replace(kept)
    return Recording.of(of, found["imported"])


def _file_of(test: str) -> str:
    return test.partition("::")[0]


def _recorded(done: int, of: int) -> None:
    """Show how far it is, to a person in one line."""
    if sys.stderr.isatty() or done == of:
        end = "\r" if done < of else "\n"
        print(f"Recording what each test runs: {done} of {of}", end=end, file=sys.stderr)


def judged(player: Player, folder: Path, change: Change, told: Recording) -> str:
    """What the tests say of one change, in words; afterwards the folder is as it was. Where one has
    failed, it and those before it have to pass without the change, where they took too long all of
    them have to, and where they passed all have to be there: else it is `unsure`."""
    choice = told.choice(change)
    limit_s = told.limit_s(choice.tests)
    files = list(dict.fromkeys(map(_file_of, choice.tests)))
    to_collect_s = max(LEAST_TO_COLLECT_S, TIMES_THE_CONTROL * player.collected_s)
    in_time = True
    with applied(folder, change):
        if choice.anew:
            with Player(folder, files, to_collect_s=to_collect_s) as fresh:
                state = fresh.play(choice.tests, limit_s=limit_s)
                failed, missing, in_time = fresh.failed, fresh.missing, fresh.in_time
        else:
            state = player.play(choice.tests, limit_s=limit_s, module=change.path)
            failed, missing = player.failed, player.missing
    word: str = "unsure" if missing and state == "survived" else state
    if not in_time:
        with Player(folder, files, to_collect_s=to_collect_s) as without_it:
            word = state if without_it.in_time else "unsure, nor are they collected in time without"
    elif failed or state == "killed by time":
        before = choice.tests[: choice.tests.index(failed) + 1] if failed else choice.tests
        without = player.play(before, limit_s=limit_s)
        word = state if without == "survived" else f"unsure, {without} without by {player.failed}"
    while_collecting = not in_time or state == "killed"
    by = failed or ("what is run while tests are collected" if while_collecting else "")
    seen = f"by {by}" if by else f"{choice.own} run the line, {len(choice.tests)} played"
    return f"{word:14} {change}   [{seen}]"


@contextmanager
def applied(folder: Path, change: Change) -> Iterator[None]:
    """The folder with the change."""
    file = folder / change.path
    source = file.read_bytes()
    compiled = Path(cache_from_source(str(file)))
    try:
        file.write_bytes(change.applied(source))
        compiled.unlink(missing_ok=True)  # it is told from its source by second and size alone
        yield
    finally:
        file.write_bytes(source)
        compiled.unlink(missing_ok=True)


def chosen(what: str) -> tuple[str, list[str]]:
    """The name of a part, by that, a folder or a module, and its modules. ValueError where there
    is none."""
    every = sorted(str(p.relative_to(ROOT)) for top in ("app", "reconcile")
                   for p in (ROOT / top).rglob("*.py"))  # fmt: skip
    for name, part in PARTS.items():
        found = [m for m in every if m.startswith(part.modules) and (what == name or what in m)]
        if found:
            return name, found
    raise ValueError(f"{what!r} is none of {', '.join(PARTS)}, nor a module of theirs")


def main() -> int:
    """Run the command. 0 where all were killed, 1 where one was not."""
    parser = argparse.ArgumentParser(prog="make mutants ARGS=", description=__doc__.split("\n")[0])
    parser.add_argument("what", help=f"{', '.join(PARTS)}, or a module or folder of theirs")
    parser.add_argument("--sample", type=int, default=40, help="how many; 0: all (default 40)")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # what was begun ends
    try:
        name, modules = chosen(asked.what)
    except ValueError as error:
        parser.error(str(error))
    changes = [c for m in modules for c in changes_of(m, (ROOT / m).read_bytes())]
    sample = random.Random(asked.seed).sample(
        changes, min(asked.sample or len(changes), len(changes))
    )
    return played(name, changes, sample)


def played(name: str, changes: Sequence[Change], sample: Sequence[Change]) -> int:
    """Play a sample of a part and tell what became of it, as `main` ends."""
    tests = PARTS[name].tests
    with tempfile.TemporaryDirectory(prefix="mutants-") as made:
        folder = Path(made).resolve()
        copied(folder)
        with Player(folder, tests, recorded=chosen(name)[1]) as player:
            if (told := recording(name, player)) is None:
                failed = player.failed or " ".join(tests)
                print(f"without any change they do not pass: {failed}", file=sys.stderr)
                return 2
            print(f"{len(sample)} of {len(changes)} changes, {len(told.seconds)} tests", flush=True)
            killed = 0
            for number, change in enumerate(sample, 1):
                said = judged(player, folder, change, told)
                killed += said.startswith("killed")
                print(f"{number}/{len(sample)} {said}", flush=True)
    print(f"killed {killed} of {len(sample)}: {100 * killed // max(len(sample), 1)} %")
    return 0 if killed == len(sample) else 1


if __name__ == "__main__":
    sys.exit(main())
