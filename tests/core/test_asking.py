"""Questions to a provider: limits that hold for every answer and every configuration."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import httpx2
import pytest

from app.core.errors import ConfigurationError
from app.core.http import outgoing_client
from app.providers.profile import load_profile
from app.providers.provider_client import AnsweredQuestion, ProviderClient
from app.providers.questions import Questions
from reconcile.ledger.events import Event

TOKEN = "at-0123456789abcdef"
CREDENTIALS = {"client": "id-1:secret-0123456789", "key": "k-0123456789"}

PROFILE = """
confirm = "fetch_back"
[signature]
mac = "none"
[event]
id = "json:id"
kind = "json:state"
order = "json:order"
payment = "json:payment"
[amounts]
[claims]
COMPLETE = "succeeded"
[fetch_back]
url = "https://api.provider.example/v1/orders/{order}/payments/{payment}"
sandbox_url = "https://sandbox.provider.example/v1/orders/{order}/payments/{payment}"
auth = "oauth"
credential = "client"
token_url = "https://api.provider.example/token"
kind = "json:state"
[fetch_back.headers]
"x-key" = "{credential:key}"
"""

Answering = Callable[[httpx2.Request], httpx2.Response]


def event(order: str = "ORD-1", payment: str = "pay_1") -> Event:
    """Build an unconfirmed event with these references."""
    return Event(
        source="weak",
        event_id="e1",
        digest="0" * 64,
        kind="COMPLETE",
        claim="pending",
        order=order,
        payment=payment,
        standing="unconfirmed",
    )


def questions(
    folder: Path, *, environment: str = "sandbox", text: str = PROFILE, **credentials: str
) -> Questions:
    """Build the questions of the profile above."""
    path = folder / "weak.toml"
    path.write_text(text)
    rule = load_profile(str(path)).fetch_back
    assert rule is not None
    given = {**CREDENTIALS, **credentials}
    return Questions("weak", rule, environment=environment, credentials=given)


async def asked(
    folder: Path, answering: Answering, *events: Event
) -> list[AnsweredQuestion | None]:
    """Ask about these events one after another."""
    transport = httpx2.MockTransport(answering)
    async with outgoing_client(timeout_s=1, transport=transport) as client:
        asker = ProviderClient(questions(folder), client)
        return [await asker.ask(each) for each in events]


def answer(status: int, document: object) -> httpx2.Response:
    """Build an answer whose body comes as from the network."""
    return httpx2.Response(status, stream=httpx2.ByteStream(json.dumps(document).encode()))


def provider(token_status: int, token: object, status: int = 200) -> Answering:
    """Build a provider with this answer for a token, and a final word for a question."""

    def answering(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/token":
            return answer(token_status, token)
        if request.headers["authorization"] != f"Bearer {TOKEN}":
            return answer(401, {})
        return answer(status, {"state": "COMPLETE"})

    return answering


@pytest.mark.parametrize("status", [200, 201, 202])
async def test_a_token_may_be_created(tmp_path: Path, status: int) -> None:
    (found,) = await asked(tmp_path, provider(status, {"access_token": TOKEN}), event())
    assert found is not None
    assert found.answer.status == 200
    assert TOKEN.encode() not in found.answer.body


@pytest.mark.parametrize("status", [201, 204, 302, 400, 401, 404, 410, 500])
async def test_an_answer_about_a_token_is_none_about_the_event(tmp_path: Path, status: int) -> None:
    """Without a token nothing was asked, so nothing may be taken for the provider's answer."""
    (found,) = await asked(tmp_path, provider(status, {"secret": TOKEN}), event())
    assert found is not None
    assert found.answer.status is None
    assert found.answer.problem
    assert found.answer.body == b""


@pytest.mark.parametrize("life", [60, "3599", "²", "٣", "9" * 500, -1, None, 1.5, [], "", True])
async def test_a_token_of_any_life_is_used(tmp_path: Path, life: object) -> None:
    given = {"access_token": TOKEN, "expires_in": life}
    found = await asked(tmp_path, provider(200, given), event(), event())
    assert [each is not None and each.answer.status for each in found] == [200, 200]


def test_a_credential_in_a_form_is_told_from_what_stands_around_it(tmp_path: Path) -> None:
    body = 'token_body = "grant_type=client_credentials&client_secret={credential:key}"\n'
    text = PROFILE.replace("token_url", f"{body}token_url")
    made = questions(tmp_path, text=text, client="me:s", key='a&b=c+d%2F"e').token()
    assert made.headers["content-type"] == "application/x-www-form-urlencoded"
    assert dict(parse_qsl((made.body or b"").decode(), strict_parsing=True)) == {
        "grant_type": "client_credentials", "client_secret": 'a&b=c+d%2F"e',
    }  # fmt: skip


