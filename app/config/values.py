"""Types of the settings' values, and the functions that parse and check them.

Each function raises ValueError with a sentence that never quotes the value, because it could be a
misplaced secret.
"""

import ipaddress
import json
import re
from typing import Annotated, Any, Final, Literal, get_args
from urllib.parse import SplitResult, urlsplit

from pydantic import BeforeValidator, SecretStr

from app.config.database_url import database_url
from app.core.errors import UsageError
from app.core.hosts import is_loopback
from app.core.schedule import schedule_entries
from app.core.zones import zone_named
from reconcile.instants import Instant, parse_instant
from reconcile.money import is_currency
from reconcile.transparency.cosignatures import VerifierKey, read_cosigner

_ANYBODY: Final = "lets any sender forge its address; list the proxies' addresses"

_WIDEST: Final = {4: 8, 6: 7}
"""Minimum prefix length of a trusted network, for each IP version. The widest private networks are
10.0.0.0/8 and fc00::/7."""


def lowered(value: Any) -> Any:
    """Return a text in lower case without surrounding spaces. Return any other value unchanged."""
    return value.strip().lower() if isinstance(value, str) else value


Role = Literal["finance", "support", "admin", "viewer"]
"""Role of an operator. app/access/operators.py lists the actions and pages of each role."""

ROLES: Final[tuple[Role, ...]] = get_args(Role)

_CALLING_CODE: Final = re.compile("[1-9][0-9]{0,2}", re.ASCII)
"""Pattern of a country's calling code (ITU-T E.164), without the plus sign."""

_SWITCHED: Final = {"true": "on", "1": "on", "yes": "on", "false": "off", "0": "off", "no": "off"}


def switched(value: Any) -> Any:
    """Convert a boolean, or a word such as `yes` or `false`, to `on` or `off`. Return any other
    value unchanged."""
    if isinstance(value, bool):
        return "on" if value else "off"
    word = lowered(value)
    return _SWITCHED.get(word, word) if isinstance(word, str) else word


def listed(value: Any) -> Any:
    """Split a JSON list, or a text with commas, into texts; return any other value unchanged.

    Raise ValueError for an invalid list.
    """
    if not isinstance(value, str):
        return value
    if not value.lstrip().startswith("["):
        return [part.strip() for part in value.split(",")]
    try:
        parts = json.loads(value)
    except ValueError:
        parts = None
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise ValueError('must be a JSON list of texts, such as ["newest", "older"]')
    return parts


class DatedSecret(SecretStr):
    """Secret with an optional expiry, written as `SECRET until 2026-12-01T00:00:00Z`.

    Raises ValueError for an expiry that is no RFC 3339 moment in UTC.
    """

    def __init__(self, secret_value: str) -> None:
        secret, word, end = secret_value.rpartition(" until ")
        super().__init__(secret if word else secret_value)
        try:
            self.until: Instant | None = parse_instant(end) if word else None
        except ValueError:
            raise ValueError(
                "has a secret with an invalid expiry; write a time such as 2026-12-01T00:00:00Z"
            ) from None


def secrets(value: Any) -> Any:
    """Parse a list of secrets, each of which may state its expiry."""
    texts = listed(value)
    if not isinstance(texts, list | tuple):
        return texts
    return [DatedSecret(each) if isinstance(each, str) else each for each in texts]


def addresses(value: Any) -> Any:
    """Parse a list of secret addresses with optional expiries.

    Raise ValueError for an address that cannot end a URL's path.
    """
    found = secrets(value)
    for each in found if isinstance(found, list) else ():
        if not _ADDRESS_END.fullmatch(each.get_secret_value()):
            raise ValueError(
                "must be the end of a path: at most 64 characters of a-z, A-Z, 0-9, _ and -"
            )
    return found


def named(value: Any) -> Any:
    """Parse a JSON object whose values are texts. Raise ValueError for anything else."""
    if not isinstance(value, str):
        return value
    found = _object_in(value)
    if found is None or not all(isinstance(part, str) for part in found.values()):
        raise ValueError('must be a JSON object of texts, such as {"api_key": "value"}')
    return found


