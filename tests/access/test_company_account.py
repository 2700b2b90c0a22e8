"""The company's account: what is asked of the provider, and which of its answers let nobody in."""

import hmac
import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from io import StringIO
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from app.access.challenges import VALID_FOR, begun_at, new_challenge
from app.access.company_account import (
    KEPT_FOR,
    REFETCHED_AFTER,
    CompanyAccount,
    CompanyProvider,
    CompanyRefused,
    CompanyUnreachable,
)
from app.config.load import load_settings
from app.core.clock import SetClock
from app.monitoring.preflight import of_company
from reconcile.instants import HOUR, SECOND, TICK, parse_instant
from tests.access.openid_provider import (
    BACK,
    CLIENT,
    CLIENT_SECRET,
    ISSUER,
    OpenIdProvider,
    settings_of_company,
)
from tests.rows import for_each

T = parse_instant("2026-10-01T12:00:00Z")
NOW = T // SECOND


@dataclass
class Trial:
    """A provider, and a console's view of it."""

    clock: SetClock
    provider: OpenIdProvider
    company: CompanyProvider

    async def sign_in(self, *, again: bool = False, **changed: str) -> CompanyAccount:
        """Go there and come back; changed: parameters of the answer."""
        begun = self.clock.now()
        there = await self.company.address_to(
            state="s", nonce="the nonce", verifier="the verifier", again=again
        )
        answer = self.provider.authorize(there) | changed
        return await self.company.account(
            answer, nonce="the nonce", verifier="the verifier", begun=begun, again=again
        )


@pytest.fixture
def made() -> Callable[..., Trial]:
    def make(**more: str) -> Trial:
        variables = {
            f"TALLYHOOK_{name}": each for name, each in settings_of_company(**more).items()
        }
        clock = SetClock(T)
        provider = OpenIdProvider(clock)
        company = CompanyProvider(
            load_settings(variables).oidc, back=BACK, clock=clock, transport=provider.transport
        )
        return Trial(clock, provider, company)

    return make


async def test_a_person_is_named_by_issuer_and_subject(made: Callable[..., Trial]) -> None:
    trial = made()
    account = await trial.sign_in()
    assert account == CompanyAccount(id=f"{ISSUER} u-1", name="wambui@shop.example", role="finance")
    assert trial.provider.asked["scope"] == "openid email profile"
    assert trial.provider.fetched == ["configuration", "token", "keys"]
    await trial.sign_in()
    assert trial.provider.fetched[3:] == ["token"], "the rest is kept"


def signed_by(key: Any, algorithm: str, *, kid: str = "first") -> Callable[[dict[str, Any]], str]:
    return lambda claims: jwt.encode(claims, key, algorithm=algorithm, headers={"kid": kid})


def forged(claims: dict[str, Any], *, algorithm: str, secret: bytes | None) -> str:
    """Return a token as no library makes it: unsigned, or with a public text as its secret."""

    def text(part: bytes) -> str:
        return urlsafe_b64encode(part).decode().rstrip("=")

    header = {"alg": algorithm, "kid": "first"}
    signed = ".".join(text(json.dumps(part).encode()) for part in (header, claims))
    return f"{signed}.{text(hmac.digest(secret, signed.encode(), 'sha256')) if secret else ''}"


def public_pem(provider: OpenIdProvider) -> bytes:
    public = provider.key.public_key()
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


STRANGER = ec.generate_private_key(ec.SECP256R1())


@for_each(
    ("claims", "because"),
    [
        ({"iss": "https://login.example/realms/other"}, "from another provider"),
        ({"iss": ISSUER.rstrip("/")}, "from another provider"),
        ({"aud": "another console"}, "must be meant for this console only"),
        ({"aud": [CLIENT, "another console"]}, "must be meant for this console only"),
        ({"aud": None}, "must be meant for this console only"),
        ({"azp": "another console"}, "issued to another program"),
        ({"exp": NOW - 60}, "expired"),
        ({"exp": None}, "expired"),
        ({"exp": "never"}, "expired"),
        ({"exp": float("inf")}, "expired"),
        ({"iat": NOW - 61}, "differs too much from this machine's time"),
        ({"iat": NOW + 61}, "differs too much from this machine's time"),
        ({"iat": None}, "differs too much from this machine's time"),
        ({"nbf": NOW + 61}, "not valid yet"),
        ({"nonce": "of another sign-in"}, "another sign-in"),
        ({"nonce": "\ud800"}, "another sign-in"),
        ({"nonce": None}, "another sign-in"),
        ({"sub": None}, "names no person"),
        ({"sub": 7}, "names no person"),
        ({"sub": "u" * 256}, "names no person"),
        ({"email": None}, "lacks the claim email with your name"),
    ],
)
async def test_a_token_with_a_wrong_claim_lets_nobody_in(
    made: Callable[..., Trial], claims: dict[str, Any], because: str
) -> None:
    trial = made()
    trial.provider.claims = claims
    with pytest.raises(CompanyRefused, match=because) as refused:
        await trial.sign_in()
    assert str(refused.value).endswith("Begin again.") is ("nonce" in claims)
    assert str(refused.value).endswith("tell an admin.") is ("nonce" not in claims)


