"""Grouping of thousands of alike events: one sentence, with a count and a range."""

from reconcile.instants import HOUR
from reconcile.ledger.events import ClaimKind, Delivery
from reconcile.ledger.explain import (
    UNFILLED,
    explain,
    finding_sentence,
    ledger_document,
    ledger_summary,
)
from reconcile.ledger.fold import fold
from reconcile.ledger.grouping import ALIKE, NAMED_CHARACTERS, ONE_BY_ONE, grouped, joined, some
from reconcile.ledger.ledger import FactValue, Finding, Ledger
from reconcile.ledger.plain import plain_finding, staff_answer, staff_finding, with_plain
from reconcile.ledger.records import Record
from reconcile.ledger.vocabulary import MANY, FindingCode
from reconcile.money import Money
from tests.reconcile.build import DUE, POLICY, T, delivery, event, history, record, seconds
from tests.rows import for_each


def ledger_of(count: int) -> Ledger:
    """Return an order with so many payments, each declined first; each event came an hour late, or
    later, and twice."""
    said: list[Delivery | Record] = [record("rec_1", "order_placed", 0, money=DUE)]
    claims: tuple[tuple[ClaimKind, str], ...] = (("declined", "no"), ("succeeded", "pay"))
    for number in range(count):
        for place, (claim, payment) in enumerate(claims):
            name = f"{number}_{place}"
            heard = event(f"evt_{name}", claim, number, money=DUE, payment=f"{payment}_{number}")
            late = number + 3600 + 60 * number
            said += [delivery(f"dlv_{name}_{n}", late + n, heard) for n in range(2)]
    return fold(history(*said), policy=POLICY, as_of=seconds(10**6))


def sentences(count: int) -> str:
    return "\n".join(explain(ledger_of(count)))


def test_findings_of_hundreds_of_events_are_one_sentence_each() -> None:
    told = sentences(300)
    assert "600 events took up to 5 h 59 min to reach us [evt_0_0, evt_0_1, evt_1_0, " in told
    assert (
        "600 events were delivered several times each, at most 2 times; each event counts once ["
        in told
    )
    assert " and 592 more]." in told
    assert len(told.splitlines()) < 20
    assert len(told) < 6_000


def test_a_few_are_told_one_by_one() -> None:
    told = sentences(1)
    assert told.count("The event took 1 h to reach us") == 2
    assert "events took" not in told


def test_attempts_that_ended_alike_are_one_sentence() -> None:
    told = sentences(40)
    assert "Attempts no_0, no_1, no_10, no_11, no_12, no_13, no_14, no_15 and 32 more: The " in told
    assert told.count("The provider says it was declined") == 1


def test_the_json_document_has_one_finding_that_cites_all() -> None:
    ledger = ledger_of(40)
    document = with_plain(ledger_document(ledger), ledger)
    (late,) = (each for each in document["findings"] if each["code"] == "delivered_late")
    assert late["facts"][ALIKE] == 80
    assert late["facts"]["delay_us"] == 39 * 60 * 1_000_000 + HOUR
    assert len(late["cites"]) == 80
    assert late["plain"] == "80 messages about the payment took up to 1 h 39 min to reach us."
    assert len(document["timeline"]) == 80


@for_each("code", MANY)
def test_many_findings_of_a_code_have_words_for_each_reader(code: FindingCode) -> None:
    named: dict[str, FactValue] = {
        "deliveries": 2,
        "events": 2,
        "delay_us": 1,
        "occurred_at": T,
        "kind": "x",
    }
    many = [
        Finding(code=code, cites=(f"evt_{n}",), facts=tuple(named.items()))
        for n in range(ONE_BY_ONE + 1)
    ]
    (one,) = grouped(many)
    assert one.cites == tuple(f"evt_{n}" for n in range(ONE_BY_ONE + 1))
    assert grouped(many[1:]) == tuple(many[1:])
    assert UNFILLED not in finding_sentence(code, one.facts)
    assert plain_finding(one)
    assert "{" not in plain_finding(one) + staff_finding(one)


def test_of_other_findings_the_first_is_told_and_how_many_more_there_are() -> None:
    facts = (("dispute", "dp_1"), ("attempt", "pay_1"), ("disputed", DUE), ("opened_at", T))
    (one,) = grouped([Finding(code="dispute_open", cites=("e",), facts=facts)] * 5)
    said = "A dispute over pay_1 is open: do not count on KES 1,500.00"
    assert finding_sentence("dispute_open", one.facts) == f"{said}; 4 more are like it"
    assert plain_finding(one).endswith("it is not decided yet. 4 more are like it.")
    assert staff_finding(one).endswith("while it is open. 4 more are like it.")
    assert len(grouped([one] * 3)) == 3


def test_staff_read_each_thing_to_do_once() -> None:
    answer = staff_answer(ledger_of(200))
    assert len(answer) < 8


def test_a_row_of_a_list_stays_small() -> None:
    summary = ledger_summary(ledger_of(300))
    assert sum(len(str(each)) for each in summary.values()) < 1_024


def test_long_ids_are_cut_by_their_length() -> None:
    names = [f"{n}" * 200 for n in range(9)]
    assert some(names) == f"{names[0]} and 8 more"
    assert some(["a"]) == "a"
    assert len(some(["x" * 20] * 50)) < NAMED_CHARACTERS + 20


def test_ids_are_named_up_to_a_number_and_a_length() -> None:
    assert some([str(n) for n in range(8)]) == "0, 1, 2, 3, 4, 5, 6, 7"
    assert some([str(n) for n in range(9)]) == "0, 1, 2, 3, 4, 5, 6, 7 and 1 more"
    assert some(["a", "b", "c"], most=2) == "a, b and 1 more"
    assert some([]) == ""
    half = "x" * (NAMED_CHARACTERS // 2)
    assert some([half, half]) == f"{half}, {half}"
    assert some([half, half + "x"]) == f"{half} and 1 more"
    assert some(["x"] * 1_001, most=1) == "x and 1,000 more"


@for_each(("values", "merged"), [
    ([("delay_us", 3), ("delay_us", 9), ("delay_us", 5)], {"delay_us": 9}),
    ([("deadline_at", 3), ("deadline_at", 9)], {"deadline_at": 9}),
    ([("deadline_at", None), ("deadline_at", 9)], {"deadline_at": 9}),
    ([("sent_at", 3), ("sent_at", 9), ("sent_at", 5)], {"sent_at": 3, "last_sent_at": 9}),
    ([("sent_at", 3), ("sent_at", 3)], {"sent_at": 3, "last_sent_at": 3}),
    ([("kind", "a"), ("kind", "b"), ("kind", "a")], {"kind": "a, b"}),
    ([("kind", each) for each in "abcd"], {"kind": "a, b, c and 1 more"}),
    ([("kind", "a"), ("kind", None)], {"kind": "a"}),
    ([("paid", DUE), ("paid", DUE)], {"paid": DUE}),
    ([("paid", DUE), ("paid", Money(minor=1, currency="KES"))], {}),
    ([("paid", DUE), ("paid", None)], {}),
    ([("paid", None), ("paid", None)], {"paid": None}),
    ([("kind", "a"), ("sent_at", 3)], {"kind": "a", "sent_at": 3, "last_sent_at": 3}),
    ([], {}),
])  # fmt: skip
def test_facts_of_many_findings_become_one_value_for_each_name(
    values: list[tuple[str, FactValue]], merged: dict[str, FactValue]
) -> None:
    assert dict(joined([(each,) for each in values])) == merged
