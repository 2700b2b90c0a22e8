"""Numbers and dates are written as the browser asks; sentences, JSON and CSV stay as they are."""

from app.console.locales import LOCALES, local_number, locale_of, shown_in
from app.console.words import money_cell, prose_in
from app.core.zones import zone_named
from tests.console.conftest import RunningConsole
from tests.console.test_pages import shown
from tests.rows import for_each


@for_each(
    ("accepted", "name"),
    [
        ("", "en"),
        ("de-DE,de;q=0.9,en;q=0.8", "de"),
        ("en-US,en;q=0.9,de;q=0.8", "en"),
        ("en;q=0.5, FR-ca", "fr"),
        ("es,sw;q=0.7,de;q=0.6", "sw"),
        ("*;q=x,;,,de;q=0.1", "de"),
        ("xx," * 30 + "de", "en"),
    ],
)
def test_the_first_known_language_is_taken(accepted: str, name: str) -> None:
    assert locale_of(accepted).name == name


@for_each(
    ("name", "amount", "count"),
    [
        ("en", "-1,234,500.00", "1,234"),
        ("de", "-1.234.500,00", "1.234"),
        ("fr", "-1\u202f234\u202f500,00", "1\u202f234"),
        ("sw", "-1,234,500.00", "1,234"),
    ],
)
def test_amounts_and_counts_have_the_marks_of_the_locale(
    name: str, amount: str, count: str
) -> None:
    """In cells and in our sentences, of which only the amounts change."""
    sentence = "Paid KES -1,234,500.00 of ORD-1,234, reference ABC 123-4."
    with shown_in(LOCALES[name]):
        cell = money_cell({"amount": "-1234500.00", "currency": "KES"})
        assert (cell.endswith(amount), local_number(1234)) == (True, count)
        said = prose_in(zone_named("UTC"))(sentence)
    assert said == sentence.replace("-1,234,500.00", amount)
    assert local_number(1234) == "1,234"


async def test_a_page_is_written_as_the_browser_asks(console: RunningConsole) -> None:
    german = {"Accept-Language": "de-DE,de;q=0.9"}
    async with console.signed_in("finance") as client:
        plain = shown((await client.get("/orders/ORD-1")).text)
        page = shown((await client.get("/orders/ORD-1", headers=german)).text)
        documents = [await client.get("/orders.json", headers=h) for h in ({}, german)]
        files = [(await client.get("/orders.csv", headers=h)).text for h in ({}, german)]
    assert "KES 1,500.00" in plain
    assert "KES 1.500,00" in page
    assert "KES 1,500.00" not in page
    assert "20.11.2026" in page
    assert "Numbers and dates are written as your browser asks (de)" in page
    assert documents[0].json()["orders"] == documents[1].json()["orders"]
    assert files[0] == files[1]
