"""Public names: settings, commands, keys, columns and metrics that others rely on.

`public_names.txt` has the promised names; here they are asked of the program itself, and
`tests/architecture/test_public_names.py` compares. `make write` adds new ones. To remove some,
which breaks somebody's program, alert or query:

    .venv/bin/python -m tests.architecture.public_names --write --drop

Left out are keys that neither the API's description nor a document made here has, such as those of
listings, and values, except the closed vocabularies.
"""

import argparse
import ast
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import typer

from app.access.operators import MAY, ROLES
from app.access.tokens import TOKEN_SCOPES
from app.api.api_routes import api_routes
from app.api.application import build_application
from app.api.openapi import OPERATIONS, api_document
from app.api.operations import ApiRoute
from app.api.probes import Probes
from app.cli.main import application
from app.cli.orders import EXIT_CODES
from app.config.load import known_variables
from app.config.settings import EvidenceSettings, Settings
from app.core import problems
from app.core.errors import TallyhookError
from app.core.logs import FIELDS
from app.core.metrics import GAUGES, Metrics
from app.database.tables.core import metadata
from app.monitoring.watchdog import FIGURES, WATCHES
from app.orders.notify_shop import KIND, notification_body
from app.orders.published_store import Published
from app.orders.shop_facts_store import ShopFacts
from app.receiving import endpoint as webhooks
from app.receiving.connection_limits import ConnectionLimits
from reconcile.instants import EARLIEST
from reconcile.ledger.explain import ledger_document
from reconcile.ledger.ledger import OUTCOMES
from reconcile.ledger.vocabulary import FINDING_CODES
from tests.architecture.form import log_calls
from tests.architecture.tree import ROOT, Module, parsed
from tests.reconcile.test_golden import LEDGERS

LIST = Path(__file__).with_name("public_names.txt")
WRITING = "make write"
HEAD = f"""\
# Names that others rely on, asked of the program itself by tests/architecture/public_names.py.
# New ones: {WRITING}
"""

Names = Mapping[str, frozenset[str]]

API_DOCUMENT = api_document()


def variables() -> Iterator[str]:
    """Yield environment variables; `<NAME>` stands for a source's name."""
    yield from known_variables()


def commands() -> Iterator[str]:
    """Yield commands, their options in every spelling, and their arguments by place."""
    yield from _of_command("tallyhook", typer.main.get_command(application))


def _of_command(path: str, command: Any) -> Iterator[str]:
    yield path
    shown = [one for one in command.params if not getattr(one, "hidden", False)]
    for one in shown:
        if one.param_type_name == "option":
            yield from (f"{path} {word}" for word in (*one.opts, *one.secondary_opts))
    arguments = [one for one in shown if one.param_type_name == "argument"]
    for place, one in enumerate(arguments, 1):
        more = "…" if one.nargs == -1 else ""
        yield f"{path} {place}:{(one.metavar or one.name).upper()}{more}"
    for name, inner in getattr(command, "commands", {}).items():
        yield from _of_command(f"{path} {name}", inner)


def unknown_commands(page: str) -> Iterator[str]:
    """Yield what a page quotes as `tallyhook …` without such a command or option. A group of
    commands is no command."""
    there, root = set(commands()), typer.main.get_command(application)
    for quoted in re.findall("`(tallyhook [a-z-][^`]*)`", page):
        said = re.sub("^tallyhook (--token-file [^ ]+|--version|--help)", "tallyhook", quoted)
        path, *words = said.replace(" …", "").split()
        command: Any = root
        while words and words[0] in getattr(command, "commands", {}):
            command, path = command.commands[words[0]], f"{path} {words.pop(0)}"
        options = {word.partition("=")[0] for word in words if word.startswith("--")} - {"--help"}
        is_group = command is not root and not getattr(command, "invoke_without_command", True)
        is_none = command is root and bool(words)
        if is_none or is_group or any(f"{path} {option}" not in there for option in options):
            yield quoted


def exit_codes() -> Iterator[str]:
    """Yield exit codes with their meaning as in the help, and those that one command adds."""
    listed = str(application.info.epilog).removeprefix("Exit codes: ").removesuffix(".")
    meanings = dict(part.split(" ", 1) for part in listed.split("; "))
    yield from (f"{code} {meaning}" for code, meaning in meanings.items())
    yield from (f"{code} checkout start: {state}" for state, code in EXIT_CODES.items())
    kinds = [TallyhookError]
    for kind in kinds:
        kinds += kind.__subclasses__()
        if str(kind.exit_code) not in meanings:
            yield f"{kind.exit_code} (help does not say what it means)"


