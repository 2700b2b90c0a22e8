"""Whatever is changed in the database file after it was sealed is found, and named."""

import json
import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from app.access.operator_store import AuditEntry, add_entry
from app.core.errors import NotFoundError, UsageError
from app.database.engine import Connection
from app.evidence import store
from app.evidence.keys import PublicKey, write_key
from app.evidence.seal import Checkpoint, read_checkpoint, signed_checkpoint
from app.evidence.verify_log import BODIES_AT_ONCE, Names, VerifiedLog, verify_log
from app.orders.record_store import add_records
from app.orders.refold import refold_until_quiet
from app.privacy.prune import prune_settled
from app.receiving.inbox import open_inbox
from app.sealing import log_store
from app.sealing.leaf_store import AUDIT_ENTRY, leaf_of
from app.sealing.order_store import SECRET, NamedOrder
from reconcile.transparency.merkle import Frontier
from reconcile.transparency.order_tree import order_commitment
from tests.contexts import settings_of
from tests.database.builders import SIGNER, context, keep, opened, quiet, seal
from tests.database.contract_retention import LATER, PAID, RETENTION
from tests.database.contract_sealing import begin, genuine, placed
from tests.reconcile.build import T

SEED = 20_261_120
SEALED = (700, 200, 100) if os.environ.get("TALLYHOOK_LONG") else (300, 100, 50)
DELIVERIES, RECORDS, AUDIT_ENTRIES = SEALED
ROWS = 1_000 if os.environ.get("TALLYHOOK_LONG") else 400
"""Number of seeded rows that are changed in each way."""

TABLES = {
    "deliveries": ("id", "received_at", "source", "digest", "size", "headers", "body", "envelope"),
    "records": ("id", "recorded_at", "kind", "order_key", "at", "amount", "currency", "source",
                "key", "session", "expires_at", "reason", "details"),
    "revisions": ("seq", "order_key", "at", "outcome", "fulfillable", "substance",
                  "before_outcome", "before_fulfillable", "because"),
    "audit": ("number", "at", "who", "role", "action", "subject", "reason", "facts"),
}  # fmt: skip
"""Everything that is sealed, but what `reindex` may correct."""

NUMBERED = {"revisions": "revision", "audit": "deed"}
Change = Callable[[sqlite3.Connection], Any]


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Choose the event loop for the module's own fixture."""
    return "asyncio", {"use_uvloop": False}


@pytest.fixture(scope="module")
async def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a database in which everything is sealed, in several batches."""
    path = tmp_path_factory.mktemp("sealed") / "t.db"
    async with opened(f"sqlite+aiosqlite:///{path}") as inbox:
        await begin(inbox)
        for part in range(0, DELIVERIES, 100):
            some = range(part, part + 100)
            await keep(inbox, *(genuine(f"e{n}", order=f"O-{n}") for n in some))
            await seal(inbox)
        async with inbox.database.writing() as connection:
            await add_records(connection, [placed(n) for n in range(RECORDS)], details="kept")
            for _ in range(AUDIT_ENTRIES):
                entry = AuditEntry(
                    at=T, who="ann", role="admin", action="x", subject="A", reason="why"
                )
                await add_entry(connection, entry)
        await refold_until_quiet(context(inbox), limit=500, progress=quiet)
        await seal(inbox)
    return path


@pytest.fixture
def copy(sealed: Path, tmp_path: Path) -> Path:
    """Copy it for somebody to change, without the triggers that forbid that."""
    path = Path(shutil.copy(sealed, tmp_path / "t.db"))
    change(path, without_triggers)
    return path


async def verified(
    path: Path,
    *,
    against: str | None = None,
    own: PublicKey | None = None,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> VerifiedLog:
    """Verify the file, and list all of its problems."""
    settings = settings_of(path)
    async with open_inbox(settings, purpose="reading") as inbox:
        return await verify_log(
            context(inbox),
            against=against,
            own=own,
            tell=10 * ROWS,
            progress=progress,
        )


def change(path: Path, *changes: Change) -> None:
    """Change the file as somebody would who has it."""
    with closing(sqlite3.connect(path)) as connection:
        for each in changes:
            each(connection)
        connection.commit()


def without_triggers(connection: sqlite3.Connection) -> None:
    sql = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
    for (name,) in connection.execute(sql).fetchall():
        connection.execute(f"DROP TRIGGER {name}")


def asked(path: Path, sql: str) -> list[tuple[Any, ...]]:
    """Ask the file."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def rows_of(path: Path) -> list[tuple[str, Any, str]]:
    """Return every sealed row: table, key, and name."""
    found = []
    for table, (key, *_) in TABLES.items():
        for (value,) in asked(path, f"SELECT {key} FROM {table}"):
            name = f"{NUMBERED[table]}:{value}" if table in NUMBERED else value
            found.append((table, value, name))
    return found


