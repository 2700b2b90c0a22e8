"""One key, one source: whatever kind of key, and however it is written; and whose account it is."""

import base64
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from app.cli.main import run
from app.config.load import load_settings
from app.config.settings import SourceSettings
from app.context.configured import compile_sources
from app.core.errors import ConfigurationError
from app.golive.examine import problems_of_sources
from tests.providers.named.builders import ec_key, rsa_key

RAW = bytes(range(7, 39))
TEXT = "sk_Zr5kWn2Lx7Tj4Vb9Hd3Fg6Ms1PqX5t"
RSA, EC = rsa_key().public_key(), ec_key().public_key()


def pem(key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey) -> str:
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def der(key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey) -> str:
    return base64.b64encode(
        key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    ).decode()


def jwk(key: ec.EllipticCurvePublicKey) -> str:
    numbers = key.public_numbers()
    parts = {name: getattr(numbers, name).to_bytes(32) for name in ("x", "y")}
    texts = {n: base64.urlsafe_b64encode(v).rstrip(b"=").decode() for n, v in parts.items()}
    return json.dumps({"kty": "EC", "crv": "P-256", **texts})


def problems(**given: str) -> list[str]:
    """Return what is reported of these variables of sources."""
    variables = {f"TALLYHOOK_SOURCES__{name}": value for name, value in given.items()}
    base = {"TALLYHOOK_ENVIRONMENT": "sandbox", "TALLYHOOK_PUBLIC_URL": "https://hooks.example"}
    try:
        load_settings({**base, **variables}, serving=True, also=problems_of_sources)
    except ConfigurationError as error:
        return list(error.problems)
    return []


ONE_KEY = {
    "text, listed and by name": (
        {"PROFILE": "stripe", "SECRETS": TEXT},
        {"PROFILE": "braintree", "KEYS": json.dumps({"public": TEXT})},
    ),
    "hex and whsec": (
        {"PROFILE": "adyen", "SECRETS": RAW.hex()},
        {"PROFILE": "checkout", "SECRETS": "whsec_" + base64.b64encode(RAW).decode()},
    ),
    "hex in both cases": (
        {"PROFILE": "adyen", "SECRETS": RAW.hex()},
        {"PROFILE": "adyen_platform", "SECRETS": RAW.hex().upper()},
    ),
    "hex, and encrypted": (
        {"PROFILE": "adyen", "SECRETS": RAW.hex()},
        {"PROFILE": "peach_oppwa", "SECRETS": RAW.hex().upper()},
    ),
    "base64 with and without its end": (
        {"PROFILE": "finch", "SECRETS": base64.b64encode(RAW).decode()},
        {"PROFILE": "checkout", "SECRETS": base64.b64encode(RAW).decode().rstrip("=")},
    ),
    "the same text, read in two ways": (
        {"PROFILE": "stripe", "SECRETS": "whsec_" + base64.b64encode(RAW).decode()},
        {"PROFILE": "checkout", "SECRETS": base64.b64encode(RAW).decode()},
    ),
    "PEM twice": (
        {"PROFILE": "snap_winpay", "SECRETS": json.dumps([pem(RSA)])},
        {"PROFILE": "wise", "SECRETS": json.dumps([pem(RSA)])},
    ),
    "PEM, and DER by its id": (
        {"PROFILE": "snap_winpay", "SECRETS": json.dumps([pem(RSA)])},
        {"PROFILE": "bitso", "KEYS": json.dumps({"key-1": der(RSA)})},
    ),
    "two ids": (
        {"PROFILE": "bitso", "KEYS": json.dumps({"key-1": pem(RSA)})},
        {"PROFILE": "bitso", "KEYS": json.dumps({"key-2": der(RSA), "key-3": pem(RSA)})},
    ),
    "PEM and JWK": (
        {"PROFILE": "rfc9421", "KEYS": json.dumps({"a": pem(EC)})},
        {"PROFILE": "plaid", "KEYS": json.dumps({"b": jwk(EC)})},
    ),
    "a shared one of RFC 9421": (
        {"PROFILE": "rfc9421", "KEYS": json.dumps({"a": f"hmac:{base64.b64encode(RAW).decode()}"})},
        {"PROFILE": "adyen", "SECRETS": RAW.hex()},
    ),
}


