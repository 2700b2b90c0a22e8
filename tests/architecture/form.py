"""Rules about how a module is written. Each takes a module and yields its faults."""

import ast
import re
from collections.abc import Iterator, Sequence

from app.core.logs import FIELDS
from tests.architecture.tree import Module, written

PRIVATE_WORDS = frozenset({"told", "retold", "untold", "desk", "diary", "deeds"})
"""Words with a private meaning. Write notified, reported, stated or recorded; context; delivery
log; acts or audit entries."""

PUBLIC_NAMES_OF_OLD = {
    "not_told", "sum_told", "told_at", "told_with_others", "break_deeds", "tallyhook_told",
}  # fmt: skip
"""Columns, JSON keys and a table of the shop that keep their names."""

MAX_FUNCTION_LINES = 80
MAX_IMPORT_SHARE = 5.5
"""Percent of all lines of the product."""

UNFINISHED = ("TO" + "DO", "FIX" + "ME")

_LOG_METHODS = frozenset(
    {"debug", "info", "warning", "error", "exception", "critical", "bind", "adebug", "ainfo",
     "awarning", "aerror"}
)  # fmt: skip
_LOG_WORDS = frozenset({"exc_info", "stack_info"})

PLACES_OF_SECRETS = (
    "app/client", "app/providers", "app/sandbox", "app/api", "app/receiving", "app/console",
    "app/access/credentials.py", "app/access/sessions.py", "app/access/session_store.py",
    "app/access/tokens.py", "app/access/operator_store.py", "app/access/challenges.py",
    "app/access/company_account.py", "app/privacy/erasure_journal.py",
)  # fmt: skip
"""Files that compare a signature, token or digest from outside."""

_SECRET = re.compile(
    r"(^|_)((hex)?digest|h?mac|signature|token|secret|password|expected|candidate|actual|stated"
    r"|given)s?($|_)"
)
PLAINLY_COMPARED = {
    ("app/providers/keys.py", "secret != secret.strip()"):
        "the operator's own setting with itself, at the start",
    ("app/providers/kit_setup.py", "secret != secret.strip()"):
        "the operator's own setting with itself, at the start",
    ("app/receiving/append_store.py", "event.digest in bodies"):
        "digests of bodies that were verified before: nobody guesses them",
    ("app/sandbox/sessions.py", "entry.digest != digest"):
        "two requests of one client that holds the token: their digests prove nothing",
}  # fmt: skip
"""Comparisons that may end at the first difference, with the reason."""


def imports_are_few(tree: Sequence[Module]) -> Iterator[str]:
    """Check that few of the product's lines are imports, however they are written."""
    modules = [each for each in tree if each.within("app", "reconcile")]
    lines = sum(len(each.text.splitlines()) for each in modules)
    taken = sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for each in modules
        for node in each.nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
    )
    if 100 * taken > MAX_IMPORT_SHARE * lines:
        yield (
            f"{taken:,} of {lines:,} lines of app and reconcile are imports, more than "
            f"{MAX_IMPORT_SHARE} in a hundred: put a file that only one other uses where it is "
            "used, and name a module instead of many things in it"
        )


def words_are_plain(module: Module) -> Iterator[str]:
    """Check that no name of the product has a private word, except names of columns."""
    if not module.within("app", "reconcile") or module.within("app/database/tables"):
        return
    for node in module.nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                pass
            case ast.ClassDef(name=name) | ast.Name(id=name) | ast.Attribute(attr=name):
                pass
            case ast.arg(arg=name):
                pass
            case _:
                continue
        words = name.lower().strip("_").split("_")
        if name not in PUBLIC_NAMES_OF_OLD and not PRIVATE_WORDS.isdisjoint(words):
            yield module.at(node, f"{name} is a private word: see PRIVATE_WORDS")


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
    """Check that nothing makes a float: money and time are integers."""
    if not module.within("reconcile"):
        return
    for node in module.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, float | complex):
            yield module.at(node, f"holds the float {node.value}")
        elif isinstance(node, ast.Call) and written(node.func) == "float":
            yield module.at(node, "makes a float")
        elif isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div):
            yield module.at(node, "divides with /, which makes a float: use divmod")


def nothing_is_unfinished(module: Module) -> Iterator[str]:
    for number, line in enumerate(module.text.splitlines(), 1):
        if any(word in line for word in UNFINISHED):
            yield f"{module.path}:{number}: is unfinished"


def only_the_cli_prints(module: Module) -> Iterator[str]:
    if module.within("app", "reconcile") and not module.within("app/cli"):
        for node in module.nodes:
            if isinstance(node, ast.Call) and written(node.func) == "print":
                yield module.at(node, "prints: return it to the command line, or log it")


def errors_are_not_swallowed(module: Module) -> Iterator[str]:
    """Check that unnamed exceptions are not caught without doing something about them."""
    for node in module.nodes:
        if isinstance(node, ast.ExceptHandler):
            if node.type is None:
                yield module.at(node, "catches everything without a name")
            elif _is_any(node.type) and all(_is_nothing(line) for line in node.body):
                yield module.at(node, "swallows every exception")
        elif isinstance(node, ast.Call):
            suppresses = written(node.func) in ("suppress", "contextlib.suppress")
            if suppresses and any(_is_any(argument) for argument in node.args):
                yield module.at(node, "swallows every exception")


