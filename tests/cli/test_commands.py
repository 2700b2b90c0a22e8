"""Every command's ordinary day, and each way in which a command can end."""

import asyncio
import csv
import io
import json
import re
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from app.core.clock import SystemClock
from app.database import engine
from app.orders import prove, refold
from app.receiving.framing import framed
from reconcile.instants import DAY
from reconcile.ledger.fold import fold
from tests.api.driving import SECRET, driving, environ, event, of_order
from tests.copied import copy_of
from tests.database.builders import arrival, received, said
from tests.reconcile.build import T
from tests.searching import LONG
from tests.waiting import until

PHONE = "254711223344"


@dataclass
class Ended:
    """Result of a command: its exit code and its output."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Standard output, which must be one JSON document."""
        return json.loads(self.out)


Run = Callable[..., Ended]


def _this_one(chosen: int | None, *, most: int) -> int:
    """Return one process unless a number is chosen. Starting one for each core takes a second of
    each, and only tests of `--jobs` need them."""
    return chosen or 1


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run commands in the environment of the folder's database, half a day after T."""
    for name, value in environ(tmp_path).items():
        monkeypatch.setenv(name, value)
    now, ahead = SystemClock.now, T + DAY // 2 - SystemClock().now()
    monkeypatch.setattr(SystemClock, "now", lambda clock: now(clock) + ahead)
    if not LONG:
        monkeypatch.setattr("app.cli.running.processes", _this_one)

    def running(*words: str) -> Ended:
        capsys.readouterr()
        code = main.run(words)
        written = capsys.readouterr()
        assert "Traceback" not in written.err + written.out
        return Ended(code, written.out, written.err)

    return running


async def _fill(folder: Path) -> dict[str, str]:
    async with driving(folder, with_worker=False) as driver:
        ids = {}
        private: dict[str, Any] = {"customer": {"phone": PHONE}}
        bodies: dict[str, Any] = {
            "pending": of_order("O-1", "e1", "pending"),
            "paid": event("e2", **private),
            "again": event("e2", **private),
            "live": event("e3", environment="live", **private),
            "broken": b'{"phone": "%s"' % PHONE.encode(),
        }
        for name, body in bodies.items():
            answer = await driver.send(body)
            ids[name] = answer.json().get("delivery", "")
        ((ids["live"],),) = driver.rows("SELECT id FROM rejections")
    return ids


@pytest.fixture
def filled(tmp_path: Path) -> dict[str, str]:
    """Fill a store with deliveries of several verdicts; return their ids."""
    return dict(copy_of(_fill, tmp_path))


async def _with_unreadable(folder: Path) -> str:
    async with driving(folder, with_worker=False) as driver:
        await driver.send(event("e1"))
        answer = await driver.send({**event("e2", "refunded"), "occurred_at": "yesterday"})
        return str(answer.json()["delivery"])


def test_a_message_that_cannot_be_read_is_listed_with_its_order_until_it_is_judged(
    run: Run, tmp_path: Path
) -> None:
    delivery = copy_of(_with_unreadable, tmp_path)
    shown = run("orders", "show", "ORD-1")
    assert "A message came that we cannot read yet; ask again later." in shown.out
    assert delivery in shown.out
    assert not run("orders", "show", "ORD-1", "--format", "json").document["fulfillable"]
    done = run("deliveries", "judge", delivery, "--reason", "a payout notice")
    assert (done.code, done.err) == (
        0,
        "Your judgement is stored. `serve` or `worker` will compute 1 order again.\n",
    )
    assert run("deliveries", "judge", delivery, "--reason", "again").code == 5
    assert run("orders", "show", "ORD-1", "--format", "json").document["fulfillable"]