def pair(one: dict[str, str], two: dict[str, str]) -> dict[str, str]:
    given = {f"ONE__{name}": value for name, value in one.items()}
    return given | {f"TWO__{name}": value for name, value in two.items()}


@pytest.mark.parametrize("name", ONE_KEY)
def test_two_sources_with_one_key_do_not_start(name: str) -> None:
    """Each alone would; together one delivery could be two payments. No message has a key."""
    one, two = ONE_KEY[name]
    assert problems(**pair(one, {})) == []
    assert problems(**pair({}, two)) == []
    (line,) = problems(**pair(one, two))
    assert line.startswith("TALLYHOOK_SOURCES__TWO__")
    assert "ONE__" in line
    assert RAW.hex() not in line.lower()


@pytest.mark.parametrize("name", ONE_KEY)
def test_nothing_else_compiles_them_either(name: str) -> None:
    given = {f"TALLYHOOK_SOURCES__{n}": v for n, v in pair(*ONE_KEY[name]).items()}
    try:
        settings = load_settings({**given, "TALLYHOOK_PUBLIC_URL": "https://hooks.example"})
    except ConfigurationError:
        return
    with pytest.raises(ConfigurationError, match="another spelling"):
        compile_sources(settings)


def test_the_shops_own_secret_is_no_sources() -> None:
    """Our own notification could come back as the provider's event."""
    secret = "whsec_" + base64.b64encode(RAW).decode()
    variables = {
        "TALLYHOOK_ENVIRONMENT": "sandbox",
        "TALLYHOOK_SOURCES__A__SECRETS": secret.removeprefix("whsec_").rstrip("="),
        "TALLYHOOK_SHOP__URL": "https://shop.example/",
        "TALLYHOOK_SHOP__SECRET": secret,
    }
    with pytest.raises(ConfigurationError, match="TALLYHOOK_SHOP__SECRET: holds a key"):
        load_settings(variables, also=problems_of_sources)


@pytest.mark.parametrize(
    ("profile", "member", "wrong"),
    [
        ("stripe", "data.object.metadata.shop", ""),
        ("stripe", "header:x-shop", "not covered by the signature"),
        ("adyen", "metadata.shop", "not covered by the signature"),
        ("adyen", "merchantAccountCode", ""),
        ("mollie_classic", "metadata.shop", ""),
        ("mollie_classic", "form:shop", "not a member of the provider's answer"),
        ("wise", "data.shop", "its provider is not asked"),
    ],
)
def test_a_member_that_tells_shops_apart_must_be_signed_or_fetched(
    profile: str, member: str, wrong: str
) -> None:
    from app.context.configured import _problems_of_only
    from app.providers.profile import load_profile

    given = SourceSettings(only={member: ("north",)})
    found = _problems_of_only("card", given, load_profile(profile))
    assert len(found) == bool(wrong)
    assert not wrong or wrong in found[0]


def woovi(account: str | None, number: int = 1) -> dict[str, str]:
    given = {"PROFILE": "woovi", "SECRETS": json.dumps([pem(RSA)])}
    return given if account is None else {**given, "ACCOUNT": account}


def test_accounts_under_the_providers_key_are_distinguished() -> None:
    assert problems(**pair(woovi("a"), woovi("b"))) == []
    assert problems(**pair(woovi("a"), woovi('["b", "c"]'))) == []
    assert len(problems(**pair(woovi("a"), woovi('["b", "a"]')))) == 1
    bitso = {"PROFILE": "bitso", "KEYS": json.dumps({"k": pem(RSA)})}
    assert len(problems(**pair(bitso, bitso))) == 1