def _is_any(node: ast.expr) -> bool:
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return any(written(part) in ("Exception", "BaseException") for part in parts)


def _is_nothing(node: ast.stmt) -> bool:
    return isinstance(node, ast.Pass | ast.Continue) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )


def log_lines_are_fixed_texts_with_known_fields(module: Module) -> Iterator[str]:
    """Check that log lines are constant texts, and their values fields of app.core.logs, whose
    logger all use."""
    if not module.within("app"):
        return
    for node in module.nodes:
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        if "structlog" in names and module.path != "app/core/logs.py":
            yield module.at(node, "imports structlog: use the log of app.core.logs")
    for node in log_calls(module):
        if any(not _is_text(argument) for argument in node.args):
            yield module.at(node, "writes a value into the event's text: give it a field")
        for keyword in node.keywords:
            if keyword.arg is not None and keyword.arg not in {*FIELDS, *_LOG_WORDS}:
                yield module.at(node, f"logs {keyword.arg}, which is no field of app.core.logs")


def log_calls(module: Module) -> Iterator[ast.Call]:
    """Yield every call of the logger's methods that write a line or bind fields."""
    loggers = {
        each.asname or each.name
        for node in module.nodes
        if isinstance(node, ast.ImportFrom) and node.module == "app.core.logs"
        for each in node.names
        if each.name == "log"
    }
    for node in module.nodes:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if written(node.func.value) in loggers and node.func.attr in _LOG_METHODS:
            yield node


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.IfExp):
        return _is_text(node.body) and _is_text(node.orelse)
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def secrets_are_compared_in_constant_time(module: Module) -> Iterator[str]:
    """Check that secrets are compared by compare_digest: `==` and `in` leak how much of a guess is
    right. A comparison with a constant of the code is about the name of a scheme or a header."""
    if not module.within(*PLACES_OF_SECRETS):
        return
    for node in module.nodes:
        if not isinstance(node, ast.Compare):
            continue
        if (module.path, ast.unparse(node)) in PLAINLY_COMPARED:
            continue
        values = [node.left, *node.comparators]
        for operator, left, right in zip(node.ops, values, values[1:], strict=False):
            both = (left, right) if isinstance(operator, ast.Eq | ast.NotEq) else (left,)
            leaks = isinstance(operator, ast.Eq | ast.NotEq | ast.In | ast.NotIn)
            constant = _is_constant(left) or _is_constant(right)
            named = (name.lower() for value in both for name in _names(value))
            if leaks and not constant and any(_SECRET.search(name) for name in named):
                yield module.at(node, f"compares {ast.unparse(node)}: use hmac.compare_digest")


def _is_constant(node: ast.expr) -> bool:
    name = _names(node)[-1:]
    return isinstance(node, ast.Constant) or (bool(name) and name[0].isupper())


def _names(node: ast.expr) -> list[str]:
    """Return the names of a value: hex, sign and key for `key.sign(body).hex()`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return [name]
        case ast.Subscript(value=inner) | ast.Await(value=inner):
            return _names(inner)
        case ast.Call(func=ast.Attribute(value=inner, attr=name)):
            return [name, *_names(inner)]
        case ast.Call(func=called):
            return _names(called)
    return []


_TAKES_SQL = frozenset(
    {"text", "ask", "execute", "exec_driver_sql", "statement", "stream", "select_in", "select_rows"}
)
"""Functions and methods that take SQL."""

_SQL = re.compile(
    r"\b(SELECT|INSERT|UPDATE|DELETE|CREATE|DROP|ALTER|VACUUM|PRAGMA|FROM|WHERE|RETURNING|VALUES"
    r"|ORDER BY|CAST)\b"
)
"""Words of a statement; sentences for people have no capitals."""


def sql_is_put_together_in_one_place(module: Module) -> Iterator[str]:
    """Check that statements are whole.

    Shared parts come by `statement`, values by parameters, and lists of conditions by SQLAlchemy.
    """
    if not module.within("app"):
        return
    for number, line in enumerate(module.text.splitlines(), 1):
        if "S608" in line:
            yield f"{module.path}:{number}: puts SQL together: use app.database.statements"
    for node in module.nodes:
        if isinstance(node, ast.JoinedStr):
            own = (str(part.value) for part in node.values if isinstance(part, ast.Constant))
            if _SQL.search(" ".join(own)):
                yield module.at(node, f"glues SQL: {ast.unparse(node)}")
        if not isinstance(node, ast.Call):
            continue
        if written(node.func).rpartition(".")[2] not in _TAKES_SQL:
            continue
        sql = [*node.args[:2], *(word.value for word in node.keywords if word.arg == "sql")]
        for argument in sql:
            match argument:
                case ast.JoinedStr() | ast.BinOp(op=ast.Add() | ast.Mod()):
                    yield module.at(node, f"glues SQL: {ast.unparse(argument)}")
                case ast.Call(func=ast.Attribute(attr="format" | "format_map")):
                    yield module.at(node, f"glues SQL: {ast.unparse(argument)}")


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

RULES_OF_ALL = (imports_are_few,)
"""Rules about all modules together."""
