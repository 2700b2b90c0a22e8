"""Fee rules that a month suggests: from statement lines, and put into the rules in force."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.context.context import AppContext
from app.core.errors import UsageError
from app.finance.fee_suggestions import FeeSuggestions, put_in, rules_with, suggest_fees
from app.finance.imports import ImportRequest, import_statement
from app.finance.match_rules import save_rules
from app.finance.rule_file import read_rules
from reconcile.instants import parse_instant
from reconcile.matching.fees import SuggestedFee
from reconcile.matching.rules import ExpectedFee
from tests.database.builders import context as context_of
from tests.database.builders import opened

SINCE, UNTIL = parse_instant("2026-10-01T00:00:00Z"), parse_instant("2026-11-01T00:00:00Z")


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[AppContext]:
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/t.db") as inbox:
        yield context_of(inbox, at=60)


def suggestions(*rules: ExpectedFee) -> FeeSuggestions:
    found = tuple(SuggestedFee(rule=rule, lines=9, exact=8) for rule in rules)
    return FeeSuggestions(since=SINCE, until=UNTIL, found=found, lines=9, nameless=0, more=False)


CARD = ExpectedFee(
    source="card",
    currency="EUR",
    per_million=32_500,
    fixed=25,
    where=(("card_country", ('U"S', "")), ("scheme", ("visa",))),
)


async def test_a_month_of_statement_lines_suggests_rules(
    context: AppContext, tmp_path: Path
) -> None:
    """Payments that settled on other days say nothing."""
    rows = ["payment_reference,gross,fee,currency,settled_at,card_country"]
    for number in range(12):
        gross = 1_000 + 137 * number
        for place, (country, rate) in enumerate((("DE", 140), ("US", 325))):
            fee = (gross * rate + 5_000) // 10_000 + 25
            day = "2026-09-30" if number == 11 else f"2026-10-{number + 1:02}"
            amounts = f"{gross / 100:.2f},{fee / 100:.2f}"
            rows.append(f"p{number}{place},{amounts},EUR,{day},{country}")
    path = tmp_path / "s.csv"
    path.write_text("\n".join(rows))
    await import_statement(context, ImportRequest(path=path), source="card")
    found = await suggest_fees(context, since=SINCE, until=UNTIL)
    document = found.document()
    assert (document["lines"], document["explained"]) == (22, 22)
    assert [(each["where"], each["percent"], each["fixed"]) for each in document["fees"]] == [
        ({"card_country": ["US"]}, "3.25", "0.25"),
        ({}, "1.4", "0.25"),
    ]
    await save_rules(context, 'date_window = "2 days"  # as agreed\n', by="Ann")
    whole = await rules_with(context, found)
    assert whole.startswith(
        'date_window = "2 days"  # as agreed\n\n# matches exactly 11 of 11 lines'
    )
    assert len(read_rules(whole).match.fees) == 2


def test_suggested_fees_replace_those_of_their_source_and_currency() -> None:
    """Other lines stay, comments too; what is written reads as the rules that were suggested."""
    before = (
        '# ours\n[[fee]]\nsource = "card"\ncurrency = "EUR"\npercent = "9"  # old\n'
        '[fee.where]\nscheme = \'amex\'\n[[ fee ]]\nsource = "card"\ncurrency = "USD"\n'
        'percent = "8"\n\n[tolerance]  # of us\nEUR = "0.05"\n'
    )
    after = put_in(before, suggestions(CARD, ExpectedFee(source="card", currency="EUR")))
    assert "# ours" in after
    assert "[tolerance]  # of us" in after
    assert "old" not in after
    assert [each.currency for each in read_rules(after).match.fees] == ["USD", "EUR", "EUR"]
    assert read_rules(after).match.fees[1] == CARD


def test_fees_that_are_written_otherwise_are_left_to_a_person() -> None:
    with pytest.raises(UsageError, match="edit them by hand"):
        put_in('fee = [{source = "card", currency = "EUR"}]\n', suggestions(CARD))
