"""Dates in each provider's format, and amounts in each provider's units."""

from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.reading import Unreadable
from app.providers.dates import DATES
from reconcile.instants import format_instant
from reconcile.money import Money
from tests.providers.builders import made, only
from tests.rows import for_each
from tests.searching import examples

ZONE = "+03:00"


@for_each(
    ("form", "value", "written"),
    [
        ("rfc3339", "2021-11-17T15:48:10.5+01:00", "2021-11-17T14:48:10.500Z"),
        ("iso", "2021-11-17T15:48:10", "2021-11-17T12:48:10Z"),
        ("iso", "2021-11-17 15:48:10.123456789", "2021-11-17T12:48:10.123456Z"),
        ("iso", "2021-11-17T15:48:10+0200", "2021-11-17T13:48:10Z"),
        ("iso", "2021-11-17 15:48", "2021-11-17T12:48:00Z"),
        ("iso", "2021-11-17", "2021-11-16T21:00:00Z"),
        ("iso", "2021-11-17T15:48:10Z", "2021-11-17T15:48:10Z"),
        ("unix_s", 1637164090, "2021-11-17T15:48:10Z"),
        ("unix_s", "1637164090", "2021-11-17T15:48:10Z"),
        ("unix_s", Decimal("1637164090.250"), "2021-11-17T15:48:10.250Z"),
        ("unix_ms", 1637164090250, "2021-11-17T15:48:10.250Z"),
        ("compact", 20191219102115, "2019-12-19T07:21:15Z"),
        ("compact", "20191219102115", "2019-12-19T07:21:15Z"),
        ("dmy_12h", "17/11/2021 3:48:10 PM", "2021-11-17T12:48:10Z"),
        ("dmy_12h", "1/2/2021 12:00:00 AM", "2021-01-31T21:00:00Z"),
        ("dmy_12h", "1/2/2021 12:00:00 pm", "2021-02-01T09:00:00Z"),
        ("any", 1637164090, "2021-11-17T15:48:10Z"),
        ("any", "1637164090250", "2021-11-17T15:48:10.250Z"),
        ("any", "2021-11-17T15:48:10Z", "2021-11-17T15:48:10Z"),
        ("any", "2021-11-17 15:48:10.5", "2021-11-17T12:48:10.500Z"),
        ("any", "17/11/2021 3:48:10 PM", "2021-11-17T12:48:10Z"),
    ],
)
def test_each_way_of_writing_a_date_is_read(form: str, value: object, written: str) -> None:
    """A date without a zone is in the zone that the profile declares."""
    assert format_instant(DATES[form](value, "when", ZONE)) == written


@for_each(
    ("form", "value"),
    [
        ("iso", "17/11/2021"),
        ("iso", "2021-02-30T00:00:00"),
        ("iso", 20211117),
        ("unix_s", True),
        ("unix_s", -1),
        ("unix_s", "1e9"),
        ("unix_s", "\uff11"),
        ("unix_s", 10**14),
        ("unix_s", Decimal("1E+9")),
        ("unix_s", [1]),
        ("compact", "20191319102115"),
        ("compact", 2019121910211),
        ("dmy_12h", "17/11/2021 13:48:10 PM"),
        ("dmy_12h", "17/11/2021 0:48:10 AM"),
        ("dmy_12h", "31/02/2021 3:48:10 PM"),
        ("any", "31/02/2021 3:48:10 PM"),
        ("any", ""),
        ("any", None),
    ],
)
def test_an_invalid_date_is_unreadable(form: str, value: object) -> None:
    with pytest.raises(Unreadable, match=r"^when "):
        DATES[form](value, "when", ZONE)


ANY = st.none() | st.booleans() | st.integers() | st.text(max_size=25) | st.decimals()
NEAR = st.from_regex(r"[0-9/: T.+Z-]{0,25}( [AP]M)?", fullmatch=True)


@settings(derandomize=True, database=None, max_examples=examples(200))
@given(form=st.sampled_from(sorted(DATES)), value=ANY | NEAR)
def test_no_value_of_a_date_raises_anything_but_unreadable(form: str, value: object) -> None:
    with suppress(Unreadable):
        assert DATES[form](value, "when", ZONE) >= 0


def price(folder: Path, amount: object, currency: str) -> Money | None:
    amounts = {"unit": "minor", "payment": "json:sum", "payment_currency": "json:currency"}
    source = made(folder, more="[amounts.decimals]\nUGX = 2\nKWD = 2\n", amounts=amounts)
    body = {"id": "e", "type": "paid", "order": "o", "sum": amount, "currency": currency}
    return only(source, body).money


def test_a_profiles_own_decimals_replace_those_of_iso_4217(tmp_path: Path) -> None:
    assert price(tmp_path, 500000, "UGX") == Money(minor=5000, currency="UGX")
    assert price(tmp_path, "500", "KWD") == Money(minor=5000, currency="KWD")
    assert price(tmp_path, 500, "KES") == Money(minor=500, currency="KES")
    assert price(tmp_path, "500.00", "KWD") == Money(minor=5000, currency="KWD")
    assert price(tmp_path, 500001, "UGX") is price(tmp_path, 1.5, "UGX") is None
    for bad in ("5.0.0", True, -1):
        with pytest.raises(Unreadable):
            price(tmp_path, bad, "UGX")