async def test_a_token_taken_back_is_asked_for_again(tmp_path: Path) -> None:
    tokens = ["old", TOKEN]

    def answering(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/token":
            return answer(200, {"access_token": tokens.pop(0)})
        held = request.headers["authorization"] == f"Bearer {TOKEN}"
        return answer(200 if held else 401, {})

    found = await asked(tmp_path, answering, event(), event(), event())
    assert [each is not None and each.answer.status for each in found] == [401, 200, 200]


@pytest.mark.parametrize(("order", "payment"), [("..", "p"), ("o", ".."), (".", "p"), ("o", ".")])
def test_a_reference_never_leads_to_another_address(
    tmp_path: Path, order: str, payment: str
) -> None:
    """Dots alone would remove the name before them from the path."""
    assert questions(tmp_path).about(event(order, payment), access_token="t") is None


def test_any_other_reference_stays_within_its_place(tmp_path: Path) -> None:
    made = questions(tmp_path).about(event("../x?a=b#c", "//evil.example/..%2f"), access_token="t")
    assert made is not None
    sent = httpx2.Request("GET", made.url).url
    assert sent.host == "sandbox.provider.example"
    assert sent.raw_path == (b"/v1/orders/..%2Fx%3Fa%3Db%23c/payments/%2F%2Fevil.example%2F..%252f")
    assert TOKEN not in made.shown


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("orders/{order}/", "", "fetch_back.order"),
        (
            'payment = "json:payment"',
            'payment = "json:payment"\nsession = "json:session"',
            "fetch_back.session",
        ),
        ('id = "json:id"', 'items = "all[*]"\nid = "json:id"', "event.items"),
    ],
)
def test_a_profile_that_anyone_could_misuse_is_refused(
    tmp_path: Path, old: str, new: str, key: str
) -> None:
    """No other order or session beside a true payment, nor many questions for one request."""
    path = tmp_path / "weak.toml"
    path.write_text(PROFILE.replace(old, new))
    with pytest.raises(ConfigurationError) as raised:
        load_profile(str(path))
    assert [problem for problem in raised.value.problems if key in problem]
    assert len(raised.value.problems) == 1


@pytest.mark.parametrize(
    ("key", "signed", "problems"),
    [
        ("merchant", "{body}", 0),
        ("merchant", "{json:order}.{json:payment}", 0),
        ("provider", "{body}", 1),
        ("merchant", "{json:payment}", 1),
        ("merchant", "{json:payment}{json:order}", 1),
    ],
)
def test_an_order_that_is_signed_for_us_need_not_be_asked(
    tmp_path: Path, key: str, signed: str, problems: int
) -> None:
    """But under a key that others share, or where it can be left out or cut off, it must be."""
    rows = {"mac": "hmac-sha256", "key": key, "where": "header:x-signature", "signed": signed}
    signature = "\n".join(f'{name} = "{value}"' for name, value in rows.items())
    text = PROFILE.replace('mac = "none"', signature).replace("orders/{order}/", "")
    path = tmp_path / "signed.toml"
    path.write_text(text)
    found: tuple[str, ...] = ()
    try:
        load_profile(str(path))
    except ConfigurationError as error:
        found = tuple(error.problems)
    assert len([problem for problem in found if "fetch_back.order" in problem]) == problems, found
    assert len(found) == problems


def test_of_several_addresses_the_first_that_can_be_filled_is_asked(tmp_path: Path) -> None:
    several = PROFILE.replace("COMPLETE =", 'BACK = "refunded"\nCOMPLETE =')
    for host in ("api", "sandbox"):
        at = f"https://{host}.provider.example/v1"
        several = several.replace(
            f'"{at}/orders/{{order}}/payments/{{payment}}"',
            f'["{at}/refunds/{{movement}}", "{at}/captures/{{capture}}", "{at}/{{payment}}"]',
        )
    several = several.replace(
        'kind = "json:state"\n[fetch', 'kind = "json:state"\norder = "json:o"\n[fetch'
    )
    made = questions(tmp_path, text=several)
    named: dict[str, dict[str, Any]] = {
        "refunds/re_1": {"movement": "re_1", "capture": "ca_1"},
        "captures/ca_1": {"capture": "ca_1"},
        "pay_1": {},
    }
    for path, references in named.items():
        question = made.about(replace(event(), **references), access_token="t")
        assert question is not None
        assert question.url == f"https://sandbox.provider.example/v1/{path}"
    assert made.about(replace(event(), payment=None), access_token="t") is None


def test_the_environment_chooses_the_host(tmp_path: Path) -> None:
    for environment, host in (("sandbox", "sandbox."), ("live", "api.")):
        made = questions(tmp_path, environment=environment).about(event(), access_token="t")
        assert made is not None
        assert made.url.startswith(f"https://{host}provider.example/")


@pytest.mark.parametrize("value", ["", " ", "ключ", "a\r\nb: c", "a\x7f"])
def test_a_credential_that_no_header_can_hold_does_not_start(tmp_path: Path, value: str) -> None:
    """Its name is reported, not its value."""
    with pytest.raises(ConfigurationError) as raised:
        questions(tmp_path, key=value)
    assert "'key'" in str(raised.value)
    assert value not in ("", " ") or len(raised.value.problems) == 1
    assert not value.strip() or value not in str(raised.value)
