"""Owner of an event, by a profile's kind of key and the account that an event names.

Signed content must also not be joined such that somebody could move bytes from one field to
another.
"""

import base64
import dataclasses
import hashlib
import hmac
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from app.core.errors import ConfigurationError
from app.core.reading import Unreadable
from app.providers.fetched import keep_answer
from app.providers.fingerprints import key_identities
from app.providers.profile import list_profiles, load_profile, shipped_profiles, show_profile
from app.providers.request import Incoming
from app.providers.source import Source
from reconcile.ledger.events import Event
from tests.providers.builders import (
    CHECKOUT,
    MINIMAL,
    NOW,
    SECRET,
    body_of,
    load,
    only,
    problem_of,
    raw,
    refused,
    toml,
)
from tests.providers.samples import private_key
from tests.rows import for_each

PRICED = {"unit": "major", "payment": "json:sum", "payment_currency": "text:KES"}
FETCH = {"fetch_back": {"url": "https://api.example/v1/{order}", "kind": "json:status"}}
PROVIDERS = {
    *("bitso", "integrated_finance", "pawapay", "paypal", "plaid", "rfc9421", "snap_winpay"),
    *("wise", "wise_sha1", "woovi"),
}
"""Shipped profiles whose key signs the events of all the provider's merchants."""


def signature(**keys: Any) -> dict[str, Any]:
    return {**MINIMAL["signature"], **keys}


# --- the kind of key -----------------------------------------------------------------------------


def test_each_shipped_profile_states_whose_its_key_is() -> None:
    for name in shipped_profiles():
        shown, text = show_profile(name)["signature"], load_profile(name)
        written = (Path("app/providers/profiles") / f"{name}.toml").read_text(encoding="utf-8")
        if text.signature.mac == "none":
            assert shown["key"] is None
        else:
            assert f'\nkey = "{shown["key"]}"' in written, f"{name}.toml: add it to [signature]"
            assert (shown["key"] == "provider") == (name in PROVIDERS), name


@for_each("name", sorted(PROVIDERS))
def test_an_event_under_a_shared_key_names_its_account_or_is_unconfirmed(name: str) -> None:
    profile = load_profile(name)
    assert profile.account.where or profile.unconfirmed


def test_a_shared_key_must_say_how_accounts_are_kept_apart(tmp_path: Path) -> None:
    shared = signature(key="provider")
    assert "account: is missing" in problem_of(tmp_path, signature=shared)
    where = {"where": "json:merchant"}
    assert load(tmp_path, signature=shared, account=where).account.where == ("json:merchant",)
    assert load(tmp_path, 'confirm = "fetch_back"\n', signature=shared, **FETCH).unconfirmed
    assert load(tmp_path, signature=shared, account={"undocumented": True}).unconfirmed
    both = {"where": "json:merchant", "undocumented": True}
    assert "cannot go with account.where" in problem_of(tmp_path, signature=shared, account=both)


def test_a_public_key_has_no_default_owner(tmp_path: Path) -> None:
    public = signature(mac="ed25519")
    assert "signature.key: is missing" in problem_of(tmp_path, signature=public)
    assert load(tmp_path, signature=signature(mac="ed25519", key="merchant")).signature.key
    assert load(tmp_path).signature.key == "merchant"


def test_the_member_that_names_the_account_must_be_signed(tmp_path: Path) -> None:
    rule = signature(key="provider", signed="{json:id}:{json:type}:{json:order}")
    problem = problem_of(tmp_path, signature=rule, account={"where": "json:merchant"})
    assert "account.where: is not covered" in problem


def test_profiles_list_and_show_state_the_owner_of_the_key() -> None:
    rows = {row["profile"]: row for row in list_profiles()}
    assert (rows["bitso"]["key"], rows["bitso"]["events"]) == ("provider", "unconfirmed")
    assert (rows["stripe"]["key"], rows["stripe"]["events"]) == ("merchant", "signed")
    assert rows["woovi"]["events"] == "signed"
    assert show_profile("woovi")["account"]["where"] == ("json:company.id",)


def test_events_of_an_undocumented_account_are_pending_and_not_asked_about(tmp_path: Path) -> None:
    profile = load(tmp_path, signature=signature(key="provider"), account={"undocumented": True})
    source = Source(name="s", profile=profile, secrets=["k" * 24])
    event = only(source, {"id": "e", "type": "paid", "order": "o"})
    assert (event.claim, event.standing, source.asks) == ("pending", "unconfirmed", False)


