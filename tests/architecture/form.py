"""Rules about how a module is written. Each takes one module and says what is wrong with it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from app.core.logs import FIELDS
from tests.architecture.tree import Module

PRIVATE_WORDS = frozenset({"told", "retold", "untold", "desk", "diary", "deeds"})
"""Words that mean something here alone. What is meant is notified, reported, stated or recorded;
the context; the delivery log; acts, or entries of the audit trail."""

PUBLIC_NAMES_OF_OLD = {
    "not_told", "sum_told", "told_at", "told_with_others", "break_deeds", "tallyhook_told",
}  # fmt: skip
"""Columns, JSON keys and a table of the shop's, which keep their names."""

MAX_FUNCTION_LINES = 80
MAX_IMPORT_SHARE = 6
"""Percent of all lines of the product. Files that are many and small import more than they do."""

UNFINISHED = ("TO" + "DO", "FIX" + "ME")

_LOG_METHODS = frozenset(
    {"debug", "info", "warning", "error", "exception", "critical", "bind", "adebug", "ainfo",
     "awarning", "aerror"}
)  # fmt: skip
_LOG_WORDS = frozenset({"exc_info", "stack_info"})

PLACES_OF_SECRETS = (
    "app/client", "app/providers", "app/sandbox", "app/api", "app/receiving", "app/console",
    "app/access/credentials.py", "app/access/sessions.py", "app/access/session_store.py",
    "app/access/tokens.py", "app/access/operator_store.py", "app/privacy/erasure_journal.py",
)  # fmt: skip
"""Where a signature, a token or a digest that somebody sent is compared with what it must be."""

_SECRET = re.compile(
    r"(^|_)((hex)?digest|h?mac|signature|token|secret|password|expected|candidate|actual|stated"
    r"|given)s?($|_)"
)
PLAINLY_COMPARED = {
    ("app/providers/keys.py", "secret != secret.strip()"):
        "the operator's own setting with itself, at the start",
    ("app/providers/named/setup.py", "secret != secret.strip()"):
        "the operator's own setting with itself, at the start",
    ("app/receiving/append_store.py", "event.digest in bodies"):
        "digests of bodies that were verified before: nobody guesses them",
    ("app/sandbox/sessions.py", "entry.digest != digest"):
        "two requests of one client that holds the token: their digests prove nothing",
}  # fmt: skip
"""Comparisons that may end at the first difference, and why."""


def imports_are_few(tree: Sequence[Module]) -> Iterator[str]:
    """Of the product's lines few are imports, however they are written: a module is deep, and says
    much with what it takes from others."""
    modules = [each for each in tree if each.within("app", "reconcile")]
    lines = sum(len(each.text.splitlines()) for each in modules)
    taken = sum(map(_import_lines, modules))
    if 100 * taken > MAX_IMPORT_SHARE * lines:
        yield (
            f"{taken:,} of {lines:,} lines of app and reconcile are imports, more than "
            f"{MAX_IMPORT_SHARE} in a hundred: put a file that only one other uses where it is "
            "used, and name a module instead of many things in it"
        )


def _import_lines(module: Module) -> int:
    imports = [node for node in module.nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in imports)


def words_are_plain(module: Module) -> Iterator[str]:
    """No name of the product is made of a word that means something here alone. A column's name
    may be the name of what holds it."""
    if not module.within("app", "reconcile") or module.within("app/database/tables"):
        return
    for node in module.nodes:
        for name in _names_in(node):
            if name not in PUBLIC_NAMES_OF_OLD and not PRIVATE_WORDS.isdisjoint(
                name.lower().strip("_").split("_")
            ):
                yield module.at(node, f"{name} is a private word: see PRIVATE_WORDS")


def _names_in(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Attribute):
        yield node.attr


def functions_are_short(module: Module) -> Iterator[str]:
    """Check that a function is at most 80 lines."""
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield module.at(node, f"{node.name} has {lines} of {MAX_FUNCTION_LINES} lines")