def test_paypal_accounts_share_its_certificate() -> None:
    """The signed id of the webhook is each account's key."""
    from app.providers.fingerprints import key_identities
    from app.providers.profile import load_profile

    paypal, url = load_profile("paypal"), "https://api.paypal.com/v1/certs/1"
    one, two = ({"webhook_id": f"WH-{n}-abcdefghijkl", url: pem(RSA)} for n in (1, 2))
    assert not key_identities(paypal, one) & key_identities(paypal, two)
    assert key_identities(paypal, one) & key_identities(paypal, dict(one))


def test_an_account_that_is_missing_or_means_nothing_stops_the_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given = {
        "TALLYHOOK_ENVIRONMENT": "sandbox",
        "TALLYHOOK_DATABASE_URL": f"sqlite+aiosqlite:///{tmp_path}/t.db",
        "TALLYHOOK_GRACE_S": "soon",
        "TALLYHOOK_SOURCES__PIX__PROFILE": "woovi",
        "TALLYHOOK_SOURCES__PIX__SECRETS": json.dumps([pem(RSA)]),
        "TALLYHOOK_SOURCES__CARD__PROFILE": "kopokopo",
        "TALLYHOOK_SOURCES__CARD__SECRETS": TEXT,
        "TALLYHOOK_SOURCES__CARD__ACCOUNT": "acct_1",
        "TALLYHOOK_SOURCES__BEE__PROFILE": "chargebee",
        "TALLYHOOK_SOURCES__BEE__SECRETS": "Zr5kWn2Lx7Tj4Vb9Hd3Fg6Ms1PqX5t",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert run(["serve", "--port", "0"]) == 3
    lines = capsys.readouterr().err.splitlines()
    said = {line.partition(":")[0].removeprefix("TALLYHOOK_"): line for line in lines}
    assert len(said) == len(lines) == 4
    assert "GRACE_S" in said
    assert "json:company.id" in said["SOURCES__PIX__ACCOUNT"]
    assert "name no account" in said["SOURCES__CARD__ACCOUNT"]
    assert "write it as user:password" in said["SOURCES__BEE__SECRETS"]


@pytest.mark.parametrize("account", ["", "  ", " a", "a ", "[]", '["a", ""]', '["a", 7]', "[a"])
def test_an_account_is_written_as_events_name_it(account: str) -> None:
    assert any("ACCOUNT" in line for line in problems(**pair(woovi(account), {})))


def test_sessions_are_opened_for_shared_orders_only() -> None:
    variables = {
        "TALLYHOOK_ENVIRONMENT": "sandbox",
        "TALLYHOOK_SOURCES__A__SECRETS": "whsec_" + base64.b64encode(RAW).decode(),
        "TALLYHOOK_SOURCES__A__ORDERS": "own",
        "TALLYHOOK_CHECKOUT__BASE_URL": "https://payments.example",
        "TALLYHOOK_CHECKOUT__TOKEN": TEXT,
    }
    with pytest.raises(ConfigurationError, match="A__ORDERS: must have the value shared"):
        load_settings(variables)
    assert problems(A__ORDERS="both", A__SECRETS=TEXT)[0].endswith("must be shared or own")


@pytest.mark.parametrize(("end", "refused"), [("push_of_the_other_shop", True), ("till", False)])
def test_an_address_is_no_other_sources_name(end: str, refused: bool) -> None:
    """It would take the other's deliveries. Its own name is where it began."""
    credentials = json.dumps(
        {"consumer": "k:s", "shortcode": "1", "timestamp": "20261120100000", "password": "cA=="}
    )
    found = problems(
        TILL__PROFILE="mpesa_stk",
        TILL__CREDENTIALS=credentials,
        TILL__ADDRESS=end,
        PUSH_OF_THE_OTHER_SHOP__PROFILE="mpesa_stk",
        PUSH_OF_THE_OTHER_SHOP__CREDENTIALS=credentials,
    )
    said = [each for each in found if "TILL__ADDRESS: is the name of another source" in each]
    assert bool(said) is refused, found
