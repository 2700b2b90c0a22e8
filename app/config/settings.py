"""Declaration of all settings, with types, bounds and defaults.

Settings come from environment variables, or from the dotenv file that TALLYHOOK_CONFIG names.
Nothing is read at import: `load_settings` reads once. No message contains a value, because any
value could be a secret in the wrong place. config.example.env explains each setting; a test
compares the two. Leaves out: whether a profile exists (app.providers knows), and whether the
database can be reached.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args
from urllib.parse import SplitResult, urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    StringConstraints,
)

from app.config.database_url import database_url, sqlite_file
from app.core.errors import UsageError
from app.core.hosts import is_loopback
from app.core.schedule import schedule_entries
from app.core.zones import zone_named
from reconcile.instants import SECOND, Instant, parse_instant
from reconcile.ledger.policy import Policy
from reconcile.money import is_currency
from reconcile.transparency.cosignatures import VerifierKey, read_cosigner

_ANYBODY: Final = "lets any sender forge its address; list the proxies' addresses"

_WIDEST: Final = {4: 8, 6: 7}
"""Prefix lengths of the widest private networks, 10.0.0.0/8 and fc00::/7, by IP version."""


def lowered(value: Any) -> Any:
    """Return a text in lower case without surrounding spaces, and other values unchanged."""
    return value.strip().lower() if isinstance(value, str) else value


Role = Literal["finance", "support", "admin", "viewer"]
"""Role of an operator. app/access/operators.py lists the actions and pages of each role."""

ROLES: Final[tuple[Role, ...]] = get_args(Role)

_CALLING_CODE: Final = re.compile("[1-9][0-9]{0,2}", re.ASCII)
"""Pattern of a country's calling code (ITU-T E.164)."""

_SWITCHED: Final = {"true": "on", "1": "on", "yes": "on", "false": "off", "0": "off", "no": "off"}


def switched(value: Any) -> Any:
    """Convert a boolean, or a word for on or off, to `on` or `off`; other values stay unchanged."""
    if isinstance(value, bool):
        return "on" if value else "off"
    word = lowered(value)
    return _SWITCHED.get(word, word) if isinstance(word, str) else word


def listed(value: Any) -> Any:
    """Return the texts in a JSON list, or in a text with commas. Return any other value unchanged.

    Raises ValueError for a JSON list with other items.
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
    """Secret that may expire: `SECRET until 2026-12-01T00:00:00Z`. `until` is None if it never
    expires.

    Raises ValueError if the end is not an RFC 3339 moment in UTC.
    """

    def __init__(self, secret_value: str) -> None:
        secret, word, end = secret_value.rpartition(" until ")
        super().__init__(secret if word else secret_value)
        try:
            self.until: Instant | None = parse_instant(end) if word else None
        except ValueError:
            raise ValueError(
                "has a secret whose expiry is not written like 2026-12-01T00:00:00Z"
            ) from None


def secrets(value: Any) -> Any:
    """Return the secrets in a text that `listed` parses, with their expiry. Raises ValueError for
    an invalid list or expiry."""
    texts = listed(value)
    if not isinstance(texts, list | tuple):
        return texts
    return [DatedSecret(each) if isinstance(each, str) else each for each in texts]


def addresses(value: Any) -> Any:
    """Parse secret addresses as `secrets` does. Raises ValueError for an address that cannot end a
    URL's path."""
    found = secrets(value)
    for each in found if isinstance(found, list) else ():
        if not _ADDRESS_END.fullmatch(each.get_secret_value()):
            raise ValueError(
                "must be the end of a path: at most 64 characters of a-z, A-Z, 0-9, _ and -"
            )
    return found


def named(value: Any) -> Any:
    """Parse a JSON object whose values are texts. Return a value that is not a text unchanged.
    Raises ValueError for other text."""
    if not isinstance(value, str):
        return value
    found = _object_in(value)
    if found is None or not all(isinstance(part, str) for part in found.values()):
        raise ValueError('must be a JSON object of texts, such as {"api_key": "value"}')
    return found