def modules_are_described(module: Module) -> Iterator[str]:
    """Check that every module has a docstring. Functions have one where name and types need it."""
    if module.text.strip() and not ast.get_docstring(module.tree):
        yield module.at(module.tree, "has no docstring")


def engine_has_no_floats(module: Module) -> Iterator[str]:
    """Money and time are integers: no literal, no conversion, no division that makes a float."""
    if not module.within("reconcile"):
        return
    for node in module.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, float | complex):
            yield module.at(node, f"holds the float {node.value}")
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "float":
            yield module.at(node, "makes a float")
        elif isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div):
            yield module.at(node, "divides with /, which makes a float: use divmod")


def nothing_is_unfinished(module: Module) -> Iterator[str]:
    """Work that is left is not left in the code."""
    for number, line in enumerate(module.text.splitlines(), 1):
        if any(word in line for word in UNFINISHED):
            yield f"{module.path}:{number}: is unfinished"


def only_the_cli_prints(module: Module) -> Iterator[str]:
    """Standard output belongs to the command line; everything else logs."""
    if module.within("app", "reconcile") and not module.within("app/cli"):
        for node in module.nodes:
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "print":
                yield module.at(node, "prints: return it to the command line, or log it")


def errors_are_not_swallowed(module: Module) -> Iterator[str]:
    """An exception that nobody named is not caught, or something is done about it."""
    for node in module.nodes:
        if isinstance(node, ast.ExceptHandler):
            if node.type is None:
                yield module.at(node, "catches everything without a name")
            elif _is_any(node.type) and all(_is_nothing(line) for line in node.body):
                yield module.at(node, "swallows every exception")
        elif isinstance(node, ast.Call) and _suppresses_any(node):
            yield module.at(node, "swallows every exception")


def _suppresses_any(node: ast.Call) -> bool:
    named = ast.unparse(node.func) in ("suppress", "contextlib.suppress")
    return named and any(_is_any(argument) for argument in node.args)


def _is_any(node: ast.expr) -> bool:
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return any(ast.unparse(part) in ("Exception", "BaseException") for part in parts)


def _is_nothing(node: ast.stmt) -> bool:
    return isinstance(node, ast.Pass | ast.Continue) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )


def log_lines_are_fixed_texts_with_known_fields(module: Module) -> Iterator[str]:
    """A value in a log line has a field of app.core.logs; none is written into the event's text."""
    if not module.within("app"):
        return
    for node in log_calls(module):
        if any(not _is_text(argument) for argument in node.args):
            yield module.at(node, "writes a value into the event's text: give it a field")
        for keyword in node.keywords:
            if keyword.arg is not None and keyword.arg not in {*FIELDS, *_LOG_WORDS}:
                yield module.at(node, f"logs {keyword.arg}, which is no field of app.core.logs")