@for_each(
    ("sign", "because"),
    [
        (lambda _: partial(forged, algorithm="none", secret=None), "not accepted"),
        (lambda it: partial(forged, algorithm="HS256", secret=public_pem(it)), "not accepted"),
        (lambda it: partial(forged, algorithm="ES256", secret=public_pem(it)), "is wrong"),
        (lambda _: signed_by(CLIENT_SECRET.encode() * 2, "HS256"), "not accepted"),
        (lambda _: signed_by(ec.generate_private_key(ec.SECP256K1()), "ES256K"), "not accepted"),
        (lambda _: signed_by(STRANGER, "ES256"), "signature of the ID token is wrong"),
        (lambda _: signed_by(STRANGER, "ES256", kid="other"), "the provider does not publish"),
        (lambda _: lambda _: "no.token.at all", "cannot be parsed"),
        (lambda _: lambda _: "a" * 70_000, "sent no ID token"),
    ],
)
async def test_a_token_that_the_provider_did_not_sign_lets_nobody_in(
    made: Callable[..., Trial],
    sign: Callable[[OpenIdProvider], Callable[[dict[str, Any]], str]],
    because: str,
) -> None:
    """Also one signed with its public key as if that were a shared secret."""
    trial = made()
    trial.provider.sign = sign(trial.provider)
    with pytest.raises(CompanyRefused, match=because):
        await trial.sign_in()


async def test_a_code_counts_once_and_with_its_own_verifier(made: Callable[..., Trial]) -> None:
    trial = made()
    there = await trial.company.address_to(state="s", nonce="n", verifier="v", again=False)
    answer = trial.provider.authorize(there)
    stolen = {"nonce": "n", "begun": T, "again": False}
    with pytest.raises(CompanyRefused, match="already used, or is too old"):
        await trial.company.account(answer, verifier="another", **stolen)  # type: ignore[arg-type]
    await trial.sign_in()
    with pytest.raises(CompanyRefused, match="already used, or is too old"):
        await trial.sign_in(code="1")


@for_each(
    ("states", "iss", "refused"),
    [
        (True, ISSUER, False),
        (True, None, True),
        (False, None, False),
        (False, "https://evil.example", True),
        (True, "https://evil.example", True),
    ],
)
async def test_an_answer_of_another_provider_is_not_exchanged(
    made: Callable[..., Trial], states: bool, iss: str | None, refused: bool
) -> None:
    """RFC 9207, against mix-up: the code would be sent to the wrong provider."""
    trial = made()
    trial.provider.configuration = {"authorization_response_iss_parameter_supported": states}
    trial.provider.answer = {} if iss is None else {"iss": iss}
    if not refused:
        assert (await trial.sign_in()).role == "finance"
        return
    with pytest.raises(CompanyRefused, match="from the configured provider"):
        await trial.sign_in()
    assert "token" not in trial.provider.fetched


async def test_new_keys_are_fetched_once_and_strangers_cause_no_more(
    made: Callable[..., Trial],
) -> None:
    trial = made()
    await trial.sign_in()
    trial.clock.put(trial.clock.now() + REFETCHED_AFTER)
    trial.provider.rotate("second")
    assert (await trial.sign_in()).role == "finance"
    assert trial.provider.fetched.count("keys") == 2
    trial.provider.sign = signed_by(STRANGER, "ES256", kid="third")
    for _ in range(3):
        with pytest.raises(CompanyRefused, match="the provider does not publish"):
            await trial.sign_in()
    assert trial.provider.fetched.count("keys") == 2
    trial.provider.sign = None
    trial.provider.keys = []  # withdrawn: it counts for an hour at most
    trial.clock.put(trial.clock.now() + KEPT_FOR)
    with pytest.raises(CompanyRefused, match="the provider does not publish"):
        await trial.sign_in()


@for_each(
    ("stated", "because"),
    [
        ({"issuer": "https://evil.example"}, "another issuer"),
        (
            {"token_endpoint": "http://login.example/token"},
            "token_endpoint is not an https address",
        ),
        ({"jwks_uri": "https://["}, "jwks_uri is not an https address"),
        ({"authorization_endpoint": 7}, "authorization_endpoint is not an https address"),
        ({"code_challenge_methods_supported": ["plain"]}, "PKCE"),
    ],
)
async def test_a_configuration_that_is_not_sound_is_not_used(
    made: Callable[..., Trial], stated: dict[str, Any], because: str
) -> None:
    trial = made()
    trial.provider.configuration = stated
    with pytest.raises(CompanyUnreachable, match=because):
        await trial.sign_in()


async def test_a_provider_that_is_down_is_unreachable_and_asked_again(
    made: Callable[..., Trial],
) -> None:
    trial = made()
    trial.provider.status = 503
    with pytest.raises(CompanyUnreachable, match="status_503"):
        await trial.sign_in()
    trial.provider.status = 200
    assert (await trial.sign_in()).role == "finance"