def accounts(value: Any) -> Any:
    """Parse the name of an account or payment method, or a JSON list of names. Raises ValueError
    for an empty name or surrounding spaces."""
    if not isinstance(value, str):
        return value
    found = listed(value) if value.lstrip().startswith("[") else [value]
    if not found or any(not each or each != each.strip() for each in found):
        raise ValueError('must be a name as events state it, or a list of names: ["one", "other"]')
    return found


MAX_ONLY: Final = 20
"""Maximum number of members by which a source's events are recognized as our shop's."""


def only(value: Any) -> Any:
    """Parse a JSON object that maps names of members to lists of values. A source's event belongs
    to our shop if its members have these values. Raises ValueError for other text."""
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
            f"must be a JSON object of 1 to {MAX_ONLY} members, each with the values that your "
            'shop\'s payments have: {"data.object.metadata.shop": ["north"]}'
        )
    return {name: tuple(values) for name, values in found.items()}


def _object_in(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def networks(value: Any) -> Any:
    """Parse the IP addresses or networks of proxies. Raises ValueError for an invalid or too wide
    network.

    Only a listed proxy can state another address for the sender. `*` would let every sender choose
    its address.
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
    """Validate an http or https URL, and remove a final slash. Raises ValueError if the URL has no
    host, or if it has a user, a query or a fragment."""
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
    """Validate an endpoint's http or https URL, with path and query. Raises ValueError if the URL
    has no host, or if it has a user or a fragment."""
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
    """Validate a URL as `base_url` does, or accept an empty value. Also raises ValueError if the
    URL ends with a source's path."""
    found = value if value == "" else base_url(value)
    if isinstance(found, str) and urlsplit(found).path.split("/")[-2:-1] == ["webhooks"]:
        raise ValueError(
            "must be scheme and host, without /webhooks and the name of a source: "
            "https://hooks.shop.example"
        )
    return found


def https_url(value: Any) -> Any:
    """Validate an https address without a path, or accept an empty value. Raises ValueError for
    anything else."""
    if value == "" or not isinstance(value, str):
        return value
    found = str(base_url(value)).lower()
    if not found.startswith("https://") or urlsplit(found).path:
        raise ValueError("must be an https address without a path: https://console.shop.example")
    return found


def issuer(value: Any) -> Any:
    """Validate the URL of a provider of accounts. Raises ValueError unless it uses https or names
    this machine.

    Keep a final slash, because the provider's tokens state exactly this text.
    """
    if not isinstance(value, str):
        return value
    found = str(base_url(value))
    if not found.startswith("https:") and not is_loopback(urlsplit(found).hostname or ""):
        raise ValueError("must be an https address, as the provider's configuration states it")
    return found + "/" if value.strip().endswith("/") else found


MAX_ROLES: Final = 100
"""Maximum number of claim values that can be mapped to a role."""


def roles(value: Any) -> Any:
    """Parse a JSON object that maps claim values to roles. Raises ValueError for other text."""
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
    """Parse a list as `listed` does. Raises ValueError for a word that is empty or has blanks."""
    texts = listed(value)
    if isinstance(texts, list) and any(not each or len(each.split()) != 1 for each in texts):
        raise ValueError("must be names without spaces, separated by commas")
    return texts


def domains(value: Any) -> Any:
    """Parse a list of mail domains, in lower case. Raises ValueError for an invalid domain."""
    texts = words(value)
    if isinstance(texts, list) and not all(_HOST.fullmatch(each) for each in texts):
        raise ValueError("must be mail domains, such as shop.example")
    return tuple(map(lowered, texts)) if isinstance(texts, list) else texts


def calling_code(value: Any) -> Any:
    """Validate a country's calling code, and return it without a plus sign. Raises ValueError
    unless it is 1 to 3 digits."""
    text = value.strip().removeprefix("+") if isinstance(value, str) else value
    if isinstance(text, str) and text and not _CALLING_CODE.fullmatch(text):
        raise ValueError("must be a calling code: 1 to 3 digits, such as 254")
    return text


def time_zone(value: Any) -> Any:
    """Validate a time zone's name or an empty value. Raises ValueError for an unknown name."""
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
    if not is_currency(value):
        raise ValueError("must be a currency code, such as KES")
    return value


def mail_server_place(value: Any) -> Any:
    """Validate a host with an optional port, by default 587. Raises ValueError for other text."""
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
    """Parse 1 to 20 mail addresses separated by commas. Raises ValueError for other text."""
    if not isinstance(value, str):
        return value
    found = tuple(mail_address(each) for each in value.split(",") if each.strip())
    if not 0 < len(found) <= 20:
        raise ValueError("must be 1 to 20 addresses, separated by commas")
    return found


MAX_WITNESSES: Final = 16
"""Maximum number of signatures of a note that every verifier must accept (C2SP signed-note)."""


def witnesses(value: Any) -> Any:
    """Parse a list of witnesses `KEY URL`, a verifier key and the address before `/add-checkpoint`.
    Raises ValueError with all mistakes."""
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
                raise ValueError("would be called unencrypted; use https://")
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


KIB: Final = 1024
MIB: Final = 1024 * KIB

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
Profile = Annotated[str, StringConstraints(pattern=r"^(?:[a-z0-9_-]{1,40}|[^\x00]*[/.][^\x00]*)$")]
Merchant = Annotated[
    str, StringConstraints(strip_whitespace=True, max_length=80, pattern=r"^[^\x00-\x1f\x7f]*$")
]
MerchantWords = Annotated[
    str, StringConstraints(strip_whitespace=True, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")
]
Name = Annotated[str, BeforeValidator(lowered), StringConstraints(pattern=r"^[a-z0-9_-]{1,40}$")]


def _number(default: int, low: int, high: int, explained: str | None = None) -> Any:
    """Declare a number with its bounds, and explain it. `make write` copies the declaration to
    config.example.env."""
    description = f"{explained} {low:,} to {high:,}." if explained else None
    return Field(default=default, ge=low, le=high, description=description)


class Section(BaseModel):
    """Group of settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class SourceSettings(Section):
    """Settings of one provider account.

    profile       name of a shipped profile, or the path of another file (with / or .toml)
    address       secret words in place of the source's name in the path, newest first, if the
                  provider signs nothing
    secrets       valid secrets, newest first, including those from the file
    secrets_file  file of the secrets, if any; `read_secret_file` reads it again
    keys          keys by name, used if requests name the key that signed them. A name is a key id
                  or the name of a part
    credentials   values for requests to the provider. The profile determines the names of the
                  values
    account       accounts whose events count. It is used with profiles whose events name an account
    only          values by which events name our shop, by the event's member
    orders        `own`: an event of another source never belongs to an order of this source. A
                  record from the shop belongs to such an order only if the record names this source
    link_by       `references`: a payment belongs to an order only if the shop named the payment or
                  its session, or if an event ties it to one of these. If the payment's event names
                  an order, that order is only suggested
    shared        whether another shop or system uses the account; `unknown` if nobody has stated it
    captures      payment methods that the provider captures automatically, as written in the
                  profile's `code`. The setting requires the credential `webhook`
    link_mismatch  `hold`: if only the order number links a payment to its order, the payment counts
                   only if its amount is a price of the order
    """

    profile: Profile = "checkout"
    address: Addresses = ()
    secrets: Secrets = ()
    secrets_file: Path | None = None
    keys: NamedSecrets = Field(default_factory=dict)
    credentials: NamedSecrets = Field(default_factory=dict)
    account: Accounts = ()
    only: Only = Field(default_factory=dict)
    orders: Annotated[Literal["shared", "own"], BeforeValidator(lowered)] = "shared"
    link_by: Annotated[Literal["order", "references"], BeforeValidator(lowered)] = "order"
    shared: Annotated[Literal["unknown", "yes", "no"], BeforeValidator(lowered)] = "unknown"
    captures: Accounts = ()
    link_mismatch: Annotated[Literal["accept", "hold"], BeforeValidator(lowered)] = "accept"


class CheckoutSettings(Section):
    """Settings of the service that opens checkout sessions. If all are None, no sessions are
    opened.

    token   the bearer token; read from `token_file` if only the file is given
    source  name of the source that receives the sessions' webhooks
    """

    base_url: BaseUrl | None = None
    token: SecretStr | None = None
    token_file: Path | None = None
    source: Name | None = None


class ShopSettings(Section):
    """Settings of the address that is notified of every revision. If all are None, nobody is
    notified.

    secret  secret that signs the notifications; read from `secret_file` if only the file is given
    """

    url: EndpointUrl | None = None
    secret: SecretStr | None = None
    secret_file: Path | None = None


class ReportsSettings(Section):
    """Destinations of scheduled reports.

    folder       folder for the reports' files
    mail_server  host:port; the password is sent only over TLS, or to this machine
    url          address to which reports are posted, signed with `secret` like notifications
    accounts     file with the account names of every journal
    currency     the merchant's own currency, for totals; None for no such totals
    rates        file of exchange rates to that currency
    """

    accounts: Path | None = None
    currency: Currency | None = None
    rates: Path | None = None
    folder: Path | None = None
    mail_server: MailServerPlace | None = None
    mail_user: str | None = None
    mail_password: SecretStr | None = None
    mail_password_file: Path | None = None
    mail_from: MailAddress | None = None
    mail_to: MailAddresses = ()
    url: EndpointUrl | None = None
    secret: SecretStr | None = None
    secret_file: Path | None = None


class AlarmsSettings(Section):
    """Destinations of alarms. Each gets a message when an alarm begins and when it ends.

    url      address to which alarms are posted, signed with `secret` like notifications
    mail_to  recipients of mails, sent by the mail server of the reports
    """

    url: EndpointUrl | None = None
    secret: SecretStr | None = None
    secret_file: Path | None = None
    mail_to: MailAddresses = ()


class EvidenceSettings(Section):
    """Settings for signing evidence, and for the log's witnesses.

    key_file  path of the ed25519 key in PEM, which is created at the first start; if None, the file
              is beside the database
    publish   whether the receiver publishes its keys, its newest checkpoint and consistency proofs
              under /.well-known/tallyhook/
    witnesses
              cosigners of checkpoints, each `KEY URL`
    witness_quorum
              number of witnesses that must cosign; 0 for more than half of them
    witness_every_s
              seconds between two requests to the witnesses
    witness_alarm_s
              seconds without enough cosignatures before an alarm
    """

    key_file: Path | None = None
    publish: bool = False
    witnesses: WitnessList = ()
    witness_quorum: int = _number(0, 0, MAX_WITNESSES)
    witness_every_s: int = _number(600, 60, 86_400)
    witness_alarm_s: int = _number(7200, 300, 30 * 86_400)


class PhonesSettings(Section):
    """Settings for customers' phone numbers.

    key_file        path of the key for the digests by which orders are searched. The key is created
                    at the first start. If None, the file is beside the database
    shown_per_hour  how many numbers, bodies and full bundles one operator may see in an hour
                    without a proposal
    """

    key_file: Path | None = None
    shown_per_hour: int = _number(20, 1, 10_000)


class RehearsalSettings(Section):
    """Settings for the scenarios of `tallyhook rehearse`.

    numbers  test numbers by scenario; if empty, the numbers of the simulated provider
    """

    numbers: NamedSecrets = Field(default_factory=dict)
    amount: Annotated[str, StringConstraints(pattern=r"^\d{1,12}(?:\.\d{1,4})?$")] = "1500.00"
    currency: Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")] = "KES"


class ConsoleSettings(Section):
    """Addresses of the console.

    public_url  https address for browsers; if empty, the console serves only this machine
    port        port on this machine, unless the command line has one
    mappings    folder of mapping files that an import form offers by name
    """

    public_url: HttpsUrl = ""
    port: int = _number(8081, 1, 65_535)
    mappings: Path | None = None


class OidcSettings(Section):
    """Settings for signing in with the company's account by OpenID Connect. If all are None,
    operators sign in only with passwords.

    issuer          the provider, exactly as its tokens state it
    client_secret   secret of the client; read from `client_secret_file` if only the file is given
    scopes          scopes to request in addition to `openid`
    name_claim      claim with a person's name, which the audit trail shows
    role_claim      claim whose values decide the role: its name, or a path with dots
    roles           role for each value of the claim; if a person has several of these values, the
                    first listed value decides
    domains         domains of verified mail addresses that may sign in; if empty, all may
    acr, amr        ways of signing in, one of which the token must state; if empty, any will do
    local_accounts  `off` if nobody may sign in with a password
    """

    issuer: Issuer | None = None
    client_id: MerchantWords = ""
    client_secret: SecretStr | None = None
    client_secret_file: Path | None = None
    scopes: Words = ("email", "profile")
    name_claim: MerchantWords = "email"
    role_claim: MerchantWords = "groups"
    roles: RolesByValue = Field(default_factory=dict)
    domains: Domains = ()
    acr: Words = ()
    amr: Words = ()
    local_accounts: OnOff = "on"


class Settings(BaseModel):
    """All settings after validation. `load_settings` builds them; a test passes them by keyword.

    Numbers ending in `_s` are seconds, in `_bytes` bytes, in `_mb` MiB.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True
    )

    environment: Annotated[Literal["sandbox", "live"], BeforeValidator(lowered)] | None = None
    # Left out of the repr, because a PostgreSQL URL has a password.
    database_url: DatabaseUrl = Field(default="sqlite+aiosqlite:///var/tallyhook.db", repr=False)
    sources: dict[str, SourceSettings] = Field(default_factory=dict)
    checkout: CheckoutSettings = Field(default_factory=CheckoutSettings)
    shop: ShopSettings = Field(default_factory=ShopSettings)
    reports: ReportsSettings = Field(default_factory=ReportsSettings)
    alarms: AlarmsSettings = Field(default_factory=AlarmsSettings)
    evidence: EvidenceSettings = Field(default_factory=EvidenceSettings)
    phones: PhonesSettings = Field(default_factory=PhonesSettings)
    rehearsal: RehearsalSettings = Field(default_factory=RehearsalSettings)
    console: ConsoleSettings = Field(default_factory=ConsoleSettings)
    oidc: OidcSettings = Field(default_factory=OidcSettings)
    erasure_journal: Path | None = None
    import_folder: Path | None = None
    phone_country: CallingCode = ""
    timezone: TimeZone = ""
    merchant: Merchant = ""
    merchant_address: MerchantWords = ""
    merchant_contact: MerchantWords = ""
    schedule: Schedule = ""

    require_order_record: Switch = "auto"

    payment_window_s: int = _number(1800, 1, 30 * 86_400)
    grace_s: int = _number(300, 0, 7 * 86_400)
    late_after_s: int = _number(300, 1, 7 * 86_400)
    future_tolerance_s: int = _number(300, 0, 86_400)
    fulfillment_window_s: int = _number(86_400, 0, 365 * 86_400)
    refund_window_s: int = _number(864_000, 3600, 365 * 86_400)

    max_body_bytes: int = _number(MIB, KIB, 16 * MIB)
    max_header_bytes: int = _number(16 * KIB, KIB, 64 * KIB)
    max_bodies_bytes: int = _number(16 * MIB, KIB, 16 * KIB * MIB)
    max_connections: int = _number(2048, 1, 65_536)
    max_connections_per_address: int = _number(256, 1, 65_536)
    receive_deadline_s: int = _number(10, 1, 300)
    send_deadline_s: int = _number(10, 1, 300)
    idle_deadline_s: int = _number(75, 1, 3600)
    forwarded_allow_ips: Networks = ()
    public_url: PublicUrl = ""

    inbox_queue: int = _number(4096, 1, 65_536)
    inbox_batch: int = _number(512, 1, 4096)
    inbox_max_bytes: int = _number(4 * KIB * MIB, MIB, MIB * MIB)
    inbox_alarm_s: int = _number(10, 1, 86_400)
    inbox_red_s: int = _number(60, 1, 86_400)
    unallocated_alarm_s: int = _number(86_400, 1, 365 * 86_400)
    accept_provider_discounts: int = _number(0, 0, 100)
    rejections_max_count: int = _number(10_000, 0, 1_000_000)
    rejections_max_bytes: int = _number(64 * MIB, 0, 16 * KIB * MIB)
    rejected_body_bytes: int = _number(64 * KIB, 0, 16 * MIB)
    rejections_per_minute: int = _number(3000, 1, 1_000_000)
    rejections_per_minute_per_address: int = _number(600, 1, 1_000_000)
    unsigned_per_minute: int = _number(1200, 1, 1_000_000)
    unsigned_per_minute_per_address: int = _number(600, 1, 1_000_000)
    disk_low_water_mb: int = _number(64, 0, MIB)
    standbys: int = _number(0, 0, 100)

    retention_days: int = _number(0, 0, 3650)
    retention_phones_days: int = _number(0, 0, 3650)
    retention_rejections_days: int = _number(0, 0, 3650)
    retention_book_phones_days: int = _number(0, 0, 3650)
    retention_minimum_days: int = _number(0, 0, 3650)
    retention_accounts_days: int = _number(0, 0, 7305)
    retention_disputes_days: int = _number(0, 0, 3650)
    retention_unallocated_days: int = _number(0, 0, 3650)
    backups_kept_days: int = _number(0, 0, 3650)

    closing_margin_days: int = _number(10, 1, 60)

    longpoll_max_s: int = _number(60, 1, 600)
    page_max: int = _number(1000, 1, 10_000, "Maximum number of rows on one page of a listing.")
    worker_batch: int = _number(500, 1, 10_000, "Maximum number of due orders folded at once.")

    log_format: Annotated[Literal["json", "console", "auto"], BeforeValidator(lowered)] = "auto"
    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(lowered)] = (
        "info"
    )
    log_lines_per_minute: int = _number(12_000, 100, 10_000_000)

    _warnings: tuple[str, ...] = PrivateAttr(default=())
    _profile_files: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return a sentence, with the variable, for each setting that live would refuse."""
        return self._warnings

    @property
    def profile_files(self) -> Mapping[str, str]:
        """Return the texts of the merchant's own profiles by path, each read once."""
        return self._profile_files

    def _beside_database(self, ending: str) -> Path | None:
        database = sqlite_file(self.database_url)
        return None if database is None else database.with_name(f"{database.stem}.{ending}")

    @property
    def phone_key_path(self) -> Path:
        """Return the path of the phone key: the setting, else beside the database file, else in
        `var`."""
        path = self.phones.key_file or self._beside_database("phone.key")
        return path or Path("var/tallyhook.phone.key")

    @property
    def evidence_key_path(self) -> Path:
        """Return the path of the evidence key: the setting, else beside the database file, else in
        `var`."""
        path = self.evidence.key_file or self._beside_database("evidence.key")
        return path or Path("var/tallyhook.evidence.key")

    @property
    def erasure_journal_path(self) -> Path | None:
        """Return the path of the erasure journal: the setting, else beside the database file, else
        None."""
        return self.erasure_journal or self._beside_database("erasures")

    def for_copy(self, database_url: str) -> Settings:
        """Return the settings for a copy of the database, with the original's keys and journal."""
        return self.model_copy(
            update={
                "database_url": database_url,
                "phones": PhonesSettings(key_file=self.phone_key_path),
                "evidence": self.evidence.model_copy(update={"key_file": self.evidence_key_path}),
                "erasure_journal": self.erasure_journal_path,
            }
        )

    @property
    def deletes_phones(self) -> bool:
        """Return whether digests of phone numbers are deleted after some time."""
        return bool(self.retention_phones_days or self.retention_days)

    @property
    def requires_order_record(self) -> bool:
        """Return whether an order needs a price stated by the shop. By default, it does if the
        environment is live."""
        chosen = self.require_order_record
        return self.environment == "live" if chosen == "auto" else chosen == "on"

    def policy(self, *, required_since: Instant | None = None) -> Policy:
        """Build the policy for folding.

        required_since  instant since which the shop must state each order's price, from
                        `order_facts`
        """
        return Policy(
            payment_window=self.payment_window_s * SECOND,
            grace=self.grace_s * SECOND,
            late_after=self.late_after_s * SECOND,
            future_tolerance=self.future_tolerance_s * SECOND,
            fulfillment_window=self.fulfillment_window_s * SECOND or None,
            refund_window=self.refund_window_s * SECOND,
            require_order_record_since=required_since,
            provider_discount_percent=self.accept_provider_discounts,
            mismatch_held=tuple(
                sorted(n for n, each in self.sources.items() if each.link_mismatch == "hold")
            ),
        )


SECTIONS: Final[Mapping[str, type[Section]]] = {
    name: kind
    for name, field in Settings.model_fields.items()
    if isinstance(kind := field.annotation, type) and issubclass(kind, Section)
}
"""Settings sections by name, except the sections of single sources."""
