"""Search for a customer in rows and files: which ones contain the number, in any form."""

import zlib
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.masking import written_pattern
from app.database.engine import scratch_database
from app.privacy import erase_store
from app.privacy.erase import traces_left
from app.privacy.erase_finding import Erasure
from app.privacy.erase_rules import KeptData
from app.privacy.erase_store import Owned, SearchedText, files_with, rows_that_hold
from app.privacy.erase_texts import BankText, bank_lines_with, bare_reasons, quoting_revisions
from app.receiving.inbox_file_store import path_of
from reconcile.instants import Instant
from tests.database.contract_personal import planted_rows
from tests.privacy.test_erase import OTHER, PHONE, SPELLED
from tests.reconcile.build import T
from tests.rows import for_each

EMAIL: Final = "jane.doe@example.com"
DELIVERY: Final = {
    "source": "shop", "verdict": "stored", "event_id": None, "digest": "", "size": 1,
    "headers": "", "received_at": 1,
}  # fmt: skip
REJECTION: Final = DELIVERY | {"verdict": "signature_mismatch", "body": b""}
del REJECTION["event_id"]


async def put(connection: AsyncConnection, table: str, **values: Any) -> None:
    """Insert a row."""
    names = ", ".join(f'"{each}"' for each in values)
    given = ", ".join(f":{each}" for each in values)
    await connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({given})"), values)


async def planted(connection: AsyncConnection, where: str, *contents: str | bytes) -> None:
    """Insert a row for each of these contents of a column."""
    marker = f"of X in {where}"
    row = next(v for _, v in planted_rows("X") if {marker, marker.encode()} & {*v.values()})
    table, _, column = where.partition(".")
    for number, content in enumerate(contents):
        given = {name: f"{each}{number}" if each == where else each for name, each in row.items()}
        await put(connection, table, **given | {column: content})


def escaped(words: str) -> str:
    """Return a text with all characters escaped as in JSON."""
    return "".join(f"\\u{ord(each):04x}" for each in words)


FORMS: Final[Mapping[str, bytes]] = {
    "as it is": f"of {PHONE}".encode(),
    "with blanks": SPELLED.encode(),
    "in an address": b"%2B254%20711%20223344",
    "escaped": escaped(PHONE).encode(),
    "in base64": b64encode(f"his name is Kamau, his number {SPELLED}".encode() * 2),
    "beside a byte that is no text": b"\xff " + PHONE.encode(),
    "after the first byte of compressed content": b"\x78 " + PHONE.encode(),
    "compressed": zlib.compress(f"of {PHONE} and others".encode() * 9),
    "compressed and escaped": zlib.compress(escaped(PHONE).encode()),
}


async def test_a_number_is_found_in_bytes_in_every_form() -> None:
    """In a file and in a body, and no other number."""
    place = "attachment_files.body"
    async with scratch_database() as connection:
        await planted(connection, place, *FORMS.values(), OTHER.encode(), b"")
        found = await rows_that_hold(connection, [PHONE])
    assert found == {place: {(f"{place}{number}",) for number in range(len(FORMS))}}


async def test_a_number_is_found_in_a_text_in_every_form() -> None:
    """In a text from outside and in one of ours; among all rows, or among those found before."""
    forms = [PHONE, SPELLED, "%2B254%20711%20223344", escaped(PHONE)]
    counts: list[int] = []
    async with scratch_database() as connection:
        for place in ("unread_values.value", "records.reason"):
            await planted(connection, place, *forms, OTHER)
        found = await rows_that_hold(connection, [PHONE], progress=counts.append)
        some = {"records.reason": {*list(found["records.reason"])[:1]}}
        among = await rows_that_hold(connection, [PHONE], among=some)
        others = await rows_that_hold(connection, [OTHER, PHONE])
        nobody = await rows_that_hold(connection, [])
    assert {place: len(keys) for place, keys in found.items()} == {
        "unread_values.value": 4, "records.reason": 4
    }  # fmt: skip
    assert sum(counts) == 10
    assert (among, nobody) == (some, {})
    assert {place: len(keys) for place, keys in others.items()} == {
        "unread_values.value": 5, "records.reason": 5
    }  # fmt: skip