@for_each(
    ("change", "said"),
    [
        ({}, None),
        ({"status": 503}, "status_503"),
        ({"status": 302}, "status_302"),
        ({"keys": []}, "publishes no key"),
        ({"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}, "publishes no key"),
        ({"configuration": {"issuer": "https://evil.example"}}, "another issuer"),
    ],
)
async def test_the_doctor_says_why_nobody_can_sign_in(
    made: Callable[..., Trial], change: dict[str, Any], said: str | None
) -> None:
    trial = made()
    for name, value in change.items():
        setattr(trial.provider, name, value)
    check = of_company(ISSUER, await trial.company.problem())
    assert check.state == ("ok" if said is None else "must")
    assert (said or ISSUER) in check.sentence


@for_each(
    ("settings", "claims", "role"),
    [
        ({}, {"groups": ["desk", "books"]}, "finance"),  # the first of the settings
        ({}, {"groups": "desk"}, "support"),
        ({}, {"groups": ["Books", "books "]}, None),
        ({}, {"groups": None}, None),
        ({}, {"groups": {"books": True}}, None),
        ({"OIDC__ROLE_CLAIM": "realm.roles"}, {"realm": {"roles": ["desk"]}}, "support"),
        ({"OIDC__ROLE_CLAIM": "https://x.example/r"}, {"https://x.example/r": "desk"}, "support"),
    ],
)
async def test_the_role_is_what_the_claim_says(
    made: Callable[..., Trial], settings: dict[str, str], claims: dict[str, Any], role: str | None
) -> None:
    trial = made(**settings)
    trial.provider.claims = claims
    assert (await trial.sign_in()).role == role


@for_each(
    ("settings", "claims", "because"),
    [
        ({"OIDC__DOMAINS": "Shop.Example"}, {}, None),
        ({"OIDC__DOMAINS": "shop.example"}, {"email": "a@evil-shop.example"}, "domain"),
        ({"OIDC__DOMAINS": "shop.example"}, {"email_verified": "true"}, "domain"),
        ({"OIDC__AMR": "mfa,hwk"}, {"amr": ["pwd", "mfa"]}, None),
        ({"OIDC__AMR": "mfa"}, {"amr": ["pwd"]}, "factor"),
        ({"OIDC__AMR": "mfa"}, {}, "factor"),
        ({"OIDC__ACR": "urn:high"}, {"acr": "urn:high"}, None),
        ({"OIDC__ACR": "urn:high"}, {"acr": "urn:low"}, "weaker"),
    ],
)
async def test_the_settings_narrow_who_comes_in(
    made: Callable[..., Trial],
    settings: dict[str, str],
    claims: dict[str, Any],
    because: str | None,
) -> None:
    trial = made(**settings)
    trial.provider.claims = claims
    if because is None:
        assert (await trial.sign_in()).role == "finance"
    else:
        with pytest.raises(CompanyRefused, match=because):
            await trial.sign_in()
    assert trial.provider.asked.get("acr_values") == settings.get("OIDC__ACR")


@for_each(
    ("claims", "proved"),
    [({}, True), ({"auth_time": NOW - 3600}, False), ({"auth_time": None}, False)],
)
async def test_a_person_who_must_prove_again_who_they_are_is_asked_there(
    made: Callable[..., Trial], claims: dict[str, Any], proved: bool
) -> None:
    trial = made()
    trial.provider.claims = claims
    if proved:
        await trial.sign_in(again=True)
    else:
        with pytest.raises(CompanyRefused, match="does not show that you have just signed in"):
            await trial.sign_in(again=True)
    assert trial.provider.asked["prompt"] == "login"


async def test_the_log_holds_the_reason_and_no_token(
    made: Callable[..., Trial], log: StringIO
) -> None:
    trial = made()
    trial.provider.claims = {"nonce": "of another sign-in"}
    with pytest.raises(CompanyRefused) as refused:
        await trial.sign_in()
    said = log.getvalue() + str(refused.value)
    assert '"reason":"nonce"' in said
    assert not [each for each in ("eyJ", "wambui", CLIENT_SECRET) if each in said]


@for_each(
    ("changed", "fits"),
    [
        ({}, True),
        ({"key": "another console's"}, False),
        ({"to": "another browser"}, False),
        ({"now": T + VALID_FOR - TICK}, True),
        ({"now": T + VALID_FOR}, False),
        ({"now": T - HOUR}, False),
    ],
)
def test_a_challenge_counts_for_its_browser_for_ten_minutes(
    changed: dict[str, Any], fits: bool
) -> None:
    challenge = new_challenge("key", to="browser", now=T)
    given: dict[str, Any] = {"key": "key", "to": "browser", "now": T} | changed
    assert (begun_at(given.pop("key"), challenge, **given) == T) is fits


def test_a_challenge_has_one_spelling() -> None:
    """Base64 has unused bits and skipped characters; another spelling would count once more."""
    challenge = new_challenge("key", to="browser", now=T)
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    other = [challenge[:-1] + each for each in letters if each != challenge[-1]]
    spellings = [*other, challenge + "=", challenge + "!", "\n" + challenge, "", "é", "\ud800"]
    assert [each for each in spellings if begun_at("key", each, to="browser", now=T)] == []