# --- the account of an event ---------------------------------------------------------------------


def foreign(source: Source, document: Any) -> bool:
    """Return whether the receiver finds the event foreign, after checking that the reader
    agrees."""
    body = json.dumps(document).encode()
    foreign = source.belonging(Incoming([], body)).foreign
    with suppress(Unreadable):
        assert source.read(Incoming([], body), digest="d" * 64).foreign is foreign
    return foreign


@pytest.mark.parametrize(
    ("merchant", "is_foreign"),
    [
        ("m1", False),
        ("m2", False),
        (7, False),
        ("M1", True),
        ("m1 ", True),
        ("", True),
        (None, True),
    ],
)
def test_only_the_configured_accounts_count(
    merchant: Any, is_foreign: bool, tmp_path: Path
) -> None:
    profile = load(
        tmp_path, signature=signature(key="provider"), account={"where": "json:merchant"}
    )
    source = Source(name="s", profile=profile, secrets=["k" * 24], accounts=["m1", "m2", "7"])
    event = {"id": "e", "type": "paid", "order": "o", "merchant": merchant}
    assert foreign(source, event) is is_foreign
    assert foreign(source, {**event, "id": 7}) is is_foreign, "also where it cannot be read"


def test_one_foreign_event_makes_a_whole_body_foreign(tmp_path: Path) -> None:
    profile = load(
        tmp_path,
        signature=signature(key="provider"),
        account={"where": "json:merchant"},
        event={**MINIMAL["event"], "items": "all[*]"},
    )
    source = Source(name="s", profile=profile, secrets=["k" * 24], accounts=["m1"])
    mine = {"id": "e", "type": "paid", "order": "o", "merchant": "m1"}
    assert not foreign(source, {"all": [mine, {**mine, "id": "f"}]})
    for other in ({**mine, "merchant": "m2"}, {"merchant": "m2"}, {**mine, "merchant": ["m1"]}):
        assert foreign(source, {"all": [mine, other]})
    assert foreign(source, {"all": []})
    assert source.belonging(Incoming([], b"no JSON")).foreign


# --- joins ---------------------------------------------------------------------------------------

AMBIGUOUS = [
    ("{json:order}{json:type}:{json:sum}", "{json:order} and {json:type}"),
    ("{json:order}:{json:type}{json:sum}", "{json:type} and {json:sum}"),
    ("{json:order}{json:id?}:{json:type}:{json:sum}", "{json:order} and {json:id}"),
    ("{json:order}[:{json:id}]{json:type}:{json:sum}", "{json:id} and {json:type}"),
    ("{json:order}[-:{json:no}]:{json:type}[.{json:x}.]{json:sum}", "{json:type} and {json:sum}"),
    ("{form_joined:-signature}", "the fields of {form_joined:-signature}"),
    ("{compact:order}{compact:type}{canonical:sum}", "{compact:order} and {compact:type}"),
]
UNAMBIGUOUS = [
    "{body}",
    "{url}{body}",
    "{method}{path}{body}",
    "{json:order}:{json:type}:{json:sum}",
    "{json:order|sha256_hex}{json:type|sha256_hex}{json:sum}",
    "{header:x-id}{body}",
    "{header:x-one}{header:x-two}.{body}",
]


@pytest.mark.parametrize(("signed", "join"), AMBIGUOUS)
def test_a_join_without_a_separator_needs_a_fetch_back(
    signed: str, join: str, tmp_path: Path
) -> None:
    rule = signature(signed=signed)
    form: dict[str, Any] = {"request": {"body": "form"}} if "form" in signed else {}
    if form:
        form["event"] = {"id": "form:id", "kind": "form:type", "order": "form:order"}
    priced = {**PRICED, "payment": "form:sum" if form else "json:sum"}
    problem = problem_of(tmp_path, signature=rule, amounts=priced, **form)
    assert f"joins {join} with nothing between" in problem
    top = 'confirm = "fetch_back"\n'
    assert load(tmp_path, top, signature=rule, amounts=priced, **form, **FETCH)


@pytest.mark.parametrize("signed", UNAMBIGUOUS)
def test_fields_with_visible_boundaries_need_no_fetch_back(signed: str, tmp_path: Path) -> None:
    assert load(tmp_path, signature=signature(signed=signed), amounts=PRICED)


