"""A phone number and a token go to the service and nowhere else, whatever it answers."""

import json
import traceback
from typing import Any

import pytest

from app.core.errors import TallyhookError
from app.core.masking import Mask
from tests.checkout.conftest import Shop
from tests.checkout.service import PHONE, TOKEN, Write, answer, asked, drop, opened, service
from tests.rows import for_each

TALKATIVE: dict[str, Any] = {
    "phone": PHONE,
    "token": TOKEN,
    "msisdn": "+254 712-345-678",
    "number": int(PHONE),
}
ANSWERS: dict[str, Write] = {
    "opened": opened(**TALKATIVE),
    "opened at a telling address": opened(checkout_url=f"https://pay.test/{PHONE}?t={TOKEN}"),
    "opened as the number": opened(reference=f"cs_{PHONE}"),
    "refused": answer(422, {"detail": f"{PHONE} {TOKEN}", **TALKATIVE}),
    "refused at length": answer(400, {"detail": f"{'x' * 280} {PHONE} {TOKEN}"}),
    "refused in plain text": answer(400, raw=f"{PHONE}\x00{TOKEN}\xff".encode("latin-1")),
    "denied": answer(401, {"detail": f"{PHONE} {TOKEN}"}),
    "dropped": drop,
    "busy": answer(503, {"detail": f"{PHONE} {TOKEN}"}, retry_after=PHONE),
}


@pytest.mark.parametrize("write", ANSWERS.values(), ids=ANSWERS.keys())
async def test_phone_and_token_are_not_in_records_results_errors_reprs_or_logs(
    shop: Shop, write: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    said: list[Any] = []
    urls: dict[str, Any] = {
        "success_url": f"https://shop.test/{PHONE}?p={PHONE}",
        "cancel_url": "https://a.test/",
    }
    async with service(write) as pay, pay.client() as client:
        for amount in ("1500.00", "1500.00", "7.00"):
            try:
                result = await shop.open(client, amount=amount, **urls)
                # What a customer is sent to is the service's own; it is handed on, not kept.
                said += [result.sentence, result.session, result.key]
            except TallyhookError as error:
                said += [*traceback.format_exception(error)]
        said += [client, client.settings, asked(**urls), client.mask_for(PHONE)]
    assert pay.seen, "the service was asked"
    heard = "".join([repr(said), await shop.written(), *capfd.readouterr()])
    assert "ORD-1" in heard
    for secret in (PHONE, PHONE[-8:], "712-345-678", TOKEN):
        assert secret not in heard


async def test_the_recorded_intent_has_the_return_urls_without_their_queries(
    shop: Shop,
) -> None:
    async with service(opened()) as pay, pay.client() as client:
        await shop.open(client, success_url="https://shop.test/ok?customer=c77#top")
    kept = json.loads((await shop.details())[0])
    assert kept["return_urls"] == {
        "success": "https://shop.test/ok",
        "cancel": "https://shop.test/no",
    }
    assert kept["digest"].startswith("sha256:")


@for_each(
    "text",
    [PHONE, "+" + PHONE, "0712345678", "712 345 678", "(0712) 345-678", "254.712.345.678"],
)
def test_the_mask_finds_the_number_in_every_notation(text: str) -> None:
    mask = Mask(phone=PHONE, token=TOKEN)
    assert mask.hide(f"call {text} now") in ("call *** now", "call (*** now", "call ***) now")
    assert mask.touches(text)


def test_the_mask_leaves_other_numbers_and_very_long_ones_alone() -> None:
    mask = Mask(phone=PHONE, token=TOKEN)
    assert mask.hide("pay_712345679 at 10:00") == "pay_712345679 at 10:00"
    assert not mask.touches("7" * 1_000_000)
