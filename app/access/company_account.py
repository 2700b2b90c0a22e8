"""Sign-in with the company's account through OpenID Connect.

1 discover   read the provider's addresses
2 send       redirect the browser to the provider
3 exchange   exchange the returned code for an ID token
4 verify     check the token's signature and claims
5 name       read the person's id, name and role

Sources: OpenID Connect Core 1.0, Discovery 1.0, RFC 7636, RFC 9207.
"""

import asyncio
import hmac
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote_plus, urlencode, urlsplit

import httpx2

from app.access.operators import Role
from app.config.settings import OidcSettings
from app.core.clock import Clock
from app.core.errors import TallyhookError, UnreachableError, UsageError
from app.core.hosts import is_loopback
from app.core.http import exchange, outgoing_client
from app.core.logs import log
from app.core.reading import Unreadable
from app.core.strict_json import parse
from reconcile.instants import EARLIEST, HOUR, MINUTE, SECOND, Duration, Instant

BACK: Final = "/sign-in/company/back"

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")
"""Accepted signature algorithms of ID tokens. Shared-secret algorithms are insecure here."""

LIMIT_S: Final = 10.0
"""Maximum duration of one request to the provider, in seconds."""

KEPT_FOR: Final[Duration] = HOUR
"""Time for which the provider's configuration and keys stay in the cache."""

REFETCHED_AFTER: Final[Duration] = MINUTE
"""Minimum pause between fetches of the provider's keys."""

LEEWAY: Final[Duration] = MINUTE
"""Tolerated difference between the provider's clock and this machine's clock."""

FRESH_FOR: Final[Duration] = 5 * MINUTE
"""Maximum age of a sign-in that permits an irreversible act."""

MAX_TOKEN: Final = 64 * 1024
"""Maximum number of characters in an ID token."""

MAX_KEYS: Final = 100
"""Maximum number of keys that a provider can publish."""

MAX_ID: Final = 255
"""Maximum length of a person's id (OpenID Connect Core 2)."""


class CompanyRefused(TallyhookError):
    """Error for a refused sign-in with the company's account. The error's text tells the person
    what to do."""


class CompanyUnreachable(UnreachableError):
    """Error for a provider that cannot be reached or whose answer is unusable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanyAccount:
    """Person who signed in with the company's account."""

    id: str
    name: str
    role: Role | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderAddresses:
    """Addresses and abilities from the provider's configuration."""

    authorization: str
    token: str
    keys: str
    end_session: str | None
    states_issuer: bool
    posts_secret: bool


@dataclass
class _Kept:
    addresses: ProviderAddresses | None = None
    addresses_at: Instant = EARLIEST
    keys: list[Mapping[str, Any]] = field(default_factory=list)
    keys_at: Instant = EARLIEST


