"""The runbook has an entry for whatever can be seen when something is wrong, and no other."""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from app.cli.golive import FOLDER
from app.core.child_processes import WorkerProcess
from app.core.errors import NotStored, TallyhookError
from app.database import faults, holders, hosts, servers, takeover
from app.database.nodes import Nodes
from app.database.writer import DatabaseFiles, Space
from app.monitoring import health
from app.monitoring.watchdog import WATCHES
from app.receiving import inbox, inbox_queue
from app.wiring.service import Service

RUNBOOK = Path(__file__).parents[2] / "app" / "RUNBOOK.md"


def sections() -> dict[str, list[list[str]]]:
    """Return the rows of each section's table, without its head."""
    found: dict[str, list[list[str]]] = {}
    for part in RUNBOOK.read_text().split("\n## ")[1:]:
        title, _, text = part.partition("\n")
        rows = [line.strip("| ").split(" |") for line in text.splitlines() if line[:2] == "| "]
        found[title] = rows[1:]
    return found


def first_column(title: str) -> list[str]:
    return [row[0].strip("`") for row in sections()[title]]


def steps(title: str, entry: str) -> list[list[str]]:
    """Return the words of each command that an entry names, in its order."""
    (row,) = [row for row in sections()[title] if row[0].startswith(f"`{entry}`")]
    return [found.split() for found in re.findall("`tallyhook ([^`]+)`", " ".join(row[1:]))]


def test_every_alarm_has_an_entry() -> None:
    assert first_column("Alarms") == [watch.name for watch in WATCHES]


def test_every_reason_of_a_503_has_an_entry() -> None:
    assert first_column("A delivery is answered 503") == list(get_args(NotStored))


def test_every_exit_code_has_an_entry() -> None:
    def codes(kind: type[TallyhookError]) -> Iterator[int]:
        yield kind.exit_code
        for each in kind.__subclasses__():
            yield from codes(each)

    known = {0, 130, *codes(TallyhookError)}
    assert {int(code) for code in first_column("A process has ended")} == known


def test_every_entry_says_what_it_means_and_what_to_do() -> None:
    for title, rows in sections().items():
        for row in rows:
            assert len(row) == (3 if title.startswith("A ") else 4), (title, row)
            assert all(len(cell) > 3 for cell in row[1:]), (title, row)


def sentences(*places: Callable[..., Any]) -> Iterator[str]:
    """Return what functions can return or raise as sentences, with gaps as `…`."""
    for place in places:
        tree = ast.parse(textwrap.dedent(inspect.getsource(place)))
        documented = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(tree):
            if id(node) in documented:
                continue
            if isinstance(node, ast.JoinedStr):
                texts = [v.value if isinstance(v, ast.Constant) else "…" for v in node.values]
                documented |= {id(value) for value in node.values}
                yield "".join(map(str, texts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


PARTS = (", and unread ", "end long reads", "after a restore, ")
"""Beginnings of texts that are put into a sentence."""

REASONS = [
    *[sentence for sentence, _ in faults._FATAL_SQLITE.values()],
    *[sentence for sentence, _ in faults._PASSING_SQLITE.values()],
    *faults._FATAL_POSTGRESQL.values(),
    *faults._PASSING_POSTGRESQL.values(),
    *[
        said
        for said in sentences(
            Service.reasons,
            WorkerProcess.missing,
            health.refusal,
            health.reader_behind,
            faults.as_store_error,
            faults._of_certificates,
            inbox_queue.InboxQueue.still_faulty,
            inbox.Inbox.cannot_append,
            Space.check,
            DatabaseFiles.loss,
            Nodes.down,
        )
        if said.count(" ") > 2 and not said.startswith(PARTS)
    ],
    inbox_queue._SLOW,
    servers.AWAITS_STANDBY,
    holders.TAKEN_OVER,
    faults.SILENT,
    hosts.FORMER,
    takeover._CHECKED,
    takeover._LACKS,
    takeover._OTHER,
    takeover._LOOSE,
    takeover._NOBODY,
]


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_not_to_be_ready_has_an_entry(reason: str) -> None:
    phrases = [p for row in sections()["Not ready"] for p in re.findall("`([^`]+)`", row[0])]
    assert any(phrase in reason for phrase in phrases), reason


def test_every_entry_is_of_something_that_can_be_said() -> None:
    """Each phrase is in a sentence of the program."""
    for phrases, *_ in sections()["Not ready"]:
        for alternative in re.split("(?<=`), (?=`)", phrases):
            parts = re.findall("`([^`]+)`", alternative)
            assert parts
            assert any(all(part in reason for part in parts) for reason in REASONS), alternative


def test_every_alert_has_an_entry() -> None:
    """An alert that only says that an alarm lasts has that alarm's."""
    rules = yaml.safe_load((FOLDER / "prometheus" / "tallyhook.rules.yaml").read_text())
    (group,) = rules["groups"]
    alarms = {f"tallyhook_{name}_alarm == 1" for name in first_column("Alarms")}
    wanted = [
        (rule["alert"], rule["labels"]["severity"])
        for rule in group["rules"]
        if rule["expr"] not in alarms
    ]
    rows = sections()["Alerts of Prometheus"]
    assert [(row[0].strip("`"), row[1]) for row in rows] == wanted
