"""Events and claims that name another's order, payment or session."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.api.driving import driving, secret, signed
from tests.security.playing import OPEN, Act, Construction, Play, Table, Target, events

pytestmark = pytest.mark.slow

TILL_KEY, STALL_KEY = b"another key for tests, no secret", b"a third key for tests, no secret"
SOURCES: dict[str, Any] = OPEN | {
    "SOURCES__TILL__SECRETS": secret(TILL_KEY),
    "SOURCES__TILL__ORDERS": "own",
    "SOURCES__STALL__SECRETS": secret(STALL_KEY),
}
KEYS = {"till": TILL_KEY, "stall": STALL_KEY}
CHEAP = {"amount": 10, "currency": "KES"}


def by(source: str, make: Any) -> Act:
    """Send an event that this source signs."""

    async def does(target: Target) -> None:
        body = json.dumps(make(target)).encode()
        headers = signed(body, at=target.driver.clock.now(), key=KEYS[source])
        answer = await target.driver.send(body, headers, source=source)
        assert (answer.status_code, answer.json()["verdict"]) == (200, "stored")

    return does


def named(change: Any, *, stored: bool = True) -> Act:
    """Pay the whole price to an order whose name is made of the target's."""

    async def does(target: Target) -> None:
        answer = await target.driver.send(
            target.stranger("like", order={"reference": change(target.order)})
        )
        assert answer.status_code == 200
        assert (answer.json()["verdict"] == "stored") is stored

    return does


def taking(kind: str, status: int, *, first: bool) -> Act:
    """Name the target's payment or session for the thief's order, `first` or after its event."""

    async def does(target: Target) -> None:
        if not first:
            assert await target.send(target.event("seen", "pending")) == 200
        thief = Target(target.driver, f"thief-{target.order}")
        name = target.payment if kind == "payment" else target.session
        found = await thief.put(references=[{"source": "shop", kind: name}])
        assert found == status, found

    return does


async def nameless_for_the_thief(target: Target) -> None:
    """Send a payment that names no order, and claim it for the thief's order before the
    target's."""
    paid = target.event(
        "nameless", order=None, session=None, payment={"reference": f"n-{target.order}"}
    )
    assert await target.send(paid) == 200
    thief = Target(target.driver, f"thief-{target.order}")
    named = [{"source": "shop", "payment": f"n-{target.order}"}]
    assert await thief.put(references=named) == 200
    assert await target.put(references=named) == 409


async def one_payment_for_two(target: Target) -> None:
    """Place the thief's order, and send a payment that names it first, then the target."""
    assert await Target(target.driver, f"thief-{target.order}").put() == 200
    await events(lambda t: of_thief(t, "one"), lambda t: t.stranger("two"))(target)


def of_thief(target: Target, event_id: str, **changes: Any) -> dict[str, Any]:
    return target.stranger(event_id, order={"reference": f"thief-{target.order}"}, **changes)


