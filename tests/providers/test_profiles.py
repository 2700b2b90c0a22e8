"""Profile files: those that are shipped, and every mistake of a file reported at once."""

import dataclasses
import json
import pickle
import tomllib
from pathlib import Path
from typing import Any

import pytest

from app.config.load import load_settings
from app.context.configured import compile_sources, keep_profiles
from app.core.errors import ConfigurationError
from app.providers.profile import SHIPPED, load_profile, shipped_profiles
from app.providers.request import Incoming
from app.providers.source import Source
from tests.providers.builders import CHECKOUT, MINIMAL, SECRET, problem_of, profile_file, source
from tests.rows import for_each


def problems(name_or_path: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        load_profile(name_or_path)
    return list(caught.value.problems)


PROMISED = """
    adyen adyen_platform bitso braintree cashfree chapa chargebee checkout checkout_com
    coinbase_cdp coinbase_commerce convoy finch flutterwave flutterwave_v3 github gocardless
    intasend integrated_finance kopokopo korapay lemonsqueezy line lithic mercadopago midtrans
    modern_treasury mollie monnify moonpay moov mpesa_stk mtn_momo nowpayments openai paddle
    pawapay payfast paymob paypal paystack peach_checkout peach_oppwa pesapal plaid razorpay
    revolut rfc9421 sendgrid shopify slack snap_winpay square standard_webhooks stripe svix
    twilio wise wise_sha1 woovi workos xendit yoco
"""


def test_every_promised_profile_is_shipped() -> None:
    assert {*PROMISED.split()} <= {*shipped_profiles()}


@for_each("name", shipped_profiles())
def test_every_shipped_profile_loads_and_states_its_sources(name: str) -> None:
    """The form of `checkout` is this project's own choice."""
    profile = load_profile(name)
    assert profile.name == name
    assert name == "checkout" or (profile.rests_on is not None and profile.rests_on.source)
    assert (SHIPPED / f"{name}.toml").read_text(encoding="utf-8").startswith("# ")


def test_checkout_is_shipped_and_is_standard_webhooks() -> None:
    assert "checkout" in shipped_profiles()
    assert CHECKOUT.signature.signed == "{header:webhook-id}.{ts}.{body}"
    assert CHECKOUT.timestamp is not None
    assert (CHECKOUT.timestamp.past_s, CHECKOUT.timestamp.future_s) == (300, 300)
    assert source().acknowledgement_status == 200


def test_a_profile_is_frozen_and_hashable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        CHECKOUT.name = "other"  # type: ignore[misc]
    assert hash(load_profile("checkout")) == hash(CHECKOUT)


def test_a_copied_profile_reads_a_merchants_own_names(tmp_path: Path) -> None:
    text = (SHIPPED / "checkout.toml").read_text(encoding="utf-8")
    for old, new in [
        ("json:id", "json:uid"),
        ("json:type", "json:what"),
        ("json:occurred_at", "json:when"),
        ("json:environment", "json:mode"),
        ("json:data.", "json:payload."),
        ('sandbox = "sandbox"', 'sandbox = "test"'),
        ('"payment.succeeded" =', '"PAID" ='),
        ("status = 200", "status = 204"),
    ]:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "shop.toml"
    path.write_text(text, encoding="utf-8")
    shop = Source(name="shop", profile=load_profile(str(path)), secrets=["A" * 32])
    payment = {"reference": "p1", "amount": 5, "currency": "KES"}
    body = {"uid": "e1", "what": "PAID", "when": "2026-11-20T10:00:00Z", "mode": "test"}
    content = json.dumps({**body, "payload": {"payment": payment}}).encode()
    reading = shop.read(Incoming([], content), digest="d" * 64)
    (event,) = reading.events
    assert (event.event_id, event.claim, event.payment) == ("e1", "succeeded", "p1")
    assert event.money is not None
    assert event.occurred_at is not None
    assert (reading.environment, shop.acknowledgement_status) == ("sandbox", 204)


def test_a_service_reads_a_merchants_own_profile_once(tmp_path: Path) -> None:
    """Its processes judge by one text, whatever the file says when each of them starts."""
    path = tmp_path / "own.toml"
    path.write_text((SHIPPED / "checkout.toml").read_text())
    environ = {
        "TALLYHOOK_ENVIRONMENT": "sandbox",
        "TALLYHOOK_SOURCES__OWN__PROFILE": str(path),
        "TALLYHOOK_SOURCES__OWN__SECRETS": SECRET,
    }
    settings = load_settings(environ, serving=True)
    keep_profiles(settings)
    handed, before = pickle.loads(pickle.dumps(settings)), load_profile(str(path))
    path.write_text("broken")
    assert compile_sources(handed)["own"].profile == before
    with pytest.raises(ConfigurationError, match="PROFILE"):
        compile_sources(load_settings(environ, serving=True))


def test_the_smallest_profile_loads(tmp_path: Path) -> None:
    profile = load_profile(profile_file(tmp_path))
    assert profile.timestamp is None
    assert profile.name == "mine"
    assert profile.acknowledgement.status == 200
    assert profile.acknowledgement.redelivery_days == 30


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    path = profile_file(
        tmp_path,
        signature={"mac": "md5", "format": "list", "signed": "{ts}.{nothing}", "extra": 1},
        secret={"encoding": "rot13"},
        timestamp={"where": "cookie:x", "past_s": -1, "unit": "h"},
        acknowledgement={"status": 500},
        event={"id": [], "kind": 7, "order": "json:a..b"},
        amounts={"payment": "json:amount"},
        environment={"sandbox": "same", "live": "same", "either": "same"},
        claims={"paid": "payed"},
        phones={"x": 1},
    )
    found = problems(path)
    assert {problem.split(": ")[1] for problem in found} == {
        "signature.mac",
        "signature.label",
        "signature.signed",
        "signature.extra",
        "secret.encoding",
        "timestamp.where",
        "timestamp.past_s",
        "timestamp.unit",
        "acknowledgement.status",
        "event.id",
        "event.kind",
        "event.order",
        "amounts.payment_currency",
        "environment.live",
        "environment.either",
        'claims."paid"',
        "phones",
    }
    assert all(problem.startswith(f"{path}:") for problem in found)


def test_an_empty_file_is_reported_with_every_required_key(tmp_path: Path) -> None:
    path = tmp_path / "empty.toml"
    path.write_text("")
    found = "\n".join(problems(str(path)))
    for key in ("signature.mac", "event.id", "event.kind", "event.order"):
        assert f"{key}: is missing" in found
    assert "claims: must be a section" in found


@pytest.mark.parametrize(
    ("section", "keys", "message"),
    [
        (
            "signature",
            {"signed": "v0:x"},
            "signature.signed: does not cover event.kind, event.order",
        ),
        ("signature", {"signed": "{ts}{body}"}, "timestamp: is missing"),
        ("signature", {"signed": "{body"}, "brace"),
        ("signature", {"signed": "{body}}"}, "brace"),
        ("signature", {"signed": "{body:x}"}, "unknown reference"),
        ("signature", {"signed": "{header}{body}"}, "unknown reference"),
        ("signature", {"signed": "{header:X-Up}{body}"}, "lower case"),
        ("signature", {"where": "header:X-Up"}, "lower case"),
        ("signature", {"where": "header:"}, "must be one of header:NAME"),
        ("signature", {"where": "x-signature"}, "must be one of header:NAME"),
        ("signature", {"format": "prefix"}, "signature.prefix: is missing"),
        ("signature", {"format": "kv", "label": "v1"}, "signature.separator: is missing"),
        ("signature", {"label": "v1"}, "signature.label: has no effect with format plain"),
        ("signature", {"mac": ["hmac-sha256"]}, "signature.mac: must be one of hmac-md5"),
        ("signature", {"mac": "named:slack"}, "must be named: plus one of braintree"),
        ("event", {"lists": ["x"]}, "event.lists: there is no such key; there are "),
        ("signature", {"encoding": "base32"}, "signature.encoding: must be one of hex, base64"),
        ("timestamp", {"where": "header:x-time"}, "must cover {ts}"),
        ("acknowledgement", {"redelivery_days": 0}, "whole number from 1 to 90"),
        ("acknowledgement", {"redelivery_days": 91}, "whole number from 1 to 90"),
        ("acknowledgement", {"status": True}, "whole number from 200 to 299"),
        ("acknowledgement", {"status": 404}, "whole number from 200 to 299"),
        ("event", {"order": ...}, "event.order: is missing"),
        ("event", {"dates": "american"}, "event.dates: must be one of rfc3339"),
        ("event", {"id": ["json:id", "body:id"]}, "json:NAME, root:NAME, header:NAME"),
        ("amounts", {"unit": "dollars"}, "amounts.unit: must be one of major, minor"),
        ("claims", {"paid": "success"}, 'claims."paid": must be one of pending'),
    ],
)
def test_each_mistake_has_its_sentence(
    section: str, keys: dict[str, Any], message: str, tmp_path: Path
) -> None:
    (problem,) = problems(profile_file(tmp_path, **{section: keys}))
    assert message in problem


@pytest.mark.parametrize("code", ["paypal", "no_such", "../keys", ""])
def test_code_names_a_module_that_has_particulars(code: str, tmp_path: Path) -> None:
    found = problem_of(tmp_path, f'code = "{code}"\n')
    assert "code: must be one of adyen, mercadopago, mollie_classic, slack, woovi" in found


def test_a_section_that_is_no_section_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "flat.toml"
    good = Path(profile_file(tmp_path)).read_text()
    path.write_text("environment = 3\ntimestamp = 'x'\n" + good)
    found = problems(str(path))
    assert [problem.split(": ", 1)[1] for problem in found] == [
        "environment: must be a section, such as [environment]",
        "timestamp: must be a section, such as [timestamp]",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"a = ", "is not TOML"), (b"\xff", "is not UTF-8"), (None, "cannot be read")],
)
def test_an_unreadable_file_is_reported_with_its_path(
    content: bytes | None, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "broken.toml"
    if content is not None:
        path.write_bytes(content)
    (problem,) = problems(str(path))
    assert problem.startswith(f"{path}:1: " if content == b"a = " else f"{path}: ")
    assert message in problem


def test_a_file_with_a_byte_order_mark_and_crlf_loads(tmp_path: Path) -> None:
    path = profile_file(tmp_path)
    text = Path(path).read_bytes().replace(b"\n", b"\r\n")
    Path(path).write_bytes(b"\xef\xbb\xbf" + text)
    assert load_profile(path).name == "mine"


def test_a_file_name_without_a_path_is_reported_with_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.txt").write_text("")
    (problem,) = problems("mine.txt")
    assert problem == "there is no shipped profile 'mine.txt'; write ./mine.txt for the file"


@for_each("name", ["nobody", "", "..", "checkout.TOML", "profiles\\checkout"])
def test_an_unknown_name_lists_the_shipped_profiles(name: str) -> None:
    (problem,) = problems(name)
    assert "checkout" in problem


@for_each(
    ("name", "said"),
    [("paystak", "; the nearest one is paystack: "), ("Stripe", "; the nearest one is stripe: "),
     ("zzz", "'zzz': "), ("nope", "'nope': "), ("mpesa", "; the nearest one is mpesa_stk: ")],
)  # fmt: skip
def test_a_misspelled_name_is_reported_with_the_nearest(name: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_profile(name)
    assert said in str(caught.value)


def test_the_test_helper_writes_the_intended_toml(tmp_path: Path) -> None:
    with open(profile_file(tmp_path), "rb") as file:
        assert tomllib.load(file) == MINIMAL
