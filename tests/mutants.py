"""Run mutation tests: make one small change of the product at a time and see if a test fails.

    1 collect  the changes that the syntax trees of the chosen modules allow
    2 sample   as many of them as asked for, by the seed
    3 record   which of the part's tests run which line, in an unchanged copy of the repository; all
               tests have to pass
    4 play     each change with the tests that run its line, the fastest first, until one fails, for
               MOST_S at most; if none runs the line, with all tests of the part
    5 tell     each change with its result, and the share that was killed

    make mutants ARGS=reconcile/ledger/fold.py
    make mutants ARGS="engine --sample 40 --seed 2"

Some changes alter nothing visible, so no share is a target: read each survivor.
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
    """List modules, by the beginnings of their paths, and the quick test files that see most."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


def _tests(**rooms: str) -> tuple[str, ...]:
    """Return paths of test files, by their rooms and the middles of their names."""
    named = [(room, name) for room, names in rooms.items() for name in names.split()]
    return tuple(f"tests/{room}/test_{name}.py" for room, name in named)


PARTS: Final = {
    "matching": Part(
        ("reconcile/matching/",),
        _tests(
            reconcile="match_table match_rest match_compare match_period books breaks_life"
            " statement_versions ledger_lines details bank bank_bounds exchange match_joined"
            " match_settled match_refunds match_figures match_near match_rows match_totals suggest"
            " match_pinned match_parts match_absorbed match_sources months match_laws balances fees"
            " outside suspense wallets blockers coverage methods tenders across_legs"
        ),
    ),
    "engine": Part(
        ("reconcile/ledger/", "reconcile/money.py", "reconcile/instants.py"),
        _tests(
            reconcile="scenarios golden nameless history settle revise money instants plain"
            " details pinned laws_by_generation attention answers grouping positions tenders"
            " refunded_sums link_mismatch unheard assignments payments"
        ),
    ),
    "receiving": Part(
        ("app/receiving/",),
        (
            "tests/receiving",
            *_tests(
                database="appending inbox_file journal opening personal sqlite",
                postgres="inbox sharing",
                api="webhooks answering edges delivering lingering deadlines providers accounts",
                cli="local places",
                floods="limits",
                orders="delivery_log reindex",
                providers="doctor",
                security="unsigned_floods",
            ),
        ),
    ),
    "erase": Part(
        ("app/privacy/eras", "app/privacy/fit_journal.py", "app/privacy/replay_erasures.py"),
        _tests(
            privacy="erase erase_unknown erase_forms erasure_journal erasure_plan erase_kept"
            " erase_rules erase_search erase_words markers restricted retained copies",
            database="personal",
            console="support_pages",
            cli="restore_erased people_and_data",
        ),
    ),
    "verify": Part(  # without test_strangers: by its digest it notices any change of verify.py
        ("app/evidence/verify",),
        _tests(
            evidence="forgers forms tampering leaves order_tree placed_once readings redated"
            " verify_log kept_checkpoint minisign named_keys witnesses attachments bundle unheard"
            " renamed_log first_party verifier_steps verifier_words order_entries",
            database="sqlite",
        ),
    ),
}
"""Parts by their names on the command line."""

SWAPS: Final = {
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
}  # fmt: skip
"""Replacements of a comparison: its contrary, and for `<` and its like also the other boundary."""

UNTOUCHED: Final = (ast.Assert, ast.JoinedStr, ast.AnnAssign, ast.arg)
"""Nodes that are not changed: guards that never fail, texts and annotations."""

UNSWAPPED: Final = frozenset({"isinstance", "max", "min"})
"""Functions whose arguments are not swapped: the first would always fail, which would only improve
the share; swapping those of the others changes nothing."""

RECORDINGS: Final = ROOT / "var" / "mutants"
"""Folder of the recordings, a file for each part."""

LEAST_LIMIT_S: Final = 30.0
MOST_S: Final = 120.0
"""Recorded seconds of the tests that are played with one change. A line that each delivery runs has
hundreds of tests; a change that only the slowest of them notice is reported as survived."""

LEAST_TO_COLLECT_S: Final = 20.0
"""Collecting may always take this long, as other work on the machine can slow it down."""
TIMES_THE_CONTROL: Final = 3.0
"""A change's time limit, as a multiple of the time that collecting or the tests take without it."""


@dataclass(frozen=True, slots=True)
class Change:
    """Describe one change: the bytes from `start` to `end` of a file become `after`.

    lines   the lines of these bytes
    around  the lines of the statement that they are in
    inside  whether they are in the body of a function
    """

    path: str
    start: int
    end: int
    before: str
    after: str
    lines: range
    around: range
    inside: bool

    def __str__(self) -> str:
        """Return one line for a person."""
        texts = (" ".join(each.split()) for each in (self.before, self.after))
        return f"{self.path}:{self.lines[0]}: {' -> '.join(texts)}"

    def applied(self, source: bytes) -> bytes:
        """Return the changed file."""
        return source[: self.start] + self.after.encode() + source[self.end :]


def changes_of(path: str, source: bytes) -> Iterator[Change]:
    """Yield every possible change of one module, from top to bottom."""
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
            outer = [each for each in statements if set(lines) <= set(_lines(each))]
            bodies = [
                each.body[0].lineno
                for each in outer
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
                and each.body[0].lineno > each.lineno
            ]
            innermost = min(outer, key=lambda each: len(_lines(each)))
            inner = getattr(innermost, "body", None)
            around = range(innermost.lineno, inner[0].lineno) if inner else _lines(innermost)
            inside = any(first <= lines[0] for first in bodies)
            yield Change(path, start, end, source[start:end].decode(), after, lines, around, inside)


