"""Locations that apply only to some events: a member shows which object a field belongs to."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.core.reading import Unreadable
from app.core.strict_json import parse, parse_written
from app.providers.fetched import keep_answer
from app.providers.paths import compile_path, find_paths, slices
from app.providers.request import Incoming
from app.providers.source import Source
from reconcile.instants import EARLIEST, parse_instant
from reconcile.ledger.events import Event
from tests.providers.builders import made, only, raw
from tests.rows import for_each

PAID = {"id": "e1", "type": "paid"}
FIELDS = {
    "id": "json:id",
    "kind": "json:type",
    "payment": ["json:data[object=charge].id", "{json:data[object=refund].link|last_segment}"],
}
AT = "2026-11-20T10:00:00Z"
TOP = 'confirm = "fetch_back"\n'


def of_payment(folder: Path, location: str) -> Source:
    return made(folder, event={**FIELDS, "payment": location})


@pytest.mark.parametrize(
    ("data", "payment"),
    [
        ({"object": "charge", "id": "ch_1"}, "ch_1"),
        ({"object": "refund", "id": "re_1", "link": "https://x.example/charges/ch_1"}, "ch_1"),
        ({"object": "refund", "id": "re_1", "link": "ch_1"}, "ch_1"),
        ({"object": "dispute", "id": "dp_1", "link": "ch_1"}, None),
        ({"id": "ch_1"}, None),
        ([{"object": "charge", "id": "ch_1"}], "ch_1"),
    ],
)
def test_a_condition_selects_the_object(data: Any, payment: str | None, tmp_path: Path) -> None:
    assert only(made(tmp_path, event=FIELDS), {**PAID, "data": data}).payment == payment


@pytest.mark.parametrize("word", ["true", "false"])
def test_a_condition_matches_json_booleans(word: str, tmp_path: Path) -> None:
    source = of_payment(tmp_path, f"json:data[captured={word}].id")
    for captured in (True, False):
        found = only(source, {**PAID, "data": {"captured": captured, "id": "ch_1"}})
        assert (found.payment == "ch_1") == (word == json.dumps(captured))


@pytest.mark.parametrize(
    ("message", "payment"),
    [("PRE_AUTH|OK", "p_1"), ("PRE_AUTH", "p_1"), ("00:PRE_AUTH", None), (7, None), (None, None)],
)
def test_a_condition_with_an_asterisk_matches_the_beginning_of_a_text(
    message: Any, payment: str | None, tmp_path: Path
) -> None:
    source = of_payment(tmp_path, "json:data[message=PRE_AUTH*].id")
    assert only(source, {**PAID, "data": {"message": message, "id": "p_1"}}).payment == payment


@pytest.mark.parametrize(("sent", "payment"), [("DB", "p_1"), ("RF", None), ("DB2", None)])
def test_a_condition_may_select_a_form_field(
    sent: str, payment: str | None, tmp_path: Path
) -> None:
    event = {"id": "form:id", "kind": "text:paid", "order": "form:order"}
    source = made(
        tmp_path, event=event | {"payment": "form:[type=DB].id"}, request={"body": "form"}
    )
    assert only(source, f"id=p_1&order=O&type={sent}".encode()).payment == payment


def test_a_condition_on_a_text_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="not a list or an object"):
        only(made(tmp_path, event=FIELDS), {**PAID, "data": "charge"})


@pytest.mark.parametrize(
    ("kind", "claim", "capture"),
    [("paid", "succeeded", "c_1"), ("held", "authorized", None), ("noise", "ignored", None)],
)
def test_only_a_success_names_its_capture(
    kind: str, claim: str, capture: str | None, tmp_path: Path
) -> None:
    words = {"paid": "succeeded", "held": "authorized", "noise": "ignored"}
    source = made(tmp_path, event={**FIELDS, "capture": "json:part"}, claims=words)
    found = only(source, {"id": "e1", "type": kind, "part": "c_1"})
    assert (found.claim, found.capture) == (claim, capture)


FETCH_BACK = """
[fetch_back]
url = "https://api.example.com/{payment}"
kind = "json:kind"
order = "json:order"
movement = "json:refund"
%s
[fetch_back.claims]
back = "refunded"
in = "succeeded"
"""
DATED = FETCH_BACK % 'occurred_at = "json:at"'
SUMMED = FETCH_BACK % (
    'capture = "json:part"\ndated_as_event = true\namount = "json:amount"\nrefund = "json:back"\n'
    'refunded_total = "json:so_far"\ncurrency = "text:KES"'
)


def answered(source: Source, asked: Event, **answer: Any) -> Event:
    """Read the provider's answer about an event."""
    content = json.dumps({"order": "O", **answer}).encode()
    kept = keep_answer(asked, question="GET", status=200, answer=content)
    return source.read_answer(kept, digest="1" * 64)