def named(found: VerifiedLog, name: str) -> bool:
    """Return whether a problem names this row, and no longer name that begins alike."""
    marks = (f"({name})", f" {name})", f"{name} has no leaf")
    return any(mark in problem for problem in found.problems for mark in marks)


def another(value: Any) -> Any:
    """Return another value of this kind; some value where there was none."""
    if isinstance(value, int):
        return value + 1_000_000
    if isinstance(value, bytes):
        return bytes([value[0] ^ 1]) + value[1:]
    return f"{value or ''}x"


NULLS = {"size", "amount", "expires_at", "before_fulfillable"}


async def test_an_untouched_log_fits_and_is_read_in_parts(
    sealed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = log_store.heads_after

    async def some(connection: Connection, size: int, *, limit: int) -> Any:
        return await heads(connection, size, limit=2)

    monkeypatch.setattr("app.evidence.verify_log.AT_ONCE", 100)
    monkeypatch.setattr(log_store, "heads_after", some)
    size, told = 2 * DELIVERIES + RECORDS + AUDIT_ENTRIES, list[tuple[int, int]]()
    found = await verified(sealed, progress=lambda done, of: told.append((done, of)))
    assert (found.found, found.problems, found.first) == (0, [], None)
    assert found.leaves == len(rows_of(sealed)) == size
    assert [(found.checkpoints,)] == asked(sealed, "SELECT count(*) FROM log_checkpoints")
    assert found.checkpoints > 2
    assert told == [(min(done, size), size) for done in range(100, size + 100, 100)]


def test_problems_beyond_the_limit_are_only_counted() -> None:
    found = VerifiedLog(tell=2)
    for number in (7, 5, 6):
        found.add(f"problem {number}", leaf=number)
    assert (found.found, found.first, found.problems) == (3, 5, ["problem 7", "problem 5"])


def test_a_leaf_fits_the_order_of_its_row_or_an_erased_one() -> None:
    named = order_commitment(b"k", "A")
    order = NamedOrder(number=1, order="A", key=b"k", commitment=named, leaves=1, last=0)
    names = Names(orders={"A": order, "B": order}, erased={"aa"}, secret=None)
    of = named.hex()
    fitting = [(of, "A"), ("aa", "A"), ("aa", "C"), (None, None)]
    for leaf, reference in product((of, "aa", "bb", None), ("A", "B", "C", None)):
        assert names.fits(leaf, reference) is ((leaf, reference) in [*fitting, ("aa", "B")])


async def test_every_edited_row_is_named(copy: Path) -> None:
    chance = random.Random(SEED)
    chosen = chance.sample(rows_of(copy), ROWS)

    def edit(connection: sqlite3.Connection) -> None:
        for table, key, _ in chosen:
            own, column = TABLES[table][0], chance.choice(TABLES[table])
            sql = f"SELECT {column} FROM {table} WHERE {own} = ?"
            ((was,),) = connection.execute(sql, (key,))
            new = 7 if was is None and column in NULLS else another(was)
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE {own} = ?", (new, key))

    change(copy, edit)
    found = await verified(copy)
    assert [name for _, _, name in chosen if not named(found, name)] == []
    assert found.found >= ROWS
    first = min(number for number, subject in asked(copy, "SELECT number, subject FROM log_leaves")
                if subject in {name for _, _, name in chosen})  # fmt: skip
    assert found.first == first


async def test_every_deleted_row_is_named(copy: Path) -> None:
    chosen = random.Random(SEED).sample(rows_of(copy), ROWS)

    def delete(connection: sqlite3.Connection) -> None:
        for table, key, _ in chosen:
            connection.execute(f"DELETE FROM {table} WHERE {TABLES[table][0]} = ?", (key,))

    change(copy, delete)
    found = await verified(copy)
    assert [name for _, _, name in chosen if not named(found, name)] == []
    assert all("seals a row that is missing" in problem for problem in found.problems)


async def test_every_inserted_row_is_named(copy: Path) -> None:
    """Ids of any time, copied from a row that is there: nothing marked them."""

    def insert(connection: sqlite3.Connection) -> None:
        for table in ("deliveries", "records"):
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            others = ", ".join(columns[1:])
            for number in range(ROWS // 2):
                connection.execute(
                    f"INSERT INTO {table} ({', '.join(columns)}) "
                    f"SELECT 'forged_{number}', {others} FROM {table} LIMIT 1"
                )

    change(copy, insert)
    found = await verified(copy)
    for number in range(ROWS // 2):
        count = sum(problem.startswith(f"forged_{number} ") for problem in found.problems)
        assert count == 2
    assert found.found == ROWS


@pytest.mark.slow
async def test_leaves_in_another_order_are_found_where_they_are(copy: Path) -> None:
    """Each pair by itself: the named leaves hold it."""
    chance = random.Random(SEED)
    size = len(rows_of(copy))
    for _ in range(8):
        one, other = sorted(chance.sample(range(size), 2))
        change(copy, partial(swap, one=one, other=other))
        found = await verified(copy)
        assert found.first is not None
        assert found.first <= other
        assert found.found >= 1
        change(copy, partial(swap, one=one, other=other))
    assert (await verified(copy)).found == 0


def swap(connection: sqlite3.Connection, one: int, other: int) -> None:
    for was, new in ((one, -1), (other, one), (-1, other)):
        connection.execute("UPDATE log_leaves SET number = ? WHERE number = ?", (new, was))


@pytest.mark.parametrize(
    "changes",
    [
        [
            ("UPDATE log_leaves SET document = replace(document, 'shop', 'shup') WHERE number = 5",
             "leaf 5 (delivery"),
            ("UPDATE log_leaves SET hash = zeroblob(32) WHERE number = 6", "leaf 6 (delivery"),
            ("UPDATE log_leaves SET subject = 'x' WHERE number = 7", "leaf 7 (delivery x)"),
            ("UPDATE log_leaves SET kind = 'record' WHERE number = 8", "leaf 8 (record"),
            ("UPDATE log_leaves SET document = 'no', hash = x'00' WHERE number = 9", "leaf 9"),
            ("SELECT 1", "leaves between 0 and 99 were changed"),
        ],
        [("DELETE FROM log_leaves WHERE number = 5", "leaf 5 is missing")],
        [("DELETE FROM log_leaves WHERE number > 600", "than the 601 existing")],
        [
            ("UPDATE log_nodes SET hash = zeroblob(32) WHERE place = 1", "leaves 256 to 511"),
            ("DELETE FROM log_nodes WHERE place = 0", "leaves 0 to 255"),
            ("INSERT INTO log_nodes VALUES (16, 9, zeroblob(32)), (16, 8, zeroblob(32))",
             "leaves that do not exist"),
        ],
        [
            ("UPDATE log_checkpoints SET head = zeroblob(32) WHERE size = 100", "of 100 leaves"),
            ("UPDATE log_checkpoints SET note = replace(note, char(10) || '200', char(10) || '201')"
             " WHERE size = 200", "of 200 leaves is not signed"),
            ("UPDATE log_checkpoints SET size = 301 WHERE size = 300", "of 301 leaves states"),
            ("DELETE FROM log_checkpoints WHERE size = (SELECT max(size) FROM log_checkpoints)",
             "no checkpoint covers"),
        ],
        [
            ("UPDATE log_checkpoints SET note = 'x' WHERE size = 200", "not a signed note"),
            ("UPDATE records SET amount = NULL WHERE id = 'rec_00000003'",
             "(rec_00000003) and its row disagree on the content"),
            ("UPDATE records SET details = NULL WHERE id = 'rec_00000004'",
             "(rec_00000004) and its row disagree on the content"),
            ("UPDATE audit SET reason = '' WHERE number = 7", "(deed:7) and its row disagree"),
            ("UPDATE deliveries SET body = NULL WHERE id = (SELECT subject FROM log_leaves "
             "WHERE number = 5)", "lost its body"),
        ],
    ],
    ids=["leaves", "a leaf", "the end", "hashes", "checkpoints", "rows"],
)  # fmt: skip
async def test_each_change_of_the_log_itself_is_named(
    copy: Path, changes: list[tuple[str, str]]
) -> None:
    change(copy, lambda connection: [connection.execute(sql) for sql, _ in changes])
    found = await verified(copy)
    for _, said in changes:
        assert any(said in problem for problem in found.problems), (said, found.problems)
    assert sum("does not match the leaves" in problem for problem in found.problems) <= 1


def rewrite(connection: sqlite3.Connection) -> None:
    """Change an entry of the trail and its leaf: all that can be done without the key."""
    connection.execute("UPDATE audit SET who = 'eve' WHERE number = 7")
    ((number, text),) = connection.execute(
        "SELECT number, document FROM log_leaves WHERE subject = 'deed:7'"
    )
    ((secret,),) = connection.execute("SELECT value FROM meta WHERE name = ?", (SECRET,))
    (row,) = connection.execute(f"SELECT {AUDIT_ENTRY.selected} WHERE number = 7")
    leaf = leaf_of(
        AUDIT_ENTRY.sealable(row),
        number=number,
        salt=bytes.fromhex(json.loads(text)["salt"]),
        secret=bytes.fromhex(secret),
    )
    connection.execute(
        "UPDATE log_leaves SET document = ?, hash = ? WHERE number = ?",
        (leaf.document, leaf.hash, number),
    )


async def test_a_row_and_its_leaf_changed_together_are_found_by_the_signed_heads(
    copy: Path,
) -> None:
    change(copy, rewrite)
    found = await verified(copy)
    assert found.found
    ((number,),) = asked(copy, "SELECT number FROM log_leaves WHERE subject = 'deed:7'")
    assert found.first is not None
    assert found.first <= number


def cut(connection: sqlite3.Connection, *, size: int) -> None:
    """Take the end of the log away, with the rows that it sealed."""
    for table, (key, *_) in TABLES.items():
        name = f"'{NUMBERED[table]}:' || {key}" if table in NUMBERED else key
        connection.execute(
            f"DELETE FROM {table} WHERE {name} IN "
            f"(SELECT subject FROM log_leaves WHERE number >= {size})"
        )
    connection.execute(f"DELETE FROM log_leaves WHERE number >= {size}")
    connection.execute(f"DELETE FROM log_checkpoints WHERE size > {size}")
    connection.execute(f"DELETE FROM log_nodes WHERE (place + 1) << level > {size}")
    connection.execute(
        "DELETE FROM order_keys WHERE lower(hex(commitment)) NOT IN "
        "(SELECT document ->> 'of' FROM log_leaves WHERE document ->> 'of' IS NOT NULL)"
    )
    connection.execute(
        "UPDATE order_keys SET (leaves, last) = (SELECT max(document ->> 'nth'), max(number) "
        "FROM log_leaves WHERE document ->> 'of' = lower(hex(commitment)))"
    )


async def test_a_log_that_was_cut_off_is_found_by_a_checkpoint_kept_elsewhere(copy: Path) -> None:
    kept = asked(copy, "SELECT note FROM log_checkpoints ORDER BY size DESC LIMIT 1")[0][0]
    earlier = asked(copy, "SELECT note FROM log_checkpoints WHERE size = 200")[0][0]
    assert (await verified(copy, against=kept)).found == 0
    assert (await verified(copy, against=earlier)).found == 0
    change(copy, lambda connection: cut(connection, size=300))
    assert (await verified(copy)).found == 0, "nothing inside shows it"
    assert (await verified(copy, against=earlier)).found == 0
    found = await verified(copy, against=kept)
    assert (found.found, found.first) == (1, 300)
    assert "cut off, from leaf 300 on" in found.problems[0]


async def test_a_log_that_was_written_anew_is_found_by_a_checkpoint_kept_elsewhere(
    copy: Path,
) -> None:
    """Even by somebody who has the key."""
    kept = asked(copy, "SELECT note FROM log_checkpoints ORDER BY size DESC LIMIT 1")[0][0]

    def resign(connection: sqlite3.Connection) -> None:
        rewrite(connection)
        frontier, heads = Frontier(), {}
        for (hash_,) in connection.execute("SELECT hash FROM log_leaves ORDER BY number"):
            frontier.append(hash_)
            heads[frontier.size] = frontier.head()
        for (size,) in connection.execute("SELECT size FROM log_checkpoints").fetchall():
            point = Checkpoint(origin=SIGNER.origin, size=size, head=heads[size])
            note = signed_checkpoint(SIGNER.key, point)
            connection.execute("UPDATE log_checkpoints SET head = ?, note = ? WHERE size = ?",
                               (point.head, note, size))  # fmt: skip
        connection.execute("DELETE FROM log_nodes")

    change(copy, resign)
    plain = await verified(copy)
    assert all("stored hash of leaves" in problem for problem in plain.problems)
    found = await verified(copy, against=kept)
    assert any("rewritten" in problem for problem in found.problems)


async def test_what_is_no_checkpoint_of_this_log_is_refused(copy: Path) -> None:
    with pytest.raises(UsageError, match="log checkpoint"):
        await verified(copy, against="x")
    other = Checkpoint(origin="elsewhere", size=1, head=bytes(32))
    with pytest.raises(UsageError, match="belongs to the log elsewhere"):
        await verified(copy, against=signed_checkpoint(SIGNER.key, other))
    note = asked(copy, "SELECT note FROM log_checkpoints WHERE size = 200")[0][0]
    unsigned = note.partition("\n\n")[0] + "\n\n"
    assert read_checkpoint(unsigned).size == 200
    assert (await verified(copy, against=unsigned)).found == 1


async def test_what_is_deleted_leaves_the_log_whole(tmp_path: Path) -> None:
    """Pruned bodies and headers; and verdicts that reindex corrects are counted, not blamed."""
    url = f"sqlite+aiosqlite:///{tmp_path}/t.db"
    async with opened(url) as inbox:
        with pytest.raises(NotFoundError):
            await verify_log(context(inbox), progress=lambda done, of: None)
        await begin(inbox)
        for n in range(3):
            own = {"order": f"O-{n}", "payment": f"p{n}", "session": f"s{n}"}
            await keep(inbox, genuine(f"e{n}", **{**PAID, **own}))
        async with inbox.database.writing() as connection:
            await add_records(connection, [placed(1)], details="kept")
            entry = AuditEntry(at=T, who="ann", role="admin", action="x", subject="A", reason="why")
            await add_entry(connection, entry)
        then = context(inbox, at=LATER)
        await refold_until_quiet(then, limit=100, progress=quiet)
        await seal(inbox)
        pruned = await prune_settled(then, RETENTION, progress=quiet)
        assert pruned.deliveries == 3
        async with inbox.database.writing() as connection:
            await connection.exec_driver_sql(
                "UPDATE deliveries SET verdict = 'unreadable', event_id = NULL WHERE id IN "
                "(SELECT max(id) FROM deliveries)"
            )
        found = await verify_log(context(inbox), progress=lambda done, of: None)
        assert (found.problems, found.reread) == ([], 1)
        async with (
            inbox.database.writing() as connection
        ):  # `db check` says of it that no body gives that
            await connection.exec_driver_sql("UPDATE events SET currency = 'KE9'")
        found = await verify_log(context(inbox), progress=lambda done, of: None)
        assert (found.problems, found.reread) == ([], 3)


async def test_a_key_that_somebody_has_put_in_is_reported(copy: Path, tmp_path: Path) -> None:
    """Whoever has the database alone signs all of it with a key of their own, and enters that."""
    theirs = write_key(tmp_path / "key", secret=b"x" * 32)
    notes = [
        (signed_checkpoint(theirs, read_checkpoint(note)), size)
        for size, note in asked(copy, "SELECT size, note FROM log_checkpoints")
    ]
    change(
        copy,
        lambda connection: connection.execute(
            "UPDATE log_keys SET public=?", (theirs.public.raw.hex(),)
        ),
        lambda connection: connection.executemany(
            "UPDATE log_checkpoints SET note=? WHERE size=?", notes
        ),
    )
    assert (await verified(copy)).problems == [], "the database's own word"
    (problem,) = (await verified(copy, own=SIGNER.key.public)).problems
    assert problem.startswith(f"the signing key, {theirs.public.fingerprint}, is not the key of")


async def test_few_bodies_are_in_memory_at_a_time(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may be as large as the receiver takes them."""
    asked_for: list[int] = []
    found_by = store.contents_of

    async def counting(connection: Connection, ids: Iterable[str]) -> dict[str, store.Content]:
        found = await found_by(connection, ids)
        asked_for.append(len(found))
        return found

    monkeypatch.setattr(store, "contents_of", counting)
    assert (await verified(copy)).problems == []
    assert sum(asked_for) == DELIVERIES
    assert max(asked_for) <= BODIES_AT_ONCE