def accounts(value: Any) -> Any:
    """Parse one name of an account or payment method, or a JSON list of names."""
    if not isinstance(value, str):
        return value
    found = listed(value) if value.lstrip().startswith("[") else [value]
    if not found or any(not each or each != each.strip() for each in found):
        raise ValueError(
            'must be a name exactly as in the events, or a list of such names: ["one", "other"]'
        )
    return found


MAX_ONLY: Final = 20
"""Maximum number of event fields that a source's setting may name to recognize the shop's own
payments."""


def only(value: Any) -> Any:
    """Parse a JSON object of members of an event, each with the values of our shop."""
    if not isinstance(value, str):
        return value
    found = _object_in(value) or {}
    if not 0 < len(found) <= MAX_ONLY or not all(
        name.strip() == name != ""
        and isinstance(values, list)
        and values
        and all(isinstance(each, str) and each for each in values)
        for name, values in found.items()
    ):
        raise ValueError(
            f"must be a JSON object with 1 to {MAX_ONLY} members, each with a list of the values "
            'in your shop\'s payments: {"data.object.metadata.shop": ["north"]}'
        )
    return {name: tuple(values) for name, values in found.items()}


def _object_in(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def networks(value: Any) -> Any:
    """Parse the addresses or networks of trusted proxies.

    Raises ValueError for `*` and wide networks, because any sender could then state a false
    address.
    """
    found = []
    for text in filter(None, listed(value)):
        if text == "*":
            raise ValueError(_ANYBODY)
        try:
            network = ipaddress.ip_network(text, strict=False)
        except ValueError:
            raise ValueError(
                "must be IP addresses or networks, such as 10.0.0.5,192.168.1.0/24"
            ) from None
        if network.prefixlen < _WIDEST[network.version]:
            raise ValueError(_ANYBODY)
        # Stored without host bits, because uvicorn would match no address with them.
        found.append(str(network) if "/" in text else text)
    return tuple(found)


def base_url(value: Any) -> Any:
    """Return an http or https URL without a final slash.

    Raise ValueError for a user, a password, a query or a fragment.
    """
    if not isinstance(value, str):
        return value
    parts = _split(value)
    blank = any(each.isspace() for each in value.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname or blank:
        raise ValueError("must be a URL such as https://payments.example")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("must be a URL without user, password, query or fragment")
    return _lower_scheme(parts, value).rstrip("/")


def endpoint_url(value: Any) -> Any:
    """Return an endpoint's http or https URL.

    Raise ValueError for a user, a password or a fragment.
    """
    if not isinstance(value, str):
        return value
    parts = _split(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be a URL such as https://shop.example/payments")
    if parts.username or parts.password or parts.fragment:
        raise ValueError("must be a URL without user, password or fragment")
    return _lower_scheme(parts, value)


def _lower_scheme(parts: SplitResult, value: str) -> str:
    return parts.scheme + value.strip()[len(parts.scheme) :]


def public_url(value: Any) -> Any:
    """Return the service's http or https address, or an empty value.

    Raise ValueError if it ends with the path of a source's webhooks.
    """
    found = value if value == "" else base_url(value)
    if isinstance(found, str) and urlsplit(found).path.split("/")[-2:-1] == ["webhooks"]:
        raise ValueError(
            "must be only scheme and host, such as https://hooks.shop.example; leave out "
            "/webhooks and the source's name"
        )
    return found


def https_url(value: Any) -> Any:
    """Return an https address in lower case, or an empty value. Raise ValueError for an address
    with a path."""
    if value == "" or not isinstance(value, str):
        return value
    found = str(base_url(value)).lower()
    if not found.startswith("https://") or urlsplit(found).path:
        raise ValueError("must be an https address without a path: https://console.shop.example")
    return found


def issuer(value: Any) -> Any:
    """Return the https URL of a sign-in provider, with its final slash, as tokens state it."""
    if not isinstance(value, str):
        return value
    found = str(base_url(value))
    if not found.startswith("https:") and not is_loopback(urlsplit(found).hostname or ""):
        raise ValueError("must be an https address, as the provider's configuration states it")
    return found + "/" if value.strip().endswith("/") else found


MAX_ROLES: Final = 100
"""Maximum number of entries in the setting that gives a role to each value of a claim."""


def roles(value: Any) -> Any:
    """Parse a JSON object that states the operator's role for each value of a claim."""
    if not isinstance(value, str):
        return value
    found = _object_in(value) or {}
    if not 0 < len(found) <= MAX_ROLES or any(each not in ROLES for each in found.values()):
        raise ValueError(
            f"must be a JSON object of 1 to {MAX_ROLES} claim values, each with a role "
            f'({", ".join(ROLES)}): {{"tallyhook-finance": "finance"}}'
        )
    return found


def words(value: Any) -> Any:
    """Parse a list of words. Raise ValueError for an empty word or a word with spaces."""
    texts = listed(value)
    if isinstance(texts, list) and any(not each or len(each.split()) != 1 for each in texts):
        raise ValueError("must be names without spaces, separated by commas")
    return texts


def domains(value: Any) -> Any:
    """Parse a list of mail domains and return the domains in lower case."""
    texts = words(value)
    if isinstance(texts, list) and not all(_HOST.fullmatch(each) for each in texts):
        raise ValueError("must be mail domains, such as shop.example")
    return tuple(map(lowered, texts)) if isinstance(texts, list) else texts


def calling_code(value: Any) -> Any:
    """Return a country's calling code without a plus sign. Raise ValueError for an invalid code."""
    text = value.strip().removeprefix("+") if isinstance(value, str) else value
    if isinstance(text, str) and text and not _CALLING_CODE.fullmatch(text):
        raise ValueError("must be a calling code: 1 to 3 digits, such as 254")
    return text


def time_zone(value: Any) -> Any:
    """Return a time zone's name or an empty value. Raise ValueError for an unknown time zone."""
    if not isinstance(value, str) or value in ("UTC", ""):
        return value
    try:
        zone_named(value)
    except UsageError:
        raise ValueError("must be a time zone's name, such as Africa/Nairobi or UTC") from None
    return value


def schedule(value: Any) -> Any:
    if isinstance(value, str) and value.strip():
        schedule_entries(value)
    return value


def currency(value: Any) -> Any:
    found = value.strip() if isinstance(value, str) else value
    if not is_currency(found):
        raise ValueError("must be an ISO 4217 code, such as KES")
    return found


def mail_server_place(value: Any) -> Any:
    """Return the host and port of a mail server. The port is 587 if none is stated."""
    if not isinstance(value, str):
        return value
    host, _, port = value.strip().partition(":")
    if not _HOST.fullmatch(host) or (port and not (port.isdigit() and 0 < int(port) < 65_536)):
        raise ValueError("must be a host, optionally with a port: smtp.example:587")
    return f"{host}:{port or 587}"


def mail_address(value: Any) -> Any:
    if isinstance(value, str) and not _ADDRESS.fullmatch(value.strip()):
        raise ValueError("must be an address such as reports@shop.example")
    return value.strip() if isinstance(value, str) else value


def mail_addresses(value: Any) -> Any:
    """Parse 1 to 20 mail addresses that are separated by commas."""
    if not isinstance(value, str):
        return value
    found = tuple(mail_address(each) for each in value.split(",") if each.strip())
    if not 0 < len(found) <= 20:
        raise ValueError("must be 1 to 20 addresses, separated by commas")
    return found


MAX_WITNESSES: Final = 16
"""Maximum number of witnesses. Every verifier must accept a note with 16 witnesses' signatures
(C2SP signed-note)."""


def witnesses(value: Any) -> Any:
    """Parse a list of witnesses, each written `KEY URL`. The error reports all mistakes.

    KEY  the witness's verifier key
    URL  the witness's address without `/add-checkpoint`
    """
    texts = listed(value)
    if not isinstance(texts, list | tuple):
        return texts
    given = [str(each) for each in texts if str(each).strip()]
    if len(given) > MAX_WITNESSES:
        raise ValueError(f"must be at most {MAX_WITNESSES} witnesses")
    keys: list[VerifierKey] = []
    found, wrong = [], []
    for number, text in enumerate(given, 1):
        try:
            words = text.split()
            if len(words) != 2:
                raise ValueError(
                    "must be a verifier key, a space and an address: NAME+ID+KEY https://..."
                )
            url = str(base_url(words[1]))
            if not url.startswith("https:") and not is_loopback(urlsplit(url).hostname or ""):
                raise ValueError("would be contacted without encryption; use https://")
            key = read_cosigner(words[0])
            if any(other.raw == key.raw or other.name == key.name for other in keys):
                raise ValueError("has the same key or name as another witness; each needs its own")
            keys.append(key)
            found.append(f"{key.text} {url}")
        except ValueError as error:
            wrong.append(f"witness {number} {error}")
    if wrong:
        raise ValueError("; ".join(wrong))
    return tuple(found)


_HOST: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")
_ADDRESS_END: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ADDRESS: Final = re.compile(
    r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?"
)


def _split(value: str) -> SplitResult:
    try:
        parts = urlsplit(value.strip())
        _ = parts.port
    except ValueError:
        raise ValueError(
            "is not a URL; write special characters in it as %XX and the port as a number"
        ) from None
    return parts


Lowered: Final = BeforeValidator(lowered)

Secrets = Annotated[tuple[DatedSecret, ...], BeforeValidator(secrets)]
Addresses = Annotated[tuple[DatedSecret, ...], BeforeValidator(addresses)]
NamedSecrets = Annotated[dict[str, SecretStr], BeforeValidator(named)]
Accounts = Annotated[tuple[str, ...], BeforeValidator(accounts)]
Only = Annotated[dict[str, tuple[str, ...]], BeforeValidator(only)]
BaseUrl = Annotated[str, BeforeValidator(base_url)]
PublicUrl = Annotated[str, BeforeValidator(public_url)]
HttpsUrl = Annotated[str, BeforeValidator(https_url)]
TimeZone = Annotated[str, BeforeValidator(time_zone)]
CallingCode = Annotated[str, BeforeValidator(calling_code)]
Schedule = Annotated[str, BeforeValidator(schedule)]
Currency = Annotated[str, BeforeValidator(currency)]
MailServerPlace = Annotated[str, BeforeValidator(mail_server_place)]
MailAddress = Annotated[str, BeforeValidator(mail_address)]
MailAddresses = Annotated[tuple[str, ...], BeforeValidator(mail_addresses)]
WitnessList = Annotated[tuple[str, ...], BeforeValidator(witnesses)]
EndpointUrl = Annotated[str, BeforeValidator(endpoint_url)]
DatabaseUrl = Annotated[str, BeforeValidator(database_url)]
Issuer = Annotated[str, BeforeValidator(issuer)]
RolesByValue = Annotated[dict[str, Role], BeforeValidator(roles)]
Words = Annotated[tuple[str, ...], BeforeValidator(words)]
Domains = Annotated[tuple[str, ...], BeforeValidator(domains)]
OnOff = Annotated[Literal["on", "off"], BeforeValidator(switched)]
Switch = Annotated[Literal["auto", "on", "off"], BeforeValidator(switched)]
Networks = Annotated[tuple[str, ...], BeforeValidator(networks)]


def text_like(pattern: str, sentence: str) -> BeforeValidator:
    """Return a validator for stripped texts of a pattern, which raises ValueError with the
    sentence."""

    def validated(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if any("\ud800" <= sign <= "\udfff" for sign in value):
            raise ValueError("must be text in UTF-8")
        if not re.fullmatch(pattern, value.strip(), re.ASCII):
            raise ValueError(sentence)
        return value.strip()

    return BeforeValidator(validated)


_NAMED: Final = "must be a name of 1 to 40 characters from a-z, 0-9, _ and -"

Profile = Annotated[str, text_like(r"[a-z0-9_-]{1,40}|[^\x00]*[/.][^\x00]*", _NAMED)]
Name = Annotated[str, text_like("[a-z0-9_-]{1,40}", _NAMED), Lowered]  # the last one runs first
Merchant = Annotated[
    str,
    text_like(r"[^\x00-\x1f\x7f]{0,80}", "must be a name of 80 characters at most, on one line"),
]
MerchantWords = Annotated[
    str, text_like(r"[^\x00-\x1f\x7f]{0,200}", "must be 200 characters at most, on one line")
]
Amount = Annotated[
    str,
    text_like(r"\d{1,12}(\.\d{1,4})?", "must be an amount in major units, such as 1500.00"),
]