def test_digits_before_json_are_unambiguous_and_before_a_form_are_not(tmp_path: Path) -> None:
    rule, time = signature(signed="{ts}{body}"), {"where": "header:x-time"}
    assert load(tmp_path, signature=rule, timestamp=time)
    form: dict[str, Any] = {
        "request": {"body": "form"},
        "event": {"id": "form:id", "kind": "form:type", "order": "form:order"},
    }
    assert "joins {ts} and {body}" in problem_of(tmp_path, signature=rule, timestamp=time, **form)


def test_a_peach_form_that_was_split_anew_claims_nothing() -> None:
    """The shop signs the customer's own words for the browser. Split at other places, the same
    characters are a genuine payment of another order."""
    key = "df2ef3ec0c5f4a0c9a7d5ef0b3a1c2d4"
    words = "id1merchantTransactionIdORD-1paymentTypeDBresult.code000.100.110z"
    shops = {
        "amount": "14.99",
        "checkoutId": "x",
        "currency": "ZAR",
        "customer.surname": f"Smith{words}",
        "merchantTransactionId": "ORD-2",
        "paymentType": "DB",
    }
    joined = "".join(name + shops[name] for name in sorted(shops))
    mac = hmac.new(key.encode(), joined.encode(), hashlib.sha256).hexdigest()
    split = {
        "amount": "14.99",
        "checkoutId": "x",
        "currency": "ZAR",
        "customer.surname": "Smith",
        "id": "1",
        "merchantTransactionId": "ORD-1",
        "paymentType": "DB",
        "result.code": "000.100.110",
        "z": "merchantTransactionIdORD-2paymentTypeDB",
        "signature": mac,
    }
    body = "&".join(f"{name}={value}" for name, value in split.items()).encode()
    source = Source(name="peach", profile=load_profile("peach_checkout"), secrets=[key])
    assert source.verify(Incoming([], body), now=NOW) is None
    event = only(source, body)
    assert (event.order, event.kind) == ("ORD-1", "DB:000.100.110")
    assert (event.claim, event.standing, source.asks) == ("pending", "unconfirmed", True)


# --- further rules -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keys",
    [
        {"body": "a\r\nx: y", "type": "text/plain"},
        {"body": "ok\n"},
        {"body": "ok", "type": "text/plain\r\nset-cookie: a=b"},
        {"type": "text/plain\n"},
    ],
)
def test_an_acknowledgement_with_a_line_break_is_reported(
    keys: dict[str, str], tmp_path: Path
) -> None:
    assert "without CR or LF" in problem_of(tmp_path, acknowledgement=keys)


def test_an_acknowledgement_field_with_a_line_break_is_reported(tmp_path: Path) -> None:
    fields = '\n[acknowledgement.fields]\n"a\\nb" = 1\nc = "text:x\\r\\ny"\n'
    path = tmp_path / "mine.toml"
    path.write_text(toml(MINIMAL) + fields)
    with pytest.raises(ConfigurationError) as caught:
        load_profile(str(path))
    assert len(caught.value.problems) == 2
    assert all("without CR or LF" in each for each in caught.value.problems)


def test_an_event_without_its_environment_is_marked_unstated() -> None:
    source = Source(name="acme", profile=CHECKOUT, secrets=[SECRET])
    for said, unstated in (("live", False), (..., True), (None, True)):
        reading = source.read(Incoming([], body_of(environment=said)), digest="d" * 64)
        assert reading.unstated is unstated
        assert reading.environment == (None if unstated else "live")
    other = Source(name="s", profile=load_profile("razorpay"), secrets=["k" * 24])
    assert not other.read(Incoming([], b'{"event": "payment.failed"}'), digest="d" * 64).unstated


