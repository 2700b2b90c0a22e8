"""Whose an event is: the kind of a profile's key, the account that an event names, and the joins of
signed content over which somebody could move what was signed."""

from __future__ import annotations

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
from tests.providers.builders import CHECKOUT, MINIMAL, NOW, SECRET, body_of, toml
from tests.providers.samples import private_key

PRICED = {"unit": "major", "payment": "json:sum", "payment_currency": "text:KES"}
FETCH = {"fetch_back": {"url": "https://api.example/v1/{order}", "kind": "json:status"}}
PROVIDERS = {
    *("bitso", "integrated_finance", "pawapay", "paypal", "plaid", "rfc9421", "snap_winpay"),
    *("wise", "wise_sha1", "woovi"),
}
"""Those of the shipped ones whose key signs the events of all the provider's merchants."""


def load(folder: Path, top: str = "", **sections: Any) -> Any:
    path = folder / "mine.toml"
    whole = {**MINIMAL, **sections}
    path.write_text(top + toml(whole).replace('"undocumented" = true', "undocumented = true"))
    return load_profile(str(path))


def problem_of(folder: Path, top: str = "", **sections: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(folder, top, **sections)
    return "\n".join(caught.value.problems)


def signature(**keys: Any) -> dict[str, Any]:
    return {**MINIMAL["signature"], **keys}


# --- the kind of key -----------------------------------------------------------------------------


def test_every_shipped_profile_says_whose_its_key_is() -> None:
    """In its file, not by a default; only what nobody signs has no key."""
    for name in shipped_profiles():
        shown, text = show_profile(name)["signature"], load_profile(name)
        written = (Path("app/providers/profiles") / f"{name}.toml").read_text(encoding="utf-8")
        if text.signature.mac == "none":
            assert shown["key"] is None
        else:
            assert f'\nkey = "{shown["key"]}"' in written, name
            assert (shown["key"] == "provider") == (name in PROVIDERS), name


@pytest.mark.parametrize("name", sorted(PROVIDERS))
def test_no_event_under_a_shared_key_counts_by_itself(name: str) -> None:
    """It names its account, or is fetched back, or is unconfirmed for good."""
    profile = load_profile(name)
    assert profile.account.where or profile.unconfirmed


def test_a_shared_key_must_say_how_accounts_are_kept_apart(tmp_path: Path) -> None:
    """One of the three, else the file does not load."""
    shared = signature(key="provider")
    assert "account: is missing" in problem_of(tmp_path, signature=shared)
    where = {"where": "json:merchant"}
    assert load(tmp_path, signature=shared, account=where).account.where == ("json:merchant",)
    assert load(tmp_path, 'confirm = "fetch_back"\n', signature=shared, **FETCH).unconfirmed
    assert load(tmp_path, signature=shared, account={"undocumented": True}).unconfirmed
    both = {"where": "json:merchant", "undocumented": True}
    assert "is instead of account.where" in problem_of(tmp_path, signature=shared, account=both)


def test_a_published_key_has_no_default(tmp_path: Path) -> None:
    """Who verifies with a public key must say whose it is; a shared secret is one's own."""
    public = signature(mac="ed25519")
    assert "signature.key: is missing" in problem_of(tmp_path, signature=public)
    assert load(tmp_path, signature=signature(mac="ed25519", key="merchant")).signature.key
    assert load(tmp_path).signature.key == "merchant"


def test_the_member_that_names_the_account_must_be_signed(tmp_path: Path) -> None:
    """Else the attacker writes it."""
    rule = signature(key="provider", signed="{json:id}:{json:type}:{json:order}")
    problem = problem_of(tmp_path, signature=rule, account={"where": "json:merchant"})
    assert "account.where: is not covered" in problem


def test_the_list_and_the_whole_say_so() -> None:
    """`profiles list` states `unconfirmed`, and the kind of key."""
    rows = {row["profile"]: row for row in list_profiles()}
    assert (rows["bitso"]["key"], rows["bitso"]["events"]) == ("provider", "unconfirmed")
    assert (rows["stripe"]["key"], rows["stripe"]["events"]) == ("merchant", "signed")
    assert rows["woovi"]["events"] == "signed"
    assert show_profile("woovi")["account"]["where"] == ("json:company.id",)


def test_events_of_an_undocumented_account_claim_nothing(tmp_path: Path) -> None:
    """They are pending, `unconfirmed`, and nobody is asked about them."""
    profile = load(tmp_path, signature=signature(key="provider"), account={"undocumented": True})
    source = Source(name="s", profile=profile, secrets=["k" * 24])
    (event,) = source.read(
        Incoming([], b'{"id": "e", "type": "paid", "order": "o"}'), digest="d" * 64
    ).events
    assert (event.claim, event.standing, source.asks) == ("pending", "unconfirmed", False)


# --- the account of an event ---------------------------------------------------------------------


def foreign(source: Source, document: Any) -> bool:
    """What the door says; the reader says the same of whatever it can read."""
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
def test_only_the_named_accounts_count(merchant: Any, is_foreign: bool, tmp_path: Path) -> None:
    """Compared as texts, exactly; none at all is another."""
    profile = load(
        tmp_path, signature=signature(key="provider"), account={"where": "json:merchant"}
    )
    source = Source(name="s", profile=profile, secrets=["k" * 24], accounts=["m1", "m2", "7"])
    event = {"id": "e", "type": "paid", "order": "o", "merchant": merchant}
    assert foreign(source, event) is is_foreign
    assert foreign(source, {**event, "id": 7}) is is_foreign, "also where it cannot be read"


def test_one_foreign_event_makes_a_whole_body_foreign(tmp_path: Path) -> None:
    """Who sent it, sent the others too; so does a list of none, and what is no JSON."""
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
    ("{values}", "the fields of {values}"),
    ("{form_joined:-signature}", "the fields of {form_joined:-signature}"),
    ("{raw:order}{compact:type}{canonical:sum}", "{raw:order} and {compact:type}"),
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
    """The loader finds it by itself, and says which it is."""
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
def test_what_can_be_kept_apart_needs_none(signed: str, tmp_path: Path) -> None:
    """Separators, digests, the address before a JSON body, and what does not count."""
    assert load(tmp_path, signature=signature(signed=signed), amounts=PRICED)


def test_digits_end_where_a_document_begins_and_nowhere_else(tmp_path: Path) -> None:
    """`{ts}{body}` of JSON is unambiguous; of a form it is not."""
    rule, time = signature(signed="{ts}{body}"), {"where": "header:x-time"}
    assert load(tmp_path, signature=rule, timestamp=time)
    form: dict[str, Any] = {
        "request": {"body": "form"},
        "event": {"id": "form:id", "kind": "form:type", "order": "form:order"},
    }
    assert "joins {ts} and {body}" in problem_of(tmp_path, signature=rule, timestamp=time, **form)


def test_the_shops_own_form_split_anew_is_no_payment_of_peach() -> None:
    """What the shop signs for a customer's browser holds the customer's own words. Cut at other
    places the same characters are a payment of another order: genuine, and it claims nothing."""
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
    (event,) = source.read(Incoming([], body), digest="d" * 64).events
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
def test_no_line_break_is_acknowledged(keys: dict[str, str], tmp_path: Path) -> None:
    """Neither in the body nor in the header of its kind."""
    assert "without CR or LF" in problem_of(tmp_path, acknowledgement=keys)


def test_no_line_break_stands_in_a_field_of_an_acknowledgement(tmp_path: Path) -> None:
    """In no name and no constant."""
    fields = '\n[acknowledgement.fields]\n"a\\nb" = 1\nc = "text:x\\r\\ny"\n'
    path = tmp_path / "mine.toml"
    path.write_text(toml(MINIMAL) + fields)
    with pytest.raises(ConfigurationError) as caught:
        load_profile(str(path))
    assert len(caught.value.problems) == 2
    assert all("without CR or LF" in each for each in caught.value.problems)


def test_an_event_that_does_not_say_its_environment_is_reported() -> None:
    """Absent or null, where the profile names the member; one that names none says nothing."""
    source = Source(name="acme", profile=CHECKOUT, secrets=[SECRET])
    for said, unstated in (("live", False), (..., True), (None, True)):
        reading = source.read(Incoming([], body_of(environment=said)), digest="d" * 64)
        assert reading.unstated is unstated
        assert reading.environment == (None if unstated else "live")
    other = Source(name="s", profile=load_profile("razorpay"), secrets=["k" * 24])
    assert not other.read(Incoming([], b'{"event": "payment.failed"}'), digest="d" * 64).unstated


def test_a_chargeback_of_mollie_counts_though_it_says_no_mode() -> None:
    """In live and in the sandbox, at the receiver and when it is read; a payment without its mode
    does not."""
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
def test_an_answer_of_the_other_environment_is_none(
    profile: str, answer: dict[str, Any], words: tuple[Any, Any]
) -> None:
    """In live one that does not say is none either: a key of the sandbox is answered about payments
    of nobody's money."""
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
    assert [claim(each, "sandbox") for each in (sandbox, live, None)] == [paid, None, paid]
    assert [claim(each, None) for each in (sandbox, live, None)] == [paid, paid, paid]


def test_orders_of_its_own_meet_no_others() -> None:
    """Their name has the source before it, which no other source's event can say."""
    own = Source(name="till", profile=CHECKOUT, secrets=[SECRET], own_orders=True)
    shared = Source(name="web", profile=CHECKOUT, secrets=[SECRET])
    (event,) = own.read(Incoming([], body_of()), digest="d" * 64).events
    assert event.order == "@till:ORD-1042"
    said = body_of(data__order__reference="@till:ORD-1042")
    with pytest.raises(Unreadable, match="orders of its own"):
        shared.read(Incoming([], said), digest="d" * 64)
    other = Source(name="other", profile=CHECKOUT, secrets=[SECRET], own_orders=True)
    (event,) = other.read(Incoming([], said), digest="d" * 64).events
    assert event.order == "@other:@till:ORD-1042"
    with pytest.raises(Unreadable, match="longer than 200"):
        own.read(Incoming([], body_of(data__order__reference="o" * 195)), digest="d" * 64)


def test_one_key_is_the_same_in_every_spelling() -> None:
    """Shared secrets by their bytes, public keys by their numbers; others are others."""
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
def test_pawapay_is_taken_in_both_writings_and_only_for_our_host(written: str) -> None:
    """r and s side by side or in DER; a signature that leaves out @authority proves nothing."""
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
        return [(name.encode(), value.encode()) for name, value in made.headers]

    whole = ("content-digest", "@method", "@authority", "@path")
    assert source.verify(Incoming(sent(whole, url), body, url=url), now=NOW) is None
    other = "https://other.example/webhooks/pawapay"
    for headers in (sent(whole, other), sent(("content-digest", "@method", "@path"), url)):
        refusal = source.verify(Incoming(headers, body, url=url), now=NOW)
        assert refusal is not None
        assert refusal.reason == "signature_mismatch"
