"""Weak schemes: a part that the signature does not cover must be fetched back, or the profile is
refused."""

from pathlib import Path
from typing import Any

import pytest

from app.core.errors import ConfigurationError
from app.providers.profile import load_profile
from app.providers.request import Incoming
from app.providers.source import Source
from tests.providers.builders import MINIMAL, NOW, load, made, only, problem_of, raw

TOP = 'confirm = "fetch_back"\n'
FETCH: dict[str, Any] = {
    "fetch_back": {"url": "https://api.example/v1/{order}", "kind": "json:status"}
}
PRICED = {"unit": "major", "payment": "json:sum", "payment_currency": "text:KES"}


def signature(signed: str | None, mac: str = "hmac-sha256") -> dict[str, Any]:
    made = {"mac": mac, "where": "header:x-signature", "signed": signed}
    return {key: value for key, value in made.items() if value is not None}


WEAK = [
    (signature("{json:order}{json:type}"), "amounts.payment"),
    (signature("{json:order}{json:sum}"), "event.kind"),
    (signature("{json:type}{json:sum}"), "event.order"),
    (signature("{header:x-id}{query:id}"), "event.kind, event.order, amounts.payment"),
    (signature("{compact:order}{compact:type.name}{json:sum}"), "event.kind"),
    (signature(None, "token"), "event.kind, event.order, amounts.payment"),
    ({"mac": "basic"}, "event.kind, event.order, amounts.payment"),
    ({"mac": "none"}, "event.kind, event.order, amounts.payment"),
]


@pytest.mark.parametrize(("rule", "unsigned"), WEAK)
def test_a_profile_that_leaves_out_a_counting_field_must_fetch_back(
    rule: dict[str, Any], unsigned: str, tmp_path: Path
) -> None:
    problem = problem_of(tmp_path, signature=rule, amounts=PRICED)
    assert f"does not cover {unsigned}" in problem
    assert 'confirm = "fetch_back"' in problem
    assert load(tmp_path, TOP, signature=rule, amounts=PRICED, **FETCH).confirm == "fetch_back"


@pytest.mark.parametrize(
    ("sections", "unsigned"),
    [
        ({"event": MINIMAL["event"] | {"capture": "json:part"}}, "event.capture"),
        ({"amounts": PRICED | {"refunded_total": "json:so_far"}}, "amounts.refunded_total"),
        ({"event": MINIMAL["event"] | {"payment": "json:x[kind=sale].id"}}, "event.payment"),
    ],
)
def test_captures_sums_and_conditions_must_be_signed(
    sections: dict[str, Any], unsigned: str, tmp_path: Path
) -> None:
    """Who could write a capture reference could make one capture two."""
    some = "{json:order}|{json:type}|{json:sum}|{json:x.id}"
    sections = {"amounts": PRICED, **sections}
    assert f"does not cover {unsigned}," in problem_of(
        tmp_path, signature=signature(some), **sections
    )
    whole = some + "|{json:x.kind}|{json:part}|{json:so_far}"
    assert load(tmp_path, signature=signature(whole), **sections).confirm is None


@pytest.mark.parametrize(
    "signed",
    ["{body}", "{body|sha256_hex}", "{canonical}", "{json:order}:{json:type}:{json:sum}",
     "{compact:order}|{compact:type}|{canonical:sum}", "{method}{body_or_query}"],
)  # fmt: skip
def test_a_profile_that_covers_every_counting_field_needs_no_fetch_back(
    signed: str, tmp_path: Path
) -> None:
    assert load(tmp_path, signature=signature(signed), amounts=PRICED).confirm is None


def test_a_get_with_a_body_is_refused_where_only_its_query_is_signed(tmp_path: Path) -> None:
    """MoonPay signs the query of a GET; a body behind a captured query would be unsigned."""
    source = Source(name="acme", profile=load_profile("moonpay"), secrets=["k" * 32])
    sent = source.signed(b"", event_id="e1", now=NOW, method="GET", url="https://shop.example/?a=1")
    genuine = Incoming(raw(sent.headers), b"", "GET", sent.url or "/?a=1")
    assert source.verify(genuine, now=NOW) is None
    forged = b'{"type": "transaction_updated", "data": {"id": "t", "status": "completed"}}'
    assert source.verify(genuine._replace(body=forged), now=NOW) is not None


def test_a_query_beside_a_signed_body_is_not_covered(tmp_path: Path) -> None:
    amounts = PRICED | {"payment": "query:sum"}
    both: dict[str, Any] = {
        "signature": signature("{body_or_query}"),
        "request": {"methods": ["POST", "GET"]},
    }
    assert "does not cover amounts.payment" in problem_of(tmp_path, amounts=amounts, **both)


NAMED = """
[signature]
mac = "named:{0}"
key = "merchant"
[signature.options]
{1}
[event]
id = "json:id"
kind = "{2}"
order = "json:order"
[claims]
paid = "succeeded"
"""