def _lines(node: ast.expr | ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _nodes(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Yield the nodes that may be changed, outer ones first: no types and no decorators."""
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
    """Yield the node that is replaced, and the text that replaces it."""
    match node:
        case ast.Compare(ops=[operator]):
            for swap in SWAPS[type(operator)]:
                yield node, f"({ast.unparse(ast.Compare(node.left, [swap()], node.comparators))})"
        case ast.BoolOp(op=operator):
            other = ast.And() if isinstance(operator, ast.Or) else ast.Or()
            yield node, f"({ast.unparse(ast.BoolOp(other, node.values))})"
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


def _swapped(node: ast.Call) -> Iterator[str]:
    """Yield the call with its two arguments swapped, or its two keyword arguments."""
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
    """Return the repository's present files, without those that git ignores."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(words, cwd=ROOT, check=True, capture_output=True).stdout
    return sorted(name for name in found.decode().split("\0") if name and (ROOT / name).exists())


def copied(folder: Path) -> None:
    """Copy the repository's files into the folder."""
    for name in listed():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)


def digests(name: str) -> tuple[str, dict[str, str]]:
    """Return one digest of all that decides what a part's tests run, and one per test file."""
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
    """Hold what a part's tests run.

    seconds   how long each takes
    lines     of each module the tests that run each line
    imported  of each module the lines that run while modules are imported
    """

    seconds: Mapping[str, float]
    lines: Mapping[str, Mapping[int, Collection[str]]]
    imported: Mapping[str, Collection[int]]

    @classmethod
    def of(cls, tests: Mapping[str, Any], imported: Mapping[str, Collection[int]]) -> Recording:
        """Make a recording from what `Recorder` wrote of each test."""
        lines: dict[str, dict[int, list[str]]] = {}
        for test, (_, ran) in tests.items():
            for module, numbers in ran.items():
                for number in numbers:
                    lines.setdefault(module, {}).setdefault(number, []).append(test)
        return cls({test: seconds for test, (seconds, _) in tests.items()}, lines, imported)

    def choice(self, change: Change) -> Choice:
        """Choose the tests for a change: those that run its line, the fastest first.

        If none runs it, all are chosen. All are also added if the change is outside of functions or
        in a line that runs at import, since any test may notice it.
        """
        ran = self.lines.get(change.path, {})
        own = {test for line in change.lines for test in ran.get(line, ())}
        own = own or {test for line in change.around for test in ran.get(line, ())}
        imported = self.imported.get(change.path, ())
        anew = not change.inside or not set(change.lines).isdisjoint(imported)
        others = set() if own and not anew else self.seconds.keys() - own
        tests = [*self.sorted(own), *self.sorted(others)]
        spent = accumulate(self.seconds[test] for test in tests)
        count = max(1, sum(seconds <= MOST_S for seconds in spent))
        return Choice(tests[:count], len(own), anew)

    def sorted(self, tests: Iterable[str]) -> list[str]:
        """Sort tests, the fastest first."""
        return sorted(tests, key=lambda test: (self.seconds[test], test))


@dataclass(frozen=True, slots=True)
class Choice:
    """List tests in the order to play, how many run the line, and whether it runs at import."""

    tests: Sequence[str]
    own: int
    anew: bool


def recording(name: str, player: Player) -> Recording | None:
    """Return the part's recording, and record again only the test files that changed.

    The recording is kept in `var/`. If anything else in the repository changed, everything is
    recorded again. None if the tests fail without any change.
    """
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
    """Show progress in one line."""
    if sys.stderr.isatty() or done == of:
        end = "\r" if done < of else "\n"
        print(f"Recording what each test runs: {done} of {of}", end=end, file=sys.stderr)


def judged(player: Player, folder: Path, change: Change, told: Recording) -> str:
    """Play one change and return its result in words; restores the folder.

    The result is checked without the change: the tests up to the one that failed, or all if they
    took too long, must then pass. If not, or if tests are missing, the result is `unsure`.
    """
    choice = told.choice(change)
    limit_s = max(
        LEAST_LIMIT_S, TIMES_THE_CONTROL * sum(map(told.seconds.__getitem__, choice.tests))
    )
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
    """Apply the change to the folder for a while."""
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
    """Return a part and its modules, by the part's name, a folder or a module.

    Raises ValueError if there is none.
    """
    every = sorted(str(p.relative_to(ROOT)) for top in ("app", "reconcile")
                   for p in (ROOT / top).rglob("*.py"))  # fmt: skip
    for name in sorted(PARTS, key=lambda each: each != what):  # a part before a module of another
        part = PARTS[name]
        found = [m for m in every if m.startswith(part.modules) and (what == name or what in m)]
        if found:
            return name, found
    raise ValueError(f"{what!r} is none of {', '.join(PARTS)}, nor a module of theirs")


def main() -> int:
    """Run the command. Returns 0 if all changes were killed, 1 if one was not."""
    parser = argparse.ArgumentParser(prog="make mutants ARGS=", description=__doc__.split("\n")[0])
    parser.add_argument(
        "what", help=f"protections, {', '.join(PARTS)}, or a module or folder of theirs"
    )
    parser.add_argument("--sample", type=int, default=40, help="how many; 0: all (default 40)")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    if asked.what == "protections":
        from tests.protections import played as broken

        return broken()
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
    """Play the sample and print the results. Returns the exit code."""
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