def test_orders(run: Run, filled: dict[str, str]) -> None:
    """Orders are folded, listed, filtered and shown, in every format, and as of a moment."""
    assert run("orders", "list", "--format", "json").document == []
    done = run("refold")
    assert (done.code, done.out, done.err) == (0, "", "Folded 2 orders.\n")
    listed = run("orders", "list", "--format", "json").document
    outcomes = [(each["order"], each["outcome"]) for each in listed]
    assert outcomes == [("O-1", "timed_out"), ("ORD-1", "succeeded")]
    assert [o["order"] for o in run("orders", "list", "--outcome", "succeeded",
                                    "--format", "json").document] == ["ORD-1"]  # fmt: skip
    assert [o["order"] for o in run("orders", "list", "--finding", "redelivered",
                                    "--format", "json").document] == ["ORD-1"]  # fmt: skip
    limited = run("orders", "list", "--limit", "1", "--format", "jsonl")
    assert len(limited.out.splitlines()) == 1
    assert "--after O-1" in limited.err
    table = list(csv.DictReader(io.StringIO(run("orders", "list", "--format", "csv").out)))
    assert [row["order"] for row in table] == ["O-1", "ORD-1"]
    marked = run("orders", "list", "--format", "csv-excel").out
    assert marked == "\ufeff" + run("orders", "list", "--format", "csv").out
    shown = run("orders", "show", "ORD-1", "--format", "json").document
    assert (shown["order"], shown["outcome"]) == ("ORD-1", "succeeded")
    printed = run("orders", "show", "ORD-1").out
    assert "may be fulfilled" in printed
    assert "  Paid in full: KES 1,500.00.\n  The order can be shipped.\n" in printed
    assert "To do:\n\n  Ship the order.\n" in printed
    assert f"`tallyhook deliveries show {filled['live']}` says why" in printed
    at = shown["timeline"][0]["received_at"]
    then = run("orders", "show", "ORD-1", "--as-of", at, "--format", "json").document
    assert then["as_of"] == at


def test_what_is_sent_to_the_shop_again(run: Run, filled: dict[str, str], tmp_path: Path) -> None:
    """It says how many were tried in vain, and that those behind them follow; of none, that."""
    printed = [run("notifications", "redeliver").err]
    row = "INSERT INTO notifications (seq, order_key, since, due_at, tries) VALUES (?, ?, 1, 1, ?)"
    with closing(sqlite3.connect(tmp_path / "t.db")) as database, database:
        database.executemany(row, [(1, "ORD-1", 2), (2, "ORD-1", 0)])
    printed += [run("notifications", "redeliver", *words).err for words in ([], ["2"])]
    assert printed == [
        "No notification has failed. Waiting ones are sent automatically.\n",
        "The running service will send 1 notification again. The waiting notifications "
        "follow as soon as the shop accepts one.\n",
        "The running service will send 1 notification again.\n",
    ]


def test_deliveries(run: Run, filled: dict[str, str]) -> None:
    """Arrivals are listed and shown with verdict and reason, never with a body or a phone."""
    listed = run("deliveries", "list", "--format", "json").document
    verdicts = {each["delivery"]: each["verdict"] for each in listed}
    assert verdicts == {
        filled["pending"]: "stored",
        filled["paid"]: "stored",
        filled["again"]: "duplicate",
        filled["live"]: "wrong_environment",
        filled["broken"]: "unreadable",
    }
    cut = run("deliveries", "list", "--limit", "2", "--format", "jsonl")
    assert len(cut.out.splitlines()) == 2
    assert cut.err == "There may be more than these 2: raise --limit.\n"
    alone = run("deliveries", "list", "--limit", "1", "--format", "jsonl")
    assert alone.err == "There may be more than this one: raise --limit.\n"
    listed = run("deliveries", "list", "--order", "ORD-1", "--kind", "payment.succeeded",
                 "--source", "shop", "--format", "json").document  # fmt: skip
    assert {each["delivery"] for each in listed} == {filled["again"], filled["paid"]}
    assert listed[0]["money"] == {"amount": "1500.00", "currency": "KES"}
    assert run("deliveries", "list", "--no-order", "--format", "json").document == []
    (one,) = run("deliveries", "list", "--verdict", "unreadable", "--format", "json").document
    assert one["problem"]
    everything = run("deliveries", "list").out
    for delivery in filled.values():
        shown = run("deliveries", "show", delivery, "--format", "json")
        assert shown.document["delivery"] == delivery
        assert any(line.startswith("webhook-id: ") for line in shown.document["headers"])
        everything += shown.out + shown.err + run("deliveries", "show", delivery).out
    assert filled["paid"] in everything
    for canary in (PHONE, SECRET, SECRET[6:]):
        assert canary not in everything


async def _fill_nameless(folder: Path) -> None:
    async with driving(folder, with_worker=False) as driver:
        await driver.send(event("e1", order=None, session=None))
        await driver.send(b"{", headers=[])