@asynccontextmanager
async def with_deliveries() -> AsyncIterator[AsyncConnection]:
    """Open a database with two deliveries of one event, one of an event without an order, and one
    that could not be read and has no body any more."""
    events = {"claim": "declined", "kind": "declined", "standing": "signed", "received_at": 1}
    async with scratch_database() as connection:
        for name, event, more in (
            ("dlv_3", "e1", {}),
            ("dlv_1", "e1", {"received_at": 3, "verdict": "duplicate", "envelope": "both"}),
            ("dlv_2", "e2", {"source": "till", "received_at": 2, "envelope": "both"}),
            ("dlv_4", None, {"verdict": "unreadable", "pruned_at": 9}),
        ):
            given = DELIVERY | more | {"id": name, "event_id": event}
            await put(connection, "deliveries", **given)
        for row, event, source, order, reason in (
            (2, "e1", "shop", "ORD-1", "no wallet of Ann"),
            (1, "e2", "till", None, f"msisdn{PHONE}"),
            (3, "e2", "shop", "ORD-2", "of another source"),
        ):
            await put(
                connection, "events", row=row, event_id=event, source=source, order_key=order,
                reason=reason, digest="", delivery_id="dlv_3", **events,
            )  # fmt: skip
        yield connection


async def test_a_delivery_is_found_with_its_order() -> None:
    def owned(name: str, at: Any, order: str | None, **more: Any) -> Owned:
        fields: Any = {"source": "shop", "pruned": False, "unread": False} | more
        return Owned(delivery_id=name, received_at=at, order=order, **fields)

    whole = [owned("dlv_1", 3, "ORD-1"), owned("dlv_2", 2, None, source="till")]
    async with with_deliveries() as connection:
        names = ["dlv_4", "dlv_3", "dlv_2", "dlv_1", "dlv_9"]
        found = await erase_store.owners(connection, names)
        in_wholes = await erase_store.owners_in_wholes(connection, ["both", "other"])
        arrivals = [
            await erase_store.first_arrival(connection, each)
            for each in (["dlv_1", "dlv_2", "dlv_9"], ["dlv_9"], [])
        ]
    assert found == [
        *whole,
        owned("dlv_3", 1, "ORD-1"),
        owned("dlv_4", 1, None, pruned=True, unread=True),
    ]
    assert in_wholes == {"both": whole}
    assert arrivals == [2, None, None]


async def test_a_reason_in_words_goes_and_a_code_only_with_the_number_in_it() -> None:
    """Each event once, whatever number of deliveries brought it."""
    names = ["dlv_3", "dlv_2", "dlv_1", "dlv_4"]
    async with with_deliveries() as connection:
        assert await erase_store.reasons_of(connection, names) == [
            ("dlv_1", 2, "no wallet of Ann"),
            ("dlv_2", 1, f"msisdn{PHONE}"),
            ("dlv_3", 2, "no wallet of Ann"),
        ]
        assert await bare_reasons(connection, names, [PHONE]) == [(1, "dlv_2"), (2, "dlv_1")]
        assert await bare_reasons(connection, names, [OTHER]) == [(2, "dlv_1")]
        await erase_store.rewrite_reasons(connection, [(2, "•"), (1, "insufficient_funds")])
        assert await bare_reasons(connection, names, [PHONE]) == []


async def test_a_published_reason_that_quotes_an_erased_one_is_found() -> None:
    """Only of an order whose own reason is erased."""
    row = next(v for _, v in planted_rows("X") if "of X in revisions.because" in v.values())
    async with with_deliveries() as connection:
        for number, order, because in (
            (4, "ORD-1", '["declined", "no wallet of Ann, it says"]'),
            (3, "ORD-1", '["declined"]'),
            (2, "ORD-2", '["no wallet of Ann"]'),
        ):
            given = {"seq": number, "order_key": order, "because": because}
            await put(connection, "revisions", **row | given)
        brought = {"ORD-1": ["dlv_1", "dlv_3"], "ORD-2": ["dlv_2"]}
        found = await quoting_revisions(connection, brought, [(2, "dlv_1")])
        published = await erase_store.published_reasons(connection, ["ORD-1"])
    assert found == {(4,)}
    assert published == [(3, "declined"), (4, "declined no wallet of Ann, it says")]