@for_each(
    ("secrets", "kind", "environment", "unstated"),
    [
        (["sk_live_" + "k" * 24], "charge.success", "live", False),
        (["sk_test_" + "k" * 24], "charge.success", "sandbox", False),
        (["sk_live_" + "k" * 24, "sk_test_" + "k" * 24], "charge.success", None, True),
        (["k" * 24], "charge.success", None, True),
        (["k" * 24], "charge.unheard_of", None, True),
        (["k" * 24], "invoice.create", None, False),
    ],
)
def test_the_key_says_the_environment_and_an_ignored_kind_needs_none(
    secrets: list[str], kind: str, environment: str | None, unstated: bool
) -> None:
    """Where a source has keys of both environments, they say nothing."""
    source = Source(name="p", profile=load_profile("paystack"), secrets=secrets)
    money = {"amount": 100, "currency": "NGN"}
    body = json.dumps({"event": kind, "data": {"reference": "R", **money}}).encode()
    for said in (
        source.belonging(Incoming([], body)),
        source.read(Incoming([], body), digest="d" * 64),
    ):
        assert (said.environment, said.unstated) == (environment, unstated)


def test_an_event_that_names_the_other_environment_is_of_it_whatever_its_key() -> None:
    secrets = ["sk_live_" + "k" * 24]
    source = Source(name="p", profile=load_profile("paystack"), secrets=secrets)
    for data in ({"domain": "test"}, {"customer": {"domain": "test"}}):
        body = json.dumps({"event": "invoice.create", "data": data}).encode()
        assert source.belonging(Incoming([], body)).environment == "sandbox"


def test_a_chargeback_of_mollie_counts_without_its_mode_and_a_payment_does_not() -> None:
    source = Source(name="m", profile=load_profile("mollie"), secrets=["k" * 24])
    entity = {"amount": {"currency": "EUR", "value": "10.00"}, "paymentId": "tr_1"}
    event = {"id": "event_1", "type": "chargeback.received", "entityId": "chb_1"}
    for resource, unstated in (("chargeback", False), ("payment", True)):
        embedded = {"_embedded": {"entity": {"resource": resource, **entity}}}
        body = json.dumps({**event, **embedded}).encode()
        for said in (
            source.belonging(Incoming([], body)),
            source.read(Incoming([], body), digest="d" * 64),
        ):
            assert (said.environment, said.unstated) == (None, unstated)


@pytest.mark.parametrize(
    ("profile", "answer", "words"),
    [
        (
            "mollie_classic",
            {"mode": ..., "status": "paid", "metadata": {"order_id": "O"}},
            ("test", "live"),
        ),
        (
            "mercadopago",
            {"live_mode": ..., "status": "approved", "external_reference": "O"},
            (False, True),
        ),
    ],
)
def test_an_answer_of_the_other_environment_is_unreadable(
    profile: str, answer: dict[str, Any], words: tuple[Any, Any]
) -> None:
    """In live also an answer that states none: a sandbox key is answered about no real money."""
    source = Source(name="s", profile=load_profile(profile), secrets=["k" * 24])
    asked = Event(source="s", event_id="e", digest="0" * 64, kind="payment", claim="pending")
    (member,) = (name for name, value in answer.items() if value is ...)
    sandbox, live = words

    def claim(said: Any, environment: str | None) -> str | None:
        body = json.dumps({**answer, "id": "p", member: said}).encode()
        kept = keep_answer(asked, question="GET", status=200, answer=body)
        with suppress(Unreadable):
            return source.read_answer(kept, digest="1" * 64, environment=environment).claim
        return None

    paid = "succeeded"
    assert [claim(each, "live") for each in (sandbox, live, None)] == [None, paid, None]
    # Mercado Pago's test users pay as real ones do.
    real = paid if profile == "mercadopago" else None
    assert [claim(each, "sandbox") for each in (sandbox, live, None)] == [paid, real, paid]
    assert [claim(each, None) for each in (sandbox, live, None)] == [paid, paid, paid]


def test_a_sources_own_orders_are_named_after_it() -> None:
    own = Source(name="till", profile=CHECKOUT, secrets=[SECRET], own_orders=True)
    shared = Source(name="web", profile=CHECKOUT, secrets=[SECRET])
    assert only(own, body_of()).order == "@till:ORD-1042"
    said = body_of(data__order__reference="@till:ORD-1042")
    with pytest.raises(Unreadable, match="reserved for sources with their own orders"):
        only(shared, said)
    other = Source(name="other", profile=CHECKOUT, secrets=[SECRET], own_orders=True)
    assert only(other, said).order == "@other:@till:ORD-1042"
    with pytest.raises(Unreadable, match="more than 200 characters"):
        only(own, body_of(data__order__reference="o" * 195))


