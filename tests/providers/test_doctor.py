"""The signature doctor names the mistake. Reverification accepts what a correction now proves."""

import asyncio
import base64
import hashlib
import hmac
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from app.config.load import load_settings
from app.context.configured import compile_sources
from app.orders.refold import refold_until_quiet
from app.providers.doctor import Account, diagnose
from app.providers.profile import load_profile
from app.providers.request import Incoming
from app.providers.source import Source
from app.receiving.framing import Received
from app.receiving.reverify import reverify
from app.receiving.verify import (
    kept_head,
    read_delivery,
    readable_url,
    refusal_of,
)
from reconcile.instants import SECOND
from tests.api.driving import KEY, SECRET, driving, environ, event, signed
from tests.cli.test_commands import Run, run
from tests.contexts import with_sources
from tests.reconcile.build import T

__all__ = ["run"]

OTHER_KEY = b"a key of another endpoint, quite another"
OTHER = "whsec_" + base64.b64encode(OTHER_KEY).decode()
BODY = b'{"id": "evt_1", "amount": 2.00, "data": {"a": "x/y"}, "type": "payment.succeeded"}'

SHOP = Account(name="shop", profile=load_profile("checkout"), secrets=[SECRET])
TILL = Account(name="till", profile=load_profile("checkout"), secrets=[OTHER])


def request(body: bytes, sent: bytes | None = None, **words: Any) -> Incoming:
    """Sign a request over `body` that arrives with `sent` as its body."""
    return Incoming(signed(body, **words), sent or body, url="/webhooks/shop")


def hmac_profile(folder: Path, signed_content: str = "{ts}.{body}") -> Account:
    """Write a plain profile: hex HMAC under a text secret, with its own timestamp header."""
    text = f"""
verifies_only = true
[signature]
mac = "hmac-sha256"
where = "header:x-signature"
signed = "{signed_content}"
[timestamp]
where = "header:x-time"
"""
    path = folder / "own.toml"
    path.write_text(text)
    return Account(
        name="own",
        profile=load_profile(str(path)),
        secrets=[base64.b64encode(KEY).decode()],
        address="https://hooks.shop.example",
    )


Made = tuple[Account, list[Account], Incoming]