async def test_every_refused_delivery_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """In batches, each delivery once."""
    monkeypatch.setattr(erase_store, "AT_ONCE", 2)
    async with scratch_database() as connection:
        for number in range(5):
            body = (OTHER if number == 3 else PHONE).encode()
            given = REJECTION | {"id": f"dlv_{number}", "body": body, "received_at": number}
            await put(connection, "rejections", **given)
        patterns = [written_pattern(PHONE), written_pattern(EMAIL)]
        found = await erase_store.rejections_that_hold(connection, patterns)
        named = await erase_store.rejections_received(connection, ["dlv_4", "dlv_9"])
    assert found == [("dlv_0", 0), ("dlv_1", 1), ("dlv_2", 2), ("dlv_4", 4)]
    assert named == [("dlv_4", 4)]


@for_each(
    ("headers", "body", "held"),
    [
        (f"x: {PHONE}", None, True),
        ("x: %2B254%20711%20223344", b"", True),
        ("", FORMS["escaped"], True),
        ("", b"\xff" + FORMS["in base64"], True),
        (FORMS["in base64"].decode(), b"", False),
        ("x: 1", b"2", False),
    ],
)
def test_headers_and_body_are_searched_as_one_text(
    headers: str, body: bytes | None, held: bool
) -> None:
    """A long run of letters in a header is a signature, and is not decoded."""
    whole = SearchedText("dlv_1", headers, body, T).whole()
    assert whole.startswith(headers)
    assert bool(written_pattern(PHONE).search(whole)) == held


async def test_a_bank_line_is_found_with_the_texts_to_empty() -> None:
    """Payer and words always; an id of the bank's only where it contains the number."""
    row = next(v for _, v in planted_rows("X") if "of X in bank_lines.told" in v.values())
    texts = [
        (PHONE, "r", "c", "t"), ("e", SPELLED, "c", "t"), ("e", "r", PHONE, "t"),
        ("e", "r", "c", OTHER), ("e", "r", "c", "t"),
    ]  # fmt: skip
    async with scratch_database() as connection:
        for number, each in enumerate(texts):
            given = dict(zip(("entry", "reference", "counterparty", "told"), each, strict=True))
            place = {"subject": "s", "ordinal": number, "since": 7, "booked_at": T + number}
            await put(connection, "bank_lines", **row | place | given)
        found = await bank_lines_with(connection, [written_pattern(PHONE)])
        others = await bank_lines_with(connection, [written_pattern(p) for p in (PHONE, OTHER)])
        nobody = await bank_lines_with(connection, [])
    assert found == [
        BankText(("s", number, 7), texts[number], which, Instant(T + number))
        for number, which in enumerate(("x-xx", "-xxx", "--xx"))
    ]
    assert [each.key[1] for each in others] == [0, 1, 2, 3]
    assert nobody == []


@pytest.mark.parametrize("at_once", [1, 5, 8, 12, 13, 1024])
def test_a_number_is_found_in_a_file_wherever_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """Also where it begins in one part that is read and ends in another."""
    monkeypatch.setattr(erase_store, "READ_AT_ONCE", at_once)
    path = tmp_path / "t.db"
    for before in range(14):
        for sought, found in (([PHONE, EMAIL], True), ([OTHER, "9"], False), ([EMAIL], True)):
            path.write_bytes(b"x" * before + f"{PHONE} {EMAIL.title()}".encode())
            assert files_with(path, [each.encode() for each in sought]) == [path] * found


def test_every_file_of_the_database_and_its_inbox_is_searched(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    files = [Path(f"{each}{end}") for each in (path, path_of(path))
             for end in ("", "-wal", "-shm", "-journal")]  # fmt: skip
    for each in [*files, tmp_path / "u.db"]:
        each.write_text(PHONE)
    assert files_with(path, [PHONE.encode()]) == files
    files[0].write_text(OTHER)
    files[1].unlink()
    assert files_with(path, [PHONE.encode()]) == files[2:]


def test_traces_are_searched_only_where_no_row_contains_the_number(tmp_path: Path) -> None:
    """Data that stays, and a row that still contains the number, explain the traces."""
    path, who = tmp_path / "t.db", [f"email:{EMAIL}"]
    path.write_text(f"{EMAIL} email:")
    kept = [KeptData(what="ORD-1", why="disputed")]
    for more, found in (
        ({"identifiers": who}, [path]),
        ({"identifiers": who, "kept": kept}, []),
        ({"identifiers": who, "holding": {"audit.reason": {(1,)}}}, []),
        ({}, []),
        ({"identifiers": [PHONE]}, []),
    ):
        assert traces_left(path, Erasure(subject="x", **more)) == found