@for_each(
    ("links", "own", "order", "suggested"),
    [
        (True, (), "ORD-1042", None),
        (False, (), None, "ORD-1042"),
        (True, ("payment.*",), None, "ORD-1042"),
        (True, ("payment.succeeded",), None, "ORD-1042"),
        (True, ("payment.refunded", "refund.*"), "ORD-1042", None),
    ],
)
def test_an_order_links_unless_it_is_a_movements_reference_or_the_source_forbids_it(
    links: bool, own: tuple[str, ...], order: str | None, suggested: str | None
) -> None:
    event = dataclasses.replace(CHECKOUT.event, own_reference=own)
    profile = dataclasses.replace(CHECKOUT, event=event)
    source = Source(name="web", profile=profile, secrets=[SECRET], links=links)
    read = only(source, body_of())
    assert (read.order, read.suggested) == (order, suggested)


@pytest.mark.parametrize(("kept_by", "read_by"), [(True, False), (False, True), (False, False)])
def test_an_answer_links_as_its_source_says_now(kept_by: bool, read_by: bool) -> None:
    profile = load_profile("mpesa_stk")
    asked = Event(
        source="s",
        event_id="e",
        digest="0" * 64,
        kind="stk",
        claim="pending",
        session="ws_1",
        order="ORD-1" if kept_by else None,
        suggested=None if kept_by else "ORD-1",
    )
    body = b'{"ResultCode": "0", "ResultDesc": "ok", "CheckoutRequestID": "ws_1"}'
    kept = keep_answer(asked, question="POST", status=200, answer=body)
    source = Source(name="s", profile=profile, secrets=[SECRET], links=read_by)
    read = source.read_answer(kept, digest="1" * 64)
    linked = kept_by and read_by
    assert (read.order, read.suggested) == (("ORD-1", None) if linked else (None, "ORD-1"))


def test_a_key_has_one_identity_in_every_spelling() -> None:
    raw = bytes(range(32))
    adyen, mollie = load_profile("adyen"), load_profile("mollie")
    hexed = key_identities(adyen, [raw.hex()])
    assert hexed & key_identities(CHECKOUT, ["AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"])
    assert hexed & key_identities(adyen, [raw.hex().upper()])
    assert key_identities(CHECKOUT, [SECRET]) & key_identities(mollie, [SECRET])
    assert not hexed & key_identities(adyen, [raw[::-1].hex()])
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    numbers = public.public_numbers()
    text = {
        name: base64.urlsafe_b64encode(n.to_bytes(32)).rstrip(b"=").decode()
        for name, n in (("x", numbers.x), ("y", numbers.y))
    }
    jwk = json.dumps({"kty": "EC", "crv": "P-256", **text})
    named, plaid = load_profile("rfc9421"), load_profile("plaid")
    assert key_identities(named, {"a": pem}) == key_identities(plaid, {"b": jwk})
    assert (
        key_identities(named, {"a": pem.replace("\n", "\r\n")})
        & key_identities(named, {"c": private_key("ecdsa-p256-sha256")})
        == frozenset()
    )


@pytest.mark.parametrize("written", ["raw", "der"])
def test_pawapay_signatures_verify_in_both_forms_and_only_for_our_host(written: str) -> None:
    pawapay, key = load_profile("pawapay"), private_key("ecdsa-p256-sha256")
    url, body = "https://shop.example/webhooks/pawapay", b'{"depositId": "d"}'
    source = Source(name="p", profile=pawapay, secrets={"k": key})
    assert source.signs_address, "so that a source without the public address does not start"

    def sent(required: tuple[str, ...], url: str) -> Any:
        options = (("required", required), ("ecdsa", written))
        rule = dataclasses.replace(pawapay.signature, options=options)
        signer = Source(
            name="p", profile=dataclasses.replace(pawapay, signature=rule), secrets={"k": key}
        )
        made = signer.signed(body, event_id="e", now=NOW, url=url)
        return raw(made.headers)

    whole = ("content-digest", "@method", "@authority", "@path")
    assert source.verify(Incoming(sent(whole, url), body, url=url), now=NOW) is None
    other = "https://other.example/webhooks/pawapay"
    for headers in (sent(whole, other), sent(("content-digest", "@method", "@path"), url)):
        refusal = refused(source.verify(Incoming(headers, body, url=url), now=NOW))
        assert refusal.reason == "signature_mismatch"
