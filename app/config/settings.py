"""The settings: environment variables, or a dotenv file named by TALLYHOOK_CONFIG.

Leaves out: whether a profile of that name exists (app.providers knows) and whether the database
can be reached. Nothing is read at import; `load_settings` reads once and reports every mistake at
once, never with a value in it, since any value could be a secret in the wrong place.
config.example.env explains each setting; a test holds the two together.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal
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
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from app.config.database_url import database_url, sqlite_file
from app.config.reading import PREFIX
from app.core.errors import UsageError
from app.core.hosts import is_loopback
from app.core.schedule import schedule_entries
from app.core.zones import zone_named
from reconcile.instants import SECOND, Instant, parse_instant
from reconcile.ledger.policy import Policy
from reconcile.transparency.cosignatures import VerifierKey, read_cosigner

_ANYBODY: Final = "lets any sender choose its address: name the proxies one by one"

_WIDEST: Final = {4: 8, 6: 7}
"""Bits of the widest private networks, 10.0.0.0/8 and fc00::/7; wider ones take in strangers."""


def lowered(value: Any) -> Any:
    """Text in lower case without blanks around it; anything else as it is."""
    return value.strip().lower() if isinstance(value, str) else value


_CALLING_CODE: Final = re.compile("[1-9][0-9]{0,2}", re.ASCII)
"""ITU-T E.164."""

_SWITCHED: Final = {"true": "on", "1": "on", "yes": "on", "false": "off", "0": "off", "no": "off"}


def switched(value: Any) -> Any:
    """`on` or `off` for what means it; anything else as it is."""
    if isinstance(value, bool):
        return "on" if value else "off"
    word = lowered(value)
    return _SWITCHED.get(word, word) if isinstance(word, str) else word


def listed(value: Any) -> Any:
    """A JSON list of texts, or texts separated by commas; a list as it is.

    Raises ValueError when the text begins as a JSON list and is not one of texts.
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
    """A secret, and when it ends: `SECRET until 2026-12-01T00:00:00Z`. `until` None: never.

    Raises ValueError for an end that is no moment of RFC 3339 in UTC.
    """

    def __init__(self, secret_value: str) -> None:
        secret, word, end = secret_value.rpartition(_UNTIL)
        super().__init__(secret if word else secret_value)
        self.until: Instant | None = _moment(end) if word else None


def secrets(value: Any) -> Any:
    """What `listed` gives, each with its end. Raises ValueError as it and DatedSecret do."""
    texts = listed(value)
    if not isinstance(texts, list | tuple):
        return texts
    return [DatedSecret(each) if isinstance(each, str) else each for each in texts]


_UNTIL: Final = " until "


def _moment(text: str) -> Instant:
    try:
        return parse_instant(text)
    except ValueError:
        raise ValueError("has a secret whose end is not like 2026-12-01T00:00:00Z") from None


def named(value: Any) -> Any:
    """A JSON object of texts; an object as it is.

    Raises ValueError for anything else.
    """
    if not isinstance(value, str):
        return value
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(part, str) for part in found.values()):
        raise ValueError('must be a JSON object of texts, such as {"api_key": "value"}')
    return found


def accounts(value: Any) -> Any:
    """One account's name as it is, or a JSON list of several.

    Raises ValueError where one of them is empty or has blanks around it.
    """
    if not isinstance(value, str):
        return value
    found = listed(value) if value.lstrip().startswith("[") else [value]
    if not found or any(not each or each != each.strip() for each in found):
        raise ValueError('must be an account as the events name it, or a list: ["one", "other"]')
    return found


def networks(value: Any) -> Any:
    """IP addresses or networks, none of which takes in everybody.

    Raises ValueError for anything else. Behind a proxy that is not named here, the peer's own
    address counts, which cannot be forged; `*` would let every sender choose its address.
    """
    return tuple(_network(part) for part in listed(value) if part)


def _network(text: str) -> str:
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
    # As the server in front of us reads it: a network whose host bits are set would match nobody.
    return str(network) if "/" in text else text


