"""Phone numbers are read where the profile says, converted to E.164, and shown only masked."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import ConfigurationError, UnreachableError
from app.core.phone_key import make_phone_key
from app.providers.examples import find_example
from app.providers.identifiers import phone_digits
from app.providers.profile import load_profile
from app.providers.request import Incoming
from app.providers.source import Source
from tests.api.driving import driving, event
from tests.cli.test_commands import Run, run
from tests.providers.builders import made, profile_file
from tests.rows import for_each

__all__ = ["run"]


@for_each(
    ("written", "country", "digits"),
    [
        (254712345678, None, "254712345678"),
        ("254700000000", None, "254700000000"),
        ("+91 99999-99999", None, "919999999999"),
        ("00254 (712) 345.678", None, "254712345678"),
        ("0912345678", "251", "251912345678"),
        ("+49 (0)171 1234567", None, "491711234567"),
        ("0049(0)171-1234567", None, "491711234567"),
        ("254 (0) 712 345678", None, "254712345678"),
        ("(0)171 1234567", "49", "491711234567"),
        ("+254\u00a0712\u2011345\u2013678", None, "254712345678"),
        ("\u202a+254712345678\u202c", None, "254712345678"),
        ("0712 - 345 - 678", "254", "254712345678"),
        ("0912345678", None, None),
        ("2547 ***** 149", None, None),
        ("+1234567", None, None),
        ("1234567890123456", None, None),
        ("\uff11\uff12345678", None, None),
        ("", "254", None),
        (None, "254", None),
        (2.5, None, None),
        (True, None, None),
        ({"number": "1"}, None, None),
    ],
)
def test_phone_numbers_are_read_in_each_form_that_providers_use(
    written: Any, country: str | None, digits: str | None
) -> None:
    assert phone_digits(written, country) == digits


def test_country_code_and_number_may_stand_in_two_fields(tmp_path: Path) -> None:
    customer = {"phone": "{json:phone.country_code}{json:phone.number}"}
    source = made(tmp_path, customer=customer)
    body = json.dumps({"phone": {"country_code": "234", "number": "8012345678"}}).encode()
    assert source.phones(Incoming([], body)) == ["2348012345678"]


def test_the_shipped_m_pesa_profile_reads_the_phone_of_its_example() -> None:
    body = json.dumps(find_example("mpesa_stk", "paid").body).encode()
    source = Source(name="s", profile=load_profile("mpesa_stk"), secrets=[])
    assert source.phones(Incoming([], body)) == ["254708374149"]


def test_a_country_that_is_no_calling_code_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="calling code"):
        load_profile(profile_file(tmp_path, customer={"phone": "json:p", "country": "KE"}))


def test_show_masks_the_phone_of_a_delivery(tmp_path: Path, run: Run) -> None:
    async def fill() -> list[str]:
        async with driving(tmp_path, with_worker=False) as driver:
            body = event("e1", customer={"phone": "254711223344"})
            kept = (await driver.send(body)).json()["delivery"]
            await driver.send(body, [])
            ((refused,),) = driver.rows("SELECT id FROM rejections")
            return [kept, refused]

    kept, refused = asyncio.run(fill())
    shown = run("deliveries", "show", kept, "--format", "json")
    assert shown.document["phone"] == "+254 ••• ••• •44"
    assert "254711223344" not in shown.out + run("deliveries", "show", kept).out
    assert run("deliveries", "show", refused, "--format", "json").document["phone"] is None


def test_a_phone_key_that_cannot_be_created_names_the_folder(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(UnreachableError) as caught:
        make_phone_key(tmp_path / "taken" / "t.phone.key")
    assert f"cannot be created in {tmp_path / 'taken'}: " in str(caught.value)
    assert "give this user write access" in str(caught.value)