def log_calls(module: Module) -> Iterator[ast.Call]:
    """Every call of a logger's method that writes a line or binds fields."""
    loggers = _loggers(module)
    for node in module.nodes:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if ast.unparse(node.func.value) in loggers and node.func.attr in _LOG_METHODS:
            yield node


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.IfExp):
        return _is_text(node.body) and _is_text(node.orelse)
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _loggers(module: Module) -> set[str]:
    """The names that loggers go by in this module."""
    found = set()
    for node in module.nodes:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        if re.match(r"(structlog\.)?get_logger\(", ast.unparse(node.value)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {ast.unparse(target) for target in targets}
    return found


def secrets_are_compared_in_constant_time(module: Module) -> Iterator[str]:
    """How long `==` or `in` takes tells how much of a guess was right: compare_digest does not. A
    comparison with a constant of the code is about the name of a scheme or a header."""
    if not module.within(*PLACES_OF_SECRETS):
        return
    for node in module.nodes:
        if not isinstance(node, ast.Compare) or _is_plainly_compared(module, node):
            continue
        values = [node.left, *node.comparators]
        for operator, left, right in zip(node.ops, values, values[1:], strict=False):
            both = (left, right) if isinstance(operator, ast.Eq | ast.NotEq) else (left,)
            told = isinstance(operator, ast.Eq | ast.NotEq | ast.In | ast.NotIn)
            constant = _is_constant(left) or _is_constant(right)
            if told and not constant and any(_is_secret(value) for value in both):
                yield module.at(node, f"compares {ast.unparse(node)}: use hmac.compare_digest")


def _is_plainly_compared(module: Module, node: ast.Compare) -> bool:
    return (module.path, ast.unparse(node)) in PLAINLY_COMPARED


def _is_constant(node: ast.expr) -> bool:
    name = _names(node)[-1:]
    return isinstance(node, ast.Constant) or (bool(name) and name[0].isupper())


def _is_secret(node: ast.expr) -> bool:
    return any(_SECRET.search(name.lower()) for name in _names(node))


def _names(node: ast.expr) -> list[str]:
    """What a value is called: for `key.sign(body).hex()` hex, sign and key."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        return [node.attr]
    if isinstance(node, ast.Subscript | ast.Await):
        return _names(node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return [node.func.attr, *_names(node.func.value)]
    return _names(node.func) if isinstance(node, ast.Call) else []


_TAKES_SQL = frozenset(
    {"text", "ask", "execute", "exec_driver_sql", "statement", "stream", "select_in", "select_rows"}
)
"""Functions and methods of which an argument is SQL."""

_SQL = re.compile(
    r"\b(SELECT|INSERT|UPDATE|DELETE|CREATE|DROP|ALTER|VACUUM|PRAGMA|FROM|WHERE|RETURNING|VALUES"
    r"|ORDER BY|CAST)\b"
)
"""Words of a statement: those for people are not written in capitals."""


def sql_is_put_together_in_one_place(module: Module) -> Iterator[str]:
    """A statement is whole: what it shares with others comes into it by `statement`, values by its
    parameters, and lists with conditions are SQLAlchemy's to compose."""
    if not module.within("app"):
        return
    for number, line in enumerate(module.text.splitlines(), 1):
        if "S608" in line:
            yield f"{module.path}:{number}: puts SQL together: use app.database.statements"
    for node in module.nodes:
        if isinstance(node, ast.JoinedStr) and _SQL.search(_own_text(node)):
            yield module.at(node, f"glues SQL: {ast.unparse(node)}")
        if not isinstance(node, ast.Call):
            continue
        if ast.unparse(node.func).rpartition(".")[2] not in _TAKES_SQL:
            continue
        sql = [*node.args[:2], *(word.value for word in node.keywords if word.arg == "sql")]
        for argument in sql:
            if isinstance(argument, ast.JoinedStr) or _is_glued(argument):
                yield module.at(node, f"glues SQL: {ast.unparse(argument)}")


def _own_text(text: ast.JoinedStr) -> str:
    return " ".join(str(part.value) for part in text.values if isinstance(part, ast.Constant))


def _is_glued(text: ast.expr) -> bool:
    """Whether `+`, `%` or `format` makes it."""
    if isinstance(text, ast.BinOp):
        return isinstance(text.op, ast.Add | ast.Mod)
    return (
        isinstance(text, ast.Call)
        and isinstance(text.func, ast.Attribute)
        and text.func.attr in ("format", "format_map")
    )


RULES = (
    functions_are_short,
    modules_are_described,
    engine_has_no_floats,
    nothing_is_unfinished,
    only_the_cli_prints,
    errors_are_not_swallowed,
    log_lines_are_fixed_texts_with_known_fields,
    secrets_are_compared_in_constant_time,
    sql_is_put_together_in_one_place,
    words_are_plain,
)
"""Those that look at one module."""

RULES_OF_ALL = (imports_are_few,)
"""Those that look at all of them."""
