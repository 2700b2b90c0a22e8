"""Counts with their nouns: one of a thing is never called several."""

import ast
import re
from pathlib import Path

import pytest

from app.core.text import DELIVERY, LEAF, counted

ROOT = Path(__file__).resolve().parents[2]

NOUNS = (
    *("attempts", "bodies", "breaks", "bytes", "checkpoints", "claims", "days", "deliveries"),
    *("entries", "events", "findings", "files", "hours", "ledgers", "leaves", "lines", "minutes"),
    *("months", "notifications", "orders", "payments", "periods", "phones", "problems", "records"),
    *("refunds", "rejections", "revisions", "rows", "runs", "scenarios", "sessions", "steps"),
    *("sums", "times", "tokens", "transactions", "tries"),
)

COUNTED_ONLY_FROM_TWO = {
    "{page.searched} deliveries",  # a limit
    "{count} orders",  # beside its own sentence for one
    "{bodies} bodies",  # of one id, that disagree
    "{bodies} different bodies",
    "{deliveries} times",  # delivered again
    "{events} events",  # that state one movement
    "{alike} events",  # which are grouped from four on
    "{alike} attempts",
    "{alike} payments",
    "{times} times",  # a factor of a currency
    "{factor} times",
    "{heard.count} times",
    "{days} days",  # of a provider, within which it delivers again
    "{len(played)} payments",  # of the demo, which plays sixteen
    "{len(played)} scenarios",
    "{len(bundle.members) - 2} files",  # of a bundle, which has more than one
    "{count} other files",
    "{len(members)} files",
    "{rule.latest_days} days",  # of a card network
    "{self.files} files",  # a bank takes
    "{size} bytes",
    "{length} bytes",  # that a key has
    "{least} bytes",
    "{each} bytes",  # that a stored delivery takes
    "{per_s} deliveries",  # a rate
    "{rates.busiest_day / used} deliveries",
    "{size} leaves",  # of a tree in a fault of ours
    "{kind} lines",  # no counts
    "{name} claims",
}

_COUNT = re.compile(rf"\{{[^{{}}]*\}} (?:more |other |different |genuine )?(?:{'|'.join(NOUNS)})\b")
_BOUND = re.compile(r"\{[^{}]*(?:[A-Z]{3,}|at_most|field_size_limit|max_connections)[^{}]*\}")


def _texts(path: Path) -> list[str]:
    """Return all texts of a module with their expressions, without docstrings and SQL."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    docs = {
        id(node.value)
        for node in nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    whole = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    inner = {id(part) for node in whole for part in ast.walk(node) if part is not node}
    texts = [_joined(node) for node in whole if _names_a_thing(node)]
    texts += [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in docs | inner
    ]
    return [text for text in texts if "SELECT" not in text and "FROM" not in text]


def _names_a_thing(node: ast.JoinedStr) -> bool:
    """Return whether it has a noun: unparsing the others would take most of the time."""
    said = [str(part.value) for part in node.values if isinstance(part, ast.Constant)]
    return any(noun in text for text in said for noun in NOUNS)


def _joined(node: ast.JoinedStr) -> str:
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}"
        for part in node.values
        if isinstance(part, ast.Constant | ast.FormattedValue)
    )


def test_no_message_counts_one_of_a_thing_as_several() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {match[0]}"
        for folder in ("app", "reconcile")
        for path in (ROOT / folder).rglob("*.py")
        for text in _texts(path)
        for match in _COUNT.finditer(text)
        if not _BOUND.match(match[0]) and match[0] not in COUNTED_ONLY_FROM_TWO
    }
    assert found == set()


@pytest.mark.parametrize(
    ("text", "is_found"),
    [('f"{n} orders"', True), ('f"{len(x)} more rows"', True), ('f"{MAX_ROWS} rows"', False)],
)
def test_such_a_text_is_noticed(tmp_path: Path, text: str, is_found: bool) -> None:
    module = tmp_path / "m.py"
    module.write_text(f'"""{{n}} orders"""\nx = {text}\n')
    found = [m[0] for each in _texts(module) for m in _COUNT.finditer(each)]
    assert [each for each in found if not _BOUND.match(each)] == found[: is_found * 1]
    assert bool(found)


def test_a_count_has_its_noun_in_the_right_number() -> None:
    said = [counted(n, "order") for n in (0, 1, 2, 1000)]
    assert said == ["0 orders", "1 order", "2 orders", "1,000 orders"]
    assert [counted(n, *DELIVERY) for n in (1, 2)] == ["1 delivery", "2 deliveries"]
    assert counted(1, *LEAF) == "1 leaf"
    assert counted(1, "row waits", "rows wait") == "1 row waits"