def own_case(
    *,
    key: bytes = base64.b64encode(KEY),
    address: str = "",
    stamp: bytes = str(T // SECOND).encode(),
    **words: str,
) -> Callable[[Path], Made]:
    """Return a function that signs a request for `hmac_profile` with these bytes as the key.

    The signature covers an address too, where one is given.
    """

    def made(folder: Path) -> Made:
        content = stamp + b"." + BODY
        if address:
            content = b".".join((stamp, address.encode(), BODY))
        mac = hmac.new(key, content, hashlib.sha256).hexdigest().encode()
        headers = [(b"host", b"inner:8080"), (b"x-signature", mac), (b"x-time", stamp)]
        account = hmac_profile(folder, "{ts}.{url}.{body}" if address else "{ts}.{body}")
        account = replace(account, address=words.get("known", account.address))
        return account, [], Incoming(headers, BODY, url="/webhooks/own")

    return made


def registered_with(address: str) -> Callable[[Path], Made]:
    """Return a function that signs over an address registered at the provider.

    The configured address is https://shop.example.
    """
    return own_case(address=address, known="https://shop.example")


@dataclass
class Case:
    """A request, and the one mistake to be found."""

    name: str
    make: Callable[[Path], Made]
    mistake: str
    words: str


def plain(changed: Incoming) -> Callable[[Path], Made]:
    return lambda folder: (SHOP, [TILL], changed)


def of_other() -> Incoming:
    stamp = str(T // SECOND).encode()
    mac = hmac.new(OTHER_KEY, b"msg_1." + stamp + b"." + BODY, hashlib.sha256).digest()
    headers = [*signed(BODY)[:-1], (b"webhook-signature", b"v1," + base64.b64encode(mac))]
    return request(BODY)._replace(headers=headers)


RESPELLED = json.dumps(json.loads(BODY)).encode()
CASES = [
    Case("other secret", plain(of_other()), "other_secret", "a secret of till"),
    Case("clock", plain(request(BODY, at=T - 900 * SECOND)), "clock_skew", "15 min old"),
    Case(
        "line feed", plain(request(BODY + b"\n", BODY)), "body_ends_differently", "with a line feed"
    ),
    Case(
        "line feed added", plain(request(BODY, BODY + b"\r\n")), "body_ends_differently", "without"
    ),
    Case(
        "respelled",
        plain(request(b'{"a":1,"b":"x"}', b'{"a": 1, "b": "x"}')),
        "body_respelled",
        "without blanks",
    ),
    Case("numbers", plain(request(RESPELLED, BODY)), "body_respelled", "2.00 written as 2.0"),
    Case("milliseconds", own_case(stamp=str(T // 1000).encode()), "timestamp_unit", "counts ms"),
    Case("secret encoding", own_case(key=KEY), "secret_encoding", "read as base64"),
    Case(
        "secret's beginning",
        own_case(key=b"whsec_" + base64.b64encode(KEY)),
        "secret_beginning",
        "begins with whsec_",
    ),
    Case(
        "proxy",
        own_case(address="http://inner:8080/webhooks/own"),
        "other_address",
        "http, host inner:8080",
    ),
    Case(
        "slash",
        registered_with("https://shop.example/webhooks/own/"),
        "other_address",
        "https, host shop.example, with a slash at the path's end",
    ),
    Case(
        "port",
        registered_with("https://shop.example:8443/webhooks/own"),
        "other_address",
        "https, host shop.example:8443:",
    ),
    Case(
        "profile",
        lambda folder: (replace(hmac_profile(folder), secrets=[SECRET]), [], request(BODY)),
        "other_profile",
        "profile checkout",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_known_mistake_is_named_first_and_no_secret_is_shown(
    case: Case, tmp_path: Path
) -> None:
    account, others, refused = case.make(tmp_path)
    found = diagnose(account, others, refused, now=T)
    assert [each.mistake for each in found][:1] == [case.mistake], found
    assert case.words in found[0].sentence
    assert not any(SECRET in each.sentence or OTHER in each.sentence for each in found)


def test_a_secret_that_had_ended_is_diagnosed_as_ended() -> None:
    ended = replace(SHOP, secrets=[OTHER, SECRET], ends={SECRET: T})
    assert [each.mistake for each in diagnose(ended, [], request(BODY), now=T)] == ["secret_ended"]
    earlier = diagnose(ended, [], request(BODY), now=T - SECOND)
    assert [each.mistake for each in earlier] == ["none"]


def test_two_mistakes_at_once_are_both_reported() -> None:
    (found,) = diagnose(SHOP, [TILL], of_other(), now=T + 900 * SECOND)
    assert found.mistake == "other_secret"
    assert "15 min old" in found.sentence


def test_a_forged_or_unsigned_request_has_no_diagnosis() -> None:
    forged = request(BODY)._replace(body=b'{"id": "evt_2"}')
    for each in (forged, forged._replace(headers=[]), forged._replace(body=b"\xff\x00[" * 50)):
        assert diagnose(SHOP, [TILL], each, now=T) == []


def test_an_unsigned_profile_is_not_tried_on_a_forged_request() -> None:
    forged = request(BODY)._replace(headers=[(b"content-type", b"application/json")])
    unsigned = Account(name="shop", profile=load_profile("mpesa_stk"), secrets=[])
    assert [each.mistake for each in diagnose(unsigned, [], forged, now=T)] == ["none"]
    assert diagnose(SHOP, [TILL], forged, now=T) == []


def test_an_event_of_the_other_environment_is_diagnosed_as_such(tmp_path: Path, run: Run) -> None:
    async def refuse() -> None:
        async with driving(tmp_path) as driver:
            body = json.dumps(event("e1", environment="live")).encode()
            assert (await driver.send(body, signed(body))).status_code == 403

    asyncio.run(refuse())
    listed = run("deliveries", "list", "--verdict", "wrong_environment", "--format", "json")
    ((delivery, problem),) = [(row["delivery"], row["problem"]) for row in listed.document]
    assert problem == "the event is for live, but this instance serves sandbox"
    diagnosed = run("deliveries", "diagnose", delivery, "--format", "json").document
    assert [each["mistake"] for each in diagnosed["diagnoses"]] == ["other_environment"]


def test_a_request_without_a_signature_is_not_blamed_on_the_secret(
    tmp_path: Path, run: Run
) -> None:
    async def refuse() -> None:
        async with driving(tmp_path) as driver:
            assert (await driver.send(b"{}", [])).status_code == 401

    asyncio.run(refuse())
    listed = run("deliveries", "list", "--verdict", "signature_missing", "--format", "json")
    diagnosed = run("deliveries", "diagnose", listed.document[0]["delivery"])
    assert diagnosed.code == 1
    assert "drops the signature" in diagnosed.err
    assert "not configured here" not in diagnosed.err


async def _refuse(folder: Path, *, secret: str) -> None:
    """Send three events signed with KEY, one of them old, to a service with this secret."""
    async with driving(folder, SOURCES__SHOP__SECRETS=secret) as driver:
        for number, at in enumerate((T, T, T - 3_600 * SECOND)):
            content = json.dumps(event(f"e{number}")).encode()
            answer = await driver.send(content, signed(content, at=at))
            assert answer.status_code == 401


def _ids(run: Run) -> list[str]:
    listed = run("deliveries", "list", "--verdict", "signature_mismatch", "--format", "json")
    return [row["delivery"] for row in listed.document]


@pytest.mark.slow
def test_reverify_accepts_after_the_secret_is_corrected_as_of_arrival_and_once(
    tmp_path: Path, run: Run
) -> None:
    asyncio.run(_refuse(tmp_path, secret=OTHER))
    ids = _ids(run)
    assert len(ids) == 3
    diagnosed = [run("deliveries", "diagnose", name, "--format", "json").document for name in ids]
    mistakes = sorted(each["diagnoses"][0]["mistake"] for each in diagnosed)
    assert mistakes == ["clock_skew", "none", "none"]
    done = run("deliveries", "reverify", "--format", "json")
    assert done.code == 0
    assert done.document["refused"] == {"timestamp_too_old": 1}
    assert {row["verdict"] for row in done.document["accepted"]} == {"stored"}
    assert {row["delivery"] for row in done.document["accepted"]} < set(ids)
    assert (
        "`serve` will compute their orders again. To do so now, run `tallyhook refold`." in done.err
    )
    assert run("orders", "list", "--format", "json").document == []
    again = run("deliveries", "reverify", "--source", "shop", "--format", "json")
    assert again.document["accepted"] == []
    assert "refold" not in again.err
    assert run("refold").err == "Folded 1 order.\n"
    assert [o["order"] for o in run("orders", "list", "--format", "json").document] == ["ORD-1"]
    assert asyncio.run(_outcome(tmp_path)) == ("succeeded", T)
    assert run("db", "check").code == 0


async def _outcome(folder: Path) -> tuple[str, int]:
    async with driving(folder) as driver:
        await refold_until_quiet(driver.context, limit=100, progress=lambda count: None)
        ledger = (await driver.api("GET", "/orders/ORD-1")).json()
        ((received,),) = driver.rows("SELECT DISTINCT received_at FROM deliveries")
        return ledger["outcome"], received


async def test_two_concurrent_passes_accept_each_delivery_once(tmp_path: Path) -> None:
    await _refuse(tmp_path, secret=OTHER)
    async with driving(tmp_path) as driver:
        sources = compile_sources(load_settings(environ(tmp_path)))
        passes = [
            reverify(with_sources(driver.context, sources), only=None, progress=lambda count: None)
            for _ in range(2)
        ]
        done = await asyncio.gather(*passes)
        assert sorted(len(each.accepted) for each in done) == [0, 2]
        assert driver.rows("SELECT count(*) FROM deliveries") == [(2,)]


def test_a_truncated_body_is_neither_diagnosed_nor_reverified(tmp_path: Path, run: Run) -> None:
    async def refuse() -> None:
        async with driving(tmp_path, SOURCES__SHOP__SECRETS=OTHER, REJECTED_BODY_BYTES="20") as d:
            assert (await d.send(event("e1"))).status_code == 401

    asyncio.run(refuse())
    (name,) = _ids(run)
    diagnosed = run("deliveries", "diagnose", name)
    assert diagnosed.code == 2
    assert "TALLYHOOK_REJECTED_BODY_BYTES" in diagnosed.err
    done = run("deliveries", "reverify", "--format", "json").document
    assert (done["cut"], done["accepted"], done["refused"]) == (1, [], {})


def test_the_digest_of_a_request_without_a_body_is_its_querys() -> None:
    source = Source(name="weak", profile=load_profile("pesapal"), secrets=[])
    query = "OrderNotificationType=IPNCHANGE&OrderTrackingId=t&OrderMerchantReference="
    digests = []
    for order in ("A", "B", "A"):
        incoming = Incoming([], b"", "GET", f"/webhooks/weak?{query}{order}", "weak")
        assert refusal_of(source, incoming, now=T, environment="sandbox") is None
        kept = Received(
            delivery_id="d",
            received_at=T,
            source="weak",
            headers=kept_head(incoming, source),
            body=b"",
            url=readable_url(source, incoming.url),
        )
        (read,) = read_delivery(source, kept, environment="sandbox")
        digests.append(read.digest)
    assert digests[0] == digests[2] == hashlib.sha256(f"{query}A".encode()).hexdigest()
    assert digests[0] != digests[1]


def test_a_diagnosis_changes_nothing(tmp_path: Path, run: Run) -> None:
    asyncio.run(_refuse(tmp_path, secret=OTHER))
    before = _ids(run)
    diagnosed = run("deliveries", "diagnose", before[0])
    assert "deliveries reverify" in diagnosed.out or "clock" in diagnosed.out
    assert SECRET not in diagnosed.out + diagnosed.err
    assert _ids(run) == before
    assert run("deliveries", "diagnose", "dlv_none").code == 5


async def test_a_token_sent_to_an_unknown_source_is_kept_as_a_digest(tmp_path: Path) -> None:
    """The digest lets it be judged again once the name is right."""
    profile = tmp_path / "token.toml"
    profile.write_text(
        'verifies_only = true\n[signature]\nmac = "token"\nwhere = "header:verif-hash"\n'
    )
    token = "t-9vX3qLm2TzRw8YsBn5Jd7Hf4Gc6Ea1kP"
    more: dict[str, Any] = {"SOURCES__TILL__PROFILE": str(profile), "SOURCES__TILL__SECRETS": token}
    async with driving(tmp_path, with_worker=False, **more) as driver:
        headers = [(b"verif-hash", token.encode())]
        assert (await driver.send(b"{}", headers, source="tilll")).status_code == 404
        ((kept,),) = driver.rows("SELECT headers FROM rejections")
        assert token not in kept
        assert hashlib.sha256(token.encode()).hexdigest() in kept
        with closing(sqlite3.connect(driver.path)) as database, database:
            database.execute("UPDATE rejections SET source='till'")
        sources = compile_sources(load_settings(environ(tmp_path, **more)))
        done = await reverify(
            with_sources(driver.context, sources), only=None, progress=lambda count: None
        )
        assert [verdict for _, verdict in done.accepted] == ["stored"]


def test_reverifying_a_source_that_is_not_configured_is_refused(run: Run, tmp_path: Path) -> None:
    asyncio.run(_refuse(tmp_path, secret=OTHER))
    ended = run("deliveries", "reverify", "--source", "till")
    assert ended.code == 3
    assert "TALLYHOOK_SOURCES__TILL__PROFILE" in ended.err
    assert environ(tmp_path)


def test_a_form_where_json_is_read_is_named_as_that() -> None:
    """As Adyen sends where the webhook's method is HTTP POST."""
    adyen = Account(name="adyen", profile=load_profile("adyen"), secrets=["44" * 32])
    body = b"eventCode=AUTHORISATION&success=true&hmacSignature=q2FzZQ%3D%3D"
    form = Incoming([(b"content-type", b"application/x-www-form-urlencoded; charset=utf-8")], body)
    (found,) = diagnose(adyen, [], form, now=T)
    assert found.mistake == "form_encoded"
    assert "profile adyen reads JSON" in found.sentence
    assert diagnose(adyen, [], form._replace(headers=[]), now=T) == []