def base_url(value: Any) -> Any:
    """An http or https URL without a slash at its end.

    Raises ValueError when it has no host, or a user, a query or a fragment.
    """
    if not isinstance(value, str):
        return value
    parts = _split(value)
    blank = any(each.isspace() for each in value.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname or blank:
        raise ValueError("must be a URL such as https://payments.example")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("must be a URL without user, password, query and fragment")
    return _in_small(parts, value).rstrip("/")


def endpoint_url(value: Any) -> Any:
    """An http or https URL as it is to be called, its path and query as they are.

    Raises ValueError when it has no host, or a user or a fragment.
    """
    if not isinstance(value, str):
        return value
    parts = _split(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be a URL such as https://shop.example/payments")
    if parts.username or parts.password or parts.fragment:
        raise ValueError("must be a URL without user, password and fragment")
    return _in_small(parts, value)


def _in_small(parts: SplitResult, value: str) -> str:
    """With its scheme in small letters, by which others see what is encrypted."""
    return parts.scheme + value.strip()[len(parts.scheme) :]


def public_url(value: Any) -> Any:
    """The same, or nothing. Raises ValueError, too, for the address of one source."""
    found = value if value == "" else base_url(value)
    if isinstance(found, str) and urlsplit(found).path.split("/")[-2:-1] == ["webhooks"]:
        raise ValueError(
            "must be scheme and host, without /webhooks and a source's name: "
            "https://hooks.shop.example"
        )
    return found


def https_url(value: Any) -> Any:
    """An https address without a path, or nothing. Raises ValueError for anything else."""
    if value == "" or not isinstance(value, str):
        return value
    found = str(base_url(value)).lower()
    if not found.startswith("https://") or urlsplit(found).path:
        raise ValueError("must be an https address without a path: https://console.shop.example")
    return found


def calling_code(value: Any) -> Any:
    """The digits of a country's calling code; a plus sign before them is left out."""
    text = value.strip().removeprefix("+") if isinstance(value, str) else value
    if isinstance(text, str) and text and not _CALLING_CODE.fullmatch(text):
        raise ValueError("must be a calling code: 1 to 3 digits, such as 254")
    return text


def time_zone(value: Any) -> Any:
    """The name of a time zone, such as Africa/Nairobi, or nothing. Raises ValueError where none is
    known."""
    if not isinstance(value, str) or value in ("UTC", ""):
        return value
    try:
        zone_named(value)
    except UsageError:
        raise ValueError("must be a time zone's name, such as Africa/Nairobi or UTC") from None
    return value


def schedule(value: Any) -> Any:
    """The text of a schedule. Raises ValueError where an entry of it is none."""
    if isinstance(value, str) and value.strip():
        schedule_entries(value)
    return value


def mail_server(value: Any) -> Any:
    """A host, with a port where it is not 587. Raises ValueError for anything else."""
    if not isinstance(value, str):
        return value
    host, _, port = value.strip().partition(":")
    if not _HOST.fullmatch(host) or (port and not (port.isdigit() and 0 < int(port) < 65_536)):
        raise ValueError("must be a host and perhaps a port: smtp.example:587")
    return f"{host}:{port or 587}"


def mail_address(value: Any) -> Any:
    """One address. Raises ValueError for what is none."""
    if isinstance(value, str) and not _ADDRESS.fullmatch(value.strip()):
        raise ValueError("must be an address such as reports@shop.example")
    return value.strip() if isinstance(value, str) else value


def mail_addresses(value: Any) -> Any:
    """Addresses separated by commas. Raises ValueError where one is none, and for more than 20."""
    if not isinstance(value, str):
        return value
    found = tuple(mail_address(each) for each in value.split(",") if each.strip())
    if not 0 < len(found) <= 20:
        raise ValueError("must be 1 to 20 addresses, separated by commas")
    return found


MAX_WITNESSES: Final = 16
"""As many signatures of one note as every verifier has to take: C2SP signed-note."""


def witnesses(value: Any) -> Any:
    """Witnesses as what `listed` gives, each `KEY URL`: a verifier key, and the address before
    `/add-checkpoint`. Raises ValueError with all that is wrong with them."""
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
            key, url = _witness(text)
            if any(other.raw == key.raw or other.name == key.name for other in keys):
                raise ValueError("has the key or the name of another: each is to be one of its own")
            keys.append(key)
            found.append(f"{key.text} {url}")
        except ValueError as error:
            wrong.append(f"witness {number} {error}")
    if wrong:
        raise ValueError("; ".join(wrong))
    return tuple(found)


def _witness(text: str) -> tuple[VerifierKey, str]:
    words = text.split()
    if len(words) != 2:
        raise ValueError("must be a verifier key, a blank and an address: NAME+ID+KEY https://...")
    url = str(base_url(words[1]))
    if not url.startswith("https:") and not is_loopback(urlsplit(url).hostname or ""):
        raise ValueError("is asked unencrypted; write https:// in front")
    return read_cosigner(words[0]), url


_HOST: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")
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

Secrets = Annotated[tuple[DatedSecret, ...], NoDecode, BeforeValidator(secrets)]
NamedSecrets = Annotated[dict[str, SecretStr], NoDecode, BeforeValidator(named)]
Accounts = Annotated[tuple[str, ...], NoDecode, BeforeValidator(accounts)]
BaseUrl = Annotated[str, BeforeValidator(base_url)]
PublicUrl = Annotated[str, BeforeValidator(public_url)]
HttpsUrl = Annotated[str, BeforeValidator(https_url)]
TimeZone = Annotated[str, BeforeValidator(time_zone)]
CallingCode = Annotated[str, BeforeValidator(calling_code)]
Schedule = Annotated[str, BeforeValidator(schedule)]
MailServer = Annotated[str, BeforeValidator(mail_server)]
MailAddress = Annotated[str, BeforeValidator(mail_address)]
MailAddresses = Annotated[tuple[str, ...], NoDecode, BeforeValidator(mail_addresses)]
WitnessList = Annotated[tuple[str, ...], NoDecode, BeforeValidator(witnesses)]
EndpointUrl = Annotated[str, BeforeValidator(endpoint_url)]
DatabaseUrl = Annotated[str, BeforeValidator(database_url)]
Switch = Annotated[Literal["auto", "on", "off"], BeforeValidator(switched)]
Networks = Annotated[tuple[str, ...], NoDecode, BeforeValidator(networks)]
Profile = Annotated[str, StringConstraints(pattern=r"^(?:[a-z0-9_-]{1,40}|[^\x00]*[/.][^\x00]*)$")]
Merchant = Annotated[
    str, StringConstraints(strip_whitespace=True, max_length=80, pattern=r"^[^\x00-\x1f\x7f]*$")
]
MerchantWords = Annotated[
    str, StringConstraints(strip_whitespace=True, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")
]
Name = Annotated[str, BeforeValidator(lowered), StringConstraints(pattern=r"^[a-z0-9_-]{1,40}$")]


def _number(default: int, low: int, high: int) -> Any:
    """A whole number with its bounds, both included; the unit is in the setting's name."""
    return Field(default=default, ge=low, le=high)


class SourceSettings(BaseModel):
    """One provider account: how it signs, and with what.

    profile       a shipped profile's name, or the path of a file of one's own (with / or .toml)
    secrets       newest first, wherever they came from: any of them may match
    secrets_file  where they came from, if a file; `read_secret_file` reads it again
    keys          of profiles whose requests name their key: key id, or the part's name, to the key
    credentials   with which the provider is asked back, by the names that the profile uses
    account       of profiles whose events name an account: those whose events count
    orders        `own`: no other source's event, and no record of the shop but one that says so,
                  speaks of an order of this source
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    profile: Profile = "checkout"
    secrets: Secrets = ()
    secrets_file: Path | None = None
    keys: NamedSecrets = Field(default_factory=dict)
    credentials: NamedSecrets = Field(default_factory=dict)
    account: Accounts = ()
    orders: Annotated[Literal["shared", "own"], BeforeValidator(lowered)] = "shared"


class CheckoutSettings(BaseModel):
    """Where sessions are opened. All None: this installation opens none.

    token   the bearer token, wherever it came from
    source  name of the source that the sessions' webhooks come from
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    base_url: BaseUrl | None = None
    token: SecretStr | None = None
    token_file: Path | None = None
    source: Name | None = None


class ShopSettings(BaseModel):
    """Where the shop is notified of every revision. All None: it reads the feed, or nothing.

    secret  signs the notifications, wherever it came from
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: EndpointUrl | None = None
    secret: SecretStr | None = None
    secret_file: Path | None = None


class ReportsSettings(BaseModel):
    """Where scheduled reports go.

    folder       into which files are put
    mail_server  host:port; the password is asked for only over TLS, but of this machine's own
    url          to which they are posted, signed with `secret` as notifications are
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: Path | None = None
    mail_server: MailServer | None = None
    mail_user: str | None = None
    mail_password: SecretStr | None = None
    mail_password_file: Path | None = None
    mail_from: MailAddress | None = None
    mail_to: MailAddresses = ()
    url: EndpointUrl | None = None
    secret: SecretStr | None = None
    secret_file: Path | None = None


class AlarmsSettings(BaseModel):
    """Who is notified of each alarm, once when it is raised and once when it is over.

    url      to which that is posted, signed with `secret` as notifications are
    mail_to  to whom it is mailed, by the mail server of the reports
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: EndpointUrl | None = None
    secret: SecretStr | None = None
    secret_file: Path | None = None
    mail_to: MailAddresses = ()


class EvidenceSettings(BaseModel):
    """With what evidence is signed.

    key_file  the ed25519 key in PEM, made at the first start; None: beside the database
    publish   whether the receiver shows strangers its keys, its newest checkpoint and that the log
              only grew, under /.well-known/tallyhook/
    witnesses  who cosigns checkpoints, each `KEY URL`
    witness_quorum   how many of them have to; 0: more than half of them
    witness_every_s  how often they are asked
    witness_alarm_s  for how long too few may cosign before that is an alarm
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    key_file: Path | None = None
    publish: bool = False
    witnesses: WitnessList = ()
    witness_quorum: int = _number(0, 0, MAX_WITNESSES)
    witness_every_s: int = _number(600, 60, 86_400)
    witness_alarm_s: int = _number(7200, 300, 30 * 86_400)


class PhonesSettings(BaseModel):
    """By what orders are found that a phone number belongs to.

    key_file  the key of the numbers' digests, made at the first start; None: beside the database
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    key_file: Path | None = None


class RehearsalSettings(BaseModel):
    """What `tallyhook rehearse` plays.

    numbers  a test number for each scenario's name; empty: those of the simulated provider
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    numbers: NamedSecrets = Field(default_factory=dict)
    amount: Annotated[str, StringConstraints(pattern=r"^\d{1,12}(?:\.\d{1,4})?$")] = "1500.00"
    currency: Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")] = "KES"


class ConsoleSettings(BaseModel):
    """Where people find the console.

    public_url  its address as browsers know it, https; empty: on this machine alone
    port        where it listens on this machine, unless its command line says otherwise
    mappings    the folder of mapping files that an import's form offers by name
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    public_url: HttpsUrl = ""
    port: int = _number(8081, 1, 65_535)
    mappings: Path | None = None


class Settings(BaseSettings):
    """Every setting, checked. Built by `load_settings`, or in tests by keyword.

    Numbers ending in `_s` are seconds, in `_bytes` bytes, in `_mb` MiB; the others count what they
    name.
    """

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        hide_input_in_errors=True,
    )

    environment: Annotated[Literal["sandbox", "live"], BeforeValidator(lowered)] | None = None
    # Not shown: a PostgreSQL URL carries a password.
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
    erasure_journal: Path | None = None
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
    rejections_max_count: int = _number(10_000, 0, 1_000_000)
    rejections_max_bytes: int = _number(64 * MIB, 0, 16 * KIB * MIB)
    rejected_body_bytes: int = _number(64 * KIB, 0, 16 * MIB)
    rejections_per_minute: int = _number(3000, 1, 1_000_000)
    rejections_per_minute_per_address: int = _number(600, 1, 1_000_000)
    unsigned_per_minute: int = _number(1200, 1, 1_000_000)
    unsigned_per_minute_per_address: int = _number(600, 1, 1_000_000)
    disk_low_water_mb: int = _number(64, 0, MIB)

    retention_days: int = _number(0, 0, 3650)
    retention_phones_days: int = _number(0, 0, 3650)
    retention_rejections_days: int = _number(0, 0, 3650)
    retention_book_phones_days: int = _number(0, 0, 3650)
    retention_minimum_days: int = _number(0, 0, 3650)

    closing_margin_days: int = _number(10, 1, 60)

    longpoll_max_s: int = _number(60, 1, 600)
    page_max: int = _number(1000, 1, 10_000)
    worker_batch: int = _number(500, 1, 10_000)

    log_format: Annotated[Literal["json", "console", "auto"], BeforeValidator(lowered)] = "auto"
    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(lowered)] = (
        "info"
    )
    log_lines_per_minute: int = _number(12_000, 100, 10_000_000)

    _warnings: tuple[str, ...] = PrivateAttr(default=())

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is allowed here but would not be in live, one sentence each with the variable."""
        return self._warnings

    def _beside_database(self, ending: str) -> Path | None:
        database = sqlite_file(self.database_url)
        return None if database is None else database.with_name(f"{database.stem}.{ending}")

    @property
    def phone_key_path(self) -> Path:
        """The phone key's file: as set, else beside the database, else in `var`."""
        path = self.phones.key_file or self._beside_database("phone.key")
        return path or Path("var/tallyhook.phone.key")

    @property
    def evidence_key_path(self) -> Path:
        """The evidence key's file: as set, else beside the database, else in `var`."""
        path = self.evidence.key_file or self._beside_database("evidence.key")
        return path or Path("var/tallyhook.evidence.key")

    @property
    def erasure_journal_path(self) -> Path | None:
        """The journal of erasures: as set, else beside the database; None on PostgreSQL without
        a setting."""
        return self.erasure_journal or self._beside_database("erasures")

    def for_copy(self, database_url: str) -> Settings:
        """Return the settings of a copy of the database, whose keys and journal lie where the
        database's own do."""
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
        """Whether digests of phone numbers are deleted when they are old."""
        return bool(self.retention_phones_days or self.retention_days)

    @property
    def requires_order_record(self) -> bool:
        """Whether an order needs a price of the shop's own: in live unless that is switched off."""
        chosen = self.require_order_record
        return self.environment == "live" if chosen == "auto" else chosen == "on"

    def policy(self, *, required_since: Instant | None = None) -> Policy:
        """What a fold depends on, in microseconds. required_since: see `folding.order_records`."""
        return Policy(
            payment_window=self.payment_window_s * SECOND,
            grace=self.grace_s * SECOND,
            late_after=self.late_after_s * SECOND,
            future_tolerance=self.future_tolerance_s * SECOND,
            fulfillment_window=self.fulfillment_window_s * SECOND or None,
            require_order_record_since=required_since,
        )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what is handed over: construction never looks at the process's environment."""
        return (init_settings,)


SECTIONS: Final[Mapping[str, type[BaseModel]]] = {
    "checkout": CheckoutSettings,
    "shop": ShopSettings,
    "alarms": AlarmsSettings,
    "reports": ReportsSettings,
    "evidence": EvidenceSettings,
    "phones": PhonesSettings,
    "rehearsal": RehearsalSettings,
    "console": ConsoleSettings,
}
"""Settings in groups of which there is one each."""
