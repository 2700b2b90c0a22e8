"""Declaration of all settings, with types, bounds and defaults.

Settings come from environment variables, or from the dotenv file that TALLYHOOK_CONFIG names.
Nothing is read at import: `load_settings` reads once. config.example.env explains each setting; a
test compares the two. Leaves out: whether a profile exists (app.providers knows), and whether the
database can be reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    StringConstraints,
)

from app.config import values
from app.config.database_url import sqlite_file
from reconcile.instants import SECOND, Instant
from reconcile.ledger.policy import Policy

KIB: Final = 1024
MIB: Final = 1024 * KIB


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

    profile: values.Profile = "checkout"
    address: values.Addresses = ()
    secrets: values.Secrets = ()
    secrets_file: Path | None = None
    keys: values.NamedSecrets = Field(default_factory=dict)
    credentials: values.NamedSecrets = Field(default_factory=dict)
    account: values.Accounts = ()
    only: values.Only = Field(default_factory=dict)
    orders: Annotated[Literal["shared", "own"], values.Lowered] = "shared"
    link_by: Annotated[Literal["order", "references"], values.Lowered] = "order"
    shared: Annotated[Literal["unknown", "yes", "no"], values.Lowered] = "unknown"
    captures: values.Accounts = ()
    link_mismatch: Annotated[Literal["accept", "hold"], values.Lowered] = "accept"


class CheckoutSettings(Section):
    """Settings of the service that opens checkout sessions. If all are None, no sessions are
    opened.

    token   the bearer token; read from `token_file` if only the file is given
    source  name of the source that receives the sessions' webhooks
    """

    base_url: values.BaseUrl | None = None
    token: SecretStr | None = None
    token_file: Path | None = None
    source: values.Name | None = None


class ShopSettings(Section):
    """Settings of the address that is notified of every revision. If all are None, nobody is
    notified.

    secret  secret that signs the notifications; read from `secret_file` if only the file is given
    """

    url: values.EndpointUrl | None = None
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
    currency: values.Currency | None = None
    rates: Path | None = None
    folder: Path | None = None
    mail_server: values.MailServerPlace | None = None
    mail_user: str | None = None
    mail_password: SecretStr | None = None
    mail_password_file: Path | None = None
    mail_from: values.MailAddress | None = None
    mail_to: values.MailAddresses = ()
    url: values.EndpointUrl | None = None
    secret: SecretStr | None = None
    secret_file: Path | None = None


class AlarmsSettings(Section):
    """Destinations of alarms. Each gets a message when an alarm begins and when it ends.

    url      address to which alarms are posted, signed with `secret` like notifications
    mail_to  recipients of mails, sent by the mail server of the reports
    """

    url: values.EndpointUrl | None = None
    secret: SecretStr | None = None
    secret_file: Path | None = None
    mail_to: values.MailAddresses = ()


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
    witnesses: values.WitnessList = ()
    witness_quorum: int = _number(0, 0, values.MAX_WITNESSES)
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

    numbers: values.NamedSecrets = Field(default_factory=dict)
    amount: Annotated[str, StringConstraints(pattern=r"^\d{1,12}(?:\.\d{1,4})?$")] = "1500.00"
    currency: Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")] = "KES"


class ConsoleSettings(Section):
    """Addresses of the console.

    public_url  https address for browsers; if empty, the console serves only this machine
    port        port on this machine, unless the command line has one
    mappings    folder of mapping files that an import form offers by name
    """

    public_url: values.HttpsUrl = ""
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

    issuer: values.Issuer | None = None
    client_id: values.MerchantWords = ""
    client_secret: SecretStr | None = None
    client_secret_file: Path | None = None
    scopes: values.Words = ("email", "profile")
    name_claim: values.MerchantWords = "email"
    role_claim: values.MerchantWords = "groups"
    roles: values.RolesByValue = Field(default_factory=dict)
    domains: values.Domains = ()
    acr: values.Words = ()
    amr: values.Words = ()
    local_accounts: values.OnOff = "on"


class Settings(BaseModel):
    """All settings after validation. `load_settings` builds them; a test passes them by keyword.

    Numbers ending in `_s` are seconds, in `_bytes` bytes, in `_mb` MiB.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True
    )

    environment: Annotated[Literal["sandbox", "live"], values.Lowered] | None = None
    # Left out of the repr, because a PostgreSQL URL has a password.
    database_url: values.DatabaseUrl = Field(
        default="sqlite+aiosqlite:///var/tallyhook.db", repr=False
    )
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
    phone_country: values.CallingCode = ""
    timezone: values.TimeZone = ""
    merchant: values.Merchant = ""
    merchant_address: values.MerchantWords = ""
    merchant_contact: values.MerchantWords = ""
    schedule: values.Schedule = ""

    require_order_record: values.Switch = "auto"

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
    forwarded_allow_ips: values.Networks = ()
    public_url: values.PublicUrl = ""

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

    log_format: Annotated[Literal["json", "console", "auto"], values.Lowered] = "auto"
    log_level: Annotated[Literal["debug", "info", "warning", "error"], values.Lowered] = "info"
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