class CompanyProvider:
    """Client of the OpenID provider for one console."""

    def __init__(
        self,
        settings: OidcSettings,
        *,
        back: str,
        clock: Clock,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._settings = settings
        self.issuer = settings.issuer or ""
        self._back = back
        self._clock = clock
        self._transport = transport
        self._kept = _Kept()
        self._alone = asyncio.Lock()

    # --- 1: addresses and keys --------------------------------------------------------------------

    async def addresses(self) -> ProviderAddresses:
        """Return the provider's addresses. Raise CompanyUnreachable if the configuration cannot be
        fetched."""
        async with self._alone:
            kept, now = self._kept, self._clock.now()
            if kept.addresses is None or now - kept.addresses_at >= KEPT_FOR:
                url = self.issuer.rstrip("/") + "/.well-known/openid-configuration"
                kept.addresses = _addresses(self.issuer, await self._fetched(url, "configuration"))
                kept.addresses_at = now
            return kept.addresses

    async def problem(self) -> str | None:
        """Return the reason why company sign-ins fail now."""
        try:
            found = await self._keys(unknown=False)
        except CompanyUnreachable as error:
            return str(error)
        usable = [each for each in found if each.get("kty") in _KINDS.values()]
        return None if usable else "its provider publishes no key of an accepted kind"

    async def _keys(self, *, unknown: bool) -> list[Mapping[str, Any]]:
        url = (await self.addresses()).keys
        async with self._alone:
            kept, now = self._kept, self._clock.now()
            if now - kept.keys_at >= (REFETCHED_AFTER if unknown else KEPT_FOR):
                found = (await self._fetched(url, "keys")).get("keys")
                if not isinstance(found, list) or len(found) > MAX_KEYS:
                    raise _unusable("the provider's keys are not a list")
                kept.keys = [each for each in found if isinstance(each, dict)]
                kept.keys_at = now
            return kept.keys

    async def _fetched(self, url: str, what: str) -> Mapping[str, Any]:
        async with outgoing_client(timeout_s=LIMIT_S, transport=self._transport) as client:
            answer = await exchange(client, "GET", url, headers={}, limit_s=LIMIT_S)
        if not answer.taken:
            raise CompanyUnreachable(
                f"the {what} for the company's sign-in cannot be fetched ({answer.why}): try again"
            )
        return _object(answer.body)

    # --- 2: the redirect
    # ---------------------------------------------------------------------------

    async def address_to(self, *, state: str, nonce: str, verifier: str, again: bool) -> str:
        """Return the provider's address for a sign-in. Raise CompanyUnreachable without a
        configuration."""
        found, settings = await self.addresses(), self._settings
        hashed = urlsafe_b64encode(sha256(verifier.encode()).digest()).decode().rstrip("=")
        asked = {
            "response_type": "code",
            "client_id": settings.client_id,
            "redirect_uri": self._back,
            "scope": " ".join(dict.fromkeys(("openid", *settings.scopes))),
            "state": state,
            "nonce": nonce,
            "code_challenge": hashed,
            "code_challenge_method": "S256",
        }
        if settings.acr:
            asked["acr_values"] = " ".join(settings.acr)
        if again:
            asked |= {"prompt": "login", "max_age": "0"}
        joint = "&" if urlsplit(found.authorization).query else "?"
        return f"{found.authorization}{joint}{urlencode(asked)}"

    # --- 3: the code ------------------------------------------------------------------------------

    async def account(
        self, answer: Mapping[str, str], *, nonce: str, verifier: str, begun: Instant, again: bool
    ) -> CompanyAccount:
        """Return the person who signed in at the provider.

        The caller must check `state`. Raise CompanyRefused or CompanyUnreachable.
        """
        found = await self.addresses()
        if answer.get("iss", self.issuer) != self.issuer or (
            found.states_issuer and "iss" not in answer
        ):
            raise _refused("issuer", "the answer does not come from the configured provider")
        if "code" not in answer:
            denied = answer.get("error") in ("access_denied", "login_required")
            raise _refused(
                "no_code", "the provider denied access" if denied else "the provider sent no code"
            )
        headers = {"content-type": "application/x-www-form-urlencoded"}
        form = {
            "grant_type": "authorization_code",
            "code": answer["code"],
            "redirect_uri": self._back,
            "code_verifier": verifier,
        }
        client_id = self._settings.client_id
        secret = self._settings.client_secret
        assert secret is not None  # the settings are whole
        if found.posts_secret:
            form |= {"client_id": client_id, "client_secret": secret.get_secret_value()}
        else:
            pair = f"{quote_plus(client_id)}:{quote_plus(secret.get_secret_value())}"
            headers["authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        async with outgoing_client(timeout_s=LIMIT_S, transport=self._transport) as client:
            got = await exchange(
                client, "POST", found.token, headers=headers, content=urlencode(form).encode(),
                limit_s=LIMIT_S,
            )  # fmt: skip
        if got.status in (400, 401):
            error = _object(got.body).get("error") if got.body else None
            if error == "invalid_grant":
                raise _refused("code", "the provider's code was already used, or is too old")
            raise _refused(
                "client", "the provider does not accept this console's client id and secret"
            )
        if not got.taken:
            raise CompanyUnreachable(
                f"the company's sign-in server does not answer ({got.why}): sign in again"
            )
        token = _object(got.body).get("id_token")
        if not isinstance(token, str) or len(token) > MAX_TOKEN:
            raise _refused("no_token", "the provider sent no ID token")
        return self._person(await self._verified(token, nonce=nonce, begun=begun, again=again))

    # --- 4: the token -----------------------------------------------------------------------------

    async def _verified(
        self, token: str, *, nonce: str, begun: Instant, again: bool
    ) -> Mapping[str, Any]:
        claims = await self._signed(token)
        now, client_id = self._clock.now(), self._settings.client_id
        if claims.get("iss") != self.issuer:
            raise _refused("iss", "the ID token comes from another provider")
        if claims.get("aud") not in (client_id, [client_id]):
            raise _refused("aud", "the ID token must be meant for this console only")
        if claims.get("azp", client_id) != client_id:
            raise _refused("azp", "the ID token was issued to another program")
        expires, issued = _instant(claims, "exp"), _instant(claims, "iat")
        if expires is None or now >= expires + LEEWAY:
            raise _refused(
                "exp",
                "the ID token has expired: check the clocks of the provider and of this machine",
            )
        if issued is None or not begun - LEEWAY <= issued <= now + LEEWAY:
            raise _refused(
                "iat",
                "the ID token's issue time differs too much from this machine's time: check the "
                "clocks of the provider and of this machine",
            )
        if "nbf" in claims and ((since := _instant(claims, "nbf")) is None or since > now + LEEWAY):
            raise _refused(
                "nbf",
                "the ID token is not valid yet: check the clocks of the provider and of this "
                "machine",
            )
        stated = claims.get("nonce")
        if not isinstance(stated, str) or not hmac.compare_digest(
            stated.encode(errors="replace"), nonce.encode()
        ):
            raise _refused("nonce", "the ID token belongs to another sign-in")
        subject = claims.get("sub")
        if not isinstance(subject, str) or not 0 < len(subject) <= MAX_ID or not subject.isascii():
            raise _refused("sub", "the ID token names no person")
        if again:
            at = _instant(claims, "auth_time")
            if at is None or at < begun - LEEWAY:
                raise _refused(
                    "auth_time",
                    "the provider does not show that you have just signed in: sign out at the "
                    "provider first",
                )
        acr, amr = self._settings.acr, self._settings.amr
        if acr and claims.get("acr") not in acr:
            raise _refused("acr", "you signed in with a weaker method than this console requires")
        if amr and not set(amr) & set(_texts(claims.get("amr"))):
            raise _refused(
                "amr", "you signed in without the second factor that this console requires"
            )
        return claims

    async def _signed(self, token: str) -> Mapping[str, Any]:
        import jwt  # few requests need it

        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            raise _refused("token", "the ID token cannot be parsed") from None
        name, kid = header.get("alg"), header.get("kid")
        if name not in ALGORITHMS:
            raise _refused("alg", "the ID token is signed with an algorithm that is not accepted")
        for unknown in (False, True):
            fitting = [
                each
                for each in await self._keys(unknown=unknown)
                if each.get("kty") == _KINDS[name[:2]]
                and each.get("use", "sig") == "sig"
                and each.get("alg", name) == name
                and (kid is None or each.get("kid") == kid)
            ]
            if len(fitting) == 1:
                break
        else:
            raise _refused(
                "kid", "the ID token is signed with a key that the provider does not publish"
            )
        try:
            return jwt.decode(
                token,
                jwt.PyJWK(dict(fitting[0]), algorithm=name),
                algorithms=[name],
                options={
                    "enforce_minimum_key_length": True,
                    # `_verified` checks the claims, by the one clock.
                    "verify_iss": False,
                    "verify_aud": False,
                    "verify_exp": False,
                    "verify_iat": False,
                    "verify_nbf": False,
                    "verify_sub": False,
                    "verify_jti": False,
                },
            )
        except jwt.PyJWTError:
            raise _refused("signature", "the signature of the ID token is wrong") from None

    # --- 5: the person ----------------------------------------------------------------------------

    def _person(self, claims: Mapping[str, Any]) -> CompanyAccount:
        settings = self._settings
        mail = claims.get("email")
        if settings.domains and not (
            isinstance(mail, str)
            and claims.get("email_verified") is True
            and mail.rpartition("@")[2].lower() in settings.domains
        ):
            raise _refused(
                "domain", "your mail address at the provider is not in an allowed domain"
            )
        name = _claim(claims, settings.name_claim)
        if not isinstance(name, str) or not name.strip():
            raise _refused(
                "name", f"the ID token lacks the claim {settings.name_claim} with your name"
            )
        held = set(_texts(_claim(claims, settings.role_claim)))
        role = next((role for value, role in settings.roles.items() if value in held), None)
        return CompanyAccount(id=f"{self.issuer} {claims['sub']}", name=name.strip(), role=role)


LOCAL_OFF: Final = (
    "Passwords are not accepted here: sign in with the company's account. If that fails, the "
    "machine's owner can let you in: `tallyhook operators let-in NAME --reason WHY`"
)


def refuse_without_passwords(settings: OidcSettings) -> None:
    """Raise UsageError if the settings forbid sign-in with a password."""
    if settings.local_accounts == "off":
        raise UsageError(LOCAL_OFF)


_KINDS: Final = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""Key type (RFC 7518) of each signature algorithm, by its first two letters."""


_OWN_TO_MEND: Final = frozenset({"no_code", "code", "nonce", "auth_time", "acr", "amr"})
"""Reason codes of refused sign-ins that may succeed when the person signs in again."""


def _refused(code: str, sentence: str) -> CompanyRefused:
    log.warning("a sign-in with the company's account was refused", reason=code)
    do = "Begin again" if code in _OWN_TO_MEND else "Signing in again does not help: tell an admin"
    return CompanyRefused(f"The company's sign-in was refused: {sentence}. {do}.")


def _unusable(why: str) -> CompanyUnreachable:
    return CompanyUnreachable(f"the company's sign-in cannot be used: {why}")


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        found = parse(body)
    except Unreadable as error:
        raise _unusable(str(error)) from None
    if not isinstance(found, dict):
        raise _unusable("the provider's answer is not a JSON object")
    return found


def _addresses(issuer: str, configuration: Mapping[str, Any]) -> ProviderAddresses:
    if configuration.get("issuer") != issuer:
        raise _unusable(
            "the provider's configuration names another issuer than TALLYHOOK_OIDC__ISSUER"
        )
    methods = configuration.get("code_challenge_methods_supported", ["S256"])
    if not isinstance(methods, list) or "S256" not in methods:
        raise _unusable("the provider does not support PKCE with S256")

    def address(member: str) -> str:
        value = configuration.get(member)
        try:
            parts = urlsplit(value if isinstance(value, str) else "")
            local = is_loopback(urlsplit(issuer).hostname or "")
            usable = bool(parts.hostname) and parts.scheme in ("https", *("http",) * local)
        except ValueError:
            usable = False
        if not usable:
            raise _unusable(f"the provider's {member} is not an https address")
        return parts.geturl()

    ways = configuration.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
    return ProviderAddresses(
        authorization=address("authorization_endpoint"),
        token=address("token_endpoint"),
        keys=address("jwks_uri"),
        end_session=address("end_session_endpoint")
        if "end_session_endpoint" in configuration
        else None,
        states_issuer=configuration.get("authorization_response_iss_parameter_supported") is True,
        posts_secret=isinstance(ways, list) and "client_secret_basic" not in ways,
    )


def _instant(claims: Mapping[str, Any], name: str) -> Instant | None:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 2**40:
        return None
    return Instant(int(value) * SECOND)


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    found: Any = claims
    if name in claims:
        return claims[name]
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _texts(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, str)]