def test_an_ignored_kind_stays_ignored_where_events_are_fetched_back(tmp_path: Path) -> None:
    claims = {"noise": "ignored", "paid": "succeeded"}
    source = made(tmp_path, top=TOP, more=DATED, event=FIELDS, claims=claims)
    for kind, claim in (("noise", "ignored"), ("paid", "pending")):
        body = {"id": "e1", "type": kind, "data": {"object": "charge", "id": "c"}}
        assert only(source, body).claim == claim


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"kind": "in", "amount": 9, "part": "c_1"}, ("9", None, None, "c_1")),
        ({"kind": "in", "amount": 9, "so_far": 4}, ("9", "4", None, None)),
        ({"kind": "back", "amount": 9, "refund": "r"}, ("9", None, "r", None)),
        ({"kind": "back", "amount": 9, "back": 3, "refund": "r"}, ("3", None, "r", None)),
        ({"kind": "back", "amount": 9, "so_far": 4, "refund": "r"}, (None, "4", None, None)),
        ({"kind": "back", "back": 3, "so_far": 4, "refund": "r"}, ("3", "4", "r", None)),
    ],
)
def test_an_answer_states_sums_and_captures_and_has_the_events_date(
    answer: dict[str, Any], says: tuple[str | None, ...], tmp_path: Path
) -> None:
    source = made(tmp_path, top=TOP, more=SUMMED, event={**FIELDS, "occurred_at": "json:at"})
    asked = only(source, {**PAID, "at": AT, "data": {"object": "charge", "id": "ch_1"}})
    event = answered(source, asked, **answer)
    amounts = [
        None if m is None else str(m.minor // 100) for m in (event.money, event.refunded_total)
    ]
    assert (*amounts, event.movement, event.capture) == says
    assert event.occurred_at == parse_instant(AT)


def test_the_answers_refund_and_date_replace_those_of_the_unsigned_event(tmp_path: Path) -> None:
    source = made(tmp_path, top=TOP, more=DATED, event={**FIELDS, "movement": "json:data.link"})
    asked = only(source, {**PAID, "data": {"object": "charge", "id": "ch_1", "link": "no"}})
    for kind, movement in (("back", "re_1"), ("in", None)):
        event = answered(source, asked, kind=kind, refund="re_1", at=AT)
        assert (event.movement, event.occurred_at) == (movement, parse_instant(AT))


LINES = """\
{"id": "e1", "type": "paid", "order": "A", "currency": "KES", "lines": [%s
 {"code": "7", "amount": "5.00"}]}"""


@pytest.mark.parametrize("before", ['{"code": 7, "amount": "900.00"},', '{"code": 7},'])
def test_signing_and_reading_select_the_same_object_by_a_number(
    before: str, tmp_path: Path
) -> None:
    """Else an object that only reading selects could be put before the signed one."""
    amount = "json:lines[code=7].amount"
    signed = ("json:id", "json:type", "json:order", "json:currency", amount)
    source = made(
        tmp_path,
        signature={"signed": "|".join(f"{{{each}}}" for each in signed)},
        amounts={"payment": amount, "payment_currency": "json:currency"},
    )
    genuine = (LINES % "").encode()
    headers = raw(source.sign(genuine, event_id="e1", now=EARLIEST))
    assert source.verify(Incoming(headers, genuine), now=EARLIEST) is None
    assert source.verify(Incoming(headers, (LINES % before).encode()), now=EARLIEST) is not None


@for_each("number", ["7", "-0", "7.0", "7e0", '"7"', "70"])
def test_a_number_matches_a_condition_alike_in_reading_signing_and_slicing(number: str) -> None:
    body = f'[{{"code": {number}}}]'
    for wanted in ("7", "0", "-0", "7.0"):
        path = compile_path(f"[code={wanted}]")
        read = find_paths(parse(body.encode()), path)
        assert (find_paths(parse_written(body.encode()), path) is None) == (read is None)
        assert (not slices(body, path)) == (read is None)


@pytest.mark.parametrize(
    ("kind", "tip", "parts"),
    [
        ("paid", 2, {"base": 7, "tip": 2}),
        ("paid", 0, {"base": 7}),
        ("paid", "two", {"base": 7}),
        ("paid", 0.001, {"base": 7}),
        ("paid", -2, {"base": 7}),
        ("back", 2, {}),
    ],
)
def test_an_event_states_the_parts_of_a_payment(
    kind: str, tip: Any, parts: dict[str, int], tmp_path: Path
) -> None:
    """A part that cannot be read exactly is left out, and puts nothing in doubt."""
    amounts = {"payment": "json:sum", "payment_currency": "text:KES", "presented": "json:sum"}
    source = made(
        tmp_path,
        amounts={**amounts, "base": "json:base", "tip": "json:tip"},
        claims={"back": "refunded"},
    )
    event = only(source, {**PAID, "type": kind, "sum": 9, "base": 7, "tip": tip})
    assert {part.kind: part.money.minor // 100 for part in event.parts} == parts
    assert event.unclear is None
