"""Golden documents: three ledgers as JSON, checked by a person, compared to the byte.

`TALLYHOOK_GOLDEN=write` writes them anew; read the difference before you keep it.
"""

import json
from typing import Any

import pytest

from reconcile.canonical import canonical_json, fingerprint
from reconcile.instants import parse_instant
from reconcile.ledger.explain import explain, headline, ledger_document
from reconcile.ledger.fold import fold
from reconcile.ledger.ledger import Ledger
from reconcile.money import Money
from tests.reconcile.build import (
    DUE,
    POLICY,
    delivery,
    event,
    history,
    record,
    seconds,
    seven_deliveries,
)
from tests.reconcile.pinned import same_text
from tests.rows import for_each


def contradicted() -> Ledger:
    return fold(history(*seven_deliveries()), policy=POLICY, as_of=seconds(100))


def recovered_and_refunded() -> Ledger:
    """Declined, paid late on a second attempt, refunded in part; an event of unknown kind."""
    fields: dict[str, Any] = {"session": "cs_1", "order_money": DUE}
    part = {"money": Money(minor=50_000, currency="KES"), "movement": "re_1"}
    pay_2 = {"payment": "pay_2", "money": DUE, **fields}
    return fold(
        history(
            record("rec_1", "order_placed", 0, money=DUE),
            record("rec_2", "session_requested", 1, key="k1", source="shop", money=DUE),
            record(
                "rec_3", "session_opened", 2, key="k1", source="shop", session="cs_1",
                expires_at=seconds(900),
            ),
            delivery("d1", 6, event("evt_1", "declined", 5, payment="pay_1",
                                    reason="insufficient_funds", **fields)),
            delivery("d2", 1_000, event("evt_2", "succeeded", 20, **pay_2)),
            delivery("d3", 1_030, event("evt_2", "succeeded", 20, **pay_2)),
            delivery("d4", 1_001, event("evt_3", "pending", 10, **pay_2)),
            delivery("d5", 1_100, event("evt_4", "unrecognized", None, kind="payment.sparkled",
                                        session="cs_1")),
            delivery("d6", 2_000, event("evt_5", "refunded", 1_999, payment="pay_2", **part)),
        ),
        policy=POLICY,
        as_of=seconds(3_000),
    )  # fmt: skip


def waiting() -> Ledger:
    """Return a session requested without an answer: pending, with a decision ahead."""
    return fold(
        history(
            record("rec_1", "order_placed", 0, money=DUE),
            record("rec_2", "session_requested", 1, key="k1", source="shop", money=DUE),
            record("rec_3", "session_unknown", 31, key="k1", source="shop"),
        ),
        policy=POLICY,
        as_of=seconds(60),
    )


LEDGERS = [contradicted, recovered_and_refunded, waiting]


@pytest.mark.parametrize("made", LEDGERS, ids=lambda made: made.__name__)
def test_the_document_is_the_golden_one_to_the_byte(made: Any) -> None:
    written = json.dumps(ledger_document(made()), indent=2, ensure_ascii=False) + "\n"
    same_text(f"ledger_{made.__name__}.json", written)


@pytest.mark.parametrize("made", LEDGERS, ids=lambda made: made.__name__)
def test_the_fingerprint_covers_everything_but_the_instant(made: Any) -> None:
    document: dict[str, Any] = {**ledger_document(made())}
    mark = document.pop("fingerprint")
    document.pop("as_of")
    assert fingerprint(document) == mark
    document["outcome"] = "other"
    assert fingerprint(document) != mark


def test_the_headline_is_the_first_sentence() -> None:
    ledger = recovered_and_refunded()
    assert headline(ledger) == explain(ledger)[0]
    assert headline(ledger) == (
        "Refunded in part: KES 500.00 of the KES 1,500.00 captured has been given back "
        "[evt_2, evt_5, rec_1]."
    )


def test_an_open_order_names_its_last_deadline() -> None:
    opened = {"source": "shop", "key": "k1", "session": "cs_1", "expires_at": seconds(600)}
    later = {"source": "shop", "key": "k2", "session": "cs_2", "expires_at": seconds(1_200)}
    ledger = fold(
        history(
            record("rec_1", "session_opened", 1, **opened),
            record("rec_2", "session_opened", 2, **later),
        ),
        policy=POLICY,
        as_of=seconds(60),
    )
    assert headline(ledger) == (
        "Pending: no final event yet; one is awaited until 2026-11-20T10:25:00Z [rec_1, rec_2]."
    )
    assert ledger.next_decision_at == seconds(600) + POLICY.grace


def test_a_session_that_never_ends_is_awaited_until_the_end_of_the_calendar() -> None:
    never = parse_instant("9999-12-31T23:59:59Z")
    opened = {"source": "shop", "key": "k1", "session": "cs_1", "expires_at": never}
    ledger = fold(
        history(record("rec_1", "session_opened", 1, **opened)), policy=POLICY, as_of=seconds(60)
    )
    assert headline(ledger) == (
        "Pending: no final event yet; one is awaited until 9999-12-31T23:59:59.999999Z [rec_1]."
    )
    assert ledger_document(ledger)["next_decision_at"] == "9999-12-31T23:59:59.999999Z"


def test_amounts_of_a_second_currency_stand_apart() -> None:
    dollars = Money(minor=1_000, currency="USD")
    ledger = fold(
        history(
            record("rec_1", "order_placed", 0, money=DUE),
            delivery("d1", 6, event("evt_1", "succeeded", 5, payment="pay_1", money=dollars)),
        ),
        policy=POLICY,
        as_of=seconds(60),
    )
    assert ledger_document(ledger)["totals"] == {
        "expected": {"amount": "1500.00", "currency": "KES"},
        "captured": {"amount": "0.00", "currency": "KES"},
        "refunded": {"amount": "0.00", "currency": "KES"},
        "held": {"amount": "0.00", "currency": "KES"},
        "others": [
            {
                "captured": {"amount": "10.00", "currency": "USD"},
                "refunded": {"amount": "0.00", "currency": "USD"},
            }
        ],
    }


NO_DATE = "the provider gave no date; our arrival stands in"
UNCONFIRMED = "it does not count by itself: its provider has not confirmed it here"
ANSWERED = "the provider's own answer, fetched by us"


@for_each(
    ("dated", "standing", "arrivals", "note"),
    [
        (0, "signed", (300,), ""),
        (0, "signed", (301,), "arrived 5 min 1 s after it occurred"),
        (0, "signed", (300, 301), "delivered 2 times"),
        (None, "signed", (300,), NO_DATE),
        (0, "unconfirmed", (300,), UNCONFIRMED),
        (0, "fetched", (301,), ANSWERED),
        (0, "answered", (301,), ANSWERED),
        (None, "unconfirmed", (1, 2, 3), f"{NO_DATE}; {UNCONFIRMED}; delivered 3 times"),
        (0, "unconfirmed", (301,), f"{UNCONFIRMED}; arrived 5 min 1 s after it occurred"),
    ],
)
def test_what_is_odd_about_an_event_is_noted(
    dated: int | None, standing: str, arrivals: tuple[int, ...], note: str
) -> None:
    said = event("evt_1", "pending", dated, payment="pay_1", standing=standing)
    came = [delivery(f"d{at}", at, said) for at in arrivals]
    ledger = fold(history(*came), policy=POLICY, as_of=seconds(400))
    (row,) = ledger_document(ledger)["timeline"]
    assert (row["note"], row["deliveries"]) == (note, len(arrivals))


def test_a_ledgers_bytes_are_canonical() -> None:
    for made in LEDGERS:
        assert canonical_json(ledger_document(made()))
