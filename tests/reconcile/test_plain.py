"""Plain words: every reason and finding has its sentence, and no sentence needs our vocabulary."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from hypothesis import given

from reconcile.instants import LATEST, Instant, plain_instant
from reconcile.ledger import plain
from reconcile.ledger.declines import CUSTOMER_WORDS, customer_words
from reconcile.ledger.events import Delivery
from reconcile.ledger.explain import (
    UNFILLED,
    explain,
    finding_sentence,
    finding_text,
    ledger_document,
    reason_sentence,
)
from reconcile.ledger.fold import fold
from reconcile.ledger.grouping import ALIKE
from reconcile.ledger.history import History
from reconcile.ledger.ledger import OUTCOMES, Facts, FactValue, Finding, Ledger, Reason
from reconcile.ledger.records import GAP_ACCEPTED, MAYBE_OTHERS, UNREADABLE, Record
from reconcile.ledger.vocabulary import (
    ATTEMPT_REASONS,
    FINDING_CODES,
    FINDINGS,
    MANY,
    REASONS,
    FindingCode,
)
from reconcile.money import Money
from tests.reconcile.build import DUE, ORDER, POLICY, delivery, event, history, record, seconds
from tests.reconcile.pinned import same_text
from tests.reconcile.scenario_table import Scenario, all_scenarios
from tests.reconcile.strategies import histories, moments
from tests.rows import row

PAGE = Path(__file__).parents[2] / "reconcile" / "README.md"

PART: Final = Money(minor=5_000, currency="KES")
LITTLE: Final = Money(minor=2_000, currency="KES")

OURS = re.compile(
    r"\b(captur\w*|attempts?|events?|bod(y|ies)|profiles?|folds?|claims?|ledgers?|sessions?|webhooks?"
    r"|cites?|findings?|outcome|digest|fulfill\w*|unresolved|[a-z]+_[a-z_]+)\b|[{}\[\]]"
)
"""Words that only we use, and anything that looks like an id or a code."""


AMOUNTS: Final = (
    "expected captured refunded returned lost not_lost disputed still_lost pending failed stated"
    " taken surplus owed under_way on_top not_given_back received moved before after discount"
    " refused_discount amount_1 amount_2"
)
MOMENTS: Final = (
    "occurred_at last_occurred_at received_at decided_at opened_at begun_at due_at failed_at"
    " held_at fulfillable_at fulfilled_at canceled_at deadline_at"
)
STATED: Final[dict[str, FactValue]] = {
    **{name: Money(minor=10_001 * n, currency="KES") for n, name in enumerate(AMOUNTS.split(), 1)},
    **{name: seconds(86_400 * n) for n, name in enumerate(MOMENTS.split(), 1)},
    "deliveries": 2,
    "events": 3,
    "bodies": 4,
    "times": 5,
    "delay_us": 6_000_000,
    "attempt": "pay_1",
    "reference": "cs_1",
    "named": "A-2",
    "kind": "a.kind",
    "author": "the till",
    "claims": "succeeded, declined",
    "movement": "refunded",
    "outcome": "pending",
    "reason": "insufficient_funds",
    "hold": "a_reason",
}
"""Facts of all names, with values of which no two are alike."""

NOT_STATED: Final = (
    "reason author still_lost not_lost under_way on_top not_given_back discount refused_discount"
    " disputed failed lost pending returned"
)
"""Names of facts that may be missing, or whose amount may be unknown."""


def _facts(**changed: FactValue) -> Facts:
    return tuple({**STATED, **changed}.items())


def _told_of_finding(code: FindingCode, facts: Facts) -> list[str]:
    one = Finding(code=code, cites=(), facts=facts)
    return [
        f"evidence  {finding_sentence(code, facts)}",
        f"customer  {plain.plain_finding(one)}",
        f"staff     {plain.staff_finding(one)}",
    ]


def _told_of_reason(code: str, facts: Facts) -> list[str]:
    one = Reason(code=code, cites=(), facts=facts)
    return [
        f"evidence  {reason_sentence(code, facts)}",
        f"customer  {plain.plain_reason(one)}",
        f"staff     {plain.staff_reason(one)}",
    ]


def _rows_of_words() -> Iterator[tuple[str, list[str]]]:
    """Yield names of rows and their lines: first of all codes, then of codes whose words depend
    on a fact."""
    few = _facts(**dict.fromkeys(NOT_STATED.split()))
    for code, words in FINDINGS.items():
        told, less = _told_of_finding(code, _facts()), _told_of_finding(code, few)
        yield f"{words.severity} {code}", [f"summary   {words.summary}", *told]
        yield f"{code}, little known", [each for each in less if each not in told]
    for code in MANY:
        yield f"{code}, many", _told_of_finding(code, _facts(**{ALIKE: 1_200}))
    for reason, said in REASONS.items():
        told, less = _told_of_reason(reason, _facts()), _told_of_reason(reason, few)
        yield f"reason {reason}", [f"summary   {said.summary}", *told]
        yield f"reason {reason}, little known", [each for each in less if each not in told]
    for reason in ATTEMPT_REASONS:
        sentences = {reason_sentence(reason, facts): None for facts in (_facts(), few)}
        yield f"attempt {reason}", [f"evidence  {each}" for each in sentences]
    for outcome in ("refunded", "charged_back"):
        told = _told_of_finding("fulfilled_but_not_paid", _facts(outcome=outcome))
        yield f"fulfilled_but_not_paid, {outcome}", told
    for days in (None, 0, 1, 2, 3, 4):
        at: FactValue = None if days is None else seconds(86_400 * days)
        told = _told_of_finding("success_after_deadline", _facts(deadline_at=at))
        yield f"success_after_deadline, waited {days} days", told
    for hold in (MAYBE_OTHERS, GAP_ACCEPTED, UNREADABLE):
        yield f"held_back, {hold}", _told_of_finding("held_back", _facts(hold=hold))
        yield f"reason held_back, {hold}", _told_of_reason("held_back", _facts(hold=hold))
    claims = "authorized, canceled, expired, dispute_won, dispute_lost, of this order, of another"
    yield "claims", _told_of_finding("contradictory_claims", _facts(claims=claims))
    for movement in ("captured", "refunded", "reversed", "dispute_lost"):
        yield movement, _told_of_reason("amount_not_stated", _facts(movement=movement))


def test_every_code_has_its_words_for_each_reader() -> None:
    """`TALLYHOOK_GOLDEN=write` writes the table anew; read it line by line."""
    lines = []
    for name, sentences in _rows_of_words():
        if sentences:
            lines += [f"== {name}", *[each for each in sentences if each[10:]]]
    lines.append("== codes of declines")
    lines += [f"{code}: {customer_words(code)}" for code in CUSTOMER_WORDS]
    same_text("words.txt", "\n".join([*lines, ""]))


@cache
def every_ledger() -> list[Ledger]:
    return [
        fold(scenario.history(), policy=scenario.policy, as_of=expected.as_of)
        for scenario in all_scenarios()
        for expected in scenario.expected
    ]


def test_every_finding_has_its_words() -> None:
    assert tuple(FINDINGS) == FINDING_CODES
    order = ["info", "warning", "error"]
    severities = [order.index(words.severity) for words in FINDINGS.values()]
    assert severities == sorted(severities)


def test_the_engines_page_has_every_finding_with_its_severity() -> None:
    shown: dict[str, str] = {}
    for severity, listed in re.findall(
        r"^(Info|Warning|Error)s?:\n\n(.*?)\n\n", PAGE.read_text(), re.M | re.S
    ):
        for codes in re.findall(r"^- (`[a-z_`, ]+`): ", listed, re.M):
            shown |= dict.fromkeys(re.findall(r"[a-z_]+", codes), severity.lower())
    assert shown == {code: words.severity for code, words in FINDINGS.items()}


def test_what_is_said_in_the_scenarios_is_as_the_table_has_it() -> None:
    """`TALLYHOOK_GOLDEN=write` writes the table anew; read it line by line."""
    answers: dict[str, str] = {}
    findings: dict[str, str] = {}
    for ledger in every_ledger():
        codes = [r.code for r in ledger.reasons] + [f"!{r.code}" for r in ledger.withheld]
        answers.setdefault(
            f"{ledger.outcome}: {', '.join(codes)}", " ".join(plain.plain_answer(ledger))
        )
        for finding in ledger.findings:
            findings.setdefault(finding.code, plain.plain_finding(finding))
    said = [f"{name}\n    {text}\n" for name, text in sorted(answers.items())]
    said += [f"{name}\n    {text}\n" for name, text in sorted(findings.items())]
    assert {ledger.outcome for ledger in every_ledger()} == set(OUTCOMES)
    assert set(findings) == set(FINDINGS)
    same_text("plain_sentences.txt", "".join(said))


def test_what_the_shop_did_decides_what_follows_from_each_outcome() -> None:
    """`TALLYHOOK_GOLDEN=write` writes the table anew; read it line by line."""
    first = {
        each.outcome: (scenario, each)
        for scenario in reversed(all_scenarios())
        for each in scenario.expected
    }
    assert set(first) == set(OUTCOMES)
    lines = []
    for outcome in OUTCOMES:
        scenario, expected = first[outcome]
        shipped = record("rec_99", "order_fulfilled", 0, recorded_at=expected.as_of)
        canceled = record("rec_99", "order_canceled", 0, recorded_at=expected.as_of)
        for name, records in (("", ()), (", shipped", (shipped,)), (", canceled", (canceled,))):
            known = scenario.history() | history(*records)
            ledger = fold(known, policy=scenario.policy, as_of=expected.as_of)
            lines.append(f"== {outcome}{name}")
            lines += [f"customer  {each}" for each in plain.plain_answer(ledger)]
            lines += [f"staff     {each}" for each in plain.staff_answer(ledger)]
            lines.append(f"evidence  {explain(ledger)[-1]}")
    same_text("outcomes_by_act.txt", "\n".join([*lines, ""]))


def test_no_sentence_needs_our_words() -> None:
    for scenario in all_scenarios():
        with row(scenario.name):
            _needs_none(scenario)


def _needs_none(scenario: Scenario) -> None:
    ids = {d.event.event_id for d in scenario.history().deliveries} | {ORDER}
    ids |= {r.record_id for r in scenario.history().records}
    for expected in scenario.expected:
        ledger = fold(scenario.history(), policy=scenario.policy, as_of=expected.as_of)
        document = plain.with_plain(ledger_document(ledger), ledger)
        assert [each["code"] for each in document["findings"]] == [
            each.code for each in ledger.findings
        ]
        for text in [*document["plain"]["answer"], *[f["plain"] for f in document["findings"]]]:
            assert text.endswith("."), text
            assert OURS.search(text) is None, text
            assert not ids.intersection(re.split(r"[ ,.:()]+", text)), text


def test_only_what_can_be_shipped_is_said_to_be() -> None:
    for ledger in every_ledger():
        ready = "The order can be shipped." in plain.plain_answer(ledger)
        shipped = ledger.case.filed.fulfilled is not None
        assert ready == (ledger.fulfillable and not shipped)
        assert "The order can be shipped." not in plain.plain_answer(ledger, behind_s=3)


def test_the_first_sentence_stands_alone() -> None:
    for ledger in every_ledger():
        first = plain.plain_reason(ledger.reasons[0])
        if MAYBE_OTHERS in ledger.case.filed.holds:
            first = plain.NOT_SURELY_FOR_IT
        assert plain.plain_headline(ledger) == plain.plain_answer(ledger)[0] == first


def test_a_moment_is_said_as_people_say_it() -> None:
    assert plain_instant(Instant(1_763_805_959_999_999)) == "22 November 2025, 10:05 UTC"


@given(histories(), moments())
def test_whatever_is_heard_can_be_said(known: History, as_of: Instant) -> None:
    ledger = fold(known, policy=POLICY, as_of=as_of)
    shown = plain.with_plain(ledger_document(ledger), ledger)
    sentences = [*shown["explanation"], *shown["plain"]["answer"], *plain.plain_outcome(ledger)]
    sentences += [
        words for each in shown["findings"] for words in (each["plain"], each["sentence"])
    ]
    for sentence in sentences:
        assert UNFILLED not in sentence, sentence
        assert "{" not in sentence, sentence
        assert sentence.endswith("."), sentence
        named = sentence.startswith(("pay_", "cs_"))  # begins with what was used twice
        assert sentence[0].isupper() or named or ": " in sentence or not sentence[0].isalpha()


def _ledger(*members: Delivery | Record) -> Ledger:
    placed = record("rec_1", "order_placed", 0, money=DUE)
    paid = delivery("d1", 5, event("evt_1", "succeeded", 5, payment="pay_1", money=DUE))
    return fold(history(placed, paid, *members), policy=POLICY, as_of=seconds(100))


def test_what_a_win_did_not_give_back_is_reported() -> None:
    named: dict[str, Any] = {"payment": "pay_1", "movement": "dp_1"}
    lost = delivery("d2", 6, event("evt_2", "dispute_lost", 6, money=PART, **named))
    some = delivery("d3", 7, event("evt_3", "dispute_won", 7, money=LITTLE, **named))
    (won,) = [each for each in _ledger(lost, some).findings if each.code == "dispute_won"]
    words = "won, but KES 30.00 of it stays lost"
    assert finding_text(won) == f"The dispute over pay_1 was {words} [evt_2, evt_3]."
    assert plain.plain_finding(won) == (
        "The dispute of KES 50.00 was decided for the shop on 20 November 2026, 10:00 UTC, but "
        "KES 30.00 of it stays lost."
    )
    whole = delivery("d3", 7, event("evt_3", "dispute_won", 7, money=PART, **named))
    (won,) = [each for each in _ledger(lost, whole).findings if each.code == "dispute_won"]
    assert finding_text(won) == "The dispute over pay_1 was won [evt_2, evt_3]."


def test_what_was_refunded_beside_a_dispute_is_reported() -> None:
    back = delivery("d2", 6, event("evt_2", "refunded", 6, payment="pay_1", money=PART))
    for claim in ("disputed", "dispute_lost"):
        said = event("evt_3", claim, 7, payment="pay_1", money=LITTLE)
        answer = plain.plain_headline(_ledger(back, delivery("d3", 7, said)))
        assert answer.endswith(" KES 50.00 has been given back."), answer


def test_what_is_missing_counts_what_was_given_back() -> None:
    back = delivery("d2", 6, event("evt_2", "refunded", 6, payment="pay_1", money=PART))
    dearer = record("rec_2", "order_placed", 7, money=Money(minor=200_000, currency="KES"))
    assert plain.plain_headline(_ledger(back, dearer)) == (
        "Paid KES 1,500.00, of which KES 50.00 has been given back, but the price is KES "
        "2,000.00: KES 550.00 is missing."
    )


def test_paid_in_full_is_the_price() -> None:
    for claim in ("succeeded", "disputed"):
        odd = Money(minor=DUE.minor * 100, currency="KES")
        more = delivery("d2", 6, event("evt_2", "succeeded", 6, payment="pay_2", money=odd))
        said = delivery("d3", 7, event("evt_3", claim, 7, payment="pay_2", money=odd))
        assert plain.plain_headline(_ledger(more, said)) == "Paid in full: KES 1,500.00."


def test_what_is_held_of_a_canceled_order_is_owed_back() -> None:
    canceled = record("rec_2", "order_canceled", 8)
    back = delivery("d2", 6, event("evt_2", "refunded", 6, payment="pay_1", money=PART))
    dearer = record("rec_3", "order_placed", 7, money=Money(minor=200_000, currency="KES"))
    said = event("evt_2", "disputed", 6, payment="pay_1", money=PART)
    other = delivery("d2", 6, event("evt_2", "succeeded", 6, payment="pay_1", money=LITTLE))
    for members, owed in (
        ((back,), "1,450.00"),
        ((dearer,), "1,500.00"),
        ((delivery("d2", 6, said),), "1,450.00"),
        ((), "1,500.00"),
        ((other,), None),  # nobody knows how much it is
    ):
        ledger = _ledger(*members, canceled)
        answer, staff = plain.plain_answer(ledger), plain.staff_answer(ledger)
        assert "The shop has canceled the order." in answer
        assert staff[0] == "The shop has canceled the order: do not ship it."
        assert [each for each in answer if "to be given back" in each] == (
            [] if owed is None else [f"KES {owed} is to be given back."]
        )
        assert [each for each in staff if each.startswith("Give back")] == (
            [] if owed is None else [f"Give back KES {owed}."]
        )


def test_what_has_no_amount_is_called_by_its_name() -> None:
    back = delivery("d2", 6, event("evt_2", "refunded", 6, payment="pay_1"))
    assert plain.plain_headline(_ledger(back)) == (
        "We were told of a refund, but nobody has told us how much it was."
    )


def test_only_the_refunds_of_unknown_payments_are_called_so() -> None:
    known = delivery("d2", 6, event("evt_2", "refunded", 6, payment="pay_1", money=PART))
    unknown = delivery("d3", 7, event("evt_3", "refunded", 7, payment="pay_9", money=LITTLE))
    assert plain.plain_headline(_ledger(known, unknown)) == (
        "Money was given back (KES 20.00), but we do not know the payment."
    )


def test_what_never_expires_can_be_said() -> None:
    key: dict[str, Any] = {"key": "k1", "source": "shop"}
    asked = record("rec_2", "session_requested", 1, money=DUE, **key)
    never = record("rec_3", "session_opened", 2, session="cs_1", expires_at=LATEST, **key)
    ledger = fold(history(asked, never), policy=POLICY, as_of=seconds(9))
    assert ledger.next_decision_at == LATEST
    assert ledger_document(ledger)["next_decision_at"] == "9999-12-31T23:59:59.999999Z"
    assert fold(history(asked, never), policy=POLICY, as_of=LATEST).outcome == "timed_out"


def test_what_awaits_an_answer_waits_for_no_moment() -> None:
    said = event("evt_1", "pending", 5, payment="pay_1", standing="unconfirmed")
    ledger = fold(history(delivery("d1", 5, said)), policy=POLICY, as_of=seconds(9))
    assert explain(ledger)[-1] == "The provider's own answer would change this."