REFERENCES: Table = {
    "a source of own orders names the order": by("till", lambda t: t.stranger("t")),
    "it names its own order by the name that it has here": by(
        "till", lambda t: t.stranger("t", order={"reference": f"@till:{t.order}"})
    ),
    "it names the order as one of the shop's source": by(
        "till", lambda t: t.stranger("t", order={"reference": f"@shop:{t.order}"})
    ),
    "the shop's source names an order of the till": events(
        lambda t: t.stranger("t", order={"reference": f"@till:{t.order}"})
    ),
    "a source of own orders names the order's payment and session": by(
        "till", lambda t: t.event("t", payment={"amount": 10})
    ),
    "it says that the order's payment was refunded": by("till", lambda t: t.event("t", "refunded")),
    "it says that the order was disputed": by("till", lambda t: t.event("t", "disputed")),
    "another source names the order's payment, of ten shillings": by(
        "stall", lambda t: t.event("s", payment={"amount": 10})
    ),
    "another source names the order's payment for another order": by(
        "stall", lambda t: t.event("s", order={"reference": f"thief-{t.order}"})
    ),
    "another source sends an event of the same id as the order's payment": by(
        "stall", lambda t: t.event("paid", payment={"amount": 10})
    ),
    "another source calls the order's payment declined": by(
        "stall", lambda t: t.event("s", "declined")
    ),
    "its name in small letters": named(str.lower),
    "its name with a blank behind it": named(lambda name: name + " "),
    "its name with a blank before it": named(lambda name: " " + name),
    "its name with a no-break space behind it": named(lambda name: name + "\u00a0"),
    "its name with a character of no width": named(lambda name: name[:3] + "\u200b" + name[3:]),
    "its name with a Cyrillic A": named(lambda name: name.replace("A", "\u0410")),
    "its name in full-width digits": named(lambda name: name.replace("2", "\uff12")),
    "its name with a combining mark": named(lambda name: name + "\u0301"),
    "its name written backwards by a mark": named(lambda name: "\u202e" + name),
    "its name with U+FFFD behind it": named(lambda name: name + "\ufffd"),
    "its name escaped for a path": named(lambda name: name.replace("A", "%41")),
    "its name with U+2028 behind it": named(lambda name: name + "\u2028", stored=False),
    "its name with a line break behind it": named(lambda name: name + "\n", stored=False),
    "its name with a zero byte behind it": named(lambda name: name + "\x00", stored=False),
    "its name with half a surrogate pair": named(lambda name: name + "\ud800", stored=False),
    "its name in a list": named(lambda name: [name], stored=False),
    "its name and two hundred characters": named(lambda name: name + "x" * 200, stored=False),
    "one payment for two orders that the shop placed": one_payment_for_two,
    "one payment for two orders, the target first": events(
        lambda t: t.stranger("two", payment={"amount": 750}), lambda t: of_thief(t, "one")
    ),
    "one event id for two orders": events(
        lambda t: of_thief(t, "a") | {"id": f"same-{t.order}"},
        lambda t: t.stranger("b") | {"id": f"same-{t.order}"},
    ),
    "one session of the thief's for two orders": events(
        lambda t: of_thief(t, "a") | {"id": f"s1-{t.order}"},
        lambda t: {
            **(made := t.stranger("b", "succeeded", payment=CHEAP)),
            "data": {**made["data"], "session": {"reference": f"cs-thief-{t.order}"}},
        },
    ),
    "the thief's order names its payment by the API, and it is known whose that is": taking(
        "payment", 409, first=False
    ),
    "the thief's order names its session by the API, and it is known whose that is": taking(
        "session", 409, first=False
    ),
    "the thief's order names its payment by the API before anybody knows of it": Construction(
        taking("payment", 200, first=True), paid=False, pays=False
    ),  # by the shop's own word another order is paid with it: no goods, but a person
    "a nameless payment that the thief's order claimed first": nameless_for_the_thief,
}


async def test_nothing_counts_for_an_order_that_it_does_not_name(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False, **SOURCES) as driver:
        assert await Play(driver, "Ref").breaks(REFERENCES) == []


async def test_where_names_are_made_alike_they_pay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of them name the target if names are trimmed, folded and without their source."""

    def alike(order: str, source: str, *, own: bool) -> str:
        plain = "".join(c for c in order if c.isascii() and c.isalnum())
        return plain.upper().replace("REF", "Ref").replace("U0", "u0").replace("P0", "p0")

    monkeypatch.setattr("app.providers.fields.order_named", alike)
    chosen = {
        "till": by("till", lambda t: t.stranger("t")),
        "small letters": named(str.lower),
        "blank": named(lambda name: name + " "),
        "no width": named(lambda name: name[:3] + "\u200b" + name[3:]),
        "U+FFFD": named(lambda name: name + "\ufffd"),
    }
    async with driving(tmp_path, with_worker=False, **SOURCES) as driver:
        broken = await Play(driver, "Ref").breaks(chosen)
    assert [each.partition(":")[0] for each in broken] == [*chosen]
