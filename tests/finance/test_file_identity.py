"""Files are identified by their content: kind, export and source, and nothing is guessed."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from app.config.settings import SourceSettings
from app.core.errors import UsageError
from app.finance.file_identity import FileIdentity, identify_file
from app.finance.files.presets import ReadingRequest
from tests.rows import for_each

SAMPLES = Path(__file__).parent / "presets"


def source(profile: str, *, account: tuple[str, ...] = (), code: str = "") -> SourceSettings:
    keys = {"shortcode": SecretStr(code)} if code else {}
    return SourceSettings(profile=profile, account=account, credentials=keys)


TILL, OTHER_TILL = source("mpesa_stk", code="600111"), source("mpesa_stk", code="600222")
STRIPE, PLAIN = source("stripe"), source("checkout")


def identified(name: str, sources: dict[str, SourceSettings], **said: Any) -> FileIdentity:
    return identify_file(ReadingRequest(path=SAMPLES / f"{name}.csv"), sources=sources, **said)


@for_each(
    ("name", "sources", "expected"),
    [
        ("stripe_payouts", {"stripe": STRIPE, "mpesa": TILL}, ["stripe"]),
        ("stripe_balance", {"stripe": STRIPE, "mpesa": TILL, "own": PLAIN}, ["stripe"]),
        ("mpesa_portal", {"stripe": STRIPE, "mpesa": TILL}, ["mpesa"]),
        ("mpesa_portal", {"nairobi": TILL, "mombasa": OTHER_TILL}, ["nairobi"]),
        ("adyen_settlement", {
            "eu": source("adyen", account=("DukaEU",)), "uk": source("adyen", account=("DukaUK",)),
        }, ["eu"]),
        ("stripe_payouts", {"own": PLAIN, "mpesa": TILL}, ["own"]),
        ("stripe_payouts", {}, [""]),
        ("ebay_transactions", {"stripe": STRIPE, "own": PLAIN}, ["own"]),
    ],
)  # fmt: skip
def test_the_source_follows_from_the_provider_and_the_account_in_the_file(
    name: str, sources: dict[str, SourceSettings], expected: list[str]
) -> None:
    found = identified(name, sources)
    assert (found.kind, found.sources, found.source) == ("statement", expected, expected[0])


@for_each(
    ("name", "sources", "left"),
    [
        ("stripe_payouts", {"de": STRIPE, "fr": STRIPE, "mpesa": TILL}, ["de", "fr"]),
        ("mpesa_portal", {"mombasa": OTHER_TILL}, ["mombasa"]),
        ("mpesa_portal", {"a": TILL, "b": TILL}, ["a", "b"]),
        ("ebay_transactions", {"stripe": STRIPE}, ["stripe"]),
    ],
)
def test_a_source_is_not_guessed_where_the_file_does_not_settle_it(
    name: str, sources: dict[str, SourceSettings], left: list[str]
) -> None:
    found = identified(name, sources)
    assert (list(found.sources), found.source) == (left, None)
    with pytest.raises(
        UsageError, match="give --source, the source that this statement comes from"
    ):
        found.settled()
    assert identified(name, sources, source=left[0]).settled() == ("statement", left[0])


def test_a_statement_is_not_of_a_source_of_another_provider() -> None:
    """The file of Stripe is never offered as one of M-PESA, nor taken as such."""
    sources = {"mpesa": TILL, "stripe": STRIPE}
    with pytest.raises(
        UsageError, match="not a statement of mpesa, whose profile is mpesa_stk: it"
    ):
        identified("stripe_payouts", sources, source="mpesa")
    with pytest.raises(UsageError, match="this is a statement of stripe, but no source has"):
        identified("stripe_payouts", {"mpesa": TILL})


BOOK = "reference,amount,currency"
LINES = "account,booked_at,amount,currency"


@for_each(
    ("content", "kinds"),
    [
        (f"{BOOK}\nA,1,KES\n", ["book"]),
        (f"{LINES},reference\nmain,2026-11-01,1,KES,A\n", ["bank"]),
        ("payment_reference,gross,currency\npay_1,1,KES\n", ["statement"]),
        ('{"reference": "A", "amount": 1, "currency": "KES"}\n', ["book"]),
        (f"{BOOK},payment_reference,gross\nA,1,KES,pay_1,1\n", ["book", "statement"]),
        (":20:STMT\n:25:KE99BANK\n", ["bank"]),
        ("name,town\nWanjiru,Nairobi\n", []),
        ("%PDF-1.7\n", []),
    ],
)
def test_the_kind_follows_from_the_format_or_from_the_columns(
    content: str, kinds: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_text(content)
    found = identify_file(ReadingRequest(path=path), sources={})
    assert list(found.kinds) == kinds
    if len(kinds) != 1:
        with pytest.raises(
            UsageError, match="give --kind book or --kind" if kinds else "is not recognized"
        ):
            found.settled()