def routes() -> Iterator[str]:
    """Yield HTTP methods and addresses, with the scope if one is needed. A webhook's methods are
    in its source's profile."""
    # Only the table of routes is read: nothing is opened.
    settings = Settings(evidence=EvidenceSettings(publish=True))
    context = SimpleNamespace(settings=settings, clock=None)
    application = build_application(
        webhooks=object.__new__(webhooks.Webhooks),
        probes=object.__new__(Probes),
        api=list,
        failed=cast(Any, None),
        count_refused=cast(Any, None),
    )
    more = api_routes(
        cast(Any, context),
        checkout=None,
        alarms=list,
        proposals=cast(Any, None),
        elsewhere=cast(Any, lambda **limits: None),
    )
    for route in (*cast(Any, application).routes, *more):
        scopes = route.scopes if isinstance(route, ApiRoute) else {}
        for method in route.methods or {"*"}:
            yield f"{method} {route.path} {scopes.get(method, '')}".rstrip()


def json_keys() -> Iterator[str]:
    """Yield members of requests and answers of the API by route, and of the documents whose inner
    members its description leaves open."""
    for path, operations in API_DOCUMENT["paths"].items():
        for method, operation in operations.items():
            if method == "parameters":
                continue
            place = f"{method.upper()} {path}"
            for one in (*operations.get("parameters", ()), *operation.get("parameters", ())):
                yield f"{place} {one['in']} {one['name']}"
            for key in _keys_of(operation.get("requestBody", {})):
                yield f"{place} body {key}"
            for status, answer in operation["responses"].items():
                if problems.MEDIA_TYPE in answer.get("content", {}):
                    yield f"{place} {status} problem"
                else:
                    yield from (f"{place} {status} {key}" for key in _keys_of(answer))
    problem = API_DOCUMENT["components"]["schemas"]["Problem"]
    yield from (f"problem {key}" for key in _described(problem))
    for made in LEDGERS:
        yield from (f"ledger {key}" for key in _written(ledger_document(made())))
    published = Published(
        seq=1,
        order="ORD-1",
        at=EARLIEST,
        outcome="succeeded",
        fulfillable=True,
        before_outcome="pending",
        before_fulfillable=False,
        because=("Paid.",),
    )
    document = json.loads(notification_body(published, ShopFacts()))
    yield from (f"notification {key}" for key in _written(document))


def _keys_of(content: Mapping[str, Any]) -> Iterator[str]:
    for one in content.get("content", {}).values():
        yield from _described(one["schema"])