def test_a_table_says_none_where_an_event_is_in_no_order(run: Run, tmp_path: Path) -> None:
    """In JSON the order is null, as of a delivery that brought no event."""
    copy_of(_fill_nameless, tmp_path)
    rows = list(csv.DictReader(io.StringIO(run("deliveries", "list", "--format", "csv").out)))
    said = {row["kind"]: (row["order"], row["claim"], row["money"]) for row in rows}
    assert said == {"payment.succeeded": ("none", "succeeded", "KES 1500.00"), "": ("", "", "")}
    document = run("deliveries", "list", "--no-order", "--format", "json").document
    shown = run("deliveries", "show", document[0]["delivery"])
    assert "Accepted, but it names no order: put the reference into order.reference" in shown.err
    assert [(each["event"], each["order"]) for each in document] == [("e1", None)]


def test_what_could_not_be_read(run: Run, filled: dict[str, str], tmp_path: Path) -> None:
    """It is listed with its orders, stays as it is, and is only read again when that is said."""
    assert run("deliveries", "poisoned", "--format", "json").document == []
    one = received(arrival(said("e9", order="A")))
    record = framed([one])
    row = (T, 3, 1, "A\nB", record)
    with closing(sqlite3.connect(tmp_path / "t.db")) as database, database:
        columns = "(received_at, tries, aside, orders, record)"
        database.execute(f"INSERT INTO suspects {columns} VALUES (?, ?, ?, ?, ?)", row)

    def state() -> tuple[int, int]:
        with closing(sqlite3.connect(tmp_path / "t.db")) as database:
            found: tuple[int, int] = database.execute(
                "SELECT aside, tries FROM suspects"
            ).fetchone()
            return found

    (printed,) = run("deliveries", "poisoned", "--format", "json").document
    assert (printed["delivery"], printed["size"], printed["held"]) == (
        one.delivery_id,
        len(record),
        "A B",
    )
    assert state() == (1, 3)
    ended = run("deliveries", "poisoned", "--retry")
    assert (ended.code, ended.err) == (0, "`serve` will read them again.\n")
    assert one.delivery_id in ended.out
    assert state() == (0, 0)
    assert "may not have been read yet" in run("deliveries", "poisoned", "--retry").err
    (entry,) = [
        each
        for each in run("audit", "list", "--format", "json").document
        if each["action"] == "deliveries_retried"
    ]
    assert entry["facts"] == {"deliveries": 1}


def test_who_may_have_deliveries_read_again(
    run: Run, filled: dict[str, str], tmp_path: Path
) -> None:
    """Whoever may judge refused ones again: their orders are released once they are read."""
    run("operators", "add", "Ann", "--role", "admin")
    run("operators", "add", "Vic", "--role", "viewer", "--by", "Ann")
    record = framed([received(arrival(said("e9", order="A")))])
    with closing(sqlite3.connect(tmp_path / "t.db")) as database, database:
        columns = "(received_at, tries, aside, orders, record)"
        database.execute(
            f"INSERT INTO suspects {columns} VALUES (?, ?, ?, ?, ?)", (T, 3, 1, "A", record)
        )
    for words, code in (((), 2), (("--by", "Vic"), 2), (("--by", "Ann"), 0)):
        assert run("deliveries", "poisoned", "--retry", *words).code == code
        with closing(sqlite3.connect(tmp_path / "t.db")) as database:
            assert database.execute("SELECT aside FROM suspects").fetchone() == (int(bool(code)),)
    (entry,) = [
        each
        for each in run("audit", "list", "--format", "json").document
        if each["action"] == "deliveries_retried"
    ]
    assert entry["who"] == "Ann"


def test_tokens(run: Run, tmp_path: Path) -> None:
    """A token is shown once, listed by name, and revoked; on a new database, too."""
    token = run("tokens", "add", "shop", "--format", "json").document
    assert set(token) == {"name", "token", "scopes", "until"}
    assert (token["scopes"], token["until"]) == (["read", "orders", "checkout"], None)
    plain = run("tokens", "add", "books")
    assert plain.out.strip().startswith("thk_sandbox_")
    assert "not shown again" in plain.err
    assert "The token's scopes are read, orders, checkout" in plain.err
    assert run("tokens", "revoke", "books").code == 0
    listed = run("tokens", "list", "--format", "json")
    assert [(t["name"], t["revoked_at"] is None) for t in listed.document] == [
        ("books", False),
        ("shop", True),
    ]
    assert token["token"] not in listed.out
    assert run("tokens", "revoke", "books").code == 5


