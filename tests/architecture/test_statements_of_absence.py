"""Every statement of absence that the product can make, and the evidence that it needs.

A customer, a bank or finance takes "no payment" for a fact. So a text that says such a thing stands
here, with what must have been looked at before it may be said. A new one is noticed by its words.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).parents[2]


class Evidence(NamedTuple):
    """Kind of evidence: its meaning, the function that looks at it, and a test of that.

    guard  `module:function`; empty: the wording itself
    proof  `file::test`; empty: the sentence is all there is to it
    """

    means: str
    guard: str = ""
    proof: str = ""


EVIDENCE: Final = {
    "read": Evidence(
        "Every delivery that was accepted before has been read; else the answer waits, says how "
        "old the oldest unread one is, or is refused.",
        "app.receiving.caught_up:behind_s",
        "tests/console/test_reader_stopped.py::test_every_route_says_what_is_unread",
    ),
    "readable": Evidence(
        "No genuine message that may be about it was unreadable or set aside; else that is said.",
        "app.orders.unheard:unheard_of",
        "tests/orders/test_unread_messages.py::"
        "test_the_answer_says_that_a_message_cannot_be_read_and_claims_no_absence",
    ),
    "accepted": Evidence(
        "No source that may have sent it has had everything refused; else that is said.",
        "app.receiving.source_state_store:arrivals_by_source",
        "tests/orders/test_unread_messages.py::"
        "test_refused_messages_change_the_answer_only_while_nothing_is_accepted",
    ),
    "kept": Evidence(
        "No request of an unsigned source was beyond what is kept in its time; else that is said.",
        "app.receiving.source_state_store:not_kept_in",
        "tests/security/test_unsigned_floods.py::"
        "test_a_named_payment_gets_through_and_others_may_be_lost_which_is_said",
    ),
    "not lost": Evidence(
        "No accepted gap lies in its time; else that is said.",
        "app.orders.service_holds:gaps_in",
        "tests/orders/test_gaps.py::test_an_order_of_the_time_is_not_said_to_have_no_payment",
    ),
    "placed": Evidence(
        "Payments of no order were looked at, too.",
        "app.orders.unallocated:list_unallocated",
        "tests/orders/test_unallocated.py::"
        "test_a_payment_of_no_order_is_listed_with_its_money_and_why",
    ),
    "searched": Evidence(
        "It says where it looked.",
        "app.orders.find_orders:find_orders",
        "tests/orders/test_find_orders.py::test_what_was_refused_is_shown_where_nothing_else_is",
    ),
    "compared": Evidence(
        "Orders, order books, statements and bank were matched as of the instant that is named.",
        "app.finance.reconcile_period:reconcile_period",
        "tests/finance/test_closing.py::test_a_month_is_not_closed_over_unread_deliveries",
    ),
    "covered": Evidence(
        "The files of the time cover it, by what they state or a person declared; else that is "
        "said.",
        "app.finance.coverage_store:coverage",
        "tests/reconcile/test_coverage.py::test_what_no_file_covers_is_neither_missing_nor_agreed",
    ),
    "stated": Evidence("It repeats what an event, a record or a file of the merchant's states."),
    "bounded": Evidence('It says "as far as is known", "that was read" or "is known" itself.'),
    "of its input": Evidence("It is about what the person chose, or about the product's own data."),
}

READ: Final = ("read",)
ALL: Final = ("read", "readable", "accepted", "kept", "not lost", "placed")
"""Evidence for a sentence to a customer or bank that says that there is no payment."""

STATED: Final = ("stated",)
BOUNDED: Final = ("bounded", "read")
MATCHED: Final = ("read", "readable", "placed", "compared", "covered")
INPUT: Final = ("of its input",)

STATEMENTS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "reconcile/ledger/plain.py": {
        "As far as we have been told, no money was taken.": ALL,
        "Do not ship: it is not paid.": ALL,
        "Do not ship: no final word of the payment has come.": ALL,
        "Do not ship: no payment for it is known.": ALL,
        "so that no money comes after all": INPUT,
        "but no money of it is left": ALL,
    },
    "reconcile/ledger/vocabulary.py": {
        "o final event": ALL,
        "no payment is known": ALL,
        "it gave no money back": STATED,
        "belongs to no payment": STATED,
        "no event says how much": ALL,
        "nobody has told us how much it was": ALL,
        "nothing is due, but it is not confirmed that the order is free": STATED,
        "Nothing is due, but it is not confirmed": STATED,
        "nobody had told us how it ended": ALL,
        "No payment of it is known": ALL,
        "the order is known, but no payment is": ALL,
        "We have had no word of a payment": ALL,
        "No payment is known": ALL,
        "obody has told us anything of th": ALL,
        "We have had no word of this order": ALL,
    },
    "reconcile/matching/causes.py": {
        "Paid in the book, not received": MATCHED,
        "Not settled in time": MATCHED,
        "Refund not settled": MATCHED,
        "Settled, no webhook read": MATCHED,
        "no event that was read": MATCHED,
        "but no payment is known": MATCHED,
        "but no refund of the full amount has come": MATCHED,
        "but no webhook that was read reports it": MATCHED,
    },
    "reconcile/reporting/closing.py": {
        "No unreadable message from that time waits": READ,
        "No payment that was read waits for its order": BOUNDED,
        "No delivery of the month was set aside": READ,
        "No order of the month is pending": ("read", "readable"),
        "No break of the month must be decided": MATCHED,
        "Payments captured and not settled": MATCHED,
        "were not compared with anything": INPUT,
        "cover no day of the month": INPUT,
    },
    "reconcile/reporting/report.py": {"settled + not settled + differs": MATCHED},
    "reconcile/reporting/tables.py": {
        "Not settled yet: no statement line so far": MATCHED,
        "Captured and not settled": MATCHED,
        "were compared with nothing": INPUT,
    },
    "reconcile/reporting/tally.py": {"settled never notified": MATCHED},
    "reconcile/reporting/words.py": {
        "No payment known": MATCHED,
        "No order known": MATCHED,
        "Settled, no webhook read": MATCHED,
        "Not settled yet": MATCHED,
        "Nothing to compare with": MATCHED,
    },
    "app/checkout/payment.py": {"is not settled": READ},
    "app/cli/breaks.py": {
        "Nothing has been reconciled yet": READ,
        "No break was selected": INPUT,
    },
    "app/cli/cases.py": {
        "The order has no dispute": ("read", "readable", "accepted"),
        "if no event states it": ("read", "readable", "accepted"),
    },
    "app/cli/connect.py": {"Nothing arrived.": ("read", "accepted")},
    "app/cli/orders.py": {
        "No order was found. Searched": ("read", "placed", "searched"),
        "No order is held": READ,
    },
    "app/cli/reconcile.py": {"no break was opened or closed": INPUT},
    "app/console/breaks_pages.py": {"No break is chosen": INPUT},
    "app/console/service_pages.py": {"No order changes, and no money moves": INPUT},
    "app/console/templates/breaks.html": {"Nothing has been reconciled yet": READ},
    "app/console/templates/case.html": {
        "No message states the deadline": ("read", "readable", "accepted")
    },
    "app/console/templates/coverage.html": {"Other days were not compared": INPUT},
    "app/console/templates/deliveries.html": {"No delivery fits these filters": READ},
    "app/console/templates/found.html": {"No order was found in": ("read", "placed", "searched")},
    "app/console/templates/now.html": {
        "No order waits for anybody": ("read", "readable"),
        ", none was refused": READ,
        "No delivery of the last hour was read": BOUNDED,
    },
    "app/console/templates/order.html": {
        "No event that was read is about this order": BOUNDED,
        "No payment attempt is known": BOUNDED,
    },
    "app/console/templates/run.html": {
        "sums tie": MATCHED,
        "Nothing to compare with": MATCHED,
    },
    "app/console/templates/runs.html": {"Nothing has been reconciled yet": READ},
    "app/console/templates/setup.html": {"and reads no event yet": INPUT},
    "app/console/templates/unallocated.html": {"No payment that was read is": BOUNDED},
    "app/console/words.py": {
        "ok": INPUT,
        "As far as is known, no money arrived": BOUNDED,
        "No payment is known.": BOUNDED,
    },
    "app/evidence/bundle_letter.py": {
        "No message of the payment service about this order is known.": READ,
        "No message about this order could be read.": READ,
        "No message about this order is known, but messages are being refused.": READ,
        "No message about this order is known, but messages may be lost.": READ,
        "No request of the payment service about this order arrived.": ALL,
    },
    "app/evidence/dispute_letter.py": {
        "as far as is known, no dispute of the order is open": BOUNDED,
    },
    "app/evidence/first_party.py": {
        "no message states it": READ,
        "no message states the card network": READ,
        "no message dates the disputed payment": READ,
        "no dispute of them is known": BOUNDED,
    },
    "app/evidence/letter_forms.py": {
        "no dispute of any of them is known": BOUNDED,
        "No message that was read states": BOUNDED,
        "no message states one": READ,
        "Nothing is known about this order yet.": READ,
    },
    "app/evidence/rendering.py": {"EVIDENCE OF ONE ORDER": ALL},
    "app/evidence/verify_evidence.py": {"the shop knew of none about this order": BOUNDED},
    "app/finance/break_choice.py": {"no break": INPUT},
    "app/finance/place_payment.py": {"nothing is known of order": READ},
    "app/finance/reports/layout.py": {
        "were not compared": INPUT,
        "control sums agree": MATCHED,
        "every order and every amount that was read is counted once": MATCHED,
        "No break is open.": MATCHED,
        "no money at risk": MATCHED,
    },
    "app/finance/withdraw_import.py": {"no money": INPUT},
    "app/golive/capacity.py": {"No delivery was read in the last 90 days": INPUT},
    "app/golive/rehearse.py": {"No verified event came": ("read", "accepted")},
    "app/monitoring/preflight.py": {"ok": INPUT, "no order is found by phone numbers": INPUT},
    "app/monitoring/arrivals.py": {"o verified event has come": READ},
    "app/orders/find_orders.py": {
        "but no event names it": ("read", "readable", "placed", "searched"),
        "Nothing was received about it, but": ("read", "placed", "searched"),
    },
    "app/orders/read_orders.py": {
        "nothing is known of order": ("read", "readable"),
        "nothing is known yet of order": BOUNDED,
    },
    "app/orders/reindex.py": {"the body has no event at": INPUT},
    "app/receiving/diagnose.py": {
        "or the request never came": INPUT,
        "or it never came": INPUT,
    },
    "app/receiving/inbox_loss_store.py": {"ok": INPUT},
    "app/receiving/kept_request.py": {"there is no delivery": READ},
    "app/receiving/source_state.py": {
        "ok": ALL,
        "but no payment is among them yet": ALL,
        "No delivery of it was ever accepted": ("read", "accepted"),
    },
}
"""Statements of absence by file: a part of the text, and the evidence that it needs."""

SAYS: Final = re.compile(
    r"""
    \bno\ (?:final\ |verified\ |genuine\ |such\ |unreadable\ )?(?:payment|webhook|word|message|money
        |request|event|dispute|refund|delivery|attempt|difference)\b(?!\ (?:can|counts?|changes?))
    | \bno\ (?:order|break)\ (?:was|is|waits|of\ (?:it|the\ month)|known|must)\b
    | \bnothing\ (?:was\ (?:found|received)|came|arrived|has\ come|is\ (?:known|due|owed)
        |had\ been\ paid|has\ been\ reconciled|to\ compare)\b
    | \bnobody\ (?:has|had)\ (?:told|tried|spoken)\b
    | \bnone\ (?:was\ refused|has\ come|about\ this\ order)\b
    | \bcompared\ with\ nothing\b | \b(?:were|was)\ not\ compared\b | \bcovers?\ no\ day\b
    | \b(?:is|are)\ not\ paid\b | \bnot\ (?:received|settled)\b | \bnever\ (?:notified|came)\b
    | \bsums?\ (?:tie|agree)\b | \baccounted\ for\b | \bcounted\ once\b | \ball\ are\ here\b | ^ok$
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""Words by which a statement of absence is known."""

OF_NO_MONEY: Final = (
    "access", "api", "client", "config", "context", "core", "database", "deploy", "finance/files",
    "privacy", "providers", "sandbox", "sealing", "wiring",
)  # fmt: skip
"""Parts of `app` that say nothing of orders to people, or describe what others say."""


def _without_docstrings(tree: ast.Module) -> Iterator[str]:
    """Yield the texts of a module; a field in one is written `…`."""
    passed = set[int]()
    for node in ast.walk(tree):  # a node comes before those in it
        if isinstance(node, ast.Expr):  # a docstring, also of a constant
            passed.add(id(node.value))
        elif isinstance(node, ast.AnnAssign):  # the description of a member
            passed |= {id(each) for each in ast.walk(node.annotation)}
        elif id(node) in passed:
            continue
        elif isinstance(node, ast.JoinedStr):
            passed |= {id(each) for each in ast.walk(node)}
            parts = [each.value if isinstance(each, ast.Constant) else "…" for each in node.values]
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _of_template(text: str) -> Iterator[str]:
    text = re.sub(r"\{#.*?#\}|\{%.*?%\}", " ", text, flags=re.DOTALL)
    text = re.sub(r"\{\{.*?\}\}", "…", text, flags=re.DOTALL)
    yield from re.split(r"<[^>]+>|\n", text)


def statements_in(path: str, text: str) -> list[str]:
    """Return the texts of a file that say that something is absent."""
    texts = _of_template(text) if path.endswith(".html") else _without_docstrings(ast.parse(text))
    found = (" ".join(each.split()) for each in texts)
    return [each for each in found if SAYS.search(each)]


@cache
def said() -> list[tuple[str, str]]:
    """Return each statement of absence with its file."""
    found = []
    for room in ("reconcile", "app"):
        for path in sorted((ROOT / room).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            passed = name.startswith(tuple(f"app/{each}/" for each in OF_NO_MONEY))
            if path.suffix in (".py", ".html") and not passed:
                found += [(name, each) for each in statements_in(name, path.read_text())]
    return found


def test_every_statement_of_absence_is_in_the_table() -> None:
    missing = [
        f"{file}: {text[:200]}"
        for file, text in said()
        if not any(part in text for part in STATEMENTS.get(file, ()))
    ]
    assert not missing, "add them with the evidence that they need:\n" + "\n".join(missing)


def test_the_table_has_no_statement_that_is_no_longer_made() -> None:
    gone = [
        f"{file}: {part}"
        for file, parts in STATEMENTS.items()
        for part in parts
        if not any(part in text for name, text in said() if name == file)
    ]
    assert not gone, "\n".join(gone)


def test_each_names_evidence_that_something_looks_at() -> None:
    for file, parts in STATEMENTS.items():
        for part, needs in parts.items():
            assert needs, (file, part)
            assert set(needs) <= set(EVIDENCE), (file, part)
            # What is no repetition must not be said over unread deliveries.
            assert {"read", "stated", "of its input"} & set(needs), (file, part)


@pytest.mark.parametrize("name", sorted(EVIDENCE))
def test_evidence_has_a_function_that_looks_at_it_and_a_test(name: str) -> None:
    evidence = EVIDENCE[name]
    assert bool(evidence.guard) == bool(evidence.proof)
    if evidence.guard:
        module, _, function = evidence.guard.partition(":")
        assert callable(getattr(import_module(module), function))
        file, _, test = evidence.proof.partition("::")
        assert re.search(rf"^(?:async )?def {test}\(", (ROOT / file).read_text(), re.MULTILINE)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.py", 'SENTENCE = f"{order}: there is no payment of it."'),
        ("a.py", '"""No payment."""\n\n\ndef say() -> str:\n    return "Nothing was found."'),
        ("a.html", "<p>{{ name }}: all {% if a %}<b>sums tie</b>{% endif %}.</p>"),
        ("a.py", 'STATE = "ok"'),
    ],
)
def test_a_new_statement_is_noticed(path: str, text: str) -> None:
    assert len(statements_in(path, text)) == 1


def test_what_is_in_a_docstring_or_a_comment_is_no_statement() -> None:
    text = '"""No payment is known."""\n# no payment\n\n\ndef f() -> None:\n    """No webhook."""'
    assert statements_in("a.py", text) == []