@pytest.mark.parametrize(
    ("name", "required", "kind", "covered"),
    [
        ("rfc9421", 'required = ["content-digest"]', "json:type", True),
        ("rfc9421", 'required = ["content-digest"]', "header:x-type", False),
        ("rfc9421", 'required = ["content-digest", "x-type"]', "header:x-type", True),
        ("rfc9421", 'required = ["content-digest", "@path"]', "query:type", False),
        ("rfc9421", 'required = ["content-digest", "@query"]', "query:type", True),
        ("covered_headers", 'required = ["content-type"]', "header:x-type", False),
        ("covered_headers", 'required = ["x-type"]', "{header:x-type}:{json:type}", True),
        ("twilio", "", "query:type", True),
        ("twilio", "", "header:x-type", False),
        ("braintree", "", "query:type", False),
    ],
)
def test_a_named_scheme_covers_only_what_it_requires(
    name: str, required: str, kind: str, covered: bool, tmp_path: Path
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(NAMED.replace("{0}", name).replace("{1}", required).replace("{2}", kind))
    if covered:
        assert load_profile(str(path)).name
    else:
        with pytest.raises(ConfigurationError, match=r"signature.mac: does not cover event.kind"):
            load_profile(str(path))


@pytest.mark.parametrize("signed", ["{body}", "{json:order}|{json:type}"])
@pytest.mark.parametrize("order", ["json:order", "root:order"])
def test_what_stands_around_a_signed_item_is_not_signed(
    signed: str, order: str, tmp_path: Path
) -> None:
    sections: dict[str, Any] = {
        "signature": signature(signed) | {"where": "json:sign", "per_item": True},
        "event": {"id": "json:id", "kind": "json:type", "order": order, "items": "events[*]"},
    }
    if order == "json:order":
        assert load(tmp_path, **sections).confirm is None
    else:
        assert "does not cover event.order" in problem_of(tmp_path, **sections)


def test_a_profile_that_only_verifies_needs_no_coverage(tmp_path: Path) -> None:
    source = made(
        tmp_path,
        base={"signature": {"mac": "token", "where": "header:x-token"}},
        top="verifies_only = true\n",
    )
    event = only(source, {})
    assert (event.event_id, event.kind, event.claim) == ("d" * 64, "delivery", "ignored")


def test_an_event_is_pending_and_unconfirmed_until_it_was_fetched_back(tmp_path: Path) -> None:
    profile = load(tmp_path, TOP, signature={"mac": "none"}, amounts=PRICED, **FETCH)
    source = Source(name="acme", profile=profile, secrets=[])
    body = b'{"id": "e1", "type": "paid", "order": "o1", "sum": 5}'
    assert source.verify(Incoming([], body), now=NOW) is None
    event = only(source, body)
    assert (event.claim, event.standing, event.kind) == ("pending", "unconfirmed", "paid")


@pytest.mark.parametrize("mac", ["token", "basic"])
@pytest.mark.parametrize("secret", ["", " ", "\t"])
def test_a_blank_token_starts_no_source_and_matches_no_header(
    mac: str, secret: str, tmp_path: Path
) -> None:
    rule = {"mac": mac} | ({"where": "header:x-token"} if mac == "token" else {})
    profile = load(tmp_path, TOP, signature=rule, **FETCH)
    for strict in (True, False):
        with pytest.raises(ConfigurationError, match="empty or blank"):
            Source(name="acme", profile=profile, secrets=[secret], strict=strict)


def test_basic_authentication_compares_user_and_password(tmp_path: Path) -> None:
    profile = load(tmp_path, TOP, signature={"mac": "basic"}, secret={"least_bytes": 8}, **FETCH)
    source = Source(name="acme", profile=profile, secrets=["user:passw\u00f6rd"])
    good, bad = b"basic dXNlcjpwYXNzd8O2cmQ=", b"Basic dXNlcjpwYXNzd29yZA=="
    assert source.verify(Incoming([(b"authorization", good)], b""), now=NOW) is None
    for value in (bad, b"Basic", b"Basic \xff", b"", good[6:], b"Bearer " + good[6:]):
        assert source.verify(Incoming([(b"authorization", value)], b""), now=NOW) is not None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"url": "http://api.example/{order}"}, "fetch_back.url: must begin with https://"),
        ({"url": "https://{order}.example/"}, "fetch_back.url: must begin with https://"),
        ({"url": "https://a@b.example/"}, "fetch_back.url: must begin with https://"),
        ({"url": "https:///x"}, "fetch_back.url: must begin with https://"),
        (
            {"url": ["https://api.example/{order}", "http://api.example/{order}"]},
            "fetch_back.url: must begin with https://",
        ),
        ({"url": "https://api.example/{secret}"}, "fetch_back.url: has an unknown reference"),
        ({"auth": "magic"}, "fetch_back.auth: must be none, bearer"),
        ({"auth": "bearer"}, "fetch_back.credential: must be given with every auth except none"),
        ({"auth": "oauth", "credential": "c"}, "fetch_back.token_url: must be given if auth"),
        (
            {"auth": "oauth", "token_url": "https://api.example/token"},
            "fetch_back.credential: must be given with every auth except none",
        ),
        ({"amount": "json:a"}, "fetch_back.currency: is missing"),
        ({"body": "{}"}, "fetch_back.body: has no effect with method GET"),
    ],
)
def test_a_fetch_back_asks_a_fixed_host_only(
    change: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    fetch = {"fetch_back": {**FETCH["fetch_back"], **change}}
    assert sentence in problem_of(tmp_path, TOP, signature={"mac": "none"}, **fetch)


def test_confirm_and_its_section_belong_together(tmp_path: Path) -> None:
    assert "fetch_back: must be given if confirm" in problem_of(tmp_path, **FETCH)
    assert "fetch_back: must be given if confirm" in problem_of(tmp_path, TOP)