def test_what_tokens_are_for(run: Run, tmp_path: Path) -> None:
    """Scopes by name and an end are shown when a token is made, and listed with its last change."""
    words = ("--scope", "evidence", "--scope", "read", "--until", "2100-01-01T00:00:00Z")
    made = run("tokens", "add", "context", *words, "--format", "json")
    assert made.document["scopes"] == ["read", "evidence"]
    assert made.document["until"] == "2100-01-01T00:00:00Z"
    assert "scopes" not in made.err
    (listed,) = run("tokens", "list", "--format", "json").document
    assert (listed["scopes"], listed["until"]) == ("read evidence", "2100-01-01T00:00:00Z")
    assert listed["changed_at"] == listed["created_at"]
    run("tokens", "revoke", "context")
    (listed,) = run("tokens", "list", "--format", "json").document
    assert listed["changed_at"] == listed["revoked_at"]
    for wrong in (
        ("--scope", "write"),
        ("--until", "yesterday"),
        ("--until", "2020-01-01T00:00:00Z"),
    ):
        refused = run("tokens", "add", "other", *wrong)
        assert (refused.code, wrong[0] in refused.err) == (2, True)


def test_the_store(run: Run, filled: dict[str, str]) -> None:
    """Upgrading, checking, reindexing, refolding and proving a sound store end well."""
    assert "it is at version 0" in run("db", "upgrade").err
    done = run("reindex")
    assert done.code == 0
    assert done.err.startswith("Read 3 deliveries: 2 events, 1 unreadable.")
    assert run("refold", "--all").err == "Folded 2 orders.\n"
    checked = run("db", "check", "--format", "json")
    assert (checked.code, checked.document) == (
        0,
        {
            "deep": False,
            "bodies": 3,
            "pruned": 0,
            "orders": 2,
            "seed": None,
            "sampled": 0,
            "unread": None,
            "found": 0,
            "problems": [],
        },
    )
    assert "3 bodies and 2 ledgers checked: no problem was found" in run("db", "check").out
    for jobs in ("1", "2"):
        deep = run("db", "check", "--deep", "--jobs", jobs, "--format", "json")
        assert (deep.code, deep.document) == (0, {**checked.document, "deep": True})
    both = run("db", "check", "--deep", "--seed", "1")
    said = "--seed selects a sample, and --deep checks everything: leave one of them out"
    assert (both.code, both.err) == (2, f"tallyhook: {said}\n")
    for words in (["--all"], ["ORD-1", "O-1"]):
        proved = run("prove", *words, "--shuffles", "20", "--format", "json")
        assert proved.code == 0
        assert proved.document == {"orders": 2, "trials": 40, "counter_examples": []}
    for words in ([], ["--all", "ORD-1"]):
        refused = run("prove", *words)
        assert refused.code == 2
        assert "give either the orders to prove or --all, not both" in refused.err