def _described(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield paths of members by a JSON Schema, as `order.reference`, `references[].source`."""
    if "$ref" in schema:
        schema = API_DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    for one in schema.get("anyOf", ()):
        yield from _described(one, path)
    if "items" in schema:
        yield from _described(schema["items"], f"{path}[]")
    for name, inner in schema.get("properties", {}).items():
        here = f"{path}.{name}".lstrip(".")
        yield here
        yield from _described(inner, here)


def _written(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, list):
        for one in value:
            yield from _written(one, f"{path}[]")
    elif isinstance(value, dict):
        for name, inner in value.items():
            here = f"{path}.{name}".lstrip(".")
            yield here
            yield from _written(inner, here)


def problem_codes() -> Iterator[str]:
    """Yield codes of problem details with their status and further members."""
    for known in (webhooks._DETAILS, problems._SENTENCES):
        yield from (f"{status} {code}" for status, (code, _) in known.items())
    for operation in OPERATIONS:
        if operation.unknown is not None:
            yield f"404 {operation.unknown[0]}"
        if operation.refused is not None:
            yield " ".join(map(str, operation.refused))
    for module in _parsed("app", saying="problem"):
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Call) or len(node.args) < 2:
                continue
            if ast.unparse(node.func) in ("problem", "ApiProblem", "_answer"):
                status, code = node.args[:2]
                if isinstance(status, ast.Constant) and isinstance(code, ast.Constant):
                    answer = " ".join(str(each.value) for each in (status, code))
                    yield answer
                    members = {one.arg for one in node.keywords} - {"headers", None}
                    yield from (f"{answer} {name}" for name in members)


def metrics() -> Iterator[str]:
    """Yield metrics as Prometheus reads them, with their labels."""
    limits = cast(ConnectionLimits, SimpleNamespace(open={}, refused={"reason": 1}))
    figures = Metrics(frozenset({"shop"}), limits, gauges=FIGURES)
    figures.count("shop", "accepted", 0.0)
    figures.count_not_stored("disk")
    figures.count_refused(401)
    figures.set_state(
        dict.fromkeys({**GAUGES, **FIGURES}, 0),
        orders={"pending": 1},
        read={("shop", "stored"): 1},
        unallocated={"KES": 1},
    )
    for sample in (sample for family in figures.collect() for sample in family.samples):
        yield f"{sample.name}{{{','.join(sorted(sample.labels))}}}"


def log_events() -> Iterator[str]:
    """Yield the constant texts of log lines."""
    for module in _parsed("app", saying="logs import"):
        for call in log_calls(module):
            for text in call.args:
                either = (text.body, text.orelse) if isinstance(text, ast.IfExp) else (text,)
                yield from (str(each.value) for each in either if isinstance(each, ast.Constant))


def _parsed(folder: str, *, saying: str) -> Iterator[Module]:
    """Yield the modules that contain a text: parsing all of them takes seconds."""
    for path in (ROOT / folder).rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if saying in text:
            yield parsed(path.relative_to(ROOT).as_posix(), text)


def columns() -> Iterator[str]:
    for table in metadata.tables.values():
        yield from (f"{table.name}.{column.name}" for column in table.columns)


def permissions() -> Iterator[str]:
    """Yield scopes of tokens, roles of operators, and the roles of each audited action."""
    yield from (f"scope {scope}" for scope in TOKEN_SCOPES)
    yield from (f"role {role}" for role in ROLES)
    for action, roles in MAY.items():
        yield from (f"action {action} {role}" for role in roles or {"-"})


SECTIONS: Mapping[str, Callable[[], Iterable[str]]] = {
    "environment variables": variables,
    "commands": commands,
    "exit codes": exit_codes,
    "HTTP routes": routes,
    "JSON keys": json_keys,
    "problem codes": problem_codes,
    "outcomes": lambda: OUTCOMES,
    "findings": lambda: FINDING_CODES,
    "metrics": metrics,
    "log events": log_events,
    "log fields": lambda: FIELDS,
    "database columns": columns,
    "alarms": lambda: (watch.name for watch in WATCHES),
    "permissions": permissions,
    "notifications": lambda: (KIND,),
}


def current() -> Names:
    return {section: frozenset(names()) for section, names in SECTIONS.items()}


def promised(path: Path = LIST) -> Names:
    found: dict[str, set[str]] = {}
    section: set[str] = set()
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for line in lines:
        if head := re.fullmatch(r"\[(.+)\]", line):
            section = found.setdefault(head[1], set())
        elif line and not line.startswith("#"):
            section.add(line)
    return {name: frozenset(names) for name, names in found.items()}


def differences(was: Names, now: Names, section: str) -> Iterator[str]:
    """Yield a sentence for each name that was lost or added in a section."""
    before, after = was.get(section, frozenset()), now.get(section, frozenset())
    for name in sorted(before - after):
        yield f"{section}: {name} is public: keep it or an alias"
    for name in sorted(after - before):
        yield f"{section}: {name} is new: add it to {LIST.relative_to(ROOT)} with `{WRITING}`"


def write(now: Names, *, path: Path = LIST, drop: bool = False) -> list[str]:
    """Write the list. If names would be lost without `drop`, write nothing and return sentences."""
    was = promised(path)
    kept = {name: names & now.get(name, frozenset()) for name, names in was.items()}
    lost = [line for section in was for line in differences(was, kept, section)]
    if lost and not drop:
        return lost
    parts = [f"\n[{name}]\n" + "".join(f"{one}\n" for one in sorted(now[name])) for name in now]
    path.write_text(HEAD + "".join(parts), encoding="utf-8")
    return []


def main(words: list[str]) -> int:
    """Compare, or add new names with --write; return 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.architecture.public_names")
    parser.add_argument("--write", action="store_true", help="write the list anew")
    parser.add_argument("--drop", action="store_true", help="with --write: forget names, too")
    asked = parser.parse_args(words)
    now = current()
    if asked.write:
        wrong = write(now, drop=asked.drop)
    else:
        was = promised()
        wrong = [line for section in {**was, **now} for line in differences(was, now, section)]
    print("".join(f"{line}\n" for line in wrong), end="")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