def test_a_terminal_shows_how_far_a_proof_is_while_it_goes_on(
    run: Run, filled: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: Any = sys.stderr
    calls = iter(range(10**9))

    def late(history: Any, **words: Any) -> Any:
        if next(calls) == 30:
            until(lambda: re.search(r"[1-9]\d*/\?", shown.getvalue()))
        return fold(history, **words)

    monkeypatch.setattr(shown, "isatty", lambda: True)
    monkeypatch.setattr(prove, "fold", late)
    assert "40/?" in run("prove", "--all", "--shuffles", "20").err
    assert next(calls) > 30


def test_a_check_has_the_file_read_in_its_own_order_first(
    run: Run, filled: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Page by page a disk takes several times as long."""
    read: list[Path] = []
    monkeypatch.setattr(engine, "read_ahead", lambda path, *, progress: read.append(path))
    assert run("db", "check").code == 0
    assert read == [tmp_path / "t.db"]


def test_the_check_that_finds_something(run: Run, filled: dict[str, str], tmp_path: Path) -> None:
    """A store with a wrong ledger and a flipped byte has both reported, with exit code 1."""
    run("refold", "--all")
    with sqlite3.connect(tmp_path / "t.db") as database:
        database.execute("UPDATE order_due SET due_at = NULL")
        database.execute("UPDATE ledgers SET outcome = 'failed' WHERE order_key = 'ORD-1'")
        database.execute(
            "UPDATE deliveries SET body = CAST(replace(body, 'O-1', 'O-2') AS BLOB) WHERE id = ?",
            (filled["pending"],),
        )
    checked = run("db", "check", "--format", "json")
    assert checked.code == 1
    assert checked.document["found"] >= 2
    text = " ".join(checked.document["problems"])
    assert "ORD-1" in text
    assert filled["pending"] in text
    assert run("db", "check").code == 1


def test_what_other_processes_find(run: Run, filled: dict[str, str], tmp_path: Path) -> None:
    """Whatever only a body or a history shows is found the same in one process and in several."""
    run("refold", "--all")
    with sqlite3.connect(tmp_path / "t.db") as database:
        database.execute("UPDATE order_due SET due_at = NULL")
        database.execute("UPDATE ledgers SET next_decision_at = NULL")
        database.execute("UPDATE events SET claim = 'declined' WHERE order_key = 'ORD-1'")
    one, two = (run("db", "check", "--deep", "--jobs", jobs) for jobs in ("1", "2"))
    assert (one.code, two.code) == (1, 1)
    assert one.out == two.out
    assert "of ORD-1 differs from its delivery" in one.out
    assert "the ledger of ORD-1 differs from its history" in one.out


def test_the_proof_that_fails(
    run: Run, filled: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fold that is moved by redeliveries is found out, with the order and how to repeat it."""

    def broken(history: Any, **words: Any) -> Any:
        ledger = fold(history, **words)
        return replace(ledger, fulfillable=len(history.deliveries) % 2 == 0)

    monkeypatch.setattr(prove, "fold", broken)
    proved = run("prove", "--all", "--shuffles", "3", "--seed", "7", "--format", "json")
    assert proved.code == 1
    first = proved.document["counter_examples"][0]
    assert first == {"order": "O-1", "law": "duplication", "trial": 0, "seed": 7, "deliveries": 1}
    assert "--seed 7" in run("prove", "--all", "--shuffles", "1", "--seed", "7").out


def test_a_fold_that_depends_on_the_order(
    run: Run, filled: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fold that is led by the order of iteration is found out."""
    calls = iter(range(10**9))

    def broken(history: Any, **words: Any) -> Any:
        ledger = fold(history, **words)
        return replace(ledger, fulfillable=bool(next(calls) % 2))

    monkeypatch.setattr(prove, "fold", broken)
    proved = run("prove", "ORD-1", "--shuffles", "10", "--format", "json")
    assert proved.code == 1
    assert "order and grouping" in {e["law"] for e in proved.document["counter_examples"]}


USAGE = [
    ["orders", "list", "--outcome", "paid"],
    ["orders", "list", "--finding", "x"],
    ["orders", "list", "--limit", "0"],
    ["orders", "list", "--format", "yaml"],
    ["orders", "show"],
    ["orders", "show", "ORD-1", "--as-of", "yesterday"],
    ["deliveries", "list", "--verdict", "nice"],
    ["tokens", "add", "a b"],
    ["prove"],
    ["prove", "ORD-1", "--all"],
    ["prove", "--all", "--shuffles", "0"],
    ["serve", "--port", "x"],
    ["nothing"],
]


@pytest.mark.parametrize("words", USAGE, ids=" ".join)
def test_usage(run: Run, filled: dict[str, str], words: list[str]) -> None:
    """Words that do not fit end with 2 and a sentence, and print no result."""
    ended = run(*words)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.strip()


@pytest.mark.parametrize(
    "words",
    [
        ["orders", "show", "O-9"],
        ["orders", "show", "ORD-1", "--as-of", "2020-01-01T00:00:00Z"],
        ["deliveries", "show", "dlv_none"],
        ["tokens", "revoke", "nobody"],
        ["prove", "ORD-1", "O-9"],
    ],
    ids=" ".join,
)
def test_not_found(run: Run, filled: dict[str, str], words: list[str]) -> None:
    """What is not there ends with 5 and one sentence."""
    ended = run(*words)
    assert (ended.code, ended.out) == (5, "")
    assert len(ended.err.splitlines()) == 1


READING = [["orders", "list"], ["orders", "show", "A"], ["deliveries", "list"], ["tokens", "list"],
           ["db", "check"], ["prove", "--all"]]  # fmt: skip


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_without_a_database(run: Run, tmp_path: Path, words: list[str]) -> None:
    """Reading a database that is not there ends with 4, and does not make one."""
    ended = run(*words)
    assert (ended.code, ended.out) == (4, "")
    assert "there is no database" in ended.err
    assert not (tmp_path / "t.db").exists()


@pytest.mark.parametrize("words", [*READING, ["tokens", "add", "x"], ["refold"], ["db", "upgrade"]],
                         ids=" ".join)  # fmt: skip
def test_a_file_that_is_no_database(run: Run, tmp_path: Path, words: list[str]) -> None:
    """A file that is something else ends with 4, and is left as it is."""
    (tmp_path / "t.db").write_bytes(b"not a database " * 1_000)
    ended = run(*words)
    assert (ended.code, ended.out) == (4, "")
    assert (tmp_path / "t.db").read_bytes() == b"not a database " * 1_000


def test_all_configuration_problems_at_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every mistake of the configuration is one line with its variable; the exit code is 3."""
    monkeypatch.setenv("TALLYHOOK_ENVIRONMENT", "production")
    monkeypatch.setenv("TALLYHOOK_GRACE_S", "-1")
    monkeypatch.setenv("TALLYHOOK_SOURCES__SHOP__SECRETS", "")
    monkeypatch.setenv("TALLYHOOK_GRAZE_S", "1")
    for words in (["serve"], ["orders", "list"], ["db", "upgrade"]):
        ended = run(*words)
        assert (ended.code, ended.out) == (3, "")
        named = {line.partition(":")[0] for line in ended.err.splitlines()}
        assert named == {
            "TALLYHOOK_ENVIRONMENT",
            "TALLYHOOK_GRACE_S",
            "TALLYHOOK_SOURCES__SHOP__SECRETS",
            "TALLYHOOK_GRAZE_S",
        }


def test_serving_with_wrong_secrets(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets and profiles that cannot be used end `serve` with 3, all of them named."""
    monkeypatch.setenv("TALLYHOOK_SOURCES__SHOP__SECRETS", "whsec_no-base64-at-all!")
    monkeypatch.setenv("TALLYHOOK_SOURCES__OTHER__SECRETS", SECRET)
    monkeypatch.setenv("TALLYHOOK_SOURCES__OTHER__PROFILE", "unheard-of")
    ended = run("serve", "--port", "0")
    assert (ended.code, ended.out) == (3, "")
    assert "TALLYHOOK_SOURCES__SHOP" in ended.err
    assert "TALLYHOOK_SOURCES__OTHER" in ended.err
    assert "no-base64" not in ended.err


OTHERS = [["orders", "list"], ["tokens", "add", "x"], ["refold"]]


@pytest.mark.disk
@pytest.mark.parametrize("words", OTHERS, ids=" ".join)
def test_the_other_environment(
    run: Run, filled: dict[str, str], monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """A command of one environment leaves the other's database alone, with exit code 3."""
    monkeypatch.setenv("TALLYHOOK_ENVIRONMENT", "live")
    ended = run(*words)
    assert ended.code == 3
    assert "belongs to sandbox" in ended.err


def test_formulas_are_not_formulas(run: Run, tmp_path: Path) -> None:
    """A reference that a spreadsheet would calculate is quoted in CSV, and whole in JSON."""

    async def fill() -> None:
        async with driving(tmp_path, with_worker=False) as driver:
            await driver.send(of_order("=1+1", "e1"))

    asyncio.run(fill())
    run("refold")
    (row,) = csv.DictReader(io.StringIO(run("orders", "list", "--format", "csv").out))
    assert row["order"] == "'=1+1"
    (order,) = run("orders", "list", "--format", "json").document
    assert order["order"] == "=1+1"


def test_refolding_what_a_new_fold_sees_otherwise(
    run: Run, filled: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`refold` without --all folds what is due, and nothing that is settled."""
    assert run("refold").err == "Folded 2 orders.\n"
    assert run("refold").err == "Folded 0 orders.\n"
    monkeypatch.setattr(refold, "fold", None)
    assert run("refold").code == 0


def test_help(run: Run) -> None:
    """Every command has its help, and it ends well."""
    for words in (
        [],
        ["orders"],
        ["deliveries"],
        ["tokens"],
        ["db"],
        *(["serve"], ["worker"], ["sandbox"], ["demo"], ["reindex"], ["refold"], ["prove"]),
    ):
        ended = run(*words, "--help")
        assert ended.code == 0
        assert "Usage" in ended.out


def test_what_needs_nodes_makes_no_sqlite_database(run: Run, tmp_path: Path) -> None:
    refused = run("db", "distribute")
    assert refused.code == 2
    assert "SQLite has no nodes" in refused.err
    assert not list(tmp_path.glob("*.db*"))
